"""Launches that overlap, captures, and what is said of errors: on the host, with a driver's double.
"""

from __future__ import annotations

import contextlib
import ctypes
import types
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.ir.plan import WHOLE
from magmagraph.ir.ranges import Touched
from magmagraph.runtime.cuda.bound import CudaBound
from magmagraph.runtime.cuda.device import Device
from magmagraph.runtime.cuda.launching import calls, segments
from magmagraph.runtime.cuda.launching.calls import (
    KernelCall,
    LibraryCall,
    Together,
    calls_of,
    cost_of,
)


class Driver:
    """Records launches: the stream, the words, and whether they may overlap."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[int], bool]] = []

    def launchKernel(self, function: int, *rest: int) -> None:
        *_, stream, address, _ = rest
        self._record(stream, address, False)

    def extended(self, configuration: Any, function: Any, arguments: Any, extra: Any) -> int:
        held = configuration._obj
        assert held.count == 1 and held.attributes[0].id == 6 and held.attributes[0].value == 1
        assert list(held.grid) == [4, 2, 1] and list(held.block) == [32, 1, 1]
        self._record(held.stream, ctypes.addressof(arguments), True)
        return 0

    def check_status(self, status: int) -> None:
        assert status == 0

    def _record(self, stream: int, address: int, overlaps: bool) -> None:
        words = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))[0]
        numbers = ctypes.cast(words, ctypes.POINTER(ctypes.c_int64))
        self.seen.append((stream, [numbers[i] for i in range(4)], overlaps))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    double = Driver()
    monkeypatch.setattr(calls, "driver", lambda: double)
    monkeypatch.setattr(calls, "_extended", lambda: double.extended)
    return double


def call(*words: int, early: Any = None, overlaps: bool = True) -> KernelCall:
    return KernelCall(
        7, (4, 2, 1), (32, 1, 1), np.array(words, np.int64), (0, 1), early=early, overlaps=overlaps
    )


STREAM = types.SimpleNamespace(ptr=11)


def test_operands_are_read_early_where_the_launch_before_writes_none_of_them(
    driver: Driver,
) -> None:
    launch = call(100, 200, 5, 0, early=(3, (((100, 120),), ((300, 310), (500, 501)))))
    launch(STREAM)
    for written, early in (
        ((), 3), (((120, 300),), 3), (((119, 121),), 2), (((0, 90), (309, 400)), 1),
        (((90, 101), (500, 600)), 0),
    ):
        launch.overlapped(STREAM, written)
        assert driver.seen[-1] == (11, [100, 200, 5, early], True)
    launch(STREAM)
    assert driver.seen[-1] == driver.seen[0] == (11, [100, 200, 5, 0], False)


def test_a_kernel_that_does_not_wait_never_overlaps(driver: Driver) -> None:
    call(1, 2, 3, 4, overlaps=False).overlapped(STREAM, ())
    assert driver.seen == [(11, [1, 2, 3, 4], False)]


def test_the_same_launch_at_other_addresses(driver: Driver) -> None:
    def shift(address: int) -> int:
        return address + 1000 if 100 <= address < 200 else address

    first = call(100, 250, 150, 0, early=(3, (((100, 120), (250, 260)),)))
    moved = first.moved(shift)
    moved.overlapped(STREAM, ((100, 120),))
    moved.overlapped(STREAM, ((1119, 1120),))
    assert [words for _, words, _ in driver.seen] == [[1100, 250, 150, 1], [1100, 250, 150, 0]]
    seen: list[Any] = []
    library = LibraryCall(lambda stream, *where: seen.append(where), (100, 300))
    both = Together([first, library]).moved(shift)
    both(STREAM)
    assert seen == [(1100, 300)]
    assert driver.seen[-1][1] == [1100, 250, 150, 0]
    assert calls_of(both) == both.calls and calls_of(library) == (library,)
    # Eight blocks of a warp: on so many multiprocessors that half have none, they are short.
    assert cost_of(first, 17) == 1 and cost_of(first, 16) == 1 + 8 * 32 / (16 * 128)
    assert cost_of(Together([first, first]), 16) == 1 + 2 * 8 * 32 / (16 * 128)
    assert cost_of(library, 100) == cost_of(both, 100) == WHOLE


class Stream:
    """A stream of a device's double."""

    def __init__(self, device: Double, number: int) -> None:
        self.device, self.ptr, self.capturing = device, number, False

    def begin_capture(self) -> None:
        self.capturing = True

    def end_capture(self) -> str:
        self.capturing = False
        return "graph"

    def wait_event(self, event: Any) -> None:
        self.device.log.append(("wait", self.ptr, event.at))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass


class Double:
    """As much of a device as a capture needs."""

    architecture = "90"
    multiprocessors = 8

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.stream = Stream(self, 0)
        log = self.log

        class Event:
            def __init__(self, disable_timing: bool) -> None:
                self.at: Any = None

            def record(self, stream: Stream) -> None:
                self.at = (stream.ptr, sum(kind == "call" for kind, *_ in log))

        runtime = types.SimpleNamespace(CUDARuntimeError=OSError)
        self.cupy = types.SimpleNamespace(
            cuda=types.SimpleNamespace(Event=Event, runtime=runtime)
        )

    def beside(self, count: int) -> list[Stream]:
        return [Stream(self, 1 + i) for i in range(count)]

    def scratch(self, stream: Stream) -> int:
        return 0


def launches(device: Double, driver: Driver, count: int) -> list[Any]:
    """Return launches that log their number; all fill the device."""

    def logged(number: int) -> KernelCall:
        launch = call(number, 0, 0, 0, early=(3, (((0, 1),),)))
        plain, over = launch._launch, KernelCall.overlapped

        def run(*arguments: Any) -> None:
            device.log.append(("call", arguments[8], number))
            plain(*arguments)

        launch._launch = run
        assert over
        return launch

    return [logged(number) for number in range(count)]


A, B, C, D = ((i * 100, i * 100 + 100) for i in range(1, 5))


def test_a_capture_overlaps_the_longest_chain_and_joins_the_rest(driver: Driver) -> None:
    device = Double()
    touched = [
        Touched((), (A,)), Touched((A,), (B,)), Touched((A,), (C,)), Touched((B,), (D,)),
        Touched((C, D), (A,)),
    ]
    graph = segments.captured(device, launches(device, driver, 5), touched)
    assert graph == "graph" and not device.stream.capturing
    placed = [(stream or 0, words[0], overlaps) for stream, words, overlaps in driver.seen]
    assert placed == [(0, 0, False), (0, 1, True), (1, 2, False), (0, 3, True), (0, 4, True)]
    waits = [entry for entry in device.log if entry[0] == "wait"]
    assert [stream for _, stream, _ in waits] == [1, 1, 0, 0]


def test_only_the_chain_overlaps_with_what_it_joins_and_only_with_kernels(
    driver: Driver,
) -> None:
    device = Double()
    # The chain 0, 2, 3; beside it 1, for which 3 waits, too, and 4, which waits for 2.
    touched = [
        Touched((), (A,)), Touched((), (B,)), Touched((A,), (C,)), Touched((B, C), (B,)),
        Touched((C,), (D,)),
    ]
    made = launches(device, driver, 5)
    segments.captured(device, made, touched)
    placed = [(stream or 0, words[0], overlaps) for stream, words, overlaps in driver.seen]
    assert placed == [(0, 0, False), (1, 1, False), (0, 2, True), (0, 3, True), (1, 4, False)]
    driver.seen.clear()
    library = LibraryCall(lambda stream: None, ())
    segments.captured(device, [made[0], library, made[2]], [
        Touched((), (A,)), Touched((), (B,)), Touched((A, B), (C,)),
    ])  # fmt: skip
    assert not any(overlaps for _, _, overlaps in driver.seen)


def test_older_devices_do_not_overlap(driver: Driver) -> None:
    device = Double()
    device.architecture = "86"
    chain = [Touched((), (A,)), Touched((A,), (B,)), Touched((B,), (C,))]
    segments.captured(device, launches(device, driver, 3), chain)
    assert not any(overlaps for _, _, overlaps in driver.seen)


def test_an_error_in_a_capture_ends_it(driver: Driver) -> None:
    device = Double()

    def failing(stream: Any) -> None:
        assert device.stream.capturing
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        segments.captured(device, [failing], [Touched()])
    assert not device.stream.capturing

    def refused() -> str:
        device.stream.capturing = False
        raise OSError("branches are not joined")

    device.stream.end_capture = refused  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="in the middle"):
        segments.captured(device, [failing], [Touched()])
    assert not device.stream.capturing


class LaunchError(Exception):
    """What the driver raises, and the runtime does not."""


def broken_device(works: bool) -> Any:
    """Return a device whose memory is full, and whose driver reports errors."""

    class OutOfMemoryError(Exception):
        pass

    def empty(*_: Any) -> None:
        raise OutOfMemoryError

    def synchronize() -> None:
        if not works:
            raise OSError

    device = Device.__new__(Device)
    device.number, device.name = 0, "a card"
    pool = types.SimpleNamespace(used_bytes=lambda: 2000)
    runtime = types.SimpleNamespace(
        memGetInfo=lambda: (3000, 10000), CUDARuntimeError=OSError, deviceSynchronize=synchronize
    )
    memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    device.cupy = types.SimpleNamespace(
        empty=empty, get_default_memory_pool=lambda: pool,
        cuda=types.SimpleNamespace(
            runtime=runtime, memory=memory, Device=lambda number: contextlib.nullcontext(),
            driver=types.SimpleNamespace(CUDADriverError=LaunchError),
        ),
    )
    return device


def test_memory_that_is_full() -> None:
    with pytest.raises(mg.DeviceError) as caught:
        broken_device(True).array((1000, 5), np.dtype("f4"), "variable 'w'")
    assert str(caught.value) == (
        "cuda:0 (a card) has no 20,000 bytes for variable 'w': 3,000 of 10,000 are free, this "
        "process holds 2,000\n"
        "  expected: a smaller batch, or arrays of this process or of others freed\n"
        "  try: f.memory shows what is planned before anything runs; mg.checkpoint computes parts "
        "again instead of keeping them"
    )


@pytest.mark.parametrize("kind", [OSError, LaunchError])
@pytest.mark.parametrize("works", [True, False])
def test_a_device_that_fails(works: bool, kind: type[Exception]) -> None:
    v = mg.var("v", init=np.ones(3))
    w = mg.var("w", init=np.ones(3))
    copy = types.SimpleNamespace(version=0, fetch=lambda array: array.fill(2))
    v.state.newest = copy
    bound = CudaBound.__new__(CudaBound)
    bound.device = broken_device(works)
    bound._written = [(v.state, copy), (w.state, types.SimpleNamespace(version=0))]
    with contextlib.ExitStack() as stack:
        caught = stack.enter_context(pytest.raises(mg.DeviceError))
        with bound._reported():
            raise kind("cudaErrorLaunchFailure")
    assert str(caught.value).startswith("cuda:0 (a card) failed: cudaErrorLaunchFailure\n  expe")
    np.testing.assert_array_equal(w.value, 1)
    if works:
        np.testing.assert_array_equal(v.value, 2)
        return
    with pytest.raises(RuntimeError, match="'v' has no value: the device that held it failed"):
        _ = v.value
    v.value = np.zeros(3)
    np.testing.assert_array_equal(v.value, 0)
