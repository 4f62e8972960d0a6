"""Give every attribute of every operation hostile values of its own type, in texts.

Run by the tests in a process of its own, with little memory: ``python hostile_attributes.py 0 4``
tries a quarter of the operations, and prints what became of their texts; a third number n runs the
passes, which make operations of their own, on every n-th program only.
``MAGMAGRAPH_COMPILER=off`` saves the time of the compiler. Each text should be refused with its
line; or its graph is read, and a call returns, or raises an error of this package.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import resource
import sys
import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from mutated_texts import texts
from table import leaves, results, sample_of, samples

import magmagraph as mg
from magmagraph.errors import GraphError, MagmagraphError, PlanError
from magmagraph.ir.graph import Graph, Node, Trace, freeze, topological
from magmagraph.ir.op import Call, Kind, Op
from magmagraph.ops import TABLE
from magmagraph.ops.control.identities import ITEM
from magmagraph.ops.control.loop import PULLBACK
from magmagraph.passes import pipeline
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

OPS = {name: op for name, op in TABLE.items() if isinstance(op, Op)}


def programs() -> Iterator[list[Node]]:
    """Yield nodes whose graphs have operations of every kind."""
    for name, i in samples():
        record, sample = sample_of(name, i)
        operands, feeds = leaves(sample.inputs)
        outputs = [n for n in results(record.function(*operands, **sample.attrs))  # type: ignore[misc]
                if isinstance(n, Node)]  # fmt: skip
        yield outputs
        for leaf in feeds:
            try:
                yield [mg.grad(mg.sum(outputs[0] * outputs[0]), leaf)]
            except MagmagraphError:
                continue
    yield from ([*load(text).outputs] for text in texts() if not text.startswith("plan"))
    yield from others()


def others() -> Iterator[list[Node]]:
    """Yield nodes of operations that the samples of no record make."""
    x, square = mg.input("x", (3,)), mg.input("square", (3, 3))
    half = mg.input("half", (3,), "float16")
    yield [mg.debug.print(x, "x"), mg.debug.assert_(x > 0.0, x, "positive")]  # noqa: PT009
    yield [mg.cond(mg.sum(x) > 0.0, lambda a: a + 1.0, lambda a: a * 2.0, x)]
    yield [mg.vmap(lambda row: mg.convolve(row, mg.exp(row)))(square)]
    yield [mg.checkpoint(lambda a: mg.checkpoint_name(mg.exp(a), "e") * a)(x)]
    yield [mg.fixed_point(mg.cos, x)[0], *mg.op_from_graph([x], [mg.exp(x)])(x)]
    yield [mg.linalg.solve(square, x), mg.linalg.det(square), mg.linalg.inv(square)]
    yield [mg.sum(half @ half), square.mT @ square, mg.angle(mg.fft.rfft(x))]
    last = mg.while_loop(lambda c: mg.sum(c) < 9.0, lambda c: c * 2.0, x)
    node = last.inputs[0]
    yield [PULLBACK(*node.inputs, x, results=(x.type,), **node.attrs)]


def passed(outputs: list[Node]) -> Iterator[Node]:
    """Yield all nodes that passes make of a program."""
    with contextlib.suppress(MagmagraphError):
        _, report = pipeline.run(freeze([], outputs), Trace())
        for _, _, after in report.steps():
            if isinstance(after, Graph):
                yield from _inside(after)


def _inside(graph: Graph) -> Iterator[Node]:
    for node in topological(graph.roots):
        yield node
        for value in node.attrs.values():
            for body in value if isinstance(value, tuple) else (value,):
                if isinstance(body, Graph):
                    yield from _inside(body)


def found_nodes(names: set[str], every: int) -> dict[str, Node]:
    """Return a node of each operation that is wanted and that the programs have."""
    nodes: dict[str, Node] = {}
    all_programs = list(programs())
    for node in chain(
        chain.from_iterable(_inside(freeze([], outputs)) for outputs in all_programs),
        chain.from_iterable(map(passed, all_programs[::every])),
    ):
        nodes.setdefault(node.op.name, node)
        if names <= nodes.keys():
            break
    return nodes


INTS = (-1, 0, 1, 2, 5, 7, 64, 2**31, 2**62, 2**63 - 1, -(2**63))
VALUES: tuple[Any, ...] = (
    *INTS, 2**64 - 1, 0.0, -1.0, 0.5, 1e308, float("nan"), float("inf"), True, False, None,
    "", "*/", "wrap", "a" * 10_000, np.dtype("int8"), np.dtype("complex64"), np.dtype("bool"),
    np.dtype("float16"), np.dtype("float64"), (), (0,), (3,), (2**40,), (0, 0), (1, 0), (3, 3),
    (-1,), (7,), (2, 2, 2), (1,) * 70, (2**31, 2**31), ((0, 1),), (mg.Dim("n"),), mg.Dim("n"),
    (True,), (False, True), ("a",), np.ones(3), np.zeros((0, 3)), np.array(2.0),
    np.array(7, np.int64), np.array([2**62, -1]), mg.Type(np.dtype("float32"), (3,)),
    mg.Type(np.dtype("int64"), (mg.Dim("n"),)),
)  # fmt: skip


def bodies() -> list[Graph]:
    """Return bodies with other parameters than a node expects."""
    texts_of_bodies = (
        "%0 = constant(value=1.0) : float32[]\nreturn %0",
        "%0 = parameter(index=0) : float32[3]\n%1 = exp(%0) : float32[3]\nreturn %1",
        "%0 = parameter(index=0) : int64[n]\nreturn %0, %0",
        "%0 = parameter(index=7) : bool[]\nreturn %0",
    )
    return [load(text) for text in texts_of_bodies]


def changed(value: Any, expected: str) -> Iterator[Any]:
    """Yield hostile values for an attribute that has a value."""
    yield from VALUES
    yield from bodies()
    if expected.startswith("Literal"):
        yield from (part.strip(" '") for part in expected[len("Literal[") : -1].split(","))
    if isinstance(value, tuple):
        yield value + value
        yield value[:-1]
        yield value[::-1]
        for place, member in enumerate(value[:4]):
            if isinstance(member, int):
                yield from ((*value[:place], number, *value[place + 1 :]) for number in INTS)
    if isinstance(value, Graph):
        yield (value,)


def text_of(op: Op, operands: tuple[Node, ...], attrs: dict[str, Any], type_: Any) -> str:
    """Return the text of a graph with one operation, of the type that its rule gives, if any."""
    with contextlib.suppress(Exception):  # where the rule fails, reading has to refuse the text
        type_ = op.rule(Call(op, operands), *[node.type for node in operands], **attrs)
    node: Node = Node(op, operands, attrs, type_)
    if isinstance(type_, tuple) and type_:
        node = Node(ITEM, (node,), {"index": 0}, type_[0])
    return str(dump(freeze(list(operands), [node])))


ELEMENTS = 20_000  # of all nodes together, where a function is called


def elements(node: Node) -> float:
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    shapes = [[3 if isinstance(e, mg.Dim) else e for e in each.shape] for each in types]
    return sum(float(np.prod(np.array(shape, np.float64))) for shape in shapes)


def tried(text: str) -> str:
    """Return what became of a text: refused, read, called, or an error that is of no user."""
    try:
        graph = load(text)
    except (GraphError, PlanError) as error:
        right = str(error).startswith("line ") and len(str(error)) < 2000
        return "refused" if right else f"no line: {error}"
    below = topological(graph.roots)
    if any(node.op.kind is Kind.COLLECTIVE for node in below):
        return "read"  # it needs other ranks
    if sum(map(elements, below)) > ELEMENTS:
        return "read"
    feeds = []
    for leaf in graph.inputs:
        shape = tuple(3 if isinstance(e, mg.Dim) else e for e in leaf.type.shape)
        feeds.append(np.ones(shape, leaf.dtype))
    try:
        mg.function(list(graph.inputs), list(graph.outputs))(*feeds)
    except MagmagraphError as error:
        inside = isinstance(error, mg.errors.PassError) and error.__cause__ is not None
        return f"inside: {error}" if inside else "refused by a call"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "called"


def operands_of(node: Node) -> tuple[Node, ...]:
    return tuple(
        mg.input(f"x{i}", operand.type.shape, operand.dtype)
        for i, operand in enumerate(node.inputs) if not isinstance(operand.type, tuple)
    )  # fmt: skip


def trials(name: str, node: Node | None) -> Iterator[str]:
    """Yield texts that give each attribute of an operation hostile values."""
    op = OPS[name]
    if node is not None and len(operands_of(node)) == len(node.inputs):
        starts = [(operands_of(node), dict(node.attrs), node.type)]
    else:
        from attribute_examples import example

        attrs = {key: example(each.expected) for key, each in op.schema.attributes.items()}
        type_ = mg.Type(np.dtype("float32"), (3,))
        starts = [
            (tuple(mg.input(f"x{i}", (3,), dtype) for i in range(count)), attrs, type_)
            for count in range(4) for dtype in ("float32", "int64")
        ]  # fmt: skip
    for operands, attrs, type_ in starts:
        for key, attribute in op.schema.attributes.items():
            for value in changed(attrs.get(key), attribute.expected):
                others = {**attrs, key: value}
                if op.schema.fault(others) is not None:
                    continue  # tests/test_attributes.py tries values of other types
                try:
                    yield text_of(op, operands, others, type_)
                except (MagmagraphError, TypeError, ValueError, AttributeError):
                    continue  # no text can say it


def main(part: int, parts: int, every: int = 1) -> None:
    """Try a part of the operations; print what became of the texts of each."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    warnings.simplefilter("ignore")
    names = [name for name in sorted(OPS) if OPS[name].schema.attributes][part::parts]
    nodes = found_nodes(set(names), every)
    for name in names:
        counts: dict[str, int] = {}
        bad: list[str] = []
        for text in dict.fromkeys(trials(name, nodes.get(name))):
            print(json.dumps({"trying": text[:3000]}), file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(20.0, exit=True)
            with contextlib.redirect_stdout(sys.stderr):  # some operations print
                end = tried(text)
            faulthandler.cancel_dump_traceback_later()
            if end not in ("refused", "read", "called", "refused by a call"):
                bad.append(f"{end[:300]}\n{text[:1500]}")
                end = "bad"
            counts[end] = counts.get(end, 0) + 1
        print(json.dumps({"name": name, "counts": counts, "bad": bad}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
