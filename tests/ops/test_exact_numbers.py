"""Python numbers keep all their digits until the dtype that they meet is known.

The tests made from the table call every function twice: while Python floats stand for float64, and
while they stand for float32. Where the operands are of 64 bits both results are the same: a number
that was rounded to float32 on its way shows in the second one.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interpreted import values
from table import FIRST_OR_ALL, PUBLIC, flattened, results, rounded, sample_of, some_samples

import magmagraph as mg
from magmagraph.dtypes import is_inexact
from magmagraph.ir.op import Kind
from magmagraph.ops import TABLE

Case = tuple[str, tuple[Any, ...], dict[str, Any]]

WIDE = (np.dtype(np.float64), np.dtype(np.complex128))
OPTIONS = (0.7, 2.3, (0.7,), [0.7], 0.7 + 0.3j)  # no binary fractions
FIXED = ("axis", "axes", "dtype", "name", "out", "reduction", "shape", "dropout")  # random: dropout
REFUSALS = (  # what functions raise for options and lists that they do not take
    mg.MagmagraphError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip
SCALE = 1.0 + 1.0 / 30.0


def _turned(value: Any) -> Any:
    """Return nested numbers, every float times a number that is no binary fraction."""
    if isinstance(value, (list, tuple)):
        return type(value)(_turned(member) for member in value)
    return value * SCALE if type(value) is float and math.isfinite(value) else value


def _is_wide(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and is_inexact(value.dtype)


def _as_numbers(value: Any) -> Any:
    """Return an array as nested lists of numbers, and lists of arrays as lists of those."""
    if isinstance(value, list):
        return [_as_numbers(member) for member in value]
    return (value * SCALE).tolist() if _is_wide(value) else value


def _cases(name: str, i: int) -> Iterator[Case]:
    """Yield what a function is called with: operands of 64 bits, and numbers beside them."""
    record, sample = sample_of(name, i)
    assert record.function is not None
    attrs = {key: _turned(value) for key, value in sample.attrs.items()}
    parameters = inspect.signature(record.function).parameters
    options = [
        key
        for key, parameter in list(parameters.items())[len(sample.inputs) :]
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    for dtype in WIDE:
        if dtype.name not in record.dtypes:
            continue
        operands = rounded(sample.inputs, dtype)
        yield "arrays", operands, attrs
        yield "gradients", operands, attrs
        for key in options:
            for number in OPTIONS if key not in FIXED else ():
                yield f"{key}={number}", operands, {**attrs, key: number}
        several = sum(map(_is_wide, flattened(operands))) > 1
        for k, value in enumerate(operands) if several else ():
            if _is_wide(value) and value.size:
                for numbers in (value.flat[0].item() * SCALE, _as_numbers(value)):
                    arguments = (*operands[:k], numbers, *operands[k + 1 :])
                    yield f"numbers as operand {k}", arguments, attrs
            elif isinstance(value, list):
                arguments = (*operands[:k], [_as_numbers(value[0]), *value[1:]], *operands[k + 1 :])
                yield f"numbers in operand {k}", arguments, attrs
        if "dtype" in parameters:
            numbers = tuple(map(_as_numbers, operands))
            yield f"numbers, dtype={dtype}", numbers, {**attrs, "dtype": dtype.name}


def _made(function: Callable[..., Any], case: Case, floats: str) -> list[mg.Node]:
    """Return the results of a call, or their gradients, while Python floats stand for a dtype."""
    label, operands, attrs = case

    def constants(value: Any) -> Any:
        if isinstance(value, list) and any(map(_is_wide, value)):
            return [constants(member) for member in value]
        return mg.constant(value) if isinstance(value, (np.ndarray, np.generic)) else value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mg.config, "float_dtype", floats)
        arguments = tuple(map(constants, operands))
        nodes = [
            node for node in results(function(*arguments, **attrs)) if isinstance(node, mg.Node)
        ]
        if label != "gradients":
            return nodes
        points = [v for v in flattened(arguments) if isinstance(v, mg.Node) and is_inexact(v.dtype)]
        random = np.random.default_rng(0)
        terms = [
            mg.sum(mg.real(node) * random.uniform(0.5, 1.5, node.shape))
            for node in nodes
            if is_inexact(node.dtype)
        ]
        return mg.grad(mg.sum(mg.stack(terms)), points, unused="zeros") if points else []


def _assert_same(narrow: Any, wide: Any, what: str) -> None:
    narrow, wide = np.asarray(narrow), np.asarray(wide)
    assert narrow.dtype == wide.dtype, what
    if wide.dtype.kind not in "fc":
        np.testing.assert_array_equal(narrow, wide, what)
        return
    scale = np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0)
    np.testing.assert_allclose(narrow, wide, 1e-15, 1e-15 * scale, err_msg=what)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # options may leave a function's domain
@FIRST_OR_ALL
@pytest.mark.parametrize("name", PUBLIC)
def test_numbers_beside_64_bits_keep_their_digits(name: str, which: str) -> None:
    record = PUBLIC[name]
    assert record.function is not None
    for i in some_samples(record, which):
        for case in _cases(name, i):
            label = case[0]
            try:
                expected = values(_made(record.function, case, "float64"))
            except REFUSALS:
                assert label != "arrays"
                continue
            nodes = _made(record.function, case, "float32")
            decided = label in ("arrays", "gradients") and any(map(_is_wide, flattened(case[1])))
            for node, value, expected_value in zip(nodes, values(nodes), expected, strict=True):
                if decided or node.dtype == expected_value.dtype:
                    _assert_same(value, expected_value, f"{name}[{i}], {label}")
                else:  # floats came of integers, or the first operand is of numbers
                    assert node.dtype.name in ("float32", "complex64")


X = np.array([0.3, -1.7, 2.2])
WHOLE = np.array([1, 2, 3])
BIG = 2**53 + 1

EXACT: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "asarray": (lambda x, n: mg.asarray(0.1, dtype="float64"), np.float64(0.1)),
    "asarray, lists": (lambda x, n: mg.asarray([[0.1]], dtype="float64"), np.array([[0.1]])),
    "asarray, nodes": (lambda x, n: mg.asarray([x[0], 0.1], dtype="float64"), np.array([0.3, 0.1])),
    "asarray, complex": (
        lambda x, n: mg.asarray(16777217j, dtype="complex128"), np.complex128(16777217j)
    ),
    "cast": (lambda x, n: mg.cast(0.1, "float64"), np.float64(0.1)),
    "cast to whole": (lambda x, n: mg.cast(2.0**40 + 1.5, "int64"), np.int64(2**40 + 1)),
    "cast whole": (lambda x, n: mg.cast(10**30, "float64"), np.float64(1e30)),
    "constant": (lambda x, n: mg.constant(0.1, dtype="float64"), np.float64(0.1)),
    "full": (lambda x, n: mg.full((1,), 1e300, dtype="float64"), np.array([1e300])),
    "full, whole": (lambda x, n: mg.full(1, BIG, dtype="int64"), np.array([BIG])),
    "full, unsigned": (
        lambda x, n: mg.full(1, 2**64 - 1, dtype="uint64"), np.array([2**64 - 1], np.uint64)
    ),
    "full_like": (lambda x, n: mg.full_like(x, 0.1), np.full(3, 0.1)),
    "stack": (lambda x, n: mg.stack([0.1, 0.2], dtype="float64"), np.array([0.1, 0.2])),
    "concatenate": (lambda x, n: mg.concatenate([x, [0.1]]), np.append(X, 0.1)),
    "linspace": (lambda x, n: mg.linspace(0.1, 0.7, 3, dtype="float64"), np.linspace(0.1, 0.7, 3)),
    "geomspace": (
        lambda x, n: mg.geomspace(0.1, 0.7, 3, dtype="float64"), np.geomspace(0.1, 0.7, 3)
    ),
    "logspace": (lambda x, n: mg.logspace(0.1, 0.7, 3, dtype="float64"), np.logspace(0.1, 0.7, 3)),
    "float_power": (lambda x, n: mg.float_power(0.1, 0.3), np.float_power(0.1, 0.3)),
    "kaiser": (lambda x, n: mg.kaiser(5, beta=14.1, dtype="float64"), np.kaiser(5, 14.1)),
    "arange": (lambda x, n: mg.arange(0.1, 1.0, 0.3, dtype="float64"), np.arange(0.1, 1.0, 0.3)),
    "arange, whole": (lambda x, n: mg.arange(BIG, BIG + 2), np.array([BIG, BIG + 1])),
    "sum": (lambda x, n: mg.sum([0.1, 0.2], dtype="float64"), np.sum([0.1, 0.2])),
    "sum, initial": (lambda x, n: mg.sum(x, initial=0.1), np.sum(X, initial=0.1)),
    "sum, whole initial": (lambda x, n: mg.sum(n, initial=BIG), np.sum(WHOLE, initial=BIG)),
    "at, set": (lambda x, n: x.at[0].set(0.1), np.array([0.1, *X[1:]])),
    "at, set list": (lambda x, n: x.at[:2].set([0.1, 0.2]), np.array([0.1, 0.2, X[2]])),
    "at, add": (lambda x, n: x.at[0].add(0.1), np.array([X[0] + 0.1, *X[1:]])),
    "at, divide": (lambda x, n: x.at[0].divide(0.1), np.array([X[0] / 0.1, *X[1:]])),
    "at, set whole": (lambda x, n: n.at[0].set(BIG), np.array([BIG, 2, 3])),
    "where": (lambda x, n: mg.where(x > 0, 0.1, x), np.where(X > 0, 0.1, X)),
    "where, whole": (lambda x, n: mg.where(n > 1, BIG, n), np.where(WHOLE > 1, BIG, WHOLE)),
    "clip": (lambda x, n: mg.clip(x, 0.1, 0.7), np.clip(X, 0.1, 0.7)),
    "pad": (lambda x, n: mg.pad(x, 1, constant_values=0.1), np.pad(X, 1, constant_values=0.1)),
    "pad, whole": (
        lambda x, n: mg.pad(n, 1, constant_values=BIG), np.pad(WHOLE, 1, constant_values=BIG)
    ),
    "huber": (
        lambda x, n: mg.huber(x, 0.0, delta=0.7, reduction="none"),
        np.where(np.abs(X) > 0.7, 0.7 * (np.abs(X) - 0.35), X**2 / 2),
    ),
    "add, whole": (lambda x, n: n + BIG, WHOLE + BIG),
    "add, unsigned": (
        lambda x, n: mg.cast(n, "uint64") + (2**63 + 1), WHOLE.astype(np.uint64) + 2**63 + 1
    ),
    "add, list": (lambda x, n: mg.add(x, [0.1, 0.2, 0.3]), np.add(X, [0.1, 0.2, 0.3])),
    "add, whole list": (lambda x, n: mg.add(x, [BIG, 1, 2]), X + np.array([BIG, 1, 2])),
    "multiply, whole": (lambda x, n: x * (2**31 + 1), X * (2**31 + 1)),
    "multiply, complex": (lambda x, n: x * (0.1 + 0.3j), X * (0.1 + 0.3j)),
    "whole beside floats": (
        lambda x, n: mg.hypot(mg.constant(np.array([BIG])), x[:1]), np.hypot(np.array([BIG]), X[:1])
    ),
    "equal": (lambda x, n: mg.equal(mg.constant(np.array(BIG)), BIG - 1), np.bool_(False)),
    "digitize": (lambda x, n: mg.digitize(x, [0.3]), np.digitize(X, [0.3])),
    "isin": (lambda x, n: mg.isin(x, [2.2]), np.isin(X, [2.2])),
    "select": (lambda x, n: mg.select([x > 0], [x], default=0.1), np.where(X > 0, X, 0.1)),
    "insert": (lambda x, n: mg.insert(x, 0, 0.1), np.insert(X, 0, 0.1)),
    "interp": (lambda x, n: mg.interp(x, [0.1, 0.7], [0.2, 0.9]),
               np.interp(X, [0.1, 0.7], [0.2, 0.9])),
    "quantile": (lambda x, n: mg.quantile(x, 0.1), np.quantile(X, 0.1)),
    "variable": (lambda x, n: mg.var("v", init=0.1, dtype="float64"), np.float64(0.1)),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_number_is_rounded_once(name: str) -> None:
    function, expected = EXACT[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of numbers that float32 does not hold
        node = function(mg.constant(X), mg.constant(WHOLE))
        _assert_same(node.eval(), expected, name)


def test_weak_numbers_stay_weak() -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        x = mg.input("x", (3,), dtype)
        for node in (x * 2.0, 0.1 + x, mg.where(x > 0, 0.1, x), mg.hypot(x, 0.1), x.at[0].set(0.1)):
            assert node.dtype == mg.dtypes.canonical(dtype)
    x = mg.input("x", (3,))
    assert mg.huber(x, 0.0, delta=0.7).dtype == np.float32
    assert mg.asarray(0.1).dtype == mg.stack([0.1, 0.2]).dtype == np.float32
    assert mg.add(x, [0.1, 0.2, 0.3]).dtype == np.float32
    with pytest.raises(mg.DTypeError, match="the int 300 does not fit uint8"):
        mg.input("small", (3,), "uint8") + 300
    with pytest.raises(mg.DTypeError, match="lose the imaginary part"):
        mg.cast([1j], "float64")


LITERALS = {
    "float64": [0.1, 1e300, 5e-324, -0.0, math.inf, -math.inf, math.nan, 2.0**53 + 2.0],
    "int64": [BIG, -(2**63), 2**63 - 1, 2**31, -(2**31) - 1],
    "uint64": [2**64 - 1, 2**63 + 1, BIG, 2**32],
    "uint32": [2**32 - 1, 2**31],
    "complex128": [0.1j, 16777217j, 0.1 + 1e300j],
}


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("dtype", LITERALS)
def test_literals_of_kernels_are_exact(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    _check_literals(dtype, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", LITERALS)
def test_literals_of_cuda_kernels_are_exact(dtype: str) -> None:
    _check_literals(dtype, "cuda")


def _check_literals(dtype: str, device: str) -> None:
    x = mg.input("x", ("n",), dtype)
    feed = np.ones(3, dtype)
    outputs: list[mg.Node] = []
    expected: list[np.ndarray] = []
    for value in LITERALS[dtype]:
        exact = feed.dtype.type(value)
        outputs += [x * value, mg.where(mg.not_equal(x, value), value, x)]
        with np.errstate(all="ignore"):
            expected += [feed * exact, np.where(feed != exact, exact, feed)]
    results = mg.function([x], outputs, device=device)(feed)
    for value, expected_value in zip(results, expected, strict=True):
        value = np.asarray(value.get() if hasattr(value, "get") else value)
        assert value.dtype == expected_value.dtype
        np.testing.assert_array_equal(value, expected_value)


def _while(floats: str, function: Callable[[], list[Any]]) -> list[np.ndarray]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mg.config, "float_dtype", floats)
        return [np.asarray(value) for value in function()]


START = np.array([0.3, -1.7, 2.2])
SCHEDULES = {
    "constant": lambda: mg.schedule.constant(0.013),
    "step": lambda: mg.schedule.step(0.013, 1, 0.7),
    "exponential": lambda: mg.schedule.exponential(0.013, 0.7, 3),
    "cosine": lambda: mg.schedule.cosine(0.013, 7),
    "warmup": lambda: mg.schedule.warmup(3, mg.schedule.cosine(0.013, 7)),
    "function": lambda: lambda step: 0.013,
    "plateau": lambda: mg.schedule.plateau(0.013),
}


def _trained(optimizer: mg.optimizer.Optimizer) -> list[np.ndarray]:
    w = mg.var("w", init=START.copy())
    loss = mg.sum(mg.power(w - 0.1, 4.0)) + mg.sum(mg.cos(w * 1.3))
    step = mg.function([], [loss], updates=optimizer.updates(loss, [w]))
    losses = [step()[0] for _ in range(3)]
    return [w.value, *losses]


OPTIMIZERS = [
    (name, option)
    for name in mg.optimizer.__all__
    if inspect.isclass(kind := getattr(mg.optimizer, name))
    and issubclass(kind, mg.optimizer.Optimizer)
    and kind is not mg.optimizer.Optimizer
    for option in (
        None, *(o for o in inspect.signature(kind).parameters if o not in ("self", "accumulate"))
    )
]  # fmt: skip


@pytest.mark.parametrize(("name", "option"), OPTIMIZERS)
def test_settings_of_optimizers_are_exact(name: str, option: str | None) -> None:
    kind = getattr(mg.optimizer, name)
    settings: dict[str, Any] = {} if option is None else {option: 0.07}
    first = next(iter(inspect.signature(kind).parameters.values()))
    if first.default is inspect.Parameter.empty:
        around = first.name == "optimizer"  # such as an average of what another one computes
        settings = {first.name: mg.optimizer.SGD(0.013) if around else 0.013, **settings}
    try:
        wide = _while("float64", lambda: _trained(kind(**settings)))
    except REFUSALS:  # the setting is no number
        assert option is not None
        return
    for narrow, expected in zip(
        _while("float32", lambda: _trained(kind(**settings))), wide, strict=True
    ):
        _assert_same(narrow, expected, f"{name} {settings}")


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_exact(name: str) -> None:
    def train() -> list[np.ndarray]:
        return _trained(mg.optimizer.SGD(SCHEDULES[name]()))

    for narrow, wide in zip(_while("float32", train), _while("float64", train), strict=True):
        _assert_same(narrow, wide, name)


def test_schedules_round_where_they_are_called() -> None:
    rate = mg.schedule.cosine(0.1, 7)
    assert rate.at(0) == 0.1
    assert rate(mg.constant(np.int64(2))).dtype == np.float32
    result = rate(mg.constant(np.int64(2))).eval()
    assert result == np.float32(0.05 * (1.0 + math.cos(2.0 * math.pi / 7.0)))


DRAWS = [name for name, record in TABLE.items() if record.kind is Kind.RANDOM and record.function]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", DRAWS)
def test_parameters_of_distributions_are_exact(name: str) -> None:
    function = TABLE[name].function
    assert function is not None
    parameters = inspect.signature(function).parameters
    needed = [
        key
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty and key not in ("shape", "dtype")
        and parameter.kind is not parameter.VAR_POSITIONAL
    ]  # fmt: skip
    options = [None, *(key for key in parameters if key not in ("shape", "dtype", "key", *needed))]
    calls: list[dict[str, Any]] = []
    for number in (0.3, 0.7, 2.3):
        for option in options:
            arguments: dict[str, Any] = dict.fromkeys(needed, number)
            arguments |= {"shape": 5} if "shape" in parameters else {}
            arguments |= {"dtype": "float64"} if "dtype" in parameters else {}
            calls.append(arguments if option is None else {**arguments, option: number})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mg.config, "float_dtype", "float64")
        wide, arguments_of = _drawn(function, calls)
        patch.setattr(mg.config, "float_dtype", "float32")
        narrow, taken_again = _drawn(function, calls)
    assert arguments_of == taken_again
    assert len(arguments_of) == len(wide) == len(narrow)
    for arguments, numbers, expected in zip(arguments_of, narrow, wide, strict=True):
        if "dtype" in parameters:
            _assert_same(numbers, expected, f"{name} {arguments}")


def _drawn(
    function: Callable[..., Any], calls: list[dict[str, Any]]
) -> tuple[list[np.ndarray], list[dict[str, Any]]]:
    """Return what all calls draw, compiled at once, and for each result the call's arguments."""
    mg.random.seed(7)
    nodes: list[mg.Node] = []
    arguments_of: list[dict[str, Any]] = []
    for arguments in calls:
        try:
            nodes_of_call = results(function(**arguments))
        except REFUSALS:  # the option is no number
            continue
        nodes += nodes_of_call
        arguments_of += [arguments] * len(nodes_of_call)
    return [np.asarray(value) for value in mg.function([], nodes)()], arguments_of
