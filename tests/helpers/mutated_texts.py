"""Graph and plan texts that someone changed: by characters, by tokens, by lines.

A case is named by its number: `mutated(17)` makes its text again.
"""

from __future__ import annotations

import functools
import random
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Graph, Node, Trace, freeze, topological
from magmagraph.ops import TABLE
from magmagraph.passes import pipeline
from magmagraph.passes.lowering import specialize
from magmagraph.text.writing import dump

TOKEN = re.compile(r"""%\d+|"[^"]*"|'[^']*'|@\w+|[\w.]+|\s+|.""", re.DOTALL)
NUMBERS = (
    "-1", "0", "1", "2", "7", "64", "65537", "2147483648", "9223372036854775807",
    "9223372036854775808", "18446744073709551616", "9" * 40, "9" * 5000, "1e999", "-inf", "nan",
    "0.5", "1e-400", "1000000000000",
)  # fmt: skip
WORDS = (
    "True", "None", "float32", "int8", "complex128", "float64[3]", "batch", "?0", "?7",
    "?9223372036854775807", "{0}", "{1}", "<function>", "'*/'", '"wrap"', "()", "(1,)",
    "(True, 2)", "[1, 2]", "array(float32[1], [1.0])", "%0", "%1", "%999999999999999999999",
    "*/ system(\"x\"); /*", "\\", "\n", "\x00", "é", "٣", "min(n, 5)", "n//0", "n*n*n", "-n",
    "((((((((" * 20, "{\n" * 80, "require batch >= 1 at %0", "return %0", "scheduled", "inputs %0",
    "effect %1", "update %0 = %1", "data @0 = AAAA", "commit", "fetch s0 float32[3]",
)  # fmt: skip


class TooLong(BaseException):
    """Reading a text takes longer than anyone waits."""


@contextmanager
def watched(seconds: float = 60.0) -> Iterator[None]:
    """Raise `TooLong` in what runs inside for so long: it hangs."""

    def ring(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@functools.cache
def texts() -> tuple[str, ...]:
    """Return the texts that are changed: graphs and plans with lines of every kind."""
    x = mg.input("x", shape=("batch", 6))
    y = mg.input("y", shape=(None, 6))
    image = mg.input("image", shape=("n", 3, 8, 8))
    w = mg.var("W", init=np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))
    table = mg.constant(np.linspace(0, 1, 24).reshape(6, 4).astype(np.float32))
    hidden = mg.tanh(x @ (w + table) + 0.1)
    loss = mg.mean(hidden * hidden)
    pieces = mg.concatenate([x, y])[1:] * np.float32([1.5, -0.0, np.nan, np.inf, 1e-30, 0.1])
    windows = mg.max_pool2d(mg.conv2d(image, mg.ones((4, 3, 3, 3)), padding=1), 2)
    draws = mg.random.normal((4, 6)) + mg.random.poisson((6,), 3.0)
    order = mg.take(x, mg.argsort(x[:, 0]), axis=0)
    _, scanned = mg.scan(lambda carry, row: (carry + row, carry * row), mg.zeros((6,)), x)
    square = mg.linalg.solve(mg.eye(6) * 2.0, mg.sum(x, axis=0))
    all_outputs = [loss, pieces, windows, draws, order, scanned, square, mg.fft.rfft(y).real]
    all_texts = []
    for outputs, updates in ((all_outputs, []), ([loss], [(w, w - 0.1 * mg.grad(loss, w))])):
        inputs = [node for node in (x, y, image) if _reads(outputs, node)]
        trace = Trace()
        graph = freeze(inputs, outputs, updates, trace=trace)
        plan, report = pipeline.run(graph, trace, options=options_of())
        all_texts += [dump(graph), dump(plan)]
        all_texts += [dump(after) for _, _, after in report.steps()]
        sizes = dict.fromkeys(_names(graph), 8)
        all_texts.append(dump(specialize.specialize(plan, sizes)))
    return tuple(dict.fromkeys(all_texts))


def _reads(outputs: list[Node], leaf: Node) -> bool:
    return any(node is leaf for node in topological(outputs))


def _names(graph: Graph) -> set[str]:
    return {
        name for node in graph.nodes if not isinstance(node.type, tuple)
        for extent in node.shape for name in mg.dims.names(extent)
    }  # fmt: skip


def mutated(number: int) -> str:
    """Return the text of a case."""
    rng = random.Random(number)
    all_texts = texts()
    text = rng.choice(all_texts)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        way = rng.choice((_of_characters, _of_tokens, _of_tokens, _of_lines, _of_operations))
        text = way(text, rng)
    return text


def _of_characters(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    count = rng.choice((0, 1, 1, 4))
    replacement = rng.choice(("", chr(rng.randrange(256)), text[at : at + 1]))
    return text[:at] + replacement + text[at + count :]


def _of_tokens(text: str, rng: random.Random) -> str:
    tokens = TOKEN.findall(text)
    if not tokens:
        return text
    at = rng.randrange(len(tokens))
    numbers = [i for i, token in enumerate(tokens) if token[:1].isdigit()]
    if numbers and rng.random() < 0.5:
        at = rng.choice(numbers)
        tokens[at] = rng.choice(NUMBERS)
    else:
        tokens[at] = rng.choice((rng.choice(WORDS), rng.choice(tokens), tokens[at] * 2, ""))
    return "".join(tokens)


def _of_lines(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    way = rng.randrange(4)
    if way == 0:
        del lines[at]
    elif way == 1:
        lines.insert(at, lines[other])
    elif way == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines.insert(at, rng.choice(rng.choice(texts()).split("\n")))
    return "\n".join(lines)


def _of_operations(text: str, rng: random.Random) -> str:
    """Put another operation in the place of one, or give it an attribute more."""
    calls = list(re.finditer(r"= ([\w.]+)\(", text))
    if not calls:
        return text
    call = rng.choice(calls)
    if rng.random() < 0.5:
        return text[: call.start(1)] + rng.choice(sorted(TABLE)) + text[call.end(1) :]
    name = rng.choice(("value", "axis", "axes", "shape", "mode", "body", "dtype", "key", "state"))
    value = rng.choice((*NUMBERS, *WORDS))
    end = text.find(")", call.end())
    joint = "" if text[call.end() :].startswith(")") else ", "
    return text[:end] + f"{joint}{name}={value}" + text[end:]
