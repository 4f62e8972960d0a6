"""Measure: ResNet-50 training on a GPU in bfloat16, batch 256, beside torch's, and checked.

The network is written with channels first or last; the layout pass puts channels last in either
case. Three steps on small images are compared with torch's in float32: errors of bfloat16 steps
may be at most 1.5 times those of torch's own (autocast).
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import common
import numpy as np
import opening
import resnet50

RATE, MOMENTUM, DECAY = 0.02, 0.9, 1e-4
CHECK_RATE = 5e-4  # small: what errors do to later steps must not hide them
CHECK_SCALE = 0.2  # of a block's last normalization, at first
MOST_ERROR = 0.01  # of the changes of weights in float32, where both round in their own order


def torch_parameters(network: resnet50.Network) -> dict[str, Any]:
    """Return the network's variables as torch's, with its order of axes."""
    import torch

    made = {}
    for name, variable in zip(network.names, network.parameters, strict=True):
        value = np.array(variable.value, np.float32)
        if value.ndim == 4 and network.last:
            value = value.transpose(3, 2, 0, 1)
        tensor = torch.tensor(np.ascontiguousarray(value), device="cuda")
        if value.ndim == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        made[name] = tensor.requires_grad_()
    return made


def torch_loss(made: dict[str, Any], images: Any, labels: Any, stages: Any) -> Any:
    """Return the loss of the same network."""
    import torch.nn.functional as F

    def convolution(x: Any, name: str, stride: int = 1) -> Any:
        w = made[f"{name}.w"]
        return F.conv2d(x, w, stride=stride, padding=(w.shape[2] - 1) // 2)

    def normalized(x: Any, name: str) -> Any:
        return F.batch_norm(
            x, None, None, made[f"{name}.scale"], made[f"{name}.offset"], training=True,
            eps=resnet50.EPSILON,
        )

    x = F.relu(normalized(convolution(images, "first", 2), "first"))
    x = F.max_pool2d(x, 3, 2, padding=1)
    for stage, (_, blocks, stride) in enumerate(stages):
        for block in range(blocks):
            name = f"{stage}.{block}"
            y = F.relu(normalized(convolution(x, f"{name}.a"), f"{name}.a"))
            step = stride if block == 0 else 1
            y = F.relu(normalized(convolution(y, f"{name}.b", step), f"{name}.b"))
            y = normalized(convolution(y, f"{name}.c"), f"{name}.c")
            if f"{name}.d.w" in made:
                x = normalized(convolution(x, f"{name}.d", step), f"{name}.d")
            x = F.relu(y + x)
    x = x.mean((2, 3))
    return F.cross_entropy((x @ made["dense.w"]).float() + made["dense.b"], labels)


class Torch:
    """Torch's training step."""

    def __init__(self, network: resnet50.Network, half: bool, rate: float = RATE) -> None:
        import torch

        self.torch, self.stages, self.half = torch, network.stages, half
        self.made = torch_parameters(network)
        self.optimizer = torch.optim.SGD(
            self.made.values(), lr=rate, momentum=MOMENTUM, weight_decay=DECAY, fused=True
        )
        self.loss = torch_loss

    def step(self, images: Any, labels: Any) -> Any:
        """Train once, and return the loss."""
        with self.torch.autocast("cuda", self.torch.bfloat16, enabled=self.half):
            loss = self.loss(self.made, images, labels, self.stages)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def values(self, network: resnet50.Network) -> list[np.ndarray]:
        """Return the weights, with the network's order of axes."""
        found = []
        for tensor in self.made.values():
            value = tensor.detach().cpu().numpy().astype("f8")
            last = value.ndim == 4 and network.last
            found.append(value.transpose(2, 3, 1, 0) if last else value)
        return found


def batch_of(batch: int, size: int, last: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return random images and labels."""
    rng = np.random.default_rng(1)
    images = rng.standard_normal((batch, size, size, 3), np.float32)
    labels = rng.integers(0, 1000, batch).astype(np.int32)
    return (images if last else np.ascontiguousarray(images.transpose(0, 3, 1, 2))), labels


def for_torch(images: np.ndarray, labels: np.ndarray, last: bool) -> tuple[Any, Any]:
    """Return the same, in torch's order of axes and with channels last in memory."""
    import torch

    tensor = torch.tensor(images, device="cuda")
    tensor = tensor.permute(0, 3, 1, 2) if last else tensor
    tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor, torch.tensor(labels, dtype=torch.int64, device="cuda")


def change(found: list[np.ndarray], begun: list[np.ndarray], right: list[np.ndarray]) -> float:
    """Return the relative error of all weights' changes together."""
    over = sum(float(np.sum((f - r) ** 2)) for f, r in zip(found, right, strict=True))
    under = sum(float(np.sum((r - b) ** 2)) for r, b in zip(right, begun, strict=True))
    return float(np.sqrt(over / under))


def check(
    options: dict[str, Any], batch: int = 32, size: int = 128, steps: int = 3
) -> dict[str, Any]:
    """Compare a few steps in float32 and in bfloat16 with torch's in float32.

    At first the last normalization of a block scales by little: with 1, as in training, the network
    is so sensitive that no bfloat16 step of anyone resembles a float32 step.
    """
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    images, labels = batch_of(batch, size, options["channels_last"])
    losses: dict[str, list[float]] = {}
    weights: dict[str, list[np.ndarray]] = {}
    for precision in ("float32", "bfloat16"):
        chosen = {k: v for k, v in options.items() if k not in ("half", "precision")}
        if precision != "float32":
            chosen = options
        step, network = resnet50.training_step(
            batch, size, rate=CHECK_RATE, momentum=MOMENTUM, decay=DECAY, **chosen
        )
        for name, variable in zip(network.names, network.parameters, strict=True):
            if name.endswith(".c.scale"):
                variable.value = np.full(variable.shape, CHECK_SCALE, np.float32)
        begun = [np.array(p.value, "f8") for p in network.parameters]
        peer = Torch(network, precision != "float32", CHECK_RATE)
        given = for_torch(images, labels, network.last)
        losses[f"torch {precision}"] = [peer.step(*given).item() for _ in range(steps)]
        losses[f"magmagraph {precision}"] = [
            float(step(images, labels)[0]) for _ in range(steps)
        ]
        weights[f"torch {precision}"] = peer.values(network)
        weights[f"magmagraph {precision}"] = [np.array(p.value, "f8") for p in network.parameters]
    right = weights.pop("torch float32")
    errors = {name: change(values, begun, right) for name, values in weights.items()}
    found = {"errors": errors, "losses": losses}
    print("check", json.dumps(found, indent=1), flush=True)
    if not errors["magmagraph float32"] <= MOST_ERROR or not (
        errors["magmagraph bfloat16"] <= 1.5 * errors["torch bfloat16"]
    ):
        raise SystemExit(f"the steps are wrong: {found}")
    return found


def timed(run: Any, synchronize: Any, count: int, repeats: int = 5) -> dict[str, float]:
    """Return median, least and largest milliseconds a step."""
    taken = []
    for _ in range(repeats):
        synchronize()
        began = time.perf_counter()
        for _ in range(count):
            run()
        synchronize()
        taken.append((time.perf_counter() - began) / count * 1e3)
    return {"median": statistics.median(taken), "least": min(taken), "largest": max(taken)}


def ours(batch: int, options: dict[str, Any], profiled: bool, count: int = 10) -> dict[str, Any]:
    """Return what a step takes, and the first one."""
    import cupy

    synchronize = cupy.cuda.runtime.deviceSynchronize
    began = time.perf_counter()
    step, network = resnet50.training_step(
        batch, rate=RATE, momentum=MOMENTUM, decay=DECAY, **options
    )
    built = time.perf_counter() - began
    images, labels = batch_of(batch, 224, network.last)
    given = cupy.asarray(images), cupy.asarray(labels)
    synchronize()
    began = time.perf_counter()
    step.compile()
    compiled = time.perf_counter() - began
    step(*given)
    synchronize()
    first = time.perf_counter() - began + built
    for _ in range(3):
        step(*given)
    result = timed(lambda: step(*given), synchronize, count)
    found = {
        "milliseconds": result, "images_a_second": batch / result["median"] * 1e3,
        "graph_seconds": built, "compile_seconds": compiled, "first_step_seconds": first,
        "arena_bytes": step.plan.arena, "steps": len(step.plan.steps),
    }
    print("magmagraph", found, flush=True)
    if profiled:
        found["profile"] = profile(step, given)
    return found


def profile(step: Any, given: Any) -> dict[str, Any]:
    """Return milliseconds and bytes by what steps do, the dearest first."""
    from magmagraph.inspect.profile import profile as measured

    rows: dict[str, list[float]] = {}
    for entry in measured(step, *given, runs=2).steps:
        name = entry.operations[0] if entry.kernel != "fused" else "fused"
        row = rows.setdefault(name, [0, 0.0, 0.0])
        row[0] += 1
        row[1] += entry.nanoseconds / 1e6
        row[2] += entry.bytes / 1e9
    ordered = sorted(rows.items(), key=lambda item: -item[1][1])
    common.table(
        [(name, int(n), f"{ms:.2f}", f"{gb:.1f}", f"{gb / max(ms, 1e-9):.2f}")
         for name, (n, ms, gb) in ordered],
        ("steps", "count", "ms", "GB", "TB/s"),
    )
    return {
        name: {"count": n, "milliseconds": ms, "gigabytes": gb} for name, (n, ms, gb) in ordered
    }


def torchs(batch: int, count: int = 10) -> dict[str, Any]:
    """Return what torch's eager step takes."""
    import torch

    torch.backends.cudnn.benchmark = True
    network = resnet50.Network()
    network.logits(resnet50.images_of(batch, 224, True))
    peer = Torch(network, True)
    given = for_torch(*batch_of(batch, 224, True), True)
    for _ in range(3):
        peer.step(*given)
    result = timed(lambda: peer.step(*given), torch.cuda.synchronize, count)
    found = {"milliseconds": result, "images_a_second": batch / result["median"] * 1e3}
    print("torch eager", found, flush=True)
    return found


def main() -> None:
    parts = ("ours", "check", "torch")  # the first of them begins with nothing compiled
    parser = opening.parser(__doc__, "gpu", "torch")
    parser.add_argument("--batch", type=int, default=256, help="images (256)")
    parser.add_argument("--first", action="store_true", help="channels first")
    parser.add_argument("--cast", action="store_true", help="casts written out, no precision pass")
    parser.add_argument("--profile", action="store_true", help="of our step, printed")
    parser.add_argument(
        "--only", choices=parts, nargs="+", help="some parts; results join what is there"
    )
    given = parser.parse_args()
    opening.require("gpu", *(() if given.only else ("torch",)))
    import cuda_common

    options: dict[str, Any] = {"channels_last": not given.first}
    options |= {"half": "bfloat16"} if given.cast else {"precision": "bfloat16"}
    results: dict[str, Any] = {"batch": given.batch, "options": options}
    path = common.RESULTS / "cuda_resnet50.json"
    if given.only and path.exists():
        known = json.loads(path.read_text())["results"]
        if all(known.get(key) == value for key, value in results.items()):
            results = known
    run = {
        "ours": lambda: ours(given.batch, options, given.profile),
        "check": lambda: check(options),
        "torch": lambda: torchs(given.batch),
    }
    for part in given.only or parts:
        results[part] = run[part]()
    print(common.write("cuda_resnet50", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
