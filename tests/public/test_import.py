"""What `import magmagraph` brings in: the package itself, NumPy, and nothing heavy.

benchmarks/compile_time.py measures how long it takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import magmagraph as mg

CODE = """
import json, sys
import numpy
before = set(sys.modules)
import magmagraph
print(json.dumps(sorted(set(sys.modules) - before)))
"""

# Found at the first use of what needs them: files, kernels, pictures, optimizers of others.
LATE = (
    "scipy", "cupy", "mpi4py", "networkx", "optuna", "rich", "numpy.random", "csv", "gzip",
    "zipfile", "urllib.request", "subprocess", "tempfile", "ctypes", "inspect",
    "magmagraph.function.archive", "magmagraph.cli", "magmagraph.data", "magmagraph.runtime",
    "magmagraph.text.reading", "magmagraph.codegen.region.analysis",
    "fractions", "decimal", "string", "pkgutil", "magmagraph.inspect",
    "magmagraph.functional.custom",
    "magmagraph.regularize", "magmagraph.checks.gradient_check",
)  # fmt: skip


def imported() -> list[str]:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout)
    return names


def test_the_import_is_light() -> None:
    names = imported()
    assert "magmagraph.ops.elementwise.arithmetic" in names
    found = [n for n in names if any(n == late or n.startswith(late + ".") for late in LATE)]
    assert not found
    passes = {n for n in names if n.startswith("magmagraph.passes.")}
    assert passes == {"magmagraph.passes.pipeline", "magmagraph.passes.report"}
    others = {n.partition(".")[0] for n in names} - sys.stdlib_module_names
    assert others - {"numpy"} == {"magmagraph", "ml_dtypes"}


# What a plan on a CUDA device needs only where it has such steps, or kernels that are new.
SELDOM = (
    "concurrent.futures", "subprocess", "tempfile", "magmagraph.runtime.cpu.support",
    "magmagraph.runtime.cpu.products", "magmagraph.runtime.cpu.convolution",
    "magmagraph.runtime.comm.nccl", "magmagraph.runtime.cuda.library",
    *(f"magmagraph.runtime.cuda.kernels.{name}" for name in ("pooling", "gathering", "scattering")),
    *(f"magmagraph.runtime.cuda.launching.{name}" for name in ("collectives", "messages", "loops")),
    *(f"magmagraph.runtime.cuda.products.{name}" for name in ("cublaslt", "gemm", "wide")),
)  # fmt: skip


def test_a_first_step_on_a_device_imports_what_it_needs() -> None:
    code = CODE.replace("import magmagraph\n", "import magmagraph.runtime.cuda.backend\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout)
    assert "magmagraph.runtime.cuda.launching.launches" in names
    found = [n for n in names if any(n == late or n.startswith(late + ".") for late in SELDOM)]
    assert not found


def test_names_that_are_imported_late_are_public_all_the_same() -> None:
    code = (
        "import magmagraph as mg, sys; assert 'magmagraph.function.archive' not in sys.modules; "
        "assert {'load', 'data'} <= set(dir(mg)) & set(mg.__all__); "
        "mg.load, mg.data.mnist; from magmagraph import *; load, data.batches; "
        "show, to_onnx, Operation, check_gradients, check_operation, regularize.l2(0.1)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_not_there_has_pythons_own_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'magmagraph' has no attribute 'nothing'$"):
        _ = mg.nothing


PUBLIC = [mg, *(value for name in mg.__all__ if isinstance(value := getattr(mg, name), ModuleType))]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: str(module.__name__))
def test_names_offered_are_public(module: Any) -> None:
    """What a prompt completes are the public names, not what a module imports for itself."""
    offered = {name for name in dir(module) if name[:2] != "__"}
    assert offered == {name for name in module.__all__ if name[:2] != "__"}
    assert all(hasattr(module, name) for name in module.__all__)
