"""Extents as text, and back."""

from __future__ import annotations

import re

from ...errors import ShapeError, message
from .algebra import (
    Extent,
    atom_dim,
    floor_div,
    maximum,
    minimum,
    terms_of,
    too_large,
)

DEPTH = 50  # of parentheses inside of each other
DEGREE = 64  # factors of a product
_DIGITS = 19  # of a number in a text, and of the name of an anonymous dimension
_TOKEN = re.compile(r"\s*(//|[-+*(),]|\d+|\?\d+|[^\W\d]\w*)")


def parse(text: str) -> Extent:
    """Read the text of an extent: what ``str`` of an int or a Dim wrote.

    text (str): Ints, names and ``?0`` with ``+ - * //``, parentheses, ``min(a, b)`` and ``max(a,
        b)``.
    returns (int or Dim):
    raises ShapeError: If the text is anything else.

    Examples
    --------
    >>> parse("2*batch + 1"), parse("(n + 1)//2 + n//2"), parse("12 // 5")
    (2*batch + 1, n, 2)
    """
    tokens: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        token = _TOKEN.match(text, place)
        if token is None:
            raise _unreadable(text, text[place:])
        tokens.append(token.group(1))
        place = token.end()
    reader = _Reader(text, tokens)
    extent = reader.sum()
    if reader.place < len(tokens):
        raise _unreadable(text, tokens[reader.place])
    return extent


def _unreadable(text: str, at: str) -> ShapeError:
    return ShapeError(
        message(
            f"{text[:80]!r} is not an extent: it cannot be read from "
            f"{at.strip()[:40] or 'its end'!r} on",
            need="an expression such as '2*batch + 1', 'n//2' or 'min(n, 5)'",
        )
    )


class _Reader:
    """A reader of the grammar above, a method for each level."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text, self.tokens, self.place, self.depth = text, tokens, 0, 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise _unreadable(self.text, token)
        self.place += 1
        return token

    def sum(self) -> Extent:
        self.depth += 1
        if self.depth > DEPTH:
            raise too_large("too many parentheses inside of each other", f"at most {DEPTH}")
        total: Extent = 0
        sign = self.take() if self.peek() == "-" else "+"
        while True:
            term = self.product()
            total = total - term if sign == "-" else total + term
            if self.peek() not in ("+", "-"):
                self.depth -= 1
                return total
            sign = self.take()

    def product(self) -> Extent:
        value = self.factor()
        while self.peek() in ("*", "//"):
            if self.take() == "*":
                value = value * self.factor()
                if any(len(monomial) > DEGREE for monomial, _ in terms_of(value)):
                    raise too_large("a product of many dimensions", f"at most {DEGREE}")
            else:
                divisor = self.factor()
                if isinstance(divisor, int) and divisor == 0:
                    raise _unreadable(self.text, "0")
                value = floor_div(value, divisor)
        return value

    def factor(self) -> Extent:
        token = self.take()
        if len(token) > _DIGITS and token[-1].isdigit() and not token.isidentifier():
            raise too_large(f"a number of {len(token)} digits", f"at most {_DIGITS}")
        if token[0].isdigit():
            return int(token)
        if token == "(":
            value = self.sum()
            self.take(")")
            return value
        if token in ("min", "max") and self.peek() == "(":
            self.take("(")
            left = self.sum()
            self.take(",")
            right = self.sum()
            self.take(")")
            return minimum(left, right) if token == "min" else maximum(left, right)
        if token[0] == "?" or token.isidentifier():
            return atom_dim(token)
        raise _unreadable(self.text, token)
