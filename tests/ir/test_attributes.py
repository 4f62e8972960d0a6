"""The attributes of operations: every record's schema, and values that no graph may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from attribute_examples import example
from regions import make_body, region_of
from table import leaves, results, sample_of, samples, together

import magmagraph as mg
from magmagraph.codegen.c.step import step_code
from magmagraph.codegen.cuda.counting_code import Counting, counting_source
from magmagraph.codegen.cuda.few_channels_code import FewChannels
from magmagraph.codegen.cuda.few_channels_code import source as channels_source
from magmagraph.codegen.cuda.gathering_code import Gathering, gathering_source
from magmagraph.codegen.cuda.group_sums_code import GroupSums, group_sums_source
from magmagraph.codegen.cuda.kernels import RegionKernels
from magmagraph.codegen.cuda.matrices_code import Matrices, matrices_source
from magmagraph.codegen.cuda.ordering_code import (
    Ordering,
    Searching,
    Sorting,
    order_source,
    search_source,
    sorting_source,
)
from magmagraph.codegen.cuda.pooling_code import Axis, Pooling
from magmagraph.codegen.cuda.pooling_code import source as pooling_source
from magmagraph.codegen.cuda.scanning_code import Scan, scan_source
from magmagraph.codegen.cuda.scattering_code import Scattering, scattering_source
from magmagraph.codegen.literals import checked, literal, shown, word
from magmagraph.codegen.region.analysis import Region, analyze
from magmagraph.errors import GraphError, MagmagraphError, PlanError
from magmagraph.ir.attributes import LARGEST
from magmagraph.ir.graph import Graph, Key, Node, freeze, topological
from magmagraph.ir.op import Op
from magmagraph.ops import TABLE
from magmagraph.ops.leaf import CONSTANT, parameter
from magmagraph.ops.shape.slicing import SLICE
from magmagraph.ops.spatial.pooling_records import MAX_POOL
from magmagraph.text.reading import load
from magmagraph.text.writing import Code, dump

OPS = {name: op for name, op in TABLE.items() if isinstance(op, Op)}
MARK = "evil_code"
STRINGS = (
    f"*/ {MARK} /*",
    f'"); {MARK}(); ("',
    f"\n#include <{MARK}>\n",
    f"\\\n{MARK}",
    f"'{MARK}'",
    f"%0, {MARK}=1",
    MARK * 100_000,
)
OTHERS: tuple[Any, ...] = (
    2**64, -(2**63) - 1, 10**400, float("nan"), True, None, (((1,),),), (True, False), ("a", 1),
    (2**70,), [1, 2], {"a": 1}, b"bytes", 1j, np.float64(1.0), np.dtype("datetime64[s]"), "",
    np.array(["*/"], dtype=object), object(), Code("Rule"), Key("x"), mg.Dim("n"),
)  # fmt: skip
UNKNOWN = ("value", "key", "state", "body", "dtype", "evil", "into", "workspace", "__class__", "")


@pytest.mark.parametrize("name", OPS)
def test_every_record_declares_its_attributes(name: str) -> None:
    schema = OPS[name].schema
    whole = {key: example(attribute.expected) for key, attribute in schema.attributes.items()}
    assert schema.fault(whole) is None
    for key, attribute in schema.attributes.items():
        remaining = {other: value for other, value in whole.items() if other != key}
        assert (schema.fault(remaining) is None) is not attribute.required


@pytest.mark.parametrize("name", OPS)
def test_no_operation_takes_an_attribute_that_it_does_not_know(name: str) -> None:
    schema = OPS[name].schema
    whole = {key: example(attribute.expected) for key, attribute in schema.attributes.items()}
    for key in UNKNOWN:
        if key not in whole:
            for value in (*STRINGS, 1, np.ones(3)):
                fault = schema.fault({**whole, key: value})
                assert fault is not None
                assert "there is no attribute" in fault[0]
                assert len(fault[0]) < 200


@pytest.mark.parametrize("name", OPS)
def test_no_attribute_takes_a_value_of_another_type(name: str) -> None:
    schema = OPS[name].schema
    whole = {key: example(attribute.expected) for key, attribute in schema.attributes.items()}
    for key, attribute in schema.attributes.items():
        for value in (*STRINGS, *OTHERS):
            fault = schema.fault({**whole, key: value})
            if fault is None:
                assert _is(value, attribute.expected), (key, value)
            else:
                assert len(fault[0]) < 300
                assert fault[1] == attribute.expected


def _is(value: Any, expected: str) -> bool:
    """Return whether a hostile value is of a type, as this file understands it."""
    if " | " in expected:
        return any(_is(value, part) for part in expected.split(" | "))
    if expected in ("int", "Count", "Positive", "Step", "Offset", "Seed"):
        return False
    kinds: dict[str, Any] = {
        "bool": bool, "str": str, "Extent": mg.Dim, "Key": Key, "None": type(None),
        "float": float, "Number": (bool, float, complex, np.float64),
    }  # fmt: skip
    if expected == "tuple[bool, ...]":
        return value == (True, False)
    if expected == "Code":
        return isinstance(value, (Code, Key)) or type(value) is object
    if expected == "Literal['', 'tf32']" or expected.startswith("Literal['', "):
        return bool(value == "")
    return expected in kinds and isinstance(value, kinds[expected])


def test_calls_are_checked() -> None:
    x = mg.input("x", (3,))
    for attrs in ({"value": "*/"}, {"anything": 1}):
        with pytest.raises(GraphError, match="exp: there is no attribute"):
            OPS["exp"](x, **attrs)
    with pytest.raises(GraphError, match=r"slice: steps=\(True\)"):
        SLICE(x, starts=(0,), steps=(True,), shape=(3,))
    with pytest.raises(GraphError, match=r"marker: role=3\n  expected: str"):
        OPS["marker"](x, role=3)
    with pytest.raises(GraphError, match="the attribute role is missing"):
        OPS["marker"](x)


def test_graphs_are_verified() -> None:
    x = mg.input("x", (3,))
    node = Node(OPS["exp"], (x,), {"value": "*/"}, x.type)
    with pytest.raises(GraphError, match="there is no attribute value"):
        freeze([x], [node]).verify()


# ---------------------------------------------------------------------- texts

LINES = """%0 = input() : float32[3]  # x
%1 = exp(%0) : float32[3]
return %1"""


def calls(name: str) -> Iterator[tuple[str, str]]:
    """Yield texts that give an operation a hostile value, and the attribute."""
    for key in (*OPS[name].schema.attributes, *UNKNOWN[:-1]):
        for value in (*map(repr, STRINGS[:-1]), "9" * 30, "9" * 5000, "{0}", "<system>", "1e400"):
            yield key, LINES.replace("exp(%0)", f"{name}(%0, {key}={value})")


@pytest.mark.parametrize("name", OPS)
def test_texts_with_hostile_attributes_are_refused(name: str) -> None:
    for key, text in calls(name):
        attribute = OPS[name].schema.attributes.get(key)
        if attribute is not None and attribute.expected in ("str", "Code"):
            continue  # which an error may quote, and sources may not: see below
        with pytest.raises(GraphError) as raised:
            load(text)
        assert str(raised.value).startswith("line 2: ")
        assert len(str(raised.value)) < 600


def test_a_long_string_is_refused_in_a_short_message() -> None:
    with pytest.raises(GraphError, match="there is no attribute value") as raised:
        load(LINES.replace("exp(%0)", f"exp(%0, value={STRINGS[-1]!r})"))
    assert len(str(raised.value)) < 600


def test_a_text_brings_no_expression_of_a_kernel() -> None:
    class Cube(mg.Operation):
        kernel = "a * a * a"

        def numpy(self, x):
            return x * x * x

    text = dump(freeze([x := mg.input("x", (3,))], [Cube()(x)]))
    assert "a * a" not in text
    assert load(text).outputs[0].op is Cube.op
    for extra in ("kernel='a'", "scalar='system(1)'", "made_for=('os', 'system')"):
        with pytest.raises(GraphError, match="there is no attribute"):
            load(text.replace("(%0)", f"(%0, {extra})"))


# ---------------------------------------------------------------------- generated sources


def sources(graph: Graph) -> list[str]:
    """Return the C and the CUDA that are generated for a graph's body."""
    texts = []
    region = analyze(graph)
    if isinstance(region, Region):
        texts.append(step_code((graph,)).text())
        texts.append(RegionKernels(region).source)
    return texts


def _changed(graph: Graph, node: Node, attrs: dict[str, Any]) -> Graph:
    """Return a body in which a node has other attributes, which nobody checked."""
    again: dict[Node, Node] = {}
    for old in topological(graph.outputs):
        inputs = tuple(again[operand] for operand in old.inputs)
        own = attrs if old is node else old.attrs
        again[old] = Node(old.op, inputs, own, old.type, f"*/ {MARK}", old.line, old.constraints)
    return Graph(
        tuple(again[leaf] for leaf in graph.inputs if leaf in again),
        tuple(again[output] for output in graph.outputs),
        (), graph.interner, (), None,
    )  # fmt: skip


@pytest.mark.parametrize("names", together([n for n, i in samples() if i == 0], 25))
def test_no_source_holds_what_a_graph_says(names: list[str]) -> None:
    """Also where the attributes are not checked: a node is made by its parts."""
    for name in names:
        record, sample = sample_of(name, 0)
        operands, feeds = leaves(sample.inputs)
        built_nodes = [n for n in results(record.function(*operands, **sample.attrs))  # type: ignore[misc]
                if isinstance(n, Node) and not isinstance(n.type, tuple)]  # fmt: skip
        if not built_nodes or any(
            isinstance(node.type, tuple) for node in topological(built_nodes)
        ):
            continue  # an operation with several results is no part of a region
        nodes = set(topological(built_nodes))
        body = _body([leaf for leaf in feeds if leaf in nodes], built_nodes)
        for node in [n for n in body.nodes if n.inputs or n.op is CONSTANT][:3]:
            for key in (*node.attrs, "value", "dim"):
                for value in (STRINGS[0], np.array(STRINGS[1])):
                    changed = _changed(body, node, {**node.attrs, key: value})
                    try:
                        text = "".join(sources(changed))
                    except (MagmagraphError, TypeError, ValueError, AttributeError, AssertionError):
                        continue
                    assert MARK not in text, (name, key)


def _body(inputs: list[Node], outputs: list[Node]) -> Graph:
    """Return a graph as the body of a fused node."""
    return make_body(
        [(node.shape, node.dtype) for node in inputs],
        lambda *given: mg.substitute(outputs, dict(zip(inputs, given, strict=True))),
    )


def test_literals_are_numbers() -> None:
    float32 = np.dtype("float32")
    assert literal(np.float32(0.5), float32) == literal(0.5, float32) == "0.5f"
    assert shown(np.float32(0.5)) == shown(np.array(0.5)) == "0.5"
    for value in (*STRINGS, None, (1,), b"1", np.array(["*/"], dtype=object), np.ones(2), 1j):
        for write in (lambda value: literal(value, float32), shown):
            with pytest.raises(PlanError, match="a generated source would hold a"):
                write(value)
    for value in STRINGS:
        assert not set(word(value)) & set("*/\"'\\\n ;(){}#<>%,=")


KERNELS: tuple[tuple[Any, Any], ...] = (
    (pooling_source, Pooling("max", "float32", 4, False, False, 1, (Axis(4, 2, 2, 2, 1, 0),) * 3)),
    (channels_source, FewChannels("float32", True, 3, 8, (8, 8), (8, 8), (3, 3), (1, 1), (1, 1))),
    (gathering_source, Gathering(4, "int32_t", False, False)),
    (sorting_source, Sorting("int32_t", False, 128, 128, True)),
    (search_source, Searching("float32", True)),
    (scattering_source, Scattering("float32", 4, False, False)),
    (matrices_source, Matrices("systems", "float", 8)),
    (scan_source, Scan("float32", "add", False, False, 256, 32, 16, 4)),
    (order_source, Ordering("float32", True, 128, 32, False)),
    (counting_source, Counting(64, "int32_t", False, 4)),
    (group_sums_source, GroupSums("float32", "int32_t", False, 1024, 8, 4, True, False)),
)  # fmt: skip


@pytest.mark.parametrize(("write", "kernel"), KERNELS, ids=lambda v: type(v).__name__)
def test_descriptions_of_kernels_hold_numbers_and_words(write: Any, kernel: Any) -> None:
    assert checked(kernel) is kernel
    for field in kernel._fields:
        for value in (*STRINGS, None, np.ones(2), [1], (1, STRINGS[0])):
            with pytest.raises(PlanError, match="a generated source would hold a"):
                write(kernel._replace(**{field: value}))


def test_windows_are_small_enough_for_kernels() -> None:
    x = mg.input("x", (1, 1, 8, 8))
    attrs = mg.max_pool2d(x, 2).attrs
    for key, value in (("low", (-(2**31), 0)), ("strides", (2**31, 1)), ("dilation", (0, 1))):
        with pytest.raises(GraphError, match=f"{key}="):
            MAX_POOL(x, **{**attrs, key: value})
    assert LARGEST == 2**63 - 1
    assert region_of(make_body([(3,)], lambda x: mg.exp(x))) is not None
    assert parameter(0, x.type).op.name == "parameter"
