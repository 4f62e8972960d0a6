"""Scans with the regions around them on an emulated GPU: each bit as of launches of their own.

A process of its own, since devices are asked for once: ``python tests/helpers/emulated_scans.py``
ends with 0 where all is right.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import emulated_cupy

emulated_cupy.install()

import cupy  # noqa: E402
import numpy as np  # noqa: E402

import magmagraph as mg  # noqa: E402
from magmagraph.ir.plan import Role  # noqa: E402

rng = np.random.default_rng(0)


def compared(
    what: str, shapes: dict[str, Any], build: Callable[..., Any], launches: int | None,
    calls: int = 4, **options: Any,
) -> None:
    """Compare a program with and without the pass, launched and captured, and with the CPU's."""
    inputs, feeds = [], []
    for name, shape in shapes.items():
        dtypes = {"h": "bfloat16", "d": "float64", "i": "int8", "q": "complex64"}
        dtype = dtypes.get(name[0], "float32")
        inputs.append(mg.input(name, shape, dtype))
        sizes = tuple(extent if isinstance(extent, int) else 37 for extent in shape)
        values = rng.standard_normal(sizes) * (30 if dtype == "int8" else 1)
        feeds.append(values.astype(inputs[-1].dtype))
    outputs = build(*inputs)
    fused = mg.function(inputs, outputs, device="cuda", **options)
    apart = mg.function(inputs, outputs, device="cuda", skip=("fuse_scans",), **options)
    host = mg.function(inputs, outputs, device="cpu", **options)
    several = isinstance(outputs, (list, tuple))
    for number in range(calls):
        # From the host, and where they lie on the device, each time elsewhere.
        places = [cupy.asarray(array.copy()) for array in feeds] if number % 2 else feeds
        results = [f(*places) for f in (fused, apart)]
        one, other = ([a.get() for a in (r if several else [r])] for r in results)
        expected = host(*feeds)
        for first, second, third in zip(
            one, other, expected if several else [expected], strict=True
        ):
            assert first.tobytes() == second.tobytes(), what
            wide = [np.asarray(a, "f8") for a in (first, third)]
            scale = max(1.0, float(np.abs(wide[1]).max(initial=0)))
            near = 2e-2 if first.dtype.itemsize == 2 else 1e-4
            np.testing.assert_allclose(*wide, near, near * scale, err_msg=what)
    steps = fused._last.plan.steps
    if launches is not None:
        assert len(steps) == launches, (what, str(fused._last.plan))
        assert any(step.role is Role.FUSED_SCAN for step in steps), what


def _turned(u: Any) -> list[Any]:
    z = mg.cumsum(u * (1.0 - 2.0j))
    return [mg.real(z) ** 2 - mg.imag(z), mg.imag(z / (1.0 + mg.absolute(z)))]


def few() -> None:
    """One program of each kind."""
    compared("complex numbers, whose parts are scanned", {"q": (70,)}, _turned, None, calls=2)
    compared("rows", {"x": (2, 5001), "y": (2, 5001)}, lambda x, y: _exclusive(x * y), 1, calls=3)
    compared("16 bits", {"h": (9, 70), "w": (70,)}, lambda h, w: [h * w, _sums(h * w)], 1, calls=3)
    compared(
        "columns", {"x": (40, 37), "w": (37,)},
        lambda x, w: mg.cumsum(x * w, 0, reverse=True) * x + w, 1, calls=3,
    )  # fmt: skip
    compared(
        "a gradient", {"x": (3, 70), "y": (3, 70)},
        lambda x, y: mg.grad(mg.sum(mg.cumsum(mg.sin(x) * y, 1) ** 2), [x, y]), 2, calls=3,
    )  # fmt: skip
    compared(
        "a recurrence", {"x": (3, 70), "y": (3, 70)},
        lambda x, y: mg.linear_recurrence(mg.sigmoid(x), _noise((3, 70)) * y, 1), 1, calls=3,
    )  # fmt: skip


def rows() -> None:
    """Along the last axis: short rows, rows of several tiles, rows that blocks share."""
    for shape in ((5, 64), (3, 9001), (300, 7), (2, 4099, 3), (41,)):
        compared("a product", {"x": shape, "y": shape}, lambda x, y: _sums(x * y), 1)
        compared(
            "behind", {"x": shape, "y": shape},
            lambda x, y: mg.tanh(_sums(x, reverse=True)) * y + x, 1,
        )
    compared(
        "both", {"x": ("n", 129), "w": (129,)},
        lambda x, w: mg.exp(-mg.cumsum(mg.absolute(x * w), 1)) * w, 1,
    )
    compared("a column", {"x": (40, 33), "c": (40, 1)}, lambda x, c: mg.cumsum(x + c, 1) / c, 1)


def columns() -> None:
    """Along other axes."""
    for shape in ((300, 70), (2, 60, 45), (37, 33)):
        axis = len(shape) - 2
        for reverse in (False, True):
            compared(
                "columns", {"x": shape, "w": shape[-1:]},
                lambda x, w, axis=axis, reverse=reverse: (
                    mg.cumsum(x * w, axis, reverse=reverse) * x + w
                ), 1,
            )  # fmt: skip


def vectors() -> None:
    """Operands with fewer axes, whose loops end at the scanned axis or do not."""
    for axis in (0, 1, 2):
        compared(
            "vectors", {"x": (6, 45, 40), "w": (40,), "y": (45, 1), "z": (6, 1, 1)},
            lambda x, w, y, z, axis=axis: mg.cumsum(x * w + y, axis) * z, 1,
        )  # fmt: skip
        compared(
            "matrices", {"x": (6, 45, 40), "w": (45, 40), "y": (6, 45, 1)},
            lambda x, w, y, axis=axis: mg.cumsum(x * w, axis, reverse=True) * y, 1,
        )  # fmt: skip
    for axis, shape in ((3, (2, 3, 4, 200)), (2, (2, 3, 40, 50))):
        compared(
            "axes between", {"x": shape, "w": (shape[2], 1), "y": (3, 1, shape[3])},
            lambda x, w, y, axis=axis: mg.cumsum(x * w + y, axis) * w - y, 1,
        )  # fmt: skip


def others() -> None:
    """Other ways of combining, dtypes, results that are kept, random numbers, gradients."""
    shape = (6, 1500)
    for scan in (mg.cummax, mg.cummin, mg.cumlogsumexp):
        compared(
            scan.__name__, {"x": shape, "y": shape},
            lambda x, y, scan=scan: scan(x * y, 1) - y, 1,
        )  # fmt: skip
    compared("cumprod", {"x": shape}, lambda x: mg.cumprod(1 + 0.01 * x, 1) + x, 1)
    compared("a mask", {"x": shape}, lambda x: mg.cumsum(x > 0, 1), 1)
    compared("counts", {"i": shape}, lambda i: mg.cumsum(i, 1) * 2, 1)
    compared("16 bits", {"h": shape, "hh": shape}, lambda h, k: mg.cumsum(h * k, 1) * k, 1)
    compared("wide", {"d": shape, "x": shape}, lambda d, x: mg.cumsum(d * x, 1), 1)
    compared("exclusive", {"x": shape, "w": (1500,)}, lambda x, w: _exclusive(x * w), 1)
    compared(
        "kept", {"x": shape, "y": shape},
        lambda x, y: _kept(mg.cumsum(x * y, 1), y), 1,
    )  # fmt: skip
    compared(
        "a recurrence", {"x": shape, "y": shape},
        lambda x, y: mg.linear_recurrence(mg.sigmoid(x), x * y, 1) * y, 1,
    )  # fmt: skip
    compared(
        "one factor", {"x": shape, "y": shape},
        lambda x, y: mg.linear_recurrence(mg.tanh(x), y, 1, reverse=True), 1,
    )  # fmt: skip
    compared(
        "a gradient", {"x": shape, "y": shape},
        lambda x, y: mg.grad(mg.sum(mg.cumsum(mg.sin(x) * y, 1) ** 2), [x, y]), 2,
    )  # fmt: skip
    compared("read twice", {"x": shape}, lambda x: _twice(mg.exp(x)), None)
    compared("an output", {"x": shape}, lambda x: [mg.exp(x), mg.cumsum(mg.exp(x), 1)], 1)
    compared("of two scans", {"x": shape}, lambda x: [mg.cumsum(x * x, 1), mg.cummax(x * x, 0)], 2)
    compared(
        "shared lines", {"x": (1, 30011), "y": (1, 30011)},
        lambda x, y: [x * y, mg.cumsum(x * y, 1) - x * y], 1,
    )  # fmt: skip
    compared(
        "several results", {"x": shape, "y": shape},
        lambda x, y: [mg.cumsum(mg.exp(x), 1), mg.cumsum(x * y, 0)], 2,
    )  # fmt: skip
    compared(
        "a gradient of exponents", {"x": shape, "y": shape},
        lambda x, y: mg.grad(mg.sum(mg.cumlogsumexp(x * y, 1)), [x, y]), None,
    )  # fmt: skip
    compared(
        "a gradient of products", {"x": shape},
        lambda x: mg.grad(mg.sum(mg.cumprod(1 + 0.01 * x, 1) ** 2), [x]), None,
    )  # fmt: skip
    compared("draws", {"x": shape}, lambda x: mg.cumsum(_noise(shape) * x, 1) - x, None)
    compared("a view", {"x": (7, 1501)}, lambda x: mg.cumsum(x[:, 1:] * 2, 1), 1)
    compared("turned", {"x": (70, 60)}, lambda x: mg.cumsum(mg.transpose(x) * 2, 1), None)
    compared("nothing", {"x": (0, 5)}, lambda x: mg.cumsum(x * 2, 1), None)
    compared("one element", {"x": (1, 1)}, lambda x: mg.cumsum(x * 2, 1), None)


def _sums(x: Any, reverse: bool = False) -> Any:
    return mg.cumsum(x, min(1, x.ndim - 1), reverse=reverse)


def _noise(shape: Any) -> Any:
    return mg.random.normal(shape, key=mg.random.key(3))


def _exclusive(x: Any) -> Any:
    return mg.cumsum(x, 1) - x


def _kept(sums: Any, y: Any) -> list[Any]:
    return [sums, mg.tanh(sums) * y]


def _twice(x: Any) -> list[Any]:
    return [mg.cumsum(x, 1), mg.sum(x, 0)]


def main() -> int:
    """Run all, or a program of each kind where an argument says "few"."""
    warnings.simplefilter("ignore", mg.errors.FallbackWarning)
    for part in (few,) if "few" in sys.argv else (rows, columns, vectors, others):
        part()
    print("all right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
