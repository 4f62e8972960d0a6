"""Operations of the user's own: one small class each."""

from __future__ import annotations

import difflib
import inspect
import pickle
import re
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..codegen.functions.scalar import HELPERS, LIBM, resolve
from ..errors import DTypeError, GradientError, GraphError, ShapeError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.interning import attribute_key
from ..ir.op import INEXACT, REAL, Call, Kind, Op, Scalar
from ..ir.records import record
from ..ir.types import Type, TypeLike
from ..ops.control.identities import results_of
from ..ops.convert import as_node, promoted
from ..ops.elementwise.family import broadcast
from ..ops.rules.batching import WORDS
from ..ops.shape.joining import broadcast_to

__all__ = ["OWN", "Operation"]

OWN: dict[str, Op] = {}
"""Name -> record, of the operations that users defined."""


@documented
class Operation:
    """The base of operations of one's own.

    A subclass says what the operation computes; an object of it is then called on nodes, and is an
    operation like any other: differentiable, compiled, saved, mapped by `vmap`. An object has no
    state: what varies are operands (nodes) and keyword arguments (hashable values), which every
    method is given.

    raises GraphError: Where the class is defined: a method is missing, or the kernel cannot be
        right. Where it runs: `numpy` gives another type than `type` says.

    Attributes
    ----------
    kernel : str
        A C expression of the result's element over those of the operands, ``a``, ``b``, ``c`` and
        ``d``, for operations that work element by element: it is fused into kernels.
        ``T`` is the type of the elements, numbers with a point are written ``(T)0.5``, and
        ``$exp(a)`` calls a function of the C library in the right precision. It must say what
        `numpy` says. Such an operation has no keyword arguments.
    no_gradient : str
        Where there is no method `gradient`: why.
    batching : str
        How `vmap` maps it: ``"leading"`` where leading axes are batch axes already,
        ``"elementwise"`` (with a kernel, always), or empty: one example after the other.

    See Also
    --------
    check_operation : compares all that such a class says with what it does.
    custom_gradient : for a function of nodes; needs no class.
    op_from_graph

    >>> class Cube(mg.Operation):
    ...     kernel = "a * a * a"
    ...     def numpy(self, x):
    ...         return x * x * x
    ...     def gradient(self, x, cotangent):
    ...         return cotangent * 3.0 * x * x
    >>> cube = Cube()
    >>> x = mg.var("x", init=[1.0, 2.0])
    >>> cube(x).eval()
    array([1., 8.], dtype=float32)
    >>> mg.grad(mg.sum(cube(x)), x).eval()
    array([ 3., 12.], dtype=float32)

    One that is not elementwise says its type, of the operands' types, which have a `dtype` and
    a `shape`:

    >>> class Median(mg.Operation):
    ...     no_gradient = "not needed here"
    ...     def type(self, x, *, keep):
    ...         return mg.Type(x.dtype, x.shape if keep else x.shape[:-1])
    ...     def numpy(self, x, *, keep):
    ...         middle = np.median(x, axis=-1, keepdims=True).astype(x.dtype)
    ...         return np.broadcast_to(middle, x.shape) if keep else middle[..., 0]
    >>> import numpy as np
    >>> Median()(mg.input("x", ("n", 5)), keep=False)
    <magmagraph.functional.custom.Median float32[n]>
    """

    kernel: ClassVar[str] = ""
    no_gradient: ClassVar[str] = ""
    batching: ClassVar[str] = ""
    op: ClassVar[Op]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.numpy is Operation.numpy and not inspect.isabstract(cls):
            if cls.kernel or cls.type is not Operation.type:
                raise GraphError(
                    message(
                        f"{cls.__name__} has no method numpy",
                        need="numpy(self, *arrays), which computes the result",
                    )
                )
            return  # a base for others
        _check_class(cls)
        cls.op = _record(cls)
        OWN[cls.op.name] = cls.op

    def __call__(self, *operands: Any, name: str | None = None, **attributes: Any) -> Any:
        """Return a node of the operation, or a tuple of them for one with several results."""
        cls = type(self)
        if not hasattr(cls, "op"):
            raise GraphError(
                message(f"{cls.__name__} computes nothing", need="a subclass with a method numpy")
            )
        try:
            inspect.signature(cls.numpy).bind(self, *operands, **attributes)
        except TypeError as error:
            raise GraphError(
                message(f"{cls.__name__}: {error}", need="the operands and arguments of its numpy")
            ) from None
        for key, value in attributes.items():
            if not _is_plain(value):
                raise GraphError(
                    message(
                        f"{cls.__name__}: the argument {key} is {type(value).__name__}",
                        need="numbers, strings, dtypes and tuples of these",
                        hint="nodes and arrays are operands: give them by position",
                    )
                )
        nodes = promoted(*operands) if cls.kernel else tuple(map(as_node, operands))
        node = cls.op(*nodes, name=name, **attributes)
        if cls.kernel:
            _check_functions(cls.__name__, cls.kernel, node.inputs[0].dtype)
        return tuple(results_of(node)) if isinstance(node.type, tuple) else node

    def type(self, *operands: Type, **attributes: Any) -> TypeLike:
        """Return the result's type, or a tuple of them, from the operands'; shapes may have Dims.

        With a kernel it need not be written: one dtype, and shapes that broadcast.
        """
        raise NotImplementedError

    def numpy(self, *arrays: Any, **attributes: Any) -> Any:
        """Return the result's array, or a tuple of them; it must not write the operands' arrays."""
        raise NotImplementedError

    def gradient(self, *operands_and_cotangent: Any, **attributes: Any) -> Any:
        """Return a gradient for each operand, None where there is none: nodes from nodes.

        The last argument is the result's cotangent; for several results a tuple, None for one that
        is not used.
        """
        raise NotImplementedError


@record(frozen=True, eq=False, kw_only=True)
class _OwnOp(Op):
    """A record that pickles as the class that it was made for."""

    made_for: tuple[str, str] = ("", "")

    def __reduce__(self) -> tuple[Any, ...]:
        module, name = self.made_for
        if _found(module, name) is not self:
            raise pickle.PicklingError(
                message(
                    f"the operation {self.name} cannot be pickled: it is found by its name where "
                    "it is read, and there is no such class (any more)",
                    hint="define it with class at the level of a module",
                )
            )
        return _op_of_class, (module, name)

    __hash__ = object.__hash__


def _found(module: str, name: str) -> Op | None:
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return getattr(value, "op", None)


def _op_of_class(module: str, name: str) -> Op:
    from importlib import import_module

    import_module(module)
    cls = _found(module, name)
    if cls is None:
        raise pickle.UnpicklingError(
            message(f"{module} has no operation {name}", need="the class that it was pickled with")
        )
    return cls


# Definition.

_OPERANDS = "abcd"
_BARE_FLOAT = re.compile(r"(?<!\(T\))(?<![\w.])(\d+\.\d*|\.\d+|\d+(\.\d*)?[eE][+-]?\d+)")
_FUNCTION = re.compile(r"\$(\w+)")
_WORD = re.compile(r"(?<![\w$.])([A-Za-z_]\w*)")


def _positional(cls: type[Operation], method: str) -> tuple[int, bool]:
    """Return how many arguments beside self a method takes by position, and whether any number."""
    parameters = list(inspect.signature(getattr(cls, method)).parameters.values())[1:]
    kinds = [p.kind for p in parameters]
    count = sum(k in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
                for k, p in zip(kinds, parameters, strict=True))
    return count, any(k is inspect.Parameter.VAR_POSITIONAL for k in kinds)


def _attributes(cls: type[Operation]) -> dict[str, str]:
    """Return the schema of the keyword arguments of the method `numpy`."""
    parameters = list(inspect.signature(cls.numpy).parameters.values())[1:]
    named = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_name = ["*" for p in parameters if p.kind is p.VAR_KEYWORD]
    return dict.fromkeys(named + any_name, "Plain")


def _check_class(cls: type[Operation]) -> None:
    name = cls.__name__
    if "__init__" in vars(cls):
        raise GraphError(
            message(
                f"{name} has a method __init__, and an operation has no state",
                need="what varies as keyword arguments of the call, which every method is given",
            )
        )
    if cls.type is Operation.type and not cls.kernel:
        raise GraphError(
            message(
                f"{name} has no method type",
                need="type(self, *types), the result's type; or a kernel, with which the operands "
                "broadcast",
            )
        )
    if cls.batching and cls.batching not in WORDS:
        raise GraphError(
            message(f"{name}: batching={cls.batching!r}", need=f"one of {', '.join(WORDS)}")
        )
    count, open_ = _positional(cls, "numpy")
    if cls.gradient is not Operation.gradient:
        positional, any_number = _positional(cls, "gradient")
        if not open_ and not any_number and positional != count + 1:
            raise GraphError(
                message(
                    f"{name}.gradient takes {positional} arguments, {name}.numpy {count}",
                    need="the operands, then the cotangent",
                )
            )
    if cls.kernel:
        _check_kernel(name, cls.kernel, None if open_ else count)


def _check_kernel(name: str, kernel: str, count: int | None) -> None:
    bare = _BARE_FLOAT.search(kernel)
    if bare:
        raise GraphError(
            message(
                f"{name}: the number {bare[0]} in the kernel is a double, "
                "whatever the operands are",
                need="numbers of the elements' type T",
                hint=f"(T){bare[0]}",
            )
        )
    if count is None or not 1 <= count <= len(_OPERANDS):
        raise GraphError(
            message(
                f"{name}: a kernel for {'any number of' if count is None else count} operands",
                need="one to four",
            )
        )
    names = {*_OPERANDS[:count], "T"}
    for word in _WORD.findall(kernel):
        if word not in names:
            raise GraphError(
                message(
                    f"{name}: {word} in the kernel is unknown",
                    need=f"the operands {', '.join(_OPERANDS[:count])}, and T",
                    hint=f"${word}(...) for a function",
                )
            )
    for function in _FUNCTION.findall(kernel):
        if function not in _functions():
            near = difflib.get_close_matches(function, _functions(), 1)
            raise GraphError(
                message(
                    f"{name}: ${function} in the kernel is no function",
                    need=f"$ and a function of the C library: {', '.join(sorted(LIBM))}",
                    hint=f"${near[0]}" if near else None,
                )
            )
    if kernel.count("(") != kernel.count(")") or any(c in kernel for c in ";{}"):
        raise GraphError(message(f"{name}: the kernel is not an expression: {kernel}"))


def _functions() -> list[str]:
    """Return the names of C functions for kernels, of at least one dtype."""
    parts = [name.removeprefix("mg_").rpartition("_") for name in HELPERS]
    return sorted({*LIBM, *(name for name, _, dtype in parts if dtype[0] != "c")})


def _check_functions(name: str, kernel: str, dtype: np.dtype) -> None:
    """Refuse a kernel whose functions are not there for the dtype of its operands."""
    try:
        resolve(kernel, dtype)
    except KeyError as error:
        raise DTypeError(
            message(f"{name}: {error.args[0]}", hint="mg.cast(x, 'float32') of the operands")
        ) from None


def _record(cls: type[Operation]) -> Op:
    own: Operation = object.__new__(cls)
    doc = (inspect.getdoc(cls) or "").split("\n")[0] if cls.__doc__ else ""
    smooth = cls.gradient is not Operation.gradient
    path = f"{cls.__module__}.{cls.__qualname__}".replace("<locals>.", "")

    def rule(call: Call, *types: Type, **attributes: Any) -> TypeLike:
        if cls.type is Operation.type:
            return broadcast(call, *types)
        types_of = own.type(*types, **attributes)
        parts = types_of if isinstance(types_of, tuple) else (types_of,)
        if not parts or not all(isinstance(part, Type) for part in parts):
            raise call.dtype_error(
                f"its method type returned {types_of!r}", need="mg.Type(dtype, shape), or a tuple"
            )
        return types_of

    def evaluate(xp: Any, *arrays: Any, **attributes: Any) -> Any:
        results = own.numpy(*map(_unwritable, arrays), **attributes)
        record = cls.op
        operand_types = [Type(np.dtype(a.dtype), a.shape) for a in arrays]
        expected = rule(Call(record, ()), *operand_types, **attributes)
        several = isinstance(expected, tuple)
        parts = results if several else (results,)
        types = expected if isinstance(expected, tuple) else (expected,)
        if several and (not isinstance(results, (tuple, list)) or len(results) != len(types)):
            raise GraphError(
                message(f"{cls.__name__}.numpy returned {type(results).__name__}",
                        need=f"a tuple of {len(types)} arrays")
            )
        arrays_made = [xp.asarray(part) for part in parts]
        for array, type_ in zip(arrays_made, types, strict=True):
            if array.dtype != type_.dtype or array.shape != type_.shape:
                raise GraphError(
                    message(
                        f"{cls.__name__}.numpy returned {Type(array.dtype, array.shape)}, "
                        f"its type is {type_}",
                        need="what the method type says (with a kernel: the operands' dtype)",
                        hint="result.astype(x.dtype), or another type",
                    )
                )
        return tuple(arrays_made) if several else arrays_made[0]

    def gradient(node: Node, cotangent: Any) -> Sequence[Node | None]:
        gradients = own.gradient(*node.inputs, cotangent, **node.attrs)
        return _gradients(cls.__name__, node.inputs, gradients)

    return _OwnOp(
        name=path,
        kind=Kind.ELEMENTWISE if cls.kernel else Kind.CONTROL,
        dtypes=REAL if cls.kernel else INEXACT,
        doc=doc,
        rule=rule,
        attributes=_attributes(cls),
        evaluate=evaluate,
        scalar=Scalar(cls.kernel or None),
        gradient=gradient if smooth else None,
        no_gradient="" if smooth else cls.no_gradient or f"{cls.__name__} says none",
        batching=cls.batching,
        made_for=(cls.__module__, cls.__qualname__),
    )


def _unwritable(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _gradients(name: str, operands: Sequence[Node], gradients: Any) -> list[Node | None]:
    parts = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
    if len(parts) != len(operands):
        raise GradientError(
            message(
                f"{name}.gradient returned {len(parts)} gradients for {len(operands)} operands",
                need="one for each, None where there is none",
            )
        )
    result: list[Node | None] = []
    for place, (part, operand) in enumerate(zip(parts, operands, strict=True)):
        node = None if part is None else as_node(part, operand.dtype)
        if node is not None and node.shape == ():
            node = broadcast_to(node, operand.shape)
        if node is not None and node.ndim < operand.ndim:
            raise ShapeError(
                message(
                    f"{name}.gradient returned shape {node.shape} for operand {place}, "
                    f"which has {operand.shape}",
                    need="the operand's shape, or one that it was broadcast to",
                )
            )
        result.append(node)
    return result


def _is_plain(value: Any) -> bool:
    """Return whether an attribute's value is told from others by what it is."""
    if isinstance(value, (Node, np.ndarray, list, dict, set)):
        return False
    try:
        hash(value)
        kind: object = attribute_key(value)[0]
    except (TypeError, DTypeError):
        return False
    return kind != "object"
