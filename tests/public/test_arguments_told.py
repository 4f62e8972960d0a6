"""A call whose arguments do not fit says what the function takes, and what was meant."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import ArgumentError, ConfigError, DTypeError, GradientError, ShapeError
from magmagraph.help import argument_errors as telling
from magmagraph.help import keywords

X = mg.input("x", ("batch", 3))
W = mg.var("w", init=np.ones(3, np.float32))
LOSS = mg.sum(W * W)
nn, optimizer = mg.nn, mg.optimizer


@pytest.mark.parametrize(
    ("call", "wrong", "hint"),
    [
        # Functions: names of PyTorch, NumPy, SciPy, TensorFlow, and slips of the pen.
        (lambda: mg.sum(X, dim=1), "mg.sum() got an unexpected keyword argument 'dim'", "axis="),
        (lambda: mg.mean(X, keepdim=True), "mg.mean() got an unexpected", "keepdims="),
        (lambda: mg.sum(X, axiss=1), "keyword argument 'axiss'", "axis="),
        (lambda: mg.softmax(X, dim=-1), "mg.softmax()", "axis="),
        (lambda: mg.exp(X, out=X), "'out'", "leave it out: a node is a value"),
        (lambda: mg.exp(X, where=X > 0), "'where'", "mg.where(mask, mg.exp(x), other)"),
        (lambda: mg.equal(X, X, dtype=bool), "'dtype'", "mg.cast(mg.equal(x, y), dtype)"),
        (lambda: mg.linalg.inv(X, overwrite_a=True), "mg.linalg.inv()", "leave it out"),
        (lambda: mg.fft.fft(X, workers=2), "mg.fft.fft()", "mg.config.threads"),
        (lambda: mg.special.i0(X, out=X), "mg.special.i0()", "a node is a value"),
        (lambda: mg.sort(X, kind="stable"), "'kind'", "equal elements is always kept"),
        (lambda: mg.cross_entropy(input=X, target=X), "'input' and 'target'", "target: labels="),
        (lambda: mg.mse(y_true=X, y_pred=X), "'y_true' and 'y_pred'", "y_pred: prediction="),
        (lambda: mg.one_hot(X, num_classes=3), "'num_classes'", "classes="),
        (lambda: mg.random.normal(loc=0.0, size=3), "'loc' and 'size'", "for size: shape="),
        (lambda: mg.function([X], X, givens={}), "mg.function()", "mg.substitute("),
        (lambda: mg.grad(LOSS, argnums=0), "mg.grad()", "wrt="),
        (lambda: mg.var("x", shape=3, broadcastable=True), "mg.input()", "extents of 1"),
        (lambda: mg.batches(X, batch_size=3), "mg.data.batches()", "size="),
        (lambda: mg.data.read_csv("a.csv", sep=","), "mg.data.read_csv()", "delimiter="),
        # Arguments by their places.
        (lambda: mg.transpose(X, 1, 0), "at most 2 positional arguments, and 3", "(1, 0))"),
        (lambda: mg.block(X, X), "at most 1 positional argument, and 2 were given", "one list"),
        (lambda: mg.max(X, 0, None, True), "and 4 were given", "options by their names"),
        (lambda: mg.where(), "mg.where() missing 1 required argument: 'condition'", ""),
        (lambda: mg.dropout(X, 0.5, rate=0.5), "multiple values for argument 'rate'", ""),
        # Methods.
        (lambda: X.sum(dim=1), "x.sum()", "axis="),
        (lambda: X.astype("float64", copy=False), "x.astype()", "leave it out"),
        # Layers.
        (lambda: nn.Dense(in_features=3, out_features=4), "mg.nn.Dense()", "out_features: units="),
        (lambda: nn.Dense(4, activaton="relu"), "mg.nn.Dense()", "activation="),
        (lambda: nn.Dense(4, use_bias=False), "'use_bias'", "bias="),
        (lambda: nn.Dense(4, nane="a"), "mg.nn.Dense()", "name="),
        (lambda: nn.Conv2D(in_channels=3, out_channels=4, kernel_size=3), "mg.nn.Conv2D()",
         "for in_channels: leave it out"),
        (lambda: nn.Conv2D(4, 3, strides=2), "mg.nn.Conv2D()", "stride="),
        (lambda: nn.LSTM(4, batch_first=True), "mg.nn.LSTM()", "the batch is the first axis"),
        (lambda: nn.LayerNorm(128), "at most 0 positional arguments", "leave numbers of features"),
        (lambda: nn.MultiHeadAttention(num_heads=2), "'num_heads'", "heads="),
        (lambda: nn.Embedding(num_embeddings=5, embedding_dim=2), "mg.nn.Embedding()", "width="),
        # Models, optimizers and what belongs to them.
        (lambda: mg.NeuralNetwork([nn.Dense(1)], optimiser=3), "mg.NeuralNetwork()", "optimizer="),
        (lambda: mg.NeuralNetwork(nn.Dense(1), nn.Dense(1)), "mg.NeuralNetwork()", "one list"),
        (lambda: optimizer.Adam(lr=0.1), "mg.optimizer.Adam()", "learning_rate="),
        (lambda: optimizer.Adam(0.1, betas=(0.9, 0.9)), "'betas'", "beta1=, beta2="),
        (lambda: optimizer.Adam([W], lr=0.1), "'lr'", "optimizer.step(loss, [w, b])"),
        (lambda: optimizer.RMSProp(0.1, rho=0.9), "mg.optimizer.RMSProp()", "decay="),
        (lambda: optimizer.SGD(0.1).minimize(LOSS, [W], maxiter=3), "minimize()", "steps="),
        (lambda: optimizer.SGD(0.1).step(LOSS), "step() missing 1 required argument: 'wrt'", ""),
        (lambda: mg.callbacks.EarlyStopping(min_delta=1), "mg.callbacks.EarlyStopping()", "least="),
        (lambda: mg.schedule.cosine(lr=0.1), "mg.schedule.cosine()", "rate="),
        (lambda: mg.init.normal(stddev=1.0), "mg.init.normal()", "std="),
        (lambda: mg.distributed.DataParallel(axis="n"), "mg.distributed.DataParallel()", "dim="),
        (lambda: mg.Tensor((3,), dtyp="int8"), "mg.Tensor()", "dtype="),
    ],
)  # fmt: skip
def test_a_misfit_names_the_mend(call: Callable[[], Any], wrong: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    first, need, *rest = str(caught.value).splitlines()
    assert wrong in first
    assert need.startswith("  expected: ")
    assert hint in "\n".join(rest)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_what_is_needed_is_the_whole_signature() -> None:
    with pytest.raises(TypeError) as caught:
        nn.Dense(units=4, colour="red")
    assert str(caught.value).splitlines() == [
        "mg.nn.Dense() got an unexpected keyword argument 'colour'",
        "  expected: mg.nn.Dense(units, activation=None, *, bias=True, "
        "kernel_init='glorot_uniform', bias_init='zeros', name=None, weight_decay=None, "
        "regularizer=None, trainable=True)",
    ]


class Scale(nn.Layer):
    """A layer of a user's."""

    def __init__(self, factor: float, **options: Any) -> None:
        super().__init__(**options)
        self.factor = factor


class Halving(optimizer.Optimizer):
    """An optimizer of a user's, which takes any setting."""

    def update(self, variable: Any, gradient: Any, state: Any) -> Any:
        return variable - state.options.share * gradient


def test_classes_of_users_are_told_by_their_names() -> None:
    with pytest.raises(ArgumentError, match=r"^Scale\(\) got an unexpected .* 'facto'"):
        Scale(facto=2.0)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"^Scale\(\) missing 1 required argument: 'factor'"):
        Scale()  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"^Scale\(\) got an unexpected .* 'trainabel'"):
        Scale(2.0, trainabel=False)
    with pytest.raises(ArgumentError, match=r"missing 1 required argument: 'learning_rate'"):
        Halving(share=0.5)  # type: ignore[call-arg]
    assert Halving(0.1, share=0.5).settings == {"share": 0.5}


def test_errors_from_within_stay_what_they_are() -> None:
    def broken(x: Any) -> Any:
        return len(x.shape, 1)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="len") as caught:
        mg.vmap(broken)(X)
    assert not isinstance(caught.value, ArgumentError)
    with pytest.raises(DTypeError) as refused:
        mg.sqrt(mg.constant("text"))
    assert not isinstance(refused.value, ArgumentError)


def test_public_functions_are_found_again_and_keep_their_faces() -> None:
    assert mg.sum is not mg.ops.reduction.primitives.sum  # type: ignore[attr-defined]
    for function in (mg.sum, mg.abs, mg.linalg.norm, mg.random.gamma, mg.special.i0, mg.nn.rbf):
        assert pickle.loads(pickle.dumps(function)) is function
        bare = inspect.unwrap(function)
        assert inspect.signature(function) == inspect.signature(bare)
        assert function.__doc__ == bare.__doc__ and function.__name__ == bare.__name__
    assert mg.abs is mg.absolute and mg.linalg.matmul is not None
    assert pickle.loads(pickle.dumps(nn.Dense(3, mg.relu))).activation is mg.relu
    assert nn.activations.activation_name(mg.nn.rbf) == "rbf"  # type: ignore[attr-defined]
    assert nn.activations.activation_name(mg.relu) == "relu"  # type: ignore[attr-defined]


def test_lines_of_users_are_found_through_it() -> None:
    node = mg.exp(X); line = inspect.currentframe().f_lineno  # type: ignore[union-attr]  # noqa: E702
    assert node.line is not None and (node.line.file, node.line.number) == (__file__, line)


def _names() -> set[str]:
    """Return the names of all arguments that anything public takes."""
    found: set[str] = set()
    rooms = (mg, mg.linalg, mg.random, mg.init, mg.optimizer, mg.schedule, mg.data, mg.nn,
             mg.callbacks, mg.tune, mg.distributed)  # fmt: skip
    for room in rooms:
        for value in vars(room).values():
            if inspect.isclass(value) and value.__init__ is not object.__init__:
                found |= set(keywords.parameters_of(value))
            elif inspect.isfunction(value):
                found |= set(inspect.signature(value).parameters)
    for method in (mg.optimizer.Optimizer.minimize, mg.optimizer.Optimizer.step, mg.Model.fit):
        found |= set(inspect.signature(method).parameters)
    return found


def test_counterparts_are_names_that_something_takes() -> None:
    names = _names()
    told = {each for group in keywords.COUNTERPARTS.values() for each in group if each}
    plain = {each for each in told if each.isidentifier() and not each.startswith("_")}
    assert plain and plain <= names, plain - names


def test_a_keyword_is_never_said_to_be_itself() -> None:
    for keyword in keywords.COUNTERPARTS:
        told = keywords.counterpart(keyword, [name for name in _names() if name != keyword])
        assert told != f"{keyword}="


def test_a_function_is_told_once() -> None:
    assert telling.told(inspect.unwrap(mg.sum), "elsewhere", "sum") is mg.sum


# The order of arguments of draws.


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: mg.random.normal(0, 1, 5), "mg.random.normal((5,), mean=0, std=1) if"),
        (lambda: mg.random.normal(0, 1, 5), "else mg.random.normal((0,), 1, 5)"),
        (lambda: mg.random.normal(10, 2, (5,)), "mg.random.normal((5,), mean=10, std=2)"),
        (lambda: mg.random.normal(0, 1, (5,)), "mg.random.normal((5,), mean=0, std=1)"),
        (lambda: mg.random.normal(0, 1, size=5), "mg.random.normal((5,), mean=0, std=1)"),
        (lambda: mg.random.uniform(-1.0, 1.0, [3, 4]), "((3, 4), low=-1.0, high=1.0)"),
        (lambda: mg.random.randint(0, 10, 5), "mg.random.randint((5,), low=0, high=10) if"),
        (lambda: mg.random.gamma(2.0, 1.0, 5), "mg.random.gamma((5,), a=2.0, scale=1.0)"),
        (lambda: mg.random.poisson(3, (5,)), "mg.random.poisson((5,), lam=3)"),
        (lambda: mg.random.binomial(10, 0.5, (100,)), "mg.random.binomial((100,), n=10, p=0.5)"),
        (lambda: mg.random.exponential(2.0), "mg.random.exponential(shape, scale=2.0)"),
        (lambda: mg.random.normal(np.zeros(3), 1.0), "(shape, mean=ndarray, std=1.0)"),
    ],
)
def test_the_order_of_numpys_draws_is_refused(call: Callable[[], Any], hint: str) -> None:
    with pytest.raises(ShapeError, match="the shape stands first") as caught:
        call()
    assert hint in str(caught.value).splitlines()[-1]


def test_draws_whose_order_is_clear_are_taken() -> None:
    for node, shape in (
        (mg.random.normal(5), (5,)),
        (mg.random.normal(5, 0.0, 1.0), (5,)),
        (mg.random.normal(5, std=2.0), (5,)),
        (mg.random.normal(5, 0, 1), (5,)),
        (mg.random.randint(5, 0, 10), (5,)),
        (mg.random.normal((5,), 0, 1), (5,)),
        (mg.random.normal("n", 0, 1).shape, None),
        (mg.random.bernoulli(5, 0.5), (5,)),
        (mg.random.rademacher(5, "float32"), (5,)),
        (mg.random.choice([1, 2, 3], 2, False), (2,)),
        (mg.random.gamma(None, np.ones(3)), (3,)),
    ):
        if shape is not None:
            assert node.shape == shape  # type: ignore[union-attr]


# Values that stand in another argument's place.


@pytest.mark.parametrize(
    ("error", "call", "text"),
    [
        (DTypeError, lambda: mg.zeros(2, 3), "try: the extents of a shape as one tuple"),
        (ConfigError, lambda: mg.reshape(X, 3, 2), "try: the extents as one tuple"),
        (DTypeError, lambda: mg.nan_to_num(X, False, 0.0), "NumPy's second argument"),
        (ConfigError, lambda: mg.gelu(X, "fast"), "'none' or 'tanh'"),
        (ConfigError, lambda: nn.Dense(784, 528), "leave the first number out"),
        (ConfigError, lambda: nn.Conv2D(3, 16, 3), "leave the first number out"),
        (ConfigError, lambda: optimizer.Adam([W], 0.1), r"optimizer.step\(loss, \[w, b\]\)"),
        (GradientError, lambda: optimizer.SGD(0.1).minimize(lambda: LOSS, [W]), "minimize takes"),
        (ConfigError, lambda: nn.Sequential(3), "expected: layers of mg.nn"),
    ],
)
def test_a_value_in_a_wrong_place(error: Any, call: Callable[[], Any], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_gelu_takes_pytorchs_words() -> None:
    assert mg.gelu(X, "tanh").op.name == "gelu_tanh"
    values = np.array([-1.0, 2.0])
    np.testing.assert_array_equal(mg.gelu(values, "none").eval(), mg.gelu(values).eval())


def test_sequential_takes_layers_one_by_one(tmp_path: Any) -> None:
    block = nn.Sequential(nn.Dense(4, "relu"), nn.Dense(2), name="block")
    assert [type(member) for member in block.members] == [nn.Dense, nn.Dense]
    assert block.arguments["layers"] == block.members and set(block.arguments) == {"layers", "name"}
    net = mg.NeuralNetwork([nn.Input((3,)), block], loss="mse", optimizer=optimizer.SGD(0.1))
    path = tmp_path / "net.safetensors"
    net.save(path)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(mg.NeuralNetwork.load(path).predict(x), net.predict(x))
