"""Which collectives become one message."""

from __future__ import annotations

from collections.abc import Sequence

import magmagraph as mg
from magmagraph.ir.graph import Graph, Node, freeze
from magmagraph.ir.identity import index_of, is_among
from magmagraph.ops.collective.whole import ALLREDUCE
from magmagraph.passes.distribute.buckets import buckets

KIB = 1 << 10


def total(value: Node) -> Node:
    """Return the sum over two ranks."""
    return ALLREDUCE(value, op="sum", group=(), size=2)


def given(name: str, kib: int = 1, dtype: str = "float32") -> Node:
    return mg.input(name, (kib * KIB // mg.finfo(dtype).dtype.itemsize,), dtype)


def sums(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op is ALLREDUCE]


def named(found: Sequence[Sequence[Node]]) -> list[list[str | None]]:
    """Return the names of what each message has the sums of."""
    return [[node.inputs[0].name for node in bucket] for bucket in found]


def test_small_sums_are_one_message_up_to_its_limit() -> None:
    inputs = [given(name) for name in "abcd"]
    graph = freeze(inputs, [total(x) for x in inputs])
    assert named(buckets(graph, 4 * KIB)) == [["a", "b", "c", "d"]]
    assert named(buckets(graph, 2 * KIB)) == [["a", "b"], ["c", "d"]]
    assert named(buckets(graph, 0)) == [["a"], ["b"], ["c"], ["d"]]


def test_dtypes_and_what_stays_apart_have_messages_of_their_own() -> None:
    inputs = [given("a"), given("b", dtype="float64"), given("c"), given("d", dtype="float64")]
    graph = freeze(inputs, [total(x) for x in inputs])
    assert named(buckets(graph, KIB << 10)) == [["a", "c"], ["b", "d"]]
    apart = {node for node in sums(graph) if node.inputs[0].name in ("c", "d")}
    assert named(buckets(graph, KIB << 10, apart=apart)) == [["a"], ["b"], ["c"], ["d"]]


def test_what_another_sum_depends_on_does_not_wait_for_it() -> None:
    """However many operations lie between them: the message would wait for itself."""
    inputs = [given(name) for name in "abc"]
    a, b, c = inputs
    first = total(a)
    behind = mg.exp(mg.tanh(first)) + b
    graph = freeze(inputs, [total(behind), total(c)])
    early, *others = sums(graph)
    assert early.inputs[0].name == "a"
    (bucket,) = (bucket for bucket in buckets(graph, KIB << 10) if is_among(early, bucket))
    assert bucket == [early]
    assert sum(len(bucket) for bucket in buckets(graph, KIB << 10)) == 1 + len(others)


def end(dtype: str = "float32", alike: bool = True) -> list[list[str | None]]:
    """Return the messages of three large arrays, and of a small one made before the very last."""
    inputs = [
        given("a", 16), given("b", 16), given("early", 1, dtype), given("late", 12, dtype),
    ]  # fmt: skip
    a, b, early, late = inputs
    for _ in range(8):
        late = mg.tanh(late)
    results = [total(mg.tanh(a)), total(mg.tanh(b)), total(mg.tanh(early)), total(late)]
    graph = freeze(inputs, results)
    members = sums(graph)
    found = buckets(graph, 16 * KIB, apart=set() if alike else set(members[2:]))
    return [[str(index_of(members, node)) for node in bucket] for bucket in found]


def test_little_is_left_for_the_end() -> None:
    assert end() == [["0"], ["1", "2"], ["3"]]
    assert end("float64") == [["0"], ["1"], ["2", "3"]]  # another dtype is another message
    assert end(alike=False) == [["0"], ["1"], ["2", "3"]]
