"""Random programs of complex values, Fourier transforms, linear algebra and orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from random_domains import DOMAINS, Domain, Maker, Pairs

from magmagraph.ir.graph import Node


def axis_of(build: Pairs, x: Any) -> int:
    """Return one of the axes, counted from either end."""
    return int(build.rng.integers(-x[0].ndim, x[0].ndim))


# Complex values.


def _changed(build: Pairs) -> None:
    x = build.pick("c")
    build.apply(build.some(_COMPLEX), x)


_COMPLEX: tuple[Callable[..., Any], ...] = (
    lambda xp, z: xp.exp(z),
    lambda xp, z: xp.sin(z) * xp.cosh(z),
    lambda xp, z: xp.sqrt(z + 2.0),
    lambda xp, z: xp.log(z + 2.5j),
    lambda xp, z: xp.conj(z) * z + 1.0,
    lambda xp, z: xp.real(z) - 1j * xp.imag(z),
    lambda xp, z: xp.complex(xp.imag(z), xp.real(z)),
    lambda xp, z: xp.real(z),
    lambda xp, z: xp.imag(z * z),
    lambda xp, z: xp.abs(z + 2.0),
    lambda xp, z: xp.angle(z + 2.0j),
    lambda xp, z: z**3,
    lambda xp, z: 1.0 / (z * xp.conj(z) + 1.0),
    lambda xp, z: -(1j * z),
    lambda xp, z: xp.where(xp.real(z) > 0.1, z, xp.conj(z)),
    lambda xp, z: xp.tanh(z * 0.5) + xp.square(z),
    lambda xp, z: xp.reciprocal(z + 3.0),
    lambda xp, z: xp.exp(xp.log(z + 2.0) * 0.5),
    lambda xp, z: z - z * 1.0 + 0.0 * z + z,
)


def _joined(build: Pairs) -> None:
    x = build.pick()
    y = build.like(x[0].shape)
    build.apply(build.some(_TOGETHER), x, y)


_TOGETHER: tuple[Callable[..., Any], ...] = (
    lambda xp, a, b: a + b,
    lambda xp, a, b: a - 2.0 * b,
    lambda xp, a, b: a * b,
    lambda xp, a, b: a / (b + 3.0),
    lambda xp, a, b: xp.conj(a) * b,
    lambda xp, a, b: xp.real(a) * b + xp.imag(b) * a,
    lambda xp, a, b: xp.concatenate([a, b], axis=-1),
    lambda xp, a, b: xp.stack([a, b, a]),
    lambda xp, a, b: xp.sum(a * xp.conj(b), axis=0),
    lambda xp, a, b: xp.where(xp.real(a) > xp.real(b), a, b),
)


def _multiplied(build: Pairs) -> None:
    x, y = build.pick(ndim=2), build.pick(ndim=2)
    if x[0].shape[1] == y[0].shape[0] and build.rng.uniform() < 0.7:
        build.apply(lambda xp, a, b: a @ b, x, y)
    elif x[0].shape[0] == y[0].shape[0]:
        how = build.some(("ki,kj->ij", "ki,kj->ji", "ki,kj->i", "ki,kj->kij"))
        build.apply(lambda xp, a, b: xp.einsum(how, xp.conj(a), b), x, y)
    else:
        build.apply(lambda xp, a: xp.conj(a).T @ a, x)


def _arranged(build: Pairs) -> None:
    x = build.pick()
    axis = axis_of(build, x)
    functions: tuple[Callable[..., Any], ...] = (
        lambda xp, a: xp.sum(a, axis=axis),
        lambda xp, a: xp.mean(a, axis=axis, keepdims=True) + a,
        lambda xp, a: xp.cumsum(a, axis=axis),
        lambda xp, a: xp.transpose(a),
        lambda xp, a: xp.reshape(a, (-1,)),
        lambda xp, a: xp.flip(a, axis=axis),
        lambda xp, a: xp.roll(a, 2, axis=axis),
        lambda xp, a: a[..., ::2],
        lambda xp, a: a[..., None] * a[..., :1, None],
        lambda xp, a: xp.pad(a, [(1, 0)] + [(0, 0)] * (a.ndim - 1)),
        lambda xp, a: xp.prod(a + 1.0, axis=axis),
        lambda xp, a: xp.diff(a, axis=axis),
        lambda xp, a: xp.expand_dims(a, axis),
        lambda xp, a: xp.swapaxes(a, axis, 0),
    )
    build.apply(build.some(functions), x)


# Fourier transforms.


def _single(x: Any, axis: int) -> bool:
    return bool(x[0].shape[axis] == 1)


def _transformed(build: Pairs) -> None:
    name = build.some(
        (
            *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2"),
            *("irfft2", "fftn", "ifftn", "rfftn", "irfftn"),
        )
    )
    kinds = "f" if name.startswith(("rfft", "ihfft")) else "fc"
    many = name.endswith(("2", "n"))
    x = build.pick(kinds, ndim=build.some((2, 3)) if many else None)
    norm = build.some((None, "ortho", "forward", "backward"))
    axes: Any
    if many:
        axes = tuple(int(a) for a in build.rng.choice(x[0].ndim, 2, replace=False))
        lengths = None
        if build.rng.uniform() < 0.4:
            lengths = tuple(int(n) for n in build.rng.integers(2, 8, 2))
        elif name.startswith("irfft") and _single(x, axes[-1]):
            raise LookupError
        options = {"s": lengths, "axes": axes, "norm": norm}
    else:
        axes = axis_of(build, x)
        length = int(build.rng.integers(2, 9)) if build.rng.uniform() < 0.4 else None
        if length is None and name in ("irfft", "hfft") and _single(x, axes):
            raise LookupError
        options = {"n": length, "axis": axes, "norm": norm}
    build.apply(lambda xp, a: getattr(xp.fft, name)(a, **options), x)


def _shifted(build: Pairs) -> None:
    x = build.pick()
    name, axis = build.some(("fftshift", "ifftshift")), axis_of(build, x)
    build.apply(lambda xp, a: getattr(xp.fft, name)(a, axes=axis), x)


# Linear algebra.


def _square(build: Pairs, kinds: str = "fc") -> tuple[Node, np.ndarray | None]:
    fitting = [
        p
        for p in build.made
        if p[0].ndim >= 2 and p[0].shape[-1] == p[0].shape[-2]
        and np.dtype(p[0].dtype).kind in kinds
    ]  # fmt: skip
    if not fitting:
        raise LookupError
    return build.some(fitting)


def _t(xp: Any, a: Any) -> Any:
    return xp.conj(xp.swapaxes(a, -1, -2))


def _eye(xp: Any, *extents: Any) -> Any:
    """Return a matrix of single precision with ones on its diagonal, of named extents, too."""
    is_literal = all(isinstance(extent, int) for extent in extents)
    return (np if is_literal else xp).eye(*extents, dtype=np.float32)


def _hermitian(xp: Any, a: Any, least: float = 0.0) -> Any:
    return a @ _t(xp, a) * 0.5 + least * _eye(xp, a.shape[-1])


def _regular(xp: Any, a: Any) -> Any:
    return a * 0.5 + 2.0 * _eye(xp, a.shape[-1])


def _graded(xp: Any, a: Any) -> Any:
    """Return a Hermitian matrix whose eigenvalues stand apart."""
    count = a.shape[-1]
    own = np if isinstance(count, int) else xp
    return (a + _t(xp, a)) * 0.1 + _eye(xp, count) * own.arange(1, count + 1, dtype=np.float32)


def _of_eigen(xp: Any, a: Any) -> Any:
    values, vectors = xp.linalg.eigh(_graded(xp, a))
    return (vectors * xp.expand_dims(xp.sin(values), -2)) @ _t(xp, vectors)


def _of_svd(xp: Any, a: Any) -> Any:
    u, s, vh = xp.linalg.svd(_graded(xp, a), full_matrices=False)
    return (u * xp.expand_dims(xp.log(s + 1.0), -2)) @ vh


def _of_qr(xp: Any, a: Any) -> Any:
    q, r = xp.linalg.qr(_regular(xp, a))
    return xp.abs(r) + xp.real(q @ _t(xp, q))


def _factored(build: Pairs) -> None:
    build.apply(build.some(_MATRIX), _square(build))


_MATRIX: tuple[Callable[..., Any], ...] = (
    lambda xp, a: xp.linalg.inv(_regular(xp, a)),
    lambda xp, a: xp.linalg.det(_regular(xp, a)) * 0.1 + a[..., 0, 0],
    lambda xp, a: xp.linalg.slogdet(_regular(xp, a))[1] + xp.abs(a[..., 0, 0]),
    lambda xp, a: xp.linalg.cholesky(_hermitian(xp, a, 1.0)),
    lambda xp, a: xp.linalg.eigvalsh(_graded(xp, a)),
    _of_eigen,
    _of_svd,
    _of_qr,
    lambda xp, a: xp.linalg.svd(_graded(xp, a), compute_uv=False),
    lambda xp, a: xp.linalg.pinv(_regular(xp, a)),
    lambda xp, a: xp.linalg.matrix_power(_regular(xp, a), 3),
    lambda xp, a: xp.trace(a, axis1=-2, axis2=-1) + a[..., 0, 0],
    lambda xp, a: xp.linalg.norm(a, axis=(-2, -1)) + xp.abs(a[..., 0, 0]),
    lambda xp, a: xp.tril(a) + xp.triu(_t(xp, a), 1),
    lambda xp, a: xp.diagonal(a, axis1=-2, axis2=-1),
    lambda xp, a: xp.linalg.inv(_regular(xp, _t(xp, a))) @ a,
    lambda xp, a: xp.linalg.matrix_rank(_regular(xp, a)) + xp.real(a[..., 0, 0]),
    lambda xp, a: xp.linalg.det(xp.linalg.inv(_regular(xp, a))) + a[..., 0, 0],
)


def _solved(build: Pairs) -> None:
    a = _square(build)
    fitting = [p for p in build.made if p[0].ndim == 2 and p[0].shape[0] == a[0].shape[-1]]
    if not fitting:
        raise LookupError
    functions: tuple[Callable[..., Any], ...] = (
        lambda xp, a, b: xp.linalg.solve(_regular(xp, a), b),
        lambda xp, a, b: xp.linalg.solve(_hermitian(xp, a, 1.0), b),
        lambda xp, a, b: xp.linalg.inv(_regular(xp, a)) @ b,
        lambda xp, a, b: xp.linalg.solve(_t(xp, _regular(xp, a)), b * 2.0),
        lambda xp, a, b: xp.lower_solve(_regular(xp, a), b),
        lambda xp, a, b: xp.linalg.solve(_regular(xp, a), b[:, 0]),
    )
    function = build.some(functions)
    if a[0].ndim != 2 and function in (functions[4], functions[5]):
        raise LookupError
    build.apply(function, a, build.some(fitting))


def _fitted(build: Pairs) -> None:
    x = build.pick("f", ndim=2)
    fitting = [p for p in build.made if p[0].ndim == 2 and p[0].shape[0] == x[0].shape[0]]
    fitting = [p for p in fitting if np.dtype(p[0].dtype).kind == "f"]

    def tall(xp: Any, a: Any) -> Any:
        return a * 0.3 + _eye(xp, *a.shape) * 2.0

    build.apply(
        lambda xp, a, b: xp.linalg.lstsq(tall(xp, a), b, rcond=None)[0], x, build.some(fitting)
    )


def _exponential(build: Pairs) -> None:
    x = _square(build)
    build.apply(lambda xp, a: xp.expm(a * 0.5), x)


# Orders.


def _ordered(build: Pairs) -> None:
    x = build.pick("f")
    axis = axis_of(build, x)
    last = x[0].shape[-1]  # of a named one as many as there may be
    k = int(build.rng.integers(1, last + 1)) if isinstance(last, int) else 1
    q = float(build.rng.uniform())
    edges = np.sort(build.rng.uniform(-1, 1, 5)).astype(np.float32)
    functions: tuple[Callable[..., Any], ...] = (
        lambda xp, a: xp.sort(a, axis=axis),
        lambda xp, a: xp.sort(a, axis=None)[::-1],
        lambda xp, a: xp.take_along_axis(a, xp.argsort(-a, axis=axis, stable=True), axis=axis),
        lambda xp, a: xp.argsort(a, axis=axis, stable=True),
        lambda xp, a: xp.top(a, k),
        lambda xp, a: xp.median(a, axis=axis),
        lambda xp, a: xp.quantile(a, q, axis=axis),
        lambda xp, a: xp.percentile(a, [10.0, 90.0], axis=axis),
        lambda xp, a: xp.different(a, 5),
        lambda xp, a: xp.different(xp.round(a * 2.0), 4),
        lambda xp, a: xp.places(a > 0.0, 6),
        lambda xp, a: xp.searchsorted(edges, a),
        lambda xp, a: xp.searchsorted(xp.sort(xp.ravel(a)), edges, side="right"),
        lambda xp, a: xp.digitize(a, edges),
        lambda xp, a: xp.interp(a, edges, edges**2),
        lambda xp, a: xp.histogram(a, edges)[0],
        lambda xp, a: xp.argmax(a, axis=axis),
        lambda xp, a: xp.counts(xp.searchsorted(edges, xp.ravel(a)), 6),
        lambda xp, a: xp.lexsort((xp.ravel(a), xp.round(xp.ravel(a) * 2.0))),
        lambda xp, a: a - xp.max(xp.sort(a, axis=axis), axis=axis, keepdims=True),
        lambda xp, a: xp.sort(xp.round(a * 2.0), axis=axis),
        lambda xp, a: xp.argsort(xp.round(a * 2.0), axis=axis, stable=True),
        lambda xp, a: xp.ptp(a, axis=axis),
        lambda xp, a: xp.isin(xp.round(a * 2.0), np.array([0.0, 1.0], np.float32)),
        lambda xp, a: xp.clip(a, -0.3, 0.4) * xp.sign(a),
    )
    build.apply(build.some(functions), x)


def _indexed(build: Pairs) -> None:
    at = build.pick("iub")
    x = build.pick("f", ndim=2)
    if at[0].ndim > 2:
        raise LookupError
    build.apply(lambda xp, a, i: a[xp.mod(i * 1, a.shape[0])], x, at)


def _matrices(kinds: str) -> Maker:
    def leaves(build: Pairs) -> None:
        n, m = build.extents(("n", "m"), (1, 2, 3, 4, 5, 7))
        for shape, kind in (
            *(((n, n), "f"), ((n, m), "f"), ((n, n), "c"), ((m,), "c"), ((n, m), "c")),
            ((2, n, n), build.some("fc")),
        ):
            if kind in kinds:
                build.leaf(shape, kind)

    return leaves


DOMAINS["complex"] = Domain(_matrices("fc"), (_changed, _changed, _joined, _multiplied, _arranged))
DOMAINS["fft"] = Domain(
    _matrices("fc"), (_transformed, _transformed, _shifted, _changed, _joined, _arranged)
)
DOMAINS["linalg"] = Domain(
    _matrices("fc"), (_factored, _factored, _solved, _solved, _fitted, _exponential, _joined)
)
DOMAINS["order"] = Domain(
    _matrices("f"), (_ordered, _ordered, _ordered, _indexed, _joined, _arranged)
)
DOMAINS["mixed"] = Domain(
    _matrices("fc"),
    tuple(dict.fromkeys(maker for part in DOMAINS.values() for maker in part.makers)),
)
