"""Whatever arguments a public function is given, it returns, or raises an error of this package."""

from __future__ import annotations

import pytest
from random_calls import make_calls, targets


def test_all_namespaces_are_called() -> None:
    """Each public function, class and method: more than a thousand."""
    names = [target.name for target in targets()]
    assert len(set(names)) == len(names) > 1100
    for name in ("mg.sum", "mg.linalg.svd", "mg.nn.Dense", "mg.schedule.at", "node.__add__",
                 "mg.data.read_npz", "adam.minimize", "tensor.__getitem__"):  # fmt: skip
        assert name in names


def test_random_arguments_end_in_errors_of_this_package() -> None:
    """Each of them at least once."""
    made, failures = make_calls(seed=1, start=0, count=1_500)
    assert made == 1_500
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_many_random_arguments(seed: int) -> None:
    """36,000 calls."""
    made, failures = make_calls(seed, start=0, count=6_000)
    assert made == 6_000
    assert not failures, "\n".join(map(str, failures))
