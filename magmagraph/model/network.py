"""Networks of layers one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import ConfigError, DataError, GraphError, message
from ..graph import Node
from ..nn import Input
from ..nn.layer import Layer, Weight, name_layers
from ..ops.random.bits import streams_from
from ..types import FilePath
from .architecture import describe_layer
from .data import as_array, given_inputs
from .model import Model
from .saving import loading, read_model
from .summary import Summary

__all__ = ["NeuralNetwork"]


class NeuralNetwork(Model):
    """A network of layers one after the other.

    Parameters
    ----------
    layers : sequence of Layer
        Of `mg.nn`. The first is an `Input`, which says the shape of an example; without one the
        first data say it.
    **options
        As of `Model`: loss, optimizer, metrics, regularize, seed, device, precision.

    Examples
    --------
    >>> import magmagraph as mg
    >>> net = mg.NeuralNetwork(
    ...     [mg.nn.Input((784,)), mg.nn.Dense(528, activation="sigmoid"), mg.nn.Dense(10)],
    ...     loss="cross_entropy", optimizer=mg.optimizer.SGD(0.05, weight_decay=0.001))
    >>> net.parameters
    419770
    """

    def __init__(self, layers: Sequence[Layer], **options: Any) -> None:
        if isinstance(layers, Layer) or not isinstance(layers, Iterable):
            raise ConfigError(
                message(
                    f"a network is given {type(layers).__name__}",
                    need="a list of layers of mg.nn",
                    hint="[mg.nn.Input(shape), mg.nn.Dense(10)], say",
                )
            )
        self.members = list(layers)
        for member in self.members:
            if not isinstance(member, Layer):
                raise ConfigError(
                    message(
                        f"a network is given {type(member).__name__}", need="layers of mg.nn"
                    )
                )
        if len({id(member) for member in self.members}) != len(self.members):
            raise ConfigError(
                message("a layer stands twice in a network", need="layers of their own",
                        hint="mg.Model, in which a layer may be called twice")
            )
        if all(isinstance(member, Input) for member in self.members):
            raise GraphError(message("a network has no layers", need="a layer beside Input"))
        if any(isinstance(member, Input) for member in self.members[1:]):
            raise ConfigError(
                message("an Input stands behind the first place of a network",
                        need="one Input, the first layer",
                        hint="mg.Model([x1, x2], output) for several inputs")
            )
        name_layers(self.members)
        self._waiting = True
        super().__init__((), (), **options)
        self._single = True
        if self.members and isinstance(self.members[0], Input):
            self._build(self.members[0]())

    def _build(self, x: Node) -> None:
        value = x
        with streams_from(self.seed):
            for member in self.members:
                if not isinstance(member, Input):
                    value = member(value)
        self._waiting = False
        self._set_graph(x, value)

    def _ready(self, x: Any) -> None:
        """Build it for the shape of the first data, where no layer says the shape."""
        if self._waiting:
            first = as_array(given_inputs(x, 1)[0], "the examples")
            if first.ndim < 1 or first.dtype.kind not in "iufb":
                raise DataError(
                    message(f"the examples are {first.dtype}", need="an array of numbers")
                )
            self._build(Input(first.shape[1:])())

    def _check_built(self) -> None:
        if self._waiting:
            raise ConfigError(
                message("the network was not built yet", need="the shape of its input",
                        hint="mg.nn.Input(shape) as the first layer")
            )

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name: ``layer/weight``."""
        self._check_built()
        return super().weights()

    def summary(self, batch_size: int | None = None) -> Summary:
        """Return a table of the layers, as `Model.summary`."""
        self._check_built()
        return super().summary(batch_size)

    def __repr__(self) -> str:
        if self._waiting:
            return f"<{type(self).__name__} of {len(self.members)} layers, not built yet>"
        return super().__repr__()

    def structure(self) -> dict[str, Any]:
        """Return its layers as JSON values."""
        self._check_built()
        members = list(self.members)
        if not isinstance(members[0], Input):
            members.insert(0, Input(self.inputs[0].shape[1:], self.inputs[0].dtype.name))
        return {"layers": [describe_layer(layer) for layer in members]}

    @loading
    def load(
        cls,  # noqa: N805 (a class method, unless it is asked of a model)
        path: FilePath,
        *,
        custom: Mapping[str, type[Layer]] | None = None,
        **options: Any,
    ) -> NeuralNetwork:
        """Return a network from a file that `save` wrote.

        Of a network, ``net.load(path)``, it reads the weights into that one and returns it, as
        `load_weights` does.

        Parameters
        ----------
        path, custom, **options
            As of `Model.load`.

        Returns
        -------
        NeuralNetwork
            With the weights of the file. The optimizer begins anew.

        Raises
        ------
        DataError
            If the file is missing, truncated or damaged, names an unknown layer, or holds a model
            that is no list of layers.

        Examples
        --------
        >>> import magmagraph as mg, tempfile, os
        >>> net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")
        >>> with tempfile.TemporaryDirectory() as place:
        ...     path = os.path.join(place, "net.safetensors")
        ...     net.save(path)
        ...     again = mg.NeuralNetwork.load(path)
        >>> bool((again.predict([[1, 2, 3]]) == net.predict([[1, 2, 3]])).all())
        True
        """
        made = read_model(path, custom, options)
        if not isinstance(made, cls):
            raise DataError(
                message(
                    f"{str(path)!r} holds a model that is no list of layers",
                    hint="mg.Model.load(path)",
                )
            )
        return made
