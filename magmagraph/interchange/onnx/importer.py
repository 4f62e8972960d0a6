"""`mg.from_onnx`: models that others have made, as functions and networks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from ...dtypes import canonical, is_float
from ...errors import BroadcastWarning, MagmagraphError, OnnxError, OnnxRuleError, message
from ...function import Function
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node, topological
from ...ir.nesting import leaves
from ...ir.op import Kind
from ...ir.scope import scope
from ...ir.types import FilePath, Shape
from ...model import Model
from ...ops.leaf import input, variable
from .fault import fault_of, fault_of_model
from .files import (
    DEEPEST,
    array_of,
    attribute_of,
    converted,
    dtype_of,
    element_of,
    library,
    read_model,
)
from .narrow import narrow_array, narrow_name
from .operator import Operator, Value
from .table import OPERATORS, STATISTICS
from .values import Known

__all__ = ["from_onnx"]

OLDEST, NEWEST = 13, 28  # opsets: operators of others are taken where their meaning is the same
_MOST_OPERATORS = 200_000  # applied, those of functions and loops counted each time
_SHOWN = 20  # nodes that an error names


@overload
def from_onnx(
    model: FilePath | bytes | Any,
    trainable: bool | Iterable[str] = False,
    *,
    as_network: Literal[False] = False,
    values: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Function: ...


@overload
def from_onnx(
    model: FilePath | bytes | Any,
    trainable: bool | Iterable[str] = False,
    *,
    as_network: Literal[True],
    values: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Model: ...


@documented
def from_onnx(
    model: FilePath | bytes | Any,
    trainable: bool | Iterable[str] = False,
    *,
    as_network: bool = False,
    values: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Function | Model:
    """Return an ONNX model as a compiled function, or as a network that trains.

    model (path, bytes or onnx.ModelProto): The model, of opset 13 to 28. Of an older one, operators
        that have changed since are converted by onnx's own converter.
    trainable (bool or iterable of str, optional): Which initializers are variables. False: all of
        float dtype that have axes. True: those that training may change, which leaves out running
        statistics. Or their names. The others are constants.
    as_network (bool, optional): Return a `Model` that is trained by `fit`; `trainable` is then True
        unless given.
    values (mapping of str to array, optional): Inputs that get their value here, as they decide
        shapes; they are no inputs of the result.
    shapes (mapping of str to shape, optional): Shapes of inputs instead of the model's: ints and
        names of dimensions.
    **options: Of `mg.function`, or with `as_network` of `mg.Model` (``loss=``, ``optimizer=``,
        ...).
    returns (Function or Model): The function is called with arrays in the order of the model's
        inputs, or by their names: ``f(name=array)``, ``f({name: array})``. It gives a list of the
        results in the model's order; ``f.variables`` has its variables by the initializers' names.
        Symbolic sizes of the model are named dimensions.
    raises OnnxError: If the model is damaged, holds operators that are not known here (the text
        names all of them), or a shape depends on what is fed.
    raises MissingFileError: If there is no such file.
    raises MissingLibraryError: If the package ``onnx`` is not installed.

    See Also
    --------
    to_onnx

    Notes
    -----
    docs/onnx.md lists the operators. Operators that ONNX defines by others, and functions in the
    model, are replaced by their definitions. Element types of fewer than 8 bits are carried in
    int8 and uint8, floats of fewer than 16 bits in float32, rounded to their values. A model is
    data: nothing in it is run before the function is called. Tensors in files are read from the
    model's folder alone.

    >>> x = mg.input("x", shape=("batch", 3))
    >>> model = mg.to_onnx(mg.tanh(x) * mg.var("w", init=[1.0, 2.0, 3.0]))  # doctest: +SKIP
    >>> f = mg.from_onnx(model)                                             # doctest: +SKIP
    >>> f.variables                                                         # doctest: +SKIP
    {'w': <variable 'w' float32[3]>}
    """
    proto, label = read_model(model)
    if as_network and trainable is False:
        trainable = True
    try:
        with warnings.catch_warnings():
            # Rows and columns of one dimension make all pairs in ONNX, too.
            warnings.simplefilter("ignore", BroadcastWarning)
            made = _Importer(proto, label, trainable, values or {}, shapes or {})
            if made.has_older_operators:
                proto = converted(proto, OLDEST)
                made = _Importer(proto, label, trainable, values or {}, shapes or {})
            inputs, outputs = made.build()
            name = _identifier(proto.graph.name)
    except MagmagraphError:
        raise
    except Exception as error:  # what a damaged model makes us raise depends on the damage
        fault = fault_of_model(library(), proto)
        if fault is not None:
            raise OnnxError(message(f"{label} is damaged: {fault}")) from error
        raise OnnxRuleError(
            message(
                f"{label} could not be read: {type(error).__name__}: {error}",
                need="a network: onnx's own checks accept the model, so this is a mistake of "
                "magmagraph",
                hint="report it with this text, please",
            )
        ) from error
    if not as_network:
        options.setdefault("name", name or None)
        return Function(inputs, outputs, **options)
    if not all(isinstance(output, Node) for output in outputs):
        raise OnnxError(message(f"{label} has sequences as outputs", need="tensors of a network"))
    return Model(inputs, outputs[0] if len(outputs) == 1 else outputs, **options)


def _identifier(name: str) -> str:
    """Return a name of a dimension as an identifier."""
    text = re.sub(r"\W", "_", name)
    return "_" + text if text[:1].isdigit() else text


class _Graph:
    """A graph inside of an operator, with the names that it sees."""

    def __init__(self, importer: _Importer, graph: Any, names: dict[str, Value]) -> None:
        self.importer = importer
        self.graph = graph
        self.names = names
        self.inputs = len(graph.input)
        self.outputs = len(graph.output)

    def __call__(self, *values: Value) -> list[Value]:
        if len(values) != self.inputs:
            raise OnnxError(
                message(
                    f"the graph {self.graph.name!r} has {self.inputs} inputs, and gets "
                    f"{len(values)}"
                )
            )
        names = dict(self.names)
        names.update(zip((i.name for i in self.graph.input), values, strict=True))
        return self.importer.graph(self.graph, names)


class _Importer:
    """Nodes for one model: what `operator.Builder` describes."""

    def __init__(
        self,
        model: Any,
        label: str,
        trainable: bool | Iterable[str],
        values: Mapping[str, Any],
        shapes: Mapping[str, Any],
    ) -> None:
        self.onnx = library()
        self.model = model
        self.label = label
        self.trainable = trainable if isinstance(trainable, bool) else set(trainable)
        self.values = dict(values)
        self.shapes = dict(shapes)
        self.known = Known()
        self._carried: dict[Node, int] = {}
        self._count = 0
        self._depth = 0
        self._opsets = self._versions(model)
        self.functions = {
            (f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions
        }

    def _versions(self, holder: Any) -> dict[str, int]:
        versions = {_domain(entry.domain): int(entry.version) for entry in holder.opset_import}
        newest = min(NEWEST, self.onnx.defs.onnx_opset_version())
        if not 1 <= versions.get("", OLDEST) <= newest:
            raise OnnxError(
                message(
                    f"{self.label} is of opset {versions['']}",
                    need=f"{OLDEST} to {newest}",
                    hint="onnx.version_converter.convert_version(model, 21)",
                )
            )
        return versions

    # ------------------------------------------------------------------ the whole

    def build(self) -> tuple[list[Node], list[Value]]:
        """Return the inputs, and the outputs: nodes, or lists of them."""
        graph = self.model.graph
        self._check()
        initializers = self._initializers(graph)
        self._check_names([v.name for v in graph.input], "values", self.values)
        self._check_names([v.name for v in graph.input], "shapes", self.shapes)
        names: dict[str, Value] = {}
        inputs = []
        for declared in graph.input:
            if declared.name in initializers:
                continue
            value = self._input(declared)
            if isinstance(value, Node) and value.op.kind is Kind.LEAF and "key" in value.attrs:
                inputs.append(value)
            names[declared.name] = value
        names.update(initializers)
        outputs = self.graph(graph, names)
        for declared, output in zip(graph.output, outputs, strict=True):
            nodes = [node for _, node in leaves(output, "")] if isinstance(output, list) else output
            parts = nodes if isinstance(nodes, list) else [nodes]
            if not all(isinstance(part, Node) for part in parts):
                raise OnnxError(
                    message(
                        f"the output {declared.name!r} of {self.label} is not made of numbers",
                        need="a tensor of numbers, or a sequence of them",
                    )
                )
        return inputs, outputs

    def _check_names(self, known: Sequence[str], option: str, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in known:
                raise OnnxError(
                    message(
                        f"{option}= names {name!r}, which is no input of {self.label}",
                        need=f"one of {', '.join(map(repr, known))}",
                    )
                )

    def _initializers(self, graph: Any) -> dict[str, Value]:
        """Return the initializers of a graph: variables and constants."""
        by_name: dict[str, Value] = {}
        outer = graph is self.model.graph
        statistics = self._statistics() if outer and self.trainable is True else set()
        if outer and isinstance(self.trainable, set):
            self._check_names([t.name for t in graph.initializer], "trainable",
                              dict.fromkeys(self.trainable))
        for tensor in graph.initializer:
            array = array_of(tensor)
            if isinstance(self.trainable, set):
                varies = tensor.name in self.trainable
            else:
                varies = array.ndim > 0 and tensor.name not in statistics
            dtype = dtype_of(tensor.data_type)
            if outer and varies and dtype is not None and is_float(dtype):
                node = variable(tensor.name, init=np.asarray(array, dtype))
                self.known.state(node, np.asarray(array, dtype))
                by_name[tensor.name] = node
            else:
                by_name[tensor.name] = self.tensor(array, tensor.data_type)
        for sparse in graph.sparse_initializer:
            by_name[sparse.values.name] = self._sparse(sparse)
        return by_name

    def _sparse(self, sparse: Any) -> Value:
        values, indices = array_of(sparse.values), array_of(sparse.indices)
        if any(extent < 0 for extent in sparse.dims) or np.prod(sparse.dims, dtype=float) > 1 << 26:
            raise OnnxError(message(f"a sparse tensor has the shape {tuple(sparse.dims)}"))
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        places = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)
        dense[places] = values
        return self.tensor(dense, sparse.values.data_type)

    def _statistics(self) -> set[str]:
        """Return the names that operators read as running statistics, which no training changes."""
        return {
            name
            for node in self.model.graph.node
            for name in [node.input[i] for i in STATISTICS.get(node.op_type, ())
                         if i < len(node.input)]
        }

    def tensor(self, array: np.ndarray, element: int) -> Value:
        """Return an array of an element type as a value."""
        if array.dtype.kind in "OSU":
            return np.asarray(array, object)  # strings
        dtype = dtype_of(element)
        if dtype is not None:
            return self.known.add(np.asarray(array, dtype))
        if narrow_name(element) is None:
            raise OnnxError(message(f"a tensor of {self.label} is {element_of(element)}"))
        return self.carry(self.known.add(narrow_array(array, element)), element)

    def array(self, array: np.ndarray) -> Value:
        """Return an array of one of ONNX's dtypes as a value."""
        if array.dtype.kind in "OSU":
            return self.tensor(array, int(self.onnx.TensorProto.STRING))
        return self.tensor(array, int(self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype)))

    def _input(self, declared: Any) -> Value:
        """Return the value of an input of the model."""
        kind = declared.type.WhichOneof("value")
        if declared.name in self.values:
            return self._given(declared, self.values[declared.name])
        if kind != "tensor_type":
            what = {"sequence_type": "a sequence", "optional_type": "an optional value"}
            error = OnnxError(
                message(
                    f"the input {declared.name!r} of {self.label} is "
                    f"{what.get(kind, 'of no type that is known here')}",
                    need="a tensor: a call could bring any number of them",
                    hint=f"mg.from_onnx(..., values={{{declared.name!r}: [array, array]}})",
                )
            )
            error.inputs = (declared.name,) if kind in what else ()
            raise error
        tensor = declared.type.tensor_type
        shape = self._shape(declared.name, tensor)
        dtype = dtype_of(tensor.elem_type)
        narrow = narrow_name(tensor.elem_type)
        if dtype is None and narrow is None:
            raise OnnxError(
                message(
                    f"the input {declared.name!r} of {self.label} is "
                    f"{element_of(tensor.elem_type)}",
                    need="numbers",
                )
            )
        node = input(declared.name, shape, canonical(narrow) if dtype is None else dtype)
        return node if dtype is not None else self.carry(node, tensor.elem_type)

    def _shape(self, name: str, tensor: Any) -> Shape:
        if name in self.shapes:
            return dims.parse_shape(self.shapes[name])
        if not tensor.HasField("shape"):
            raise OnnxError(
                message(
                    f"the input {name!r} of {self.label} has no declared shape",
                    hint=f"mg.from_onnx(..., shapes={{{name!r}: ('batch', 3)}})",
                )
            )
        if len(tensor.shape.dim) > 64:
            raise OnnxError(message(f"the input {name!r} has {len(tensor.shape.dim)} axes"))
        entries: list[Any] = []
        for dim in tensor.shape.dim:
            if dim.WhichOneof("value") == "dim_value":
                entries.append(int(dim.dim_value) if dim.dim_value >= 0 else None)
            else:
                entries.append(_identifier(dim.dim_param) or None)
        return dims.parse_shape(tuple(entries))

    def _given(self, declared: Any, value: Any) -> Value:
        """Return a value that is given in the place of an input."""
        if value is None:
            return None
        if isinstance(value, (list, tuple)) and declared.type.WhichOneof("value") != "tensor_type":
            return [self._given(declared, member) for member in value]
        array = np.asarray(value)
        type_ = declared.type
        while type_.WhichOneof("value") in ("sequence_type", "optional_type"):
            type_ = getattr(type_, type_.WhichOneof("value")).elem_type
        element = type_.tensor_type.elem_type
        return self.tensor(array, element)

    # ------------------------------------------------------------------ graphs

    def graph(self, graph: Any, names: dict[str, Value]) -> list[Value]:
        """Return the outputs of a graph; `names` are the values of its inputs, and outer ones."""
        if graph is not self.model.graph:
            names.update(self._initializers(graph))
        self._depth += 1
        try:
            if self._depth > DEEPEST:
                raise OnnxError(
                    message(f"{self.label}: graphs are nested deeper than {DEEPEST} levels")
                )
            for node in graph.node:
                self._apply(node, names, self._opsets)
            return [self._value(names, output.name, "an output") for output in graph.output]
        finally:
            self._depth -= 1

    def _value(self, names: Mapping[str, Value], name: str, what: str) -> Value:
        if name not in names:
            raise OnnxError(
                message(
                    f"{self.label}: {what} is {name!r}, which no operator before it makes",
                    need="operators in the order in which they compute",
                )
            )
        return names[name]

    def _apply(self, node: Any, names: dict[str, Value], opsets: Mapping[str, int]) -> None:
        """Add the results of an operator to the names."""
        self._count += 1
        if self._count > _MOST_OPERATORS:
            raise OnnxError(
                message(f"{self.label} applies more than {_MOST_OPERATORS} operators")
            )
        domain, name = _domain(node.domain), node.name or (node.output[0] if node.output else "")
        values = [
            self._value(names, operand, f"an operand of {node.op_type} {name!r}")
            if operand
            else None
            for operand in node.input
        ]
        attributes = {a.name: attribute_of(a) for a in node.attribute if not a.ref_attr_name}
        function = self.functions.get((node.domain, node.op_type, getattr(node, "overload", "")))
        results: Sequence[Value]
        if function is not None:
            results = self._function(function, values, attributes, node.output)
        else:
            results = self._operator(node, domain, name, values, attributes, names, opsets)
        if len(results) < len([output for output in node.output if output]):
            raise OnnxError(
                message(
                    f"{node.op_type} {name!r} has {len(node.output)} results, of which "
                    f"{len(results)} can be computed"
                )
            )
        names.update({k: v for k, v in zip(node.output, results, strict=False) if k})

    def _operator(
        self,
        node: Any,
        domain: str,
        name: str,
        values: list[Value],
        attributes: dict[str, Any],
        names: dict[str, Value],
        opsets: Mapping[str, int],
    ) -> Sequence[Value]:
        schema = self._schema(node.op_type, domain, opsets)
        rule = OPERATORS.get((domain, node.op_type))
        if rule is None or schema is None:
            return self._definition(node, schema, values, attributes, name, opsets)
        operator = Operator(
            self, node.op_type, name, schema.since_version, values, len(node.output), attributes,
            lambda graph: _Graph(self, graph, names),
        )
        try:
            with scope(name.strip("/").replace("/", ".") or node.op_type):
                results = rule(operator)
        except OnnxError:
            raise
        except MagmagraphError as error:
            raise OnnxError(
                message(f"{self.label}: {node.op_type} {name!r}: {error}")
            ) from error
        except Exception as error:
            raise self._failed(node, name, schema, values, opsets, error) from error
        return results if isinstance(results, tuple) else (results,)

    def _failed(
        self,
        node: Any,
        name: str,
        schema: Any,
        values: list[Value],
        opsets: Mapping[str, int],
        error: Exception,
    ) -> OnnxError:
        """Return the error for a rule that raised one of Python's: of the model, or of ours."""
        if isinstance(error, MemoryError):
            what = f"{node.op_type} {name!r} takes too much memory"
            return OnnxError(message(f"{self.label}: {what}"))
        known = [self.known.of(value) if isinstance(value, Node) else None for value in values]
        types = [self._type(value) for value in values]
        fault = fault_of(self.onnx, node, schema, opsets, types, known)
        if fault is not None:
            return OnnxError(
                message(
                    f"{self.label}: {node.op_type} {name!r} has operands or attributes that it "
                    f"does not take: {fault}"
                )
            )
        given = ", ".join(repr(v.type) if isinstance(v, Node) else type(v).__name__ for v in values)
        return OnnxRuleError(
            message(
                f"{self.label}: the rule for {node.op_type} {name!r} failed: "
                f"{type(error).__name__}: {error}",
                need=f"a result for the operands {given}: onnx's own checks accept the operator, "
                "so this is a mistake of magmagraph",
                hint="report it with this text, please",
            )
        )

    def _schema(self, type: str, domain: str, opsets: Mapping[str, int]) -> Any:
        if domain not in opsets:
            return None
        try:
            return self.onnx.defs.get_schema(type, opsets[domain], domain)
        except self.onnx.defs.SchemaError:
            return None

    # ------------------------------------------------------------------ functions

    def _function(
        self, function: Any, values: list[Value], attributes: dict[str, Any], wanted: Sequence[str]
    ) -> list[Value]:
        """Return the results of a function of the model, or of an operator's definition.

        Those for which `wanted` has no name need not be there.
        """
        names: dict[str, Value] = dict(zip(function.input, values, strict=False))
        names.update(dict.fromkeys(function.input[len(values) :]))
        bound = {a.name: attribute_of(a) for a in getattr(function, "attribute_proto", ())}
        bound.update(attributes)
        opsets = {**self._opsets, **self._versions(function)}
        self._depth += 1
        try:
            if self._depth > DEEPEST:
                raise OnnxError(
                    message(f"{self.label}: functions are nested deeper than {DEEPEST} levels")
                )
            for node in function.node:
                self._apply(_bound(self.onnx, node, bound), names, opsets)
            return [
                self._value(names, output, "a result") if name else None
                for name, output in zip(wanted, function.output, strict=False)
            ]
        finally:
            self._depth -= 1

    def _definition(
        self,
        node: Any,
        schema: Any,
        values: list[Value],
        attributes: dict[str, Any],
        name: str,
        opsets: Mapping[str, int],
    ) -> list[Value]:
        """Return the results of an operator by those that ONNX defines it by."""
        if schema is None:
            raise self._unsupported([(node.op_type, name, "no such operator is known")])
        attributes = {**_defaults(schema), **attributes}
        if schema.has_context_dependent_function:
            types = [self._type(value) for value in values]
            content = schema.get_context_dependent_function_with_opset_version(
                opsets[_domain(node.domain)], node.SerializeToString(), types
            )
        elif schema.has_function:
            content = schema.get_function_with_opset_version(opsets[_domain(node.domain)])
        else:
            raise self._unsupported([(node.op_type, name, "")])
        if not isinstance(content, bytes):
            content = content.SerializeToString()
        function = self.onnx.FunctionProto()
        function.ParseFromString(content)
        if not function.node:
            raise self._unsupported([(node.op_type, name, "its definition is not known")])
        return self._function(function, values, attributes, node.output)

    def _type(self, value: Value) -> bytes:
        """Return the type of a value, as definitions ask for it."""
        helper = self.onnx.helper
        if isinstance(value, list):
            inner = self.onnx.TypeProto()
            inner.ParseFromString(self._type(value[0] if value else None))
            return bytes(helper.make_sequence_type_proto(inner).SerializeToString())
        if not isinstance(value, Node):
            return bytes(self.onnx.TypeProto().SerializeToString())
        element = self.element(value)
        shape = [extent if isinstance(extent, int) else None for extent in value.shape]
        return bytes(helper.make_tensor_type_proto(element, shape).SerializeToString())

    # ------------------------------------------------------------------ what is supported

    @property
    def has_older_operators(self) -> bool:
        """Whether the model is of an older opset, and has operators whose meaning changed."""
        return self._opsets.get("", OLDEST) < OLDEST and bool(self._missing())

    def _check(self) -> None:
        """Raise for all operators at once that are not known here."""
        missing = self._missing()
        if missing:
            raise self._unsupported(missing)

    def _missing(self) -> list[tuple[str, str, str]]:
        """Return the operators that are not known here: type, name and the reason."""
        missing: list[tuple[str, str, str]] = []
        places: list[tuple[Any, Mapping[str, int], int]] = [(self.model.graph, self._opsets, 0)]
        for function in self.model.functions:
            places.append((function, {**self._opsets, **self._versions(function)}, 0))
        while places:
            place, opsets, depth = places.pop()
            if depth > DEEPEST:
                raise OnnxError(
                    message(f"{self.label}: graphs are nested deeper than {DEEPEST} levels")
                )
            for node in place.node:
                reason = self._reason(node, opsets)
                if reason is not None:
                    name = node.name or (node.output[0] if node.output else "")
                    missing.append((node.op_type, name, reason))
                for attribute in node.attribute:
                    graphs = [attribute.g] if attribute.HasField("g") else []
                    places += [(g, opsets, depth + 1) for g in (*graphs, *attribute.graphs)]
        return missing

    def _reason(self, node: Any, opsets: Mapping[str, int]) -> str | None:
        """Return why an operator is not supported; None where it is."""
        domain = _domain(node.domain)
        if (node.domain, node.op_type, getattr(node, "overload", "")) in self.functions:
            return None
        schema = self._schema(node.op_type, domain, opsets)
        if schema is None:
            return f"no such operator in {domain or 'ai.onnx'} {opsets.get(domain, '')}".strip()
        if (domain, node.op_type) not in OPERATORS:
            defined = schema.has_function or schema.has_context_dependent_function
            return None if defined else ""
        if domain == "":
            first = self._schema(node.op_type, domain, {"": OLDEST})
            if first is not None and schema.since_version < first.since_version:
                return f"of opset {opsets['']}, from before opset {OLDEST}"
        return None

    def _unsupported(self, missing: Sequence[tuple[str, str, str]]) -> OnnxError:
        by_type: dict[str, list[str]] = {}
        for type_, name, reason in missing:
            by_type.setdefault(f"{type_} ({reason})" if reason else type_, []).append(name)
        lines = []
        for type_, names in by_type.items():
            shown = ", ".join(map(repr, names[:_SHOWN]))
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines.append(f"\n{type_}: {shown}{more}")
        several = len(by_type) > 1
        error = OnnxError(
            message(
                f"{self.label} holds {len(by_type)} operator{'s' if several else ''} that "
                f"{'are' if several else 'is'} not supported:{''.join(lines)}",
                need="operators that docs/onnx.md lists",
            )
        )
        error.operators = tuple(dict.fromkeys(type_ for type_, _, _ in missing))
        return error

    # ------------------------------------------------------------------ what rules ask for

    def unknown(self, node: Node) -> tuple[list[str], str]:
        """Return the inputs that a value depends on, and words for what makes it unknown."""
        names: dict[str, None] = {}
        leaf = False
        for each in topological([node], stop=lambda n: self.known.of(n) is not None):
            if "key" in each.attrs and self.known.of(each) is None:
                if any(each.name == given.name for given in self.model.graph.input):
                    names[str(each.name)] = None
                else:
                    leaf = True
        if leaf:
            return [], "what a loop computes"
        if not names:
            return [], "what is computed at a call"
        several = len(names) > 1
        return list(names), f"the input{'s' if several else ''} {', '.join(map(repr, names))}"

    def carry(self, node: Node, element: int) -> Node:
        """Say that a node carries values of an element type that has no dtype here."""
        self._carried[node] = element
        return node

    def carried(self, node: Node) -> int | None:
        """Return the element type that a node carries, where it has no dtype here."""
        return self._carried.get(node)

    def element(self, node: Node) -> int:
        """Return the element type of a node."""
        carried = self._carried.get(node)
        if carried is not None:
            return carried
        name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(node.dtype.name)
        return int(getattr(self.onnx.TensorProto, name or node.dtype.name.upper()))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _defaults(schema: Any) -> dict[str, Any]:
    """Return the default values of an operator's attributes."""
    return {
        name: attribute_of(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }


def _bound(onnx: Any, node: Any, values: Mapping[str, Any]) -> Any:
    """Return a node of a function whose attributes refer to those of the call, with their values.

    Graphs inside of it refer to them, too.
    """
    if not _refers(node):
        return node
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    del copied.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = values.get(attribute.ref_attr_name)
            if value is not None:
                if isinstance(value, np.ndarray):
                    value = onnx.numpy_helper.from_array(value)
                copied.attribute.append(
                    onnx.helper.make_attribute(
                        attribute.name, value, attr_type=attribute.type or None
                    )
                )
            continue
        kept = copied.attribute.add()
        kept.CopyFrom(attribute)
        if attribute.HasField("g"):
            inner = [_bound(onnx, each, values) for each in attribute.g.node]
            del kept.g.node[:]
            kept.g.node.extend(inner)
    return copied


def _refers(node: Any) -> bool:
    return any(
        attribute.ref_attr_name
        or (attribute.HasField("g") and any(map(_refers, attribute.g.node)))
        for attribute in node.attribute
    )
