"""Measure: convolutions of usual layers, forward and both derivatives, by each algorithm.

Every row is one layer in float32; a column gives thousand million operations of the direct sum per
second (so that Winograd's algorithm can exceed what the processor does), beside a matrix product of
1024 and, where it is installed, PyTorch with as many threads. Errors are against float64.
``--small`` runs layers that show that it works.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, NamedTuple

import common
import opening

ALGORITHMS = ("direct", "im2col", "winograd-2x2", "winograd-4x4", "fft")


class Layer(NamedTuple):
    """Batch, channels, extent of the square image, results, window, stride, padding, groups."""

    batch: int
    channels: int
    size: int
    results: int
    window: int
    stride: int = 1
    padding: int = 0
    groups: int = 1
    layout: str = "NCHW"


LAYERS = {
    "LeNet 1": Layer(128, 1, 28, 6, 5, 1, 2),
    "LeNet 2": Layer(128, 6, 14, 16, 5),
    "ResNet stem": Layer(8, 3, 224, 64, 7, 2, 3),
    "ResNet 56": Layer(8, 64, 56, 64, 3, 1, 1),
    "ResNet 56 NHWC": Layer(8, 64, 56, 64, 3, 1, 1, 1, "NHWC"),
    "ResNet 56 to 28": Layer(8, 64, 56, 128, 3, 2, 1),
    "ResNet 28": Layer(8, 128, 28, 128, 3, 1, 1),
    "ResNet 14": Layer(8, 256, 14, 256, 3, 1, 1),
    "ResNet 7": Layer(8, 512, 7, 512, 3, 1, 1),
    "pointwise 28": Layer(8, 256, 28, 64, 1),
    "depthwise 56": Layer(8, 64, 56, 64, 3, 1, 1, 64),
    "window 31": Layer(4, 16, 64, 16, 31, 1, 15),
}
SMALL = {
    "5x5": Layer(2, 3, 10, 4, 5, 1, 2),
    "3x3": Layer(2, 8, 12, 8, 3, 1, 1),
    "NHWC": Layer(2, 8, 12, 8, 3, 1, 1, 1, "NHWC"),
}


def main() -> None:
    opening.words(__doc__, "--small")
    cleared = common.clean_environment()
    import numpy as np

    import magmagraph as mg
    from magmagraph.runtime.execute import threads as runtime_threads

    small = "--small" in sys.argv
    rounds = 3 if small else 9
    threads = runtime_threads()
    rng = np.random.default_rng(0)
    A = rng.random((1024, 1024), dtype=np.float32)
    product = common.timed(lambda: np.matmul(A, A))["median"]
    peak = 2 * 1024**3 / product / 1e9
    print(f"matrix product of 1024: {peak:.0f} thousand million operations a second")
    results: dict[str, Any] = {"matmul_1024": peak}
    rows = []
    for name, layer in (SMALL if small else LAYERS).items():
        last = layer.layout == "NHWC"
        image = (layer.channels, layer.size, layer.size)
        ins, k = layer.channels // layer.groups, layer.window
        x = rng.standard_normal((layer.batch, *image), dtype=np.float32)
        w = rng.standard_normal((layer.results, ins, k, k), dtype=np.float32)
        if last:
            x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
            w = np.ascontiguousarray(np.moveaxis(w, (0, 1), (-1, -2)))
        X, W = mg.input("x", x.shape), mg.input("w", w.shape)

        def made(
            algorithm: str, dtype: str = "float32", layer: Layer = layer, X: Any = X, W: Any = W
        ) -> Any:
            return mg.conv2d(
                mg.cast(X, dtype), mg.cast(W, dtype), stride=layer.stride, padding=layer.padding,
                groups=layer.groups, layout=layer.layout, algorithm=algorithm,
            )  # fmt: skip

        node = made("direct")
        g = rng.standard_normal([int(e) for e in node.shape], dtype=np.float32)
        G = mg.input("g", g.shape)
        exact = mg.function([X, W], made("direct", "float64"))(x, w)
        operations = 2 * g.size * ins * k * k
        functions: dict[str, Any] = {}
        errors = {}
        for algorithm in ("auto", *ALGORITHMS):
            if algorithm.startswith("winograd") and (k, layer.stride) != (3, 1):
                continue
            if algorithm == "im2col" and layer.groups > 1:
                continue  # one product a channel: never a choice
            y = made(algorithm)
            to_x, to_w = mg.grad(mg.sum(y * G), [X, W])
            forward = mg.function([X, W], y)
            errors[algorithm] = float(np.max(np.abs(forward(x, w) - exact)))
            functions[f"{algorithm}, forward"] = lambda f=forward, x=x, w=w: f(x, w)
            for part, node in (("input", to_x), ("weights", to_w)):
                f = mg.function([X, W, G], node)
                functions[f"{algorithm}, {part}"] = lambda f=f, x=x, w=w, g=g: f(x, w, g)
        functions |= _peer(layer, x, w, threads)
        times = common.interleaved(functions, rounds=rounds)
        speeds = {key: operations / value["median"] / 1e9 for key, value in times.items()}
        results[name] = {"layer": layer._asdict(), "seconds": times, "speed": speeds,
                         "error": errors}  # fmt: skip
        for algorithm in dict.fromkeys(key.partition(", ")[0] for key in functions):
            cells = [
                f"{speeds[key]:.1f}" if (key := f"{algorithm}, {part}") in speeds else "-"
                for part in ("forward", "input", "weights")
            ]
            error = f"{errors[algorithm]:.1e}" if algorithm in errors else "-"
            rows.append((name, algorithm, *cells, error))
    common.table(rows, ("layer", "algorithm", "forward", "to input", "to weights", "error"))
    if not small:
        common.write("convolution", results, cleared=cleared)


def _peer(layer: Layer, x: Any, w: Any, threads: int) -> dict[str, Any]:
    """Return PyTorch's convolution as a function to time, where it is installed."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    torch.set_num_threads(threads)
    left, right = torch.from_numpy(x), torch.from_numpy(w)
    if layer.layout == "NHWC":  # PyTorch's name for it: the same memory, axes in NCHW's order
        left, right = left.permute(0, 3, 1, 2), right.permute(3, 2, 0, 1)

    def run() -> Any:
        with torch.no_grad():
            return torch.nn.functional.conv2d(
                left, right, stride=layer.stride, padding=layer.padding, groups=layer.groups
            )

    return {"torch, forward": run}


if __name__ == "__main__":
    main()
