"""Read formulas of named dimensions, and decide inequalities between them for all sizes.

An inequality holds for all sizes if the difference is a polynomial without negative coefficients,
since sizes are at least zero. Where it is not, z3 decides it if it is installed; else it is tried
for a range of sizes, and the answer says so.
"""

from __future__ import annotations

import ast
import functools
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DataError, message

TRIED = (0, 1, 2, 3, 4, 5, 7, 13, 64, 1000)  # sizes of a dimension, where nothing else decides
MOST_TRIED = 3000  # sets of sizes; of more, so many are drawn

Polynomial = dict[tuple[str, ...], int]
Relation = tuple[str, str, str]  # left, "==" or another, right


@functools.cache
def tree(text: str) -> ast.expr:
    """Return the syntax tree of a formula; raise `DataError` if it is not one."""
    try:
        found = ast.parse(text.replace("?", "__").strip(), mode="eval").body
        _check(found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise DataError(
            message(f"{text[:60]!r} is not an extent", need="a formula such as '4*batch + 8'")
        ) from None
    return found


def _check(node: ast.expr) -> None:
    """Raise ValueError unless a tree has integers, names, + - * //, min and max alone."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return
    if isinstance(node, ast.Name):
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand)
    elif isinstance(node, ast.BinOp) and isinstance(
        node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)
    ):
        _check(node.left)
        _check(node.right)
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
        and node.func.id in ("min", "max") and len(node.args) == 2
    ):  # fmt: skip
        for argument in node.args:
            _check(argument)
    else:
        raise ValueError(ast.dump(node))


def names(text: str) -> set[str]:
    """Return the dimensions in a formula."""
    calls = {"min", "max"}
    return {n.id for n in ast.walk(tree(text)) if isinstance(n, ast.Name)} - calls


def evaluate(text: str | int, sizes: Mapping[str, int]) -> int:
    """Return a formula's value for sizes of its dimensions."""
    if isinstance(text, int):
        return text
    try:
        known = {name.replace("?", "__"): size for name, size in sizes.items()}
        return int(_value(tree(text), known, min, max))
    except (KeyError, ZeroDivisionError):
        raise DataError(message(f"{text} has no value for {dict(sizes)}")) from None


def _value(node: ast.expr, sizes: Mapping[str, Any], least: Any, most: Any) -> Any:
    """Evaluate a tree over integers, or over z3's terms."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, sizes, least, most)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        chosen = least if node.func.id == "min" else most
        return chosen(*(_value(a, sizes, least, most) for a in node.args))
    assert isinstance(node, ast.BinOp)
    left = _value(node.left, sizes, least, most)
    right = _value(node.right, sizes, least, most)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    return left // right if isinstance(right, int) and isinstance(left, int) else left / right  # z3


def polynomial(text: str) -> Polynomial:
    """Return a formula as coefficients by monomial; divisions, min and max are unknowns."""
    return {m: c for m, c in _polynomial(tree(text)).items() if c}


def _polynomial(node: ast.expr) -> Polynomial:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return {(): node.value}
    if isinstance(node, ast.Name):
        return {(node.id,): 1}
    if isinstance(node, ast.UnaryOp):
        return {m: -c for m, c in _polynomial(node.operand).items()}
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.FloorDiv):
        left, right = _polynomial(node.left), _polynomial(node.right)
        result: Polynomial = {}
        if isinstance(node.op, ast.Mult):
            for (m, c), (n, d) in itertools.product(left.items(), right.items()):
                both = tuple(sorted(m + n))
                result[both] = result.get(both, 0) + c * d
            return result
        sign = 1 if isinstance(node.op, ast.Add) else -1
        for monomial in {**left, **right}:
            result[monomial] = left.get(monomial, 0) + sign * right.get(monomial, 0)
        return result
    return {(f"({ast.unparse(node)})",): 1}


def holds(
    left: str, relation: str, right: str, sizes: Iterable[str] = (), given: Sequence[Relation] = ()
) -> tuple[bool, str]:
    """Decide ``left <= right`` or ``left == right`` for all sizes.

    Parameters
    ----------
    left, relation, right
        Two formulas and ``"<="`` or ``"=="``.
    sizes
        More dimensions that occur in `given`.
    given
        Relations that all allowed sizes have.

    Returns
    -------
    tuple
        Whether it holds, and how that was decided: "polynomials", "z3", or "sizes tried" for some
        sizes only. Of one that does not hold, the second is a set of sizes.

    Examples
    --------
    >>> holds("4*n", "<=", "4*n + 8"), holds("n", "<=", "12")[0]
    ((True, 'polynomials'), False)
    """
    difference = polynomial(f"({right}) - ({left})")
    plain = all(not name.startswith("(") for monomial in difference for name in monomial)
    if not difference or (
        relation == "<=" and plain and all(count >= 0 for count in difference.values())
    ):
        return True, "polynomials"
    known = sorted({*names(left), *names(right), *sizes,
                    *(n for a, _, b in given for n in names(a) | names(b))})  # fmt: skip
    solved = _solve(left, relation, right, known, given)
    if solved is not None:
        return solved
    sets: Iterable[tuple[int, ...]] = itertools.product(TRIED, repeat=len(known))
    if len(TRIED) ** len(known) > MOST_TRIED:
        rng = random.Random(0)
        sets = [tuple(rng.choices(TRIED, k=len(known))) for _ in range(MOST_TRIED)]
    for values in sets:
        chosen = dict(zip(known, values, strict=True))
        try:
            if not all(_compare(a, r, b, chosen) for a, r, b in given):
                continue
            if not _compare(left, relation, right, chosen):
                return False, ", ".join(f"{k} = {v}" for k, v in chosen.items())
        except DataError:  # a division by zero: no sizes of a program
            continue
    return True, "sizes tried"


def _compare(left: str, relation: str, right: str, sizes: Mapping[str, int]) -> bool:
    a, b = evaluate(left, sizes), evaluate(right, sizes)
    return {"==": a == b, "<=": a <= b, ">=": a >= b, "<": a < b, ">": a > b, "!=": a != b}.get(
        relation, True
    )


def solver() -> str:
    """Return what decides inequalities beyond polynomials here: "z3" or "sizes tried"."""
    try:
        import z3  # noqa: F401  # an extra
    except ImportError:
        return "sizes tried"
    return "z3"


def _solve(
    left: str, relation: str, right: str, known: Sequence[str], given: Sequence[Relation]
) -> tuple[bool, str] | None:
    """Ask z3; None where it is not installed, or does not know."""
    try:
        import z3  # an extra
    except ImportError:
        return None
    sizes = {name: z3.Int(name) for name in known}

    def least(a: Any, b: Any) -> Any:
        return z3.If(a <= b, a, b)

    def most(a: Any, b: Any) -> Any:
        return z3.If(a >= b, a, b)

    def term(text: str) -> Any:
        return _value(tree(text), sizes, least, most)

    found = z3.Solver()
    found.set("timeout", 2000)
    found.add(*(size >= 0 for size in sizes.values()))
    for a, kind, b in given:
        first, second = term(a), term(b)
        if kind == "==":
            found.add(first == second)
        elif kind in ("<=", ">="):
            found.add(first <= second if kind == "<=" else first >= second)
    first, second = term(left), term(right)
    found.add(z3.Not(first <= second if relation == "<=" else first == second))
    answer = found.check()
    if answer == z3.unsat:
        return True, "z3"
    if answer == z3.sat:
        model = found.model()
        return False, ", ".join(f"{n} = {model.eval(s, True)}" for n, s in sizes.items())
    return None
