"""Recurrent layers beside plain loops in NumPy, with lengths, both directions, and dropout."""

import numpy as np
import pytest
from interpreted import assert_close

import magmagraph as mg

BATCH, TIME, FEATURES, UNITS = 3, 6, 4, 5


@pytest.fixture(autouse=True)
def in_float64(request, monkeypatch):
    if "biases" not in request.node.name:
        monkeypatch.setattr(mg.config, "float_dtype", np.dtype("float64"))


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def rnn(x, state, w):
    return (np.tanh(x @ w["kernel"] + state[0] @ w["recurrent"] + w["bias"]),)


def lstm(x, state, w):
    h, c = state
    i, f, g, o = np.split(x @ w["kernel"] + h @ w["recurrent"] + w["bias"], 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru(x, state, w):
    (h,) = state
    r, z, n = np.split(x @ w["kernel"] + w["bias"], 3, axis=-1)
    s, t, m = np.split(h @ w["recurrent"], 3, axis=-1)
    z = sigmoid(z + t)
    n = np.tanh(n + sigmoid(r + s) * (m + w["candidate_bias"]))
    return ((1.0 - z) * n + z * h,)


CELLS = {"RNN": (rnn, 1), "LSTM": (lstm, 2), "GRU": (gru, 1)}


def by_loops(name, x, weights, lengths=None, reverse=False):
    """Return all outputs and the last states, example by example and position by position."""
    cell, states = CELLS[name]
    outputs = np.zeros((len(x), x.shape[1], UNITS))
    last = [np.zeros((len(x), UNITS)) for _ in range(states)]
    for k, rows in enumerate(x):
        count = x.shape[1] if lengths is None else lengths[k]
        state = tuple(np.zeros(UNITS) for _ in range(states))
        for t in reversed(range(count)) if reverse else range(count):
            state = cell(rows[t], state, weights)
            outputs[k, t] = state[0]
        for whole, part in zip(last, state, strict=True):
            whole[k] = part
    return outputs, last


def made(name, rng, **options):
    """Return a layer in float64 with weights that are all different, and its input."""
    x = mg.input("x", ("batch", "time", FEATURES), "float64")
    layer = getattr(mg.nn, name)(UNITS, **options)
    layer(x)
    for variable in layer.variables:
        variable.value = rng.normal(size=variable.shape) / 2.0
    return layer, x


def weights_of(layer, cell):
    return {
        path.split("/")[-1]: weight.variable.value
        for path, weight in layer.weights().items()
        if path.startswith(cell)
    }


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("lengths", [None, [6, 2, 1]])
def test_beside_plain_loops(name, lengths, rng):
    data = rng.normal(size=(BATCH, TIME, FEATURES))
    for reverse in (False, True):
        layer, x = made(name, rng, return_sequences=True, return_state=True, reverse=reverse)
        n = mg.input("n", ("batch",), "int32")
        result = layer(x) if lengths is None else layer(x, n)
        assert str(result[0].shape) == f"(batch, time, {UNITS})"
        f = mg.function([x] if lengths is None else [x, n], list(result))
        found = f(data) if lengths is None else f(data, np.array(lengths, np.int32))
        outputs, last = by_loops(name, data, weights_of(layer, "cell"), lengths, reverse)
        for one, other in zip(found, [outputs, *last], strict=True):
            assert_close(one, other)


@pytest.mark.parametrize("name", CELLS)
def test_both_directions(name, rng):
    layer, x = made(name, rng, bidirectional=True, return_sequences=True)
    n = mg.input("n", ("batch",), "int64")
    data, lengths = rng.normal(size=(BATCH, TIME, FEATURES)), [3, 6, 4]
    found = mg.function([x, n], layer(x, n))(data, np.array(lengths))
    ways = [
        by_loops(name, data, weights_of(layer, cell), lengths, cell == "backward")[0]
        for cell in ("forward", "backward")
    ]
    assert_close(found, np.concatenate(ways, axis=-1))


@pytest.mark.parametrize("name", CELLS)
def test_gradients_by_differences(name, rng):
    """Each weight's slope beside a central difference of the layer itself, in float64."""
    layer, x = made(name, rng)
    data = rng.normal(size=(BATCH, TIME, FEATURES))
    loss = mg.sum(mg.sin(layer(x)))
    f = mg.function([x], [loss, mg.grad(loss, layer.variables)])
    value = mg.function([x], loss)
    _, slopes = f(data)
    for variable, slope in zip(layer.variables, slopes, strict=True):
        held, direction = variable.value, rng.normal(size=variable.shape)
        size = np.finfo(float).eps ** (1 / 3)
        ends = []
        for sign in (1.0, -1.0):
            variable.value = held + sign * size * direction
            ends.append(float(value(data)))
        variable.value = held
        # A central difference errs by about eps ** (2/3) of the value's own size.
        error = abs((ends[0] - ends[1]) / (2 * size) - np.sum(slope * direction))
        assert error <= 100 * np.finfo(float).eps ** (2 / 3) * BATCH * UNITS


def test_one_product_before_and_few_inside(rng):
    """The features' product is one for all positions; so are the sums of the weights' slopes."""
    layer, x = made("LSTM", rng, return_sequences=True)
    f = mg.function([x], mg.grad(mg.sum(layer(x) ** 2), layer.variables))
    f(rng.normal(size=(BATCH, TIME, FEATURES)))
    kernels = [step.kernel for step in f.plan.steps]
    assert kernels.count("gemm") == 3 and kernels.count("loop") == 2


def test_biases_and_names(rng):
    layer = mg.nn.LSTM(UNITS, name="memory", forget_bias=2.0)
    layer(mg.input("x", (BATCH, TIME, FEATURES)))
    bias = layer.weights()["cell/bias"].variable
    assert bias.name == "memory/cell/bias"
    assert bias.value.tolist() == [0.0] * UNITS + [2.0] * UNITS + [0.0] * (2 * UNITS)
    recurrent = layer.weights()["cell/recurrent"].variable.value
    assert_close(recurrent @ recurrent.T, np.eye(UNITS), "float32")
    plain = mg.nn.GRU(UNITS, bias=False)
    plain(mg.input("x", (BATCH, TIME, FEATURES)))
    assert sorted(plain.weights()) == ["cell/kernel", "cell/recurrent"]
    names = mg.nn.RNN(UNITS, bidirectional=True)
    names(mg.input("x", (BATCH, TIME, FEATURES)))
    assert "backward/kernel" in names.weights()


def test_dropout_is_the_same_at_all_positions(rng):
    """With one feature, dropping it drops it everywhere: the output is that of zeros."""
    x = mg.constant(np.ones((50, TIME, 1)))
    layer = mg.nn.RNN(2, "linear", dropout=0.5, return_sequences=True, bias=False)
    sequences = layer(x, training=True)
    still = layer(x)
    for variable in layer.variables:
        variable.value = np.ones(variable.shape) * (1.0 if "kernel" in variable.name else 0.0)
    found = mg.function([], sequences)()
    assert set(np.unique(found)) == {0.0, 2.0}
    assert all(len(np.unique(example)) == 1 for example in found)
    assert np.unique(mg.function([], still)()).tolist() == [1.0]
    again = mg.nn.RNN(2, recurrent_dropout=0.5)
    assert again(x, training=True).shape == (50, 2)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mg.nn.LSTM(0), mg.ConfigError, "LSTM: units=0"),
        (lambda: mg.nn.GRU(2, dropout=1.0), mg.ConfigError, "GRU: dropout=1.0"),
        (lambda: mg.nn.RNN(2, bidirectional=True, reverse=True), mg.ConfigError,
         "RNN: bidirectional=True and reverse=True"),
        (lambda: mg.nn.RNN(2, "no such"), mg.ConfigError, "there is no activation 'no such'"),
        (lambda: mg.nn.LSTM(2)(mg.zeros((3, 4))), mg.ShapeError, "LSTM: the input is"),
        (lambda: mg.nn.LSTM(2)(mg.zeros((3, 4, 5)), mg.zeros((3,))), mg.DTypeError,
         "LSTM: the lengths are"),
        (lambda: mg.nn.LSTM(2)(mg.zeros((3, 4, 5)), mg.zeros((3, 1), "int32")), mg.ShapeError,
         "LSTM: the lengths are"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)
