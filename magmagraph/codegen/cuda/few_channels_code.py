"""CUDA C of a convolution's weight gradient where the image has few channels.

Such a gradient is a product of a short matrix (the elements of a window) and a narrow one (the
results' channels) over very many pixels: libraries are made for wider ones, and take ten times
what reading the operands does. Here a lane of a warp has a channel of the result's cotangent, and
one sum for each element of the window in registers. A block has one channel of one image at a
time, with its padding, in shared memory; its warps take rows of the result in turn. What blocks
have found is added up in a fixed order by a second kernel.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ..literals import checked

__all__ = ["WORDS", "FewChannels", "source"]

WORDS = 5  # image, cotangent, partial sums, result, and the batch
LANES = 32
WARPS = 7
SHARED = 48 << 10  # bytes that a block may have
GROUP = 4  # pixels of a lane at a time
ENDING = 8  # threads that share the partial results of an element
_CHUNK = 32  # pixels of a row that are turned at once
_STORAGE = {"float32": "float", "float16": "uint16_t", "bfloat16": "uint16_t"}
_HALVES = {"float16": "half", "bfloat16": "brain"}


class FewChannels(NamedTuple):
    """One gradient.

    Attributes
    ----------
    dtype
        Of all operands.
    last
        Whether channels lie behind the pixels.
    channels, results
        Channels of the image and of the cotangent.
    image, made, window, stride, low
        Rows and columns of the image, of the cotangent and of the window; steps and padding.
    """

    dtype: str
    last: bool
    channels: int
    results: int
    image: tuple[int, int]
    made: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]
    low: tuple[int, int]

    @property
    def name(self) -> str:
        """The kernels' common name."""
        digest = hashlib.sha256(repr(tuple(self)).encode()).hexdigest()[:16]
        return f"few_channels_{digest}"

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return self.window[0] * self.window[1]

    @property
    def layers(self) -> int:
        """Blocks for each image: of a channel, and of as many results as a warp has lanes."""
        return self.channels * -(-self.results // LANES)

    @property
    def segment(self) -> int:
        """Elements of an image's row that a group of pixels reads."""
        return _up((GROUP - 1) * self.stride[1] + self.window[1])

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of the part of an image that a block holds."""
        rows = (self.made[0] - 1) * self.stride[0] + self.window[0]
        return rows, (_up(self.made[1]) - GROUP) * self.stride[1] + self.segment

    @property
    def pitch(self) -> int:
        """Floats from one lane's pixels to the next lane's; lanes then read 16 bytes side by side.

        Eight lanes that read at once have no bank in common where a quarter of it is odd.
        """
        quarter = min(_up(self.made[1]), _CHUNK) // GROUP
        return GROUP * (quarter + 1 - quarter % 2)

    @property
    def floats(self) -> int:
        """Floats of shared memory."""
        turned = 0 if self.last else WARPS * LANES * self.pitch
        return max(self.plane[0] * self.plane[1] + turned, WARPS * LANES * self.taps)

    @property
    def fits(self) -> bool:
        """Whether a block has room for it."""
        return 4 * self.floats <= SHARED

    def partial(self, blocks: int) -> int:
        """Return the bytes of the partial sums of so many blocks."""
        return 4 * blocks * self.layers * self.taps * LANES


def _up(count: int) -> int:
    return -(-count // GROUP) * GROUP


def source(kernel: FewChannels) -> str:
    """Return both kernels, to be completed by the prelude."""
    checked(kernel)
    half = _HALVES.get(kernel.dtype)
    rows, columns = kernel.plane
    numbers = {
        "C": kernel.channels, "K": kernel.results, "H": kernel.image[0], "W": kernel.image[1],
        "OH": kernel.made[0], "OW": kernel.made[1], "R": kernel.window[0], "S": kernel.window[1],
        "SY": kernel.stride[0], "SX": kernel.stride[1], "PY": kernel.low[0], "PX": kernel.low[1],
        "ROWS": rows, "COLUMNS": columns, "SEGMENT": kernel.segment, "PITCH": kernel.pitch,
        "WARPS": WARPS, "TAPS": kernel.taps, "LAYERS": kernel.layers, "FLOATS": kernel.floats,
        "CHUNK": _CHUNK, "GROUP": GROUP, "ENDING": ENDING,
    }  # fmt: skip
    defined = "\n".join(f"#define {name} {value}" for name, value in numbers.items())
    image, weights = (
        ("((n * H + y) * W + x) * C + c", "((k * R + tap / S) * S + tap % S) * C + c")
        if kernel.last
        else ("((n * C + c) * H + y) * W + x", "(k * C + c) * TAPS + tap")
    )
    text = _TEXT.replace("WEIGHTS", weights).replace("IMAGE", image)
    text = text.replace("COTANGENT", _LAST if kernel.last else _FIRST)
    return f"""
{defined}
typedef {_STORAGE[kernel.dtype]} T;
#define LOAD(x) ((float){f"mg_{half}_to_float" if half else ""}(x))
#define STORE(x) ((T){f"mg_float_to_{half}" if half else ""}(x))
{text.replace("NAME", kernel.name)}
"""


# Rows of the cotangent, channel by channel: lanes read neighbours, and turn them.
_FIRST = """
            const int count = OW - from < CHUNK ? OW - from : CHUNK;
            const T *row = above + (((int64_t)n * K + k0) * OH + oy) * OW + from;
            __syncwarp();
#pragma unroll 16
            for (int j = 0; j < 32; j++) {
                float value = 0;
                if (lane < count && k0 + j < K) value = LOAD(row[(int64_t)j * OH * OW + lane]);
                if (lane < PITCH) turned[j * PITCH + lane] = value;
            }
            __syncwarp();
            for (int at = 0; at < count; at += GROUP) {
                const float4 four = *(const float4 *)(turned + lane * PITCH + at);
                const float g[GROUP] = {four.x, four.y, four.z, four.w};"""
# Pixel by pixel: lanes are neighbours already.
_LAST = """
            const int count = OW - from < CHUNK ? OW - from : CHUNK;
            const T *row = above + (((int64_t)n * OH + oy) * OW + from) * K + k0 + lane;
            for (int at = 0; at < count; at += GROUP) {
                float g[GROUP];
#pragma unroll
                for (int i = 0; i < GROUP; i++)
                    g[i] = at + i < count && k0 + lane < K
                        ? LOAD(row[(int64_t)(at + i) * K]) : 0.0f;"""
_TEXT = """
extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ __align__(16) float memory[FLOATS];
    const T *__restrict__ images = (const T *)arguments.v[0];
    const T *__restrict__ above = (const T *)arguments.v[1];
    float *partial = (float *)arguments.v[2];
    const int batch = (int)arguments.v[4];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int c = blockIdx.y % C, k0 = blockIdx.y / C * 32;
    float *turned = memory + ROWS * COLUMNS + warp * 32 * PITCH;
    float sums[TAPS];
#pragma unroll
    for (int i = 0; i < TAPS; i++) sums[i] = 0;
    mg_begin();
    for (int64_t n = blockIdx.x; n < batch; n += gridDim.x) {
        __syncthreads();
        for (int i = threadIdx.x; i < ROWS * COLUMNS; i += WARPS * 32) {
            const int y = i / COLUMNS - PY, x = i % COLUMNS - PX;
            const bool inside = y >= 0 && y < H && x >= 0 && x < W;
            memory[i] = inside ? LOAD(images[IMAGE]) : 0.0f;
        }
        __syncthreads();
        for (int oy = warp; oy < OH; oy += WARPS)
        for (int from = 0; from < OW; from += CHUNK) {COTANGENT
                const float *corner = memory + oy * SY * COLUMNS + (from + at) * SX;
#pragma unroll
                for (int r = 0; r < R; r++) {
                    float x[SEGMENT];
#pragma unroll
                    for (int i = 0; i < SEGMENT; i += 4)
                        *(float4 *)(x + i) = *(const float4 *)(corner + r * COLUMNS + i);
#pragma unroll
                    for (int s = 0; s < S; s++)
#pragma unroll
                        for (int i = 0; i < GROUP; i++) sums[r * S + s] += g[i] * x[i * SX + s];
                }
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TAPS; i++) memory[(warp * TAPS + i) * 32 + lane] = sums[i];
    __syncthreads();
    float *found = partial + ((int64_t)blockIdx.x * LAYERS + blockIdx.y) * (TAPS * 32);
    for (int i = threadIdx.x; i < TAPS * 32; i += WARPS * 32) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += memory[w * TAPS * 32 + i];
        found[i] = sum;
    }
}
extern "C" __global__ void __launch_bounds__(32 * ENDING) NAME_end
(const __grid_constant__ mg_arguments arguments)
{
    __shared__ double shared[ENDING][32];
    const float *partial = (const float *)arguments.v[2];
    T *result = (T *)arguments.v[3];
    const int blocks = (int)arguments.v[4];
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
    const int tap = blockIdx.x % TAPS, layer = blockIdx.x / TAPS;
    const int c = layer % C, k = layer / C * 32 + lane;
    mg_begin();
    double sum = 0;
#pragma unroll 8
    for (int b = part; b < blocks; b += ENDING)
        sum += partial[((int64_t)b * LAYERS + layer) * (TAPS * 32) + tap * 32 + lane];
    shared[part][lane] = sum;
    __syncthreads();
    if (part == 0 && k < K) {
        for (int other = 1; other < ENDING; other++) sum += shared[other][lane];
        result[WEIGHTS] = STORE((float)sum);
    }
}
"""
