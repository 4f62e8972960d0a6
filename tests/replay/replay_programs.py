"""Programs whose compilation and results `replay.py` compares between two versions of the package.

They use only the public interface, so that the same file runs against both versions. A program
returns a compiled function and the arrays of one call. Add one when a pass or a kernel gets a form
that no program here has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import magmagraph as mg

Made = tuple[Any, list[np.ndarray]]
PROGRAMS: dict[str, Callable[[Any], Made]] = {}


def program(build: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """Register a program under its function's name."""
    PROGRAMS[build.__name__] = build
    return build


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 numbers of a normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positions(count: int, below: int) -> np.ndarray:
    """Return int32 positions."""
    return np.random.default_rng(1).integers(0, below, count).astype(np.int32)


def weight(name: str, *shape: int, seed: int = 0) -> Any:
    """Return a variable of a layer."""
    return mg.var(name, shape=shape, init=mg.init.glorot_uniform(seed=seed))


def with_gradient(value: Any, wrt: list[Any]) -> list[Any]:
    """Return a value and the gradient of the sum of its squares."""
    return [value, *mg.grad(mg.sum(value * value), wrt)]


def dense_step(options: Any, layers: int, optimizer: Any, **more: Any) -> Made:
    """Return a training step of a network of sigmoid layers."""
    x = mg.var("x", shape=("batch", 64))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    value, width, variables = x, 64, []
    for i in range(layers):
        w, b = weight(f"w{i}", width, 48, seed=i), mg.var(f"b{i}", init=np.zeros(48, np.float32))
        value, width = mg.sigmoid(value @ w + b), 48
        variables += [w, b]
    out = weight("out", 48, 10, seed=99)
    loss = mg.cross_entropy(value @ out, labels)
    step = optimizer.step(loss, [*variables, out], inputs=[x, labels], outputs=[loss],
                          **options, **more)
    return step, [numbers(20, 64), positions(20, 10)]


@program
def step_of_one_layer(options: Any) -> Made:
    return dense_step(options, 1, mg.optimizer.SGD(0.05, weight_decay=0.001))


@program
def step_of_four_layers(options: Any) -> Made:
    return dense_step(options, 4, mg.optimizer.SGD(0.05))


@program
def step_with_momentum(options: Any) -> Made:
    return dense_step(options, 2, mg.optimizer.SGD(0.05, momentum=0.9, nesterov=True))


@program
def step_with_adam(options: Any) -> Made:
    return dense_step(options, 2, mg.optimizer.Adam(1e-3))


@program
def step_in_half_precision(options: Any) -> Made:
    return dense_step(options, 2, mg.optimizer.Adam(1e-3), precision="bfloat16")


@program
def optimizer_of_many_tensors(options: Any) -> Made:
    shapes = [(1 + i % 7, 3 + i % 11) for i in range(60)]
    variables = [mg.var(f"v{i}", init=numbers(*s, seed=i)) for i, s in enumerate(shapes)]
    loss = sum(mg.sum(mg.tanh(v) ** 2) for v in variables)
    step = mg.optimizer.Adam(1e-2).step(loss, variables, inputs=[], outputs=[loss], **options)
    return step, []


@program
def convolutional_step(options: Any) -> Made:
    x = mg.var("x", shape=("batch", 1, 14, 14))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    k1, k2, w = weight("k1", 6, 1, 3, 3), weight("k2", 8, 6, 3, 3, seed=1), weight("w", 72, 5)
    h = mg.max_pool2d(mg.relu(mg.conv2d(x, k1, padding=1)), 2)
    h = mg.max_pool2d(mg.relu(mg.conv2d(h, k2, padding=1)), 2)
    loss = mg.cross_entropy(mg.reshape(h, (-1, 72)) @ w, labels)
    step = mg.optimizer.SGD(0.1).step(loss, [k1, k2, w], inputs=[x, labels], outputs=[loss],
                                      **options)
    return step, [numbers(6, 1, 14, 14), positions(6, 5)]


@program
def attention_step(options: Any) -> Made:
    x = mg.var("x", shape=("batch", 17, 24))
    wq, wk, wv = (weight(n, 24, 24, seed=i) for i, n in enumerate(("wq", "wk", "wv")))

    def heads(value: Any) -> Any:
        return mg.transpose(mg.reshape(value, (-1, 17, 3, 8)), (0, 2, 1, 3))

    q, k, v = heads(x @ wq), heads(x @ wk), heads(x @ wv)
    scores = q @ mg.swapaxes(k, -1, -2) / 8**0.5
    causal = np.tril(np.ones((17, 17), bool))
    mixed = mg.softmax(mg.where(causal, scores, -1e9), axis=-1) @ v
    value = mg.layer_norm(mg.reshape(mg.transpose(mixed, (0, 2, 1, 3)), (-1, 17, 24)) + x)
    f = mg.function([x], with_gradient(value, [wq, wk, wv, x]), **options)
    return f, [numbers(3, 17, 24)]


@program
def gelu_block(options: Any) -> Made:
    x = mg.var("x", shape=("batch", 32))
    up, down, scale = weight("up", 32, 96), weight("down", 96, 32), weight("scale", 1, 32)
    value = x + mg.gelu(mg.layer_norm(x) * scale @ up) @ down
    return mg.function([x], with_gradient(value, [up, down, scale]), **options), [numbers(11, 32)]


@program
def recurrent_network(options: Any) -> Made:
    x = mg.var("x", shape=(9, "batch", 6))
    w, u = weight("w", 6, 32), weight("u", 8, 32)

    def cell(state: Any, value: Any) -> Any:
        h, c = state
        i, f, g, o = mg.split(value @ w + h @ u, 4, axis=-1)
        c = mg.sigmoid(f) * c + mg.sigmoid(i) * mg.tanh(g)
        h = mg.sigmoid(o) * mg.tanh(c)
        return (h, c), h

    zeros = mg.zeros((x.shape[1], 8))
    _, hidden = mg.scan(cell, (zeros, zeros), x)
    return mg.function([x], with_gradient(hidden, [w, u]), **options), [numbers(9, 4, 6)]


@program
def while_loop(options: Any) -> Made:
    x = mg.var("x", shape=(7,))
    value = mg.while_loop(lambda v: mg.sum(v * v) > 0.5, lambda v: v * 0.75 + 0.01, x)
    return mg.function([x], value, **options), [numbers(7)]


@program
def branches(options: Any) -> Made:
    x = mg.var("x", shape=("n",))
    value = mg.cond(mg.sum(x) > 0, lambda: mg.exp(-x * x), lambda: mg.sin(x) + 1)
    return mg.function([x], with_gradient(value, [x]), **options), [numbers(13)]


@program
def elementwise_chain(options: Any) -> Made:
    x, y = mg.var("x", shape=("n",)), mg.var("y", shape=("n",))
    value = mg.exp(-x * x) * mg.log1p(mg.abs(y)) + mg.where(x > y, x, y) / (1 + mg.tanh(x) ** 2)
    return mg.function([x, y], with_gradient(value, [x, y]), **options), [
        numbers(1001), numbers(1001, seed=1)]


@program
def sums_over_axes(options: Any) -> Made:
    x = mg.var("x", shape=("a", "b", "c"))
    outputs = [mg.sum(x, axis=axis) for axis in (0, 1, 2, (0, 2), (1, 2), None)]
    outputs += [mg.var(x, axis=0), mg.std(x, axis=-1), mg.max(x, axis=1), mg.argmin(x, axis=2)]
    return mg.function([x], outputs, **options), [numbers(5, 7, 13)]


@program
def normalizations(options: Any) -> Made:
    x = mg.var("x", shape=("n", 37))
    values = [mg.softmax(x), mg.log_softmax(x), mg.logsumexp(x, axis=0), mg.layer_norm(x),
              mg.softmax(x, axis=0)]
    loss = sum(mg.sum(v * v) for v in values)
    return mg.function([x], [*values, mg.grad(loss, x)], **options), [numbers(19, 37)]


@program
def scans_along_axes(options: Any) -> Made:
    x = mg.var("x", shape=("n", 12))
    backwards = mg.cumsum(mg.exp(x[::-1]), axis=0)
    outputs = [mg.cumsum(x, axis=0), mg.cumprod(x * 0.5, axis=1), backwards]
    return mg.function([x], [*outputs, mg.grad(mg.sum(outputs[0] ** 2), x)], **options), [
        numbers(9, 12)]


@program
def layouts(options: Any) -> Made:
    x = mg.var("x", shape=("n", 4, 6))
    values = [mg.transpose(x, (2, 0, 1)), mg.concatenate([x, x[:, ::-1]], axis=1),
              mg.pad(x, ((0, 0), (1, 2), (0, 1))), mg.roll(x, 2, axis=2), x[1:] - x[:-1],
              mg.reshape(x, (-1, 24)) * 2, mg.stack([x, -x], axis=1), mg.tile(x, (1, 2, 1)),
              mg.repeat(x, 2, axis=2), mg.flip(x, 0)]
    loss = sum(mg.sum(mg.sin(v)) for v in values)
    return mg.function([x], [*values, mg.grad(loss, x)], **options), [numbers(5, 4, 6)]


@program
def stencil(options: Any) -> Made:
    u = mg.var("u", shape=("n", "m"))
    inner = u[1:-1, 1:-1]
    value = inner + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner)
    return mg.function([u], with_gradient(value, [u]), **options), [numbers(17, 23)]


@program
def pairwise_distances(options: Any) -> Made:
    x, y = mg.var("x", shape=("n", 3)), mg.var("y", shape=("m", 3))
    difference = x[:, None, :] - y[None, :, :]
    value = mg.exp(-mg.sum(difference * difference, axis=-1))
    return mg.function([x, y], with_gradient(value, [x, y]), **options), [
        numbers(21, 3), numbers(17, 3, seed=1)]


@program
def indexing(options: Any) -> Made:
    table, at = mg.var("table", shape=("rows", 8)), mg.var("at", shape=("n",), dtype="int32")
    rows = mg.take(table, at, axis=0)
    added = table.at[at].add(mg.sin(rows))
    chosen = mg.take_along_axis(table, mg.argsort(table, axis=1), axis=1)
    values = [rows, added, chosen, mg.one_hot(at, 30)]
    loss = mg.sum(rows**2) + mg.sum(added**3)
    return mg.function([table, at], [*values, mg.grad(loss, table)], **options), [
        numbers(30, 8), positions(50, 30)]


@program
def ordering(options: Any) -> Made:
    x = mg.var("x", shape=("n", 11))
    outputs = [mg.sort(x, axis=0), mg.argsort(x), mg.median(x, axis=1),
               mg.quantile(x, 0.3, axis=0), mg.unique(mg.round(x[:, 0]), size=8)]
    return mg.function([x], outputs, **options), [numbers(15, 11)]


@program
def random_numbers(options: Any) -> Made:
    mg.random.seed(3)
    x = mg.var("x", shape=("n", 16))
    noise = mg.random.normal((8, 16))
    outputs = [mg.dropout(x, 0.4), noise, mg.random.uniform((5,)), mg.random.permutation(9)]
    return mg.function([x], outputs, **options), [numbers(8, 16)]


@program
def linear_algebra(options: Any) -> Made:
    a, b = mg.var("a", shape=("n", "n")), mg.var("b", shape=("n", 3))
    spd = a @ mg.swapaxes(a, 0, 1) + 5 * mg.eye(6)
    outputs = [mg.linalg.solve(spd, b), mg.linalg.cholesky(spd), mg.linalg.inv(spd),
               mg.linalg.det(spd)]
    loss = mg.sum(outputs[0] ** 2)
    return mg.function([a, b], [*outputs, *mg.grad(loss, [a, b])], **options), [
        numbers(6, 6), numbers(6, 3, seed=1)]


@program
def structured_products(options: Any) -> Made:
    a, d = mg.var("a", shape=("n", 12)), mg.var("d", shape=(12,))
    x = mg.var("x", shape=(12,))
    values = [a @ mg.diag(d) @ x, mg.trace(a.T @ a), a.T @ (a @ x), mg.sum(a @ mg.ones((12,)))]
    return mg.function([a, d, x], values, **options), [
        numbers(9, 12), numbers(12), numbers(12, seed=1)]


@program
def contractions(options: Any) -> Made:
    a, b = mg.var("a", shape=("p", 4, 5)), mg.var("b", shape=("p", 5, 6))
    values = [mg.einsum("pij,pjk->ik", a, b), a @ b, mg.tensordot(a, b, ((0, 2), (0, 1)))]
    loss = sum(mg.sum(v * v) for v in values)
    return mg.function([a, b], [*values, *mg.grad(loss, [a, b])], **options), [
        numbers(3, 4, 5), numbers(3, 5, 6, seed=1)]


@program
def fourier(options: Any) -> Made:
    x = mg.var("x", shape=(4, 32))
    power = mg.abs(mg.fft.rfft(x)) ** 2
    value = mg.fft.irfft(mg.fft.rfft(x) * np.exp(-np.arange(17) / 5.0).astype(np.float32))
    return mg.function([x], [power, value, mg.grad(mg.sum(value**2), x)], **options), [
        numbers(4, 32)]


@program
def complex_numbers(options: Any) -> Made:
    x = mg.var("x", shape=("n",), dtype="complex64")
    value = mg.exp(1j * x) * mg.conj(x) + mg.abs(x)
    feeds = [(numbers(9) + 1j * numbers(9, seed=1)).astype(np.complex64)]
    return mg.function([x], [value, mg.grad(mg.sum(mg.abs(value)), x)], **options), feeds


@program
def integers(options: Any) -> Made:
    x, y = (mg.var(n, shape=("n",), dtype="int32") for n in "xy")
    outputs = [x // y, x % y, x & y, x << 3, mg.bincount(mg.abs(y), length=12), mg.cumsum(x)]
    return mg.function([x, y], outputs, **options), [positions(40, 100), positions(40, 9) + 1]


@program
def doubles(options: Any) -> Made:
    x = mg.var("x", shape=("n", 9), dtype="float64")
    value = mg.logsumexp(mg.sin(x) * 3, axis=1) + mg.special.gammaln(mg.abs(x[:, 0]) + 1)
    feeds = [numbers(8, 9).astype(np.float64)]
    return mg.function([x], with_gradient(value, [x]), **options), feeds


@program
def second_derivatives(options: Any) -> Made:
    x = mg.var("x", shape=(5,))
    loss = mg.sum(mg.tanh(x) ** 3 * mg.cos(mg.sum(x)))
    return mg.function([x], [mg.hessian(loss, x), mg.hvp(loss, x, x * x)], **options), [numbers(5)]


@program
def mapped(options: Any) -> Made:
    x, w = mg.var("x", shape=("n", 6)), mg.var("w", shape=(6, 6))
    value = mg.vmap(lambda row: mg.softmax(w @ row) * mg.sum(row))(x)
    return mg.function([x, w], with_gradient(value, [x, w]), **options), [
        numbers(7, 6), numbers(6, 6, seed=1)]


@program
def losses_of_labels(options: Any) -> Made:
    logits = mg.var("logits", shape=("n", 23))
    labels = mg.var("labels", shape=("n",), dtype="int32")
    loss = mg.cross_entropy(logits, labels)
    right = mg.mean(mg.cast(mg.equal(mg.argmax(logits, axis=1), labels), "float32"))
    return mg.function([logits, labels], [loss, right, mg.grad(loss, logits)], **options), [
        numbers(31, 23), positions(31, 23)]


@program
def statistics_of_batches(options: Any) -> Made:
    layer = mg.nn.BatchNorm()
    x = mg.var("x", shape=("n", 6, 5, 5))
    value = mg.relu(layer(x, training=True))
    return mg.function([x], [value, mg.grad(mg.sum(value**3), x)], **options), [numbers(4, 6, 5, 5)]


@program
def windows(options: Any) -> Made:
    x, k = mg.var("x", shape=("n", 3, 11, 13)), weight("k", 4, 3, 3, 5)
    y = mg.conv2d(x, k, stride=2, padding=(1, 2))
    values = [y, mg.avg_pool2d(x, 3, stride=2), mg.max_pool2d(x, 2)]
    loss = sum(mg.sum(mg.tanh(v)) for v in values)
    return mg.function([x], [*values, mg.grad(loss, k), mg.grad(loss, x)], **options), [
        numbers(2, 3, 11, 13)]
