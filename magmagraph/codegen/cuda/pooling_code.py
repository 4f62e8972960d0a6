"""Write CUDA C for pooling: one thread for each result, or for a few adjacent windows.

Every record is computed from the side of its result: those that spread numbers over windows ask,
for each element, which windows hold it. So nothing is added by two threads, and the terms of a sum
are taken in the order of the array expression. Where windows neither overlap nor leave anything
out, a thread has all elements of its windows to itself instead, and moves rows of them at once.

All layouts are one: ``[batch, n0, n1, n2, channels]``, where axes that are not there have one
element. Channels that stand before the spatial axes are batch axes, and one channel is left. All
extents but the batch's are constants of the text: positions are taken apart by multiplications.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from ..literals import checked

__all__ = ["WORDS", "Axis", "Pooling", "axes_of", "kernel_for", "source"]

WORDS = 5  # four addresses, and the batch
_MOVED = 16  # bytes of one access
_UNROLLED = 16  # elements of a window whose loops are written out
_TYPES = {"float64": ("double",) * 2, "float32": ("float",) * 2}
_TYPES.update(dict.fromkeys(("float16", "bfloat16"), ("uint16_t", "float")))
_HALVES = {"float16": "half", "bfloat16": "brain"}


class Axis(NamedTuple):
    """A spatial axis: its elements, its windows, and how these slide."""

    n: int
    windows: int
    window: int
    stride: int
    dilation: int
    low: int

    @property
    def parted(self) -> bool:
        """Whether each element belongs to one window."""
        return (
            self.dilation == 1
            and self.low == 0
            and self.window == self.stride
            and self.windows * self.stride == self.n
        )


class Pooling(NamedTuple):
    """One kernel.

    Attributes
    ----------
    gathers
        What: "largest", "place", "both" of these, "chosen" or "total".
    dtype
        Of the floats.
    itemsize
        Its bytes.
    spreads
        Whether the result has the extents of the input, not of the windows.
    wide
        Whether positions need 64 bits.
    channels
        Behind the spatial axes.
    axes
        Three.
    """

    gathers: str
    dtype: str
    itemsize: int
    spreads: bool
    wide: bool
    channels: int
    axes: tuple[Axis, Axis, Axis]

    @property
    def name(self) -> str:
        """The kernel's name."""
        digest = hashlib.sha256(repr(tuple(self)).encode()).hexdigest()[:16]
        return f"windows_{self.gathers}_{digest}"

    @property
    def parted(self) -> bool:
        """Whether a thread has windows to itself."""
        return all(axis.parted for axis in self.axes)

    @property
    def width(self) -> int:
        """Neighbouring channels of a thread."""
        most = _MOVED // self.itemsize
        return most if self.channels % most == 0 else 1

    @property
    def run(self) -> int:
        """Windows of a thread, side by side along the last axis."""
        last = self.axes[2]
        count = 1
        if self.parted and self.channels == 1:
            while (
                last.windows % (2 * count) == 0
                and 2 * count * last.window * self.itemsize <= _MOVED
            ):
                count *= 2
        return count

    @property
    def piece(self) -> int:
        """Elements of a thread's row that are moved at once."""
        last = self.axes[2]
        row = self.run * last.window
        count = 1
        while row % (2 * count) == 0 and 2 * count * self.itemsize <= _MOVED:
            count *= 2
        return count

    def threads(self, batch: int) -> int:
        """Return how many threads there is work for."""
        count = batch * (self.channels // self.width)
        for axis in self.axes:
            count *= axis.windows if self.parted or not self.spreads else axis.n
        return count // self.run


def axes_of(
    extents: tuple[int, ...], windows: tuple[int, ...], attrs: dict[str, tuple[int, ...]]
) -> tuple[Axis, Axis, Axis]:
    """Return three axes, whatever their number."""
    numbers = zip(
        extents, windows, attrs["window"], attrs["strides"], attrs["dilation"], attrs["low"],
        strict=True,
    )
    rows = [Axis(*map(int, row)) for row in numbers]
    first, second, third = [Axis(1, 1, 1, 1, 1, 0)] * (3 - len(rows)) + rows
    return first, second, third


def kernel_for(
    gathers: str, dtype: np.dtype, spreads: bool, batch: int, channels: int,
    axes: tuple[Axis, Axis, Axis], narrow: int,
) -> Pooling:  # fmt: skip
    """Return the kernel; `narrow` is the number of elements up to which positions have 32 bits."""
    size = batch * channels
    for axis in axes:
        size *= max(axis.n, axis.windows)
    return Pooling(gathers, dtype.name, dtype.itemsize, spreads, size > narrow, channels, axes)


def source(pooling: Pooling) -> str:
    """Return the kernel, to be completed by the prelude."""
    checked(pooling)
    storage, real = _TYPES[pooling.dtype]
    half = _HALVES.get(pooling.dtype)
    load = f"mg_{half}_to_float" if half else ""
    store = f"mg_float_to_{half}" if half else ""
    constants = "\n".join(
        f"    constexpr idx {name}{i} = {value};"
        for i, axis in enumerate(pooling.axes)
        for name, value in zip(Axis._fields, axis, strict=True)
    )
    windows = pooling.parted or not pooling.spreads
    outer = "windows" if windows else "n"
    inner = "n" if windows else "windows"
    body = (_parted if pooling.parted else _sliding)(pooling)
    return f"""
typedef {"int64_t" if pooling.wide else "int32_t"} idx;
typedef {storage} T;
typedef {real} R;
#define LOAD(x) ((R){load}(x))
#define STORE(x) ((T){store}(x))
extern "C" __global__ void __launch_bounds__(256) {pooling.name}
(const __grid_constant__ mg_arguments arguments)
{{
    constexpr int W = {pooling.width}, RUN = {pooling.run}, U = W * RUN, PIECE = {pooling.piece};
    constexpr idx channels = {pooling.channels // pooling.width};
    typedef mg_vector<T, U> TV;
    typedef mg_vector<int32_t, U> IV;
    const T *first = (const T *)arguments.v[0];
    const IV *second = (const IV *)arguments.v[1];
    T *result = (T *)arguments.v[2];
    IV *places = (IV *)arguments.v[3];
{constants}
    const idx total = (idx)arguments.v[4] * {outer}0 * {outer}1 * ({outer}2 / RUN) * channels;
    const idx step = (idx)gridDim.x * blockDim.x;
    mg_begin();
    for (idx at = (idx)blockIdx.x * blockDim.x + threadIdx.x; at < total; at += step) {{
        const idx channel = at % channels;
        idx rest = at / channels;
        const idx p2 = rest % ({outer}2 / RUN);
        rest /= {outer}2 / RUN;
        const idx p1 = rest % {outer}1;
        rest /= {outer}1;
        const idx p0 = rest % {outer}0;
        const idx base = rest / {outer}0 * {inner}0;
{body}
    }}
}}
"""


_EACH = "for (int j = 0; j < U; j++)"
_SUM = f"R total[U]; {_EACH} total[j] = 0;"
_SUMMED = f"TV made; {_EACH} made.x[j] = STORE(total[j]); ((TV *)result)[at] = made;"
_BEST = f"R best[U]; int32_t found[U]; {_EACH} {{ best[j] = -INFINITY; found[j] = -1; }}"
_BETTER = """if (v > best[j] || found[j] < 0 || (v != v && best[j] == best[j])) {
                best[j] = v; found[j] = (int32_t)tap;
            }"""
_LARGEST = f"{{ TV made; {_EACH} made.x[j] = STORE(best[j]); ((TV *)result)[at] = made; }}"
_PLACE = f"{{ IV made; {_EACH} made.x[j] = found[j]; PLACES[at] = made; }}"

# What is there before a window's elements are read, what is done with each, and what is written.
_TAKEN = {
    "largest": (_BEST, _BETTER, _LARGEST),
    "place": (_BEST, _BETTER, _PLACE.replace("PLACES", "((IV *)result)")),
    "both": (_BEST, _BETTER, _LARGEST + " " + _PLACE.replace("PLACES", "places")),
    "chosen": (
        f"const IV place = second[at]; {_SUM}",
        "if (place.x[j] == (int32_t)tap) total[j] = v;",
        _SUMMED,
    ),
    "total": (_SUM, "total[j] += v;", _SUMMED),
}
# What an element of a window gets.
_GIVEN = {"chosen": "place.x[j] == (int32_t)tap ? (R)0 + LOAD(x.x[j]) : (R)0",
          "total": "(R)0 + LOAD(x.x[j])"}  # fmt: skip


def _parted(pooling: Pooling) -> str:
    """Return the statements of a thread for all elements of its windows."""
    # Along the last axis a thread has rows of some windows, or one element of many channels.
    row = pooling.run * pooling.axes[2].window if pooling.channels == 1 else pooling.width
    steps = "1" if pooling.channels == 1 else "window2"
    piece = pooling.piece if pooling.channels == 1 else pooling.width
    tap = f"{_AT_ROW} + {'k % window2' if pooling.channels == 1 else 'k2'}"
    owner = "k / (int)window2" if pooling.channels == 1 else "k"
    begin, each, end = _TAKEN.get(pooling.gathers, ("", "", ""))
    if pooling.spreads:
        place = "const IV place = second[at];" if pooling.gathers == "chosen" else ""
        begin, end = f"const TV x = ((const TV *)first)[at]; {place}", ""
        inside = f"""
                for (int k = 0; k < {row}; k++) {{
                    const int j = {owner};
                    const idx tap = {tap};
                    row[k / {piece}].x[k % {piece}] = STORE({_GIVEN[pooling.gathers]});
                }}
                for (int k = 0; k < {row // piece}; k++) to[k] = row[k];"""
        pointer = f"mg_vector<T, {piece}> *to = (mg_vector<T, {piece}> *)(result"
    else:
        inside = f"""
                for (int k = 0; k < {row // piece}; k++) row[k] = to[k];
                for (int k = 0; k < {row}; k++) {{
                    const int j = {owner};
                    const idx tap = {tap};
                    const R v = LOAD(row[k / {piece}].x[k % {piece}]);
                    {each}
                }}"""
        pointer = f"const mg_vector<T, {piece}> *to = (const mg_vector<T, {piece}> *)(first"
    last = "p2 * RUN * window2 + k2" if pooling.channels == 1 else "p2 * window2 + k2"
    unroll = "#pragma unroll"
    return f"""
        {begin}
{unroll}
        for (idx k0 = 0; k0 < window0; k0++)
{unroll}
        for (idx k1 = 0; k1 < window1; k1++)
{unroll}
        for (idx k2 = 0; k2 < {steps}; k2++) {{
                const idx i0 = base + p0 * window0 + k0, i1 = p1 * window1 + k1;
                {pointer}
                    + (((i0 * n1 + i1) * n2 + {last}) * channels + channel) * W);
                mg_vector<T, {piece}> row[{row // piece}];{inside}
        }}
        {end}"""


_AT_ROW = "(k0 * window1 + k1) * window2"


def _sliding(pooling: Pooling) -> str:
    """Return what passes over the elements of a window, or over the windows of an element."""
    if pooling.spreads:
        return _over_windows(pooling)
    begin, each, end = _TAKEN[pooling.gathers]
    count = 1
    for axis in pooling.axes:
        count *= axis.window
    unroll = "#pragma unroll" if count <= _UNROLLED else "#pragma unroll 1"
    return f"""
        {begin}
{unroll}
        for (idx k0 = 0; k0 < window0; k0++) {{
            const idx i0 = p0 * stride0 + k0 * dilation0 - low0;
{unroll}
            for (idx k1 = 0; k1 < window1; k1++) {{
                const idx i1 = p1 * stride1 + k1 * dilation1 - low1;
{unroll}
                for (idx k2 = 0; k2 < window2; k2++) {{
                    const idx tap = {_AT_ROW} + k2;
                    const idx i2 = p2 * stride2 + k2 * dilation2 - low2;
                    if (i0 < 0 || i0 >= n0 || i1 < 0 || i1 >= n1 || i2 < 0 || i2 >= n2) continue;
                    const TV x = ((const TV *)first)[
                        (((base + i0) * n1 + i1) * n2 + i2) * channels + channel];
                    {_EACH} {{
                        const R v = LOAD(x.x[j]);
                        {each}
                    }}
                }}
            }}
        }}
        {end}"""


def _over_windows(pooling: Pooling) -> str:
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
    each = f"{_EACH} total[j] += LOAD(x.x[j]);"
    if pooling.gathers == "chosen":
        each = (
            "const IV place = second[from]; "
            f"{_EACH} if (place.x[j] == (int32_t)tap) total[j] += LOAD(x.x[j]);"
        )
    return f"""
        {_SUM}{loops}
                    const idx tap = {_AT_ROW} + k2;
                    const idx from =
                        (((base + o0) * windows1 + o1) * windows2 + o2) * channels + channel;
                    const TV x = ((const TV *)first)[from];
                    {each}
        }} }} }}
        {_SUMMED}"""
