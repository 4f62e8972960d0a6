"""Batches that a thread makes ahead: order, bounds, errors, and threads that end."""

import threading

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import DataError


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_the_same_batches_in_the_same_order():
    x, y = np.arange(23.0), np.arange(23)
    plain = mg.data.batches(x, y, size=5, seed=3)
    ahead = mg.data.prefetch(mg.data.batches(x, y, size=5, seed=3), depth=3)
    assert len(ahead) == len(plain) == 5
    for _ in range(2):  # an epoch each
        for one, other in zip(plain, ahead, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert not threads()


def test_no_more_wait_than_the_depth():
    """The source is asked for the depth, one in the making and one in use, and no more."""
    asked = []
    room = threading.Semaphore(0)

    def source():
        for i in range(100):
            asked.append(i)
            room.release()
            yield i

    members = iter(mg.data.prefetch(source(), depth=3))
    assert next(members) == 0
    for _ in range(5):  # 0 to 4 are made or in the making; then the thread waits
        assert room.acquire(timeout=10)
    assert not room.acquire(timeout=0.2)
    assert asked == [0, 1, 2, 3, 4]
    members.close()
    assert not threads()


def test_an_error_is_raised_at_its_place():
    def source():
        yield 1
        yield 2
        raise ValueError("the third is broken")

    members = iter(mg.data.prefetch(source(), depth=5))
    assert [next(members), next(members)] == [1, 2]
    with pytest.raises(ValueError, match="the third is broken"):
        next(members)
    assert not threads()

    def halve(batch):
        return 1 / batch

    members = iter(mg.data.prefetch([2, 0, 1], transform=halve))
    assert next(members) == 0.5
    with pytest.raises(ZeroDivisionError):
        next(members)


def test_leaving_early_ends_the_thread():
    for batch in mg.data.prefetch(mg.data.batches(np.arange(1000), size=2), depth=2):
        assert len(batch[0]) == 2
        break
    assert not threads()


def test_it_trains(rng):
    """Through the thread or not, the same updates of the weights."""
    x = rng.normal(size=(64, 3)).astype("float32")
    target = (x @ np.array([1.0, -2.0, 0.5])).astype("float32")
    found = []
    for ahead in (False, True):
        a, b = mg.input("a", ("batch", 3)), mg.input("b", ("batch",))
        w = mg.var("w", init=np.zeros(3, "float32"))
        loss = mg.mean((a @ w - b) ** 2)
        step = mg.optimizer.SGD(0.1).step(loss, [w], inputs=[a, b], outputs=[loss])
        rows = mg.data.batches(x, target, size=10, seed=0)
        for _ in range(3):
            for batch in mg.data.prefetch(rows) if ahead else rows:
                step(*batch)
        found.append(w.value)
    assert np.array_equal(*found)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mg.data.prefetch([1], depth=0), DataError, "prefetch: depth=0"),
        (lambda: mg.data.prefetch(3), DataError, "prefetch: int cannot be gone through"),
        (lambda: mg.data.prefetch([1], device="tpu"), DataError, "prefetch: device='tpu'"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_the_host_is_a_device_too():
    assert next(iter(mg.data.prefetch([np.arange(2)], device="cpu"))).tolist() == [0, 1]
