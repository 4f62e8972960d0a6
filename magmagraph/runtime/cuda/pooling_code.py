"""CUDA C of pooling: one thread for each result, or for as many neighbours as 16 bytes hold.

Every record is computed from the side of its result: those that spread numbers over windows ask,
for each element, which windows hold it. So nothing is added by two threads, and the terms of a sum
are taken in the order of the array expression.

All layouts are one: ``[batch, n0, n1, n2, channels]``, where axes that are not there have one
element. Channels that stand before the spatial axes are batch axes, and one channel is left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["FIRST", "Pooling", "source"]

FIRST = 5  # words before the numbers of the axes: three addresses, batch, channels
_AXIS = ("n", "windows", "window", "stride", "dilation", "low")
_TYPES = {"float64": ("double",) * 2, "float32": ("float",) * 2}
_TYPES.update(dict.fromkeys(("float16", "bfloat16"), ("uint16_t", "float")))
_HALVES = {"float16": "half", "bfloat16": "brain"}


class Pooling(NamedTuple):
    """One kernel.

    Attributes
    ----------
    gathers
        What: "largest", "place", "chosen" or "total".
    dtype
        Of the floats.
    width
        Neighbouring channels of a thread.
    spreads
        Whether the result has the extents of the input, not of the windows.
    wide
        Whether positions need 64 bits.
    """

    gathers: str
    dtype: str
    width: int
    spreads: bool
    wide: bool

    @property
    def name(self) -> str:
        """The kernel's name."""
        side = "spread" if self.spreads else "taken"
        size = "wide" if self.wide else "narrow"
        return "_".join(map(str, ("windows", self.gathers, side, self.dtype, self.width, size)))


def numbers(
    extents: tuple[int, ...], windows: tuple[int, ...], attrs: dict[str, tuple[int, ...]]
) -> list[int]:
    """Return the words of the axes, three of them whatever their number."""
    given = zip(
        extents, windows, attrs["window"], attrs["strides"], attrs["dilation"], attrs["low"],
        strict=True,
    )
    rows = [list(row) for row in given]
    return [int(word) for row in [[1, 1, 1, 1, 1, 0]] * (3 - len(rows)) + rows for word in row]


def source(pooling: Pooling) -> str:
    """Return the kernel, to be completed by the prelude."""
    storage, real = _TYPES[pooling.dtype]
    index = "int64_t" if pooling.wide else "int32_t"
    half = _HALVES.get(pooling.dtype)
    load = f"mg_{half}_to_float" if half else ""
    store = f"mg_float_to_{half}" if half else ""
    axes = "\n".join(
        f"    const idx {name}{axis} = (idx)arguments.v[{FIRST + 6 * axis + i}];"
        for axis in range(3)
        for i, name in enumerate(_AXIS)
    )
    operand, made, body = _BODIES[pooling.gathers, pooling.spreads]
    outer = "n" if pooling.spreads else "windows"
    inner = "windows" if pooling.spreads else "n"
    types = {"T": storage, "int": "int32_t"}
    return f"""
typedef {index} idx;
typedef {storage} T;
typedef {real} R;
#define W {pooling.width}
#define LOAD(x) ((R){load}(x))
#define STORE(x) ((T){store}(x))
typedef mg_vector<T, W> TV;
typedef mg_vector<int32_t, W> IV;
extern "C" __global__ void __launch_bounds__(256) {pooling.name}
(const __grid_constant__ mg_arguments arguments)
{{
    typedef mg_vector<{types[operand]}, W> SV;
    typedef mg_vector<{types[made]}, W> OV;
    const SV *first = (const SV *)arguments.v[0];
    const IV *second = (const IV *)arguments.v[1];
    OV *result = (OV *)arguments.v[2];
    const idx batch = (idx)arguments.v[3], channels = (idx)arguments.v[4] / W;
{axes}
    const idx total = batch * {outer}0 * {outer}1 * {outer}2 * channels;
    const idx step = (idx)gridDim.x * blockDim.x;
    for (idx at = (idx)blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {{
        idx rest = at / channels;
        const idx channel = at - rest * channels;
        idx next = rest / {outer}2;
        const idx p2 = rest - next * {outer}2;
        rest = next; next = rest / {outer}1;
        const idx p1 = rest - next * {outer}1;
        rest = next; next = rest / {outer}0;
        const idx p0 = rest - next * {outer}0;
        const idx base = next * {inner}0;
{body}
    }}
}}
"""


def _over_taps(begin: str, each: str, end: str) -> str:
    """Return what passes over the elements of a window, in row-major order."""
    return f"""
        {begin}
        idx tap = 0;
        for (idx k0 = 0; k0 < window0; k0++) {{
            const idx i0 = p0 * stride0 + k0 * dilation0 - low0;
            for (idx k1 = 0; k1 < window1; k1++) {{
                const idx i1 = p1 * stride1 + k1 * dilation1 - low1;
                for (idx k2 = 0; k2 < window2; k2++, tap++) {{
                    const idx i2 = p2 * stride2 + k2 * dilation2 - low2;
                    if (i0 < 0 || i0 >= n0 || i1 < 0 || i1 >= n1 || i2 < 0 || i2 >= n2) continue;
                    const SV x = first[(((base + i0) * n1 + i1) * n2 + i2) * channels + channel];
                    {each}
                }}
            }}
        }}
        {end}"""


def _over_windows(begin: str, each: str, end: str) -> str:
    """Return what passes over the windows that hold an element, by the element of the window."""
    loops = ""
    for axis in range(3):
        pad = "    " * (2 + axis)
        k, q, o = f"k{axis}", f"q{axis}", f"o{axis}"
        reach = f"(window{axis} - 1) * dilation{axis}"
        loops += f"""
{pad}const idx {q} = p{axis} + low{axis}, last{axis} = {q} / stride{axis};
{pad}idx first{axis} = {q} - {reach};
{pad}first{axis} = first{axis} > 0 ? (first{axis} + stride{axis} - 1) / stride{axis} : 0;
{pad}for (idx {o} = last{axis} < windows{axis} ? last{axis} : windows{axis} - 1;
{pad}     {o} >= first{axis}; {o}--) {{
{pad}    idx {k} = {q} - {o} * stride{axis};
{pad}    if (dilation{axis} > 1) {{
{pad}        if ({k} % dilation{axis}) continue;
{pad}        {k} /= dilation{axis};
{pad}    }}"""
    return f"""
        {begin}{loops}
                    const idx tap = (k0 * window1 + k1) * window2 + k2;
                    const idx from =
                        (((base + o0) * windows1 + o1) * windows2 + o2) * channels + channel;
                    const SV x = first[from];
                    {each}
        }} }} }}
        {end}"""


_EACH = "for (int j = 0; j < W; j++)"
_SUM = ("R total[W]; " + _EACH + " total[j] = 0;", _EACH + " total[j] += LOAD(x.x[j]);")
_MADE = "OV made; " + _EACH + " made.x[j] = STORE(total[j]); result[at] = made;"
_BEST = f"""R best[W]; int32_t found[W];
        {_EACH} {{ best[j] = -INFINITY; found[j] = -1; }}"""
_BETTER = f"""{_EACH} {{
                        const R v = LOAD(x.x[j]);
                        if (v > best[j] || found[j] < 0 || (v != v && best[j] == best[j])) {{
                            best[j] = v;
                            found[j] = (int32_t)tap;
                        }}
                    }}"""
_BODIES = {
    ("largest", False): (
        "T", "T",
        _over_taps(_BEST, _BETTER,
                   f"OV made; {_EACH} made.x[j] = STORE(best[j]); result[at] = made;"),
    ),
    ("place", False): (
        "T", "int",
        _over_taps(_BEST, _BETTER, f"OV made; {_EACH} made.x[j] = found[j]; result[at] = made;"),
    ),
    ("chosen", False): (
        "T", "T",
        _over_taps(
            f"const IV place = second[at]; OV made; {_EACH} made.x[j] = STORE((R)0);",
            f"{_EACH} if (place.x[j] == (int32_t)tap) made.x[j] = x.x[j];",
            "result[at] = made;",
        ),
    ),
    ("total", False): ("T", "T", _over_taps(*_SUM, _MADE)),
    ("total", True): ("T", "T", _over_windows(*_SUM, _MADE)),
    ("chosen", True): (
        "T", "T",
        _over_windows(
            _SUM[0],
            f"const IV place = second[from]; "
            f"{_EACH} if (place.x[j] == (int32_t)tap) total[j] += LOAD(x.x[j]);",
            _MADE,
        ),
    ),
}  # fmt: skip


def widest(dtype: np.dtype, channels: int) -> int:
    """Return how many neighbouring channels fill 16 bytes, or 1 where they do not fit."""
    most = 16 // int(dtype.itemsize)
    return most if channels % most == 0 else 1
