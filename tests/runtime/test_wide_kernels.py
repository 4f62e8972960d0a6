"""Which products run by the wide kernels, and their text: without a GPU."""

from __future__ import annotations

import ctypes
import itertools
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.ir.fallback import Refused
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.products import gemm, one_tile_source, wide, wide_source
from magmagraph.runtime.cuda.products.gemm import Shape
from magmagraph.runtime.cuda.products.one_tile_source import OneTileKernel
from magmagraph.runtime.cuda.products.wide_source import WideKernel

LARGE = Shape(4096, 4096, 4096, "bfloat16", False, False, False, False)
KINDS = [
    WideKernel("bfloat16", False, False, "gelu_bias"), WideKernel("float16", True, True, "relu"),
    WideKernel("float16", False, True, "bias"), WideKernel("bfloat16", True, False),
]  # fmt: skip
SMALL = [
    OneTileKernel("bfloat16", False, False, "gelu_bias"),
    OneTileKernel("float16", True, True, "relu"),
    OneTileKernel("float16", False, True, "bias"), OneTileKernel("bfloat16", True, False),
]  # fmt: skip
MOST_SHARED = 232448  # bytes that a block of this architecture may have


@pytest.mark.parametrize(
    ("changed", "able"),
    [({}, True), ({"dtype": "float16", "epilogue": "gelu_bias"}, True), ({"m": 4095}, True),
     ({"k": 4095}, False), ({"k": 4095, "transpose_a": True}, True), ({"n": 4095}, False),
     ({"k": 4095, "transpose_a": True, "transpose_b": True}, False),
     ({"m": 4095, "transpose_a": True}, False), ({"batch": 2}, False),
     ({"accumulate": True}, False), ({"device_scalars": True}, False),
     ({"result": "float32"}, False), ({"dtype": "float32"}, False),
     ({"epilogue": "gelu_aux_bias"}, False)],
)  # fmt: skip
def test_what_the_kernels_compute(changed: dict[str, Any], able: bool) -> None:
    assert wide.fits(replace(LARGE, **changed)) is able


def test_a_trial_pays_where_each_multiprocessor_has_a_tile() -> None:
    assert wide.pays(LARGE, 132)
    assert wide.pays(replace(LARGE, m=128 * 11, n=128 * 12), 132)
    assert not wide.pays(replace(LARGE, m=128 * 11, n=128 * 11), 132)
    assert not wide.pays(replace(LARGE, k=128), 132)


def test_a_trial_pays_where_most_multiprocessors_have_one_small_tile() -> None:
    small = replace(LARGE, m=1024, n=1024, k=1024)
    assert wide.pays(small, 132)
    assert not wide.pays(replace(small, k=128), 132)
    assert not wide.pays(replace(small, n=512), 132), "half of them would have none"
    assert not wide.pays(replace(small, n=1088), 132), "some would have two"


class Choices(dict[str, Any]):
    """What is kept on disk."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what chooses, where the library takes 200 microseconds and ours what is said."""
    kept, trials = Choices(), []
    made = SimpleNamespace(kernel=KINDS[0])
    small = SimpleNamespace(kernel=SMALL[0])
    monkeypatch.setattr(gemm, "WideProduct", lambda device, shape: made)
    monkeypatch.setattr(gemm, "OneTileProduct", lambda device, shape: small)
    monkeypatch.setattr(gemm, "default_choices", lambda: kept)

    def choose(ours: float, tuning: bool = True, device: Any = None, **changed: Any) -> Any:
        def trial(*given: Any) -> tuple[float, float]:
            trials.append(given)
            return 200.0, ours

        monkeypatch.setattr(gemm, "in_turn_with", trial)
        card = device or SimpleNamespace(architecture="90", multiprocessors=132, name="a card")
        product = SimpleNamespace(device=card, shape=replace(LARGE, **changed))
        own = gemm.wide_of(product, 0, tuning)
        wanted = small if changed.get("m") in (256, 1024) else made
        assert own is None or own is wanted
        return own is wanted, len(trials)

    return choose


def test_the_faster_one_is_taken_and_known_from_then_on(choose: Any) -> None:
    assert choose(190.0) == (True, 1)
    assert choose(999.0) == (True, 1), "it is known"
    assert choose(210.0, m=8192) == (False, 2)
    assert choose(0.0, n=8192) == (False, 3), "it did not run, or was wrong"


def test_products_of_one_tile_each_have_a_kernel_of_their_own(choose: Any) -> None:
    assert choose(190.0, m=256) == (True, 1)
    assert choose(210.0, m=1024, n=1024) == (False, 2), "it is measured, too"


def test_nothing_is_measured_where_that_is_off_or_does_not_pay(choose: Any) -> None:
    assert choose(190.0, tuning=False) == (False, 0)
    assert choose(190.0, m=128) == (False, 0)
    assert choose(190.0, dtype="float32") == (False, 0)
    other = SimpleNamespace(architecture="80", multiprocessors=108, name="another")
    assert choose(190.0, device=other) == (False, 0)


def test_either_can_be_asked_for(choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "products", "tiles")
    assert choose(999.0, tuning=False, m=256)[0]
    assert not choose(999.0, m=256, accumulate=True)[0], "it cannot"
    monkeypatch.setattr(mg.config, "products", "blas")
    assert choose(1.0) == (False, 0)


def test_where_no_kernel_can_be_made_the_library_computes(
    choose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = [Refused("the driver does not support tensor maps")]

    def refuse(*given: Any) -> None:
        raise errors[-1]

    monkeypatch.setattr(gemm, "WideProduct", refuse)
    assert choose(1.0) == (False, 0)
    monkeypatch.setattr(mg.config, "products", "tiles")
    assert choose(1.0) == (False, 0)
    errors.append(RuntimeError("a generated CUDA kernel does not compile"))
    with pytest.raises(RuntimeError, match="does not compile"):
        choose(1.0)


class Driver:
    """A driver that keeps what it is asked for."""

    def __init__(self) -> None:
        self.maps: list[tuple[Any, ...]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.code = 0

    def encode(self, at: Any, kind: Any, rank: Any, address: Any, *rest: Any) -> int:
        assert at.value % 64 == 0 and rank.value == 2
        extents, strides, box, *_ = rest
        self.maps.append((kind.value, address.value, tuple(extents), strides[0], tuple(box)))
        number = ctypes.c_int64(len(self.maps))
        ctypes.memmove(at.value, ctypes.addressof(number), 8)
        return self.code

    def funcSetAttribute(self, *given: int) -> None:
        assert given in ((7, 8, wide_source.SHARED), (7, 8, one_tile_source.SHARED))

    def launchKernel(self, *given: int) -> None:
        held = ctypes.c_void_p.from_address(given[-2]).value
        assert held is not None
        words = np.frombuffer(ctypes.string_at(held, 51 * 8), np.int64)
        self.launches.append((given[:-2], words[[0, 16, 32, 48]].tolist(), words[49:].view("i4")))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes a product on a device that is made up, with its driver."""
    calls = Driver()
    monkeypatch.setattr(wide, "_encode", lambda: calls.encode)
    monkeypatch.setattr(wide, "_functions", {})
    monkeypatch.setattr(wide, "driver", lambda: calls)
    monkeypatch.setattr(wide, "compile_source", lambda source, architecture: b"")
    module = SimpleNamespace(
        load=lambda cubin: None, get_function=lambda name: SimpleNamespace(ptr=7)
    )
    function = SimpleNamespace(Module=lambda: module)
    cupy = SimpleNamespace(cuda=SimpleNamespace(function=function))
    device = SimpleNamespace(number=0, multiprocessors=132, cupy=cupy)
    return lambda **changed: (wide.WideProduct(device, replace(LARGE, **changed)), calls)


def test_a_launch_has_maps_of_its_operands_and_as_many_blocks_as_there_is_work_for(
    made: Any,
) -> None:
    product, calls = made(m=1000, n=520, k=72, epilogue="bias")
    product.launch(0x1000, 0x2000, 0, 0x3000, 0, 0, 0, 5, 0x4000)
    assert calls.maps == [
        (9, 0x1000, (72, 1000), 144, (64, 128)), (9, 0x2000, (520, 72), 1040, (64, 64)),
        (9, 0x3000, (520, 1000), 1040, (64, 64)),
    ]  # fmt: skip
    (grid, places, extents), = calls.launches
    assert grid == (7, 40, 1, 1, 384, 1, 1, wide_source.SHARED, 5)
    assert places == [1, 2, 3, 0x4000] and extents.tolist() == [8, 5, 2, 520]
    product.launch(0x1000, 0x2000, 0, 0x3000, 0, 0, 0, 5, 0x4000)
    assert len(calls.maps) == 3, "the same addresses have the same maps"
    product.launch(0x1000, 0x2000, 0, 0x5000, 0, 0, 0, 5, 0x4000)
    assert len(calls.maps) == 6 and calls.launches[-1][1] == [4, 5, 6, 0x4000]


def test_maps_of_factors_that_lie_the_other_way_round(made: Any) -> None:
    product, calls = made(m=1000, n=520, k=72, dtype="float16", transpose_a=True, transpose_b=True)
    product.arguments(0x1000, 0x2000, 0x3000, 0)
    assert calls.maps[:2] == [
        (6, 0x1000, (1000, 72), 2000, (64, 64)), (6, 0x2000, (72, 520), 144, (64, 128))
    ]  # fmt: skip
    calls.code = 1
    with pytest.raises(RuntimeError, match="tensor map"):
        product.arguments(0x1000, 0x2000, 0x3000, 0)


@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_a_launch_with_one_tile_a_block(made: Any, a: bool, b: bool) -> None:
    wide_one, calls = made(m=1000, n=520, k=200, epilogue="bias", transpose_a=a, transpose_b=b)
    product = wide.OneTileProduct(wide_one.device, wide_one.shape)
    product.launch(0x1000, 0x2000, 0, 0x3000, 0, 0, 0, 5, 0x4000)
    assert calls.maps == [
        (9, 0x1000, (1000, 200), 2000, (64, 64)) if a
        else (9, 0x1000, (200, 1000), 400, (64, 64)),
        (9, 0x2000, (200, 520), 400, (64, 64)) if b
        else (9, 0x2000, (520, 200), 1040, (64, 64)),
    ]  # fmt: skip
    ((grid, *_),) = calls.launches
    assert grid == (7, 16, 5, 1, 288, 1, 1, one_tile_source.SHARED, 5)
    words = product.arguments(0x1000, 0x2000, 0x3000, 0x4000)
    assert words[32:34].tolist() == [0x4000, 0x3000]
    assert words[34:].view("i4")[:3].tolist() == [4, 1000, 520]


def test_what_it_takes(made: Any) -> None:
    product, _ = made()
    one, two = np.array([1], "f4"), np.array([2], "f4")
    assert product.takes(0x10, 0x20, 0x30, 0x44, 0)
    assert product.takes(0x10, 0x20, 0x30, 0, one.ctypes.data)
    assert not product.takes(0x10, 0x20, 0x30, 0, two.ctypes.data)
    assert not any(
        product.takes(*given, 0)
        for given in ((0x18, 0x20, 0x30, 0), (0x10, 0x28, 0x30, 0), (0x10, 0x20, 0x38, 0),
                      (0x10, 0x20, 0x30, 0x42))
    )  # fmt: skip


def test_each_kind_has_a_text_of_its_own_with_nothing_left_open() -> None:
    kinds = [
        kind(dtype, a, b, epilogue)
        for kind, dtype, a, b, epilogue in itertools.product(
            (WideKernel, OneTileKernel),
            ("float16", "bfloat16"), (False, True), (False, True), ("", "bias", "relu", "gelu_bias")
        )
    ]
    texts = [kind.source for kind in kinds]
    assert len(set(texts)) == len(kinds)
    for text in texts:
        assert "@" not in text.replace("@!p", "")
    assert max(wide_source.SHARED, one_tile_source.SHARED) <= MOST_SHARED


@pytest.mark.parametrize("kind", [WideKernel, OneTileKernel])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_relu_is_part_of_narrowing(kind: Any, dtype: str) -> None:
    def narrowing(epilogue: str) -> set[str]:
        return set(re.findall(r"cvt\.rn[.a-z0-9]*", kind(dtype, False, False, epilogue).source))

    short = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    for epilogue in ("relu", "relu_bias"):
        assert narrowing(epilogue) == {f"cvt.rn.relu.{short}x2.f32"}
    for epilogue in ("", "bias", "gelu", "gelu_bias"):
        assert narrowing(epilogue) == {f"cvt.rn.{short}x2.f32"}


def test_the_second_of_two_warpgroups_waits_within_a_step() -> None:
    """Its last 96 terms, in product instructions of 16, are behind all of the first's."""
    source = OneTileKernel("bfloat16", False, False, "gelu_bias").source
    (found,) = re.findall(r"if \(FROM && i == (\d+) && k == max\(v\.steps - (\d+), 0\)\)", source)
    ahead, steps = map(int, found)
    assert steps * one_tile_source.STEP - 16 * ahead == 96
    assert ahead < one_tile_source.STEP // 16


@pytest.mark.parametrize("epilogue", ["", "bias", "relu_bias", "gelu", "gelu_bias"])
def test_the_other_rows_begin_before_the_first_are_placed(epilogue: str) -> None:
    """Their tanh, and what its second half takes, are wanted before the barrier."""
    source = OneTileKernel("float16", False, False, epilogue).source
    after_sums = source[source.index("float bent[4][8];") : source.index('extern "C"')]
    begun = re.findall(r"if \(v\.steps == -\d\) keep\(bent\[(\d)\], staged\);",
                       after_sums[: after_sums.index("__syncwarp")])  # fmt: skip
    assert begun == (["2", "3"] if "gelu" in epilogue else [])
    order = re.findall(r"__syncwarp|(?:fetch|store)\(\w+\[\d\]|bend\(bent\[3\]", after_sums)
    assert order == [
        "__syncwarp", "fetch(line[0]", "fetch(line[1]", "bend(bent[3]", "store(to[0]",
        "store(to[1]", "__syncwarp", "fetch(line[2]", "fetch(line[3]", "store(to[2]",
        "store(to[3]",
    ]  # fmt: skip


def test_a_function_is_the_same_in_parts() -> None:
    """The kernel of many tiles applies it whole, that of one tile in parts."""
    for name, parts in wide_source._FUNCTIONS.items():
        for kind in (WideKernel, OneTileKernel):
            source = kind("bfloat16", False, False, name).source
            assert all(part in source for part in parts)
            assert "return outer(x, bend(inner(x)));" in source
            assert ("tanh.approx" in source) is (name == "gelu")


@pytest.mark.parametrize("kind", [*KINDS, *SMALL])
def test_a_text_compiles(kind: WideKernel | OneTileKernel) -> None:
    pytest.importorskip("cupy_backends", reason="NVRTC comes with cupy")
    cubin = compile_source(kind.source, "90a")
    module = wide_source if isinstance(kind, WideKernel) else one_tile_source
    assert module.NAME.encode() in cubin
