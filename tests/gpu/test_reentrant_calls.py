"""A call within a call of one function and thread, on a device: refused, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from interleaving import places

import magmagraph as mg

pytestmark = pytest.mark.gpu


def test_a_call_within_a_call_is_refused_on_a_device() -> None:
    x = mg.input("x", shape=(64,))
    count = mg.var("count", init=np.zeros(3, np.float32))
    f = mg.function([x], mg.sum(x * 2.0), updates={count: count + 1.0}, device="cuda")
    first, second = np.ones(64, np.float32), np.full(64, -3.0, np.float32)
    assert float(f(first)) == 128.0
    done, answered, refused = 1, 0, 0

    def act() -> None:
        nonlocal answered, refused
        try:
            assert float(f(second)) == -384.0
            answered += 1
        except mg.ReentrantError:
            refused += 1

    for number, result in places(lambda: f(first), act, stride=5):
        done += 1
        assert float(result) == 128.0, number
    f(first)
    assert refused > 10
    assert (count.value == done + answered + 2).all()  # the last place is behind the last call
