"""Layered layout: rows, crossings, columns, and what a scene makes of a graph."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest
from pictured import attention_block, seed_step

import magmagraph as mg
from magmagraph.inspect.pictures.geometry import Drawing, Placed, draw
from magmagraph.inspect.pictures.layered import BOX_GAP, Net, layered
from magmagraph.inspect.pictures.layered_order import crossings, ordered
from magmagraph.inspect.pictures.scene import Scene, shared_group
from magmagraph.inspect.pictures.scene_frame import BOX, ROW_GAP, TYPE
from magmagraph.ir.collection import collection_paused
from magmagraph.ir.graph import freeze
from magmagraph.ir.op import Kind
from magmagraph.ops.control.fused import FUSED, FUSED_MANY


def random_nets(count: int, reach: int, seed: int) -> list[Net]:
    """Return the edges of a graph whose nodes read one to three of those before them."""
    rng = random.Random(seed)
    targets: dict[int, list[int]] = {}
    for node in range(1, count):
        for _ in range(rng.choice((1, 1, 2, 3))):
            source = rng.randrange(max(0, node - reach), node)
            if node not in targets.setdefault(source, []):
                targets[source].append(node)
    return [Net(source, found) for source, found in targets.items()]


def scene_of(graph: Any, **options: Any) -> Scene:
    nodes = dict.fromkeys((*graph.inputs, *graph.nodes))
    return Scene(list(nodes), graph.outputs, graph.updates, **options)


def label_boxes(drawing: Drawing) -> list[tuple[float, float, float, float]]:
    """Return left, top, right, bottom of all boxes and of the types below them."""
    found = []
    for box in drawing.boxes:
        height = box.height + (TYPE if box.item.note else 0.0)
        found.append((box.x, box.y, box.x + box.width, box.y + height))
    return found


def overlapping(boxes: list[tuple[float, float, float, float]]) -> list[tuple[int, int]]:
    return [
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(boxes), 2)
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


# ---------------------------------------------------------------------- layout


@pytest.mark.parametrize("seed", range(6))
def test_edges_lead_down_and_boxes_of_a_row_are_apart(seed: int) -> None:
    nets = random_nets(120, 15, seed)
    rng = random.Random(seed)
    widths = [rng.uniform(20, 160) for _ in range(120)]
    layout = layered(widths, nets)
    for net in layout.nets:
        assert all(layout.rows[target] > layout.rows[net.source] for target in net.targets)
    rows: dict[int, list[int]] = {}
    for box, row in enumerate(layout.rows):
        rows.setdefault(row, []).append(box)
    assert sorted(rows) == list(range(len(rows)))
    for row in rows.values():
        row.sort(key=layout.columns.__getitem__)
        for left, right in itertools.pairwise(row):
            gap = layout.columns[right] - layout.columns[left]
            assert gap >= (widths[left] + widths[right]) / 2 + BOX_GAP - 1e-6
    assert min(x - w / 2 for x, w in zip(layout.columns, widths, strict=True)) >= -1e-6
    assert max(x + w / 2 for x, w in zip(layout.columns, widths, strict=True)) <= layout.width


def test_a_net_passes_every_row_between_its_ends() -> None:
    layout = layered([50.0] * 5, [Net(0, [1, 4]), Net(1, [2]), Net(2, [3]), Net(3, [4])])
    assert layout.rows == [0, 1, 2, 3, 4]
    assert len(layout.nets[0].trunk) == 3
    assert layout.nets[0].lane is None
    beside = {round(layout.columns[box]) for box in (1, 2, 3)}
    assert not beside & {round(x) for x in layout.nets[0].trunk}


def test_a_chain_is_a_straight_line() -> None:
    layout = layered([30.0, 90.0, 40.0, 60.0], [Net(i, [i + 1]) for i in range(3)])
    assert len(set(layout.columns)) == 1


def test_the_order_of_rows_has_no_crossings_where_there_need_be_none() -> None:
    # Two trees, their leaves given in turn.
    rows = [0, 0, 1, 1, 1, 1]
    below: list[list[int]] = [[2, 4], [3, 5], [], [], [], []]
    above: list[list[int]] = [[], [], [0], [1], [0], [1]]
    assert crossings([[0, 1], [2, 3, 4, 5]], below) == 1
    assert crossings(ordered(rows, above, below, 6), below) == 0


def test_crossings_are_those_that_are_counted_one_by_one() -> None:
    rng = random.Random(4)
    below = [sorted(rng.sample(range(8, 16), 3)) for _ in range(8)] + [[] for _ in range(8)]
    order = [list(range(8)), list(range(8, 16))]
    rng.shuffle(order[1])
    place = {vertex: i for i, vertex in enumerate(order[1])}
    edges = [(i, place[end]) for i in order[0] for end in below[i]]
    counted = sum(
        (a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in itertools.combinations(edges, 2)
    )
    assert crossings(order, below) == counted


def test_an_edge_that_closes_a_cycle_takes_a_lane_up() -> None:
    layout = layered([40.0] * 3, [Net(0, [1]), Net(1, [2]), Net(2, [0])])
    back = [net for net in layout.nets if net.far]
    assert len(back) == 1
    assert back[0].lane is not None
    assert back[0].lane > max(layout.columns)


def test_what_is_read_far_below_takes_a_lane_in_large_graphs() -> None:
    count = 4000
    chain = {i: [i + 1] for i in range(count - 1)}
    for i in range(count // 2):
        chain[i].append(count - 1 - i)  # as a gradient reads what went forward
    layout = layered([60.0] * count, [Net(i, targets) for i, targets in chain.items()])
    assert sum(len(net.trunk) for net in layout.nets) < 4 * count
    assert sum(net.lane is not None for net in layout.nets) > count // 3


@pytest.mark.parametrize("count", [12_500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_layout_takes_nearly_linear_time(count: int) -> None:
    """Work is counted in processor time of one run against another, so that a busy machine counts
    for both; the constant is generous. Nothing is collected meanwhile: that takes the longer, the
    more the tests before this one have left."""
    taken = []
    with collection_paused():
        for size in (count // 5, count):
            nets = random_nets(size, 40, 1)
            began = time.process_time()
            layered([80.0] * size, nets)
            taken.append(time.process_time() - began)
    assert taken[1] < 15 * taken[0]


def test_large_graphs_are_not_much_wider_than_their_widest_row() -> None:
    count = 4000
    layout = layered([60.0] * count, random_nets(count, 30, 2))
    rows: dict[int, int] = {}
    for row in layout.rows:
        rows[row] = rows.get(row, 0) + 1
    widest = max(rows.values()) * (60.0 + BOX_GAP)
    assert layout.width < 3 * widest


def test_rows_full_of_ends_are_broken_into_several() -> None:
    layout = layered([300.0] * 41, [Net(0, list(range(1, 41)))])
    assert max(layout.rows) >= 4
    assert layout.width < 41 * 300.0 / 2
    assert len(layout.columns) == len({*zip(layout.rows, layout.columns, strict=True)})


def test_a_hint_keeps_the_order_of_a_similar_graph() -> None:
    nets = [Net(0, [1, 2, 3, 4])]
    mirrored = layered([40.0] * 5, nets, hint=[0.0, 40.0, 30.0, 20.0, 10.0])
    assert sorted(range(1, 5), key=mirrored.columns.__getitem__) == [4, 3, 2, 1]


# ---------------------------------------------------------------------- scenes


def drawings() -> list[tuple[str, Drawing]]:
    step, block = seed_step(), attention_block()
    return [
        ("step, source", draw(scene_of(step.source_graph).root)),
        ("step", draw(scene_of(step.graph).root)),
        ("block, source", draw(scene_of(block.source_graph).root)),
        ("block", draw(scene_of(block.graph).root)),
    ]


DRAWN: list[tuple[str, Drawing]] = []


@pytest.fixture(params=range(4), ids=["step-source", "step", "block-source", "block"])
def drawing(request: pytest.FixtureRequest) -> Drawing:
    if not DRAWN:
        DRAWN.extend(drawings())
    return DRAWN[request.param][1]


def test_no_label_boxes_intersect_and_all_are_inside(drawing: Drawing) -> None:
    boxes = label_boxes(drawing)
    assert len(boxes) > 15
    assert overlapping(boxes) == []
    for left, top, right, bottom in boxes:
        assert left >= -0.1
        assert top >= -0.1
        assert right <= drawing.width + 0.1
        assert bottom <= drawing.height + 0.1


def test_frames_hold_what_is_in_them_and_nothing_else(drawing: Drawing) -> None:
    def inside(box: Placed, frame: Placed) -> bool:
        return (
            frame.x <= box.x
            and box.x + box.width <= frame.x + frame.width
            and frame.y <= box.y
            and box.y + box.height <= frame.y + frame.height
        )

    for frame in drawing.frames:
        held = {id(item) for inner in _frames(frame) for item in inner.items}
        for box in (*drawing.boxes, *drawing.frames):
            if box is frame:
                continue
            assert inside(box, frame) == (id(box.item) in held) or inside(frame, box)


def _frames(frame: Placed) -> list[Any]:
    assert frame.item.inner is not None
    return list(frame.item.inner.frames())


def test_every_value_that_is_read_has_an_edge_with_its_readers() -> None:
    step = seed_step()
    graph = step.source_graph
    drawn = draw(scene_of(graph).root)
    ends = sum(len(edge.ends) for edge in drawn.edges)
    numbers = {n for n in graph.nodes if n.inputs == () and n.shape == () and "value" in n.attrs}
    read = {
        (operand, node)
        for node in graph.nodes
        for operand in node.inputs
        if operand not in numbers and "dim" not in operand.attrs
    }
    assert ends == len(read) + len(graph.outputs) + len(graph.updates)


def test_numbers_stand_in_labels() -> None:
    x = mg.var("x", shape=(3,))
    y = x * 2.5 + 1.0
    scene = scene_of(freeze([x], [y]))
    assert [item.label for item in scene.root.items] == [
        "multiply 2.5", "add 1", "return", "x",
    ]


def test_variables_that_are_read_far_apart_are_drawn_twice() -> None:
    W = mg.var("W", shape=(3,), init=mg.init.ones())
    value = mg.exp(W)
    for _ in range(8):
        value = mg.tanh(value)
    scene = scene_of(freeze([], [value * W]))
    assert [item.label for item in scene.root.items].count("W") == 2


def test_updates_are_apart_from_variables() -> None:
    v = mg.var("v", init=0.0)
    graph = freeze([], [v], [(v, v + 1.0)])
    scene = scene_of(graph)
    by_role = {item.role: item for item in scene.root.items}
    assert by_role["update"].label == "update v"
    assert by_role["update"].row > by_role["node"].row
    assert {item.style for item in scene.root.items} == {
        "variable", "elementwise", "update", "output",
    }


def test_scopes_are_frames_within_frames() -> None:
    x = mg.var("x", shape=(3,))
    with mg.scope("outer"):
        y = mg.exp(x)
        with mg.scope("inner"):
            z = mg.sin(y) * 2.0
        z = z + y
    root = scene_of(freeze([x], [z])).root
    outer = next(item.inner for item in root.items if item.inner is not None)
    assert outer.title == "outer"
    inner = next(item.inner for item in outer.items if item.inner is not None)
    assert inner.title == "inner"
    assert sorted(item.role for item in inner.items) == ["entry", "exit", "node", "node"]
    assert "x" not in {item.label for item in outer.items}  # what is fed comes from outside


def test_a_scope_is_named_by_a_text_without_slash() -> None:
    for name in ("", "a/b", 3):
        with pytest.raises(mg.GraphError, match="scope: the name is"), mg.scope(name):  # type: ignore[arg-type]
            pass
    with mg.scope("a"):
        with pytest.raises(ZeroDivisionError), mg.scope("b"):
            raise ZeroDivisionError
        inside = mg.var("x", shape=())
    outside = mg.var("x", shape=())
    assert inside.line is not None
    assert outside.line is not None
    assert (inside.line.scope, outside.line.scope) == ("a", "")


def test_equal_expressions_of_two_scopes_are_one_node() -> None:
    x = mg.var("x", shape=(3,))
    with mg.scope("a"):
        one = mg.exp(x)
    with mg.scope("b"):
        other = mg.exp(x)
    assert len(freeze([x], [one, other]).nodes) == 2
    assert shared_group([one.line.group, other.line.group]) is None


def test_kernels_stand_in_the_scope_of_what_they_compute() -> None:
    from magmagraph.inspect.pictures.scene import traced_group

    block = attention_block()
    scene = scene_of(block.graph, group=traced_group(block.trace))
    titles = {
        frame.parent.title
        for frame in scene.root.frames()
        if frame.kernel is not None and frame.parent is not None
    }
    assert {"norm", "attention"} <= titles


def test_a_kernels_frame_shows_its_body() -> None:
    step = seed_step()
    kernels = [f for f in scene_of(step.graph).root.frames() if f.kernel is not None]
    fused = [node for node in step.graph.nodes if node.op in (FUSED, FUSED_MANY)]
    assert {frame.kernel for frame in kernels} == set(fused)
    for frame in kernels:
        assert frame.kernel is not None
        values = frame.kernel.attrs
        bodies = values.get("bodies", (values.get("body"),))
        drawn = [item.node for item in frame.items if item.role == "node"]
        inner = [n for body in bodies for n in body.nodes if n.op.kind is not Kind.LEAF]
        assert drawn == inner


def test_equal_blocks_are_laid_out_once() -> None:
    x = mg.var("x", shape=(3,))
    value = x
    for i in range(6):
        with mg.scope(f"part{i}"):
            value = mg.tanh(mg.exp(value) * 0.5)
    known: dict[Any, Any] = {}
    scene_of(freeze([x], [value]), layouts=known)
    assert len(known) == 3  # the whole, the part that reads the input, and one of the others


def test_rows_are_as_high_as_what_is_in_them() -> None:
    x = mg.var("x", shape=(3,))
    drawing = draw(scene_of(freeze([x], [mg.exp(x)])).root)
    tops = sorted(box.y for box in drawing.boxes)
    assert tops == [0.0, BOX + TYPE + ROW_GAP, 2 * (BOX + TYPE + ROW_GAP)]
    assert drawing.height == tops[-1] + BOX
