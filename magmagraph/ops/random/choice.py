"""Random classes, choices, signs, directions and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...config import config
from ...errors import ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call
from ...ir.types import Extent, Shape
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide, negative
from ..elementwise.bits import bitwise_and
from ..elementwise.comparison import equal, where
from ..elementwise.family import floating
from ..elementwise.math import exp, log, sqrt
from ..indexing.gathering import take
from ..indexing.sorting import argsort
from ..leaf import constant
from ..linalg.factor import cholesky
from ..linalg.parts import diagonal_of
from ..linalg.qr import qr
from ..products.contraction import matmul
from ..reduction.primitives import argmax, max, sum
from ..shape.arrange import expand_dims, moveaxis, reshape
from .basic import normal, order, randint
from .bits import (
    INT32,
    RANDOM_BITS,
    Key,
    drawing_record,
    keys_for,
    misfit,
    parameter,
    result_dtype,
    sources,
    wide,
)
from .family import integer_dtype
from .gamma import unit_gamma
from .philox import UINT32
from .quantile import unit_exponential, unit_gumbel


def _logits(name: str, logits: Any, probs: Any) -> Node:
    """Return logarithms of weights, of which one of two forms is given."""
    if (logits is None) == (probs is None):
        count = "neither" if logits is None else "both"
        raise ShapeError(
            message(f"random.{name}: {count} of logits and probs given", need="one of the two")
        )
    node = floating(logits if probs is None else probs)
    if not node.ndim:
        raise ShapeError(message(f"random.{name}: the classes have no axis", need="an axis"))
    node = parameter(node, wide(node.dtype))
    return node if probs is None else log(node)


@documented
def categorical(
    logits: Any = None,
    shape: Any = None,
    axis: int = -1,
    dtype: Any = INT32,
    *,
    probs: Any = None,
    key: Key | None = None,
) -> Node:
    """Draw classes, each with its chance.

    logits: Logarithms of the chances, up to a constant, along an axis; ``-inf`` for a class that is
        never drawn.
    shape: Of the result: that of the logits without the axis, which it may have further axes in
        front of, and may broadcast. That itself unless said.
    axis: The axis of the classes.
    dtype: An integer dtype.
    probs: In place of `logits`: chances, up to a factor.
    key: From `mg.random.key`: the same classes at every call. Without it the node has a stream of
        its own, and new classes at every call of a function.
    returns: Positions along the axis. No gradient: integer valued.
    raises ShapeError: Unless just one of `logits` and `probs` is given, or where shapes do not fit.
    raises DTypeError: If `dtype` is not an integer's.

    Notes
    -----
    The largest of the logits with Gumbel numbers added: the rule is exact for any chances, and
    needs no sum of them.

    >>> mg.random.seed(0)
    >>> x = mg.random.categorical(probs=[0.2, 0.8], shape=(10000,)).eval()
    >>> round(float(x.mean()), 1)
    0.8
    """
    target = integer_dtype("categorical", dtype)
    scores = _logits("categorical", logits, probs)
    place = Call(RANDOM_BITS, (scores,)).axis(axis, scores.ndim)
    scores = moveaxis(scores, place, -1)
    outer = scores.shape[:-1]
    extents = outer if shape is None else dims.parse_shape(shape)
    if Call(RANDOM_BITS, (scores,)).broadcast(outer, extents) != extents:
        raise misfit("categorical", outer, extents)
    noise = unit_gumbel((*extents, scores.shape[-1]), scores.dtype, key)
    return cast(argmax(scores + noise, axis=-1), target)


@documented
def choice(
    x: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    *,
    key: Key | None = None,
) -> Node:
    """Draw elements of an array, or of ``0 .. n - 1``.

    x: An int, name or Dim `n` for ``0 .. n - 1`` (int64); or a node or array.
    shape: How many: ints, names, Dims.
    replace: True draws each independently; False draws no position twice.
    p: Weights of the positions, up to a factor; equal ones unless said.
    axis: The axis of `x` whose positions are drawn.
    key: From `mg.random.key`: the same choice at every call. Without it the node has a stream of
        its own, and a new choice at every call of a function.
    returns: Of shape ``x.shape[:axis] + shape + x.shape[axis + 1:]``. Gradients flow to `x`.
    raises ShapeError: If there are fewer elements than are drawn without replacement, or `p` does
        not fit.

    Notes
    -----
    Without replacement, and with weights, the positions of the largest sums of log(p) and Gumbel
    numbers are taken: the law of drawing one after the other (J. Yellott, 1977). Positions of
    weight 0 are taken where too few others are left.

    >>> mg.random.seed(0)
    >>> sorted(mg.random.choice(5, (5,), replace=False).eval().tolist())
    [0, 1, 2, 3, 4]
    """
    counted = isinstance(x, (int, np.integer, str, Dim)) and not isinstance(x, bool)
    node = None if counted else as_node(x)
    if node is None:
        count = dims.parse_shape((x,))[0]
    else:
        if not node.ndim:
            raise ShapeError(
                message("random.choice: the operand has no axes", need="an int or an array")
            )
        axis = Call(RANDOM_BITS, (node,)).axis(axis, node.ndim)
        count = node.shape[axis]
    extents = dims.parse_shape(shape)
    weights = None if p is None else floating(p)
    if weights is not None:
        if weights.ndim != 1:
            raise ShapeError(
                message(f"random.choice: p of shape {weights.shape}", need="one axis of weights")
            )
        Call(RANDOM_BITS, (weights,)).unify(weights.shape[0], count, "extents of p and x")
    if replace:
        if weights is None:
            places = randint(extents, count, dtype=np.int64, key=key)
        else:
            places = categorical(probs=weights, shape=extents, dtype=np.int64, key=key)
    else:
        places = _without_replacement(count, extents, weights, key)
    return places if node is None else take(node, places, axis=axis)


def _without_replacement(
    count: Extent, extents: Shape, weights: Node | None, key: Key | None
) -> Node:
    size: Extent = 1
    for extent in extents:
        size = size * extent
    if isinstance(size, int) and isinstance(count, int) and size > count:
        raise ShapeError(
            message(
                f"random.choice: {size} of {count} positions, none twice",
                need="at least as many as are drawn",
                hint="replace=True",
            )
        )
    if weights is None:
        places = order(count, key)
    else:
        scores = _logits("choice", None, weights)
        places = argsort(negative(scores + unit_gumbel(scores.shape, scores.dtype, key)))
    return reshape(places[:size], extents)


@documented
def rademacher(shape: Any = (), dtype: Any = None, *, key: Key | None = None) -> Node:
    """Draw signs: 1 or -1, with equal chances.

    shape: Of the result: ints, names, Dims.
    dtype: Of the result; `mg.config.float_dtype` unless said. Any signed dtype.
    key: From `mg.random.key`: the same signs at every call.
    returns: New signs at every call of a function, unless a key is given; the same on every
        backend. No gradient: there are no parameters.

    >>> mg.random.seed(0)
    >>> sorted(set(mg.random.rademacher((100,)).eval().tolist()))
    [-1.0, 1.0]
    """
    target = config.float_dtype if dtype is None else dtype
    (words,) = sources(dims.parse_shape(shape), UINT32, key=key)
    odd = bitwise_and(words, constant(1, dtype=UINT32))
    return where(equal(odd, 0), constant(1, dtype=target), constant(-1, dtype=target))


@documented
def dirichlet(alpha: Any, shape: Any = None, dtype: Any = None, *, key: Key | None = None) -> Node:
    """Draw vectors of positive numbers that add up to 1.

    alpha: Node or array of numbers above 0 along the last axis.
    shape: Of the result without its last axis; that of `alpha` unless said.
    dtype: A float dtype; `mg.config.float_dtype`, or that of `alpha`, unless said.
    returns: Of `shape` and the last axis of `alpha`. Gradients flow to `alpha`, implicitly (M.
        Figurnov et al., 2018).
    raises ShapeError: If `alpha` has no axes, or does not fit `shape`.

    Notes
    -----
    Gamma variables divided by their sum, from their logarithms, so that tiny parameters do not
    underflow.

    >>> mg.random.seed(0)
    >>> x = mg.random.dirichlet([1.0, 2.0, 3.0], (10000,)).eval()
    >>> x.mean(axis=0).round(2)
    array([0.17, 0.33, 0.5 ], dtype=float32)
    """
    target = result_dtype("dirichlet", dtype, alpha)
    node = parameter(alpha, wide(target))
    if not node.ndim:
        raise ShapeError(message("random.dirichlet: alpha has no axes", need="a vector"))
    outer = node.shape[:-1]
    extents = outer if shape is None else dims.parse_shape(shape)
    if Call(RANDOM_BITS, (node,)).broadcast(outer, extents) != extents:
        raise misfit("dirichlet", outer, extents)
    logarithms = unit_gamma((*extents, node.shape[-1]), key, node, log=True)
    weights = exp(logarithms - max(logarithms, axis=-1, keepdims=True))
    return cast(divide(weights, sum(weights, axis=-1, keepdims=True)), target)


@documented
def multivariate_normal(
    mean: Any, cov: Any, shape: Any = None, dtype: Any = None, *, key: Key | None = None
) -> Node:
    """Draw vectors of a normal distribution.

    mean: Node or array of shape ``(..., n)``.
    cov: Covariances of shape ``(..., n, n)``, symmetric and positive definite.
    shape: Of the result without its last axis; the broadcast shape of those of `mean` and `cov`
        unless said.
    dtype: A float dtype; `mg.config.float_dtype`, or that of the parameters, unless said.
    returns: Of `shape` and the axis n. Gradients flow to both parameters: ``mean + L z`` with ``L
        L^T = cov``.
    raises ShapeError: If the parameters do not fit each other or `shape`.
    raises LinAlgError: At the call, where a covariance is not positive definite.

    >>> mg.random.seed(0)
    >>> x = mg.random.multivariate_normal([1.0, 2.0], [[2.0, 1.0], [1.0, 2.0]], (20000,)).eval()
    >>> x.mean(axis=0).round(1)
    array([1., 2.], dtype=float32)
    """
    target = result_dtype("multivariate_normal", dtype, mean, cov)
    center, covariance = (parameter(value, wide(target)) for value in (mean, cov))
    call = Call(RANDOM_BITS, (center, covariance))
    if center.ndim < 1 or covariance.ndim < 2:
        raise ShapeError(
            message(
                f"random.multivariate_normal: mean of shape {center.shape}, "
                f"cov of shape {covariance.shape}",
                need="a vector and a matrix, or batches of them",
            )
        )
    call.unify(center.shape[-1], covariance.shape[-1], "extents of mean and cov")
    call.unify(covariance.shape[-2], covariance.shape[-1], "extents of cov")
    outer = call.broadcast(center.shape[:-1], covariance.shape[:-2])
    extents = outer if shape is None else dims.parse_shape(shape)
    if call.broadcast(outer, extents) != extents:
        raise misfit("multivariate_normal", outer, extents)
    z = normal((*extents, center.shape[-1]), dtype=center.dtype, key=key)
    deviation = matmul(cholesky(covariance), expand_dims(z, -1))
    return cast(center + reshape(deviation, z.shape), target)


@documented
def orthogonal(n: Any, shape: Any = (), dtype: Any = None, *, key: Key | None = None) -> Node:
    """Draw orthogonal matrices, each as likely as any other.

    n: Rows and columns: an int, a name or a Dim.
    shape: Of the batch.
    dtype: float32 or float64; `mg.config.float_dtype` unless said.
    key: From `mg.random.key`: the same matrices at every call.
    returns: Of shape ``(*shape, n, n)``. No gradient: there are no parameters.

    Notes
    -----
    The orthogonal factor of a matrix of normal numbers, with the signs that make the other's
    diagonal positive (F. Mezzadri, "How to generate random matrices from the classical compact
    groups", 2007).

    >>> q = mg.random.orthogonal(3, dtype="float64").eval()
    >>> bool(abs(q @ q.T - mg.eye(3, dtype="float64").eval()).max() < 1e-14)
    True
    """
    target = result_dtype("orthogonal", dtype)
    extents = dims.parse_shape(shape)
    (extent,) = dims.parse_shape((n,))
    factors = qr(normal((*extents, extent, extent), dtype=wide(target), key=key))
    diagonal = diagonal_of(factors.R)
    signs = where(diagonal < 0, constant(-1, dtype=diagonal.dtype), 1)
    return cast(factors.Q * expand_dims(signs, -2), target)


@documented
def sphere(n: Any, shape: Any = (), dtype: Any = None, *, key: Key | None = None) -> Node:
    """Draw points of the unit sphere in n dimensions, evenly.

    n: Of the space: an int, a name or a Dim.
    shape: Of the result without its last axis.
    dtype: A float dtype; `mg.config.float_dtype` unless said.
    key: From `mg.random.key`: the same points at every call.
    returns: Of shape ``(*shape, n)``: vectors of length 1. No gradient: there are no parameters.

    >>> x = mg.random.sphere(3, (5,), dtype="float64").eval()
    >>> (x**2).sum(axis=1).round(6)
    array([1., 1., 1., 1., 1.])
    """
    target = result_dtype("sphere", dtype)
    extents = (*dims.parse_shape(shape), *dims.parse_shape((n,)))
    z = normal(extents, dtype=wide(target), key=key)
    return cast(z / sqrt(sum(z * z, axis=-1, keepdims=True)), target)


@documented
def ball(n: Any, shape: Any = (), dtype: Any = None, *, key: Key | None = None) -> Node:
    """Draw points of the unit ball in n dimensions, evenly.

    n: Of the space: an int, a name or a Dim.
    shape: Of the result without its last axis.
    dtype: A float dtype; `mg.config.float_dtype` unless said.
    key: From `mg.random.key`: the same points at every call.
    returns: Of shape ``(*shape, n)``. No gradient: there are no parameters.

    Notes
    -----
    The first n of n + 2 coordinates of a point of the sphere: ``z / sqrt(|z|**2 + 2 e)`` with e
    exponential (F. Barthe et al., 2005).

    >>> x = mg.random.ball(3, (1000,)).eval()
    >>> bool(((x**2).sum(axis=1) <= 1.0).all())
    True
    """
    target = result_dtype("ball", dtype)
    outer = dims.parse_shape(shape)
    first, second = keys_for(key, 2)
    computing = wide(target)
    z = normal((*outer, *dims.parse_shape((n,))), dtype=computing, key=first)
    more = unit_exponential(outer, computing, second) * 2.0
    length = sqrt(sum(z * z, axis=-1) + more)
    return cast(z / expand_dims(length, -1), target)


_FREE = "there are no parameters"

RECORDS = (
    drawing_record(categorical, "Draw classes, each with its chance.", "integer valued"),
    drawing_record(choice, "Draw elements of an array."),
    drawing_record(rademacher, "Draw signs.", _FREE),
    drawing_record(dirichlet, "Draw vectors of positive numbers that add up to 1."),
    drawing_record(multivariate_normal, "Draw vectors of a normal distribution."),
    drawing_record(orthogonal, "Draw orthogonal matrices.", _FREE),
    drawing_record(sphere, "Draw points of the unit sphere.", _FREE),
    drawing_record(ball, "Draw points of the unit ball.", _FREE),
)
