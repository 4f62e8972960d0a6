"""The base of all layers: weights made at the first call, and calls that can be repeated."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config import config
from ..dtypes import canonical, is_float
from ..errors import ConfigError, GraphError, ShapeError, message
from ..function.defaults import stateful
from ..help.argument_errors import tell_methods
from ..init import zeros
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.html import preformatted, table_html
from ..ir.identity import WeakMap, is_among
from ..ir.lines import group_of, open_group
from ..ir.types import Extent
from ..ops.convert import as_node
from ..ops.leaf import Variable, variable
from ..regularize import Penalty
from .initializers import initializer

__all__ = [
    "Call",
    "Layer",
    "Weight",
    "call_of",
    "count",
    "initial_values_left_out",
    "name_layers",
    "no_penalty",
    "note_call",
    "path_of",
]


@dataclass(frozen=True)
class Weight:
    """A variable of a layer, and what training does with it."""

    variable: Variable
    trainable: bool
    decays: bool


@dataclass(frozen=True)
class Call:
    """One application of a layer, which a model repeats for training."""

    layer: Layer
    inputs: tuple[Node, ...]
    options: Mapping[str, Any]
    position: int | None = None  # of the result, where the layer gives a tuple


_calls: WeakMap[Node, Call] = WeakMap()
_path: ContextVar[tuple[str, ...]] = ContextVar("path", default=())
_training: ContextVar[bool] = ContextVar("training", default=False)


class _Allowance:
    """The bytes that weights may have, which are built for a file."""

    def __init__(self, size: int) -> None:
        self.size = self.left = size

    def take(self, label: str, shape: Sequence[int], dtype: np.dtype) -> None:
        """Count a weight, and raise where there are more bytes than the file has."""
        self.left -= math.prod(shape) * dtype.itemsize
        if self.left < 0 or min(shape, default=0) < 0:
            raise ShapeError(
                message(
                    f"weight '{label}' is {dtype.name}{list(shape)}",
                    need=f"weights of {self.size} bytes together, as the file has",
                )
            )


_allowance: ContextVar[_Allowance | None] = ContextVar("allowance", default=None)


@contextmanager
def initial_values_left_out(size: int) -> Iterator[None]:
    """Let layers build weights that a file fills: of `size` bytes at most, zero until then."""
    token = _allowance.set(_Allowance(size))
    try:
        yield
    finally:
        _allowance.reset(token)


def call_of(node: Node) -> Call | None:
    """Return the outermost call of a layer, in its form for use, that gave a node."""
    return _calls.get(node)


def note_call(node: Node, call: Call) -> None:
    """Say by which call a node was given, in a copy of a graph."""
    _calls[node] = call


def path_of(name: str) -> str:
    """Return a name prefixed with the names of the layers that are being called."""
    return "/".join((*_path.get(), name))


def name_layers(layers: Sequence[Layer]) -> None:
    """Give every layer that has no name one that none of its siblings has."""
    names = {layer.name for layer in layers if layer.name is not None}
    for layer in layers:
        if layer.name is None:
            stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", type(layer).__name__).lower()
            name, number = stem, 0
            while name in names:
                number += 1
                name = f"{stem}_{number}"
            names.add(name)
            layer.name = name


@documented
class Layer:
    """The base of all layers: subclass it with `build` and `call`.

    name (str, optional): Its name: in pictures, in tables, and of its weights. Made from the class
        unless said.
    weight_decay (float, optional): In the place of the optimizer's, for those weights of this layer
        that decay (kernels; not biases, scales and offsets).
    regularizer (Penalty, optional): A penalty on the weights that decay, added to the loss
        (`mg.regularize`).
    trainable (bool): False keeps the weights as they are.

    Notes
    -----
    Sublayers are found in a layer's attributes, also in lists and dicts there, and so are variables
    made by `mg.var`: they are weights, trained where they are floats. (What should not be trained
    is made by `weight` with ``trainable=False``.) Constructor arguments are remembered, so that a
    model can be written to a file as its architecture.

    A layer keeps its weights for all its calls: calling it twice shares them.

    Inside of a `call` other layers are called for training where it is: ``self.dropout(x)`` needs
    no ``training=training``, and a `call` that does not use `training` needs not take it. A class
    of PyTorch's form, whose method is `forward`, works as well.

    >>> class Scale(mg.nn.Layer):
    ...     def build(self, x):
    ...         self.factor = self.weight("factor", (x.shape[-1],), "ones")
    ...     def call(self, x, training):
    ...         return x * self.factor
    >>> layer = Scale(name="scale")
    >>> layer(mg.var("x", shape=("batch", 3))).shape, layer.variables
    ((batch, 3), [<variable 'scale/factor' float32[3]>])

    Layers are printed as the tree of their attributes:

    >>> print(mg.nn.Residual([mg.nn.Dense(8, "relu"), mg.nn.Dense(4)]))
    Residual()
      0: Dense(units=8, activation='relu')
      1: Dense(units=4)
    """

    arguments: dict[str, Any]

    _takes_training = True  # whether its `call` has an argument for it

    def __init_subclass__(cls, **options: Any) -> None:
        """Have it explain why arguments do not fit; take a method `forward` for `call`."""
        super().__init_subclass__(**options)
        tell_methods(cls, ("__init__",))
        if "forward" in vars(cls) and "call" not in vars(cls):
            cls.call = vars(cls)["forward"]  # type: ignore[method-assign]
        if "call" in vars(cls):
            parameters = inspect.signature(cls.call).parameters
            cls._takes_training = "training" in parameters or any(
                parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
            )

    def __new__(cls, *args: Any, **options: Any) -> Layer:
        """Remember the arguments."""
        self = super().__new__(cls)
        signature = inspect.signature(cls.__init__)
        try:
            bound = signature.bind(self, *args, **options)
        except TypeError:
            return self  # a copy that is filled later, or __init__ raises the error
        arguments = dict(list(bound.arguments.items())[1:])
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(parameter.name, {}))
            elif parameter.kind is parameter.VAR_POSITIONAL and parameter.name in arguments:
                arguments[parameter.name] = list(arguments[parameter.name])
        self.arguments = arguments
        return self

    def __init__(
        self,
        *,
        name: str | None = None,
        weight_decay: float | None = None,
        regularizer: Penalty | None = None,
        trainable: bool = True,
    ) -> None:
        if regularizer is not None and not callable(regularizer):
            raise no_penalty("regularizer", regularizer)
        self.name = name
        self.weight_decay = weight_decay
        self.regularizer = regularizer
        self.trainable = trainable
        self.built = False
        self._weights: dict[str, Weight] = {}

    # What a subclass gives.

    def build(self, *inputs: Node) -> None:
        """Make the weights for inputs of these shapes; called once, before the first `call`."""

    def call(self, *inputs: Node, training: bool) -> Any:
        """Return the layer's value: a node, or a tuple of nodes."""
        raise NotImplementedError(f"{type(self).__name__} has no method call")

    # What a subclass uses.

    @documented
    def weight(
        self,
        name: str,
        shape: Sequence[Extent],
        init: Any = "glorot_uniform",
        *,
        dtype: Any = None,
        trainable: bool = True,
        decays: bool = False,
    ) -> Variable:
        """Make a weight.

        name: Its name within the layer.
        shape: Extents, all ints.
        init: The name of an initializer of `mg.init`, or a tuple of its name and arguments; a
            function ``(shape, dtype)``; or a value. Named ones are seeded by the model.
        dtype: `mg.config.float_dtype` unless said.
        trainable: Whether an optimizer renews it; running statistics are not.
        decays: Whether weight decay and penalties are for it.
        returns (Variable):
        """
        if not isinstance(name, str):
            raise ConfigError(message(f"a weight is named {name!r}", need="a string"))
        for extent in shape:
            if not isinstance(extent, (int, np.integer)):
                raise ShapeError(
                    message(
                        f"layer '{path_of(self.name or '')}': weight '{name}' has the symbolic "
                        f"extent {extent}",
                        need="an input whose channels or features are a number",
                        hint="mg.nn.Flatten() or mg.reshape first, or a fixed shape in Input",
                    )
                )
        label = f"{'/'.join(_path.get())}/{name}"
        element = config.float_dtype if dtype is None else dtype
        extents = tuple(map(int, shape))
        start = initializer(init)
        allowance = _allowance.get()
        if allowance is not None:
            allowance.take(label, extents, canonical(element))
            if isinstance(init, (str, tuple, list)):
                start = zeros()  # no time is spent on values that a file replaces
        weight_variable = variable(label, extents, start, element)
        self._weights[name] = Weight(weight_variable, trainable, decays)
        return weight_variable

    # What it holds.

    def _attribute_values(self) -> Iterator[tuple[str, Any]]:
        """Yield the values of its attributes, and of lists and dicts there, by name.

        Those in ``members`` have no name before their own.
        """
        for key, value in vars(self).items():
            if key == "arguments":
                continue
            before = "" if key == "members" else f"{key}/"
            if isinstance(value, Mapping):
                yield from ((f"{before}{name}", member) for name, member in value.items())
            elif isinstance(value, (list, tuple)):
                yield from ((f"{before}{i}", member) for i, member in enumerate(value))
            else:
                yield key, value

    def _sublayers(self) -> dict[str, Layer]:
        """Return the layers in its attributes, each once, by attribute: ``members`` by number."""
        by_attribute: dict[str, Layer] = {}
        for key, member in self._attribute_values():
            if isinstance(member, Layer) and not is_among(member, by_attribute.values()):
                by_attribute[key.replace("/", ".")] = member
        return by_attribute

    @property
    def children(self) -> list[Layer]:
        """The layers in its attributes, in the order in which they were set."""
        return list(self._sublayers().values())

    def _name_children(self) -> None:
        """Name sublayers by their attributes, those in lists and dicts by their classes."""
        by_attribute = self._sublayers()
        names = {child.name for child in by_attribute.values()}
        for key, child in by_attribute.items():
            if child.name is None and key.isidentifier() and key not in names:
                child.name = key.lstrip("_") or key
        name_layers(list(by_attribute.values()))

    def paths(self) -> dict[str, Weight]:
        """Return all weights by attribute path: ``encoder.0.attention.query.kernel``.

        A weight that several paths lead to has the first one.

        Examples
        --------
        >>> import magmagraph as mg
        >>> block = mg.nn.Sequential(mg.nn.TransformerEncoder(2, 16), mg.nn.Dense(3))
        >>> block(mg.var("x", shape=("batch", 5, 8))).shape
        (batch, 5, 3)
        >>> list(block.paths())[:2], list(block.paths())[-1]
        (['0.attention.query.kernel', '0.attention.query.bias'], '1.bias')
        """
        by_path: dict[str, Weight] = {}
        weights = {weight.variable: weight for weight in self.weights().values()}
        for path, weight_variable, _ in self._placed():
            if weight_variable in weights:
                by_path[path] = weights.pop(weight_variable)
        return by_path

    def _placed(
        self, path: str = "", around: tuple[tuple[str, Layer], ...] = ()
    ) -> Iterator[tuple[str, Variable, tuple[tuple[str, Layer], ...]]]:
        """Yield its variables by attribute path, each with the layers around it, outermost first.

        A variable is yielded for every path that leads to it, those outside of sublayers first.
        """
        around = (*around, (path, self))
        before = f"{path}." if path else ""
        for name, weight in self._own_weights().items():
            yield before + name.replace("/", "."), weight.variable, around
        for key, child in self._sublayers().items():
            yield from child._placed(before + key, around)

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name, those of sublayers as ``sublayer/name``."""
        inner: dict[str, Weight] = {}
        self._name_children()
        for child in self.children:
            for name, weight in child.weights().items():
                inner[f"{child.name}/{name}"] = weight
        named_weights = self._own_weights({weight.variable for weight in inner.values()})
        named_weights.update(inner)
        if not self.trainable:
            named_weights = {
                name: Weight(w.variable, False, w.decays) for name, w in named_weights.items()
            }
        return named_weights

    def _own_weights(self, others: Iterable[Variable] = ()) -> dict[str, Weight]:
        """Return the weights that are not of sublayers, by name."""
        named_weights = dict(self._weights)
        variables = {weight.variable for weight in named_weights.values()} | set(others)
        for name, member in self._attribute_values():
            if isinstance(member, Variable) and member not in variables:
                variables.add(member)
                named_weights[name] = Weight(member, is_float(member.dtype), True)
        return named_weights

    def layers(self) -> Iterator[Layer]:
        """Yield it and all layers inside, outermost first."""
        yield self
        for child in self.children:
            yield from child.layers()

    @property
    def variables(self) -> list[Variable]:
        """The variables of all weights, each once: also running statistics."""
        return list(dict.fromkeys(weight.variable for weight in self.weights().values()))

    @property
    def trainable_variables(self) -> list[Variable]:
        """Those of its variables that an optimizer renews: ``optimizer.step(loss, these)``."""
        weights = self.weights().values()
        return list(dict.fromkeys(weight.variable for weight in weights if weight.trainable))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from ..help.spellings import OF_LAYER

            if name not in OF_LAYER:
                return object.__getattribute__(self, name)  # it raises as it did
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message(text, hint=OF_LAYER[name]), name=name, obj=self)

    # Calling it.

    @documented
    def __call__(self, *inputs: Any, training: bool | None = None, **options: Any) -> Any:
        """Apply the layer to nodes.

        *inputs: Nodes or arrays.
        training: Whether dropout drops and batch statistics are used: as the layer whose `call`
            this is in, and else False, unless given. A model repeats calls with False for its
            training step.
        **options: What else the layer's `call` takes.
        returns (Node, or a tuple of nodes):
        """
        if not hasattr(self, "_weights"):
            raise GraphError(
                message(
                    f"{type(self).__name__} is called before it was initialized",
                    hint="super().__init__(**options) in its __init__",
                )
            )
        if training is None:
            training = _training.get()
        if not isinstance(training, (bool, int, np.bool_)):
            raise GraphError(
                message(
                    f"{type(self).__name__}: training is of type {type(training).__name__}",
                    need="True or False",
                )
            )
        nodes = tuple(as_node(x) for x in inputs)
        if self.name is None:
            name_layers([self])
        self._name_children()
        with self._opened(bool(training)):
            if not self.built:
                self.build(*nodes)
                self.built = True
            keywords = {"training": training} if self._takes_training else {}
            result = self.call(*nodes, **keywords, **options)
        if training:
            return result
        if isinstance(result, tuple):
            return tuple(
                self._noted(member, nodes, options, position)
                for position, member in enumerate(result)
            )
        return self._noted(result, nodes, options, None)

    @contextmanager
    def _opened(self, training: bool) -> Iterator[None]:
        assert self.name is not None
        token = _path.set((*_path.get(), self.name))
        outer = _training.set(training)
        try:
            with open_group(group_of(self.name, "layer")):
                yield
        finally:
            _training.reset(outer)
            _path.reset(token)

    def _noted(
        self, value: Node, inputs: tuple[Node, ...], options: Mapping[str, Any], at: int | None
    ) -> Node:
        if not isinstance(value, Node):
            raise GraphError(
                message(f"layer '{self.name}' returned {type(value).__name__}", need="a node")
            )
        if any(value is node for node in inputs) or not value.inputs:
            value = stateful(value, {})  # a new node: this layer did not make the value
        _calls[value] = Call(self, inputs, dict(options), at)
        return value

    def _repr_html_(self) -> str:
        rows = [("weight", "type", "trained")]
        rows += [
            (name, repr(weight.variable.type), "yes" if weight.trainable else "no")
            for name, weight in self.weights().items()
        ]
        table = table_html(rows, left=range(3)) if len(rows) > 1 else ""
        return preformatted(repr(self)) + table

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{type(self).__name__}({arguments})"

    def __str__(self) -> str:
        """Return the tree of its sublayers: a line for each, with its attribute.

        Arguments that are defaults, names and layers are left out.
        """
        by_attribute = {k: v for k, v in self._sublayers().items() if type(v).__name__[0] != "_"}
        defaults = {"name": self.name}
        for kind in reversed(type(self).__mro__):
            if "__init__" in vars(kind):
                parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
                defaults.update({p.name: p.default for p in parameters if p.name != "name"})
        arguments = ", ".join(
            f"{key}={value!r}"
            for key, value in self.arguments.items()
            if not _layers_in(value) and not _same(value, defaults.get(key, ...))
        )
        lines = [f"{type(self).__name__}({arguments})"]
        for key, child in by_attribute.items():
            head, *rest = str(child).splitlines()
            lines += [f"  {key}: {head}", *(f"  {line}" for line in rest)]
        return "\n".join(lines)


def _same(value: Any, default: Any) -> bool:
    """Return whether an argument is its default; arrays never are."""
    plain = (bool, int, float, str, type(None))
    return isinstance(value, plain) and type(value) is type(default) and value == default


def _layers_in(value: Any) -> bool:
    """Return whether an argument is a layer, or a list of layers."""
    members = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(member, Layer) for member in members)


def no_penalty(argument: str, value: Any) -> ConfigError:
    """Return the error for a value that is no penalty."""
    hint = f"mg.regularize.l2({value})" if isinstance(value, float) else "mg.regularize.l2(1e-4)"
    return ConfigError(
        message(f"{argument}={value!r}", need="a penalty of mg.regularize", hint=hint)
    )


def count(value: Any, argument: str) -> int:
    """Return an argument that counts something, a Python int or one of NumPy's, as an int."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(message(f"{argument}={value!r}", need="an int of at least 1"))
    return int(value)


def features(x: Node, axis: int = -1) -> Extent:
    """Return the extent of an axis, with the error that names what a layer needs of it."""
    if x.ndim == 0:
        raise ShapeError(message("a layer is given a scalar", need="an input with axes"))
    return x.shape[axis]


def float_node(x: Node) -> Node:
    """Return a float input, or raise with a hint for integers."""
    if not is_float(x.dtype):
        from ..ops.convert import cast

        return cast(x, config.float_dtype)
    return x
