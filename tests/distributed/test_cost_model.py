"""Links, timelines of plans, simulated ranks, and what is proposed of them."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.distributed.cost.costs import (
    Compute,
    Form,
    Message,
    Start,
    Timeline,
    Wait,
    timeline,
)
from magmagraph.distributed.cost.dry import DryRank
from magmagraph.distributed.cost.measured_rank import spread
from magmagraph.dtypes import tolerance
from magmagraph.ir.ranks import using

LINKS = mg.distributed.Links(3e-6, 1 / 10e9, adding=1 / 50e9)
CLOSE = {"rtol": tolerance(np.dtype("float64"), "reassoc").relative}
LOOSE = math.sqrt(CLOSE["rtol"])  # of what is solved for, not computed


def training_step(optimizer=None):
    """Return a step with two layers of weights, as one process runs it, and feeds for it."""
    x, labels = mg.var("x", shape=("batch", 6)), mg.var("t", shape=("batch",), dtype="int32")
    weights = [
        mg.var(name, shape=shape, init=mg.init.glorot_uniform(seed=i))
        for i, (name, shape) in enumerate([("W", (6, 40)), ("V", (40, 3))])
    ]
    loss = mg.cross_entropy(mg.tanh(x @ weights[0]) @ weights[1], labels)
    optimizer = optimizer or mg.optimizer.Adam(0.1)
    step = optimizer.step(loss, weights, inputs=[x, labels], outputs=loss)
    rng = np.random.default_rng(0)
    return step, (rng.random((64, 6), np.float32), rng.integers(0, 3, 64).astype(np.int32))


# ------------------------------------------------------------------------------ links


def ring_by_turns(size, ranks, links):
    """Return when the last rank of a ring has all sums, each message followed by itself."""
    chunk = size / ranks
    clocks = [0.0] * ranks
    for turn in range(2 * (ranks - 1)):
        sent = [clock + links.latency + chunk * links.seconds_per_byte for clock in clocks]
        add = chunk * links.adding if turn < ranks - 1 else 0.0
        clocks = [max(clocks[i], sent[i - 1]) + add for i in range(ranks)]
    return max(clocks)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("size", [4, 40_000, 400_000_000])
def test_a_ring_takes_what_its_turns_take(ranks, size):
    found = LINKS.reduction(size, ranks, "ring")
    np.testing.assert_allclose(found, ring_by_turns(size, ranks, LINKS), **CLOSE)


def test_the_library_takes_the_fastest_way():
    for size in (4, 4000, 4_000_000, 400_000_000):
        for ranks in (2, 4, 16, 64):
            best = LINKS.reduction(size, ranks)
            assert best <= LINKS.reduction(size, ranks, "ring")
            assert best <= math.log2(ranks) * (LINKS.latency + size * 1.2e-10) * (1 + CLOSE["rtol"])
            # Nothing can be faster than sending all but one's own part, and adding it.
            assert best >= 2 * (ranks - 1) / ranks * size * LINKS.seconds_per_byte * (
                1 - CLOSE["rtol"]
            )


def test_a_torus_is_faster_than_a_ring_where_messages_are_small():
    assert LINKS.reduction(1000, 64, "torus") < LINKS.reduction(1000, 64, "ring") / 3
    np.testing.assert_allclose(
        LINKS.reduction(1000, 7, "torus"), LINKS.reduction(1000, 7, "ring"), **CLOSE
    )


@pytest.mark.parametrize("ranks", [2, 8])
def test_links_are_found_from_reductions(ranks):
    true = mg.distributed.Links(7e-6, 1 / 3e9)
    samples = [(ranks, n, true.reduction(n, ranks)) for n in (4, 100, 10_000, 10**6, 10**8)]
    found = mg.distributed.Links.fit(samples)
    np.testing.assert_allclose([found.latency, found.seconds_per_byte], [7e-6, 1 / 3e9], rtol=LOOSE)
    # At the ranks that were measured the samples count, between and beyond them.
    assert found.reduction(10_000, ranks) == samples[2][2]
    assert samples[2][2] < found.reduction(20_000, ranks) < samples[3][2]
    assert found.reduction(2 * 10**8, ranks) > 1.9 * samples[4][2]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mg.distributed.Links(-1, 0), "Links: latency=-1\n  expected: seconds"),
        (lambda: LINKS.reduction(4, 2, "tree"), "algorithm='tree'\n  expected: one of auto, ring"),
        (lambda: mg.distributed.Links.fit([(2, 4, 1e-6)]), "links of 1 samples"),
        (lambda: mg.distributed.Links.measure(), "one rank has no links"),
    ],
)
def test_wrong_links_are_refused(make, text):
    with pytest.raises(mg.ConfigError) as caught:
        make()
    assert text in str(caught.value)


# ------------------------------------------------------------------------------ timelines


def messages_of(plan):
    return timeline(plan, lambda number, step: Compute(1.0)).messages


@pytest.mark.parametrize("overlap", [False, True])
def test_a_plan_that_is_made_dry_is_that_of_a_rank(overlap):
    """Ranks that are not there give the plan, step by step, that ranks in threads have."""

    def job():
        step, feeds = training_step()
        step = spread(step, "batch")
        step(*(array[mg.distributed.rank() :: 2] for array in feeds))
        return step.plan

    real = mg.distributed.threads(2, job, overlap=overlap)[0]
    step, feeds = training_step()
    with using(DryRank(2, overlap)):
        dry = spread(step, "batch").specialize(*(array[::2].shape for array in feeds)).plan
    assert [step.kernel for step in dry.steps] == [step.kernel for step in real.steps]
    assert messages_of(dry) == messages_of(real)
    rows, gradients = messages_of(dry)
    assert rows == Message(Form.REDUCTION, 8)  # how many all ranks have, in int64
    assert gradients.form is Form.REDUCTION
    # 6 x 40 and 40 x 3 weights in float32 in one message, with which the loss may travel.
    assert gradients.bytes in (4 * 360, 4 * 361)
    assert ("wait" in {step.kernel for step in dry.steps}) == overlap


@pytest.mark.parametrize("overlap", [False, True])
def test_the_copy_of_what_was_added_up_is_no_message(overlap):
    x, held = mg.var("x", shape=(8, 3)), mg.var("held", init=np.zeros((8, 3), "f4"))
    with using(DryRank(2, overlap)):
        total = mg.distributed.allreduce(x)
        plan = mg.function([x], [total, total], {held: total}).specialize((8, 3)).plan
    copies = [step for step in plan.steps if step.kernel == "copy"]
    assert copies and all(step.node.op.name == "allreduce" for step in copies)
    made = timeline(plan, lambda number, step: Compute(1.0))
    assert made.messages == [Message(Form.REDUCTION, 96)]
    assert [e.number for e in made.events if isinstance(e, (Start, Wait))] == [0, 0]


def collective_form(make, ranks=4):
    x = mg.var("x", shape=(8, 3))
    with using(DryRank(ranks)):
        plan = mg.function([x], make(x)).specialize((8, 3)).plan
    (found,) = messages_of(plan)
    return found


@pytest.mark.parametrize(
    ("make", "form", "size"),
    [
        (lambda x: mg.distributed.allreduce(x, "max"), Form.REDUCTION, 96),
        (mg.distributed.allgather, Form.GATHER, 4 * 96),
        (mg.distributed.reduce_scatter, Form.SCATTER, 96),
        (mg.distributed.broadcast, Form.ROOT, 96),
        (mg.distributed.alltoall, Form.EXCHANGE, 96),
        (mg.distributed.permute, Form.MESSAGE, 96),
    ],
)
def test_forms_of_collectives_are_read_off_their_records(make, form, size):
    assert collective_form(make) == Message(form, size)
    for ranks in (1, 2, 16):
        taken = LINKS.seconds(Message(form, size), ranks)
        assert (taken == 0.0) == (ranks == 1)


BUCKETS = Timeline(
    (
        Compute(4e-3),
        Start(1, Message(Form.REDUCTION, 4_000_000)),
        Compute(3e-3),
        Start(2, Message(Form.REDUCTION, 8_000_000)),
        Wait(1),
        Compute(1e-3),
        Wait(2),
        Compute(1e-3),
    )
)


def test_reductions_are_hidden_behind_computing():
    first, second = (LINKS.reduction(size, 8) for size in (4_000_000, 8_000_000))
    assert first < 3e-3
    assert second > 1e-3
    found = BUCKETS.seconds(LINKS, 8)
    np.testing.assert_allclose(found, 7e-3 + second + 1e-3, **CLOSE)
    assert BUCKETS.seconds(LINKS, 1) == BUCKETS.compute
    slow = mg.distributed.Links(3e-6, 1 / 1e9)  # the link is never idle once it has begun
    taken = sum(slow.reduction(size, 8) for size in (4_000_000, 8_000_000))
    np.testing.assert_allclose(BUCKETS.seconds(slow, 8), 4e-3 + taken + 1e-3, **CLOSE)


# ------------------------------------------------------------------------------ simulation


@pytest.mark.parametrize("algorithm", ["auto", "ring", "torus"])
@pytest.mark.parametrize("ranks", [1, 2, 64, 4096])
def test_ranks_that_are_alike_take_what_one_of_them_takes(ranks, algorithm):
    found = mg.distributed.simulate(BUCKETS, LINKS, ranks, algorithm, steps=3)
    wanted = BUCKETS.seconds(LINKS, ranks, algorithm)
    np.testing.assert_allclose(found.seconds, wanted, **CLOSE)
    np.testing.assert_allclose(found.idle, 1 - BUCKETS.compute / wanted, atol=CLOSE["rtol"])


def test_the_slowest_rank_sets_the_pace():
    calm, wild = (
        mg.distributed.simulate(BUCKETS, LINKS, 256, jitter=jitter, steps=50)
        for jitter in (0.0, 0.1)
    )
    # The largest of 256 normal numbers is about 2.8; some of it is hidden behind reductions.
    assert 1.1 * calm.seconds < wild.seconds < math.exp(0.4) * calm.seconds
    again = mg.distributed.simulate(BUCKETS, LINKS, 256, jitter=0.1, steps=50)
    assert again.seconds == wild.seconds
    assert mg.distributed.simulate(BUCKETS, LINKS, 256, jitter=0.1, steps=50, seed=1) != wild


def test_a_server_serves_one_after_the_other():
    """Against a queue that is followed message by message."""
    size = BUCKETS.bytes
    inward = size * (LINKS.seconds_per_byte + LINKS.adding)
    outward = size * LINKS.seconds_per_byte
    for ranks in (1, 3, 10):
        clocks = [0.0] * ranks
        for _ in range(4):
            free = 0.0
            for arrived in sorted(clock + BUCKETS.compute + LINKS.latency for clock in clocks):
                free = max(free, arrived) + inward
            clocks = [free + (i + 1) * outward + LINKS.latency for i in range(ranks)]
        found = mg.distributed.simulate(BUCKETS, LINKS, ranks, "parameter_server", steps=4)
        np.testing.assert_allclose(found.seconds, max(clocks) / 4, **CLOSE)


def test_asynchronous_workers_are_bounded_by_the_server():
    size = BUCKETS.bytes
    inward = size * (LINKS.seconds_per_byte + LINKS.adding)
    alone = mg.distributed.simulate(BUCKETS, LINKS, 1, "async", steps=5)
    round_trip = BUCKETS.compute + 2 * LINKS.latency + inward + size * LINKS.seconds_per_byte
    np.testing.assert_allclose(alone.seconds, round_trip, **CLOSE)
    assert alone.staleness == {0: 5}
    # As many as keep the server busy make as many updates as it can take, and no more.
    many = mg.distributed.simulate(BUCKETS, LINKS, 64, "async", steps=50, jitter=0.1)
    assert inward <= many.seconds / 64 < 1.05 * inward
    ages = np.repeat(*map(np.array, zip(*many.staleness.items(), strict=True)))
    assert len(ages) == 64 * 50
    # Each waits for a turn of all others: an age of 63 but for the first and the last rounds.
    assert 55 < ages.mean() < 63
    assert np.median(ages) == pytest.approx(63, abs=3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ranks": 0}, "ranks=0\n  expected: an int of at least 1"),
        ({"steps": 0}, "steps=0"),
        ({"jitter": -1}, "jitter=-1"),
        ({"algorithm": "gossip"}, "algorithm='gossip'\n  expected: one of auto, ring"),
    ],
)
def test_wrong_simulations_are_refused(options, text):
    with pytest.raises(mg.ConfigError) as caught:
        mg.distributed.simulate(BUCKETS, LINKS, **{"ranks": 2, **options})
    assert text in str(caught.value)


# ------------------------------------------------------------------------------ plans


def test_what_is_measured_is_planned_with_and_nothing_is_changed():
    step, feeds = training_step()
    step(*feeds)
    before = [v.value.copy() for v in step.updated]
    found = mg.distributed.plan(step, *feeds, devices=[1, 2, 4], links=LINKS, repeats=2)
    for variable, value in zip(step.updated, before, strict=True):
        np.testing.assert_array_equal(variable.value, value)
    assert [(p.ranks, p.rows) for p in found.proposals] == [(1, 64), *[(2, 32)] * 3, *[(4, 16)] * 3]
    assert all(p.compute > 0 for p in found.proposals)
    for proposal in found.proposals:
        messages = found.timelines[proposal.ranks].messages
        assert (messages == []) == (proposal.ranks == 1)
        wanted = sum(LINKS.seconds(m, proposal.ranks, proposal.algorithm) for m in messages)
        np.testing.assert_allclose(proposal.waiting, wanted, rtol=LOOSE)  # nothing overlaps
    assert str(found).splitlines()[0].split() == [
        "ranks", "sums", "by", "rows", "ms", "computing", "waiting", "speed-up"
    ]  # fmt: skip


# A machine whose time is that of bytes and products alone.
FAST = mg.distributed.Machine(flops=1e9, bandwidth=1e9)


def test_more_ranks_are_proposed_as_long_as_they_are_worth_it():
    step, feeds = training_step()
    counts = [1, 2, 4, 8]
    free = mg.distributed.plan(
        step, *feeds, devices=counts, links=mg.distributed.Links(0, 0), machine=FAST
    )
    dear = mg.distributed.plan(
        step, *feeds, devices=counts, links=mg.distributed.Links(1.0, 0), machine=FAST
    )
    assert free.best.ranks > 1
    assert free.strategy.algorithm == "allreduce"
    assert dear.best.ranks == 1
    assert dear.strategy is None
    assert "messages take longer than the computation" in dear.explain()
    shared = mg.distributed.plan(
        step, *feeds, devices=counts, links=mg.distributed.Links(0, 0), machine=FAST, cores=1
    )
    assert shared.best.ranks == 1
    assert "1 cores are shared" in shared.explain()


def test_weak_scaling_keeps_the_rows_of_each_rank():
    step, feeds = training_step()
    found = mg.distributed.plan(
        step, *feeds, devices=[1, 16], links=mg.distributed.Links(0, 0), machine=FAST, weak=True
    )
    assert {p.rows for p in found.proposals} == {64}
    many = found.timelines[16].compute
    assert found.throughput(found.best) == pytest.approx(16 * 64 / many)


def test_the_curve_names_what_it_assumes(tmp_path):
    step, feeds = training_step()
    found = mg.distributed.plan(
        step, *feeds, devices=[2**k for k in range(13)], links=LINKS, machine=FAST, weak=True
    )
    speeds = found.curve(tmp_path / "curve.svg", jitter=0.0, steps=2)
    assert list(speeds) == ["all-reduce", "ring", "parameter server", "async"]
    for name, curve in speeds.items():
        assert len(curve) == 13
        assert curve[0] == pytest.approx(1.0)
        assert all(0 < speed <= 1.0001 * 2**k for k, speed in enumerate(curve)), name
    picture = ElementTree.parse(tmp_path / "curve.svg").getroot()
    texts = [e.text for e in picture.iter() if e.tag.endswith("text")]
    assert "64 rows on each rank; a rank computes" in " ".join(map(str, texts))
    assert "links: 3 us and 10 GB/s between any two ranks, no contention but at a server" in texts
    circles = [e for e in picture.iter() if e.tag.endswith("circle")]
    assert len(circles) == 4 * 13
    wide, tall = map(float, picture.get("viewBox").split()[2:])
    for circle in circles:
        assert 0 < float(circle.get("cx")) < wide
        assert 0 < float(circle.get("cy")) < tall


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"devices": True}, "devices=True\n  expected: numbers of ranks, .*\n  try: devices=4"),
        ({"devices": None}, "devices=None"),
        ({"devices": "cuda:0"}, "devices='cuda:0'"),
        ({"devices": [1, 2.5]}, r"devices=\[1, 2.5\]"),
        ({"algorithms": "auto"}, "algorithms='auto'\n  expected: a list of some of auto, ring"),
        ({"algorithms": ("allreduce",)}, r'allreduce.*\n.*\n  try: algorithms=\["auto"\]'),
        ({"algorithms": ()}, r"algorithms=\(\)"),
        ({"cores": 0}, "cores=0\n  expected: a number of 1 or more"),
        ({"repeats": 0}, "repeats=0"),
        ({"weak": "yes"}, "weak='yes'"),
    ],
)
def test_options_of_a_plan_that_mean_nothing_are_refused(options, text):
    step, feeds = training_step()
    with pytest.raises(mg.ConfigError, match=text):
        mg.distributed.plan(step, *feeds, links=LINKS, machine=FAST, **options)


def test_numbers_of_ranks_may_be_numpy_s():
    step, feeds = training_step()
    for devices in (np.int64(2), np.array([2]), (2,), 2):
        found = mg.distributed.plan(step, *feeds, links=LINKS, machine=FAST, devices=devices)
        assert {proposal.ranks for proposal in found.proposals} == {2}


def test_wrong_plans_are_refused():
    step, feeds = training_step()
    with pytest.raises(mg.ConfigError, match="no input has the dimension 'rows'"):
        mg.distributed.plan(step, *feeds, links=LINKS, dim="rows")
    with pytest.raises(mg.ConfigError, match=r"devices=\[0\]"):
        mg.distributed.plan(step, *feeds, links=LINKS, devices=[0])
    with pytest.raises(mg.ConfigError, match=r"links=3\n  expected: mg.distributed.Links"):
        mg.distributed.plan(step, *feeds, links=3)  # type: ignore[arg-type]
    with pytest.raises(mg.ConfigError, match=r"plan is given Node\n  expected: a function"):
        mg.distributed.plan(mg.constant(1.0), *feeds, links=LINKS)
    with pytest.raises(mg.ConfigError, match="one rank has no links"):
        mg.distributed.plan(step, *feeds)
    found = mg.distributed.plan(step, *feeds, devices=2, links=LINKS, machine=FAST)
    with pytest.raises(mg.ConfigError, match="nothing was planned for 3 ranks"):
        found.simulate(3)
    x = mg.var("x", shape=("batch",))
    with using(DryRank(2)):
        spread = mg.function([x], mg.sum(x), distribute=mg.distributed.DataParallel())
    with pytest.raises(mg.ConfigError, match="the function is distributed already"):
        mg.distributed.plan(spread, np.ones(4, np.float32), devices=2, links=LINKS)
