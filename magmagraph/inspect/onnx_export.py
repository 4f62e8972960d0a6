"""`mg.to_onnx`: functions and expressions as ONNX models, which other runtimes and viewers read.

Operators are written by the operations' own records (their field `onnx`); this file knows none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..dtypes import is_complex
from ..errors import GraphError, message
from ..files.writing import replace_file, write_file
from ..ir import dims
from ..ir.dims import Dim
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node, topological
from ..ir.nesting import leaves
from ..ir.op import Kind, Op, describe
from ..ir.types import Extent, FilePath, Type
from ..ops.rules.onnx_forms import first, item
from ..ops.rules.onnx_pairs import Pairs
from ..passes.precision.integers import with_float_products
from .onnx_dtypes import accepted, allowed, type_parameters

OPSET = 21
IR_VERSION = 10
_LARGEST = 1 << 30  # bytes of a model whose variables stand in the file itself
_SHOWN = 10  # operations that an error names


@documented
def to_onnx(what: Any, path: FilePath | None = None) -> Any:
    """Return a function or an expression as an ONNX model, and write it to a file.

    what (Function, Model, Node, or a list, tuple or dict of nodes): Of a function, the program as
        it was written: its outputs, then the new values of variables under the name ``new(W)``. Of
        a model, what predicts. Of nodes, what is below them. Products of a function of
        ``precision="int8"`` are written with ``QuantizeLinear`` and ``DequantizeLinear`` around
        them, and their weights in int8.
    path: Where to write it, ``model.onnx``; not at all unless given. Variables of more than 1 GiB
        stand beside it, in ``model.onnx.data``.
    returns (onnx.ModelProto): Of IR version 10 and opset 21, checked. Named dimensions are its
        symbolic ones, variables and constants its initializers; each operator says in
        ``doc_string`` which of your lines made it.
    raises GraphError: It holds no nodes, operations that have no form in ONNX (the text lists them,
        with the reasons), or complex outputs.
    raises ImportError: The package ``onnx`` is not installed.

    Notes
    -----
    Taps and asserts are left out. Random numbers cannot be exported: ONNX says nothing about their
    bits. A `fixed_point` that does not converge gives its last point: no error. Positions out of
    range are clipped or wrap as `take` says. Loops and branches become ``Loop``, ``Scan`` and
    ``If``; complex numbers inside of a program are pairs of real ones along a last axis. Where an
    operator does not take a dtype, or onnxruntime has no kernel for it, operands are cast to a
    wider one and results back. A few float64 operators of the standard have no kernel in
    onnxruntime. docs/onnx.md lists all operations.

    >>> x = mg.input("x", shape=("batch", 3))
    >>> model = mg.to_onnx(mg.tanh(x) * 2.0)                          # doctest: +SKIP
    >>> [node.op_type for node in model.graph.node]                   # doctest: +SKIP
    ['Tanh', 'Mul']
    """
    inputs, outputs = _ends(what)
    onnx = _library()
    nodes = topological([*inputs, *(node for _, node in outputs)])
    _check(nodes)
    for label, node in outputs:
        if is_complex(node.dtype):
            raise GraphError(
                message(f"the output '{label}' is complex: {describe(node)}",
                        need="real outputs: ONNX has no operators of complex numbers",
                        hint="mg.real(x) and mg.imag(x)")
            )  # fmt: skip
    model = _Model(onnx, inputs, nodes).build(outputs, getattr(what, "name", None))
    large = model.ByteSize() > _LARGEST
    if not large:
        onnx.checker.check_model(model, full_check=True)
    if path is not None:
        _write(onnx, model, Path(path), large)
    return model


def _library() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            message("the package onnx is not installed", hint="pip install 'magmagraph[onnx]'")
        ) from error
    return onnx


def _ends(what: Any) -> tuple[list[Node], list[tuple[str, Node]]]:
    """Return the inputs and the named outputs of whatever is to be written."""
    source = getattr(what, "source_graph", what)
    if isinstance(source, Graph) and getattr(what, "precision", "") == "int8":
        source = with_float_products(what.report["precision"].graphs[1])
    if isinstance(source, Graph):
        outputs = [(node.name or f"output_{i}", node) for i, node in enumerate(source.outputs)]
        outputs += [(f"new({variable.name})", value) for variable, value in source.updates]
        return list(source.inputs), outputs
    model_outputs = getattr(what, "outputs", None)
    if isinstance(model_outputs, tuple) and model_outputs:  # of a model: the form that predicts
        return list(what.inputs), [
            (node.name or f"output_{i}", node) for i, node in enumerate(model_outputs)
        ]
    labelled = leaves(what, "output")
    if not labelled or not all(isinstance(node, Node) for _, node in labelled):
        raise GraphError(
            message(
                f"{type(what).__name__} holds no nodes",
                need="a function, a model, a node, or a list or dict of nodes",
            )
        )
    outputs = [(node.name or label, node) for label, node in labelled]
    inputs = [node for node in topological([n for _, n in labelled]) if "key" in node.attrs]
    return inputs, outputs


def _check(nodes: Sequence[Node]) -> None:
    """Raise unless every operation and every dtype has a form in ONNX."""
    missing: dict[str, Node] = {}
    for node in nodes:
        types = node.type if isinstance(node.type, tuple) else (node.type,)
        if any(is_complex(type_.dtype) for type_ in types) and not _of_pairs(node):
            missing.setdefault(f"{node.op.name} of complex numbers", node)
        elif not node.op.onnx and not _is_given(node):
            missing.setdefault(node.op.name, node)
    if missing:
        shown = "".join(
            f"\n{name}: {describe(node)} ({reason_of(node.op)})"
            for name, node in list(missing.items())[:_SHOWN]
        )
        more = f"\n... {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise GraphError(
            message(
                f"{len(missing)} operation{'s have' if len(missing) > 1 else ' has'} no form in "
                f"ONNX:{shown}{more}",
                hint="export the part that lies before or behind them",
            )
        )


_REASONS: Mapping[Kind, str] = {
    Kind.RANDOM: "ONNX does not say which bits random numbers are made of",
    Kind.COLLECTIVE: "ONNX has no messages between processes",
    Kind.LINALG: "ONNX has no decompositions of matrices",
    Kind.LOWERED: "passes make it, and a program is exported as it was before them",
}


def reason_of(op: Op) -> str:
    """Return why an operation has no form in ONNX, or none for complex numbers."""
    if op.onnx:
        return "it is written for real numbers only"
    return _REASONS.get(op.kind, "ONNX has no operators that compute it")


def _of_pairs(node: Node) -> bool:
    """Return whether a node of complex numbers can be written with pairs of real ones."""
    rule = node.op.onnx
    return isinstance(rule, Pairs) or rule in (first, item) or "value" in node.attrs


def _is_given(node: Node) -> bool:
    """Return whether a node's value is stored in the model, or fed to it."""
    return node.op.kind is Kind.LEAF and any(key in node.attrs for key in ("key", "state", "value"))


def _write(onnx: Any, model: Any, path: Path, large: bool) -> None:
    if not large:
        write_file(path, model.SerializeToString(deterministic=True))
        return
    name = f"{path.name}.data"
    # The values take their place first, and then the model that names them.
    with replace_file(path) as file, replace_file(path.with_name(name)) as values:
        onnx.save(
            model, str(file), save_as_external_data=True, location=values.name,
            all_tensors_to_one_file=True,
        )
        onnx.checker.check_model(str(file))
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = name
        file.write_bytes(model.SerializeToString(deterministic=True))


class _Model:
    """One model in the making: what `ops.rules.onnx_forms.Target` describes."""

    def __init__(self, onnx: Any, inputs: Sequence[Node], nodes: Sequence[Node]) -> None:
        self.onnx = onnx
        self.inputs = list(inputs)
        self.nodes = nodes
        self.operators: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[Node, Any] = {}
        self.elements: dict[str, int] = {}  # the element type of each name
        self._taken: set[str] = set()
        self._constants: dict[Any, str] = {}
        self._extents: dict[str, str] = {}
        self._shapes: dict[tuple[Extent, ...], str] = {}
        self._current: Node | None = None
        self._places = _places(self.inputs)

    # ------------------------------------------------------------------ the whole

    def build(self, outputs: Sequence[tuple[str, Node]], name: str | None) -> Any:
        """Return the model."""
        helper = self.onnx.helper
        for node in self.inputs:
            self.names[node] = self._fresh(node.name or "input")
            self.elements[self.names[node]] = self._element(node.dtype)
        reserved = [self._fresh(label) for label, _ in outputs]
        for node in self.nodes:
            self.node(node)
        for label, (_, node) in zip(reserved, outputs, strict=True):
            self.operators.append(helper.make_node("Identity", [self.names[node]], [label]))
        graph = helper.make_graph(
            self.operators,
            name or "magmagraph",
            [self._value(self.names[node], node) for node in self.inputs],
            [self._value(label, n) for label, (_, n) in zip(reserved, outputs, strict=True)],
            self.initializers,
        )
        return helper.make_model(
            graph,
            producer_name="magmagraph",
            producer_version=__version__,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )

    def _value(self, name: str, node: Node) -> Any:
        """Return the declaration of an input or output; extents that are not known are named."""
        shape = [e if isinstance(e, int) else _symbol(e) for e in node.shape]
        return self.onnx.helper.make_tensor_value_info(name, self._element(node.dtype), shape)

    def _element(self, dtype: np.dtype) -> int:
        return int(getattr(self.onnx.TensorProto, _ELEMENTS.get(dtype.name, dtype.name.upper())))

    def _fresh(self, base: str) -> str:
        """Return a name that nothing has yet."""
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    # ------------------------------------------------------------------ what rules ask for

    def node(self, node: Node) -> str:
        """Return the name of a node's value (names, of several), written if it is not yet."""
        for each in topological([node], stop=lambda n: n in self.names):
            if each not in self.names:
                before, self._current = self._current, each if each.line else self._current
                self.names[each] = self._written(each)
                self._current = before
        name: str = self.names[node]
        return name

    def _written(self, node: Node) -> Any:
        attrs = node.attrs
        if "state" in attrs:
            return self._initializer(node.name or "variable", attrs["state"].read())
        if node.op.kind is Kind.LEAF and "value" in attrs:
            return self.constant(attrs["value"])
        operands = [self.names[operand] for operand in node.inputs]
        rule = node.op.onnx
        if not rule:
            _check([node])
        if callable(rule):
            return rule(self, node, *operands)
        return self.add(rule, *operands)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Write an operator of one result, and return that one's name."""
        return self.several(operator, 1, *inputs, **attributes)[0]

    def several(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Write an operator of several results.

        Operands of a dtype that the operator does not take are cast to a wider one of their kind,
        and its results are cast back.
        """
        schema = self.onnx.defs.get_schema(operator, OPSET)
        letters = type_parameters(schema.inputs, len(inputs))
        element_of: dict[str, int] = {}
        for name, letter in zip(inputs, letters, strict=True):
            if name:
                element_of.setdefault(letter, self.elements[name])
        taken = {
            letter: self._taken_for(schema, letter, element_of[letter]) for letter in element_of
        }
        operands = [
            self.add("Cast", name, to=taken[letter])
            if name and element_of[letter] != taken[letter]
            else name
            for name, letter in zip(inputs, letters, strict=True)
        ]
        results = self._operator(operator, count, *operands, **attributes)
        for place, letter in enumerate(type_parameters(schema.outputs, count)):
            name = results[place]
            if operator == "Cast":
                self.elements[name] = attributes["to"]
            elif letter not in element_of:  # one element type, whatever the operands
                (self.elements[name],) = allowed(self.onnx, schema, letter)
            else:
                self.elements[name] = taken[letter]
                if taken[letter] != element_of[letter]:
                    results[place] = self.add("Cast", name, to=element_of[letter])
        return results

    def _taken_for(self, schema: Any, letter: str, element: int) -> int:
        """Return the element type in which an operator is given operands of one."""
        taken = accepted(self.onnx, schema, letter, element)
        if taken is not None:
            return taken
        name = self.onnx.TensorProto.DataType.Name(element).lower()
        assert self._current is not None
        raise self.refuse(self._current, f"{schema.name} takes no {name}, and nothing wider")

    def _operator(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Write an operator with operands of the right dtypes."""
        node = self._current
        label = operator.lower()
        if node is not None:
            scope = getattr(node.line, "scope", "")
            label = "/".join(part for part in (scope, node.name or node.op.name) if part)
        results = [self._fresh(label) for _ in range(count)]
        onnx_node = self.onnx.helper.make_node(
            operator, list(inputs), results, name=results[0], **attributes
        )
        if node is not None and node.line:
            onnx_node.doc_string = str(node.line)
        self.operators.append(onnx_node)
        return results

    def constant(self, value: Any) -> str:
        """Return the name of an array."""
        array = np.asarray(value)
        if is_complex(array.dtype):
            array = np.stack([array.real, array.imag], axis=-1)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._initializer("constant", array)
        return self._constants[key]

    def _initializer(self, base: str, array: np.ndarray) -> str:
        name = self._fresh(base)
        tensor = self.onnx.TensorProto()
        tensor.name = name
        tensor.data_type = self._element(array.dtype)
        tensor.dims.extend(array.shape)
        tensor.raw_data = np.ascontiguousarray(array).tobytes()
        self.initializers.append(tensor)
        self.elements[name] = tensor.data_type
        return name

    def cast(self, name: str, dtype: np.dtype) -> str:
        """Return the name of a value in another dtype."""
        return self.add("Cast", name, to=self._element(dtype))

    def extents(self, shape: Sequence[Extent]) -> str:
        """Return the name of a shape as an int64 vector."""
        key = tuple(shape)
        if all(isinstance(e, (int, np.integer)) for e in key):
            return self.constant(np.asarray(key, np.int64))
        if key not in self._shapes:
            one = self.constant(np.array([1], np.int64))
            parts = [
                self.add("Reshape", self.extent(e), one)
                if isinstance(e, Dim)
                else self.constant(np.array([e], np.int64))
                for e in key
            ]
            self._shapes[key] = self.add("Concat", *parts, axis=0)
        return self._shapes[key]

    def extent(self, extent: Extent) -> str:
        """Return the name of an extent as an int64 scalar, computed from the inputs' shapes."""
        if not isinstance(extent, Dim):
            return self.constant(np.int64(extent))
        text = str(extent)
        if text not in self._extents:
            # The text of an extent is the expression that it stands for, in Python's own syntax.
            parsed = ast.parse(text.replace("?", _ANONYMOUS), mode="eval")
            self._extents[text] = self._counted(parsed.body)
        return self._extents[text]

    def _counted(self, part: ast.expr) -> str:
        """Return the name of a part of an extent's expression."""
        match part:
            case ast.Constant(value=int(number)):
                return self.constant(np.int64(number))
            case ast.Name(id=name):
                return self._dimension(name.replace(_ANONYMOUS, "?"))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.add("Neg", self._counted(operand))
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
                factors = [self._counted(left)] * power
                result = factors[0]
                for factor in factors[1:]:
                    result = self.add("Mul", result, factor)
                return result
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                x, y = self._counted(left), self._counted(right)
                return self.add("Div", self.add("Sub", x, self.add("Mod", x, y)), y)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
                kind = _ARITHMETIC[type(operator)]
                return self.add(kind, self._counted(left), self._counted(right))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[left, right]):
                return self.add(name.title(), self._counted(left), self._counted(right))
        raise GraphError(message(f"the extent {ast.unparse(part)} has no form in ONNX"))

    def _dimension(self, name: str) -> str:
        if name not in self._extents:
            if name not in self._places:
                raise GraphError(
                    message(
                        f"the size of the dimension {name!r} does not follow from the inputs",
                        need="an input with that dimension as an axis of its own",
                        hint="mg.to_onnx(mg.function([..., x], outputs)), where x has it",
                    )
                )
            node, axis = self._places[name]
            shape = self.add("Shape", self.names[node], start=axis, end=axis + 1)
            empty = self.constant(np.zeros(0, np.int64))
            self._extents[name] = self.add("Reshape", shape, empty)
        return self._extents[name]

    # ------------------------------------------------------------------ graphs inside of operators

    def write(
        self, parameters: Sequence[Node], outputs: Sequence[Node], operands: Sequence[str]
    ) -> list[str]:
        """Write a body whose parameters are operands; return the names of its outputs."""
        self.names.update(zip(parameters, operands, strict=True))
        return [self.node(output) for output in outputs]

    def reversed(self, x: str, axis: int) -> str:
        """Return the name of a value turned around along an axis."""
        back = self.constant(np.array([-1], np.int64))
        first = np.iinfo(np.int64).min + 1  # the end of a slice backwards, up to the first element
        places = [self.constant(np.array([place], np.int64)) for place in (first, axis)]
        return self.add("Slice", x, back, *places, back)

    def graph(
        self, label: str, parameters: Sequence[Type], fill: Callable[[list[str]], Sequence[str]]
    ) -> Any:
        """Return a graph that an operator runs; it sees all names that are written before it.

        label: What its values are called.
        parameters: The types of what the operator hands to it.
        fill: Given the names of these, writes operators and returns the names of the results.
        """
        helper = self.onnx.helper
        saved = self.operators, dict(self.names), dict(self._extents), dict(self._shapes)
        self.operators = []
        names = [self._fresh(label) for _ in parameters]
        for name, type_ in zip(names, parameters, strict=True):
            self.elements[name] = self._element(type_.dtype)
        results = [self.add("Identity", result) for result in fill(names)]
        graph = helper.make_graph(
            self.operators,
            label,
            [
                helper.make_tensor_value_info(
                    name, self.elements[name], [e if isinstance(e, int) else None for e in t.shape]
                )
                for name, t in zip(names, parameters, strict=True)
            ],
            [helper.make_tensor_value_info(name, self.elements[name], None) for name in results],
        )
        self.operators, self.names, self._extents, self._shapes = saved
        return graph

    def run(
        self, operator: str, types: Sequence[Type], *inputs: str, **attributes: Any
    ) -> tuple[str, ...]:
        """Write an operator that runs graphs; its results are of these types."""
        results = self._operator(operator, len(types), *inputs, **attributes)
        for name, type_ in zip(results, types, strict=True):
            self.elements[name] = self._element(type_.dtype)
        return tuple(results)

    def refuse(self, node: Node, reason: str) -> GraphError:
        """Make (not raise) the error for a node that cannot be written."""
        return GraphError(
            message(
                f"{node.op.name} has no form in ONNX here: {reason}\n{describe(node)}",
                hint="export the part that lies before or behind it",
            )
        )


_ELEMENTS = {"float32": "FLOAT", "float64": "DOUBLE"}  # the others have the dtypes' names
_ANONYMOUS = "anonymous_dimension_"
_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul",
}


def _places(inputs: Sequence[Node]) -> dict[str, tuple[Node, int]]:
    """Return for each named dimension an input, and the axis of it that has just that size."""
    places: dict[str, tuple[Node, int]] = {}
    for node in inputs:
        for axis, extent in enumerate(node.shape):
            if isinstance(extent, Dim) and extent.name is not None:
                places.setdefault(extent.name, (node, axis))
    return places


def _symbol(extent: Extent) -> str:
    """Return the name of an extent: a dimension's own, or its expression."""
    names = dims.names(extent)
    text = str(extent)
    for name in names:
        if name.startswith("?"):
            text = text.replace(name, f"dim_{name[1:]}")
    return text
