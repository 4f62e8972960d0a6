"""Calls as one who has read only the interface's description writes them."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import magmagraph as mg


def of_two():
    x, t = mg.var("x", shape=("n",)), mg.var("t", shape=("n",))
    return x, t, mg.function([x, t], {"sum": mg.sum(x) + 2.0 * mg.sum(t)})


def test_feeds_of_run_by_position():
    x, t, f = of_two()
    ones = np.ones(3, "f4")
    for feeds in ((ones, ones), [ones, ones], {x: ones, t: ones}, {"x": ones, "t": ones}):
        np.testing.assert_array_equal(f.run(2, feeds)["sum"], [9, 9])
        np.testing.assert_array_equal(f.run([feeds, feeds])["sum"], [9, 9])
        assert f.run(0, feeds)["sum"].shape == (0,)
    g = mg.function([x], mg.sum(x))
    np.testing.assert_array_equal(g.run(2, [1.0, 2.0]), [3, 3])  # of one input it is an array
    with pytest.raises(mg.FeedError, match="no feed for input 't'"):
        f.run(2, [ones])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reduce_to_gemm": "never"}, "no option 'reduce_to_gemm'\n  expected: one of reduce_to"),
        ({"precision": "tf32"}, r"try: mg.function\(..., precision=...\)"),
        ({"choose": None}, "no option 'choose'"),
        (3, r"options=3\n  expected: a dict"),
        ({"reduce_to_gemv": "sometimes"}, "'always', 'never' or 'measured'"),
        ({"loss_scale_growth": 0}, "at least 1 step"),
    ],
)
def test_options_are_refused_where_the_function_is_made(options, text):
    with pytest.raises(mg.PassError, match=text):
        mg.function([], mg.constant(1.0), options=options)


def test_options_that_exist_are_taken():
    options = {"reduce_to_gemv": "never", "loss_scale_growth": 10, "tuning": False}
    f = mg.function([], mg.constant(1.0), options=options)
    assert f() == 1 and pickle.loads(pickle.dumps(f))() == 1


def test_a_size_behind_the_arrays_of_batches_is_told():
    rows = np.arange(6.0)
    with pytest.raises(mg.DataError, match="try: size=3"):
        mg.batches(rows, rows, 3)


def test_activations_are_told_by_the_nearest_name():
    for given, meant in (("sigmod", "sigmoid"), ("ReLU", "relu"), ("softMax", "softmax")):
        with pytest.raises(mg.ConfigError, match=f"try: '{meant}'"):
            mg.nn.Dense(3, activation=given)


def test_a_checkpointed_function_takes_its_arguments_later():
    x = mg.var("x", init=[0.5, 1.0])
    with pytest.raises(mg.GradientError, match=r"try: mg.checkpoint\(function\)\(\*inputs\)"):
        mg.checkpoint(mg.tanh, x)
    assert np.array_equal(mg.checkpoint(mg.tanh)(x).eval(), mg.tanh(x).eval())


@pytest.mark.parametrize("outputs", ["one", "rows of images", "several"])
def test_predictions_without_examples_have_no_rows(outputs):
    n = mg.nn
    if outputs == "several":
        x = mg.input("x", ("batch", 4))
        model = mg.Model(x, [n.Dense(3)(x), n.Dense(2)(x)[:, None]])
        a, b = model.predict(np.ones((0, 4)))
        assert (a.shape, b.shape) == ((0, 3), (0, 1, 2))
        return
    shape, layers = (4,), [n.Dense(3)]
    if outputs == "rows of images":
        shape, layers = (1, 8, 8), [n.Conv2D(2, 3), n.BatchNorm(), n.MaxPool2D(2)]
    net = mg.NeuralNetwork([n.Input(shape), *layers], loss="mse")
    some = net.predict(np.ones((2, *shape)))
    none = net.predict(np.ones((0, *shape)))
    assert none.shape == (0, *some.shape[1:]) and none.dtype == some.dtype
    assert net.predict_class(np.ones((0, *shape))).shape == (0, *some.shape[1:-1])
    with pytest.raises(mg.DataError, match="the examples have shape"):
        net.predict(np.ones((0, 7)))


SIGNATURES = {
    "function": "inputs, outputs, updates=None, *, device='auto', precision='float32', passes=None,"
    " skip=(), distribute=None, name=None, nan='allow', default_updates=True, strict_feeds=False,"
    " deterministic=False, compile_budget=None",
    "layer_norm": "x, scale=None, offset=None, axis=-1, eps=1e-05",
    "softmax": "x, axis=-1",
    "batches": "*arrays, size=100, shuffle=True, seed=0, drop_last=False",
    "random.normal": "shape=(), mean=0.0, std=1.0",
    "grad": "loss, wrt=None",  # of a Python function there is a first argument
    "optimizer.GradientDescent": "learning_rate, momentum=0.0, nesterov=False, weight_decay=0.0",
    "optimizer.Adam.minimize": "self, loss, wrt, feeds=None, steps=100, tol=None",
    "Tensor": "shape, init=None, dtype=None, memory='managed', device=0",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_begin_as_promised(name):
    found = mg
    for part in name.split("."):
        found = getattr(found, part)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(found).parameters.values()
    ]
    told = str(inspect.Signature(parameters))[1:-1]
    assert told == SIGNATURES[name] or told.startswith(SIGNATURES[name] + ",")


def test_copies_of_what_was_promised():
    x = mg.var("x", shape=("n", 3))
    W = mg.var("W", init=np.ones((3, 2), "f4"))
    f = mg.function([x], x @ W, updates={W: W + 1.0})
    f(np.ones((2, 3)))
    for again in (copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))):
        g = again(f)
        before = W.value
        g(np.ones((2, 3)))
        assert np.array_equal(W.value, before)
        y, z = again([x, x @ W])
        assert z.inputs[0] is y
        assert again(x.shape[0]) == "n"


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
def test_extremes_of_a_named_axis_that_is_empty(dtype):
    x = mg.input("x", ("n", 2), dtype)
    none = {x: np.ones((0, 2), dtype)}
    limits = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    lowest, highest = (-np.inf, np.inf) if np.dtype(dtype).kind == "f" else (limits.min, limits.max)
    for extreme, position, nothing in ((mg.max, mg.argmax, lowest), (mg.min, mg.argmin, highest)):
        assert (extreme(x, axis=0).eval(none) == nothing).all()
        assert (extreme(x, axis=0, initial=3).eval(none) == 3).all()
        assert (position(x, axis=0).eval(none) == 0).all()
        assert extreme(x, axis=1).eval(none).shape == (0,)
        with pytest.raises(mg.ShapeError, match="axis 0 is empty"):
            extreme(mg.input("k", (0, 2), dtype), axis=0)


def test_a_rank_without_rows_takes_part_in_an_extreme():
    def on_a_rank():
        x = mg.var("x", shape=("batch", 2))
        f = mg.function([x], mg.max(x, axis=0), distribute=mg.distributed.DataParallel())
        return f(np.full((3 * mg.distributed.rank(), 2), -7.0))

    for found in mg.distributed.threads(2, on_a_rank):
        np.testing.assert_array_equal(found, [-7, -7])


def test_mistakes_name_operands_as_they_were_given():
    counts = mg.var("counts", shape=(3,), dtype="int32")
    x, flags = mg.var("x", shape=(4,)), mg.var("flags", shape=(4,), dtype="bool")
    for wrong, kind in (
        (lambda: counts + x, mg.ShapeError),
        (lambda: x @ counts, mg.ShapeError),
        (lambda: mg.where(flags, counts, x), mg.ShapeError),
        (lambda: mg.einsum("i,i->", counts, x), mg.ShapeError),
        (lambda: mg.gcd(counts, x), mg.DTypeError),
        (lambda: counts & x, mg.DTypeError),
    ):
        with pytest.raises(kind) as raised:
            wrong()
        text = str(raised.value)
        assert "'counts' int32[3] by input, made at " in text and "; as float32" in text
        assert "'x' float32[4] by input" in text and "by cast" not in text
    kept = mg.cast(counts, "float32")
    with pytest.raises(mg.ShapeError, match=r"operand 0: float32\[3\] by cast, made at .*\n"):
        kept + x  # made in a line of its own
