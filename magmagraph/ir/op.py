"""Define operations, and the nodes that calling them makes.

Everything that is known of an operation is in one `Op` record: its shape rule, its NumPy
expression, its gradient, and small records for what fewer operations need: `Scalar`, `Reduction`,
`Kernel`, `Layout`, `Linalg`, `Precision`, `Tests`. Calling an `Op` runs the shape rule at once and
makes a `Node`, which does not change, is equal to itself alone, and keeps the user's line that
made it.
"""

# ruff: noqa: D102  # declared methods have their docstrings where they are defined

from __future__ import annotations

import copy
import enum
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Protocol, Self, TypeAlias

import numpy as np

from ..dtypes import COMPLEXES, FLOATS, is_complex
from ..errors import (
    ArgumentError,
    BroadcastWarning,
    DTypeError,
    GradientError,
    GraphError,
    ShapeError,
    message,
)
from . import dims
from .attributes import LeafKey, Schema, schema_of
from .collection import collection_paused
from .dims import Constraint, Dim
from .lines import Line, caller_line, operator_line, warn_user
from .locking import cached_property
from .records import record
from .types import Extent, Shape, Type, TypeLike


class Kind(enum.StrEnum):
    """What sort of operation it is; passes decide by kind and record fields, never by name."""

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"  # and pooling: windows that slide
    LINALG = "linalg"  # factorizations and what they solve
    TRANSFORM = "transform"  # Fourier's, and others that mix all elements along axes
    LAYOUT = "layout"
    INDEX = "index"
    RANDOM = "random"
    COLLECTIVE = "collective"
    CONTROL = "control"
    LEAF = "leaf"
    LOWERED = "lowered"


class Effect(enum.StrEnum):
    """Whether two equal expressions may be one node.

    ``PURE`` may; ``STATE`` and ``RANDOM`` leaves are told apart by an attribute of theirs (a
    state object, a stream id); ``ORDERED`` nodes (taps, asserts) are roots that run in order.
    """

    PURE = "pure"
    STATE = "state"
    RANDOM = "random"
    ORDERED = "ordered"


@record(frozen=True)
class Sample:
    """One set of arguments that the table-generated tests call an operation with.

    inputs: Arrays (float ones in float64: tests cast them), one per operand; a list of arrays for a
        function that takes a list.
    attrs: Keyword arguments of the public function.
    gradient: Positions of the operands to differentiate; ``None`` means every float operand.
    reason: Where `gradient` leaves a float operand out: the mathematical reason.
    real: Where gradients are compared of real operands alone, though the operation takes complex
        ones: the reason.
    """

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    gradient: tuple[int, ...] | None = None
    reason: str = ""
    real: str = ""


@record(frozen=True)
class BadSample:
    """Arguments that must be refused, with the error class and the first line of its text."""

    inputs: tuple[Any, ...]
    error: type[Exception]
    text: str
    attrs: Mapping[str, Any] = field(default_factory=dict)


@record(frozen=True)
class Reduction:
    """How a reduction folds one element into its accumulator in generated kernels.

    identity: C expression of the starting accumulator (``T`` is the accumulator's type).
    combine: C expression over ``a`` (accumulator) and ``b`` (element, or another accumulator).
    blocked: True where float sums are taken in blocks and added in a wider type (sum).
    indexed: True where the result is the position of the winning element (argmax): ``combine`` is
        then the C condition under which element ``b`` replaces ``a``; first winner stays.
    """

    identity: str
    combine: str
    blocked: bool = False
    indexed: bool = False


class Pieces(NamedTuple):
    """How the result of a layout operation is put together of its operands.

    starts: For each operand, the position of its first element in the result along every axis.
    value: What is where no operand is; None where operands are everywhere.
    """

    starts: tuple[Shape, ...]
    value: Any = None


class ViewAxis(NamedTuple):
    """How an axis of a view runs through the operand of a layout operation.

    axis: The operand's axis; None where the elements are repeated.
    start: The position of the first element along it.
    step: How far apart neighbours are.
    """

    axis: int | None
    start: Extent = 0
    step: int = 1


ScalarRule = str | Callable[[np.dtype], str]


@record(frozen=True)
class Refusal:
    """In the place of an operand's part of a gradient: an error, should that part be asked for.

    wrong, need, hint: The parts of the `GradientError`'s message.
    """

    wrong: str
    need: str | None = None
    hint: str | None = None

    def error(self) -> GradientError:
        """Make (not raise) the error."""
        return GradientError(message(self.wrong, self.need, self.hint))


Parts = Sequence["Node | Refusal | None"]

# Small records of what only some operations define. All fields have defaults, so that
# ``op.kernel.into`` can be read of any operation.


@record(frozen=True, eq=False)
class Scalar:
    """Compute one element in generated kernels.

    expression: C expression over operands ``a, b, c, d``, or a function from the operand dtype to
        one; None where there is none. ``$name(...)`` is a math function resolved to the dtype's
        variant (``$exp`` is ``expf`` or ``exp``); ``T`` is the computing type. Int literals only,
        or ``(T)0.5``.
    complex: The expression over complex operands, where that of real ones is wrong for them.
    commutative: Whether the two operands may change places.
    epilogue: Name under which libraries compute it behind a product: "bias" (a sum), "relu",
        "gelu".
    """

    expression: ScalarRule | None = None
    complex: str = ""
    commutative: bool = False
    epilogue: str = ""


@record(frozen=True, eq=False)
class Kernel:
    """Run an operation that is not fused; `runtime.families` has its kernels.

    into: ``into(xp, target, *arrays, **attrs)``: the value, written into an array. Without it the
        result of `Op.evaluate` is copied: a second array for as long. For an operation with several
        results `target` is a tuple.
    workspace: ``workspace(*types, **attrs)``: bytes that `into` needs beside operands and results.
        They are planned with all other memory, and given to it as ``workspace=``, an array of
        uint8.
    scratch: ``scratch(node, threads)``: bytes that its compiled kernel needs beside operands and
        results, for at most so many threads; planned with all other memory.
    algorithms: ``algorithms(node)``: values of the attribute ``algorithm`` to choose from by trial,
        where the node leaves the choice open; empty where it does not.
    capturable: False where `into` must not run while a CUDA graph is captured.
    """

    into: Callable[..., object] | None = None
    workspace: Callable[..., Extent] | None = None
    scratch: Callable[[Node, int], Extent] | None = None
    algorithms: Callable[[Node], Sequence[str]] | None = None
    capturable: bool = True


@record(frozen=True, eq=False)
class Layout:
    """Describe a result that is the first operand in another form.

    alias: True where the result is the operand's buffer seen with another shape (reshape).
    view: ``view(node)``: for each axis of the result, the operand's axis that it runs along, where
        it begins there, and its step. A layout operation has this rule where its result is a view
        of the operand, for all sizes.
    pieces: ``pieces(node)``: where each operand is in the result, for an operation that puts its
        operands beside each other, or among constants; None for a node that leaves gaps.
    fades: True where freezing replaces the node by the operand: the operation marks a value in the
        user's graph, and means nothing to passes.
    """

    alias: bool = False
    view: Callable[[Node], Sequence[ViewAxis]] | None = None
    pieces: Callable[[Node], Pieces | None] | None = None
    fades: bool = False


@record(frozen=True, eq=False)
class Linalg:
    """Describe the matrices that an operation makes or reads.

    facts: ``facts(node, known)``: what holds of the matrices that it makes, see
        `ops.rules.matrix_facts`.
    factored: ``factored(node, lu, pivots, transposed)``: the same value, from the LU factors of its
        first operand (of whose transpose, where `transposed`).
    """

    facts: Callable[..., Any] | None = None
    factored: Callable[[Node, Node, Node, bool], Node] | None = None


@record(frozen=True, eq=False)
class Precision:
    """Limit what lower precision may do to an operation.

    policy: "allow", "keep" or "follow", see `Op.policy`; empty: what the kind has.
    mixed: Of a product: which attributes of mixed precision it takes. ``compute`` is "tf32" where
        float32 operands are rounded to 11 digits before they are multiplied; ``result`` is the
        dtype, float32, in which sums of products of 16-bit operands are stored.
    factors: Of a product: positions of the operands that are multiplied, which may be rounded; None
        where all float operands are.
    """

    policy: str = ""
    mixed: tuple[str, ...] = ()
    factors: tuple[int, ...] | None = None


@record(frozen=True, eq=False)
class Tests:
    """Give the generated tests of an operation its arguments and the expected results.

    samples, bad_samples: Make the arguments.
    reference: ``reference(*arrays, **attrs)`` of NumPy or SciPy: the expected result.
    loses: What bounds the error at extreme arguments, where it is not the rounding of the result:
        "difference" (the rounding of the argument), "exponent" (that of the result's logarithm).
        The docstring says so, and tests/ops/test_extremes.py tests it.
    """

    __test__: ClassVar = False  # pytest takes classes of this name for tests

    samples: Callable[[], Sequence[Sample]] | None = None
    bad_samples: Callable[[], Sequence[BadSample]] | None = None
    reference: Callable[..., Any] | None = None
    loses: str = ""


# The float and complex dtypes that an operation takes: what `Op.dtypes` is one of.
WIDE = ("float64", "float32")
REAL = (*WIDE, "float16", "bfloat16")
COMPLEX = ("complex128", "complex64")
LAPACK = (*WIDE, *COMPLEX)
INEXACT = (*REAL, *COMPLEX)
_POLICIES = {  # of `Op.policy`; all other kinds keep float32, and so does what adds up elements
    Kind.CONTRACTION: "allow",
    Kind.CONVOLUTION: "allow",
    Kind.ELEMENTWISE: "follow",
    Kind.LAYOUT: "follow",
    Kind.INDEX: "follow",
}


@record(frozen=True, eq=False, kw_only=True)
class Op:
    """Define one operation.

    name: Unique name.
    kind, effect: See `Kind` and `Effect`.
    rule: ``rule(call, *types, **attrs) -> Type`` (or a tuple of them): the shape and dtype rule.
        ``call`` (a `Call`) broadcasts, unifies and makes errors.
    attributes: Name -> type, of attributes: ``{"mode": "Literal['clip', 'wrap']"}``. An annotated
        keyword of `rule` needs no line, unless the line says more than the annotation. The types
        are those of `magmagraph.ir.attributes`. A node has no other attributes, and none of another
        type.
    evaluate: ``evaluate(xp, *arrays, **attrs)``: the array expression, ``xp`` being numpy or cupy.
        Extents in attrs are concrete ints by then. Float16 and bfloat16 operands of arithmetic
        kinds arrive as float32; the caller casts the result to the node's dtype.
    gradient: ``gradient(node, cotangent) -> tuple of Node | None``, one per input, written with
        ordinary operations. ``None`` where no gradient flows, a `Refusal` where it is not known.
        For an operation with several results ``cotangent`` is a tuple, one for each result, None
        where nothing reads it.
    no_gradient: Where `gradient` is None: the mathematical reason (piecewise constant, integer
        valued).
    dtypes: The float and complex dtypes of operands; all of them (`INEXACT`) for what moves values
        without looking at them.
    numerics: How exact it is, a row of the tolerance table: exact, stable, reassoc, half.
    flops: ``flops(*types, **attrs)`` extents of work; None counts one per element of the result.
    function: The public function, which converts and promotes its arguments: ``mg.<name>``.
    namespace: The name of the namespace of `function`, where there is one: the function is then
        ``mg.<namespace>.<name>``, and the record is named so, or ``<namespace>_<name>`` where the
        name alone is taken.
    doc: One line for the tables; the summary of the docstring of `function` unless said.
    scalar, kernel, layout, linalg, precision, tests: See `Scalar`, `Kernel`, `Layout`, `Linalg`,
        `Precision` and `Tests`.
    reduction: For reductions: how elements are folded.
    batching: How `mg.vmap` maps it over an axis that its operands have in front, a word or a rule:

        - ``"elementwise"`` (what an elementwise operation has unless said): operands broadcast;
        - ``"axes"`` (what a reduction has): the attributes ``axis`` and ``axes``, where they
          count from the front, move up by one; every operand is given the axis;
        - ``"leading"`` (what linear algebra has): leading axes are batch axes already, and
          attributes do not count axes from the front; every operand is given the axis. (A loop
          where operands have different numbers of axes: how they broadcast is not known then);
        - ``"shape"`` (what a random one has): the attribute ``shape`` begins with its extent;
        - ``"identity"``: the value is that of the first operand;
        - ``rule(node, operands, batched) -> Node | tuple of Node``: the operands take the
          places of ``node.inputs``, with the axis in front of theirs where ``batched[i]``; so
          has the result (a tuple has a node for each result of an operation with several).
          `ops.rules.batching` helps to write it;
        - empty: it runs once for each position in a loop. Right, and slow.
    sharding: What it makes of operands of which each rank has its own rows: a word or a rule, see
        `ops.rules.sharding`. Where it is empty, kind and `batching` decide.
    onnx: The ONNX operator of the same operands and meaning, or a rule; see `ops.rules.onnx_forms`.
        Empty where it has no form there.
    """

    name: str
    kind: Kind
    rule: Callable[..., TypeLike]
    evaluate: Callable[..., Any]
    doc: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    effect: Effect = Effect.PURE
    gradient: Callable[[Node, Any], Parts] | None = None
    no_gradient: str = ""
    dtypes: tuple[str, ...] = REAL
    numerics: str = "stable"
    flops: Callable[..., Extent] | None = None
    function: Callable[..., Any] | None = None
    namespace: str = ""
    scalar: Scalar = Scalar()
    reduction: Reduction | None = None
    kernel: Kernel = Kernel()
    layout: Layout = Layout()
    linalg: Linalg = Linalg()
    precision: Precision = Precision()
    batching: str | Callable[[Node, Sequence[Node], Sequence[bool]], Any] = ""
    sharding: str | Callable[[Node, Sequence[int | None]], int | str] = ""
    onnx: str | Callable[..., Any] = ""
    tests: Tests = Tests()

    def __post_init__(self) -> None:
        if not self.doc:
            self.__dict__["doc"] = _summary(self.function)

    def __call__(self, *inputs: Node, name: str | None = None, **attrs: Any) -> Node:
        """Run the shape rule and make a node; operands must be nodes of the right dtypes."""
        result, constraints = self.infer(inputs, attrs)
        fits = self._fits
        if len(attrs) != len(fits):
            self.check_attributes(attrs)
        else:
            for key, value in attrs.items():
                check = fits.get(key)
                if check is None or not check(value):
                    self.check_attributes(attrs)
        return Node(self, inputs, attrs, result, name, caller_line(), constraints)

    @functools.cached_property
    def schema(self) -> Schema:
        """What attributes a node of the operation has, and of which types."""
        return schema_of(self.rule, self.attributes)

    @functools.cached_property
    def _fits(self) -> Mapping[str, Callable[[Any], bool]]:
        return self.schema.fits

    def check_attributes(self, attrs: Mapping[str, Any]) -> None:
        """Raise `GraphError` unless the attributes are those that the record declares."""
        fault = self.schema.fault(attrs)
        if fault is not None:
            raise GraphError(message(f"{self.name}: {fault[0]}", fault[1]))

    def infer(
        self, inputs: tuple[Node, ...], attrs: Mapping[str, Any]
    ) -> tuple[TypeLike, tuple[Constraint, ...]]:
        """Run the shape rule: return the type of the result, and constraints for the call."""
        call = Call(self, inputs)
        types = []
        refused = self.refused
        for node in inputs:
            operand_type = node.type
            if refused and type(operand_type) is Type and operand_type.dtype in refused:
                raise call.dtype_refusal(operand_type.dtype)
            types.append(operand_type)
        result = self.rule(call, *types, **attrs)
        if type(result) is tuple and not result:
            raise call.shape_error("an operation without results", need="at least one result")
        for operand_type in types:
            if operand_type is result or operand_type == result:
                result = operand_type  # one object for all: large graphs hold few types
                break
        constraints = call.constraints
        return result, tuple(constraints) if constraints else ()

    @cached_property
    def refused(self) -> frozenset[np.dtype]:
        """The float and complex dtypes that operands may not have."""
        return _refused(self.dtypes)

    @property
    def policy(self) -> str:
        """What lower precision may do to float32 operands and results.

        "allow": the operands may be rounded to fewer digits (products). "keep": operands and
        results stay as they are (what adds up many numbers, or magnifies errors). "follow": the
        result may be stored in fewer digits, where a product reads it.

        Examples
        --------
        >>> from magmagraph.ops import TABLE
        >>> [TABLE[name].policy for name in ("matmul", "sum", "exp", "tanh", "reshape")]
        ['allow', 'keep', 'keep', 'follow', 'follow']
        """
        if self.precision.policy:
            return self.precision.policy
        policy = _POLICIES.get(self.kind, "keep")
        return "keep" if policy == "follow" and self.numerics == "reassoc" else policy

    def __repr__(self) -> str:
        return f"<Op {self.name}>"

    def __deepcopy__(self, memo: Any) -> Op:
        return self

    __hash__ = object.__hash__


@record(frozen=True, eq=False, kw_only=True)
class Composite:
    """A public function made of operations: listed, documented and tested like an `Op`.

    Attributes are those of `Op` of the same names; `no_gradient` gives the mathematical reason
    where the function has none. `name` and `doc` are the function's name and the summary of its
    docstring, where they are not given.
    """

    function: Callable[..., Any]
    kind: Kind
    name: str = ""
    doc: str = ""
    namespace: str = ""
    dtypes: tuple[str, ...] = REAL
    numerics: str = "stable"
    no_gradient: str = ""
    tests: Tests = Tests()

    def __post_init__(self) -> None:
        if not self.name:
            self.__dict__["name"] = self.function.__name__
        if not self.doc:
            self.__dict__["doc"] = _summary(self.function)


def _summary(function: Callable[..., Any] | None) -> str:
    """Return the first paragraph of a docstring in one line."""
    return " ".join((getattr(function, "__doc__", None) or "").partition("\n\n")[0].split())


@functools.cache
def _refused(names: tuple[str, ...]) -> frozenset[np.dtype]:
    """Return the float and complex dtypes that are not among some."""
    return frozenset(dtype for dtype in (*FLOATS, *COMPLEXES) if dtype.name not in names)


_warned_of_pairs: set[Line] = set()


class Call:
    """One application of an operation, for shape rules: its operands, and its errors."""

    __slots__ = ("constraints", "inputs", "op")

    def __init__(self, op: Op | Composite, inputs: tuple[Node, ...]) -> None:
        self.op = op
        self.inputs = inputs
        self.constraints: list[Constraint] = []

    def broadcast(self, *shapes: Shape) -> Shape:
        """Return the common shape by NumPy's rule; a named dimension never broadcasts."""
        first: Shape = ()
        for shape in shapes:
            if shape and shape != first:  # a number meets all
                if first:
                    break
                first = shape
        else:
            return first
        try:
            result = dims.broadcast(shapes, self.constraints)
            if len(result) == 2 and type(result[0]) is Dim and result[0] == result[1]:
                self._warn_of_pairs(shapes)
            return result
        except dims.BroadcastFailure as failure:
            raise self.shape_error(
                f"extents {failure.left} and {failure.right} do not broadcast "
                f"(axis {failure.axis})",
                need="equal extents, or a literal 1 (a named dimension never broadcasts)",
                hint="reshape or transpose one operand, or insert a literal 1 with expand_dims",
            ) from None

    def _warn_of_pairs(self, shapes: Sequence[Shape]) -> None:
        """Warn, once a line, where the user's own operation makes pairs of a column and a row."""
        columns = [s for s in shapes if len(s) == 2 and type(s[1]) is int and (s[0],) in shapes]
        line = operator_line() if columns else None
        if line is None or line in _warned_of_pairs:
            return
        _warned_of_pairs.add(line)
        (extent, _) = columns[0]
        warn_user(
            message(
                f"{self.op.name}: shapes {columns[0]} and {(extent,)} broadcast to every pair of "
                f"elements, {(extent, extent)}",
                need="one shape, for one result an element",
                hint="x[:, 0] of the column, or y[:, None] of the other; y[None, :] where all "
                "pairs are meant",
            )
            + self._operands(),
            BroadcastWarning,
            line,
        )

    def unify(self, left: Extent, right: Extent, what: str) -> Extent:
        """Return the extent that two equal extents share; `what` names them in the error."""
        if left == right:
            return left
        result = dims.unify(left, right, self.constraints)
        if result is None:
            raise self.shape_error(f"{what} differ: {left} and {right}", need="equal extents")
        return result

    def axis(self, axis: int, ndim: int, name: str = "axis") -> int:
        """Return a normalized axis number, or raise with the range that would be right."""
        if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
            raise self.dtype_error(f"{name}={axis!r} is not an int")
        if not -ndim <= axis < ndim:
            raise self.shape_error(
                f"{name}={axis} is out of range for {ndim} axes",
                need=f"an axis in [{-ndim}, {ndim})" if ndim else "an operand with axes",
            )
        return int(axis) % ndim

    def check_axis(self, axis: int, ndim: int) -> None:
        """Raise unless an attribute is the number of an axis, counted from the first one.

        Functions give records such numbers; a text may name any, and kernels compute addresses
        with them.
        """
        if axis != self.axis(axis, ndim):
            raise self.shape_error(f"axis={axis} for {ndim} axes", need=f"an axis in [0, {ndim})")

    def whole(self, value: Any, name: str) -> int:
        """Return an argument that is a whole number as an int, or raise."""
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise self.dtype_error(f"{name}={value!r} is not an int")
        return int(value)

    def check_dtypes(self) -> None:
        """Raise unless each float or complex operand has a dtype that the operation takes."""
        refused = _refused(self.op.dtypes)
        for node in self.inputs:
            type_ = node.type
            if type(type_) is Type and type_.dtype in refused:
                raise self.dtype_refusal(type_.dtype)

    def dtype_refusal(self, dtype: np.dtype) -> DTypeError:
        """Make (not raise) the error for an operand of a dtype that the operation does not take."""
        taken = self.op.dtypes
        if is_complex(dtype) and not any(name in taken for name in COMPLEX):
            return self.dtype_error(
                f"an operand of dtype {dtype.name}",
                need=f"a real one: {self.op.name} is not defined for complex numbers",
                hint="mg.real(x), mg.imag(x) or mg.absolute(x)",
            )
        return self.dtype_error(
            f"an operand of dtype {dtype.name}",
            need=f"one of {', '.join(taken)}",
            hint=f"mg.cast(x, '{'float32' if 'float32' in taken else taken[0]}')",
        )

    def _operands(self) -> str:
        line = caller_line()
        return "".join(
            f"\n  operand {i}: {_as_given(node, line)}" for i, node in enumerate(self.inputs)
        )

    def shape_error(
        self, wrong: str, need: str | None = None, hint: str | None = None
    ) -> ShapeError:
        """Make (not raise) a ShapeError that lists the operands."""
        return ShapeError(message(f"{self.op.name}: {wrong}", need, hint) + self._operands())

    def dtype_error(
        self, wrong: str, need: str | None = None, hint: str | None = None
    ) -> DTypeError:
        """Make (not raise) a DTypeError that lists the operands."""
        return DTypeError(message(f"{self.op.name}: {wrong}", need, hint) + self._operands())


def _as_given(node: Node, line: Line | None) -> str:
    """Return one line about an operand: about what was given, where a line here converted it."""
    origin = node
    while not origin.name and origin.line == line and "dtype" in origin.attrs:
        if len(origin.inputs) != 1 or origin.inputs[0].shape != origin.shape:
            break
        origin = origin.inputs[0]
    return describe(node) if origin is node else f"{describe(origin)}; as {node.dtype.name}"


def describe(node: Node) -> str:
    """Return one line about a node: name, type, and where it was made."""
    label = f"'{node.name}' " if node.name else ""
    where = f", {node.line.made}" if node.line else ""
    return f"{label}{node.type} by {node.op.name}{where}"


class _Fields:
    """The fields of a node, before it becomes one."""

    __slots__ = ("__weakref__", "attrs", "constraints", "inputs", "line", "name", "op", "type")

    op: Op
    inputs: tuple[Node, ...]
    attrs: Mapping[str, Any]
    type: Any  # TypeLike; Any keeps rules readable: most operations have one result
    name: str | None
    line: Line | None
    constraints: tuple[Constraint, ...]


_FIXED = {
    "op": "mg.substitute(node, {old: new}) makes another",
    "inputs": "mg.substitute(node, {old: new}) makes another",
    "attrs": "mg.substitute(node, {old: new}) makes another",
    "type": "mg.cast(node, dtype) or mg.reshape(node, shape) makes another",
    "dtype": "mg.cast(node, dtype) makes another",
    "shape": "mg.reshape(node, shape) makes another",
}


_COMPARED = ("equal", "not_equal")  # what == and != make
_Axis: TypeAlias = int | Sequence[int] | None


class Element(Protocol):
    """Read or update some elements of a node; ``node.at[key]`` gives it."""

    def get(self, mode: str = "clip") -> Node: ...
    def set(self, values: Any, mode: str = "clip") -> Node: ...
    def add(self, values: Any, mode: str = "clip") -> Node: ...
    def subtract(self, values: Any, mode: str = "clip") -> Node: ...
    def multiply(self, values: Any, mode: str = "clip") -> Node: ...
    def divide(self, values: Any, mode: str = "clip") -> Node: ...
    def min(self, values: Any, mode: str = "clip") -> Node: ...
    def max(self, values: Any, mode: str = "clip") -> Node: ...


class Elements(Protocol):
    """Choose elements of a node by a key; ``node.at`` gives it."""

    def __getitem__(self, key: Any) -> Element: ...


class Node(_Fields):
    """A value of a symbolic graph: an operation applied to other nodes.

    Attributes
    ----------
    op, inputs, attrs
        The operation record, its operands, its keyword arguments (not to be changed).
    type
        A `Type`, or a tuple of them for operations with several results.
    name, line
        The user's name for it, which may be set, and the user's source line that made it.
    constraints
        Equalities between extents that can be checked at the call only.
    """

    __slots__ = ()

    __array_priority__ = 1000

    def __new__(
        cls,
        op: Op,
        inputs: tuple[Node, ...],
        attrs: Mapping[str, Any],
        type: TypeLike,
        name: str | None = None,
        line: Line | None = None,
        constraints: tuple[Constraint, ...] = (),
    ) -> Self:
        """Make a node of its parts; users call operations, which know the type."""
        fields: Any = object.__new__(
            _Fields
        )  # which lets them be set: graphs are made of many nodes
        fields.op = op
        fields.inputs = inputs
        fields.attrs = attrs
        fields.type = type
        fields.name = name
        fields.line = line
        fields.constraints = constraints
        fields.__class__ = cls
        for watch in _watching:
            watch[id(fields)] = fields
        return fields  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise AttributeError(
                message(f"{name!r} of a node is set, and nodes do not change", hint=_FIXED[name])
            )
        object.__setattr__(self, name, value)

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.type.dtype  # type: ignore[no-any-return]

    @property
    def shape(self) -> Shape:
        """The extents: ints, and `Dim` where named or anonymous."""
        return self.type.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> Extent:
        """Number of elements."""
        return self.type.size  # type: ignore[no-any-return]

    __hash__ = object.__hash__  # of the address: equality is that of values, see operators.py

    def _no_value(self, what: str, hint: str) -> NoReturn:
        raise ArgumentError(
            message(f"{what} of a node has no meaning: nothing has run yet", hint=hint)
        )

    def __bool__(self) -> bool:
        hint = "mg.where(condition, a, b), or node.eval() for the value"
        if self.op.name in _COMPARED:  # maybe by `in`, list.index or the == of tuples
            hint += "; node is other, or any(n is node for n in nodes), for the node itself"
        self._no_value("the truth value", hint)

    def __float__(self) -> float:
        self._no_value("float()", "node.eval() for the value")

    def __int__(self) -> int:
        self._no_value("int()", "node.eval() for the value")

    def __index__(self) -> int:
        self._no_value("an index made", "mg.take(x, node), or node.eval() for the value")

    def __complex__(self) -> complex:
        self._no_value("complex()", "node.eval() for the value")

    def __format__(self, spec: str) -> str:
        if spec:
            self._no_value(f"the format {spec!r}", "f'{node.eval():.3f}' for the value")
        return str(self)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._no_value(
            "np.asarray()",
            "node.eval() for the value, or a function of magmagraph in NumPy's place",
        )

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            from ..help.spellings import missing_of_node

            raise missing_of_node(self, name)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise ArgumentError(
            message(
                "a node cannot be written into: it is a value, not a buffer",
                hint="x.at[key].set(value), which makes a node; mg.where(mask, new, x); or "
                "variable.assign(array) for a variable",
            )
        )

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ArgumentError(message("len() of a node without axes"))
        extent = self.shape[0]
        if type(extent) is not int:
            raise ShapeError(
                message(
                    f"len() of a node whose first extent is '{extent}', known only at the call",
                    hint="node.shape[0], which computes in shapes and as mg.extent(node.shape[0])",
                )
            )
        return extent

    def __iter__(self) -> Iterator[Node]:
        if self.ndim == 0:
            raise ArgumentError(message("iteration over a node without axes"))
        extent = self.shape[0]
        if type(extent) is not int:
            raise ShapeError(
                message(
                    f"iteration over the axis '{extent}', whose size is known only at the call",
                    need="an int extent",
                    hint="operations on the whole axis, or an int in the input's shape",
                )
            )
        return (self[i] for i in range(extent))

    def __contains__(self, value: Any) -> NoReturn:
        raise ArgumentError(
            message(
                "'in' of a node has no meaning: nothing has run yet",
                hint="mg.any(node == value).eval()",
            )
        )

    def __pos__(self) -> Node:
        return self

    def __repr__(self) -> str:
        label = f"'{self.name}' " if self.name else ""
        return f"<{self.op.name} {label}{self.type!r}>"

    if TYPE_CHECKING:  # defined by function/evaluation.py (eval) and ops/operators.py

        def eval(self, feeds: Mapping[Any, Any] | None = None, /, **named: Any) -> Any: ...
        def __add__(self, other: Any) -> Node: ...
        def __radd__(self, other: Any) -> Node: ...
        def __sub__(self, other: Any) -> Node: ...
        def __rsub__(self, other: Any) -> Node: ...
        def __mul__(self, other: Any) -> Node: ...
        def __rmul__(self, other: Any) -> Node: ...
        def __truediv__(self, other: Any) -> Node: ...
        def __rtruediv__(self, other: Any) -> Node: ...
        def __floordiv__(self, other: Any) -> Node: ...
        def __rfloordiv__(self, other: Any) -> Node: ...
        def __mod__(self, other: Any) -> Node: ...
        def __rmod__(self, other: Any) -> Node: ...
        def __divmod__(self, other: Any) -> tuple[Node, Node]: ...
        def __rdivmod__(self, other: Any) -> tuple[Node, Node]: ...
        def __pow__(self, other: Any) -> Node: ...
        def __rpow__(self, other: Any) -> Node: ...
        def __neg__(self) -> Node: ...
        def __abs__(self) -> Node: ...
        def __round__(self, decimals: int = 0) -> Node: ...
        def __matmul__(self, other: Any) -> Node: ...
        def __rmatmul__(self, other: Any) -> Node: ...
        def __eq__(self, other: Any) -> Node: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Node: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Node: ...
        def __le__(self, other: Any) -> Node: ...
        def __gt__(self, other: Any) -> Node: ...
        def __ge__(self, other: Any) -> Node: ...
        def __and__(self, other: Any) -> Node: ...
        def __rand__(self, other: Any) -> Node: ...
        def __or__(self, other: Any) -> Node: ...
        def __ror__(self, other: Any) -> Node: ...
        def __xor__(self, other: Any) -> Node: ...
        def __rxor__(self, other: Any) -> Node: ...
        def __invert__(self) -> Node: ...
        def __lshift__(self, other: Any) -> Node: ...
        def __rlshift__(self, other: Any) -> Node: ...
        def __rshift__(self, other: Any) -> Node: ...
        def __rrshift__(self, other: Any) -> Node: ...
        def __array_ufunc__(
            self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
        ) -> Any: ...
        def __array_function__(
            self, function: Any, types: Any, arguments: tuple[Any, ...], named: dict[str, Any]
        ) -> Any: ...
        def __getitem__(self, key: Any) -> Node: ...
        @property
        def at(self) -> Elements: ...
        @property
        def real(self) -> Node: ...
        @property
        def imag(self) -> Node: ...
        def conj(self) -> Node: ...
        def __array_namespace__(self, *, api_version: str | None = None) -> Any: ...
        @property
        def mT(self) -> Node: ...
        @property
        def T(self) -> Node: ...
        def astype(self, dtype: Any) -> Node: ...
        def sum(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            dtype: Any = None,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def prod(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            dtype: Any = None,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def mean(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            dtype: Any = None,
            *,
            where: Any = True,
        ) -> Node: ...
        def var(
            self, axis: _Axis = None, ddof: Any = 0, keepdims: bool = False, **options: Any
        ) -> Node: ...
        def std(
            self, axis: _Axis = None, ddof: Any = 0, keepdims: bool = False, **options: Any
        ) -> Node: ...
        def max(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def min(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def argmax(self, axis: _Axis = None, keepdims: bool = False) -> Node: ...
        def argmin(self, axis: _Axis = None, keepdims: bool = False) -> Node: ...
        def any(self, axis: _Axis = None, keepdims: bool = False, *, where: Any = True) -> Node: ...
        def all(self, axis: _Axis = None, keepdims: bool = False, *, where: Any = True) -> Node: ...
        def clip(
            self, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None
        ) -> Node: ...
        def round(self, decimals: int = 0) -> Node: ...
        def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Node: ...
        def transpose(self, *axes: Any) -> Node: ...
        def swapaxes(self, first: int, second: int) -> Node: ...
        def squeeze(self, axis: _Axis = None) -> Node: ...
        def ravel(self, order: str = "C") -> Node: ...
        def flatten(self, order: str = "C") -> Node: ...
        def dot(self, other: Any) -> Node: ...

    def __copy__(self) -> Node:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unflatten, _flatten([self]))

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        kinds, ops, counts, operands, attrs, *rest = _flatten([self])
        for i, values in enumerate(attrs):
            if values is not None and ("key" in values or "state" in values):
                attrs[i] = copy.deepcopy(values, memo)  # all others hold nothing that changes
        return _unflatten(kinds, ops, counts, operands, attrs, *rest)


_watching: list[dict[int, Node]] = []


@contextmanager
def nodes_made() -> Iterator[dict[int, Node]]:
    """Give, by their ids, the nodes that are made while it is open.

    Nodes that another thread makes at that time are among them.
    """
    nodes: dict[int, Node] = {}
    _watching.append(nodes)
    try:
        yield nodes
    finally:
        _watching[:] = [other for other in _watching if other is not nodes]


class Key(LeafKey):
    """The identity of an input leaf, kept through pickling and freezing."""

    __slots__ = ("__weakref__", "name", "node", "serial")
    _serials = itertools.count()

    def __init__(self, name: str) -> None:
        self.name = name
        self.serial = next(Key._serials)
        self.node: weakref.ref[Node] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Key, (self.name,))


def topological(
    roots: Iterable[Node], stop: Callable[[Node], bool] | None = None
) -> list[Node]:
    """Return every node that the roots need, operands first, each once; no recursion.

    Nodes for which `stop` is true are listed but not entered.
    """
    order: list[Node] = []
    done: set[int] = set()
    stack: list[Node | None] = []
    pending: list[Node] = []
    for root in roots:
        if id(root) in done:
            continue
        stack.append(root)
        while stack:
            node = stack.pop()
            if node is None:
                finished = pending.pop()
                if id(finished) not in done:
                    done.add(id(finished))
                    order.append(finished)
                continue
            if id(node) in done:
                continue
            if not node.inputs or (stop is not None and stop(node)):
                done.add(id(node))
                order.append(node)
                continue
            stack.append(None)
            pending.append(node)
            for operand in reversed(node.inputs):
                if id(operand) not in done:
                    stack.append(operand)
    return order


_Columns = tuple[list[Any], ...]


def flatten(roots: Iterable[Node]) -> tuple[list[int], _Columns]:
    """Return nodes for pickling: their numbers, and all that they need as columns."""
    roots = list(roots)
    columns, number = _numbered(roots)
    return [number[id(root)] for root in roots], columns


def unflatten(numbers: list[int], columns: _Columns) -> list[Node]:
    """Return the nodes that `flatten` was given."""
    with collection_paused():
        nodes = _all_joined(*columns)
    return [nodes[i] for i in numbers]


def _flatten(roots: list[Node]) -> _Columns:
    return _numbered(roots)[0]


def _numbered(roots: list[Node]) -> tuple[_Columns, dict[int, int]]:
    """Return the nodes below the roots as columns, operands being numbers of nodes.

    Columns, because a record for each node would be one more object for each.
    """
    order = topological(roots)
    number = {id(node): i for i, node in enumerate(order)}
    columns = (
        [type(node) for node in order],
        [node.op for node in order],
        [len(node.inputs) for node in order],
        [number[id(operand)] for node in order for operand in node.inputs],
        [node.attrs or None for node in order],
        [node.type for node in order],
        [node.name for node in order],
        [node.line for node in order],
        [node.constraints for node in order],
    )
    return columns, number


def _unflatten(*columns: list[Any]) -> Node:
    with collection_paused():
        return _all_joined(*columns)[-1]


def _all_joined(
    kinds: list[type[Node]], ops: list[Op], counts: list[int], operands: list[int], *rest: list[Any]
) -> list[Node]:
    nodes: list[Node] = []
    taken = iter(operands)
    for kind, op, count, attributes, type_, name, line, constraints in zip(
        kinds, ops, counts, *rest, strict=True
    ):
        inputs = tuple([nodes[next(taken)] for _ in range(count)])
        attrs = {} if attributes is None else dict(attributes)
        owner = attrs.get("key", attrs.get("state"))
        existing = owner.node() if owner is not None and owner.node is not None else None
        if existing is None:
            existing = kind(op, inputs, attrs, type_, name, line, constraints)
            if owner is not None:
                owner.node = weakref.ref(existing)
        nodes.append(existing)
    return nodes
