"""`mg.from_torch`: modules of PyTorch as functions and networks, by `torch.export`."""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import canonical
from ...errors import GraphError, MagmagraphError, MissingLibraryError, message
from ...function import Function
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.scope import scope
from ...model import Model
from ...ops.convert import as_node, cast
from ...ops.leaf import constant, input, variable
from .table import OPERATORS

__all__ = ["from_torch"]

# What torch computes sizes with.
_NUMBERS: Mapping[Any, Callable[..., Any]] = {
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.floordiv: operator.floordiv,
    operator.mod: operator.mod,
    operator.neg: operator.neg,
    operator.pow: operator.pow,
}


@documented
def from_torch(
    module: Any,
    example_inputs: Any,
    *,
    dynamic_shapes: Any = None,
    as_network: bool = False,
    **options: Any,
) -> Function | Model:
    """Return a module of PyTorch as a compiled function, or as a network that trains.

    module (torch.nn.Module or torch.export.ExportedProgram): The module; it is exported in
        evaluation mode: dropout does nothing, batch norms use their running statistics.
    example_inputs (tensor, or tuple of tensors): Inputs that it is traced with:
        `torch.export.export` has the rules.
    dynamic_shapes (optional): Which extents may differ at a call, as `torch.export.export` takes
        them: ``({0: torch.export.Dim("batch")},)``. They are named dimensions.
    as_network (bool, optional): Return a `Model` that is trained by `fit`: its weights are the
        module's parameters.
    **options: Of `mg.function`, or with `as_network` of `mg.Model`.
    returns (Function or Model): The function is called with arrays, and gives what the module
        gives: an array, a list, or a dict. ``f.variables`` has parameters and buffers by their
        names in the module.
    raises GraphError: If the module holds operators that are not known here; the text names all of
        them.
    raises MissingLibraryError: If torch is not installed.

    See Also
    --------
    Model.load_torch : only the weights.
    from_onnx

    >>> import torch                                                 # doctest: +SKIP
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())  # doctest: +SKIP
    >>> f = mg.from_torch(module, torch.zeros(2, 4))                 # doctest: +SKIP
    >>> list(f.variables)                                            # doctest: +SKIP
    ['0.weight', '0.bias']
    """
    torch = _library()
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        if not isinstance(module, torch.nn.Module):
            raise GraphError(
                message(f"from_torch is given a {type(module).__name__}",
                        need="a torch.nn.Module or a torch.export.ExportedProgram")
            )  # fmt: skip
        examples = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (
            example_inputs,
        )
        trained = module.training
        module.eval()
        try:
            with _quiet():
                program = torch.export.export(module, examples, dynamic_shapes=dynamic_shapes)
        finally:
            module.train(trained)
    with torch.no_grad(), _quiet():
        table = torch.export.default_decompositions()
        # Whole attention has a row; torch's own form for the CPU has strides that views refuse.
        table.pop(torch.ops.aten.scaled_dot_product_attention.default, None)
        program = program.run_decompositions(table)
    made = _Importer(torch, program, as_network, dynamic_shapes)
    inputs, outputs = made.build()
    if not as_network:
        return Function(inputs, outputs, **options)
    flat = [outputs] if isinstance(outputs, Node) else outputs
    if not isinstance(flat, list) or not all(isinstance(output, Node) for output in flat):
        raise GraphError(message("the module gives a nested structure", need="tensors"))
    return Model(inputs, flat[0] if len(flat) == 1 else flat, **options)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what torch says to its own developers while it exports."""
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)
        warnings.filterwarnings("ignore", "The tensor attributes? ", UserWarning)
        yield


def _library() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingLibraryError(
            message("torch is not installed", hint="pip install torch")
        ) from error
    return torch


class _Importer:
    """Nodes for one exported program."""

    def __init__(
        self, torch: Any, program: Any, as_network: bool, dynamic_shapes: Any = None
    ) -> None:
        self.torch = torch
        self.program = program
        self.as_network = as_network
        self.values: dict[Any, Any] = {}
        self.dynamic_shapes = dynamic_shapes
        self.names: dict[str, str] = {}  # of torch's symbols, those that the caller gave

    def build(self) -> tuple[list[Node], Any]:
        """Return the inputs, and the outputs in the module's structure."""
        graph = self.program.graph_module.graph
        self._check(graph)
        inputs = self._placeholders(graph)
        for node in graph.nodes:
            if node.op == "call_function":
                self.values[node] = self._called(node)
            elif node.op == "output":
                # New values of buffers come first: an evaluation has none that is used.
                count = len(self.program.graph_signature.user_outputs)
                flat = [self._read(value) for value in node.args[0]][-count:]
        spec = self.program.call_spec.out_spec
        structured = self.torch.utils._pytree.tree_unflatten(flat, spec)
        return inputs, _plain(structured, flat)

    def _placeholders(self, graph: Any) -> list[Node]:
        """Make inputs, variables and constants."""
        signature = self.program.graph_signature
        places = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **getattr(signature, "inputs_to_lifted_tensor_constants", {}),
        }
        tensors = {**dict(self.program.named_parameters()), **dict(self.program.named_buffers())}
        tensors.update(self.program.constants)
        inputs = []
        self._name_dims(graph)
        for node in graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in places:
                name = places[node.name]
                array = _array(tensors[name])
                trains = node.name in signature.inputs_to_parameters
                varies = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
                buffer = node.name in signature.inputs_to_buffers and array.ndim > 0
                if varies and (trains or (buffer and not self.as_network)):
                    self.values[node] = variable(name, init=array)
                else:
                    self.values[node] = constant(array)
                continue
            value = node.meta.get("val")
            if not isinstance(value, self.torch.Tensor):
                self.values[node] = value
                continue
            shape = tuple(self._extent(e) for e in value.shape)
            self.values[node] = input(node.name, shape, self._dtype(value.dtype))
            inputs.append(self.values[node])
        return inputs

    def _name_dims(self, graph: Any) -> None:
        """Learn how the caller calls the extents that torch has symbols for."""
        named = self.dynamic_shapes
        if isinstance(named, Mapping):
            named = list(named.values())
        users = set(self.program.graph_signature.user_inputs)
        fed = [n for n in graph.nodes if n.op == "placeholder" and n.name in users]
        values = [node.meta.get("val") for node in fed]
        for value, spec in zip(values, named or (), strict=False):
            axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec or ())
            for axis, dim in axes:
                name = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
                if isinstance(name, str) and name.isidentifier():
                    self.names[str(value.shape[axis])] = name

    def _extent(self, extent: Any) -> Any:
        """Return an extent: a number, or the named dimension of a symbol."""
        if isinstance(extent, int):
            return extent
        name = self.names.get(str(extent), str(extent))
        return Dim(name) if name.isidentifier() else None

    def _dtype(self, dtype: Any) -> np.dtype:
        return canonical(str(dtype).removeprefix("torch."))

    def _read(self, value: Any) -> Any:
        """Return an argument: nodes for those of torch's graph."""
        if isinstance(value, self.torch.fx.Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self._read(member) for member in value]
        if isinstance(value, Mapping):
            return {key: self._read(member) for key, member in value.items()}
        return value

    def _called(self, node: Any) -> Any:
        """Return the result of an operator."""
        target = node.target
        if target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]
        args = [self._read(value) for value in node.args]
        kwargs = {key: self._read(value) for key, value in node.kwargs.items()}
        if target in _NUMBERS:
            return _NUMBERS[target](*args)
        name = _name(target)
        if name.startswith("_assert") or name.startswith("sym_constrain"):
            return None
        named = {a.name: a for a in target._schema.arguments}
        dropped = {"layout", "device", "pin_memory", "memory_format", "non_blocking", "dtype"}
        kwargs = {k: v for k, v in kwargs.items() if k in named and k not in dropped}
        try:
            with scope(node.name):
                result = OPERATORS[name](*args, **_renamed(name, kwargs))
        except MagmagraphError as error:
            raise GraphError(message(f"{target} '{node.name}': {error}")) from error
        expected = node.meta.get("val")
        if isinstance(expected, (list, tuple)):
            return tuple(map(self._typed, result, expected))
        return self._typed(result, expected)

    def _typed(self, result: Any, expected: Any) -> Any:
        """Return a result in the dtype that torch says."""
        if result is None or not isinstance(expected, self.torch.Tensor):
            return result
        node, dtype = as_node(result), self._dtype(expected.dtype)
        return node if node.dtype == dtype else cast(node, dtype)

    def _check(self, graph: Any) -> None:
        """Raise for all operators at once that are not known here."""
        missing: dict[str, list[str]] = {}
        for node in graph.nodes:
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            name = _name(node.target)
            supported = name in OPERATORS or node.target in _NUMBERS
            if not supported and not name.startswith(("_assert", "sym_constrain")):
                missing.setdefault(str(node.target), []).append(node.name)
        if missing:
            lines = [f"\n{target}: {', '.join(names)}" for target, names in missing.items()]
            raise GraphError(
                message(
                    f"the module holds {len(missing)} operators that are not supported:"
                    f"{''.join(lines)}",
                    need="core operators of ATen that magmagraph/interchange/torch/table.py has",
                    hint="torch.onnx.export, and mg.from_onnx",
                )
            )


def _name(target: Any) -> str:
    """Return the name of an operator without its overload."""
    schema = getattr(target, "_schema", None)
    name: str = getattr(target, "__name__", str(target)) if schema is None else schema.name
    return name.rpartition("::")[2]


# Names of torch's arguments that a row calls otherwise, where torch gives them by name.
_ARGUMENTS = {
    "is_causal": "causal", "attn_mask": "mask", "dropout_p": "dropout", "min": "low",
    "max": "high",
}  # fmt: skip


def _renamed(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return dict(kwargs)
    return {_ARGUMENTS.get(key, key): value for key, value in kwargs.items()}


def _array(tensor: Any) -> np.ndarray:
    """Return a tensor as an array; bfloat16 keeps its dtype."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        return np.asarray(tensor.float().numpy(), canonical("bfloat16"))
    return np.array(tensor.numpy())


def _plain(value: Any, flat: Sequence[Any]) -> Any:
    """Return outputs as lists and dicts; of other classes, the flat list."""
    if isinstance(value, Node) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(member, flat) for member in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(member, flat) for key, member in value.items()}
    return list(flat)
