"""Generated products of a plan's steps: their shapes, how they are cut, and their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ....ir.plan import Place, Plan, Role, Step
from ...steps import shape_of
from .cuts import SMALL, Configuration, cut_for, cut_of_rows
from .small_gemm import Epilogue, SmallProduct

__all__ = [
    "ProductShape", "cut_of", "extents_of", "product_of", "product_shape", "read_first",
    "stands_alone",
]

_WITH_TENSOR_CORES = 80  # compute capability whose tensor cores take float32


class ProductShape(NamedTuple):
    """The key of a float32 product.

    Attributes
    ----------
    m, n, k
        Rows, columns and contracted extent.
    transpose_a, transpose_b
        Whether a is stored as (k, m), b as (n, k).
    terms
        3 for float32's accuracy, 1 for "tf32".
    """

    m: int
    n: int
    k: int
    transpose_a: bool
    transpose_b: bool
    terms: int = 3


def extents_of(step: Step) -> tuple[int, int, int]:
    """Return the rows, columns and contracted extent of a product of two matrices."""
    m, n = shape_of(step.outputs[0].type)
    k = shape_of(step.inputs[0].type)[-2 if step.node.attrs["transpose_a"] else -1]
    return m, n, k


def product_shape(step: Step) -> ProductShape | None:
    """Return the shape of a step that is one product of float32 matrices, or None."""
    types = [value.type for value in (*step.inputs[:2], *step.outputs)]
    if step.role is not Role.PRODUCT:
        return None
    if any(len(t.shape) != 2 or t.dtype != np.float32 for t in types):
        return None
    attrs = step.node.attrs
    m, n, k = extents_of(step)
    if not (m and n and k):
        return None
    terms = 1 if attrs.get("compute") == "tf32" else 3
    return ProductShape(m, n, k, attrs["transpose_a"], attrs["transpose_b"], terms)


def read_first(plan: Plan, step: Step) -> int:
    """Return which factor of a product is read first, 0 or 1: the one that was written longer ago.

    Feeds are there before a step begins; weights were renewed at the end of the last one, and
    gradients are what the launch before this made.
    """
    fed = plan.slots[step.inputs[0].slot].place is Place.FEED
    return 0 if fed or step.node.attrs["transpose_a"] else 1


def _products(plan: Plan) -> Iterator[ProductShape]:
    """Yield the shapes of a plan's products, also of those that are launched with others."""
    for step in plan.steps:
        if step.role is not Role.ENDING:  # its parts are those of the launch before
            for part in step.parts or (step,):
                if (shape := product_shape(part)) is not None:
                    yield shape


def stands_alone(plan: Plan) -> bool:
    """Return whether a plan has one product of many elements, such as a gradient of weights."""
    many = (shape for shape in _products(plan) if shape.m * shape.n > SMALL)
    return next(many, None) is not None and next(many, None) is None


def cut_of(
    architecture: int, shape: ProductShape, rows: bool = False, alone: bool = False
) -> Configuration | None:
    """Return how a product is cut on a device, or None where the library computes it.

    Parameters
    ----------
    architecture
        The device's compute capability, 90 for 9.0.
    shape
        The product.
    rows
        Whether tiles have whole rows.
    alone
        See `cut_for`.
    """
    if architecture < _WITH_TENSOR_CORES:
        return None
    if rows:
        return cut_of_rows(shape.m, shape.n, shape.k, shape.terms)
    return cut_for(shape.m, shape.n, shape.k, shape.terms, alone)


def product_of(
    shape: ProductShape, configuration: Configuration, epilogue: Epilogue, early: int
) -> SmallProduct:
    """Return the generated product of a shape; `early` is its factor that is read first."""
    m, n, k, transpose_a, transpose_b, _ = shape
    return SmallProduct(
        configuration, transpose_a, transpose_b, (m if transpose_a else k) % 4 == 0,
        (k if transpose_b else n) % 4 == 0, epilogue, k <= configuration.reach, early,
    )
