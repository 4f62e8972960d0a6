"""Gradients where a named dimension has met an int: cotangents have the operand's own extents."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import assert_close

import magmagraph as mg

_THREE = mg.constant(np.ones(3))

_CASES = {
    "scan": lambda z: mg.scan(lambda c, r: (c * r, c * r), 0 * z + 1, mg.stack([z, z]))[1],
    "rows": lambda z: mg.scan(lambda c, r: (c * r, c), _THREE, mg.outer(z, _THREE))[1],
    "carry": lambda z: mg.scan(lambda c, r: (c * r, None), z, np.array([2.0, 3.0]))[0],
    "body": lambda z: mg.scan(
        lambda c, r: (c + mg.sum(z * r * np.array([1.0, 2.0, 3.0, 4.0])), c),
        mg.constant(0.0, dtype="float64"), np.array([2.0, 3.0]),
    )[1],
    "while": lambda z: mg.while_loop(lambda v: mg.sum(v) < 9, lambda v: v * 2, z, max_steps=4),
    "cond": lambda z: mg.cond(mg.sum(z) > 0, mg.sin, lambda a: a * a, z),
    "switch": lambda z: mg.switch(
        mg.cast(mg.sum(z), "int32"),
        [lambda a: mg.sum(a), lambda a: mg.sum(a * np.array([1.0, 2.0, 3.0, 4.0]))], z,
    ),
    "vmap": lambda z: mg.vmap(lambda r: mg.sort(r * mg.max(r)))(mg.stack([z, z])),
    "checkpoint": lambda z: mg.checkpoint(lambda v: mg.sin(v) * 2)(z),
}


@pytest.mark.parametrize("name", list(_CASES))
def test_the_gradient_is_that_of_ints(name, rng):
    point = rng.uniform(0.5, 1.5, 4)
    found = []
    for extent in ("k", 4):
        z = mg.input("z", (extent,), dtype="float64")
        made = _CASES[name](z)
        shape = tuple(4 if isinstance(e, mg.Dim) else e for e in made.shape)
        loss = mg.sum(made * np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape))
        slope = mg.grad(loss, z)
        assert slope.shape == z.shape
        again = mg.grad(mg.sum(slope * slope), z, unused="zeros")
        found.append(mg.function([z], [loss, slope, again])(point))
    named, plain = found
    for a, b in zip(named, plain, strict=True):
        assert_close(a, b, scale=np.abs(b))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_running_values_of_rows_of_which_there_are_none(name, axis, reverse, rng):
    x = mg.input("x", ("n", 2), dtype="float64")
    scan = getattr(mg, name)
    slope = mg.grad(mg.sum(scan(x, axis=axis, reverse=reverse) ** 2), x)
    f = mg.function([x], [slope, mg.grad(mg.sum(slope), x, unused="zeros")])
    for rows in (0, 1, 3):
        point = rng.uniform(0.5, 1.5, (rows, 2))
        fixed = mg.input("fixed", (rows, 2), dtype="float64")
        wanted = mg.grad(mg.sum(scan(fixed, axis=axis, reverse=reverse) ** 2), fixed)
        first, second = f(point)
        assert first.shape == second.shape == (rows, 2)
        assert_close(first, wanted.eval({fixed: point}), scale=np.abs(first))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_recurrence_of_no_steps(reverse):
    a, b = (mg.input(name, ("n",), dtype="float64") for name in "ab")
    slopes = mg.grad(mg.sum(mg.linear_recurrence(a, b, reverse=reverse)), [a, b])
    f = mg.function([a, b], slopes)
    assert [part.shape for part in f(np.zeros(0), np.zeros(0))] == [(0,), (0,)]
    by_a, by_b = f(np.array([2.0, 3.0, 5.0]), np.ones(3))
    # h1 = b1 + a1 h0, h2 = b2 + a2 h1, or the same from the other end.
    assert by_a.tolist() == ([4.0, 3.0, 0.0] if reverse else [0.0, 6.0, 4.0])
    assert by_b.tolist() == ([1.0, 3.0, 10.0] if reverse else [19.0, 6.0, 1.0])
