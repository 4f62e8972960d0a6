"""Whole functions on an emulated GPU: what is copied, captured and launched, and the results.

A process of its own, since devices are asked for once: ``python tests/helpers/emulated_program.py``
ends with 0 where all is right.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from typing import Any

import emulated_cupy

count = emulated_cupy.install()

import cupy  # noqa: E402
import numpy as np  # noqa: E402

import magmagraph as mg  # noqa: E402
from magmagraph.passes import shared_factors  # noqa: E402
from magmagraph.runtime.cuda.launching import segments  # noqa: E402

rng = np.random.default_rng(0)


def fed(*shape: int) -> Any:
    return cupy.asarray(rng.standard_normal(shape).astype("f4"))


def agree(result: Any, expected: Any, what: str) -> None:
    result = result if isinstance(result, (list, tuple)) else [result]
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(one.get(), other, 2e-5, 2e-5, err_msg=what)


def compared(what: str, inputs: list[Any], outputs: Any, *shapes: Any, calls: int = 6) -> Any:
    """Call a function at new places, at the same ones, and from the host; return it."""
    f = mg.function(inputs, outputs, device="cuda")
    g = mg.function(inputs, outputs, device="cpu")
    fixed_feeds = [fed(*shape) for shape in shapes]
    earlier = []
    for number in range(calls):
        feeds = fixed_feeds if number % 2 else [fed(*shape) for shape in shapes]
        host = [array.get() for array in feeds]
        results = f(*feeds)
        earlier.append((results, g(*host)))
        for array, value in zip(feeds, host, strict=True):
            np.testing.assert_array_equal(array.get(), value, what)  # feeds are only read
        if number == 3:
            earlier.append((f(*host), g(*host)))
            earlier.append((f(feeds[0], *host[1:]), g(*host)))
    for results, expected in earlier:  # results of earlier calls stay
        agree(results, expected, what)
    return f


def counted(call: Any) -> dict[str, int]:
    before = dict(count)
    call()
    return {name: count[name] - before.get(name, 0) for name in count}


def programs() -> None:
    x, y = mg.input("x", ("n", 70)), mg.input("y", ("n", 70))
    f = compared("one kernel", [x, y], mg.tanh(x) * y, (9, 70), (9, 70))
    a, b = fed(9, 70), fed(9, 70)
    assert counted(lambda: f(a, b)) | {"launches": 1} == dict.fromkeys(count, 0) | {"launches": 1}
    around = fed(11, 70)
    shifted = cupy.ndarray((9, 70), "f4", emulated_cupy.Pointer(around.data.ptr + 4))
    shifted.host[...] = 1.0
    assert counted(lambda: f(shifted, b))["copies"] >= 1  # kernels expect other places
    agree(f(shifted, b), np.tanh(np.float32(1)) * b.get(), "a feed that is not aligned")

    h = mg.input("h", ("n", 8), "bfloat16")
    half = mg.function([h], h + h, device="cuda")
    for _ in range(3):
        ones = np.ones((4, 8), h.dtype)
        assert (half(ones).get() == 2).all()

    s = mg.softmax(x @ mg.transpose(y) * 0.1)
    compared("products as array expressions", [x, y], [s, mg.sum(s * s, 0)], (9, 70), (9, 70))
    total = mg.sum(x * y)
    compared(
        "several kernels, one result twice", [x, y],
        [total, mg.exp(x - mg.max(x)), total, x, mg.cumsum(y, 1) + total], (9, 70), (9, 70),
    )  # fmt: skip
    for width in (70, 1030):  # threads have sums of some places of all their rows
        r, up = mg.input("r", ("n", width)), mg.input("up", ("n", width))
        centered = r - mg.mean(r, 1, keepdims=True)
        scaled = centered / mg.sqrt(mg.mean(centered**2, 1, keepdims=True) + 0.1)
        back = mg.grad(mg.sum(scaled * up), r)
        compared(
            "sums across rows", [r, up], [back, mg.sum(scaled * up, 0), mg.max(up, 0)],
            (9, width), (9, width), calls=4,
        )  # fmt: skip
    compared("the same feed twice", [x, y], mg.sort(x + y, 1)[:, ::2] * 2.0, (5, 70), (5, 70))
    compared("nothing", [x, y], x[:0] * y[:0], (9, 70), (9, 70))
    line = mg.input("line", ("n", 5003))  # longer than what a block sorts
    largest = mg.top_k(line, 5).values
    compared(
        "the ends of an order", [line],
        [largest, mg.argsort(line)[:, -9:], mg.grad(mg.sum(largest**2), line)], (3, 5003), calls=4,
    )  # fmt: skip
    same = mg.function([x, y], x * y, device="cuda")
    for _ in range(4):
        agree(same(a, a), a.get() ** 2, "one array for two feeds")

    c = mg.input("c", (4, 70))
    last, rows = mg.scan(lambda s, r: (mg.tanh(s + r), s * 2.0), c[0], c)
    compared("a loop", [c], [last, rows, mg.grad(mg.sum(last), c)], (4, 70))


def control() -> None:
    """Loops and branches that a value decides: bodies are compiled, and read what lies there."""
    x, p = mg.input("x", (64,)), mg.input("p", (), "bool")
    root, number = mg.while_loop(
        lambda s: mg.logical_and(s[1] < 100, mg.max(mg.absolute(s[0] ** 3 - 2.0)) > 1e-4),
        lambda s: (s[0] - (s[0] ** 3 - 2.0) / (3.0 * s[0] ** 2), s[1] + 1),
        (mg.absolute(x) + 1.0, mg.constant(0)),
    )
    branch = mg.cond(p, lambda: mg.sum(mg.exp(x) * 2 + 1), lambda: mg.sum(mg.sin(x) / 2 - 1))
    outputs = [root, number, branch, mg.grad(branch, x)]
    f = mg.function([x, p], outputs, device="cuda")
    g = mg.function([x, p], outputs, device="cpu")
    for number in range(4):
        feed = fed(64)
        agree(f(feed, number % 2 == 0), g(feed.get(), number % 2 == 0), "control flow")
    places = counted(lambda: f(feed, True))
    assert places["launches"] >= 4, places  # the body of each iteration is compiled


def graphs() -> None:
    """Addresses that are met again have graphs; new ones are copied where launches are many."""
    x = mg.input("x", (300, 40))
    value = x
    for step in range(8):
        value = mg.tanh(value - mg.sum(value * value, step % 2, keepdims=True)) + 0.1
    f = mg.function([x], value, device="cuda")
    arrays = [fed(300, 40) for _ in range(3)]
    keep = [f(arrays[0])]
    (segment,) = f._last._before
    assert len(segment.launches) > 1, len(segment.launches)
    seen = counted(lambda: keep.append(f(arrays[1])))
    assert seen["copies"] == 2, (seen, len(segment.launches))
    for _ in range(3):
        for array in arrays:
            keep[:] = [f(array)]  # the result's place comes again, too
    expected = mg.function([x], value, device="cpu")
    places = [segment._places, segment._seen]
    for number in range(200):
        array = fed(300, 40)
        result = f(array)
        if number % 50 == 0:
            agree(result, expected(array.get()), "a graph")
    assert len(places[0]) <= segments.PLACES
    assert len(places[1]) <= segments.SEEN


def variables() -> None:
    """Updates, and results that are read after them."""
    x = mg.input("x", ("n", 6))
    w = mg.variable("w", init=np.ones((6,), "f4"))
    loss = mg.mean((x * w - 1.0) ** 2)
    f = mg.optimizer.SGD(0.1).step(loss, [w], inputs=[x], outputs=[loss, w * 2.0], device="cuda")
    v = mg.variable("w", init=np.ones((6,), "f4"))
    other = mg.mean((x * v - 1.0) ** 2)
    g = mg.optimizer.SGD(0.1).step(other, [v], inputs=[x], outputs=[other, v * 2.0], device="cpu")
    for number in range(8):
        feed = fed(5 + number % 2, 6)
        agree(f(feed if number % 3 else feed.get()), g(feed.get()), "a step")
        np.testing.assert_allclose(w.value, v.value, 1e-5)


def training() -> None:
    """Steps of small networks: products on tensor cores, with what reads them, and updates."""
    optimizers = (lambda: mg.optimizer.SGD(0.1, momentum=0.5), lambda: mg.optimizer.Adam(0.01))
    for make in optimizers:
        losses = []
        for device in ("cuda", "cpu"):
            optimizer = make()
            x, labels = mg.input("x", ("n", 70)), mg.input("labels", ("n",), "int32")
            sizes, value, variables = (70, 40, 24, 10), x, []
            for i, shape in enumerate(itertools.pairwise(sizes)):
                init = mg.init.glorot_uniform(seed=i)
                variables.append(mg.variable(f"w{i}", shape=shape, init=init))
                variables.append(mg.variable(f"b{i}", shape=shape[1:], init=mg.init.zeros()))
                value = value @ variables[-2] + variables[-1]
                value = mg.sigmoid(value) if i < 2 else value
            loss = mg.cross_entropy(value, labels)
            f = optimizer.step(loss, variables, [x, labels], [loss, value], device=device)
            local = np.random.default_rng(3)
            both_losses = []
            for number in range(6):
                batch = local.standard_normal((36 + number % 2, 70)).astype("f4")
                own = local.integers(0, 10, len(batch)).astype("i4")
                if device == "cuda":
                    both_losses.append(float(f(cupy.asarray(batch), cupy.asarray(own))[0].get()))
                else:
                    both_losses.append(float(f(batch, own)[0]))
            losses.append([*both_losses, *(float(v.value.sum()) for v in variables)])
        np.testing.assert_allclose(*losses, 2e-4, 2e-4)


def factors() -> None:
    """Products that share a factor: slices of one result, and factors that regions join."""
    kept = shared_factors.SMALL, shared_factors.LAUNCH
    shared_factors.SMALL, shared_factors.LAUNCH = 0, 1 << 30
    try:
        x, w = mg.input("x", (20, 24)), mg.input("w", (24, 72))
        h = mg.tanh(x)

        def heads(value: Any) -> Any:
            return mg.transpose(mg.reshape(value, (4, 5, 2, 12)), (0, 2, 1, 3))

        q, k, v = (heads(h @ mg.sin(w[:, i : i + 24])) for i in (0, 24, 48))
        loss = mg.sum(mg.tanh(q) * k + v * v)
        f = compared("one left factor", [x, w], [loss, *mg.grad(loss, [x, w])], (20, 24), (24, 72))
        hits = f.report["shared_factors"].hits
        assert hits == {shared_factors.SHARED: 2, shared_factors.SUMMED: 1}, hits
    finally:
        shared_factors.SMALL, shared_factors.LAUNCH = kept


def main() -> int:
    """Run all."""
    warnings.simplefilter("ignore", mg.errors.FallbackWarning)
    programs()
    control()
    graphs()
    variables()
    training()
    factors()
    print("all right", dict(count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
