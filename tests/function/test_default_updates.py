"""Default updates: nodes carry them through everything that a graph goes through."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import magmagraph as mg


def counted() -> tuple[mg.Node, mg.Variable, mg.Node]:
    x = mg.var("x", shape=("n",))
    calls = mg.var("calls", init=0)
    return x, calls, mg.stateful(x * 2.0, {calls: calls + 1})


def test_a_function_collects_them_from_outputs_and_from_updates():
    x, calls, carrier = counted()
    total = mg.var("total", init=0.0)
    f = mg.function([x], mg.exp(carrier))
    g = mg.function([x], None, updates={total: mg.sum(carrier)})
    assert np.array_equal(f([0.0]), [1.0]) and calls.value == 1
    g([1.0, 2.0])
    assert (calls.value, total.value) == (2, 6.0)
    assert not any(node.op.layout.fades for node in f.source_graph.nodes)


def test_they_are_overridden_or_left_out():
    x, calls, carrier = counted()
    mg.function([x], carrier, updates={calls: calls + 10})([1.0])
    assert calls.value == 10
    f = mg.function([x], carrier, default_updates=False)
    f([1.0])
    assert calls.value == 10 and not f.source_graph.updates
    carrier.eval({x: [1.0]})
    assert calls.value == 10  # eval only looks


def test_a_graph_s_own_node_of_a_variable_stands_for_the_variable():
    """``f.source_graph.variables`` are other nodes than the user's, of the same values."""
    x, calls, carrier = counted()
    (held,) = mg.function([x], carrier).source_graph.variables
    assert held is not calls
    mg.function([x], carrier, updates={held: held + 10})([0.0])
    assert calls.value == 10
    assert mg.default_updates(carrier, known=[held]) == {}
    with pytest.raises(mg.UpdateError, match="variable 'calls' is updated twice"):
        mg.function([], None, updates={calls: calls + 1, held: held + 10})


def test_gradients_pass_through_and_steps_keep_them():
    x, calls, carrier = counted()
    w = mg.var("w", init=3.0)
    loss = mg.sum(carrier * w)
    assert np.array_equal(mg.grad(mg.sum(carrier**2), x).eval({x: [1.0]}), [8.0])
    step = mg.optimizer.SGD(0.25).step(loss, [w], inputs=[x], outputs=loss)
    assert step([1.0]) == 6.0
    assert (calls.value, w.value) == (1, 2.5)
    mg.optimizer.SGD(0.25).minimize(mg.sum(carrier) * w, [w], {x: [1.0]}, steps=3)
    assert calls.value == 4  # a step each, and nothing for the final loss


@pytest.mark.parametrize("again", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_copies_carry_their_own(again):
    x, calls, carrier = counted()
    loss = mg.sum(carrier)
    twin = again(loss)
    f = again(mg.function([x], loss))
    held, *_ = mg.default_updates(twin)
    mg.function([node for node in mg.ir.graph.topological([twin]) if node.name == "x"], twin)([1.0])
    f([1.0])
    assert calls.value == 0 or held is calls
    assert f.source_graph.updates


def test_recomputation_lands_them_once():
    x, calls, _ = counted()
    w = mg.var("w", init=2.0)

    def block(h):
        return mg.sin(mg.stateful(h * w, {calls: calls + 1}))

    for value in (mg.checkpoint(block)(x), mg.checkpoint(block(x))):
        gradient = mg.grad(mg.sum(value), w)
        before = int(calls.value)
        f = mg.function([x], [value, gradient])
        assert np.allclose(f([1.0])[1], np.cos(2.0))
        assert calls.value == before + 1


def test_two_new_values_and_bodies_are_refused():
    x, calls, carrier = counted()
    other = mg.stateful(x, {calls: calls + 2})
    with pytest.raises(mg.UpdateError, match="two nodes carry default updates of variable 'calls'"):
        mg.function([x], carrier + other)
    mean = mg.var("mean", init=0.0)
    with pytest.raises(mg.GraphError, match="given one new value for each position"):
        mg.vmap(lambda row: mg.stateful(row, {mean: mg.sum(row)}))(mg.ones((3, 2)))
    with pytest.raises(mg.GraphError, match="inside the body of an operation"):
        from magmagraph.autodiff.transforms.closure import close

        close([carrier * 2.0], [x])


def test_what_no_longer_is_a_variable_is_not_renewed():
    _, calls, carrier = counted()
    alone = mg.substitute(carrier, {calls: mg.constant(5)})
    assert mg.default_updates(alone) == {}


def test_new_values_fit_their_variables():
    x, calls, _ = counted()
    with pytest.raises(mg.UpdateError, match="the update of variable 'calls'"):
        mg.stateful(x, {calls: 1.5})
    with pytest.raises(mg.UpdateError, match="is not a variable"):
        mg.stateful(x, {x: x})
