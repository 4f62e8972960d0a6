"""Networks whose matrices are adapted by products of low rank, which alone are trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..autodiff.transforms.rebuild import again, rebuild
from ..errors import ConfigError, DataError, message
from ..ir.graph import Node, topological
from ..ir.types import FilePath
from ..nn.layer import Layer, Weight, count
from ..ops.elementwise.arithmetic import add, multiply
from ..ops.leaf import Variable
from ..ops.products.contraction import MATMUL, matmul
from ..ops.shape.arrange import TRANSPOSE
from . import files, replay
from .torch_weights import Place

__all__ = ["LowRank", "adapted", "matching"]

_KIND = "adapters"
_SHOWN = 8


def matching(paths: Iterable[str], where: Any) -> list[str]:
    """Return the paths in which a regular expression is found, or for which a function is true.

    Raises
    ------
    ConfigError
        None is, or `where` is no pattern.
    """
    paths = list(paths)
    if callable(where):
        matches = [path for path in paths if where(path)]
    else:
        try:
            pattern = re.compile(where)
        except (re.error, TypeError) as error:
            raise ConfigError(
                message(f"where={where!r}: {error}",
                        need="a regular expression, or a function of an attribute path")
            ) from None  # fmt: skip
        matches = [path for path in paths if pattern.search(path)]
    if not matches:
        paths_text = ", ".join(paths[:_SHOWN]) + (", ..." if len(paths) > _SHOWN else "")
        raise ConfigError(
            message(
                f"where={where!r} is in none of {len(paths)} paths", need=f"some of {paths_text}"
            )
        )
    return matches


def _factor(node: Node) -> tuple[Variable, bool] | None:
    """Return the variable that multiplies rows from the right, and whether it is transposed."""
    if node.op is not MATMUL:
        return None
    right, is_transposed = node.inputs[1], False
    if right.op is TRANSPOSE and right.ndim == 2:
        right, is_transposed = right.inputs[0], True
    return (right, is_transposed) if isinstance(right, Variable) and right.ndim == 2 else None


class LowRank(Layer):
    """A network in which products ``x @ W`` are ``x @ W + factor * (x @ down) @ up``.

    It keeps the network's graph, and changes it where a product reads one of the matrices: in
    layers of any kind, and in imported graphs that have none.

    Parameters
    ----------
    net : Model
        The network, whose weights are not trained.
    rank : int
        Columns of each `down`.
    where : str or callable
        Which matrices: a pattern in their attribute paths, or a function of one. None: all that
        nothing but products reads.
    factor : float
        Of the products.
    """

    def __init__(self, net: Any, rank: int, where: Any, factor: float) -> None:
        super().__init__(name="adapted")
        self._net = net
        self.rank, self.factor = count(rank, "lora: rank"), float(factor)
        self._base = net.weights()
        own = net._places()
        self._paths = {place.weight.variable: place.path for place in own}
        #: Layers by their labels, and variables outside of layers.
        self.members: dict[str, Any] = {
            **{net._labels[id(layer)]: layer for layer in net.layers},
            **{place.path: place.weight.variable for place in own if not place.layers},
        }
        self._turned = self._candidates()
        variables = {self._paths[variable]: variable for variable in self._turned}
        if not variables:
            raise ConfigError(
                message("lora of a network without a product of rows with a matrix of weights",
                        need="a layer such as Dense, or an imported network with one")
            )  # fmt: skip

        def is_only_factor(path: str) -> bool:
            return self._is_only_factor(variables[path])

        matches = matching(variables, is_only_factor if where is None else where)
        self._thin: dict[Variable, tuple[Variable, Variable]] = {}
        for path in matches:
            variable = variables[path]
            rows, columns = variable.shape[::-1] if self._turned[variable] else variable.shape
            with self._opened(False):
                self._thin[variable] = (
                    self.weight(f"{_stem(path)}.down", (rows, self.rank), "he_uniform",
                                dtype=variable.dtype, decays=True),
                    self.weight(f"{_stem(path)}.up", (self.rank, columns), "zeros",
                                dtype=variable.dtype, decays=True),
                )  # fmt: skip
        self.built = True

    def _candidates(self) -> dict[Variable, bool]:
        """Return the matrices that products read, and which of them are transposed."""
        factors: dict[Variable, bool] = {}
        self._others: set[Variable] = set()
        for node in topological(self._net.outputs):
            factor = _factor(node)
            if factor is not None:
                factors.setdefault(*factor)
            elif node.op is not TRANSPOSE:
                self._others.update(x for x in node.inputs if isinstance(x, Variable))
        return {
            variable: is_transposed
            for variable, is_transposed in factors.items()
            if variable in self._paths
        }

    def _is_only_factor(self, variable: Variable) -> bool:
        return variable not in self._others

    def weights(self) -> dict[str, Weight]:
        """Return the network's weights, none of which is trained, and those of low rank."""
        base_weights = {name: Weight(w.variable, False, w.decays) for name, w in self._base.items()}
        return {**base_weights, **self._weights}

    def call(self, *inputs: Node, training: bool) -> Any:
        """Return the network's outputs with the adapted products."""
        net = self._net
        outputs = replay.applied(net.outputs, net.inputs, inputs, training=training)

        def renew(node: Node, operands: tuple[Node, ...]) -> Node | None:
            factor = _factor(node)
            if factor is None or factor[0] not in self._thin:
                return None
            down, up = self._thin[factor[0]]
            thin = matmul(matmul(operands[0], down), up)
            return add(again(node, operands), multiply(thin, self.factor))

        adapted = rebuild(outputs, dict(zip(inputs, inputs, strict=True)), renew)
        return adapted[0] if net._single else tuple(adapted)

    def merge(self) -> Any:
        """Add the products to the network's matrices, set each `up` to zero; return the network."""
        for variable, (down, up) in self._thin.items():
            product = down.value.astype(float) @ up.value.astype(float) * self.factor
            product = product.T if self._turned[variable] else product
            variable.value = (variable.value + product).astype(variable.dtype)
            up.value = np.zeros_like(up.value)
        return self._net

    # Files of the adapters alone.

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the values of the adapters by path."""
        return {name: np.array(weight.variable.value) for name, weight in self._weights.items()}

    def set_tensors(self, tensors: Mapping[str, np.ndarray], source: str) -> None:
        """Set the adapters, all or none of them."""
        own = {name: weight.variable for name, weight in self._weights.items()}
        lines = [f"it lacks {name}" for name in own if name not in tensors][:5]
        lines += [f"it has {name}, which is not adapted here" for name in tensors
                  if name not in own][:5]  # fmt: skip
        lines += [
            f"{name} is {tensors[name].dtype.name}{list(tensors[name].shape)} there and "
            f"{own_weight.dtype.name}{list(own_weight.shape)} here"
            for name, own_weight in own.items()
            if name in tensors
            and (tensors[name].shape != own_weight.shape or tensors[name].dtype != own_weight.dtype)
        ][:5]
        if lines:
            raise DataError(
                message("\n".join([f"{source} holds other adapters:", *lines]),
                        need=f"{len(own)} matrices, of a network adapted with the same rank= and "
                        "where=")
            )  # fmt: skip
        for name, own_weight in own.items():
            own_weight.assign(tensors[name])


def _stem(path: str) -> str:
    """Return the path of a matrix without the last part that is only the kind of a weight."""
    stem = re.sub(r"\.(kernel|weight)$", "", path)
    return stem or path


def adapted(model: Any) -> LowRank:
    """Return the layer of an adapted network, or raise for another one."""
    for layer in model.layers:
        if isinstance(layer, LowRank):
            return layer
    raise ConfigError(
        message("the network has no adapters", need="one that net.lora(rank=8) gave",
                hint="tuned = net.lora(rank=8)")
    )  # fmt: skip


class Adapting:
    """How a model is adapted and frozen; mixed into `Model`."""

    inputs: tuple[Node, ...]
    layers: list[Layer]
    loss: Any
    metrics: Any
    regularize: Any
    seed: int
    options: dict[str, Any]
    _frozen: tuple[str, ...]
    _places: Callable[[], list[Place]]

    def lora(
        self,
        rank: int = 8,
        where: Any = None,
        alpha: float | None = None,
        **options: Any,
    ) -> Any:
        r"""Return a network that adapts matrices of this one by products of low rank.

        ``x @ W`` becomes ``x @ W + (alpha / rank) * (x @ down) @ up``; E. Hu et al., "LoRA:
        low-rank adaptation of large language models", ICLR 2022. The new network shares the
        weights of this one, which it does not train, and gives what this one gives until it is
        trained. It works for networks of layers, nested ones too, and for imported ones.

        Parameters
        ----------
        rank : int
            Columns of each `down`, and rows of each `up`.
        where : str or callable, optional
            Which matrices: a regular expression that is found in their attribute paths (those of
            `state_dict`), or a function of a path. All that nothing but products reads unless
            given: not the table of an embedding that also makes the logits.
        alpha : float, optional
            `rank` unless said.
        **options
            Of `Model`: ``optimizer=``, ``metrics=``, ...; those of this network unless given, the
            optimizer excepted, whose memory is of other weights.

        Returns
        -------
        Model

        Raises
        ------
        ConfigError
            There is no such matrix, or `rank` is no positive int.

        See Also
        --------
        merge_lora, save_lora, load_lora, freeze

        Examples
        --------
        >>> import magmagraph as mg
        >>> net = mg.NeuralNetwork(
        ...     [mg.nn.Input((5, 8)), mg.nn.TransformerEncoder(2, 16), mg.nn.Dense(3)], loss="mse")
        >>> tuned = net.lora(rank=2, where=r"attention\.(query|value)\.kernel")
        >>> [held.shape for held in tuned.trainable]
        [(8, 2), (2, 8), (8, 2), (2, 8)]
        """
        self._check_ready()
        scale = 1.0 if alpha is None else float(alpha) / count(rank, "lora: rank")
        layer = LowRank(self, rank, where, scale)
        outputs = layer(*self.inputs)
        same: dict[str, Any] = {
            "loss": self.loss, "metrics": self.metrics, "regularize": self.regularize,
            "seed": self.seed, **self.options,
        }  # fmt: skip
        return self._of_graph(self.inputs, outputs, **{**same, **options})

    def _check_ready(self) -> None:
        """Raise where a network has no graph yet."""

    def _of_graph(self, inputs: Any, outputs: Any, **options: Any) -> Any:
        """Return a model of other inputs and outputs."""
        raise NotImplementedError

    def merge_lora(self) -> Any:
        """Add the products of low rank to the matrices of the network that was adapted; return it.

        The values of both networks stay what they are, up to rounding: each `up` is zero then.

        Raises
        ------
        ConfigError
            The network has no adapters.
        """
        return adapted(self).merge()

    def save_lora(self, path: FilePath) -> None:
        """Write the matrices of low rank alone to a safetensors file, whole or not at all.

        Raises
        ------
        ConfigError
            The network has no adapters.
        """
        layer = adapted(self)
        about = {"kind": _KIND, "rank": layer.rank, "factor": layer.factor}
        files.write(path, layer.tensors(), about)

    def load_lora(self, path: FilePath) -> None:
        """Read the matrices that `save_lora` wrote; the other weights stay as they are.

        Raises
        ------
        ConfigError
            The network has no adapters.
        DataError
            The file is missing, damaged, or holds adapters of other matrices or another factor:
            none is set then.
        """
        layer = adapted(self)
        tensors, about = files.read(path, _KIND)
        factor = about["factor"]
        if factor != layer.factor:
            raise DataError(
                message(f"{str(path)!r} has adapters with the factor {factor}",
                        need=f"{layer.factor:g}, alpha / rank of this network")
            )  # fmt: skip
        layer.set_tensors(tensors, f"{str(path)!r}")

    def freeze(self, where: Any = "") -> list[str]:
        r"""Keep weights from being trained; return their attribute paths.

        Running statistics of batch normalization are not weights that are trained, and follow the
        data as before.

        Parameters
        ----------
        where : str or callable, optional
            A regular expression that is found in attribute paths (those of `state_dict`), or a
            function of a path. All weights unless given.

        Raises
        ------
        ConfigError
            There is no such weight.

        Examples
        --------
        >>> import magmagraph as mg
        >>> net = mg.NeuralNetwork(
        ...     [mg.nn.Input((4,)), mg.nn.Dense(8, "relu"), mg.nn.Dense(3)], loss="mse")
        >>> net.freeze(r"^dense\."), len(net.trainable)
        (['dense.kernel', 'dense.bias'], 2)
        >>> net.unfreeze("bias"), len(net.trainable)
        (['dense.bias'], 3)
        """
        paths_to_freeze = matching((place.path for place in self._places()), where)
        self._frozen = tuple(dict.fromkeys((*self._frozen, *paths_to_freeze)))
        return paths_to_freeze

    def unfreeze(self, where: Any = "") -> list[str]:
        """Let weights that `freeze` keeps be trained again; return their attribute paths.

        Parameters
        ----------
        where : str or callable, optional
            As of `freeze`.

        Raises
        ------
        ConfigError
            No such weight is frozen.
        """
        paths_to_train = matching(self._frozen, where)
        self._frozen = tuple(path for path in self._frozen if path not in paths_to_train)
        return paths_to_train

    def _with_frozen(self, weights: dict[str, Weight]) -> dict[str, Weight]:
        """Return weights by name, those that `freeze` keeps not trained."""
        if not self._frozen:
            return weights
        fixed = {
            place.weight.variable
            for place in self._places_of(weights)
            if place.path in self._frozen
        }
        return {
            name: Weight(w.variable, w.trainable and w.variable not in fixed, w.decays)
            for name, w in weights.items()
        }

    def _places_of(self, weights: dict[str, Weight]) -> list[Place]:
        raise NotImplementedError
