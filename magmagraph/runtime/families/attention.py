"""Attention in blocks, by cuDNN on CUDA; an array expression on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.plan import KernelFamily, Step
from ...ops.networks.attention import ROWS, ROWS_GRADIENT

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches
    from ..cuda.library.cudnn import LibraryGraph
    from ..cuda.memory import PlanMemory

_WIDTHS = 8  # of rows of queries and values, in numbers: multiples of it
_UNMASKED = (3, 6)  # operands of both operations where every query sees every key


def _takes(node: Node) -> bool:
    return node.op in (ROWS, ROWS_GRADIENT)


def _refusal(node: Node, device: str) -> str | None:
    if device == "cpu":
        return "the CPU computes attention in blocks by an array expression"
    if node.inputs[0].dtype.itemsize != 2:
        return f"the library takes 16-bit operands, not {node.inputs[0].dtype.name}"
    if len(node.inputs) not in _UNMASKED:
        return "the library's kernels have no mask that is an operand"
    for operand in (node.inputs[0], node.inputs[2]):
        width = operand.shape[-1]
        if isinstance(width, int) and width % _WIDTHS:
            return f"the library takes rows of a multiple of {_WIDTHS} numbers, not {width}"
    return None


def _library(memory: PlanMemory, step: Step) -> LibraryGraph:
    from ..cuda.library.attention import chosen

    return chosen(memory, step)


def _missing() -> str | None:
    from ..cuda.library.cudnn import why_unavailable

    reason = why_unavailable()
    return None if reason is None else f"cuDNN cannot be used: {reason}"


def _cuda(launches: StepLaunches, step: Step) -> list[Unit]:
    return launches.library(step, _library)


ATTENTION = KernelFamily(
    "attention", takes=_takes, refusal=_refusal, cuda=_cuda, library=_library, missing=_missing
)

