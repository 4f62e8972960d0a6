"""SciPy's library runs small work on one thread, and gets its threads back."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401, for the library that it loads

import magmagraph as mg
from magmagraph.runtime.cpu.products import second_blas
from magmagraph.runtime.cpu.products.second_blas import one_thread


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> second_blas.Blas:
    """Give SciPy's library with two threads."""
    found = second_blas._library()
    if found is None:
        pytest.skip("SciPy has no library of its own here, or one that does not tell its threads")
    before = found.threads()
    assert before is not None
    found.set_threads(2)
    if found.threads() != 2:
        pytest.skip("SciPy's library was started for one thread only")
    yield found
    found.set_threads(before)


def test_threads_come_back(library: second_blas.Blas) -> None:
    with one_thread():
        assert library.threads() == 1
        with one_thread():
            assert library.threads() == 1
        assert library.threads() == 1, "only the last one out sets them back"
    assert library.threads() == 2
    with pytest.raises(RuntimeError, match="inside"), one_thread():
        raise RuntimeError("inside")
    assert library.threads() == 2


def test_threads_come_back_after_many_at_once(library: second_blas.Blas) -> None:
    barrier = threading.Barrier(4)
    seen: list[int | None] = []

    def work() -> None:
        barrier.wait()
        for _ in range(50):
            with one_thread():
                seen.append(library.threads())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(seen) == {1}
    assert library.threads() == 2


@pytest.mark.parametrize(("order", "threads"), [(40, 1), (1500, 2)])
def test_small_steps_run_on_one(
    order: int, threads: int, library: second_blas.Blas, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int | None] = []
    from magmagraph.ops.linalg.functions import EXPM

    x = mg.input("x", ("n", "n"), "float64")
    f = mg.function([x], mg.linalg.expm(x))

    def watched(xp: object, a: np.ndarray) -> object:
        seen.append(library.threads())
        return a

    monkeypatch.setitem(EXPM.__dict__, "evaluate", watched)
    f(np.eye(order))
    assert seen == [threads]
    assert library.threads() == 2
