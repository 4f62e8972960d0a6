"""Groups: scopes, layers and functions in lines, pictures, reports, profiles and explanations."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import cli
from magmagraph.inspect.pictures.scene import Scene
from magmagraph.ir.graph import freeze, topological
from magmagraph.ir.lines import Group, Line


def scopes(*roots: mg.Node) -> set[str]:
    """Return the paths of the groups of all that is computed."""
    return {n.line.scope for n in topological(roots) if n.inputs and n.line is not None}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("gelu", mg.gelu),
        ("softmax", mg.softmax),
        ("layer_norm", mg.layer_norm),
        ("scaled_dot_product_attention", lambda x: mg.scaled_dot_product_attention(x, x, x)),
        ("dropout", lambda x: mg.dropout(x, 0.5)),
    ],
)
def test_functions_of_several_operations_are_groups(name: str, call: Any) -> None:
    x = mg.input("x", shape=("batch", 4))
    found = scopes(call(x))
    assert name in found
    assert {path.partition("/")[0] for path in found} == {name}


def test_layers_and_the_functions_that_they_call_are_groups_within_groups() -> None:
    x = mg.input("x", shape=("batch", 5, 8))
    with mg.scope("model"):
        y = mg.nn.MultiHeadAttention(2, name="heads")(x)
        y = mg.nn.Dense(4, activation="gelu", name="last")(y)
    found = scopes(y)
    assert "model/heads/scaled_dot_product_attention" in found
    assert "model/last/gelu" in found


def test_a_group_ends_where_its_call_ends_also_by_an_error() -> None:
    x = mg.input("x", shape=(3,))
    with pytest.raises(mg.ConfigError):
        mg.gelu(x, approximate="none such")
    after = x + 1.0
    assert after.line is not None
    assert after.line.group is None


def test_misfits_of_grouped_functions_are_explained_as_of_others() -> None:
    x = mg.input("x", shape=(3,))
    with pytest.raises(mg.ArgumentError, match="axis"):
        mg.softmax(x, dim=-1)
    with pytest.raises(mg.ArgumentError, match=r"layer_norm\(x"):
        mg.layer_norm()


def test_two_calls_of_one_function_are_two_frames_and_a_scope_is_one() -> None:
    x = mg.input("x", shape=(3,))
    values = [mg.softmax(x * float(i)) for i in range(2)]
    for value in tuple(values):
        with mg.scope("again"):
            values.append(mg.exp(value) * 2.0)
    graph = freeze([x], values)
    scene = Scene(graph.nodes, graph.outputs, graph.updates)
    assert [f.title for f in scene.root.frames()] == ["", "softmax", "softmax 2", "again"]


def test_a_function_of_one_node_is_no_frame() -> None:
    x = mg.input("x", shape=(3,))
    graph = freeze([x], [mg.gelu(x, approximate="tanh")])
    assert [f.title for f in Scene(graph.nodes, graph.outputs, ()).root.frames()] == [""]


def test_gradients_have_the_lines_and_the_groups_of_what_they_differentiate() -> None:
    x = mg.input("x", shape=("batch", 4))
    w = mg.var("w", shape=(4, 3), init=mg.init.ones())
    with mg.scope("model"):
        product = x @ w
        y = mg.softmax(product)
    loss = mg.sum(y * y)
    gradient = mg.grad(loss, w)
    known = set(topological([loss]))
    made = [n for n in topological([gradient]) if n not in known and n.op.name != "marker"]
    assert {"gradient", "gradient/model", "gradient/model/softmax"} <= {
        n.line.scope for n in made if n.line
    }
    (factor,) = (n for n in made if n.op.name == "matmul")
    assert factor.line is not None
    assert product.line is not None
    assert (factor.line.file, factor.line.number) == (product.line.file, product.line.number)
    assert factor.line.place == f"made for the gradient of {product.line}, in gradient/model"
    with pytest.raises(mg.ShapeError, match=f"made for the gradient of {product.line}"):
        factor + mg.zeros((7,))
    assert gradient.line is not None
    assert gradient.line.group is None  # its marker is of the line that asked for it
    second = mg.grad(mg.sum(gradient * gradient), w)
    assert "gradient/gradient/model/softmax" in scopes(second)


def test_lines_with_groups_are_equal_by_group_and_pickle() -> None:
    group = Group("inner", Group("outer"), "function")
    line = group.line("a.py", 3)
    assert group.line("a.py", 3) is line
    assert line != Line("a.py", 3)
    again = pickle.loads(pickle.dumps(line))
    assert (str(again), again.scope, again.group.kind) == ("a.py:3", "outer/inner", "function")


def build() -> tuple[mg.Function, dict[str, mg.Node], np.ndarray]:
    """Return a step of a small network, its nodes, and a batch."""
    x = mg.input("x", shape=("batch", 4))
    hidden = mg.nn.Dense(3, activation="gelu", name="first")(x)
    probs = mg.softmax(hidden)
    loss = mg.mean(probs * probs)
    weights = [n for n in topological([loss]) if "state" in n.attrs]
    step = mg.optimizer.SGD(0.1).step(loss, weights, inputs=[x], outputs=[loss])
    return step, {"probs": probs, "hidden": hidden}, np.ones((5, 4), np.float32)


def test_profiles_sum_the_time_of_groups() -> None:
    step, _, batch = build()
    profile = step.profile(batch, runs=1)
    groups = {group.group: group for group in profile.by_group()}
    assert {"first", "first/gelu", "softmax", "gradient", "gradient/first/gelu"} <= set(groups)
    assert groups["first"].nanoseconds >= groups["first/gelu"].nanoseconds
    order = list(groups)
    assert order.index("first") + 1 == order.index("first/gelu")
    told = json.loads(profile.to_json())["groups"]
    assert {row["group"] for row in told} == set(groups)
    assert all(0.0 <= row["share"] <= 1.0 for row in told)


def test_explanations_networks_and_reports_name_groups() -> None:
    step, nodes, _ = build()
    told = step.explain(nodes["probs"])
    assert told.groups == ["softmax"]
    assert ", in softmax" in told.text().splitlines()[1]
    assert json.loads(told.to_json())["groups"] == ["softmax"]
    drawn = mg.to_networkx(step.source_graph)
    assert "gradient/first/gelu" in {data["group"] for _, data in drawn.nodes(data=True)}
    refused = [r for record in step.report for r in record.refusals]
    assert any(r.group for r in refused)


def test_refusals_name_both_nodes_and_what_is_between() -> None:
    x = mg.input("x", shape=("batch", 4))
    h = mg.exp(x)
    wave = mg.sum(mg.sin(h))
    other = h @ mg.constant(np.ones((4, 4), np.float32))
    function = mg.function([x], wave * other)
    (refusal,) = (r for r in function.report["fuse"].refusals if r.rule == "join")
    assert refusal.node.startswith("multiply")
    assert refusal.other.startswith("sum : float32[], made at ")
    assert refusal.obstacle.startswith("gemm : float32[batch, 4], made at ")
    text = str(function.report)
    assert f"with {refusal.other}" in text
    assert f"between them {refusal.obstacle}" in text


PROGRAM = """
import magmagraph as mg

x = mg.input("x", shape=("batch", 4))
w = mg.var("w", shape=(4, 3), init=mg.init.ones())

def network(value):
    inner = value @ w
    return mg.softmax(inner)

probs = network(x)
layers = [probs * 2.0, probs * 3.0]
step = mg.function([x], layers)
"""


def test_explain_takes_names_of_the_program_and_groups(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "net.py"
    path.write_text(PROGRAM)

    def told(name: str) -> list[str]:
        assert cli.main(["explain", f"{path}:step", name]) == 0
        parts = capsys.readouterr().out.split("\n\n")
        return [part.partition(" ")[0] for part in parts]

    assert told("probs") == ["divide"]  # a name of the file
    assert told("layers") == ["multiply", "multiply"]  # a list there
    assert told("inner") == ["matmul"]  # a name within a function
    assert "exp" in told("softmax")  # a group
    assert cli.main(["explain", f"{path}:step", "nothing"]) == 1
    assert "no node is 'nothing'" in capsys.readouterr().err
