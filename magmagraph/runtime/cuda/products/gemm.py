"""Which way a product runs: by an algorithm of cuBLASLt, or by a kernel of our own; measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....config import config
from ....errors import CompilerUnavailable
from ....ir.fallback import Refused
from ...cache import content_key, default_choices
from .cublaslt import Product, Shape, available, check_available
from .gemm_trials import candidates, in_turn_with, tuned
from .wide import ARCHITECTURE, OneTileProduct, WideProduct, fits, is_one_tile, pays

__all__ = ["Shape", "available", "check_available", "plan_product", "wide_of"]

_products: dict[tuple[int, Shape, str], Product] = {}


def plan_product(device: Any, shape: Shape, workspace: int, tuning: bool) -> Product:
    """Return the product of a shape, made and tuned once a process; by which way, see `wide_of`.

    Raises
    ------
    Refused
        The library has no algorithm for it.
    """
    key = (device.number, shape, config.products)
    if key not in _products:
        plain: Product | None = None
        others: Sequence[np.ndarray] = ()
        if shape.epilogue:  # the heuristic knows fewer of these
            plain = plan_product(device, replace(shape, epilogue=""), workspace, tuning)
            others = list(candidates(plain))
        product = Product(device, shape)
        product.algorithms = candidates(product, others)
        if tuning:
            best = tuned(product, workspace, plain)
            product.chosen, product.microseconds, product.beside = best
        product.own = wide_of(product, workspace, tuning)
        _products[key] = product
    return _products[key]


def wide_of(product: Product, workspace: int, tuning: bool) -> WideProduct | None:
    """Return the kernel that computes a product, None where the library does.

    Which of both is faster is measured, in turn, once for a device and shape, and kept on disk.
    ``mg.config.products`` can ask for either.

    Parameters
    ----------
    product
        The library's, tuned.
    workspace
        Where that may write meanwhile.
    tuning
        Whether anything may be measured.
    """
    device, shape, asked = product.device, product.shape, config.products
    if device.architecture != ARCHITECTURE or asked == "blas" or not fits(shape):
        return None
    forced = asked == "tiles"
    if not forced and not (tuning and pays(shape, device.multiprocessors)):
        return None
    small = is_one_tile(shape, device.multiprocessors)
    try:
        wide = (OneTileProduct if small else WideProduct)(device, shape)
    except (Refused, CompilerUnavailable):  # the library computes it
        return None
    if forced:
        return wide
    key = content_key("wide", device.name, repr(shape), wide.kernel.source)
    choices = default_choices()
    choice = choices.get(key)
    if not isinstance(choice, list) or len(choice) != 2:
        choice = list(in_turn_with(product, wide, workspace))
        choices.set(key, choice)
    library, ours = (float(taken) for taken in choice)
    if not 0.0 < ours < library:
        return None
    return wide
