"""Factorizations, solutions and determinants of small matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Op
from ...ir.plan import KernelFamily, Step, Value
from ...ir.types import Type
from ...ops.linalg.determinant import DET, SLOGDET
from ...ops.linalg.factor import CHOLESKY, LU, PERMUTATION
from ...ops.linalg.lowered import FACTORED_DET, FACTORED_INV, FACTORED_SLOGDET, FACTORED_SOLVE
from ...ops.linalg.solve import INV, SOLVE
from ...ops.linalg.spectral import EIGVALSH
from ...ops.linalg.triangular import TRIANGULAR_SOLVE
from .dtypes import BLAS

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches

_INT32 = np.dtype(np.int32)

# The C function of each operation, and what it takes for its matrices.
_FUNCTIONS: dict[Op, tuple[str, str]] = {
    LU: ("lu", "matrix"),
    SOLVE: ("systems", "matrix"),
    INV: ("systems", "matrix"),
    FACTORED_SOLVE: ("systems", "factors"),
    FACTORED_INV: ("systems", "factors"),
    TRIANGULAR_SOLVE: ("systems", "triangle"),
    CHOLESKY: ("cholesky", "matrix"),
    # Not the vectors: their signs would be other ones than LAPACK's, which NumPy gives.
    EIGVALSH: ("eigenvalues", "matrix"),
    DET: ("determinants", "matrix"),
    SLOGDET: ("determinants", "matrix"),
    FACTORED_DET: ("determinants", "factors"),
    FACTORED_SLOGDET: ("determinants", "factors"),
}


def _takes(node: Node) -> bool:
    return node.op in _FUNCTIONS or node.op is PERMUTATION


def _refusal(node: Node, device: str) -> str | None:
    on_gpu = device != "cpu"
    if on_gpu and node.op is EIGVALSH:
        return "the GPU has no kernel for eigenvalues; cuSOLVER is called through CuPy"
    operand = node.inputs[0].type
    assert isinstance(operand, Type)
    if node.op is PERMUTATION:
        return None if operand.dtype == _INT32 else "row exchanges are int32"
    if operand.dtype not in BLAS:
        return f"kernels compute in float32 and float64, not {operand.dtype.name}"
    if node.op is LU and operand.shape[-1] != operand.shape[-2]:
        return "kernels factor square matrices"
    name, kind = _FUNCTIONS[node.op]
    if kind == "factors" and node.inputs[1].dtype != _INT32:
        return "row exchanges are int32"
    order, most = operand.shape[-1], _largest_order(name, on_gpu)
    if isinstance(order, int) and order > most:
        return f"matrices of order {order}; the kernels take {most} at most"
    return None


def _largest_order(name: str, on_gpu: bool) -> int:
    """Return the largest order of matrices that a function takes."""
    if on_gpu:
        from ...codegen.cuda.matrices_code import LARGEST

        return LARGEST
    from ..cpu.linalg.linalg import largest_order

    return largest_order(name)


def _operands(step: Step) -> tuple[list[Value | None], dict[str, Any]]:
    """Return the values of a step in the order of the kernels, and what the kernels do."""
    attrs = step.node.attrs
    kind = _FUNCTIONS[step.node.op][1]
    matrices, *others = step.inputs
    exchanges = others.pop(0) if kind == "factors" else None
    sides = others[0] if others else None
    second = step.outputs[1] if len(step.outputs) > 1 else None
    return [matrices, sides, exchanges, step.outputs[0], second], {
        "kind": kind,
        "lower": bool(attrs.get("lower")),
        "transposed": attrs.get("trans", "N") != "N" or bool(attrs.get("transposed")),
        "unit": bool(attrs.get("unit_diagonal")),
    }


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.linalg.linalg import matrices_step, permutation_step

    op = step.node.op
    out = step.outputs[0]
    if op is PERMUTATION:
        (pivots,) = step.inputs
        function, held = permutation_step(out, pivots, cells.at(out), cells.at(pivots))
        return function, held, cells.dynamic({1: out.slot, 2: pivots.slot})
    values, how = _operands(step)
    addresses = [cells.at(value) for value in values]
    function, held = matrices_step(_FUNCTIONS[op][0], addresses, values, cells.keep, **how)
    slots = {i: value.slot for i, value in enumerate(values, 1) if value is not None}
    return function, held, cells.dynamic(slots)


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    from ..cuda.kernels.matrices import matrices, permutation

    if step.node.op is PERMUTATION:
        return launches.alone(step, permutation(launches.memory, step))
    values, how = _operands(step)
    name = _FUNCTIONS[step.node.op][0]
    return launches.alone(step, matrices(launches.memory, step, name, values, **how))


def _cost(step: Step, sizes: Mapping[str, int], multiprocessors: int) -> float:
    from ..cuda.kernels.matrices import cost

    function = "" if step.node.op is PERMUTATION else _FUNCTIONS[step.node.op][0]
    return cost(step, function, multiprocessors)


LINALG = KernelFamily(
    "linalg", takes=_takes, refusal=_refusal, can_fail=True, cpu=_cpu, cuda=_cuda, cost=_cost
)
