"""Gradients added up over calls, sent at those that apply them: run by mpiexec, a rank a device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from spread import layers, network

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.distributed import DataParallel, Mesh
from magmagraph.dtypes import canonical, tolerance
from magmagraph.errors import CommunicationError, FeedError, NonFiniteError
from magmagraph.runtime.comm.nccl import NcclRank
from magmagraph.runtime.cuda.launching.segments import Interpreted, Segment

DEVICE = "cuda"
CALLS = 3  # of a step
WIDTHS = [64, 128, 96, 80, 32]
WAYS = ("allreduce", "reduce_scatter", "allgather", "sendrecv", "reduce", "broadcast")
BFLOAT16 = canonical("bfloat16")
EXACT = tolerance(np.dtype(np.float64), "reassoc")

SKIPPED = [1, 2, 0, 1, 1, 1, 2, 0, 1, 2]  # two calls do not count; how many that were

Batch = tuple[np.ndarray, np.ndarray]
Optimizer = Callable[[], Any]


def say(text: str) -> None:
    print(f"rank {ranks.rank()}: {text}", file=sys.stderr, flush=True)


def on_card() -> bool:
    return DEVICE != "cpu"


def momentum() -> Any:
    return mg.optimizer.SGD(0.1, momentum=0.9, accumulate=CALLS)


def adam() -> Any:
    # With the usual eps of 1e-8 a gradient that happens to be as small moves its weight by
    # some 1e6 times its rounding, which differs between products of 24 and of 12 rows.
    return mg.optimizer.Adam(lambda step: 0.05 / (1 + step), eps=1e-3, accumulate=CALLS)


def clipped() -> Any:
    return mg.optimizer.SGD(0.1, clip_norm=0.2, accumulate=CALLS)


STRATEGIES: dict[str, tuple[Callable[[], Any], Optimizer]] = {
    "one message": (DataParallel, momentum),
    "several messages": (lambda: DataParallel(bucket_bytes=20_000), adam),
    "clipped": (DataParallel, clipped),
    "16 bits": (lambda: DataParallel(compression="bfloat16"), momentum),
    "in parts": (lambda: DataParallel(shard_optimizer=True), adam),
    "in parts, clipped": (lambda: DataParallel(shard_optimizer=True), clipped),
    "micro-batches": (lambda: DataParallel(accumulate=2), momentum),
    "ring": (lambda: DataParallel(algorithm="ring"), momentum),
    "server": (lambda: DataParallel(algorithm="parameter_server"), adam),
    "torus": (lambda: DataParallel(algorithm="torus", group=("rows", "columns")), momentum),
}


class Program:
    """A step of a network, with the optimizer that it has; alone, or one rank of some."""

    def __init__(
        self, values: Any, make: Optimizer, strategy: Callable[[], Any] | None = None
    ) -> None:
        self.optimizer = make()
        self.spread = None if strategy is None else strategy()
        self.step, self.held = network(values, lambda: self.optimizer, self.spread)

    def own(self, batch: Batch) -> Batch:
        """Return this rank's rows."""
        place, parts = (0, 1) if self.spread is None else self.spread.shard()
        x, y = batch
        rows = slice(place * len(x) // parts, (place + 1) * len(x) // parts)
        return x[rows], y[rows]

    def call(self, batch: Batch) -> float:
        return float(self.step(*self.own(batch))[0])

    def state(self) -> list[np.ndarray]:
        return [variable.value for variable in self.held]

    def set_calls(self, count: int) -> None:
        self.optimizer.state["calls"].value = np.int64(count)

    @property
    def parts(self) -> list[Any]:
        return [*self.step._last._before, *self.step._last._after]


def close(found: Any, wanted: Any, what: str, limit: Any = EXACT) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, limit.relative, limit.absolute, err_msg=what)


@contextmanager
def sent() -> Iterator[list[int]]:
    """Collect the sizes of arrays of floats that Python gives to NCCL, of more than one."""
    found: list[int] = []
    plain = {name: getattr(NcclRank, name) for name in WAYS}

    def noting(name: str) -> Callable[..., Any]:
        def noted(self: Any, array: Any, *given: Any) -> Any:
            if array.size > 1 and array.dtype.kind in "fV":
                found.append(array.size)
            return plain[name](self, array, *given)

        return noted

    for name in WAYS:
        setattr(NcclRank, name, noting(name))
    try:
        yield found
    finally:
        for name, method in plain.items():
            setattr(NcclRank, name, method)


def batches_of(rng: np.random.Generator, rows: list[int]) -> list[Batch]:
    return [
        (rng.standard_normal((n, WIDTHS[0])), rng.standard_normal((n, WIDTHS[-1]))) for n in rows
    ]


def captured(program: Program) -> None:
    """Check that each sort of call is one graph, and that nothing runs beside it."""
    assert not any(isinstance(part, Interpreted) for part in program.parts)
    (segment,) = (part for part in program.parts if isinstance(part, Segment))
    assert set(segment.graphs) == {(False,), (True,)}, segment.graphs
    assert all(graph is not None for graph in segment.graphs.values())


def strategies(rng: np.random.Generator) -> None:
    """Each call beside one device that has all rows; what is sent, and when."""
    values = layers(rng, WIDTHS)
    batches = batches_of(rng, [24] * 10)
    for name, (strategy, make) in STRATEGIES.items():
        axes = {"rows": 2, "columns": ranks.size() // 2}
        mesh = Mesh(**(axes if name == "torus" else {"all": ranks.size()}))
        alone = Program(values, make)
        wanted = [alone.call(batch) for batch in batches]
        with ranks.use(mesh):
            spread = Program(values, make, strategy)
            found, told = [], []
            for batch in batches:
                with sent() as sizes:
                    found.append(spread.call(batch))
                told.append(len(sizes))
        limit = tolerance(BFLOAT16, "stable") if name == "16 bits" else EXACT
        close([found, *spread.state()], [wanted, *alone.state()], name, limit)
        if on_card():
            captured(spread)
            # The third call sends as it is launched one by one, the sixth as it is captured.
            assert told[2] == told[5] > 0, (name, told)
            assert sum(told) == 2 * told[2], (name, told)
        say(f"{name}: right, sent {told}")


def sizes_in_turn(rng: np.random.Generator) -> None:
    """Plans of two sizes go by one counter, each with graphs of its own."""
    values = layers(rng, WIDTHS)
    batches = batches_of(rng, [16, 13, 13, 16, 13] * 5)
    alone, spread = Program(values, momentum), Program(values, momentum, DataParallel)
    wanted = [alone.call(batch) for batch in batches]
    close([[spread.call(b) for b in batches], *spread.state()], [wanted, *alone.state()], "sizes")
    say("two sizes in turn: right")


def loops(rng: np.random.Generator) -> None:
    """Many steps without Python between them, from any place in the cycle, and calls between."""
    values = layers(rng, WIDTHS)
    batch = batches_of(rng, [24])[0]
    for strategy in (DataParallel, lambda: DataParallel(shard_optimizer=True)):
        alone, spread = Program(values, adam), Program(values, adam, strategy)
        for count in (7, 1, 25, 3, 40, 1, 1, 50, 50):
            wanted = [alone.call(batch) for _ in range(count)]
            if count == 1:
                found = [spread.call(batch)]
            else:
                found = np.asarray(host(spread.step.run(count, spread.own(batch))[0])).tolist()
            close([found, *spread.state()], [wanted, *alone.state()], f"{count} steps")
    if on_card():
        graphs = spread.step._last._plain_loop._graphs
        assert len(graphs) < 16, [len(key) for key in graphs]
    # Epochs of batches whose number is no multiple of the calls of a step.
    rows = batches_of(rng, [24 * 10 + 6])[0]
    alone, spread = Program(values, momentum), Program(values, momentum, DataParallel)
    own = spread.own(rows)
    given = mg.batches(*own, size=len(own[0]) // 10, shuffle=False)
    size, count = len(own[0]) // 10, len(own[0])
    for _ in range(3):
        host(spread.step.run(given, keep="last")[0])
        for start in range(0, count, size):
            stop = min(start + size, count)
            picked = np.concatenate([
                np.arange(r * count + start, r * count + stop) for r in range(ranks.size())
            ])  # fmt: skip
            alone.call((rows[0][picked], rows[1][picked]))
        close(spread.state(), alone.state(), "epochs")
    say("many steps at a time: right")


def host(array: Any) -> np.ndarray:
    return np.asarray(array.get() if hasattr(array, "get") else array)


def changed_between(rng: np.random.Generator) -> None:
    """The counter is set, saved and loaded, and a rank alone cannot set it."""
    values = layers(rng, WIDTHS)
    batches = batches_of(rng, [24] * 40)
    alone, spread = Program(values, adam), Program(values, adam, DataParallel)
    given = iter(batches)

    def calls(count: int, what: str) -> None:
        for _ in range(count):
            batch = next(given)
            close([[spread.call(batch)]], [[alone.call(batch)]], what)
        close(spread.state(), alone.state(), what)

    calls(7, "begun")
    for count in (2, 0, 1):
        for program in (alone, spread):
            program.set_calls(count)
        calls(4, f"calls set to {count}")
    saved = [(p.optimizer.state_dict(), p.state()) for p in (alone, spread)]
    kept = batches[19:24]
    given = iter(kept)
    calls(5, "before loading")
    after = spread.state()
    for program, (state, weights) in zip((alone, spread), saved, strict=True):
        program.optimizer.load_state_dict(state)
        for variable, value in zip(program.held, weights, strict=True):
            variable.value = value
    given = iter(kept)
    calls(5, "loaded")
    close(spread.state(), after, "loaded")
    given = iter(batches[24:])
    # Something else than the step writes the counter on the card.
    for program in (alone, spread):
        counter = program.optimizer.state["calls"]
        mg.function([], [], updates={counter: (counter + 1) % CALLS}, device=DEVICE)()
    calls(4, "written by another function")
    if on_card():
        before = int(spread.optimizer.state["calls"].value)
        state = spread.state()
        if ranks.rank() == 0:
            spread.set_calls((before + 1) % CALLS)
        with pytest.raises(CommunicationError, match="'calls'.* differs between ranks: "):
            spread.call(batches[30])
        for one, other in zip(spread.state(), state, strict=True):
            np.testing.assert_array_equal(one, other)
        spread.set_calls(before)
        calls(4, "set on every rank again")
        assert spread.step.profile(*spread.own(batches[0])).steps
        calls(4, "profiled")
    say("set, saved and loaded: right")


def failures(rng: np.random.Generator) -> None:
    """A call that raises does not count: on no rank, whichever of them raises."""
    values = layers(rng, WIDTHS)
    batches = batches_of(rng, [24] * 12)
    alone, spread = Program(values, momentum), Program(values, momentum, DataParallel)
    last = ranks.rank() == ranks.size() - 1
    for number, batch in enumerate(batches):
        if number % 2:
            x, y = spread.own(batch)
            with pytest.raises(FeedError):
                spread.step(x[:, 1:] if last else x, y)
        close([[spread.call(batch)]], [[alone.call(batch)]], f"call {number}")
    close(spread.state(), alone.state(), "feeds")

    x, w = mg.input("x", ("batch", 4), "float64"), mg.var("w", init=np.ones(4))
    step = momentum().step(
        mg.mean(mg.sqrt(x @ w)), [w], [x], device=DEVICE, nan="raise", distribute=DataParallel()
    )
    plain = mg.var("w", init=np.ones(4))
    own = momentum().step(mg.mean(mg.sqrt(x @ plain)), [plain], [x], device=DEVICE)
    rows = rng.uniform(1.0, 2.0, (12, 4 * ranks.size(), 4))
    for number, feed in enumerate(rows):
        mine = feed[4 * ranks.rank() : 4 * ranks.rank() + 4]
        if number in (1, 2, 5, 8):
            with pytest.raises(NonFiniteError):
                step(-mine if last else mine)
        step(mine)
        own(feed)
        close([w.value], [plain.value], f"finite call {number}")
    say("calls that raise: right")


def precisions(rng: np.random.Generator) -> None:
    """16-bit products; where one device skips a call for its gradients, all ranks do."""
    rows = rng.standard_normal((9, 8 * ranks.size(), 32)).astype(np.float32)
    start = 0.2 * rng.standard_normal((32, 32)).astype(np.float32)

    def job(strategy: Any, precision: str) -> tuple[list[float], list[int], np.ndarray]:
        x, w = mg.input("x", ("batch", 32)), mg.var("w", init=start)
        optimizer = momentum()
        loss = mg.mean(mg.square(mg.tanh(x @ w) @ w))
        step = optimizer.step(
            loss, [w], [x], [loss], device=DEVICE, precision=precision, distribute=strategy
        )
        losses, counted = [], []
        place, parts = (0, 1) if strategy is None else strategy.shard()
        for number, feed in enumerate(rows):
            if precision == "float16" and number in (4, 6):  # no float16 at first, then one again
                step.loss_scale.scale.value = np.float32(2.0**30 if number == 4 else 2.0**10)
            mine = feed[place * len(feed) // parts : (place + 1) * len(feed) // parts]
            losses.append(float(step(mine)[0]))
            counted.append(int(optimizer.state["calls"].value))
        if precision == "float16":
            counted.append(int(step.loss_scale.skipped.value))
        return losses, counted, w.value

    for precision in ("bfloat16", "float16"):
        for options in ({}, {"shard_optimizer": True}):
            losses, counted, w = job(DataParallel(**options), precision)
            wanted, told, value = job(None, precision)
            assert counted == told, (precision, counted, told)
            assert told == ([1, 2, 0] * 3 if precision == "bfloat16" else SKIPPED), told
            limit = tolerance(canonical(precision), "stable")
            close([losses, w], [wanted, value], precision, limit)
    say("16-bit products: right")


def main(device: str = "cuda", *names: str) -> None:
    global DEVICE
    DEVICE = mg.config.device = device  # the CPU's ranks are right in the same checks
    world = ranks.init()
    assert world.size % 2 == 0
    rng = np.random.default_rng(11)
    for check in (strategies, sizes_in_turn, loops, changed_between, failures, precisions):
        if not names or check.__name__ in names:
            check(rng)
    mg.synchronize()
    say("all right")


if __name__ == "__main__":
    main(*sys.argv[1:])
