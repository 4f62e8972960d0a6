"""Linear algebra of small matrices: the launch of a step, and the error of one that failed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....codegen.cuda.launch_config import cost_of_grid
from ....codegen.cuda.matrices_code import (
    BAD_PIVOT,
    LARGEST,
    NOT_FINITE,
    PERMUTATION,
    PERMUTATION_SOURCE,
    WORDS,
    Matrices,
    matrices_source,
)
from ....codegen.steps import shape_of
from ....errors import MagmagraphError
from ....ir.fallback import Refused
from ....ir.plan import WHOLE, Step, Value
from ....ops.linalg.parts import INDEFINITE, SINGULAR, check_exchanges, failed
from ...families.batches import KINDS, starts_of
from ..launching.calls import KernelCall
from ..memory import PlanMemory
from .gathering import blocks_for, function_of

__all__ = ["cost", "failure_of", "matrices", "permutation"]

_REALS = {"float32": "float", "float64": "double"}
_LEAST_ORDER = 4  # of the kernels; each next one takes matrices of twice the order


def matrices(
    memory: PlanMemory, step: Step, function: str, values: Sequence[Value | None], *, kind: str,
    lower: bool, transposed: bool, unit: bool,
) -> KernelCall:  # fmt: skip
    """Return what launches a step over batches of square matrices.

    Parameters
    ----------
    memory
        Of the plan.
    step
        The step.
    function
        What it computes; see `Matrices`.
    values
        The matrices, the right-hand sides, the row exchanges, the result, the second result.
    kind
        What the matrices are: "matrix", "factors" or "triangle".
    lower, transposed, unit
        Of a triangle; `transposed` of factors, too.

    Raises
    ------
    Refused
        The matrices are of a larger order than `LARGEST`, or there is nothing to compute.
    """
    operand, sides, exchanges, out, _ = values
    assert operand is not None
    assert out is not None
    n = shape_of(operand.type)[-1]
    one_for_each = function == "determinants"
    whole = shape_of(operand.type)[:-2] if one_for_each else shape_of(out.type)[:-2]
    columns = shape_of(out.type)[-1] if function == "systems" else 0
    count = math.prod(whole)
    if n > LARGEST:
        raise Refused(f"matrices of order {n}; the kernels take {LARGEST} at most", expected=True)
    if not n or not count or (function == "systems" and not columns):
        raise Refused("a matrix or the batch has no elements", expected=True)
    order = max(_LEAST_ORDER, 1 << (n - 1).bit_length())
    kernel = Matrices(function, _REALS[operand.type.dtype.name], order)
    strides, tables = starts_of(((operand, n * n), (sides, n * columns), (exchanges, n)), whole)
    on_device: list[Any] = [0 if t is None else memory.device.cupy.asarray(t) for t in tables]
    memory.keep += [on_device]
    device = memory.device
    words = [
        memory.failure_word(step), *map(memory.at, values), count, n, columns, KINDS[kind], lower,
        transposed, unit, *strides, *(t if isinstance(t, int) else t.data.ptr for t in on_device),
    ]  # fmt: skip
    address = function_of(device, kernel.name, matrices_source(kernel), WORDS)
    blocks = blocks_for(count, kernel.groups, device.multiprocessors)
    return KernelCall(
        address, (blocks, 1, 1), (kernel.threads, 1, 1), np.array(words, np.int64), range(1, 6),
        overlaps=True,
    )  # fmt: skip


def cost(step: Step, function: str, multiprocessors: int) -> float:
    """Return about how long the launch of a step takes; `function` is empty for a permutation."""
    operand, out = step.inputs[0], step.outputs[0]
    if not function:
        batch = math.prod(shape_of(operand.type)[:-1])
        blocks = blocks_for(batch, 128, multiprocessors)
        return cost_of_grid((blocks, 1, 1), (128, 1, 1), multiprocessors)
    n = shape_of(operand.type)[-1]
    whole = shape_of(operand.type)[:-2] if function == "determinants" else shape_of(out.type)[:-2]
    if not 0 < n <= LARGEST or not math.prod(whole):
        return WHOLE  # its array expression runs, or nothing
    order = max(_LEAST_ORDER, 1 << (n - 1).bit_length())
    kernel = Matrices(function, _REALS[operand.type.dtype.name], order)
    blocks = blocks_for(math.prod(whole), kernel.groups, multiprocessors)
    return cost_of_grid((blocks, 1, 1), (kernel.threads, 1, 1), multiprocessors)


def permutation(memory: PlanMemory, step: Step) -> KernelCall:
    """Return what launches the order of rows that row exchanges lead to."""
    pivots, out = step.inputs[0], step.outputs[0]
    count, rows = shape_of(pivots.type)[-1], shape_of(out.type)[-1]
    if count > rows:
        raise Refused("there are more exchanges than rows", expected=True)
    batch = math.prod(shape_of(pivots.type)[:-1])
    if not batch or not rows:
        raise Refused("there is nothing to permute", expected=True)
    inverse = int(step.node.attrs.get("inverse", False))
    places = [memory.failure_word(step), memory.at(out), memory.at(pivots)]
    words = [*places, batch, count, rows, inverse]
    device = memory.device
    address = function_of(device, PERMUTATION, PERMUTATION_SOURCE, len(words))
    blocks = blocks_for(batch, 128, device.multiprocessors)
    return KernelCall(
        address, (blocks, 1, 1), (128, 1, 1), np.array(words, np.int64), (1, 2), overlaps=True
    )


def failure_of(step: Step, word: int) -> MagmagraphError:
    """Return the error of a step that left a word: the one that its array expression raises."""
    number, problem = word >> 16, word & 3
    operand = step.inputs[0]
    name = step.node.op.name.removeprefix("factored_")
    if problem == BAD_PIVOT:
        try:
            check_exchanges(name, np.array([-1]), int(shape_of(operand.type)[-1]))
        except MagmagraphError as error:
            return error
    shape = shape_of(operand.type)
    whole = shape_of(step.outputs[0].type)[:-2]
    place = np.unravel_index(number, whole) if whole else ()
    # A member of the result's batch belongs to one of the operand's, which may be broadcast.
    batch = shape[:-2]
    index = tuple(
        0 if extent == 1 else int(i)
        for extent, i in zip(batch, place[len(place) - len(batch) :], strict=True)
    )
    element = np.nan if problem == NOT_FINITE else 0.0
    row = word >> 2 & 0x3FFF
    reason: tuple[str, str, str] = SINGULAR
    if name == "cholesky":
        reason = INDEFINITE
    elif name == "triangular_solve":
        reason = (f"is singular: its diagonal is zero at {row}", "a diagonal without zeros",
                  "mg.linalg.lstsq; or add a multiple of the identity")  # fmt: skip
    return failed(name, *reason, np.broadcast_to(np.float32(element), shape), index)
