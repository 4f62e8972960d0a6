"""Links that are measured over real ranks, and plans that are made with them."""

from __future__ import annotations

import numpy as np

import magmagraph as mg


def linked():
    found = mg.distributed.Links.measure()
    return found.latency, found.seconds_per_byte, found.samples


def test_links_are_measured_alike_on_all_ranks(on_ranks):
    one, other = on_ranks(2, linked)
    assert one == other
    latency, seconds_per_byte, samples = one
    assert latency >= 0
    assert seconds_per_byte > 0
    sizes = [size for ranks, size, taken in samples if ranks == 2 and taken > 0]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 2**24
    # The longest message takes longer than the shortest, by its bytes.
    found = mg.distributed.Links(latency, seconds_per_byte, samples=samples)
    assert found.reduction(2**24, 2) > found.reduction(16, 2)


def shared():
    """Measure what ranks lose to each other, and return it with what one rank loses to nobody."""
    found = mg.distributed.Sharing.measure()
    return found, mg.distributed.rank()


def test_what_ranks_share_is_the_same_on_all(on_ranks):
    (one, _), (other, rank) = on_ranks(2, shared, timeout=60)
    assert one == other
    assert (one.ranks, rank) == (2, 1)
    assert one.product >= 1.0
    assert one.memory >= 1.0
    assert 0 <= one.late < 0.01
    assert one.bandwidth > 1e8  # bytes a second: any memory is faster


def planned():
    """Plan on all ranks, and run the step in between as a job does."""
    x = mg.var("x", shape=("batch", 8))
    w = mg.var("w", init=np.ones((8, 4)), dtype="float32")
    loss = mg.mean((x @ w) ** 2)
    step = mg.optimizer.SGD(0.01).step(loss, [w], inputs=[x], outputs=loss)
    feeds = np.ones((64, 8), np.float32)
    sharing = mg.distributed.Sharing(2, product=1.5, memory=2.0)
    found = mg.distributed.plan(step, feeds, devices=[1, 2], repeats=2, sharing=sharing)
    assert np.all(w.value == 1.0)
    return [(p.ranks, p.rows, p.algorithm) for p in found.proposals], found.links.latency


def test_a_plan_can_be_made_inside_of_a_job(on_ranks):
    (one, latency), (other, again) = on_ranks(2, planned)
    assert one == other
    assert latency == again
    assert one[0] == (1, 64, "auto")
    assert {p[:2] for p in one[1:]} == {(2, 32)}
