"""The recipes of CONTRIBUTING.md, followed in a copy of the package by files and lines.

A block that begins with ``# magmagraph/...`` is a new file of the copy; one that begins with
``# in magmagraph/...: after ...`` is put behind a line of an existing file.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from needs import missing_gpu

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^ *```py\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)


def dedented(block: str) -> str:
    """Return a block without the indentation of its first line."""
    indent = re.match(" *", block)[0]  # type: ignore[index]
    return re.sub(f"^{indent}", "", block, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which all recipes were followed."""
    folder = tmp_path_factory.mktemp("recipes")
    shutil.copytree(ROOT / "magmagraph", folder / "magmagraph")
    followed: dict[str, int] = {"file": 0, "line": 0}
    for block in map(dedented, BLOCKS):
        new = re.match(r"# (magmagraph/\S+\.py)\n", block)
        line = re.match(r"# in (magmagraph/\S+\.py): after (.+)\n", block)
        if new is not None:
            path = folder / new[1]
            assert not path.exists()
            path.write_text(block[new.end() :], encoding="utf-8")
            followed["file"] += 1
        elif line is not None:
            path = folder / line[1]
            text = path.read_text(encoding="utf-8")
            assert text.count(f"{line[2]}\n") == 1, line[2]
            added = block[line.end() :]
            path.write_text(text.replace(f"{line[2]}\n", f"{line[2]}\n{added}"), encoding="utf-8")
            followed["line"] += 1
    assert followed == {"file": 5, "line": 7}
    return folder


def run(copy: Path, program: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        cwd=copy,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


ALL = """
import numpy as np
import magmagraph as mg
from magmagraph.ir.graph import Trace, freeze
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import Options
from magmagraph.runtime.target import made_up

rng = np.random.default_rng(0)
rows = rng.normal(size=(5, 7)).astype(np.float32)
x = mg.var("x", ("batch", 7))

# an operation: values, a compiled kernel, the gradient
f = mg.function([x], mg.gudermann(x))
assert [step.kernel for step in f.compile().plan.steps] == ["fused"]
np.testing.assert_allclose(f(rows), np.arctan(np.sinh(rows)), rtol=1e-5, atol=1e-6)
assert mg.check_gradients(mg.gudermann, [rows.astype(np.float64)])

# a pass: a hit and a refusal with its reason, and the same values
f = mg.function([x], [mg.rint(mg.rint(x)), mg.rint(mg.floor(x))])
found = f(rows)
entry = f.report["round_once"]
assert entry.hits == {"round once": 1}
assert [refusal.reason for refusal in entry.refusals] == ["floor comes before it"]
np.testing.assert_array_equal(found[0], np.rint(rows))
np.testing.assert_array_equal(found[1], np.rint(np.floor(rows)))
assert "round_once" in [record.name for record in mg.passes.default()]

# a kernel family: on the CPU, and in the plan of a CUDA device; refusals have reasons
for shape in ((5, 7), (0, 7), (5, 1)):
    values = np.resize(rows, shape)
    f = mg.function([y := mg.var("y", shape)], mg.cumprod(y, axis=1))
    np.testing.assert_allclose(f(values), np.cumprod(values, axis=1), rtol=1e-5)
    assert [step.kernel for step in f.plan.steps] == ["running_product"]
graph = freeze([x], [mg.cumprod(x, axis=1)])
plan, _ = pipeline.run(graph, Trace(), options=Options.make(target=made_up("cuda:0")))
assert [step.kernel for step in plan.steps] == ["running_product"]
plan = mg.function([x], mg.cumprod(x, axis=0)).compile().plan
assert plan.steps[0].refused == "products run along the last axis alone"

# a strategy: each rank has rows of its own
def job():
    x = mg.var("x", ("batch",))
    f = mg.function([x], mg.mean(x), distribute=mg.distributed.OwnRows())
    return float(f([1.0, 2.0, 3.0] if mg.distributed.rank() == 0 else [10.0]))
assert mg.distributed.threads(2, job) == [4.0, 4.0]
mg.function([x], mg.sum(x), distribute=mg.distributed.OwnRows("batch")).save("spread.mg")
assert mg.load("spread.mg")(rows).shape == ()

# a layer: in a network that is trained, saved and loaded
layer = mg.nn.Scale()
net = mg.NeuralNetwork([mg.nn.Input((7,)), layer, mg.nn.Dense(2)], loss="mse", seed=0)
before = layer.factor.value.copy()
net.fit(rows, rows[:, :2], epochs=2)
assert (layer.factor.value != before).any()
net.save("network.mg")
again = mg.NeuralNetwork.load("network.mg")
np.testing.assert_array_equal(again.predict(rows), net.predict(rows))
"""


def test_all_recipes(copy: Path) -> None:
    run(copy, ALL)


HOST = """
#include <stdint.h>
#define __global__
#define __grid_constant__
#define mg_begin()
struct mg_arguments { int64_t v[4]; };
struct Three { unsigned x; };
static Three blockIdx, blockDim = {32}, threadIdx;
"""
RUN = """
extern "C" void run_all(const int64_t *words)
{
    const mg_arguments arguments = *(const mg_arguments *)words;
    for (blockIdx.x = 0; blockIdx.x < 3; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < 32; threadIdx.x++) mg_running_product(arguments);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_threads_of_the_cuda_kernel_computed_on_the_host(copy: Path, tmp_path: Path) -> None:
    family: dict[str, str] = {"__name__": "running_product"}
    text = (copy / "magmagraph/runtime/families/running_product.py").read_text()
    exec(text[text.index("ROW = ") : text.index("THREADS = ")], family)
    source, library = tmp_path / "kernel.cpp", tmp_path / "kernel.so"
    source.write_text(HOST + family["KERNEL"] + RUN)
    command = ["g++", "-O0", "-w", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    rows = np.random.default_rng(0).normal(size=(70, 5)).astype(np.float32)
    found = np.zeros_like(rows)
    words = np.array([rows.ctypes.data, found.ctypes.data, *rows.shape], np.int64)
    ctypes.CDLL(str(library)).run_all(ctypes.c_void_p(words.ctypes.data))
    np.testing.assert_allclose(found, np.cumprod(rows, axis=1), rtol=1e-5)


@pytest.mark.gpu
def test_the_kernel_family_on_a_gpu(copy: Path) -> None:
    assert missing_gpu() is None
    run(
        copy,
        """
import numpy as np
import magmagraph as mg
x = mg.var("x", ("batch", 7))
f = mg.function([x], mg.cumprod(x, axis=1), device="cuda")
rows = np.random.default_rng(0).normal(size=(500, 7)).astype(np.float32)
np.testing.assert_allclose(f(rows).get(), np.cumprod(rows, axis=1), rtol=1e-5)
assert [step.kernel for step in f.plan.steps] == ["running_product"]
""",
    )


@pytest.mark.slow
def test_the_table_s_tests_hold_the_new_operation(copy: Path) -> None:
    shutil.copytree(ROOT / "tests" / "helpers", copy / "tests" / "helpers")
    (copy / "tests" / "ops").mkdir()
    table = "tests/ops/test_ops_table.py"
    for file in ("conftest.py", "pyproject.toml", "tests/conftest.py", table):
        shutil.copy(ROOT / file, copy / file)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", table, "-k", "gudermann"],
        capture_output=True,
        text=True,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 8  # type: ignore[index]
