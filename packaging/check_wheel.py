"""Check an installed wheel: products run by its libraries where no compiler is on the path.

python packaging/check_wheel.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import warnings
import numpy as np
import magmagraph as mg
from magmagraph.runtime.cpu import installed

found = installed.found()
assert found is not None and found.variant, "the wheel has no libraries for this processor"
warnings.simplefilter("error")
x, w = mg.input("x", shape=("n", 100)), mg.input("w", shape=(100, 7))
f = mg.function([x, w], [x @ w], device="cpu")
got = f(np.ones((3, 100), np.float32), np.full((100, 7), 0.5, np.float32))[0]
assert (np.asarray(got) == 50.0).all(), got
assert not f.report.fallbacks, f.report.fallbacks
print(f"{mg.__version__}: {len(found.portable[found.variant])} libraries for {found.variant}")
"""


def main() -> None:
    """Run the program in a process without a path."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PATH": folder, "MAGMAGRAPH_CACHE_DIR": folder}
        for name in ("MAGMAGRAPH_CC", "MAGMAGRAPH_INSTALLED", "PYTHONPATH"):
            environment.pop(name, None)
        # In another folder, so that it is the wheel that is imported.
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, cwd=folder, check=False
        )
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
