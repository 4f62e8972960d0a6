"""`mg.Tensor` on the host; what needs a GPU is in tests/gpu/test_tensor_device.py."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest
from needs import missing_gpu

import magmagraph as mg
from magmagraph.ir.values.storage import DeviceStorage, HostStorage, UnifiedStorage, VariableStorage

INDICES = [
    0, -1, (1, -2), slice(1, None), (slice(None), slice(None, None, -1)), (..., 0), (0, ...),
    (None, 1), (slice(-2, None), slice(0, 4, 2)), (-1, -1, -1), slice(2, 2),
]  # fmt: skip


def cube() -> tuple[mg.Tensor, np.ndarray]:
    values = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    return mg.Tensor.of(values), values.copy()


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_indices_are_those_of_numpy(index, turned):
    tensor, array = cube()
    if turned:
        tensor, array = tensor.T[::-1], array.T[::-1]
        index = index if index != (1, -2) else (1, -3)
    assert np.array_equal(tensor[index].numpy(), array[index])
    tensor[index] = -1.0
    array[index] = -1.0
    assert np.array_equal(tensor.numpy(), array)
    assert np.array_equal(tensor[index][..., None].numpy(), np.asarray(array[index])[..., None])


def test_arrays_as_indices_give_copies():
    tensor, array = cube()
    some = tensor[[0, 2]]
    some[...] = 9.0
    assert np.array_equal(tensor.numpy(), array)
    tensor[np.array([0, -1]), 1] = 5.0
    array[np.array([0, -1]), 1] = 5.0
    assert np.array_equal(tensor.numpy(), array)


def test_views_share_memory_and_copies_do_not():
    tensor, array = cube()
    view = tensor.reshape(12, -1).unsqueeze(1).squeeze(1)[-2:]
    view[0] = 7.0
    array.reshape(12, 2)[-2] = 7.0
    assert np.array_equal(tensor.numpy(), array)
    own = tensor.T.reshape(24)  # no strides do this
    own[0] = 1e9
    tensor.copy()[...] = 1e9
    assert np.array_equal(tensor.numpy(), array)
    assert tensor.get(-1, 0, 1) == array[-1, 0, 1]
    tensor.set(3.5, 0, -1, 0)
    assert tensor.get(0, -1, 0) == 3.5
    assert [row.shape for row in tensor] == [(4, 2)] * 3


def test_protocols():
    tensor, array = cube()
    assert np.array_equal(np.asarray(tensor), array)
    assert np.asarray(tensor, np.float64).dtype == np.float64
    assert not np.asarray(tensor).flags.writeable
    assert np.shares_memory(np.asarray(tensor), np.from_dlpack(tensor))
    assert bytes(tensor.buffer()) == array.tobytes()
    if sys.version_info >= (3, 12):
        assert bytes(memoryview(tensor)) == array.tobytes()
    assert not hasattr(tensor, "__cuda_array_interface__")
    x = mg.var("x", shape=(3, 4, 2))
    assert mg.function([x], mg.sum(x))(tensor) == array.sum()
    for twin in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        assert twin.memory == "managed" and np.array_equal(twin.numpy(), array)
        twin[...] = 0.0
    assert np.array_equal(tensor.numpy(), array)


def test_what_it_is_made_of():
    assert mg.Tensor(3).numpy().tolist() == [0.0, 0.0, 0.0]
    assert mg.Tensor((2,), init=[1, 2]).dtype == np.int32
    assert mg.Tensor((2, 2), init=1.5).dtype == np.float32
    assert mg.Tensor((2,), init=np.float64(2.0)).dtype == np.float64
    assert mg.Tensor((2,), init=mg.init.ones(), dtype="float16").dtype == np.float16
    assert mg.Tensor((), init=4.0).item() == 4.0
    assert mg.Tensor((0, 3)).numpy().shape == (0, 3)
    assert len(mg.Tensor((2, 3), memory="host")) == 2


def test_mistakes_change_nothing():
    tensor, array = cube()
    for error, text, action in (
        (mg.ShapeError, "values of shape (5,)", lambda: tensor.__setitem__(0, np.zeros(5, "f4"))),
        (mg.DTypeError, "is given complex64", lambda: tensor.__setitem__(0, np.complex64(1j))),
        (mg.ShapeError, "copy_from", lambda: tensor.copy_from(np.zeros(3, "f4"))),
        (mg.ShapeError, "expected", lambda: tensor.reshape(7, -1)),
        (mg.ShapeError, "squeeze(axis=0)", lambda: tensor.squeeze(0)),
        (mg.ShapeError, "unsqueeze(9)", lambda: tensor.unsqueeze(9)),
        (mg.ShapeError, "a tensor of shape", lambda: mg.Tensor((2,), init=[1.0, 2.0, 3.0])),
        (mg.ShapeError, "a tensor of shape", lambda: mg.Tensor((-1,))),
        (mg.ConfigError, "memory='gpu'", lambda: mg.Tensor((2,), memory="gpu")),
        (mg.ConfigError, "prefetch('disk')", lambda: tensor.prefetch("disk")),
        (mg.ConfigError, "no side", lambda: mg.Tensor(1, memory="host").prefetch("device")),
        (IndexError, "out of bounds", lambda: tensor[3]),
        (IndexError, "out of bounds", lambda: tensor.__setitem__(-4, 0.0)),
    ):
        with pytest.raises(error) as raised:
            action()
        assert text in str(raised.value)
    assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("memory", ["device", "cuda_managed"])
def test_without_cuda_there_is_one_clear_error(memory):
    if missing_gpu() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(mg.DeviceError, match="device='cuda:0'"):
        mg.Tensor((2,), memory=memory)
    with pytest.raises(mg.DeviceError, match="device='cuda:0'"):
        mg.Tensor((2,)).prefetch()
    with pytest.raises(mg.DeviceError, match="device='cuda:0'"):
        mg.Tensor((2,)).cupy()


def test_variables_hold_tensors():
    w = mg.var("w", init=mg.Tensor((2, 2), init=1.0))
    held = mg.Tensor.of(w)
    before = w.state.version
    held[0] = [3.0, 4.0]
    assert w.state.version > before
    step = mg.function([], mg.sum(w), updates={w: w * 2.0})
    assert step() == 9.0
    assert held.numpy().tolist() == [[6.0, 8.0], [2.0, 2.0]]
    w.value = mg.Tensor((2, 2))
    assert not held.numpy().any()


class FakeArrays:
    """A device in the host's memory, which counts copies."""

    name = "fake"

    def __init__(self) -> None:
        self.up = self.down = 0

    def empty(self, count, dtype, unified=False):
        return np.empty(count, dtype)

    def upload(self, target, source):
        self.up += 1
        target[...] = source

    def download(self, target, source):
        self.down += 1
        target[...] = source

    def host_view(self, array):
        return array

    def prefetch(self, array, to_device):
        self.up += to_device


def test_the_mirror_is_brought_up_to_date_when_it_is_read_and_only_then():
    fake = FakeArrays()
    storage = HostStorage(np.arange(3.0), lambda: fake)
    assert (fake.up, fake.down) == (0, 0)
    assert storage.device(write=False).tolist() == [0.0, 1.0, 2.0]
    storage.device(write=False), storage.host(write=False)
    assert (fake.up, fake.down) == (1, 0)
    storage.host(write=True)[0] = 5.0
    assert not storage.device_valid
    assert storage.device(write=True)[0] == 5.0
    storage.device(write=False)[1] = 6.0
    assert not storage.host_valid
    assert storage.host(write=False).tolist() == [5.0, 6.0, 2.0]
    storage.prefetch(to_device=True)
    assert (fake.up, fake.down) == (2, 1)


def test_memory_of_the_device_alone_and_of_both():
    fake = FakeArrays()
    storage = DeviceStorage(np.arange(3.0), lambda: fake)
    taken = storage.host(write=True)
    taken[0] = 4.0
    assert storage.device(write=False)[0] == 0.0
    storage.take(taken)
    assert storage.device(write=False)[0] == 4.0
    unified = UnifiedStorage(np.arange(3.0), lambda: fake)
    unified.host(write=True)[1] = 9.0
    assert unified.device(write=False)[1] == 9.0


def test_a_variable_is_copied_to_the_device_once_for_each_of_its_values():
    fake = FakeArrays()
    w = mg.var("w", init=np.arange(3.0), dtype="float64")
    storage = VariableStorage(w.state, lambda: fake)
    storage.prefetch(to_device=True)
    assert storage.device(write=False).tolist() == [0.0, 1.0, 2.0]
    assert fake.up == 1
    storage.host(write=True)[0] = 5.0
    assert storage.device(write=False).tolist() == [5.0, 1.0, 2.0]
    mg.function([], None, updates={w: w * 2.0}, device="cpu")()
    assert storage.device(write=False).tolist() == [10.0, 2.0, 4.0]
    assert fake.up == 3
    with pytest.raises(BufferError, match="a variable is written by its value"):
        storage.device(write=True)
