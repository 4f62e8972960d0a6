"""Libraries of wheels that are given away: for variants of processors, chosen where they run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from magmagraph.errors import CompilerUnavailable
from magmagraph.runtime.cpu import installed, installing, sources, toolchain
from magmagraph.runtime.cpu.compilers import find_compiler

FEW = ("support", "blas-float32", "tiles-float32")
ROOT = Path(__file__).parents[2]
PRODUCT = """
import sys
sys.path.insert(0, {place!r})
import numpy as np
import magmagraph as mg
x, v = mg.input("x", shape=("n", 100)), mg.input("v", shape=(100, 7))
f = mg.function([x, v], [x @ v], device="cpu")
got = f(np.ones((3, 100), np.float32), np.full((100, 7), 0.5, np.float32))
assert (np.asarray(got) == 50.0).all(), got
assert not f.report.fallbacks, f.report.fallbacks
from magmagraph.runtime.cpu.support import support
print(support().library._name)
"""
STEP = """
import sys
sys.path.insert(0, {place!r})
import warnings
import numpy as np
import magmagraph as mg
x = mg.input("x", shape=("n", 100))
W = mg.var("W", shape=(100, 7), init=mg.init.ones())
y = mg.sin(mg.tanh(x @ W) + 3.0)
f = mg.optimizer.SGD(0.1).step(mg.mean(y * y), [W], inputs=[x], outputs=[y], device="cpu")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    (got,) = f(np.full((3, 100), 0.01, np.float32))
np.testing.assert_allclose(np.asarray(got), np.sin(np.tanh(1.0) + 3.0), rtol=1e-4)
kinds = {{type(step.node.op).__name__ + step.kernel for step in f.plan.steps}}
taken = {{f.plan.steps[row.step].kernel for row in f.report.fallbacks}}
print(len(said), "gemm" in taken, "fused" in taken)
"""


NETWORK = """
import sys
sys.path.insert(0, {place!r})
import numpy as np
import magmagraph as mg
x = mg.input("x", shape=("batch", 30))
t = mg.input("t", shape=("batch", 2))
y = mg.nn.Dense(2)(mg.nn.Dense(7, activation="tanh")(x))
loss = mg.mse(y, t)
weights = [n for n in mg.ir.graph.topological([loss]) if "state" in n.attrs]
step = mg.optimizer.SGD(0.1).step(loss, weights, inputs=[x, t], outputs=[loss], device="cpu")
rng = np.random.default_rng(0)
feeds = rng.normal(size=(50, 30)).astype("f"), rng.normal(size=(50, 2)).astype("f")
losses = [float(step(*feeds)[0]) for _ in range(20)]
assert losses[-1] < 0.7 * losses[0], losses
assert not step.report.fallbacks, step.report.fallbacks
print(sum(s.kernel == "fused" for s in step.plan.steps))
"""
REGIONS = """
import runpy, sys
sys.path.insert(0, {root!r})
import magmagraph as mg
made = runpy.run_path({script!r})
made["main"].__globals__["functions"] = lambda: ()
sgd = mg.optimizer.SGD(1)
made["main"].__globals__["networks"] = lambda: made["network"](1, "tanh", "mse", sgd)
sys.argv = ["common_regions.py", {path!r}]
made["main"]()
"""


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The kernels of one common program."""
    script = ROOT / "packaging" / "common_regions.py"
    if not script.exists():
        pytest.skip("an installed copy has no top level")
    path = tmp_path_factory.mktemp("regions") / "regions.json"
    program = REGIONS.format(root=str(ROOT), script=str(script), path=str(path))
    environment = {k: v for k, v in os.environ.items() if k != "MAGMAGRAPH_OPTIMIZATION"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=environment)
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, regions: list[dict[str, Any]]) -> Path:
    """A folder as a wheel holds it, of few libraries, for the variants that run here."""
    try:
        find_compiler()
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    if not toolchain.variants_here():
        pytest.skip("this processor runs none of the variants")
    best = toolchain.variants_here()[0]
    place = tmp_path_factory.mktemp("wheel")
    few = [fixed for fixed in sources.fixed_sources() if fixed.name in FEW]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installing, "fixed_sources", lambda: few)
        patch.setattr(toolchain, "machine", lambda: ("another", "machine"))
        patch.setattr(installing, "machine", lambda: ("another", "machine"))
        patch.setattr(installing, "VARIANTS", {platform.machine(): (best,)})  # one saves time
        libraries = place / toolchain.FOLDER
        libraries.mkdir()
        count = installing.build_portable(libraries, 300.0, regions)
    assert count == len(FEW) + len(regions)
    return place


def run(program: str, place: Path, tmp_path: Path, *options: str) -> str:
    """Run a program where there is no compiler, with the folder as if it were installed."""
    beside = Path(installed.__file__).parents[3] / toolchain.FOLDER
    if beside.exists():
        pytest.skip("a folder beside the package comes first")
    environment = {**os.environ, "PATH": "/nonexistent", "PYTHONPATH": str(ROOT)}
    environment |= {"MAGMAGRAPH_CACHE_DIR": str(tmp_path / "cache")}
    for name in ("MAGMAGRAPH_CC", "MAGMAGRAPH_INSTALLED", "MAGMAGRAPH_OPTIMIZATION"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, *options, "-c", program.format(place=str(place))],
        capture_output=True, text=True, timeout=120, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_index_depends_on_no_processor_and_no_compiler(
    folder: Path, regions: list[dict[str, Any]]
) -> None:
    record = json.loads((folder / toolchain.FOLDER / toolchain.INDEX).read_text())
    assert list(record) == ["portable"]
    assert list(record["portable"]) == [toolchain.variants_here()[0].name]
    keys = {toolchain.portable_key("-O" + f.level, f.source) for f in sources.fixed_sources()}
    for entries in record["portable"].values():
        own = {key for region in regions for key in region["keys"]}
        assert set(entries) - own <= keys
        assert len(entries) == len(FEW) + len(own)
    flags = [v.flags for variants in toolchain.VARIANTS.values() for v in variants]
    assert not any("native" in flag for own in flags for flag in own)


def test_products_run_compiled_without_a_compiler(folder: Path, tmp_path: Path) -> None:
    name = run(PRODUCT, folder, tmp_path, "-W", "error").strip()
    best = toolchain.variants_here()[0].name
    assert name == str(folder / toolchain.FOLDER / f"support.{best}.so")
    assert not list(tmp_path.glob("cache/**/*.so"))


def test_a_common_program_runs_compiled_without_a_compiler(folder: Path, tmp_path: Path) -> None:
    """Of other sizes than those that the wheel's kernels were made for."""
    fused = run(NETWORK, folder, tmp_path, "-W", "error")
    assert int(fused) >= 1
    assert not list(tmp_path.glob("cache/**/*.so"))


def test_what_did_not_come_with_the_wheel_runs_in_numpy_and_says_so(
    folder: Path, tmp_path: Path
) -> None:
    assert run(STEP, folder, tmp_path) == "1 False True\n"


def test_without_the_library_of_a_product_all_runs_in_numpy(folder: Path, tmp_path: Path) -> None:
    double = "mg.config.float_dtype = 'float64'\nx, v ="
    program = PRODUCT.replace("x, v =", double).replace("np.float32", "np.float64")
    program = program.replace("assert not f.report.fallbacks", "assert f.report.fallbacks")
    told = "print(f.report.fallbacks[0]); print(support"
    said = run(program.replace("print(support", told), folder, tmp_path)
    assert "none of cc, gcc and clang" in said


@pytest.mark.parametrize(
    ("features", "name"),
    [
        ("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave sse4_2", "x86-64-v3"),
        (
            "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave avx512f avx512bw avx512cd avx512dq "
            "avx512vl",
            "x86-64-v4",
        ),
        ("avx avx2 bmi1 bmi2 f16c abm movbe xsave avx512f", None),
    ],
)
def test_a_processor_takes_the_best_variant_that_it_runs(
    features: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(toolchain, "machine", lambda: ("linux", "x86_64", features))
    found = toolchain.variants_here()
    assert (found[0].name if found else None) == name
    files = {key: {} for key in ("x86-64-v4", "x86-64-v3")}
    there = installed.Installed(Path(), "", {}, "", {}, files)
    assert there.variant == name


def test_a_compiler_that_the_user_names_builds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "_folders", lambda: [folder / toolchain.FOLDER])
    monkeypatch.delenv("MAGMAGRAPH_INSTALLED", raising=False)
    monkeypatch.delenv("MAGMAGRAPH_CC", raising=False)
    installed._found.cache_clear()
    what: tuple[Any, ...] = ("-O" + sources.SUPPORT_LEVEL, sources.support_source())
    try:
        assert installed.portable_library(*what) is not None
        assert installed.portable_library("-O3", sources.support_source()) is None
        monkeypatch.setenv("MAGMAGRAPH_CC", "gcc")
        assert installed.portable_library(*what) is None
    finally:
        installed._found.cache_clear()


def test_a_wheel_to_give_away_is_whole_or_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGMAGRAPH_CC", "false")
    with pytest.raises(LookupError, match="no C compiler"):
        installing.build_portable(tmp_path, 10.0)
    monkeypatch.delenv("MAGMAGRAPH_CC")
    with pytest.raises(LookupError, match="no C compiler|built no|timed out"):
        installing.build_portable(tmp_path, 0.0)
    assert not (tmp_path / toolchain.INDEX).exists()


@pytest.mark.slow  # a minute of a core: all libraries and kernels, for each variant
def test_a_wheel_runs_common_programs_without_a_compiler(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    if not (ROOT / "packaging").exists() or not toolchain.variants_here():
        pytest.skip("no sources, or a processor of no variant")
    environment = {**os.environ, "MAGMAGRAPH_PORTABLE": "1"}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(
        build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    place = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)
    checked = subprocess.run(
        [sys.executable, str(ROOT / "packaging" / "check_wheel.py"), str(place)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "as compiled kernels" in checked.stdout
