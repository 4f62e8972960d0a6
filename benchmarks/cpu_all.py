"""Run every comparison with peers on the CPU within a budget of time, the most telling first.

``python benchmarks/cpu_all.py --budget 840``. Each file gets its share of what is left, and leaves
cases out where that is over; it writes its table, JSON and plot. At the end `cpu_plots.py` draws
the layers' times and all quotients from what there is.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import common
import opening

HERE = Path(__file__).parent
# Peers that are never the best of a file and slow to start are left out there.
QUICK = ("--peers", "magmagraph", "magmagraph, out=", "jax", "torch", "numpy", "copy")
# Ours on one core: `cpu_plots.py` tells what the second brings.
ALONE = ("--threads", "1", "--peers", "magmagraph", "--rounds", "3")
PLAN: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("cpu_mlp", 150, ("--rounds", "7")),
    ("cpu_rows", 90, ("--rounds", "7", *QUICK)),
    ("cpu_training", 100, ("--rounds", "7")),
    ("cpu_adam", 40, ("--rounds", "7", "--peers", "magmagraph", "jax", "torch", "torch, fused")),
    ("cpu_arrays", 80, ("--rounds", "7")),
    ("cpu_hvp", 40, ("--rounds", "7")),
    ("cpu_elementwise", 80, ("--rounds", "5", *QUICK)),
    (
        "cpu_sums", 70,
        ("--rounds", "5", "--peers", "magmagraph", "magmagraph, gemv", "magmagraph, generated",
         "jax", "torch", "numpy"),
    ),
    ("cpu_threads", 25, ("--rounds", "5")),
    ("cpu_no_compiler", 10, ("--rounds", "5")),
    ("cpu_first_call", 70, ("--rounds", "1", "--peers", "magmagraph", "jax")),
    ("cpu_epochs", 80, ("--peers", "magmagraph", "jax", "torch")),
    ("cpu_lstm", 30, ("--rounds", "5")),
    *((name, 12, ALONE) for name in ("cpu_mlp", "cpu_rows", "cpu_arrays", "cpu_training")),
)
"""File, share of the budget, arguments."""


def main() -> None:
    """Run the plan."""
    common.clean_environment()
    parser = opening.parser(__doc__)
    parser.add_argument("--budget", type=float, default=840.0, help="seconds (default: 840)")
    parser.add_argument("--only", nargs="+", help="files to run, such as cpu_mlp")
    parser.add_argument("--dry", action="store_true", help="print, but write no results")
    asked = parser.parse_args()
    plan = [entry for entry in PLAN if not asked.only or entry[0] in asked.only]
    end = time.monotonic() + asked.budget
    failed: list[str] = []
    for i, (name, share, arguments) in enumerate(plan):
        left = end - time.monotonic() - 5.0
        granted = left * share / sum(other for _, other, _ in plan[i:])
        if granted < 5.0:
            failed.append(f"{name}: no time was left")
            continue
        print(f"== {name}, {granted:.0f} s", flush=True)
        command = [sys.executable, str(HERE / f"{name}.py"), "--budget", f"{granted:.0f}"]
        try:
            # A library that hangs must not take the time of the files behind it.
            done = subprocess.run(
                [*command, *arguments, *(["--dry"] if asked.dry else [])],
                timeout=min(granted + 60.0, max(left, granted)),
            )
        except subprocess.TimeoutExpired:
            failed.append(f"{name}: ended after {granted + 60.0:.0f} s")
            continue
        if done.returncode:
            failed.append(f"{name}: status {done.returncode}")
    if not asked.dry:
        subprocess.run([sys.executable, str(HERE / "cpu_plots.py")], check=False)
    print("\n".join(failed) or "all ran")


if __name__ == "__main__":
    main()
