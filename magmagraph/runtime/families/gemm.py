"""Matrix products, batched or not: BLAS or tiles on the CPU; on CUDA cuBLASLt or generated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...codegen.steps import scaling_of, shape_of
from ...dtypes import is_float
from ...ir.graph import Node
from ...ir.plan import KernelFamily, Role, Step
from ...ops.products.lowered import GEMM
from .dtypes import BLAS

if TYPE_CHECKING:
    from ..cpu.kernel_args import KernelArgs, StepArgs
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _takes(node: Node) -> bool:
    return node.op is GEMM


def _refusal(node: Node, device: str) -> str | None:
    return dtype_refusal(node) or _batch_refusal(node)


def dtype_refusal(node: Node) -> str | None:
    """Return why there is no kernel for the dtypes of a product; None where there is one."""
    if "result" in node.op.precision.mixed:
        if not is_float(node.dtype):
            return f"kernels multiply floats, not {node.dtype.name}"
        if any(not x.shape and x.dtype.itemsize < 4 for x in node.inputs[2:]):
            return "16-bit scale factors are not supported"
        return None
    if node.dtype in BLAS and node.inputs[0].dtype in BLAS and not node.attrs.get("compute"):
        return None
    return f"kernels take float32 and float64, not {node.dtype.name}"


def _batch_refusal(node: Node) -> str | None:
    """Return why the matrices of a batch are not at multiples of one distance, or of zero."""
    batch = node.shape[:-2]
    if all(x.ndim == 2 or x.shape[:-2] == batch for x in node.inputs[:2] if x.ndim >= 2):
        return None
    return "the batch axes of an operand broadcast"


def accumulated(node: Node, device: str) -> frozenset[tuple[int, int]]:
    """Return the pair of the operand that a product is added to, and the result."""
    if not node.attrs["accumulate"]:
        return frozenset()
    return frozenset(((len(node.inputs) - 2, 0),))  # of (A[, B][, alpha], C, beta)


def _cpu(cells: StepArgs, step: Step, number: int) -> KernelArgs:
    from ..cpu.products.choice import TILES, Sizes
    from ..cpu.products.mixed import mixed_gemm_step
    from ..cpu.products.products import batched_gemm_step, gemm_step

    a, b = step.inputs[:2]
    alpha, c, beta = scaling_of(step, 2)
    out = step.outputs[0]
    attrs = step.node.attrs
    *batch, m, n = shape_of(out.type)
    k = shape_of(a.type)[-2 if attrs["transpose_a"] else -1]
    options: dict[str, Any] = {
        "c": cells.at(c),
        "alpha": cells.at(alpha),
        "beta": cells.at(beta),
        "transpose_a": attrs["transpose_a"],
        "transpose_b": attrs["transpose_b"],
    }
    addresses = (cells.at(out), cells.at(a), cells.at(b))
    count = int(np.prod(batch, dtype=np.int64))
    # A scalar of one is a null cell only where there is no operand for it.
    operands = (out, a, b, c, alpha, beta)
    dynamic = cells.dynamic({i: v.slot for i, v in enumerate(operands) if v is not None})
    tf32 = attrs.get("compute") == "tf32"
    if tf32 or a.type.dtype.itemsize < 4:
        call = mixed_gemm_step(
            a.type.dtype,
            out.type.dtype,
            *addresses,
            m,
            n,
            k,
            count,
            0 if step.workspace is None else cells.address[step.workspace],
            tf32=tf32,
            shared_a=len(a.type.shape) == 2,
            shared_b=len(b.type.shape) == 2,
            **options,
        )
        return (*call, dynamic)
    sizes = Sizes(
        out.type.dtype,
        m,
        n,
        k,
        count,
        attrs["transpose_a"],
        attrs["transpose_b"],
        c is not None,
        bool(batch) and len(b.type.shape) == 2,
        cells.plan.threads,
    )
    options["tiles"] = cells.way(number, sizes).name == TILES
    if not batch:
        call = gemm_step(out.type.dtype, *addresses, m, n, k, **options)
    else:
        call = batched_gemm_step(
            out.type.dtype,
            *addresses,
            m,
            n,
            k,
            count,
            stride_out=m * n,
            stride_a=m * k if len(a.type.shape) > 2 else 0,
            stride_b=k * n if len(b.type.shape) > 2 else 0,
            stride_c=m * n if c is not None and len(c.type.shape) > 2 else 0,
            **options,
        )
    return (*call, dynamic)


def _cuda(launches: StepLaunches, step: Step) -> list[Unit] | None:
    return launches.alone(step, launches.gemm(step))


GEMM_FAMILY = KernelFamily(
    "gemm",
    role=Role.PRODUCT,
    takes=_takes,
    refusal=_refusal,
    in_place=accumulated,
    cpu=_cpu,
    cuda=_cuda,
)
