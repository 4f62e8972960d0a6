"""`mg.jit`: a Python function of arrays, traced to a graph and compiled; gradients of such."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from ..autodiff.autodiff import grad as grad_of_node
from ..autodiff.transforms.rebuild import rebuild
from ..config import config
from ..dtypes import canonical, is_complex, is_float, promote
from ..errors import ArgumentError, ConfigError, DTypeError, FeedError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.locking import shared_lock
from ..ir.nesting import leaves, like
from ..ops.convert import as_node
from ..ops.leaf import input
from .compiled import Function
from .tensor import host_values

__all__ = ["Traced", "grad", "jit", "value_and_grad"]

_MOST = 64  # graphs that one function keeps, the most recent ones
_NUMBERS = (int, float, complex)
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Traced:
    """A Python function that runs compiled. Made by `jit`.

    traces: How many graphs were made of the function.
    """

    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        function: Callable[..., Any],
        sizes: str = "exact",
        static: frozenset[str] = frozenset(),
        **options: Any,
    ) -> None:
        functools.update_wrapper(self, function)
        self.traces = 0
        self._signature = _signature(function)
        parameters = {} if self._signature is None else self._signature.parameters
        self._places = [p.name for p in parameters.values() if p.kind in _BY_PLACE]
        others = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for name in static:
            if name not in parameters and not others:
                raise ArgumentError(
                    message(
                        f"static holds {name!r}",
                        need=f"arguments of {self._label}: {', '.join(parameters) or 'none'}",
                    )
                )
        self._static = static
        self._sizes = sizes
        self._options = options
        self._functions: OrderedDict[Any, Function] = OrderedDict()
        self._exact: set[Any] = set()  # kinds of arguments that are traced for each shape
        self._lock = shared_lock()

    @property
    def _label(self) -> str:
        return str(getattr(self.__wrapped__, "__name__", "function"))

    def __repr__(self) -> str:
        return f"<mg.jit of {self._label}, {self.traces} traces>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the method of an instance, which is then an argument as others are."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return what the function returns: arrays, or, where an argument is a node, nodes."""
        arguments = self._arguments(args, named)
        if any(isinstance(leaf, Node) for _, leaf in leaves(arguments, "")):
            return self.__wrapped__(*args, **named)
        call = self._prepared(arguments)
        compiled = self._compiled(call)
        try:
            return compiled(*call.feeds)
        except FeedError:
            if call.kind not in self._functions:
                raise
            # Sizes that do not fit each other: traced with them, the message has the numbers.
            return self._compiled(call, exact=True)(*call.feeds)

    def function(self, *args: Any, **named: Any) -> Function:
        """Return the compiled function for such arguments, to look at: its graph, plan, report."""
        return self._compiled(self._prepared(self._arguments(args, named)))

    def _arguments(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return arguments in one nested form; lists of numbers in them become arrays."""
        names = [*self._places, *itertools.repeat("", max(0, len(args) - len(self._places)))]
        positional = [
            _Static(value) if name in self._static else _with_arrays(value)
            for name, value in zip(names, args, strict=False)
        ]
        others = {
            name: _Static(value) if name in self._static else _with_arrays(value)
            for name, value in named.items()
        }
        return tuple(positional), others

    def _prepared(self, arguments: Any) -> _Call:
        """Return arguments with their members as arrays or values of Python."""
        labelled = [(self._name(label), leaf) for label, leaf in leaves(arguments, "")]
        members = [(label, _member(label, leaf)) for label, leaf in labelled]
        width = _float_dtype([leaf for _, leaf in members if hasattr(leaf, "dtype")])
        for place, (label, leaf) in enumerate(members):
            if isinstance(leaf, _NUMBERS) and not isinstance(leaf, bool):
                members[place] = (label, _number(leaf, width))
        feeds = [leaf for _, leaf in members if hasattr(leaf, "dtype")]
        kind = (_form(arguments), tuple(_kind(leaf) for _, leaf in members), config.float_dtype)
        return _Call(arguments, members, feeds, kind)

    def _name(self, label: str) -> str:
        """Return what an argument is called, by its place among all of them."""
        group, _, rest = label[1:].partition("]")
        first, _, inner = rest[1:].partition("]")
        if group == "0":
            place = int(first)
            first = self._places[place] if place < len(self._places) else f"argument {place}"
        return first.strip("'") + inner

    def _compiled(self, call: _Call, exact: bool = False) -> Function:
        """Return the compiled function for a call."""
        shapes = tuple(tuple(array.shape) for array in call.feeds)
        with self._lock:
            for place in ((call.kind, shapes), call.kind):
                if place in self._functions and not (exact and place is call.kind):
                    self._functions.move_to_end(place)
                    return self._functions[place]
            if self._sizes == "any" and call.kind not in self._exact and not exact:
                try:
                    return self._keep(call.kind, self._trace(call, None))
                except Exception:  # what is wrong with any size is so with these, and raises below
                    self._exact.add(call.kind)
            return self._keep((call.kind, shapes), self._trace(call, shapes))

    def _keep(self, place: Any, compiled: Function) -> Function:
        self._functions[place] = compiled
        while len(self._functions) > _MOST:
            self._functions.popitem(last=False)
        return compiled

    def _trace(self, call: _Call, shapes: Any) -> Function:
        """Call the function on inputs, and compile what it returns.

        `shapes` are those of the inputs; None leaves all extents but 1 open.
        """
        remaining_shapes = None if shapes is None else iter(shapes)
        inputs: list[Node] = []
        arguments: list[Any] = []
        for label, leaf in call.members:
            if not hasattr(leaf, "dtype"):
                arguments.append(leaf.value if isinstance(leaf, _Static) else leaf)
                continue
            shape: Sequence[Any] = (
                [1 if extent == 1 else None for extent in leaf.shape]
                if remaining_shapes is None
                else next(remaining_shapes)
            )
            inputs.append(input(label, shape, canonical(leaf.dtype)))
            arguments.append(inputs[-1])
        positional, named = like(call.arguments, arguments)
        if self._signature is not None:
            try:
                self._signature.bind(*positional, **named)
            except TypeError as error:
                raise ArgumentError(
                    message(f"{self._label}(): {error}", need=f"{self._label}{self._signature}")
                ) from None
        self.traces += 1
        try:
            result = self.__wrapped__(*positional, **named)
            return Function(inputs, result, **{"name": self._label, **self._options})
        except (ArgumentError, DTypeError) as error:
            error.add_note(
                f"mg.jit calls {self._label} with nodes in the place of arrays and numbers: what "
                "Python decides by their values is mg.where, mg.cond, mg.scan or mg.while_loop; "
                "numbers that Python needs are named in mg.jit(static=)"
            )
            raise


@documented
def jit(
    function: Any = None, *, sizes: str = "exact", static: str | Sequence[str] = (), **options: Any
) -> Any:
    """Compile a Python function of arrays: it is called once with nodes, and then runs as a graph.

    function (callable): It computes with functions and operators of magmagraph. Its arguments may
        be arrays, Python numbers, and nested lists, tuples and dicts of these; all else (True and
        False, texts, None, functions, objects) it is given as it is, and it is traced again for
        other ones. It returns nodes in a nested form, or None. Variables (`mg.var`) that it uses
        keep their values.
    sizes ({"exact", "any"}): "exact": the function is traced for each shape, so its Python code
        sees numbers for sizes. "any": one graph for all sizes of the axes (those of size 1 aside,
        which broadcast), where the function has a graph without knowing them; where it asks for a
        size, ``for i in range(x.shape[0])``, it is traced for each shape. A comparison ``x.shape[0]
        == 3`` of a size that is not known is False.
    static (str, or sequence of str): Names of arguments that the function is given as they are,
        also numbers and tuples of them: an axis, a number of steps. It is traced again for other
        ones.
    **options: As of `mg.function`: device, precision, nan, ...
    returns (Traced): The function of arrays. Called with a node among the arguments it returns
        nodes, so that such functions call each other. ``f.function(*args)`` is the compiled graph,
        to look at. Without `function`, a decorator.
    raises ArgumentError: At a call: where Python code asks for the value of a node (``if x > 0``,
        ``float(x)``), an argument is neither an array nor hashable, or the result holds no nodes.

    Notes
    -----
    The function is called once for each form, dtypes and numbers of axes of its arguments: what it
    prints, appends or reads elsewhere happens then, and not in later calls. A Python number becomes
    a scalar of the dtype of the widest float array among the arguments, `mg.config.float_dtype`
    where there is none, or of int32 (int64 where it does not fit).

    See Also
    --------
    function : the same for expressions.
    grad : of a Python function, too.

    >>> import numpy as np
    >>> @mg.jit(sizes="any")
    ... def line(x, params, *, squared=False):
    ...     y = params["slope"] * x + params["offset"]
    ...     return {"y": y ** 2 if squared else y}
    >>> line(np.arange(3.0), {"slope": 2.0, "offset": 1.0})["y"]
    array([1., 3., 5.])
    >>> line(np.arange(4.0), {"slope": 2.0, "offset": 1.0})["y"], line.traces
    (array([1., 3., 5., 7.]), 1)
    >>> line(np.arange(3.0), {"slope": 2.0, "offset": 1.0}, squared=True)["y"]
    array([ 1.,  9., 25.])
    """
    if sizes not in ("exact", "any"):
        raise ConfigError(message(f"sizes={sizes!r}", need="'exact' or 'any'"))
    taken = inspect.signature(Function).parameters
    for name in options:
        if name not in taken or name in ("inputs", "outputs", "updates"):
            raise ArgumentError(
                message(
                    f"mg.jit has no argument {name!r}",
                    need="sizes, static, and options of mg.function",
                )
            )
    if function is None:
        return functools.partial(jit, sizes=sizes, static=static, **options)
    if isinstance(function, Node) or not callable(function):
        raise ArgumentError(
            message(
                f"mg.jit is given {type(function).__name__}",
                need="a Python function",
                hint="mg.function(inputs, outputs), of nodes",
            )
        )
    names = frozenset((static,) if isinstance(static, str) else static)
    return Traced(function, sizes, names, **options)


@documented
def grad(loss: Any, wrt: Any = None, *, unused: str = "raise") -> Any:
    """Build the gradient of a scalar with respect to nodes, or of a Python function.

    loss (Node, or callable): A scalar (shape ``()``) of a float dtype; real also where it is
        computed from complex nodes. Or a Python function that returns such a scalar.
    wrt (Node, or a nested list, tuple or dict of nodes; int or tuple of ints): The targets:
        variables, inputs, or any nodes that the loss is computed from. For a target in the middle
        of the graph the gradient takes the target as free, whatever it is computed from. Of a
        function, the positions of arguments: the first unless given.
    unused ({"raise", "zeros"}, optional): What to do for a target that no gradient reaches.
    returns (Node, or the nested form of `wrt`): For each target its gradient, of the target's shape
        and dtype. It is an ordinary graph, so that it can be differentiated again. For a complex
        target ``z`` it is ``dL/dRe(z) + i dL/dIm(z)``, so that ``z - rate * gradient`` descends (as
        PyTorch has it; JAX gives the conjugate). Of a function, a function of the same arguments,
        as `jit` makes them: of arrays, which gives arrays, or of nodes, which gives nodes.
    raises GradientError: Where the loss is not a float scalar, a target is not a float node, or no
        gradient reaches a target and `unused` is "raise".

    See Also
    --------
    value_and_grad, vjp, jvp, jacobian, hessian

    >>> x = mg.var("x", init=[1.0, 2.0, 3.0])
    >>> mg.grad(mg.sum(x**2), x).eval()
    array([2., 4., 6.], dtype=float32)

    The result has the form of the targets, and can be differentiated again:

    >>> a, b = mg.var("a", init=2.0), mg.var("b", init=3.0)
    >>> first = mg.grad(a**3 * b, {"a": a, "b": b})
    >>> mg.grad(first["a"], b).eval()
    array(12., dtype=float32)

    Of a Python function:

    >>> import numpy as np
    >>> mg.grad(lambda x: mg.sum(x**2))(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    if _is_function(loss, wrt):
        return _derivative(loss, wrt, unused, with_value=False)
    return grad_of_node(loss, _given("grad", wrt), unused=unused)


def value_and_grad(loss: Any, wrt: Any = None, *, unused: str = "raise") -> Any:
    """Return the loss together with its gradient; see `grad`.

    Parameters
    ----------
    loss, wrt, unused
        As for `grad`.

    Returns
    -------
    loss : Node
        The loss itself.
    gradients : Node, or the nested form of `wrt`
        Of a Python function, one function that returns both.

    Raises
    ------
    GradientError
        As `grad`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", init=3.0)
    >>> value, slope = mg.value_and_grad(x**2, x)
    >>> mg.function([], [value, slope])()
    [array(9., dtype=float32), array(6., dtype=float32)]
    >>> mg.value_and_grad(lambda a, b: a**2 * b, (0, 1))(3.0, 2.0)
    (array(18., dtype=float32), (array(12., dtype=float32), array(9., dtype=float32)))
    """
    if _is_function(loss, wrt):
        return _derivative(loss, wrt, unused, with_value=True)
    return loss, grad_of_node(loss, _given("value_and_grad", wrt), unused=unused)


def _is_function(loss: Any, wrt: Any) -> bool:
    """Return whether a Python function is to be differentiated, by positions of arguments."""
    places = wrt if isinstance(wrt, tuple) else (0 if wrt is None else wrt,)
    valid = all(isinstance(place, int) and not isinstance(place, bool) for place in places)
    return callable(loss) and not isinstance(loss, Node) and valid


def _given(name: str, wrt: Any) -> Any:
    if wrt is None:
        raise ArgumentError(
            message(
                f"mg.{name}() missing 1 required argument: 'wrt'",
                need=f"mg.{name}(loss, wrt, *, unused='raise')",
            )
        )
    return wrt


def _derivative(function: Callable[..., Any], wrt: Any, unused: str, *, with_value: bool) -> Traced:
    """Return the gradient of a Python function, of the same arguments."""
    places = wrt if isinstance(wrt, tuple) else (0 if wrt is None else wrt,)

    @functools.wraps(function)
    def derivative(*args: Any, **named: Any) -> Any:
        if not all(-len(args) <= place < len(args) for place in places):
            raise ArgumentError(
                message(
                    f"the gradient is that of argument {', '.join(map(str, places))}, and "
                    f"{len(args)} are given by their positions"
                )
            )
        # Inputs of their own: one node may be given twice, or be a part of another one.
        targets = [args[place] for place in places]
        nodes = [as_node(leaf) for _, leaf in leaves(targets, "argument")]
        free = [input(node.name or "argument", node.shape, node.dtype) for node in nodes]
        arguments = list(args)
        for place, target in zip(places, like(targets, free), strict=True):
            arguments[place] = target
        loss = function(*arguments, **named)
        chosen = tuple(arguments[place] for place in places)
        gradients = grad_of_node(loss, chosen if isinstance(wrt, tuple) else chosen[0],
                                 unused=unused)  # fmt: skip
        result = (loss, gradients) if with_value else gradients
        members = [node for _, node in leaves(result, "")]
        return like(result, rebuild(members, dict(zip(free, nodes, strict=True))))

    return Traced(derivative)


# Arguments.


@dataclass(frozen=True)
class _Static:
    """An argument that Python code is given as it is."""

    value: Any


class _Call(NamedTuple):
    """The arguments of a call."""

    arguments: Any  # in their nested form
    members: list[tuple[str, Any]]
    feeds: list[Any]
    kind: Any  # what another graph is made for


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # of a class in C
        return None


def _with_arrays(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_arrays(member) for key, member in tree.items()}
    if isinstance(tree, list) and tree:
        members = [member for _, member in leaves(tree, "")]
        if all(isinstance(member, _NUMBERS) for member in members):
            return np.asarray(tree)
        return [_with_arrays(member) for member in tree]
    if isinstance(tree, tuple):
        return like(tree, [_with_arrays(m) for m in tree]) if _is_flat(tree) else _nested(tree)
    return tree


def _is_flat(tree: tuple[Any, ...]) -> bool:
    return not any(isinstance(member, (list, tuple, Mapping)) for member in tree)


def _nested(tree: tuple[Any, ...]) -> Any:
    members = [_with_arrays(member) for member in tree]
    return type(tree)(*members) if hasattr(tree, "_fields") else tuple(members)


def _member(label: str, leaf: Any) -> Any:
    """Return an argument as what it is traced by: an array, a number, or a value of Python."""
    if isinstance(leaf, (np.ndarray, np.generic)) or hasattr(leaf, "__cuda_array_interface__"):
        return leaf
    if hasattr(leaf, "__dlpack__") or hasattr(leaf, "__array__"):
        return host_values(leaf)
    if isinstance(leaf, _NUMBERS):
        return leaf
    value = leaf.value if isinstance(leaf, _Static) else leaf
    try:
        hash(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            message(
                f"{label} is {type(value).__name__}, which is not hashable",
                need="a hashable value"
                if isinstance(leaf, _Static)
                else "arrays, numbers, lists, tuples and dicts of these, or hashable values",
                hint="a tuple" if isinstance(value, list) else None,
            )
        ) from None
    return leaf


def _kind(leaf: Any) -> Any:
    """Return what of an argument another graph is made for."""
    if hasattr(leaf, "dtype"):
        return (canonical(leaf.dtype), tuple(extent == 1 for extent in leaf.shape))
    return (type(leaf), leaf)


def _form(tree: Any) -> Any:
    """Return the nested form of arguments, as a key."""
    if isinstance(tree, Mapping):
        return (dict, tuple((key, _form(member)) for key, member in tree.items()))
    if isinstance(tree, (list, tuple)):
        return (type(tree), tuple(map(_form, tree)))
    return None


def _float_dtype(arrays: Sequence[Any]) -> np.dtype:
    """Return the dtype that Python numbers have beside some arrays."""
    dtypes = [canonical(array.dtype) for array in arrays]
    floats = [np.empty(0, dtype).real.dtype if is_complex(dtype) else dtype for dtype in dtypes]
    candidates = [dtype for dtype in floats if is_float(dtype)]
    return promote(*candidates) if candidates else canonical(config.float_dtype)


def _number(value: Any, width: np.dtype) -> np.ndarray:
    if isinstance(value, float):
        return np.asarray(value, width)
    if isinstance(value, complex):
        return np.asarray(value, np.complex128 if width.itemsize > 4 else np.complex64)
    return np.asarray(value, as_node(value).dtype)
