"""How an algorithm of a product library is chosen by its times; no device is needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from magmagraph.runtime.cuda.products.gemm_trials import _in_turn, _random


def times(*values: float) -> Callable[[], float]:
    """Return what gives some times one after the other, the last again and again."""
    held = list(values)
    return lambda: held.pop(0) if len(held) > 1 else held[0]


def test_the_best_for_a_while_is_chosen_not_the_best_at_first() -> None:
    found = [(9.0, 0, times(9.5)), (8.0, 1, times(8.0, 12.0)), (30.0, 2, times(1.0))]
    more = [(10.0 + i, 3 + i, times(11.0)) for i in range(3)]
    number, taken = _in_turn([*found, *more])
    assert (number, taken) == (0, 9.5), "of the four that were best at first"
    assert _in_turn(found) == (2, 1.0)


def test_where_nothing_runs_the_first_is_chosen_and_no_time_known() -> None:
    assert _in_turn([]) == (0, 0.0)


def test_factors_of_trials_are_random_numbers() -> None:
    for dtype, size in (("float64", 8), ("float32", 4), ("float16", 2), ("bfloat16", 2)):
        raw = _random(dtype)
        assert raw.dtype == f"u{size}"
        wide = raw.astype("u4") << 16 if dtype == "bfloat16" else raw
        numbers = wide.view("f4" if dtype == "bfloat16" else dtype).astype("f8")
        assert abs(numbers.mean()) < 0.02 and abs(numbers.std() - 1) < 0.02
        assert len(np.unique(raw)) > 1000
