"""Which family of kernels runs a step, whether that can fail, what it may overwrite."""

from __future__ import annotations

import numpy as np

from ...dtypes import is_float
from ...fallback import family_named
from ...graph import Graph, Node
from ...ops.indexing.gathering import SCATTER_ADD, TAKE
from ...region.analysis import Region, analyze, analyze_for_gpu

_BLAS = (np.dtype(np.float32), np.dtype(np.float64))
_POSITIONS = (np.dtype(np.int32), np.dtype(np.int64))
_PRODUCTS = frozenset(("gemm", "gemv"))
_WINDOWS = frozenset(("convolution", "pooling"))
_ON_DEVICES = frozenset(("attention",))  # families without a kernel of the CPU
# Their bodies may hold what only an array expression does.
_NESTED = frozenset(("loop", "branch"))


def family(node: Node, device: str = "cpu") -> str:
    """Return the kernel family of a step: its op record's, or the array expression."""
    name = family_named(node)
    return "array" if not name or refusal(node, device) else name


def refusal(node: Node, device: str = "cpu") -> str:
    """Return why the kernel family that a node's record names does not take it, or ""."""
    name = family_named(node)
    if name in _WINDOWS and device == "cpu" and not _plain_windows(node):
        return f"the CPU has no kernel of it for {_computed_in(node)}"
    if name in _ON_DEVICES and device == "cpu":
        return "the CPU has no kernel of it"
    if name == "indexed" and device == "cpu" and not _plain_positions(node):
        return f"the CPU has no kernel of it for {_dtypes(node)}"
    if name == "scatter" and not _plain_rows(node):
        return f"there is no kernel of it for {_dtypes(node)}"
    if name in _NESTED and device != "cpu":
        return f"a GPU runs no {name} as one kernel"
    if name in _PRODUCTS and not _plain_product(node):
        return f"there is no kernel of it for {_computed_in(node)}"
    if name in _PRODUCTS and not _plain_batch(node):
        return "the matrices of a batch do not lie at multiples of one distance"
    return ""


def _dtypes(node: Node) -> str:
    """Return the dtypes of a node's operands, each once."""
    return ", ".join(dict.fromkeys(operand.dtype.name for operand in node.inputs))


def _computed_in(node: Node) -> str:
    """Return the dtypes of a node's operands, and what they are computed in where it says that."""
    compute = node.attrs.get("compute")
    return _dtypes(node) + (f" computed in {compute}" if compute else "")


def _plain_windows(node: Node) -> bool:
    """Return whether compiled convolution and pooling have the dtype, and how it is computed."""
    return node.inputs[0].dtype in _BLAS and not node.attrs.get("compute")


def _plain_product(node: Node) -> bool:
    """Return whether there is a kernel for the dtypes of a product, and for how it is computed."""
    if "result" in node.op.mixed:
        scalars = [x for x in node.inputs[2:] if not x.shape]
        return is_float(node.dtype) and all(x.dtype.itemsize >= 4 for x in scalars)
    return node.dtype in _BLAS and node.inputs[0].dtype in _BLAS and not node.attrs.get("compute")


def _plain_batch(node: Node) -> bool:
    """Return whether each matrix of a batch lies at a multiple of one distance, or of zero."""
    batch = node.shape[:-2]
    return all(x.ndim == 2 or x.shape[:-2] == batch for x in node.inputs[:2] if x.ndim >= 2)


def _plain_rows(node: Node) -> bool:
    """Return whether there is a kernel for the dtypes of the values and the positions."""
    return node.type.dtype in _BLAS and node.inputs[1].dtype in _POSITIONS


def _plain_positions(node: Node) -> bool:
    """Return whether the CPU has a kernel for reading, or adding up, at computed positions."""
    if node.op is SCATTER_ADD:
        return _plain_rows(node)
    return node.op is TAKE and node.inputs[1].dtype in _POSITIONS


def can_fail(node: Node, device: str = "cpu") -> bool:
    """Return whether running the step may raise (generated kernels and libraries cannot)."""
    name = family(node, device)
    return name in ("array", "collective", "indexed") or name in _NESTED


def in_place_pairs(node: Node, device: str = "cpu") -> frozenset[tuple[int, int]]:
    """Return the pairs (operand, result) where the result may lie in the operand's memory."""
    name = family(node, device)
    if name in _PRODUCTS:
        if not node.attrs["accumulate"]:
            return frozenset()
        return frozenset(((_addend(node), 0),))
    if name == "scatter":
        return frozenset(((len(node.inputs) - 1, 0),))
    if name != "fused":
        return frozenset()
    body = node.attrs.get("body")
    if isinstance(body, Graph):
        return _body_pairs(body, device)
    bodies = node.attrs.get("bodies")
    if bodies:
        pairs: set[tuple[int, int]] = set()
        operand = result = 0
        for each in bodies:
            pairs.update((operand + i, result + o) for i, o in _body_pairs(each, device))
            operand += len(each.inputs)
            result += len(each.outputs)
        return frozenset(pairs)
    return frozenset()


def _addend(node: Node) -> int:
    """Return the position of C among the operands (A[, B][, alpha], C, beta)."""
    return len(node.inputs) - 2


def _body_pairs(body: Graph, device: str) -> frozenset[tuple[int, int]]:
    """Return the safe pairs of a fused body: the region knows when it reads and writes."""
    region = analyze(body) if device == "cpu" else analyze_for_gpu(body)
    if not isinstance(region, Region):
        return frozenset()
    return region.in_place if device == "cpu" else region.in_place_recomputed
