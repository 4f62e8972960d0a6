"""Layers: shapes, values, weights, what training changes, and what pictures see."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.ir.identity import is_among

nn = mg.nn
IMAGE = ("batch", 2, 9, 9)


def close(found, wanted):
    row = tolerance(np.dtype("float32"), "reassoc")
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, row.relative, row.absolute + scale * row.relative)


def value(layer, array, training=False, **options):
    x = mg.var("x", shape=("batch", *array.shape[1:]), dtype=array.dtype)
    return mg.function([x], layer(x, training=training, **options))(array)


def test_dense_is_its_formula(rng):
    x = rng.standard_normal((5, 4)).astype("f4")
    layer = nn.Dense(3, "tanh", bias_init=[1.0, 2.0, 3.0])
    found = value(layer, x)
    kernel, bias = (v.value for v in layer.variables)
    close(found, np.tanh(x @ kernel + bias))
    assert nn.Dense(3, bias=False)(mg.var("x", shape=("n", 4, 2))).shape[1:] == (4, 3)
    assert nn.FullyConnected is nn.Dense


LAYERS = [
    (lambda: nn.Activation("gelu"), IMAGE, IMAGE[1:]),
    (lambda: nn.Activation(mg.tanh), IMAGE, IMAGE[1:]),
    (lambda: nn.Conv2D(4, (3, 2), stride=2, padding=1), IMAGE, (4, 5, 5)),
    (lambda: nn.Conv2D(4, 3, padding="same", layout="NHWC"), ("batch", 9, 8, 2), (9, 8, 4)),
    (lambda: nn.Conv2D(4, 3, groups=2), IMAGE, (4, 7, 7)),
    (lambda: nn.MaxPool2D(2), IMAGE, (2, 4, 4)),
    (lambda: nn.AvgPool2D(3, stride=1), IMAGE, (2, 7, 7)),
    (lambda: nn.GlobalAvgPool2D(), IMAGE, (2,)),
    (lambda: nn.GlobalAvgPool2D(layout="NHWC"), IMAGE, (9,)),
    (lambda: nn.Flatten(), IMAGE, (162,)),
    (lambda: nn.Reshape((18, -1)), IMAGE, (18, 9)),
    (lambda: nn.Dropout(0.5), IMAGE, IMAGE[1:]),
    (lambda: nn.SpatialDropout(0.5), IMAGE, IMAGE[1:]),
    (lambda: nn.BatchNorm(), IMAGE, IMAGE[1:]),
    (lambda: nn.BatchNorm(axis=-1), ("batch", 5), (5,)),
    (lambda: nn.LayerNorm(), ("batch", 5), (5,)),
    (lambda: nn.Residual([nn.Dense(5, "relu"), nn.Dense(5)]), ("batch", 5), (5,)),
    (lambda: nn.Residual(nn.Dense(3), shortcut=nn.Dense(3)), ("batch", 5), (3,)),
    (lambda: nn.Sequential([nn.Dense(4), nn.Activation("rbf")]), ("batch", 5), (4,)),
    (lambda: nn.MultiHeadAttention(2, causal=True, dropout=0.1), ("batch", 6, 8), (6, 8)),
    (lambda: nn.PositionEmbedding(7), ("batch", 6, 8), (6, 8)),
]


@pytest.mark.parametrize(("make", "given", "wanted"), LAYERS)
@pytest.mark.parametrize("training", [False, True])
def test_shapes_follow_the_input_and_gradients_flow(make, given, wanted, training, rng):
    layer = make()
    x = mg.var("x", shape=given)
    y = layer(x, training=training)
    assert y.shape == (x.shape[0], *wanted)
    weights = [w.variable for w in layer.weights().values() if w.trainable]
    loss = mg.sum(y * y)
    f = mg.function([x], [y, mg.grad(loss, [x, *weights])])
    found, gradients = f(rng.standard_normal((3, *given[1:])).astype("f4"))
    assert found.shape == (3, *wanted) and all(np.isfinite(g).all() for g in gradients)


def test_channels_last_convolves_as_channels_first(rng):
    x = rng.standard_normal((2, 3, 8, 8)).astype("f4")
    first, last = nn.Conv2D(4, 3, padding=1), nn.Conv2D(4, 3, padding=1, layout="NHWC")
    value(first, x), value(last, np.moveaxis(x, 1, -1).copy())
    last.kernel.value = np.moveaxis(first.kernel.value, (0, 1), (-1, -2))
    close(value(last, np.moveaxis(x, 1, -1).copy()), np.moveaxis(value(first, x), 1, -1))


def test_attention_of_a_context(rng):
    x, c = mg.var("x", shape=("batch", 4, 8)), mg.var("c", shape=("batch", 7, 6))
    layer = nn.MultiHeadAttention(2)
    y = layer(x, c, mask=mg.padding_mask(mg.constant([3, 5]), 7)[:, None, None, :])
    f = mg.function([x, c], y)
    a, b = rng.standard_normal((2, 4, 8)).astype("f4"), rng.standard_normal((2, 7, 6)).astype("f4")
    found = f(a, b)
    b[0, 3:] = 100.0
    assert np.array_equal(f(a, b)[0], found[0])
    with pytest.raises(mg.ShapeError, match="width 8 in 3 heads"):
        nn.MultiHeadAttention(3)(x)


def test_batch_norm_keeps_running_statistics(rng):
    layer = nn.BatchNorm(momentum=0.5)
    x = rng.standard_normal((50, 3)).astype("f4") * 3.0 + 1.0
    node = mg.var("x", shape=("batch", 3))
    train = mg.function([node], layer(node, training=True))
    use = mg.function([node], layer(node))
    wide = x.astype("f8")
    close(train(x), (wide - wide.mean(0)) / np.sqrt(wide.var(0) + layer.eps))
    close(layer.mean.value, 0.5 * wide.mean(0))
    close(layer.variance.value, 0.5 + 0.5 * wide.var(0, ddof=1))
    held = layer.mean.value
    use(x)
    assert np.array_equal(layer.mean.value, held)
    for _ in range(60):
        train(x)
    close(use(x), (wide - wide.mean(0)) / np.sqrt(wide.var(0, ddof=1) + layer.eps))
    frozen = nn.BatchNorm(trainable=False)
    assert mg.default_updates(frozen(node, training=True)) == {}


def test_dropout_drops_in_training_alone():
    x = np.ones((40, 50), "f4")
    layer = nn.Dropout(0.5)
    assert np.array_equal(value(layer, x), x)
    assert set(np.unique(value(layer, x, training=True))) == {0.0, 2.0}


def test_embedding_takes_integers():
    layer = nn.Embedding(5, 3, padding_index=0)
    ids = np.array([[0, 4], [2, 2]], np.int32)
    assert np.array_equal(value(layer, ids), layer.table.value[ids])
    with pytest.raises(mg.DTypeError, match="Embedding is given float32"):
        layer(mg.var("x", shape=("batch", 2)))


def test_weights_have_paths_and_belong_to_pictures():
    block = nn.Residual([nn.Dense(4, "relu"), nn.Dense(4)], name="block")
    y = block(mg.var("x", shape=("batch", 4)))
    assert list(block.weights()) == [
        "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias",
    ]  # fmt: skip
    assert block.variables[2].name == "block/dense_1/kernel"
    assert {n.line.scope for n in mg.ir.graph.topological([y]) if n.inputs} == {
        "block", "block/dense", "block/dense_1",
    }  # fmt: skip
    shared = nn.Dense(4)
    x = mg.var("x", shape=("batch", 4))
    shared(shared(x))
    assert len(shared.variables) == 2


class Scaled(nn.Layer):
    """What users of other libraries write: variables, and layers in a dict, as attributes."""

    def __init__(self, **options):
        super().__init__(**options)
        self.scale = mg.var("scale", init=np.ones(3, np.float32))
        self.shifts = [mg.var("shift", init=np.zeros(3, np.float32)) for _ in range(2)]
        self.places = mg.var("places", init=np.arange(3, dtype=np.int32))
        self.first = nn.Dense(3, name="first")
        self.heads = {"class": nn.Dense(2, name="class")}

    def call(self, x, training):
        h = self.first(x) * self.scale[self.places] + self.shifts[0] - 2.0 * self.shifts[1]
        return self.heads["class"](h)


def test_variables_and_layers_in_attributes_are_trained(rng):
    layer = Scaled(name="scaled")
    x = mg.var("x", shape=("batch", 4))
    y = layer(x)
    layer.again = layer.first.kernel  # borrowed, and no weight of a second name
    assert list(layer.weights()) == [
        "scale", "shifts/0", "shifts/1", "places", "first/kernel", "first/bias", "class/kernel",
        "class/bias",
    ]  # fmt: skip
    assert layer.variables[3] is layer.places
    assert layer.trainable_variables == [v for v in layer.variables if v is not layer.places]
    before = [v.value for v in layer.trainable_variables]
    mg.optimizer.SGD(0.1).step(mg.sum(y * y), layer.trainable_variables, inputs=[x])(
        rng.normal(size=(5, 4))
    )
    after = [v.value for v in layer.trainable_variables]
    assert all((a != b).any() for a, b in zip(before, after, strict=True))


def test_a_model_trains_what_a_layer_holds_as_attributes(rng, tmp_path):
    layer = Scaled()
    net = mg.NeuralNetwork(
        [mg.nn.Input((4,)), layer], loss="cross_entropy", optimizer=mg.optimizer.SGD(0.1)
    )
    assert net.parameters == 3 + 6 + 3 + 15 + 8
    net.fit(rng.normal(size=(40, 4)), rng.integers(0, 2, 40), epochs=1)
    assert (layer.scale.value != 1.0).any() and layer.shifts[1].value.any()
    net.save_weights(tmp_path / "net.safetensors")
    scale = layer.scale.value
    layer.scale.value = np.zeros(3)
    net.load_weights(tmp_path / "net.safetensors")
    assert np.array_equal(layer.scale.value, scale)


def test_trainable_variables_leave_out_statistics_and_what_is_frozen():
    layers = nn.Sequential(nn.Dense(4), nn.BatchNorm(), nn.Dense(2, trainable=False))
    x = mg.var("x", shape=("batch", 3))
    y = layers(x, training=True)
    names = [v.name.split("/", 1)[1] for v in layers.trainable_variables]
    assert names == ["dense/kernel", "dense/bias", "batch_norm/scale", "batch_norm/offset"]
    assert len(layers.variables) == 8
    assert mg.optimizer.SGD(0.1).updates(mg.mean(y**2), layers.trainable_variables)


def test_a_layer_shared_by_two_is_one_target():
    shared = nn.Dense(4)
    pair = nn.Sequential(nn.Residual(shared), nn.Residual(shared))
    x = mg.var("x", shape=("batch", 4))
    y = pair(x)
    assert pair.variables == shared.variables
    assert mg.optimizer.SGD(0.1).updates(mg.mean(y**2), pair.variables)


def test_a_property_of_a_layer_fails_as_it_does():
    class Broken(nn.Layer):
        @property
        def eval(self):
            return self.there_is_no_such_thing

        @property
        def depth(self):
            return self.nothing_here

    with pytest.raises(AttributeError, match="nothing_here"):
        _ = Broken().depth
    assert not hasattr(Broken(), "anything")


def test_a_seed_makes_the_same_weights():
    def made():
        mg.random.seed(3)
        layer = nn.Dense(4, kernel_init=("normal", 0.0, 0.1))
        layer(mg.var("x", shape=("batch", 4)))
        return layer.kernel.value

    assert np.array_equal(made(), made())


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_weights_of_their_own(again):
    block = nn.Residual(nn.Dense(4), name="block")
    x = mg.var("x", shape=("batch", 4))
    block(x)
    twin = again(block)
    assert [v.name for v in twin.variables] == [v.name for v in block.variables]
    twin.variables[0].value = np.zeros((4, 4), "f4")
    assert block.variables[0].value.any()
    assert twin(x).shape == block(x).shape and not is_among(twin.variables[0], block.variables)


def test_mistakes_say_what_is_needed():
    x = mg.var("x", shape=("batch", 4))
    for error, text, action in (
        (mg.ConfigError, "Dense: units=0", lambda: nn.Dense(0)),
        (mg.ConfigError, "no activation 'reluu'", lambda: nn.Dense(3, "reluu")),
        (mg.ConfigError, "no activation 'matmul'", lambda: nn.Activation("matmul")),
        (mg.ConfigError, "no initializer 'glorot'", lambda: nn.Dense(3, kernel_init="glorot")(x)),
        (mg.ConfigError, "needs value", lambda: nn.Dense(3, kernel_init="constant")(x)),
        (mg.ConfigError, "Dropout: rate=1.0", lambda: nn.Dropout(1.0)),
        (mg.ConfigError, "layout='CHWN'", lambda: nn.MaxPool2D(layout="CHWN")),
        (mg.ConfigError, "Residual is given int", lambda: nn.Residual([3])),
        (mg.ShapeError, "given an input of shape (batch, 4)", lambda: nn.Conv2D(3, 3)(x)),
        (mg.ShapeError, "its layers give (batch, 3)", lambda: nn.Residual(nn.Dense(3))(x)),
        (mg.ShapeError, "the symbolic extent n", lambda: nn.Dense(3)(mg.var("x", ("batch", "n")))),
        (mg.ShapeError, "a layer is given a scalar", lambda: nn.Dense(3)(mg.constant(1.0))),
        (mg.ShapeError, "given 4 positions",
         lambda: nn.PositionEmbedding(3)(mg.var("x", ("batch", 4, 2)))),
        (mg.ShapeError, "the input has shape (batch, 4)", lambda: nn.Input((5,))(x)),
        (mg.GraphError, "returned int", lambda: Broken()(x)),
        (mg.GraphError, "before it was initialized", lambda: Unfinished()(x)),
        (TypeError, "unexpected keyword", lambda: nn.Dense(3, colour="red")),
    ):  # fmt: skip
        with pytest.raises(error) as raised:
            action()
        assert text in str(raised.value)


class Broken(nn.Layer):
    def call(self, x, training):
        return 3


class Unfinished(nn.Layer):
    def __init__(self) -> None:
        pass


# Prebuilt networks; the numbers are those of the papers' tables, or of what is commonly used.

SIZES = [
    ("lenet5", (), 61_706),
    ("vgg16", (1000, (3, 32, 32)), 14_714_688 + 513 * 4096 + 4097 * 4096 + 4097 * 1000),
    ("resnet18", (), 11_689_512),
    ("resnet50", (), 25_557_032),
]


@pytest.mark.parametrize(("name", "given", "count"), SIZES, ids=[name for name, *_ in SIZES])
def test_prebuilt_networks_have_their_parameters(name, given, count):
    net = mg.NeuralNetwork(getattr(nn.prebuilt, name)(*given), loss="cross_entropy")
    assert sum(variable.state.held.size for variable in net.trainable) == count
    classes = 10 if name == "lenet5" else 1000
    assert net.outputs[0].shape == (net.inputs[0].shape[0], classes)


def test_a_transformer_predicts_tokens_from_those_before():
    net = mg.NeuralNetwork(
        nn.prebuilt.transformer(11, 6, width=8, heads=2, blocks=2), loss="cross_entropy"
    )
    tokens = np.arange(6)[None] % 11
    first = net.predict(tokens)
    tokens[0, -1] = 9
    again = net.predict(tokens)
    assert np.array_equal(first[:, :-1], again[:, :-1]) and not np.array_equal(first, again)
    history = net.fit(tokens.repeat(8, 0), tokens.repeat(8, 0), epochs=30, batch_size=8)
    assert history["accuracy"][-1] == 1.0
