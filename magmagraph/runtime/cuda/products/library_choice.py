"""Products that a library launches with what reads their result, and whether that is faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....codegen.cuda.products.library_epilogue import library_epilogue
from ....codegen.cuda.products.shapes import extents_of
from ....codegen.steps import bodies_of
from ....config import config
from ....errors import PlanError, message
from ....ir.fallback import Refused
from ....ir.plan import Role, Step, Value

if TYPE_CHECKING:
    from .cublaslt import Product

__all__ = ["bias_of", "faster", "planned"]

_LAUNCH = 1.5  # microseconds of a kernel of its own, about
_BANDWIDTH = 3.5e6  # bytes a microsecond that such a kernel moves, about


def faster(device: Any, key: str, candidates: Mapping[str, tuple[Step, ...]]) -> str:
    """Return the faster of one launch, of a product with an epilogue, and of two.

    Parameters
    ----------
    device
        Where they run.
    key
        What is asked for.
    candidates
        ``together``: the one step, ``apart``: the product and the step that reads it.
    """
    together, apart = candidates["together"], candidates["apart"]
    if together[0].role is not Role.LIBRARY_EPILOGUE:
        raise PlanError(message(f"nothing is known of {key!r} on {device.name}"))
    from . import gemm

    if not gemm.available():  # asked last: the library takes long to load
        return "apart"
    try:
        product = planned(device, together[0], device.stream)
    except Refused:  # the library has none of this dtype with this epilogue
        return "apart"
    # What both take in turn: two trials are of two clocks.
    alone = product.beside + _LAUNCH + int(apart[1].bytes) / _BANDWIDTH
    return "apart" if product.beside and product.microseconds > alone else "together"


def bias_of(step: Step) -> Value | None:
    """Return what a library's product adds to each row, or None."""
    product, reader = step.parts
    parameter = [v.slot for v in reader.inputs].index(product.outputs[0].slot)
    (body,) = bodies_of(reader)
    epilogue = library_epilogue(body, parameter)
    assert epilogue is not None
    return None if epilogue.bias is None else reader.inputs[epilogue.bias]


def planned(device: Any, step: Step, stream: Any) -> Product:
    """Return the library's product of a step with an epilogue, timed once a machine.

    Raises
    ------
    Refused
        The library has none.
    """
    from . import gemm

    product, reader = step.parts
    m, n, k = extents_of(product)
    attrs, out = product.node.attrs, reader.outputs[0]
    parameter = [v.slot for v in reader.inputs].index(product.outputs[0].slot)
    (body,) = bodies_of(reader)
    epilogue = library_epilogue(body, parameter)
    assert epilogue is not None
    dtype, stored = product.inputs[0].type.dtype.name, out.type.dtype.name
    shape = gemm.Shape(
        m, n, k, dtype, attrs["transpose_a"], attrs["transpose_b"], False, False,
        compute=attrs.get("compute") or "float32", result="" if stored == dtype else stored,
        epilogue=epilogue.name,
    )  # fmt: skip
    return gemm.plan_product(device, shape, device.scratch(stream), config.tuning)
