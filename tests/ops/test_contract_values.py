"""The public face, promise by promise: what is fed, held and given back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_contract_running import BATCH, agree, step

import magmagraph as mg
from magmagraph.dtypes import canonical
from magmagraph.ir.values.dlpack import tensor_in


def test_results_are_the_callers() -> None:
    """A later call never overwrites them; out= writes into the caller's."""
    f, _, _, _ = step()
    first, _ = f(BATCH, np.ones(2))
    copy = first.copy()
    f(BATCH + 1, np.ones(2))
    np.testing.assert_array_equal(first, copy)
    into = [np.empty(2, np.float32), np.empty((), np.float32)]
    g = mg.function(f.inputs, [f.inputs[0][:, 0], mg.sum(f.inputs[1])])
    result = g(BATCH, np.ones(2), out=into)
    assert result[0] is into[0] and result[1] is into[1]
    agree(into[0], BATCH[:, 0])
    agree(into[1], 2)


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (np.empty((3, 3), np.float32), "shape"),
        (np.empty((2, 3), np.int32), "int32"),
        ([[0.0] * 3] * 2, "form"),
    ],
)
def test_out_is_checked_before_anything_runs(out: Any, text: str) -> None:
    """A refused call leaves the variables as they were."""
    x, v = mg.var("x", shape=("batch", 3)), mg.var("v", init=1.0)
    f = mg.function([x], [x * v], updates={v: v + 1.0})
    with pytest.raises(mg.FeedError, match=text):
        f(BATCH, out=[out])
    assert v.value == 1


def test_feeds_of_many_kinds() -> None:
    """Lists, numbers, foreign byte orders, strides, read-only arrays and DLPack."""
    x = mg.var("x", shape=(3,))
    f = mg.function([x], x * 2)
    frozen = np.array([1.0, 2.0, 3.0], np.float32)
    frozen.flags.writeable = False

    class Exchanged:
        """An array of another library, as DLPack hands it over."""

        def __dlpack__(self, **_: Any) -> Any:
            return np.array([1.0, 2.0, 3.0], np.float32).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    for feed in (
        [1.0, 2.0, 3.0], (1.0, 2.0, 3.0), np.array([1.0, 2.0, 3.0]), frozen,
        np.array([1.0, 2.0, 3.0], ">f4"), np.array([3.0, 2.0, 1.0], np.float32)[::-1], Exchanged(),
    ):
        agree(f(feed), [2, 4, 6])
    np.testing.assert_array_equal(frozen, [1, 2, 3])


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_what_a_caller_does_to_a_result_stays_with_it(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are the caller's: read-only, of another dtype or shape, and dropped in the end."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    x = mg.var("x", shape=(2, 3))
    f = mg.function([x], x * 2.0)

    def change(name: str, value: Any) -> None:
        result = f(BATCH)
        if name == "write":
            result.flags.writeable = value
        else:
            setattr(result, name, value)

    for name, value in (("write", False), ("dtype", np.int32), ("shape", (3, 2))):
        change(name, value)
        for _ in range(2):
            result = f(BATCH)
            assert result.flags.writeable and result.dtype == np.float32
            np.testing.assert_array_equal(result, 2 * BATCH)
            del result


class Brain:
    """An array of bfloat16 of another library, which gives itself by DLPack alone."""

    def __init__(self, values: np.ndarray) -> None:
        whole = np.zeros(values.shape[0] * 64, np.uint16)  # laid out as the values are
        steps = [2 * step // values.itemsize for step in values.strides]
        self.bits = np.lib.stride_tricks.as_strided(whole, values.shape, steps)
        self.bits[...] = values.astype(canonical("bfloat16")).view(np.uint16)

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.bits.__dlpack__()
        tensor_in(capsule).code = 4  # NumPy has no name for it
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(48.0).reshape(6, 8)[::2, 1::2],
        np.arange(12.0).reshape(4, 3).T,
        np.zeros((0, 4)),
    ],
)
def test_bfloat16_of_another_library_is_fed(values: np.ndarray) -> None:
    brain = Brain(values)
    for dtype in ("float32", "bfloat16"):
        x = mg.var("x", shape=("n", 4), dtype=dtype)
        result = mg.function([x], x * 2.0)(brain)
        assert result.dtype == canonical(dtype)
        np.testing.assert_array_equal(result.astype(np.float32), 2.0 * values)
    np.testing.assert_array_equal(mg.from_dlpack(brain).eval().astype(np.float32), values)


@pytest.mark.parametrize("holder", [mg.Tensor, mg.variable])
def test_what_is_held_takes_what_its_dtype_holds(holder: Any) -> None:
    """Numbers of Python count as a higher kind; what would be cut off or wrap changes nothing."""

    def held(dtype: str) -> tuple[Any, Any]:
        if holder is mg.Tensor:
            tensor = mg.Tensor((2,), init=1, dtype=dtype)
            return tensor.copy_from, tensor.numpy
        variable = mg.variable("v", init=np.ones(2, dtype))
        return variable.assign, lambda: variable.value

    for dtype, value in (
        ("float32", [3, 4]),
        ("float32", np.array([3, 4], ">f8")),
        ("float16", np.array([3, 4], "<f2")),
        ("float32", Brain(np.array([3.0, 4.0]))),
        ("int8", np.array([3, 4], ">i8")),
        ("complex64", [3, 4.0]),
        ("bool", [True, True]),
    ):
        write, read = held(dtype)
        if holder is mg.Tensor and isinstance(value, Brain):
            continue  # it has no shape
        write(value)
        assert read().dtype == dtype
        np.testing.assert_array_equal(read(), [1, 1] if dtype == "bool" else [3, 4])
    for dtype, value in (
        ("int32", [2.5, 1]),
        ("int32", [2.0, 1]),
        ("int32", [2**31, 1]),
        ("int8", np.array([128, 1])),
        ("uint8", [-1, 1]),
        ("float32", [2j, 1]),
        ("float32", [True, False]),
        ("float32", np.array([2**24 + 1, 4])),
        ("bool", [1, 0]),
    ):
        write, read = held(dtype)
        with pytest.raises(mg.DTypeError, match="expected: "):
            write(value)
        np.testing.assert_array_equal(read(), [1, 1])


def test_one_number_that_a_variable_does_not_hold() -> None:
    count = mg.var("count", init=5)
    for value in (2.5, 2**31, np.float64(3), True):
        with pytest.raises(mg.DTypeError, match="variable 'count' is int32, the new value "):
            count.value = value
    count.value = -(2**31)
    assert count.value == -(2**31)
    with pytest.raises(mg.DTypeError, match="variable 'count' is given what is no array: np.as"):
        count.assign(mg.constant(3))


def test_no_elements_are_of_every_kind() -> None:
    x = mg.var("x", shape=("n",), dtype="int32")
    assert mg.function([x], mg.sum(x))([]) == 0
    with pytest.raises(mg.FeedError, match="is fed float64"):
        mg.function([x], mg.sum(x))(np.zeros(0))


def test_what_gives_no_elements_is_a_feed_error() -> None:
    class Meta(Brain):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise ValueError("a tensor without elements")

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("there is nothing to give")

    x = mg.var("x", shape=(3,))
    f = mg.function([x], x * 2.0)
    with pytest.raises(mg.FeedError, match="'x' .* cannot be made an array: "):
        f(Meta(np.ones(3)))
