"""Check rewrites: congruence of recorded expressions, and evaluation of what each rule claims.

The terms of a certificate are all nodes of all graphs of a compile. Two terms are known to be
equal if a checked rewrite says so, or if they are one operation of equal operands (congruence).
Fused nodes are replaced by their bodies. A pass is proved if each result of the graph before it is
known to be equal to that of the graph after it: then nothing happened that no checked rewrite
explains.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from . import extents
from .arithmetic import OPERATIONS, Arithmetic, Doubles, Rationals, Undecided, real_numbers

POINTS = 3  # each identity is evaluated at
MOST_NODES = 600  # of an expression that is evaluated
MOST_EXACT = 6000  # elements of an expression that is evaluated exactly
MOST_SHAPED = 50_000  # of an operation that is evaluated for its shape
MOST_DOUBLE = 20_000_000
SMALL = (3, 2, 5, 7, 4, 6, 9, 8, 11, 13, 10, 12)  # extents in the place of larger ones
ROUNDING = {"float16": 2.0**-8, "bfloat16": 2.0**-5, "float64": 2.0**-49}  # others: 2**-20
SUMS = ("sum", "add", "subtract")  # what may cancel: rounding is that of the operands
LOOP = "loop"
FUSED = ("fused", "fused_many")
HOW = "algorithm"  # an attribute that says how a value is computed, not which
APART = ("input", "variable", "parameter", "random_step")  # leaves that are never equal


class Outcome(NamedTuple):
    """What was found of one equality.

    Attributes
    ----------
    state
        "holds", "rounds" (up to rounding of constants), "fails" or "open" (not decided).
    how
        By what: "structure", the name of an arithmetic, or the reason.
    """

    state: str
    how: str


class Terms:
    """The nodes of a certificate, with what is known to be equal.

    Parameters
    ----------
    nodes
        As recorded: operation, attributes, operands, type.
    sizes
        Of the named dimensions of the recorded call.
    """

    def __init__(self, nodes: Sequence[Sequence[Any]], sizes: Mapping[str, int]) -> None:
        self.op: list[str] = []
        self.attrs: list[Mapping[str, Any]] = []
        self.inputs: list[tuple[int, ...]] = []
        self.type: list[Any] = []
        self._parent: list[int] = []
        self._keys: list[str] = []
        self._results: dict[int, list[int]] = {}  # of fused nodes: what their bodies return
        self.sizes = dict(sizes)
        for op, attrs, inputs, type_ in nodes:
            self._add(op, attrs, tuple(inputs), type_)
        for node in range(len(nodes)):
            if self.op[node] in FUSED:
                self._inline(node)
        self.close()

    def _add(self, op: str, attrs: Mapping[str, Any], inputs: tuple[int, ...], type_: Any) -> int:
        number = len(self.op)
        if any(not 0 <= i < number for i in inputs):
            raise DataError(f"node {number} ({op}) has operands {list(inputs)}")
        self.op.append(op)
        self.attrs.append(attrs)
        self.inputs.append(inputs)
        self.type.append(type_)
        self._parent.append(number)
        own = [number] if op in APART else []
        what = {k: v for k, v in attrs.items() if k != HOW}
        self._keys.append(json.dumps([op, what, type_, *own], sort_keys=True))
        return number

    def _inline(self, node: int) -> None:
        """Make a fused node's results equal to those of its bodies, over its operands."""
        attrs = self.attrs[node]
        bodies = attrs.get("bodies") or [attrs["body"]]
        operands, made = list(self.inputs[node]), list[int]()
        for body in bodies:
            inner = body["graph"]
            count = len(inner["inputs"])
            given, operands = operands[:count], operands[count:]
            here: dict[int, int] = dict(zip(inner["inputs"], given, strict=True))
            for i, (op, own, inputs, type_) in enumerate(inner["nodes"]):
                if i not in here:
                    here[i] = self._add(op, own, tuple(here[k] for k in inputs), type_)
            made += [here[i] for i in inner["outputs"]]
        if len(made) == 1:
            self.unite(node, made[0])
        self._results[node] = made

    # ------------------------------------------------------------------ equalities

    def find(self, node: int) -> int:
        """Return the representative of what is known to be equal to a node."""
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def unite(self, left: int, right: int) -> bool:
        """Note that two nodes are equal; return whether that is new."""
        a, b = sorted((self.find(left), self.find(right)))
        self._parent[b] = a
        return a != b

    def close(self) -> None:
        """Unite nodes of one operation and equal operands, until nothing changes."""
        by_class: dict[int, list[int]] = {}
        changed = True
        while changed:
            changed = False
            for fused, made in self._results.items():
                by_class[self.find(fused)] = made
            seen: dict[tuple[str, tuple[int, ...]], int] = {}
            for node, inputs in enumerate(self.inputs):
                if self.op[node] == "item" and inputs:
                    made = by_class.get(self.find(inputs[0]), [])
                    index = self.attrs[node].get("index", -1)
                    if 0 <= index < len(made):
                        changed |= self.unite(node, made[index])
                key = self._keys[node], tuple(map(self.find, inputs))
                changed |= self.unite(node, seen.setdefault(key, node))

    # ------------------------------------------------------------------ evaluation

    def same_types(
        self, before: int, after: int, given: Sequence[extents.Relation], narrows: bool = False
    ) -> Outcome:
        """Decide whether two nodes have one type for all sizes; `narrows` allows another float."""
        both = self.type[before], self.type[after]
        types = [t if isinstance(t[0], list) else [t] for t in both]
        if len(types[0]) != len(types[1]):
            return Outcome("fails", "the numbers of results differ")
        rounded = ""
        for (dtype, shape), (other, others) in zip(*types, strict=True):
            if dtype != other and narrows and "float" in dtype and "float" in other:
                rounded = f"{dtype} becomes {other}, whose error is measured"
            elif dtype != other or len(shape) != len(others):
                return Outcome("fails", f"{dtype}{shape} becomes {other}{others}")
            for left, right in zip(shape, others, strict=True):
                true, how = extents.holds(str(left), "==", str(right), given=given)
                if not true:
                    return Outcome("fails", f"an extent {left} becomes {right}: {how}")
        return Outcome("rounds" if rounded else "holds", rounded)

    def shapes(self) -> tuple[int, list[str]]:
        """Evaluate each operation once, for its shape; return how many, and the wrong ones."""
        wrong, count = [], 0
        for node in range(len(self.op)):
            if self.op[node] not in OPERATIONS or isinstance(self.type[node][0], list):
                continue
            unknowns = set(map(self.find, self.inputs[node])) - {self.find(node)}
            order = [*dict.fromkeys(self.inputs[node]), node]
            small = self._small(order)
            said = ""
            for sizes, given in (({k: small[k] for k in self.sizes}, small), (self.sizes, {})):
                try:
                    if self._is_unknown(node, unknowns) or (
                        self._elements(order, sizes, given) > MOST_SHAPED
                    ):
                        continue
                    self._at_points(node, node, order, unknowns, Doubles(), sizes, given, 1)
                    count, said = count + 1, ""
                    break
                except Undecided:
                    break
                except (ValueError, TypeError, IndexError) as error:
                    said = f"node {node} ({self.op[node]}): {str(error).splitlines()[0]}"
            wrong += [said] if said else []
        return count, wrong

    def equal(self, before: int, after: int) -> Outcome:
        """Decide whether two nodes have equal values in exact arithmetic.

        First with the operands that both share as unknowns; where that does not show it, with
        everything below them.
        """
        if self.find(before) == self.find(after):
            return Outcome("holds", "structure")
        first, second = self._below(before), self._below(after)
        last = Outcome("open", "")
        for unknowns in (first & second, set[int]()):
            try:
                last = self._evaluated(before, after, unknowns)
            except Undecided as why:
                last = last if last.state == "fails" else Outcome("open", str(why))
            if last.state in ("holds", "rounds"):
                break
        return last

    def _below(self, root: int) -> set[int]:
        """Return the classes of what a node is computed from, without constants."""
        seen, stack = {root}, [root]
        while stack:
            for operand in self.inputs[stack.pop()]:
                if operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        return {self.find(n) for n in seen if self.inputs[n] or self.op[n] in APART}

    def _order(self, roots: Sequence[int], unknowns: set[int]) -> list[int]:
        """Return the nodes to evaluate, operands first; unknown operations are leaves."""
        order: dict[int, None] = {}
        stack = [(root, False) for root in roots]
        while stack:
            node, done = stack.pop()
            if done:
                order[node] = None
            elif node not in order:
                stack.append((node, True))
                if not self._is_unknown(node, unknowns):
                    stack += [(i, False) for i in self.inputs[node]]
        if len(order) > MOST_NODES:
            raise Undecided(f"an expression of {len(order)} nodes")
        return list(order)

    def _is_unknown(self, node: int, unknowns: set[int]) -> bool:
        if self.find(node) in unknowns:
            return True
        op, attrs = self.op[node], self.attrs[node]
        if op == "item":  # of a loop: results of fused nodes are those of their bodies
            return self.op[self.inputs[node][0]] != LOOP or self._is_unknown(
                self.inputs[node][0], unknowns
            )
        if op == LOOP:
            inner = [each[0] for each in attrs["body"]["graph"]["nodes"]]
            return any(each not in OPERATIONS and each != "parameter" for each in inner)
        return op not in OPERATIONS or "digest" in json.dumps(attrs.get("value", ""))

    def _evaluated(self, before: int, after: int, unknowns: set[int]) -> Outcome:
        order = self._order((before, after), unknowns)
        opaque = {self.op[n] for n in order if self._is_unknown(n, unknowns)
                  and self.find(n) not in unknowns and self.op[n] not in APART}  # fmt: skip
        small = self._small(order)
        sizes = {name: small[name] for name in self.sizes}
        outcome: Outcome | None = None
        if self._elements(order, sizes, small) <= MOST_EXACT:
            for arithmetic in (Rationals(), real_numbers()):
                try:
                    outcome = self._at_points(
                        before, after, order, unknowns, arithmetic, sizes, small
                    )
                    break
                except Undecided:
                    continue
                except (ValueError, TypeError, IndexError, DataError):
                    break  # sizes of the call are needed: a reshape of 28 x 28, say
        shrunk = any(v > 4 for n in order for v in self._shape(n, self.sizes, {}))
        if outcome is None or outcome.state != "holds" or shrunk:
            elements = self._elements(order, self.sizes, {})
            if elements > MOST_DOUBLE:
                return outcome or Outcome("open", f"{elements} elements")
            try:
                full = self._at_points(before, after, order, unknowns, Doubles(), self.sizes, {})
            except (ValueError, TypeError, IndexError, DataError) as error:
                raise Undecided(f"evaluation: {str(error).splitlines()[0]}") from None
            if outcome is None or full.state == "fails" or outcome.state == "fails":
                outcome = full
        if outcome.state == "fails" and opaque:
            return Outcome("open", f"{', '.join(sorted(opaque))} are not evaluated here")
        return outcome

    def _small(self, order: Sequence[int]) -> dict[Any, int]:
        """Return small extents for dimensions, by name, and for large numbers."""
        found: dict[Any, int] = {}
        fresh = iter(SMALL * 4)
        for name in self.sizes:
            found[name] = next(fresh)
        for node in order:
            type_ = self.type[node]
            types = type_ if isinstance(type_[0], list) else [type_]
            for extent in (e for each in types for e in each[1]):
                if isinstance(extent, int) and extent > 4 and extent not in found:
                    found[extent] = next(fresh, extent)
        return found

    def _elements(
        self, order: Sequence[int], sizes: Mapping[str, int], small: Mapping[Any, int]
    ) -> int:
        total = 0
        for node in order:
            count = math.prod(self._shape(node, sizes, small))
            total += 9 * count if self.op[node] in ("matmul", "gemm", "syrk") else count
        return total

    def _shape(
        self, node: int, sizes: Mapping[str, int], small: Mapping[Any, int]
    ) -> tuple[int, ...]:
        type_ = self.type[node]
        if isinstance(type_[0], list):
            if self.op[node] != LOOP:
                raise Undecided(f"{self.op[node]} has several results")
            type_ = type_[-1]  # its results are checked one by one, as items
        return _concrete(type_, sizes, small)

    def _at_points(
        self, before: int, after: int, order: Sequence[int], unknowns: set[int],
        arithmetic: Arithmetic, sizes: Mapping[str, int], small: Mapping[Any, int],
        points: int = POINTS,
    ) -> Outcome:  # fmt: skip
        """Evaluate both sides at several points, and compare."""
        compared, worst = 0, 0.0
        for point in range(points):
            values: dict[int, Any] = {}
            for node in order:
                shape = self._shape(node, sizes, small)
                if self._is_unknown(node, unknowns):
                    values[node] = self._unknown(node, shape, point, arithmetic)
                    continue
                operands = [values[i] for i in self.inputs[node]]
                if self.op[node] == "item":
                    values[node] = operands[0][self.attrs[node]["index"]]
                elif self.op[node] == LOOP:
                    made = _looped(arithmetic, self.attrs[node], operands, sizes, small)
                    values[node] = made if isinstance(self.type[node][0], list) else made[0]
                else:
                    values[node] = _applied(
                        arithmetic, self.op[node], self.attrs[node], self.type[node], operands,
                        sizes, small,
                    )  # fmt: skip
            if isinstance(values[before], tuple):
                raise Undecided("it has several results, which are compared one by one")
            summed = before if self.op[before] in SUMS else after
            within = [values[i] for i in self.inputs[summed] if i in values
                      ] if self.op[summed] in SUMS else []  # fmt: skip
            count, error = _difference(values[before], values[after], within)
            compared += count
            worst = max(worst, error)
        name = arithmetic.name
        if not compared:
            raise Undecided("not defined at any point that was tried")
        if worst == 0 or (name != Rationals.name and worst <= 1e-30):
            return Outcome("holds", name)
        if name == Doubles.name and worst <= 1e-9:
            return Outcome("holds", name)
        dtype = self.type[before][0]
        if worst <= ROUNDING.get(dtype, 2.0**-20):
            return Outcome("rounds", f"{name}; differs by {worst:.1e}, as rounded constants do")
        return Outcome("fails", f"{name}; differs by {worst:.2g}")

    def _unknown(self, node: int, shape: tuple[int, ...], point: int, d: Arithmetic) -> Any:
        """Return numbers for what is not evaluated: the same for what is known to be equal."""
        count, dtype = math.prod(shape), self.type[node][0]
        if not d.exact and "float" in dtype:
            quick = np.random.default_rng((self.find(node), point))
            return quick.uniform(0.1 if point == 1 else -3.0, 3.0, shape)
        rng = random.Random(f"{self.find(node)} {point}")
        if dtype == "bool":
            return np.array([rng.random() < 0.5 for _ in range(count)], bool).reshape(shape)
        low = 1 if point == 1 or dtype.startswith("uint") else -24
        if "int" in dtype:
            least = 0 if point == 1 else max(low, -2)
            made = [Fraction(rng.randint(least, 3)) for _ in range(count)]
        else:
            made = [Fraction(rng.randint(low, 24) or 5, 8) for _ in range(count)]
        array = np.empty(count, object)
        array[:] = made
        return d.array(array.reshape(shape))


def _concrete(
    type_: Sequence[Any], sizes: Mapping[str, int], small: Mapping[Any, int]
) -> tuple[int, ...]:
    """Return a type's shape under sizes, with small extents in the place of large ones."""
    return tuple(
        small.get(e, e) if isinstance(e, int) else extents.evaluate(e, sizes) for e in type_[1]
    )


def _applied(
    d: Arithmetic, op: str, given: Mapping[str, Any], type_: Sequence[Any], operands: Sequence[Any],
    sizes: Mapping[str, int], small: Mapping[Any, int],
) -> Any:  # fmt: skip
    """Return the result of an operation; raise ValueError if it has not the shape of the type."""
    shape = _concrete(type_, sizes, small)
    attrs = {"shape": shape, "dtype": type_[0], **_bound(given, sizes, small)}
    with np.errstate(all="ignore"):
        made = OPERATIONS[op](d, attrs, *operands)
    value = made if isinstance(made, np.ndarray) else np.asarray(made)
    if value.dtype not in (np.bool_, object) and d.exact:
        value = d.array(value)
    if value.shape != shape:
        raise ValueError(f"{op} gives {value.shape}, not {shape}")
    return value


def _looped(
    d: Arithmetic, attrs: Mapping[str, Any], operands: Sequence[Any],
    sizes: Mapping[str, int], small: Mapping[Any, int],
) -> tuple[Any, ...]:  # fmt: skip
    """Run a loop: its carries, then the rows that its iterations return."""
    graph, carries, stacks = attrs["body"]["graph"], attrs["carries"], attrs["stacks"]
    state, along = list(operands[:carries]), operands[carries : carries + stacks]
    length = _bound({"shape": attrs["length"]}, sizes, small)["shape"]
    count = along[0].shape[0] if along else length
    if count is None or attrs["flag"]:
        raise Undecided("a loop whose iterations depend on values")
    rows: list[Any] = [[None] * count for _ in graph["outputs"][carries:]]
    for step in range(count):
        at = count - 1 - step if attrs["reverse"] else step
        given = [*state, *(np.asarray(x[at]) for x in along), *operands[carries + stacks :]]
        values = dict(zip(graph["inputs"], given, strict=True))
        for number, (op, own, inputs, type_) in enumerate(graph["nodes"]):
            if number not in values:
                inner = [values[i] for i in inputs]
                values[number] = _applied(d, op, own, type_, inner, sizes, small)
        made = [values[i] for i in graph["outputs"]]
        state = made[:carries]
        for row, value in zip(rows, made[carries:], strict=True):
            row[at] = value
    if count == 0 and rows:
        raise Undecided("a loop without iterations")
    return (*state, *(np.stack(row) for row in rows))


def _bound(
    attrs: Mapping[str, Any], sizes: Mapping[str, int], small: Mapping[Any, int]
) -> dict[str, Any]:
    """Return attributes with extents under sizes, and arrays as arrays."""

    def bound(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            if "extent" in value:
                return extents.evaluate(value["extent"], sizes)
            if "array" in value:
                _, shape, elements = value["array"]
                if "full" in value:
                    full = [small.get(e, e) for e in value["full"]]
                    return np.full(full, bound("", {"array": value["array"]})[0])
                flat = np.empty(len(elements), object)
                flat[:] = [float(e) if isinstance(e, str) else e for e in elements]
                bools = all(isinstance(e, bool) for e in elements)
                return flat.astype(bool if bools else object).reshape(shape)
            return value.get("dtype", value)
        if isinstance(value, list):
            return tuple(bound(name, v) for v in value)
        if name in ("shape", "dim", "lengths") and type(value) is int:
            return small.get(value, value)
        return value

    return {name: bound(name, value) for name, value in attrs.items()}


def _difference(left: Any, right: Any, within: Sequence[Any]) -> tuple[int, float]:
    """Return how many elements are defined on the left, and the largest relative difference.

    It is relative to the largest magnitude on the left and in the arrays of `within`. NaN on the
    left is not compared: a rule may define what was not.
    """
    if left.shape != right.shape:
        return 1, math.inf
    if left.dtype == np.bool_ or right.dtype == np.bool_:
        return left.size, float(bool((left != right).any()))
    pairs = [(a, b) for a, b in zip(left.flat, right.flat, strict=True) if a == a]
    if not pairs:
        return (1, 0.0) if left.size == 0 else (0, 0.0)
    if any(b != b for _, b in pairs):
        return len(pairs), math.inf
    apart = [abs(a - b) for a, b in pairs if a != b]
    sized = [abs(a) for array in (left, *within) if array.dtype != np.bool_ for a in array.flat]
    scale = max((a for a in sized if a < math.inf), default=0)
    return len(pairs), 0.0 if not apart else float(max(apart) / (scale or 1))


def proved_roots(
    terms: Terms, before: Iterable[int], after: Iterable[int]
) -> tuple[int, list[tuple[int, Outcome]]]:
    """Return how many results of a pass are equal by structure, and the outcome of the others."""
    same, others = 0, list[tuple[int, Outcome]]()
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if terms.find(old) == terms.find(new):
            same += 1
        else:
            others.append((i, terms.equal(old, new)))
    return same, others
