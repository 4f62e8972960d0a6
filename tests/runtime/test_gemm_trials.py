"""How an algorithm of a product library is chosen by its times; no device is needed."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from magmagraph.runtime.cuda.products import gemm_kernels, gemm_trials
from magmagraph.runtime.cuda.products.gemm import Shape
from magmagraph.runtime.cuda.products.gemm_trials import (
    _agree,
    _fastest,
    _in_turn,
    _number,
    _random,
    in_turn_with,
    tuned,
)

Config = enum.IntEnum(
    "Config",
    ["ID", "TILE_ID", "SPLITK_NUM", "CTA_SWIZZLING", "CUSTOM_OPTION", "CLUSTER_SHAPE_ID"],
    start=0,
)
Clusters = enum.IntEnum(
    "Clusters", ["SHAPE_AUTO", "SHAPE_1x1x1", "SHAPE_2x1x1", "SHAPE_1x2x1", "SHAPE_2x2x1"], start=0
)
LARGE = Shape(4096, 4096, 4096, "bfloat16", False, False, False, False)
OPTIONS, REFUSED = 3, 13  # the highest option of an algorithm's own; a tile that has no cluster
WORKSPACE = 4


class LibraryError(Exception):
    """What the library raises for an algorithm that it does not have."""


class Library:
    """A library whose algorithms are their options, four bytes each."""

    cuBLASLtError = LibraryError  # noqa: N815
    MatmulAlgoConfigAttribute = Config
    MatmulAlgoCapAttribute = enum.IntEnum("Caps", ["CUSTOM_OPTION_MAX"])
    ClusterShape = Clusters
    matmul_heuristic_result_dtype = np.dtype([("algo", "u1", 64), ("workspace_size", "u8")])

    def matmul_algo_config_set_attribute(self, row: int, name: int, at: int, size: int) -> None:
        assert size == (2 if name == Config.CLUSTER_SHAPE_ID else 4)
        ctypes.memmove(row + 4 * name, at, size)

    def matmul_algo_config_get_attribute(
        self, row: int, name: int, at: int, size: int, written: int
    ) -> None:
        ctypes.memmove(at, row + 4 * name, size)

    def matmul_algo_cap_get_attribute(
        self, row: int, name: int, at: int, size: int, written: int
    ) -> None:
        ctypes.memmove(at, ctypes.addressof(ctypes.c_int32(OPTIONS)), size)

    def matmul_algo_check(self, *given: int) -> None:
        row = np.frombuffer(ctypes.string_at(given[-2], 64), "u4")
        if row[Config.TILE_ID] == REFUSED and row[Config.CLUSTER_SHAPE_ID] != Clusters.SHAPE_1x1x1:
            raise LibraryError("not supported")
        size = WORKSPACE if row[Config.CUSTOM_OPTION] < OPTIONS else (64 << 20)
        ctypes.memmove(given[-1] + 64, ctypes.addressof(ctypes.c_uint64(size)), 8)


def algorithm(**options: int) -> np.ndarray:
    row = np.zeros(72, np.uint8)
    for name, value in options.items():
        row[:64].view("u4")[Config[name]] = value
    return row


def product(*rows: np.ndarray, shape: Shape = LARGE) -> Any:
    return SimpleNamespace(
        library=Library(), handle=0, description=0, layouts=(0, 0, 0), shape=shape,
        algorithms=np.stack(rows) if rows else None,
    )  # fmt: skip


def options(row: np.ndarray) -> tuple[int, ...]:
    held = row[:64].view("u4")
    names = (Config.TILE_ID, Config.CLUSTER_SHAPE_ID, Config.CTA_SWIZZLING, Config.CUSTOM_OPTION)
    return tuple(int(held[name]) for name in names)


def times(*values: float) -> Callable[[], float]:
    """Return what gives some times one after the other, the last again and again."""
    held = list(values)
    return lambda: held.pop(0) if len(held) > 1 else held[0]


def test_the_best_for_a_while_is_chosen_not_the_best_at_first() -> None:
    found = {1: times(8.0, 12.0), 0: times(9.5), 2: times(10.0)}
    assert list(_in_turn(found).items()) == [(0, 9.5), (2, 10.0), (1, 12.0)]


def test_where_nothing_runs_nothing_is_chosen() -> None:
    assert _in_turn({}) == {}


class Card:
    """A device whose clock goes on by what products are said to take, and whose memory is here."""

    def __init__(self) -> None:
        self.clock, self.device, self.stream, self.name = 0.0, self, self, "card"
        self.ptr = 0
        self.capturing: list[Callable[[], None]] | None = None
        here = SimpleNamespace(memcpyAsync=self.copy, memsetAsync=self.fill)
        self.cupy = SimpleNamespace(
            asarray=Held, empty=lambda count, dtype: Held(np.empty(count, dtype)),
            cuda=SimpleNamespace(
                runtime=here, get_current_stream=lambda: self, Event=lambda: Event(self),
                get_elapsed_time=lambda begun, ended: (ended.at - begun.at) / 1e3,
            ),
        )  # fmt: skip

    def copy(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    def fill(self, target: int, byte: int, size: int, stream: int) -> None:
        ctypes.memset(target, byte, size)

    def __enter__(self) -> None: ...
    def __exit__(self, *reason: object) -> None: ...
    def synchronize(self) -> None: ...

    def begin_capture(self) -> None:
        self.capturing = []

    def end_capture(self) -> Any:
        calls, self.capturing = self.capturing or [], None
        return SimpleNamespace(launch=lambda stream: [call() for call in calls])


class Event:
    def __init__(self, card: Card) -> None:
        self.card, self.at = card, 0.0

    def record(self, stream: object) -> None:
        self.at = self.card.clock

    def synchronize(self) -> None: ...


class Held:
    """An array with an address."""

    def __init__(self, held: np.ndarray) -> None:
        self.held, self.data = held, SimpleNamespace(ptr=held.ctypes.data)
        self.dtype, self.itemsize, self.nbytes = held.dtype, held.itemsize, held.nbytes
        self.size = held.size


class Timed:
    """A product whose algorithms take what a function of their options says."""

    def __init__(self, takes: Callable[..., float], *rows: np.ndarray, **shape: Any) -> None:
        self.library, self.handle, self.description, self.layouts = Library(), 0, 0, (0, 0, 0)
        self.shape, self.device = replace(LARGE, m=128, n=16, k=1 << 19, **shape), Card()
        self.takes, self.chosen, self.algorithms = takes, 0, np.stack(rows)
        self.scalar = np.dtype("f4")

    def launch(self, *given: int) -> None:
        out, bias = given[3], given[8]
        assert bool(bias) == ("bias" in self.shape.epilogue), "the library refuses it"
        tile, cluster, order, own = options(self.algorithms[self.chosen])

        def run() -> None:
            self.device.clock += self.takes(tile, cluster, order, own)
            made = np.full(self.shape.m * self.shape.n, 0x3F80, "u2")  # ones
            made[::2] += own == 1  # the next larger number
            made[:1] += (own == 2) << 7  # wrong: a two
            ctypes.memmove(out, made.ctypes.data, made.nbytes)

        if self.device.capturing is None:
            run()
        else:
            self.device.capturing.append(run)


PROPOSED = (
    algorithm(ID=66, TILE_ID=20, SPLITK_NUM=1, CLUSTER_SHAPE_ID=2),
    algorithm(ID=66, TILE_ID=30, SPLITK_NUM=1, CLUSTER_SHAPE_ID=2),
)


@pytest.mark.parametrize(
    ("best", "chosen"), [((20, 3, 1, 0), (20, 3, 1, 0)), ((30, 1, 0, 1), (30, 1, 0, 1)),
                         ((20, 3, 1, 2), (20, 2, 0, 0)), ((20, 2, 0, 0), (20, 2, 0, 0))],
)  # fmt: skip
def test_the_fastest_of_all_kernels_is_chosen_that_is_right(
    best: tuple[int, ...], chosen: tuple[int, ...]
) -> None:
    def takes(*given: int) -> float:
        return 200.0 if given == best else 210.0 if given == (20, 2, 0, 0) else 220.0

    one = Timed(takes, *PROPOSED)
    number, taken, beside = _fastest(one, 0, None)
    assert options(one.algorithms[number]) == chosen
    assert (taken, beside) == (takes(*chosen), 0.0)
    assert len(one.algorithms) == 2 * 3 * 2 * OPTIONS, "both tiles with all that they can have"


def test_what_is_small_has_no_other_kernels() -> None:
    one = Timed(lambda *given: 1.0, *PROPOSED)
    one.shape = replace(one.shape, k=64)
    assert _fastest(one, 0, None) == (0, 1.0, 0.0)
    assert len(one.algorithms) == 2


def test_a_product_with_an_epilogue_is_measured_beside_the_one_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with_gelu = Timed(lambda *given: 210.0, *PROPOSED, epilogue="gelu_bias")
    plain = Timed(lambda tile, *given: 203.0 if tile == 30 else 180.0, *PROPOSED)
    plain.device, plain.chosen = with_gelu.device, 1
    known: dict[str, Any] = {}
    monkeypatch.setattr(gemm_trials, "default_choices", lambda: Choices(known))
    monkeypatch.setattr(gemm_trials, "_version", lambda: "1")
    assert tuned(with_gelu, 0, plain)[1:] == (210.0, 203.0)
    again = Timed(lambda *given: 1.0, *PROPOSED, epilogue="gelu_bias")
    assert tuned(again, 0, plain) == tuned(with_gelu, 0, plain), "it is not measured again"
    assert len(known) == 1 and len(again.algorithms) == 2


def test_what_else_computes_a_product_is_given_its_bias() -> None:
    one, other = (Timed(lambda *given: 1.0, *PROPOSED, epilogue="gelu_bias") for _ in range(2))
    other.device = one.device
    assert in_turn_with(one, other, 0) == (1.0, 1.0)


class Choices:
    def __init__(self, known: dict[str, Any]) -> None:
        self.get, self.set = known.get, known.__setitem__


def test_a_result_that_rounds_in_another_way_agrees_and_no_other() -> None:
    first = np.linspace(-8, 8, 101)
    assert _agree(first, first * 1.001)
    for wrong in (0.0, np.nan):
        other = first.copy()
        other[3] = wrong
        assert not _agree(first, other)


def test_kernels_that_are_not_proposed_have_the_tiles_of_the_fastest_and_all_options() -> None:
    rows = [
        algorithm(ID=66, TILE_ID=5, SPLITK_NUM=4),
        algorithm(ID=66, TILE_ID=20, SPLITK_NUM=1, CUSTOM_OPTION=1),
        algorithm(ID=66, TILE_ID=20, SPLITK_NUM=1, CLUSTER_SHAPE_ID=4),
        algorithm(ID=66, TILE_ID=REFUSED, SPLITK_NUM=1),
        algorithm(ID=66, TILE_ID=30, SPLITK_NUM=1),
    ]
    made = [options(row) for row in gemm_kernels.varied(product(), rows)]
    own = range(OPTIONS)  # the highest wants more workspace than there is
    wanted = {(20, cluster, order, one) for cluster in (1, 2, 3) for order in (0, 1) for one in own}
    wanted |= {(REFUSED, 1, order, one) for order in (0, 1) for one in own}
    assert len(made) == len(wanted) and set(made) == wanted


@pytest.mark.parametrize(
    ("changed", "worth"),
    [({}, True), ({"dtype": "float16"}, True), ({"m": 1024, "n": 1024, "k": 1024}, True),
     ({"m": 512, "n": 1024, "k": 1024}, False), ({"m": 512, "batch": 8}, True),
     ({"m": 1 << 20}, False), ({"dtype": "float32"}, False),
     ({"dtype": "float32", "compute": "tf32"}, False)],
)  # fmt: skip
def test_only_large_products_of_16_bits_are_worth_more_trials(
    changed: dict[str, Any], worth: bool
) -> None:
    assert gemm_kernels.varies(replace(LARGE, **changed)) is worth


def test_a_kernel_that_was_not_proposed_is_known_again_where_it_runs() -> None:
    proposed = algorithm(ID=66, TILE_ID=20)
    chosen = algorithm(ID=66, TILE_ID=20, CUSTOM_OPTION=1)
    known = chosen[:64].tobytes().hex()
    one = product(proposed)
    assert _number(one, known) == 1
    assert options(one.algorithms[1]) == options(chosen) and one.algorithms.shape == (2, 72)
    assert _number(one, known) == 1 and len(one.algorithms) == 2
    assert _number(product(proposed), proposed[:64].tobytes().hex()) == 0
    too_large = algorithm(ID=66, TILE_ID=20, CUSTOM_OPTION=OPTIONS)[:64].tobytes().hex()
    assert _number(product(proposed), too_large) is None
    assert _number(product(proposed), "no algorithm") is None
    small = replace(LARGE, m=32)
    assert _number(product(proposed, shape=small), known) is None


def test_factors_of_trials_are_random_numbers() -> None:
    for dtype, size in (("float64", 8), ("float32", 4), ("float16", 2), ("bfloat16", 2)):
        raw = _random(dtype)
        assert raw.dtype == f"u{size}"
        wide = raw.astype("u4") << 16 if dtype == "bfloat16" else raw
        numbers = wide.view("f4" if dtype == "bfloat16" else dtype).astype("f8")
        assert abs(numbers.mean()) < 0.02 and abs(numbers.std() - 1) < 0.02
        assert len(np.unique(raw)) > 1000
