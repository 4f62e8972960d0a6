"""Run something between any two instructions of a call, as a signal handler or finalizer may."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import magmagraph as mg

_PACKAGE = os.path.dirname(mg.__file__)


def _trace_instructions(frame: FrameType, event: str, trace: Any) -> None:
    """Ask for the instructions of a frame; Python 3.12 asks who traces only when that is set."""
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    if event == "call" and sys.version_info >= (3, 12):
        sys.settrace(trace)


def run_with(call: Callable[[], Any], act: Callable[[], Any], number: int) -> tuple[Any, bool]:
    """Return what a call returns, and whether it was long enough: `act` runs in between.

    It runs before the instruction with this number, of those of the package in this thread. What it
    raises comes out of the call, as from a handler.
    """
    left = number + 1

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        _trace_instructions(frame, event, trace)
        if event == "opcode":
            left -= 1
            if left == 0:
                act()
        return None if left <= 0 else trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, left <= 0


class _Token:
    """What a tracing function holds until it returns."""


def interrupt_at(call: Callable[[], Any], error: type[BaseException], number: int) -> bool:
    """Call, and let Python raise an error as another thread asks for it; return whether it did.

    The error is set before the instruction with this number of the package's. Python raises it
    where it looks for such errors next, so the code of tests must not run in between: what sets it
    is C alone, called as the last reference to a token goes, at the end of the tracing function.
    """
    set_error = ctypes.pythonapi.PyThreadState_SetAsyncExc
    set_error.argtypes = (ctypes.c_ulong, ctypes.py_object)
    callback = functools.partial(next, map(set_error, [threading.get_ident()], [error]))
    left, watch = number + 1, []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        _trace_instructions(frame, event, trace)
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)  # or the tracing function would be where it is raised
                token = _Token()
                watch.append(weakref.ref(token, callback))
        return trace

    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # else it may be raised in a callback of a collection, which test tools have
    sys.settrace(trace)
    try:
        call()
    except error:
        pass
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return left <= 0


def places(
    call: Callable[[], Any], act: Callable[[], Any], stride: int = 1
) -> Iterator[tuple[int, Any]]:
    """Yield, for each place in a call, its number and what the call returned with `act` there."""
    for number in itertools.count(0, stride):
        result, is_reached = run_with(call, act, number)
        if not is_reached:
            return
        yield number, result
