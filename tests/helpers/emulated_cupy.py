"""A stand-in for CuPy whose device is the CPU: whole functions run there by emulated kernels.

`install` puts modules of the names that the runtime imports into `sys.modules`. Memory is NumPy's,
"cubins" are the sources, which `cuda_emulator` runs, and what is captured is run when its graph is
launched. Everything happens at once, in the order of the calls; but streams and events know what
happens before what, and launches on several streams have to wait for those whose memory they touch.
Generated products are emulated, too; what libraries compute (cuBLASLt, cuDNN, cuFFT) is an array
expression of NumPy.

It must be installed before the runtime asks for devices, so programs that use it are processes of
their own: ``python tests/helpers/emulated_program.py``.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import itertools
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda_emulator import emulated

ALIGNMENT = 512  # of blocks of memory, as CuPy's
count: Counter[str] = Counter()  # launches, copies, captures and graphs that were launched
_recording: list[list[Callable[[], None]]] = []
_kernels: dict[int, Callable[..., None]] = {}
_numbers = itertools.count(1)


_streams: dict[int, Stream] = {}
_operations = itertools.count()
_ordered: list[tuple[int, int]] = []  # of each operation: its bit, and those of all before it


def _now(call: Callable[[], None], stream: Any = None) -> None:
    """Make a call, or record it for the graph that is captured."""
    if stream in _streams:
        mine = 1 << next(_operations)
        _ordered.append((mine, _streams[stream].done))
        _streams[stream].done |= mine
    if _recording:
        _recording[-1].append(call)
    else:
        call()


class Pointer:
    """A place in memory."""

    def __init__(self, ptr: int, owner: Any = None, device_id: int = 0) -> None:
        self.ptr, self.owner, self.device_id = ptr, owner, device_id


class ndarray:  # noqa: N801
    """An array on the emulated device."""

    __array_priority__ = 100

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None) -> None:
        if isinstance(shape, np.ndarray):
            self.host = shape
        else:
            sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
            self.host = _block(sizes, np.dtype(dtype), None if memptr is None else memptr.ptr)

    @property
    def data(self) -> Pointer:
        return Pointer(self.host.ctypes.data, self)

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.host.__array_interface__

    def get(self, *args: Any, **named: Any) -> np.ndarray:
        return self.host.copy()

    def set(self, value: Any, stream: Any = None) -> None:
        self.host[...] = value

    def __getattr__(self, name: str) -> Any:
        if name in ("host", "__array__", "__array_interface__", "__array_struct__"):
            raise AttributeError(name)
        attribute = getattr(self.host, name)
        return _wrapped(attribute) if callable(attribute) else attribute

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self.host[_unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host[_unwrap(key)] = _unwrap(value)

    def __len__(self) -> int:
        return len(self.host)

    def __bool__(self) -> bool:
        return bool(self.host)

    def __int__(self) -> int:
        return int(self.host)


def _operator(name: str) -> Callable[..., Any]:
    return lambda self, *others: _wrap(getattr(self.host, name)(*map(_unwrap, others)))


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul", "and", "or", "xor", "mod"):
    for _full in (f"__{_name}__", f"__r{_name}__"):
        setattr(ndarray, _full, _operator(_full))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "invert", "abs"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


def _block(shape: tuple[int, ...], dtype: np.dtype, address: int | None) -> np.ndarray:
    """Return an array in new aligned memory, which holds 0xA5, or at an address."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if address is None:
        whole = np.full(size + ALIGNMENT, 0xA5, np.uint8)
        start = -whole.ctypes.data % ALIGNMENT
        raw = whole[start : start + size]
    else:
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    return raw.view(dtype).reshape(shape) if size else np.empty(shape, dtype)


def _wrap(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value))
    return type(value)(map(_wrap, value)) if type(value) in (tuple, list) else value


def _unwrap(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value.host
    return type(value)(map(_unwrap, value)) if type(value) in (tuple, list) else value


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function, updated=())
    def call(*args: Any, **options: Any) -> Any:
        keywords = {name: _unwrap(value) for name, value in options.items() if name != "stream"}
        return _wrap(function(*map(_unwrap, args), **keywords))

    return call


class Stream:
    """A stream, of which only the number matters."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.ptr = next(_numbers)
        self.done = 0  # operations that have ended before what comes next on this stream
        _streams[self.ptr] = self

    def begin_capture(self) -> None:
        count["captures"] += 1
        _recording.append([])

    def end_capture(self) -> Graph:
        return Graph(_recording.pop())

    def record(self, event: Any) -> None:
        event.record(self)

    def wait_event(self, event: Any) -> None:
        self.done |= event.done

    def synchronize(self) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass


class Graph:
    """What was captured."""

    def __init__(self, calls: list[Callable[[], None]]) -> None:
        self.calls = calls

    def launch(self, stream: Any = None) -> None:
        count["graphs"] += 1
        for call in self.calls:
            call()


class Event:
    """An event, which has happened at once."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.done = 0

    def record(self, stream: Any = None) -> None:
        self.done = 0 if stream is None else stream.done

    def synchronize(self) -> None:
        pass


class Module:
    """The kernels of a source."""

    def load(self, cubin: bytes) -> None:
        self.source = bytes(cubin).decode()

    def get_function(self, name: str) -> Any:
        number = next(_numbers)
        _kernels[number] = functools.partial(_launch_one, self.source, name)
        return types.SimpleNamespace(ptr=number)


def _launch_one(source: str, name: str, grid: Any, block: Any, shared: int, words: int) -> None:
    kernel = getattr(emulated(source)._library, f"emu_launch_{name}")
    kernel.restype = ctypes.c_char_p
    sizes = [np.array(size, np.uint32) for size in (grid, block)]
    parameters = np.array([words], np.uint64)
    error = kernel(
        ctypes.c_void_p(parameters.ctypes.data), *(ctypes.c_void_p(s.ctypes.data) for s in sizes),
        ctypes.c_uint(shared), ctypes.c_int(0),
    )  # fmt: skip
    if error:
        raise RuntimeError(f"{name}: {error.decode()}")


def _launch_kernel(
    function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
    parameters: int, extra: int,
) -> None:  # fmt: skip
    address = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_uint64))[0]
    if _recording:  # a graph keeps the arguments that a launch had
        values = np.frombuffer(ctypes.string_at(address, _readable(address)), np.uint8).copy()
        address = values.ctypes.data
    else:
        values = None

    def call(values: Any = values) -> None:
        count["launches"] += 1
        _kernels[function]((gx, gy, gz), (bx, by, bz), shared, address)

    _now(call, stream)


ARGUMENTS: dict[int, int] = {}  # bytes of the arguments at an address


def _readable(address: int) -> int:
    return ARGUMENTS[address]


def _copy(to: int, start: int, size: int, *rest: Any) -> None:
    def call() -> None:
        count["copies"] += 1
        ctypes.memmove(to, start, size)

    _now(call, rest[-1] if rest else None)


def _copy_2d(to: int, to_pitch: int, start: int, pitch: int, width: int, rows: int, *rest: Any) -> None:  # noqa: E501
    def call() -> None:
        for row in range(rows):
            ctypes.memmove(to + row * to_pitch, start + row * pitch, width)

    _now(call, rest[-1])


def _fill(to: int, value: int, size: int, *rest: Any) -> None:
    _now(lambda: ctypes.memset(to, value, size) and None, rest[-1])


class _Nothing:
    """A context that does nothing."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self.compute_capability = "90"

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass


def _module(name: str, **contents: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []  # type: ignore[attr-defined]
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


def install() -> Counter[str]:
    """Put the stand-in where CuPy would be, and return what counts its work."""
    from magmagraph.runtime.cuda.launching import calls

    class CUDARuntimeError(RuntimeError):
        pass

    null = Stream()
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, memcpyAsync=_copy, memcpy=_copy, memcpy2DAsync=_copy_2d,
        memsetAsync=_fill, memGetInfo=lambda: (8 << 30, 16 << 30),
        deviceSynchronize=lambda: None, CUDARuntimeError=CUDARuntimeError, getDevice=lambda: 0,
        getDeviceProperties=lambda number: {
            "name": b"an emulated device", "multiProcessorCount": 4, "l2CacheSize": 1 << 20,
        },
    )  # fmt: skip
    driver = _module(
        "cupy_backends.cuda.api.driver", launchKernel=_launch_kernel,
        check_status=lambda code: None, CUDADriverError=CUDARuntimeError,
        funcSetAttribute=lambda *args: None,
    )  # fmt: skip
    nvrtc = _module(
        "cupy_backends.cuda.libs.nvrtc", NVRTCError=CUDARuntimeError, getVersion=lambda: (0, 0),
        createProgram=lambda source, *rest: source, compileProgram=lambda *args: None,
        getCUBIN=lambda source: source.encode(), destroyProgram=lambda program: None,
        getProgramLog=lambda program: "",
    )  # fmt: skip
    _module("cupy_backends")
    _module("cupy_backends.cuda")
    _module("cupy_backends.cuda.api", driver=driver)
    _module("cupy_backends.cuda.libs", nvrtc=nvrtc)
    cuda = _module(
        "cupy.cuda", runtime=runtime, driver=driver, Stream=Stream, Event=Event, Device=_Nothing,
        get_current_stream=lambda *args: null, MemoryPointer=lambda memory, offset: memory,
        UnownedMemory=lambda address, size, owner, *rest: Pointer(address),
        function=types.SimpleNamespace(Module=Module), get_elapsed_time=lambda *args: 0.001,
        memory=types.SimpleNamespace(OutOfMemoryError=MemoryError),
        compiler=types.SimpleNamespace(CompileException=CUDARuntimeError),
        alloc_pinned_memory=lambda size: np.zeros(max(1, size), np.uint8),
    )  # fmt: skip
    pool = types.SimpleNamespace(free_bytes=lambda: 0, used_bytes=lambda: 0)
    _module("cupyx", errstate=lambda **named: _Nothing())
    _module("cupyx.scipy")
    linalg = _module("cupyx.scipy.linalg")
    sys.modules["cupyx"].scipy = _module("cupyx.scipy", linalg=linalg)  # type: ignore[attr-defined]
    cupy = _module(
        "cupy", cuda=cuda, ndarray=ndarray, asnumpy=lambda a: a.get(), __version__="0",
        empty=lambda shape, dtype=float: ndarray(shape, dtype), __file__="",
        get_default_memory_pool=lambda: pool, from_dlpack=lambda value: value,
        asarray=lambda value, *rest: value if isinstance(value, ndarray) else _array(value),
        array=lambda value, dtype=None: _array(np.array(_unwrap(value), dtype)),
        zeros=lambda shape, dtype=float: _array(np.zeros(shape, dtype)),
        ones=lambda shape, dtype=float: _array(np.ones(shape, dtype)),
    )  # fmt: skip

    def attribute(name: str) -> Any:
        value = getattr(np, name)
        if isinstance(value, types.ModuleType):
            return types.SimpleNamespace(
                **{n: _wrapped(f) for n, f in vars(value).items() if callable(f)}
            )
        return value if isinstance(value, type) or not callable(value) else _wrapped(value)

    cupy.__getattr__ = attribute  # type: ignore[method-assign]
    _check_orders()
    original = calls.KernelCall.__init__

    def remembered(self: Any, *args: Any, **keywords: Any) -> None:
        original(self, *args, **keywords)
        ARGUMENTS[self._held[0]] = self.words.nbytes

    calls.KernelCall.__init__ = remembered  # type: ignore[method-assign]
    return count


def _check_orders() -> None:
    """Let launches on several streams be checked against the memory that they touch."""
    from magmagraph.ir.ranges import dependencies
    from magmagraph.runtime.cuda.launching import segments

    launch = segments._launch

    def checked(device: Any, launches: Any, touched: Any, arranged: Any, mark: Any = None) -> None:
        marks: list[int] = []  # before and after each launch
        launch(device, launches, touched, arranged, lambda *_: marks.append(len(_ordered)))
        spans = [_ordered[a:b] for a, b in zip(marks[::2], marks[1::2], strict=True)]
        for number, waits in enumerate(dependencies(touched)):
            for other in waits:
                for _, before in spans[number]:
                    missing = [bit for bit, _ in spans[other] if not bit & before]
                    assert not missing, f"launch {number} does not wait for launch {other}"
        count["orders"] += len(launches)

    segments._launch = checked


def _array(value: Any) -> ndarray:
    host = np.asarray(_unwrap(value))
    device_array = ndarray(host.shape, host.dtype)
    device_array.host[...] = host
    return device_array
