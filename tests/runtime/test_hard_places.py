"""No folder to write to, no compiler, another chip: what runs is right, and is said in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import CompilerUnavailable
from magmagraph.runtime.cpu import compiler, compilers, toolchain

PROGRAM = """
import sys
import numpy as np
import magmagraph as mg

x = mg.var("x", shape=("n", 40))
w = mg.var("w", init=np.full((40, 3), 0.01, np.float32))
y = mg.exp(x @ w) * 2.0
step = mg.function([x], [y, mg.sum(y)], updates={w: w - 0.01 * mg.grad(mg.sum(y), w)})
held = w.value.astype(np.float64)
for n in (50, 7, 50):
    feed = np.random.default_rng(n).normal(size=(n, 40)).astype(np.float32)
    found, total = step(feed)
    want = 2.0 * np.exp(feed @ held)
    np.testing.assert_allclose(found, want, rtol=1e-5)
    np.testing.assert_allclose(total, want.sum(), rtol=1e-5)
    held -= 0.01 * (feed.T.astype(np.float64) @ want)
    np.testing.assert_allclose(w.value, held, rtol=1e-4, atol=1e-6)
second = mg.function([x], mg.tanh(x), name="second")
np.testing.assert_allclose(second(feed), np.tanh(feed), rtol=1e-5, atol=1e-6)
step.save(sys.argv[1])
again = mg.load(sys.argv[1])
np.testing.assert_allclose(again(feed)[0], 2.0 * np.exp(feed @ held), rtol=1e-4)
print("right")
"""


@pytest.mark.parametrize(
    ("compiler_there", "folder_there", "told"),
    [
        (True, False, "CacheWarning: the cache folder {folder}"),
        (False, True, "FallbackWarning: kernels are not compiled: MAGMAGRAPH_CC names 'no-such'"),
        (False, False, "FallbackWarning: kernels are not compiled: MAGMAGRAPH_CC names 'no-such'"),
    ],
)
def test_what_lacks_is_said_once_and_all_is_right(
    tmp_path: Path, compiler_there: bool, folder_there: bool, told: str
) -> None:
    if compiler_there:
        try:
            compilers.find_compiler()
        except CompilerUnavailable as error:
            pytest.skip(str(error))
    (tmp_path / "file").write_text("in the way")  # a folder that not even root can write to
    folder = tmp_path / "cache" if folder_there else tmp_path / "file" / "cache"
    environment = {**os.environ, "MAGMAGRAPH_CACHE_DIR": str(folder)}
    environment["MAGMAGRAPH_COMPILER"] = "auto"
    if not compiler_there:
        environment["MAGMAGRAPH_CC"] = "no-such"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "step.magma")],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    warned = [line for line in done.stderr.splitlines() if "Warning: " in line]
    assert len(warned) == 1, done.stderr
    assert told.format(folder=folder) in warned[0]


def test_kernels_of_another_chip_are_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that machines share holds code that this one may not be able to run."""
    try:
        compilers.find_compiler()
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    monkeypatch.setattr(mg.config, "compiler", "force")
    monkeypatch.setattr(mg.config, "cache_dir", str(tmp_path / "cache"))

    def start_afresh() -> None:
        monkeypatch.setattr(compiler, "_loaded", {})
        monkeypatch.setattr("magmagraph.runtime.cache._opened", {})
        compilers._find.cache_clear()

    start_afresh()
    x = mg.var("x", shape=("n",))
    f = mg.function([x], mg.exp(x) * 2.0 + mg.sin(x))
    feed = np.linspace(-1.0, 1.0, 1000, dtype=np.float32)
    want = f(feed)
    f.save(tmp_path / "f.magma")
    foreign = sorted((tmp_path / "cache").rglob("*.so"))
    assert foreign

    here = toolchain.machine()
    monkeypatch.setattr(toolchain, "machine", lambda: (*here, "a chip without its instructions"))
    for path in foreign:  # whoever loads one fails; what is loaded keeps its own file
        path.unlink()
        path.write_bytes(b"code of another chip")
    start_afresh()
    again = mg.load(tmp_path / "f.magma")
    np.testing.assert_array_equal(again(feed), want)
    built = set((tmp_path / "cache").rglob("*.so")) - set(foreign)
    assert built, "nothing was compiled for the chip that it runs on"
    assert "1 of 1 fused steps as compiled kernels" in str(again.report)
    compilers._find.cache_clear()
