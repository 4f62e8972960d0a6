"""Measure: training steps of a small convolutional network, and attention, beside torch and JAX.

28x28 images, two convolutions with pooling, two dense layers: a step of some twenty small kernels.
Attention is forward and backward of bfloat16 operands, with sums in any order, as torch has it, and
with the same bits in each run. Both are compared before they are timed.
The network is trained on MNIST (found as `mg.data.mnist` finds it) in four precisions, from the
same weights. The names of parts (attention, training, steps) run those alone; results join what is
there.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from typing import Any

import common
import numpy as np
import opening

RATE = 0.05
CHECKED = 5
MIDDLE = 128
EPOCHS, BATCH, SEEDS = 6, 256, 3
TRAINING_RATE, MOMENTUM = 0.02, 0.9


def weights(seed: int = 0) -> list[np.ndarray]:
    """Return weights of two convolutions and two dense layers, with their biases."""
    rng = np.random.default_rng(seed)
    shapes = [(32, 1, 5, 5), (64, 32, 5, 5), (64 * 49, MIDDLE), (MIDDLE, 10)]
    made = []
    for shape in shapes:
        fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        made.append((rng.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32))
        made.append(np.zeros(shape[0] if len(shape) == 4 else shape[1], np.float32))
    return made


def batch_of(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random images and labels."""
    rng = np.random.default_rng(1)
    images = rng.standard_normal((size, 1, 28, 28), np.float32)
    return images, rng.integers(0, 10, size).astype(np.int32)


def logits(images: Any, p: list[Any]) -> Any:
    """Return the network's logits."""
    import magmagraph as mg

    x = mg.max_pool2d(mg.relu(mg.conv2d(images, p[0], padding=2, bias=p[1])), 2)
    x = mg.max_pool2d(mg.relu(mg.conv2d(x, p[2], padding=2, bias=p[3])), 2)
    x = mg.relu(mg.reshape(x, (x.shape[0], 64 * 49)) @ p[4] + p[5])
    return x @ p[6] + p[7]


def training() -> dict[str, Any]:
    """Return microseconds a step and accuracies after some epochs, by precision."""
    import cuda_common
    import cupy

    import magmagraph as mg

    digits = mg.data.mnist(timeout=0, substitute=False)
    images, tests = (
        cupy.asarray(np.asarray(x, "f4").reshape(-1, 1, 28, 28))
        for x in (digits.x_train, digits.x_test)
    )
    labels = cupy.asarray(digits.y_train.astype(np.int32))
    x = mg.var("images", shape=(BATCH, 1, 28, 28))
    y = mg.var("labels", shape=(BATCH,), dtype="int32")
    shown = mg.var("tests", shape=tests.shape)
    results: dict[str, Any] = {}
    for precision in ("float32", "tf32", "float16", "bfloat16"):
        p = [mg.var(f"p{i}", init=value) for i, value in enumerate(weights())]
        optimizer = mg.optimizer.SGD(TRAINING_RATE, momentum=MOMENTUM)
        loss = mg.cross_entropy(logits(x, p), y)
        step = optimizer.step(
            loss, p, inputs=[x, y], outputs=[loss], device="cuda", precision=precision
        )
        predict = mg.function([shown], mg.argmax(logits(shown, p), axis=-1), device="cuda")
        held = [v for v, _ in step.source_graph.updates]
        begun = {v: np.array(v.value) for v in held}
        accuracies = []
        for seed in range(SEEDS):
            for variable in held:
                variable.value = begun[variable]
            for variable, value in zip(p, weights(seed), strict=True):
                variable.value = value
            order = np.random.default_rng(seed)
            for _ in range(EPOCHS):
                mixed = cupy.asarray(order.permutation(len(labels)))
                for at in range(0, len(labels) - BATCH + 1, BATCH):
                    chosen = mixed[at : at + BATCH]
                    step(images[chosen], labels[chosen])
            right = cupy.asarray(predict(tests)).get() == digits.y_test
            accuracies.append(float(np.mean(right)) * 100)
        bound = step._last

        def replays(bound: Any = bound) -> None:
            for _ in range(100):
                bound.launch()

        results[precision] = {
            "microseconds": cuda_common.microseconds(bound.stream, replays, 100),
            "accuracies": accuracies,
            "mean accuracy": statistics.mean(accuracies),
            "skipped": 0 if step.loss_scale is None else int(step.loss_scale.skipped.value),
        }
    best = max(found["mean accuracy"] for found in results.values())
    if any(found["mean accuracy"] < best - 0.2 for found in results.values()):
        print("accuracies differ by more than 0.2 points", results, flush=True)
    return results


def ours(size: int, precision: str) -> tuple[dict[str, float], list[np.ndarray]]:
    import cuda_common
    import cupy

    import magmagraph as mg

    images = mg.var("images", shape=(size, 1, 28, 28))
    labels = mg.var("labels", shape=(size,), dtype="int32")
    p = [mg.var(f"p{i}", init=value) for i, value in enumerate(weights())]
    loss = mg.cross_entropy(logits(images, p), labels)
    step = mg.optimizer.SGD(RATE).step(
        loss, p, inputs=[images, labels], outputs=[loss], device="cuda", precision=precision
    )
    given = tuple(map(cupy.asarray, batch_of(size)))
    for _ in range(CHECKED):
        step(*given)
    found = [np.array(v.value, "f8") for v in p]
    bound = step._last

    def replays() -> None:
        for _ in range(100):
            bound.launch()

    def calls() -> None:
        for _ in range(100):
            step(*given)
        cupy.cuda.Device().synchronize()

    calls()
    return {
        "replay": cuda_common.microseconds(bound.stream, replays, 100),
        "call": common.timed(calls, repeats=5, seconds=0.1)["median"] / 100 * 1e6,
    }, found


def torchs(
    size: int, tf32: bool, wide: bool = False
) -> tuple[dict[str, float], list[np.ndarray]]:
    import cuda_common
    import torch
    import torch.nn.functional as F

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    kind = torch.float64 if wide else torch.float32
    p = [torch.tensor(w, device="cuda", dtype=kind, requires_grad=True) for w in weights()]
    images, labels = batch_of(size)
    data = torch.tensor(images, device="cuda", dtype=kind)
    target = torch.tensor(labels, dtype=torch.int64, device="cuda")

    def step() -> None:
        x = F.max_pool2d(F.relu(F.conv2d(data, p[0], p[1], padding=2)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, p[2], p[3], padding=2)), 2)
        x = F.relu(torch.addmm(p[5], x.reshape(size, -1), p[4]))
        loss = F.cross_entropy(torch.addmm(p[7], x, p[6]), target)
        gradients = torch.autograd.grad(loss, p)
        with torch.no_grad():
            torch._foreach_add_(p, gradients, alpha=-RATE)

    for _ in range(CHECKED):
        step()
    found = [w.detach().cpu().numpy().astype("f8") for w in p]
    if wide:
        return {}, found

    def calls() -> None:
        for _ in range(50):
            step()
        torch.cuda.synchronize()

    calls()
    return {
        "eager": common.timed(calls, repeats=5, seconds=0.1)["median"] / 50 * 1e6,
        "graph": cuda_common.torch_in_graph(torch, step, 1),
    }, found


def jaxs(size: int, tf32: bool) -> tuple[dict[str, float], list[np.ndarray]]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if tf32 else "highest")

    def pooled(x: Any) -> Any:
        return jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        )

    def loss(p: list[Any], data: Any, target: Any) -> Any:
        x = data
        for w, b in ((p[0], p[1]), (p[2], p[3])):
            x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")
            x = pooled(jax.nn.relu(x + b[:, None, None]))
        x = jax.nn.relu(x.reshape(size, -1) @ p[4] + p[5])
        x = x @ p[6] + p[7]
        chosen = jnp.take_along_axis(x, target[:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(x, axis=1) - chosen)

    def step(p: list[Any], data: Any, target: Any) -> list[Any]:
        return [w - RATE * g for w, g in zip(p, jax.grad(loss)(p, data, target), strict=True)]

    once = jax.jit(step, donate_argnums=0)
    state = [jnp.asarray(w) for w in weights()]
    given = tuple(map(jnp.asarray, batch_of(size)))
    for _ in range(CHECKED):
        state = once(state, *given)
    found = [np.asarray(w, "f8") for w in state]

    def calls() -> None:
        nonlocal state
        for _ in range(100):
            state = once(state, *given)
        jax.block_until_ready(state)

    calls()
    return {"jit": common.timed(calls, repeats=5, seconds=0.1)["median"] / 100 * 1e6}, found


def difference(found: list[np.ndarray], right: list[np.ndarray]) -> float:
    """Return the largest difference of the weights' changes, relative to the changes."""
    begun = [w.astype("f8") for w in weights()]
    return max(
        float(np.linalg.norm(f - r) / np.linalg.norm(r - b))
        for f, r, b in zip(found, right, begun, strict=True)
    )


def attention(shape: tuple[int, int, int, int], causal: bool) -> dict[str, float]:
    """Return microseconds of attention with its gradient, ours and torch's, and the errors."""
    import cuda_common
    import cupy
    import torch

    import magmagraph as mg

    names = ("q", "k", "v")
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape, np.float32) for _ in range(4)]
    tensors = [torch.tensor(a, device="cuda", dtype=torch.bfloat16) for a in arrays]
    nodes = [mg.var(name, shape=shape, dtype="bfloat16") for name in (*names, "g")]
    out = mg.scaled_dot_product_attention(*nodes[:3], causal=causal)
    wide = mg.cast(out, "float32") * mg.cast(nodes[3], "float32")
    outputs = [out, *mg.grad(mg.sum(wide), nodes[:3])]
    given = [cupy.from_dlpack(t) for t in tensors]
    functions, results = {}, {}
    for name, same in (("magmagraph", False), ("deterministic", True)):
        f = functions[name] = mg.function(nodes, outputs, device="cuda", deterministic=same)
        for _ in range(3):
            results[name] = f(*given)
        assert all(step.kernel != "array" for step in f.plan.steps), "no kernel of attention"

    leaves = [t.requires_grad_() for t in tensors[:3]]
    attend = torch.nn.functional.scaled_dot_product_attention

    def both() -> Any:
        result = attend(*leaves, is_causal=causal)
        return (result, *torch.autograd.grad(result, leaves, tensors[3]))

    exact = [t.detach().double().requires_grad_() for t in tensors[:3]]
    scores = exact[0] @ exact[1].transpose(-1, -2) / shape[-1] ** 0.5
    if causal:
        keep = torch.ones(shape[-2], shape[-2], dtype=torch.bool, device="cuda").tril()
        scores = scores.masked_fill(~keep, -torch.inf)
    result = scores.softmax(-1) @ exact[2]
    right = (result, *torch.autograd.grad(result, exact, tensors[3].double()))

    def error(found: Any) -> float:
        return max(
            float((torch.from_dlpack(a).double() - r).norm() / r.norm())
            for a, r in zip(found, right, strict=True)
        )

    with torch.no_grad():
        errors = {name: error(made) for name, made in results.items()}
        theirs = error([t.detach() for t in both_of(both)])
    if not max(errors.values()) <= 2 * theirs:
        raise SystemExit(f"attention is wrong: {errors}, torch's: {theirs}")
    taken = {}
    for name, f in functions.items():
        bound = f._last
        taken[name] = cuda_common.microseconds(
            bound.stream, lambda b=bound: [b.launch() for _ in range(10)], 10
        )
    return {
        **taken,
        "torch": cuda_common.torch_in_graph(torch, both, 5),
        "error": errors["magmagraph"],
        "torch_error": theirs,
    }


def both_of(run: Any) -> Any:
    """Call torch with gradients on."""
    import torch

    with torch.enable_grad():
        return run()


def attentions() -> dict[str, Any]:
    """Return what `attention` does for two shapes."""
    results: dict[str, Any] = {}
    for shape, causal in (((8, 16, 2048, 64), True), ((2, 16, 4096, 128), False)):
        results[f"{shape}{' causal' if causal else ''}"] = attention(shape, causal)
    rows = [(name, *[f"{found[key]:.3g}" for key in found]) for name, found in results.items()]
    head = ("bfloat16, us", "magmagraph", "deterministic", "torch", "error", "torch's error")
    common.table(rows, head)
    return results


def steps() -> dict[str, Any]:
    """Return what a step takes, ours and others'."""
    results: dict[str, Any] = {}
    rows = []
    for size in (64, 256):
        _, right = torchs(size, False, wide=True)
        for precision in ("float32", "tf32"):
            tf32 = precision == "tf32"
            mine, got = ours(size, precision)
            torch, others = torchs(size, tf32)
            jax, also = jaxs(size, tf32)
            errors = [difference(each, right) for each in (got, others, also)]
            if not errors[0] <= max(2 * max(errors[1:]), 1e-3):
                raise SystemExit(f"weights differ from float64's: {errors}")
            results[f"batch {size}, {precision}"] = {
                "magmagraph": mine, "torch": torch, "jax": jax,
                "errors": dict(zip(("magmagraph", "torch", "jax"), errors, strict=True)),
            }
            rows.append((
                f"batch {size}, {precision}", f"{mine['replay']:.1f}", f"{mine['call']:.1f}",
                f"{torch['eager']:.0f}", f"{torch['graph']:.1f}", f"{jax['jit']:.1f}",
                f"{errors[0]:.1e}",
            ))
    head = ("us", "replay", "call", "torch eager", "torch graph", "JAX jit", "error")
    common.table(rows, head)
    return results


def main() -> None:
    opening.words(__doc__, "attention", "training", "steps", needs=("gpu",), whole=("torch", "jax"))
    import cuda_common

    parts = {"attention": attentions, "training": training, "steps": steps}
    path = common.RESULTS / "cuda_cnn.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    for name in sys.argv[1:] or parts:
        results[name] = parts[name]()
        if name == "training":
            common.table(
                [(precision, f"{found['microseconds']:.1f}", f"{found['mean accuracy']:.2f} %")
                 for precision, found in results[name].items()],
                (f"batch {BATCH}", "us", "right"),
            )
    print(common.write("cuda_cnn", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
