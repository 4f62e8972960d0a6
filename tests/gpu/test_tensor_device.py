"""`mg.Tensor` in all four memories of a machine with a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.function.tensor import MEMORY

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("memory", MEMORY)
def test_values_and_views_are_the_same_in_every_memory(memory: str, rng) -> None:
    array = rng.standard_normal((4, 5, 2)).astype("f4")
    tensor = mg.Tensor((4, 5, 2), init=array, memory=memory)
    assert np.array_equal(tensor.numpy(), array)
    tensor[1:, -2, ::-1] = 3.0
    array[1:, -2, ::-1] = 3.0
    tensor.reshape(20, 2)[[0, -1]] = 2.0
    part = tensor.T[::-1, -3]
    assert np.array_equal(part.numpy(), tensor.numpy().T[::-1, -3])
    if memory != "host":
        assert np.array_equal(part.cupy().get(), part.numpy())
        part.cupy(write=True)[...] = -1.0
        assert (tensor.numpy().T[::-1, -3] == -1.0).all()
    tensor.prefetch("host")


@pytest.mark.parametrize(("first", "second"), list(itertools.product(MEMORY, MEMORY)))
def test_copies_among_all_memories(first: str, second: str, rng) -> None:
    array = rng.standard_normal((3, 7)).astype("f4")
    source = mg.Tensor.of(array, memory=first)
    target = mg.Tensor((3, 7), memory=second)
    assert target.copy_from(source) is target
    assert np.array_equal(target.numpy(), array)
    assert source.copy(second).memory == second


def test_the_mirror_follows_both_sides() -> None:
    tensor = mg.Tensor((3,), init=1.0)
    tensor.prefetch()
    tensor[0] = 5.0
    assert tensor.cupy().get().tolist() == [5.0, 1.0, 1.0]
    tensor.cupy(write=True)[1] = 7.0
    assert tensor.numpy().tolist() == [5.0, 7.0, 1.0]


@pytest.mark.parametrize("memory", ["device", "cuda_managed"])
def test_protocols_and_feeds(memory: str) -> None:
    import cupy

    tensor = mg.Tensor((3,), init=[1.0, 2.0, 3.0], memory=memory)
    for taken in (cupy.asarray(tensor), cupy.from_dlpack(tensor)):
        taken += 1.0
    assert tensor.numpy().tolist() == [3.0, 4.0, 5.0]
    x = mg.var("x", shape=(3,))
    assert float(mg.function([x], mg.sum(x), device="cuda")(tensor)) == 12.0
    assert float(mg.function([x], mg.sum(x), device="cpu")(tensor)) == 12.0


def test_a_variables_tensor_reads_what_the_device_wrote() -> None:
    w = mg.var("w", init=[1.0, 2.0])
    held = mg.Tensor.of(w)
    step = mg.function([], [], updates={w: w * 2.0}, device="cuda")
    step()
    assert held.numpy().tolist() == [2.0, 4.0]
    assert held.cupy().get().tolist() == [2.0, 4.0]
    held[0] = 10.0
    step()
    assert held.cupy().get().tolist() == [20.0, 8.0]
