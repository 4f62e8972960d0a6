"""Run the launches of one step on the CPU: a device whose memory is the host's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import emulated

import magmagraph as mg
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.ir.ranges import Touched
from magmagraph.runtime.cuda.launching import calls

__all__ = ["HostMemory", "emulate_launches", "leaves", "step_of"]

_AFTER = 64  # bytes behind each block, which nothing may write


class HostMemory:
    """The memory of a plan; it checks that nothing is written behind what was asked for."""

    def __init__(self, multiprocessors: int = 1) -> None:
        self.held: list[tuple[np.ndarray, int]] = []
        runtime = SimpleNamespace(
            memsetAsync=lambda to, value, count, stream: ctypes.memset(to, value, count),
            memcpyAsync=lambda to, start, count, *how: ctypes.memmove(to, start, count),
        )
        cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        self.device = SimpleNamespace(cupy=cupy, multiprocessors=multiprocessors, number=0)

    def more(self, count: int) -> int:
        raw = np.full(count + 16 + _AFTER, 0xA5, np.uint8)
        at = -(-raw.ctypes.data // 16) * 16
        self.held.append((raw, at - raw.ctypes.data + count))
        return at

    def put(self, array: np.ndarray) -> int:
        at = self.more(array.nbytes)
        ctypes.memmove(at, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return at

    def read(self, value: Any) -> np.ndarray:
        for raw, end in self.held:
            assert (raw[end:] == 0xA5).all(), "a kernel wrote outside of its memory"
        raw_bytes = ctypes.string_at(value.address, int(value.type.bytes))
        return np.frombuffer(raw_bytes, value.type.dtype).reshape(value.type.shape)

    def at(self, value: Any) -> int:
        return 0 if value is None else int(value.address)

    def touched(self, step: Any) -> Touched:
        return Touched((), ())


def emulate_launches(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> list[str]:
    """Let the launches that modules make run on the CPU; return the names of what was launched."""
    functions: list[tuple[str, str, int]] = []
    launched: list[str] = []

    def function_of(device: Any, name: str, text: str, words: int) -> int:
        functions.append((name, complete(text, words), words))
        return len(functions) - 1

    def launch(function: int, blocks: int, y: int, z: int, threads: int, *rest: Any) -> None:
        words = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))[0]
        name, source, count = functions[function]
        launched.append(name)
        argument = ctypes.string_at(words, 8 * count)
        emulated(source).launch(
            name, blocks, threads, [(argument,)], shared=rest[2], descending=True
        )

    for module in modules:
        monkeypatch.setattr(module, "function_of", function_of)
    monkeypatch.setattr(calls, "driver", lambda: SimpleNamespace(launchKernel=launch))
    monkeypatch.setattr(calls, "_extended", lambda: None)
    return launched


def leaves(*arrays: np.ndarray) -> list[mg.Node]:
    """Return inputs of the shapes and dtypes of arrays."""
    return [mg.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]


def step_of(
    memory: HostMemory, node: mg.Node, arrays: list[np.ndarray], kernel: str, in_place: bool = False
) -> Any:
    """Return a step that computes a node of leaves from arrays, which are put into memory."""
    inputs = [
        SimpleNamespace(type=operand.type, address=memory.put(array))
        for operand, array in zip(node.inputs, arrays, strict=True)
    ]
    out = inputs[-1].address if in_place else memory.more(int(node.type.bytes))
    outputs = [SimpleNamespace(type=node.type, address=out)]
    return SimpleNamespace(node=node, inputs=inputs, kernel=kernel, outputs=outputs)


Compute = Callable[..., np.ndarray]
