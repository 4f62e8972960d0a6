"""Random calls of everything public: right and wrong arguments, in bounded time and memory.

A call passes where it returns, or where it raises an error of this package. Run as a program, the
file makes calls and prints those that fail::

    python tests/helpers/random_calls.py --seed 3 --count 2000

Calls run in a process of their own, in an empty folder, with limited memory and no network; the
process ends where a call takes too long, and `make_calls` reports that call.
"""

from __future__ import annotations

import argparse
import faulthandler
import inspect
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

import magmagraph as mg
from magmagraph.errors import MagmagraphError, PassError
from magmagraph.functional.custom import OWN
from magmagraph.ir import dims
from magmagraph.ir.graph import topological
from magmagraph.ir.op import Kind
from magmagraph.ops import TABLE

SECONDS = 20.0  # of one call; all that end take less than one or two
BYTES = 6 << 30  # of addresses of the process, of which numpy and BLAS map about one GiB
ELEMENTS = 20_000  # of all nodes together, where a result is computed

NAMESPACES = (
    "", "linalg", "fft", "special", "random", "nn", "init", "schedule", "optimizer", "data",
    "metrics", "regularize", "tune", "debug", "distributed", "passes", "callbacks", "workflow",
    "dtypes",
)  # fmt: skip

# What is not called, with the reason.
LEFT_OUT = {
    "mg.show": "opens a page",
    "mg.function.connect": "waits for a service",
    "mg.workflow.connect": "waits for a service",
    "mg.distributed.launch": "starts processes",
    "mg.distributed.init": "joins ranks",
    "mg.Node": "made by operations",
    "mg.Variable": "made by mg.variable",
    "mg.Graph": "made by mg.function",
    "mg.Function": "made by mg.function",
    "accuracy.result": "called by models, with a total that `batch` gave",
    "mg.dtypes.Kind": "a type for checkers",
    "mg.dtypes.Numerics": "a type for checkers",
    "mg.Type": "made by operations",
}


class OpaqueObject:
    """An object of a type that nothing takes."""

    def __repr__(self) -> str:
        return "<an object>"


class Refused(Exception):
    """What a function of the pool raises: callers must let it through."""


def raising(*args: Any, **keywords: Any) -> Any:
    """Raise an error of the caller's own."""
    raise Refused("a function of the caller has failed")


def pool() -> list[Any]:
    """Return right and wrong values of every kind; functions make those that calls could change."""
    x = mg.input("x", ("batch", 3))
    w = mg.variable("w", init=np.linspace(-1.0, 1.0, 3, dtype=np.float32))
    numbers = [
        None, True, False, 0, 1, 2, 3, -1, -2, 5, 7, 99, 255, -129, 2**31, 2**63, -(2**63), 2**64,
        10**30, 0.0, 0.5, -0.5, 1.0, 2.5, 1e-300, 1e300, float("nan"), float("inf"),
        -float("inf"), 1j, 2 + 3j, np.float32(0.5), np.int64(2), np.bool_(True), np.uint8(200),
        np.float64("nan"),
    ]  # fmt: skip
    words = [
        "", "x", "a", "mean", "sum", "none", "same", "valid", "full", "float32", "int32", "bool",
        "complex64", "float99", "wrap", "clip", "constant", "reflect", "ij,jk->ik", "...i,i",
        "linear", "nearest", "lower", "fro", "nuc", "auto", "batch", "n + 1", "\0", "é" * 40,
        b"bytes",
    ]  # fmt: skip
    dtypes = [np.float32, np.dtype("float64"), mg.int32, mg.bfloat16, np.dtype("O"), int, str]
    nodes = [
        x, w, mg.constant(1.5), mg.constant(np.arange(6, dtype=np.int32).reshape(2, 3)),
        mg.constant(np.zeros((0, 3), np.float32)), mg.constant(np.ones((2, 1, 3, 1), np.float64)),
        mg.constant([True, False, True]), mg.constant(np.ones((3, 3), np.complex64)),
        mg.constant(np.eye(3, dtype=np.float32)), mg.constant(np.arange(4, dtype=np.uint8)),
        mg.input("n", ("n", "n")), mg.input("k", (), "int64"), mg.sum(w * w),
        mg.constant([np.nan, np.inf, -1.0]), mg.constant(np.full((2, 2), np.inf)),
    ]  # fmt: skip
    arrays = [
        np.zeros(0), np.arange(3), np.linspace(0, 1, 12).reshape(3, 4), np.array(2.0),
        np.array([np.nan, 1.0]), np.array(["a", "b"]), np.array([None, 1]), np.eye(2, dtype=bool),
        np.zeros((1, 0, 2)), np.ones((2, 3, 4, 5), np.float16), np.array([2**63], np.uint64),
        np.ma.array([1.0, 2.0], mask=[True, False]), np.full((3, 3), np.inf),
        np.zeros(2, "M8[s]"), np.zeros(2, [("a", "f4")]),
    ]  # fmt: skip
    groups: list[Any] = [
        (), [], {}, set(), (0,), (1, 2), (99,), (0, 0), (-1, 5), (2**63,), (0.5,), ("a",), (None,),
        [1.0, 2.0], [[1, 2], [3]], [[1.0, 2.0], [3.0, 4.0]], [x, w], (x,), {"x": 1}, {w: x},
        {1, 2}, [None, 3], slice(None), slice(0, 2), ..., range(3), [mg.constant([1.0]), 2.0],
        [True, False, True], ("batch", 3), [(1, 1), (0, 2)], {"a": x}, [[x]], (3, -1), [10**30],
    ]  # fmt: skip
    functions = [abs, lambda: 0, lambda a: a, lambda a, b: a + b, len, print, raising, mg.sum]
    others = [
        iter([1, 2]), (i for i in range(3)), OpaqueObject(), OpaqueObject, object(), mg, np,
        mg.nn.Dense(2), mg.optimizer.SGD(0.1), mg.schedule.Constant(0.1), Ellipsis,
        mg.function([x], x * 2.0), x.at, NotImplemented, ValueError("x"), Path("nothing"),
        mg.Dim("m"), mg.Type(np.dtype("float32"), (2, 3)), memoryview(b"abc"), bytearray(3),
    ]  # fmt: skip
    return [*numbers, *words, *dtypes, *nodes, *arrays, *groups, *functions, *others]


class Target(NamedTuple):
    """Something public to call, and argument lists that it takes."""

    name: str
    function: Callable[..., Any]
    good: tuple[tuple[tuple[Any, ...], Mapping[str, Any]], ...] = ()


class Failure(NamedTuple):
    """A call that ended in an error which is not of this package, or did not end."""

    index: int
    call: str
    error: str

    def __str__(self) -> str:
        return f"{self.call}\n    {self.error}\n    again: --start {self.index} --count 1"


def targets() -> list[Target]:
    """Return everything public that can be called, in one order."""
    good: dict[Any, list[tuple[tuple[Any, ...], Mapping[str, Any]]]] = {}
    for record in TABLE.values():
        if (
            record.function is not None
            and record.tests.samples is not None
            and record.name not in OWN
        ):
            calls = [(sample.inputs, sample.attrs) for sample in record.tests.samples()]
            good.setdefault(record.function, []).extend(calls)
    by_name: dict[str, Target] = {}
    for room in NAMESPACES:
        place = getattr(mg, room) if room else mg
        for name in place.__all__:
            value = getattr(place, name)
            full = ".".join(filter(None, ("mg", room, name)))
            if full in LEFT_OUT or not callable(value) or isinstance(value, ModuleType):
                continue
            if isinstance(value, type) and issubclass(value, (BaseException, np.generic)):
                continue
            calls = good.get(inspect.unwrap(value), []) if isinstance(value, FunctionType) else []
            by_name[full] = Target(full, value, tuple(calls))
    for label, instance in instances():
        for name in dir(type(instance)):
            method = None if name.startswith("_") else getattr(type(instance), name)
            if callable(method) and f"{label}.{name}" not in LEFT_OUT:
                by_name[f"{label}.{name}"] = Target(f"{label}.{name}", getattr(instance, name))
        for name in ("__call__", "__getitem__", *OPERATORS):
            if any(name in base.__dict__ for base in type(instance).__mro__):
                by_name[f"{label}.{name}"] = Target(f"{label}.{name}", getattr(instance, name))
    return [by_name[name] for name in sorted(by_name)]


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
           "lshift", "rshift", "divmod")  # fmt: skip
OPERATORS = (
    *(f"__{side}{name}__" for name in _BINARY for side in ("", "r")),
    "__lt__", "__ge__", "__round__",
)  # fmt: skip


def instances() -> Iterator[tuple[str, Any]]:
    """Yield objects whose methods are called."""
    x = mg.input("x", ("batch", 3))
    w = mg.variable("w", init=np.linspace(-1.0, 1.0, 3, dtype=np.float32))
    yield "node", mg.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    yield "named", x
    yield "variable", w
    yield "at", x.at
    yield "at_one", mg.constant(np.arange(6.0).reshape(2, 3)).at[1]
    yield "function", mg.function([x], mg.sum(x * w), updates={w: w * 0.5})
    yield "graph", mg.function([x], mg.sum(x * w)).source_graph
    yield "dense", mg.nn.Dense(2)
    yield "sgd", mg.optimizer.SGD(0.1)
    yield "adam", mg.optimizer.Adam(0.1)
    yield "cosine", mg.schedule.cosine(0.1, 10)
    yield "accuracy", mg.metrics.Accuracy()
    yield "penalty", mg.regularize.l2(0.1)
    yield "batches", mg.batches(np.ones((4, 3), np.float32), np.arange(4), size=2)
    yield "tensor", mg.Tensor((2, 3))
    yield "dim", mg.Dim("m")
    yield "network", mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")
    yield "config", mg.config


def drawn(
    rng: random.Random, target: Target, values: list[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments: of a call that is right with one or two replaced, or all of them drawn."""
    if target.good and rng.random() < 0.75:
        args, keywords = rng.choice(target.good)
        arguments, options = list(args), dict(keywords)
        for _ in range(rng.choice((1, 1, 1, 2))):
            places = [*range(len(arguments)), *options, *_options(target.function)]
            place = rng.choice(places) if places else 0
            if isinstance(place, str):
                options[place] = rng.choice(values)
            elif arguments:
                arguments[place] = rng.choice(values)
        return arguments, options
    arguments, options = [], {}
    for parameter in _parameters(target.function):
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments += [rng.choice(values) for _ in range(rng.randint(0, 3))]
        elif parameter.kind is parameter.VAR_KEYWORD:
            continue
        elif parameter.default is parameter.empty:
            value = _likely(rng, parameter.name, values)
            if parameter.kind is parameter.KEYWORD_ONLY:
                options[parameter.name] = value
            else:
                arguments.append(value)
        elif rng.random() < 0.3:
            options[parameter.name] = _likely(rng, parameter.name, values)
    return arguments, options


# Types of values by the names of parameters that take them.
_LIKELY = {
    (int,): ("axis", "axis1", "axis2", "size", "units", "n", "k", "num", "step", "count", "order",
             "offset", "seed", "width", "channels", "features", "bins"),
    (float,): ("rate", "p", "low", "high", "eps", "alpha", "beta", "scale", "decay", "delta"),
    (tuple,): ("shape", "axes", "pad_width", "reps", "window", "stride"),
    (mg.Node, mg.Variable): ("x", "a", "b", "y", "array", "loss", "logits", "labels", "target",
                             "w", "wrt", "predicted", "outputs", "output", "node", "m", "v"),
    (str,): ("mode", "name", "path", "method", "reduction", "activation"),
    (FunctionType,): ("function", "body", "f", "rule", "fn", "step", "condition"),
}  # fmt: skip


def _likely(rng: random.Random, name: str, values: list[Any]) -> Any:
    """Return a value of the pool, more often one of the type that a name suggests."""
    for types, names in _LIKELY.items():
        if name in names and rng.random() < 0.6:
            return rng.choice([value for value in values if type(value) in types])
    return rng.choice(values)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _options(function: Callable[..., Any]) -> list[str]:
    return [
        parameter.name
        for parameter in _parameters(function)
        if parameter.default is not parameter.empty
        and parameter.kind is not parameter.POSITIONAL_ONLY
    ]


def evaluate(result: Any) -> None:
    """Compute the nodes that a call returned, where they are small."""
    for node in result if isinstance(result, (list, tuple)) else [result]:
        if not isinstance(node, mg.Node) or isinstance(node.type, tuple):
            continue
        below = topological([node])
        if any(each.op.kind is Kind.COLLECTIVE for each in below):
            continue  # of ranks, which are not here
        if sum(map(_elements, below)) > ELEMENTS:
            continue
        leaves = [each for each in below if "key" in each.attrs]
        node.eval({leaf: np.ones(_concrete(leaf.type), leaf.dtype) for leaf in leaves})


def _concrete(type_: mg.Type) -> tuple[int, ...]:
    """Return a shape in which all named dimensions are 3."""
    names = {name for extent in type_.shape if isinstance(extent, mg.Dim)
             for name in dims.names(extent)}  # fmt: skip
    return type_.concrete(dict.fromkeys(names, 3))


def _elements(node: mg.Node) -> float:
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    return sum(float(np.prod(np.array(_concrete(each), np.float64))) for each in types)


def shown(value: Any) -> str:
    """Return a value as a short text."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def is_from_caller(error: BaseException, values: list[Any]) -> bool:
    """Tell whether an error was raised in a function of the pool, or by calling one."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if frames[-1][0].f_code.co_filename == __file__:
        return True
    names = tuple(f"{getattr(value, '__qualname__', None)}() " for value in values)
    return isinstance(error, TypeError) and str(error).startswith(names)


def call_once(
    seed: int, index: int, all_targets: list[Target], announce: Callable[[str], None]
) -> Failure | None:
    """Make one call; return how it failed."""
    rng = random.Random(f"{seed} {index}")
    target = all_targets[index % len(all_targets)]
    values = pool()
    args, keywords = drawn(rng, target, values)
    parts = [*map(shown, args), *(f"{name}={shown(value)}" for name, value in keywords.items())]
    call = f"{target.name}({', '.join(parts)})"
    announce(call)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        evaluate(target.function(*args, **keywords))
    except Exception as error:
        failed_pass = isinstance(error, PassError) and error.__cause__ is not None
        if isinstance(error, MagmagraphError) and not failed_pass:
            return None
        if is_from_caller(error, values):
            return None
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
        return Failure(index, call, f"{type(error).__name__}: {str(error)[:300]} at {places}")
    finally:
        faulthandler.cancel_dump_traceback_later()
    return None


def make_calls(seed: int, start: int, count: int) -> tuple[int, list[Failure]]:
    """Make calls in processes of their own; return how many, and how they failed.

    A process that ends in a call (because it took too long, or crashed) is that call's failure;
    the next process goes on behind it.
    """
    failures: list[Failure] = []
    index, end = start, start + count
    while index < end:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            command = [sys.executable, __file__, "--seed", str(seed), "--start", str(index),
                       "--count", str(end - index), "--log", str(log)]  # fmt: skip
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            lines = [json.loads(line) for line in log.read_text().splitlines()]
        failures += [Failure(*line["failure"]) for line in lines if "failure" in line]
        calls = [line["call"] for line in lines if "call" in line]
        index += len(calls)
        if done.returncode:
            text = done.stderr[-2000:]
            failures.append(Failure(index - 1, calls[-1] if calls else "none", text))
            index += not calls
    return index - start, failures


def main() -> None:
    """Make calls and write a line before each, and one for each failure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--log", default=None)
    options = parser.parse_args()
    if options.log is None:
        calls, failures = make_calls(options.seed, options.start, options.count)
        print(*failures, f"{calls} calls, {len(failures)} failed", sep="\n")
        sys.exit(bool(failures))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    sys.stdin.close()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    os.environ["HOME"] = os.getcwd()
    socket.socket.connect = raising  # type: ignore[method-assign]
    warnings.simplefilter("ignore")
    mg.config.compiler = "off"
    all_targets = targets()
    with open(options.log, "a", encoding="utf-8") as log:

        def write(line: dict[str, Any]) -> None:
            log.seek(0, os.SEEK_END)
            print(json.dumps(line), file=log, flush=True)

        for index in range(options.start, options.start + options.count):
            failure = call_once(
                options.seed, index, all_targets, lambda call: write({"call": call})
            )
            if failure is not None:
                write({"failure": failure})


if __name__ == "__main__":
    main()
