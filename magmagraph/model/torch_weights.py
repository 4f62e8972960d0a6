"""Weights of PyTorch and Hugging Face in networks, and those of networks in their files.

Weights are matched by attribute path: ``encoder.0.attention.query.kernel`` here is
``encoder.0.attention.query.weight`` there. Matrices and filters are kept the other way around
there: which are transposed follows from the shapes, and is reported.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, DataError, MissingLibraryError, message
from ..files.reading import Damaged, parse_json, read_file, reading
from ..files.writing import write_file
from ..ir.types import FilePath
from ..nn.attention import MultiHeadAttention
from ..nn.basic import Dense
from ..nn.layer import Layer, Weight
from ..nn.recurrent import GRU, LSTM, RNN
from . import files

__all__ = [
    "LoadReport", "Place", "loaded", "places", "read_state", "renamed", "torch_state",
    "write_state",
]  # fmt: skip

Renames = Mapping[str, str | None] | Callable[[str], str | None] | None

# Name here -> the names there, the first of which is written.
_LEAVES: Mapping[str, Sequence[str]] = {
    "kernel": ("weight",),
    "table": ("weight",),
    "scale": ("weight", "gamma"),
    "offset": ("bias", "beta"),
    "mean": ("running_mean",),
    "variance": ("running_var",),
}
_COUNTERS = "num_batches_tracked"  # of torch's batch norms: nothing here reads it
_INDEX = ".safetensors.index.json"
_PICKLES = (".pt", ".pth", ".bin", ".ckpt")
_LARGEST_INDEX = 1 << 24
_SHOWN = 8


@dataclass(frozen=True)
class Place:
    """A weight, its attribute path, and the layers around it, outermost first."""

    path: str
    weight: Weight
    layers: tuple[tuple[str, Layer], ...]

    @property
    def parent(self) -> str:
        """The path of the layer that has it."""
        return self.path.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """Its name in the layer."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class LoadReport:
    """What `load_torch` did.

    Attributes
    ----------
    loaded
        Attribute path of each weight that was set, and the tensors that it was made of.
    transposed
        Paths of those that were transposed.
    missing
        Paths of weights for which there was no tensor; they keep their values.
    unexpected
        Tensors that nothing was made of.
    """

    loaded: dict[str, tuple[str, ...]] = field(default_factory=dict)
    transposed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} weights loaded, {len(self.transposed)} of them transposed"]
        for what in ("transposed", "missing", "unexpected"):
            names = getattr(self, what)
            if names:
                lines.append(f"{what}: {_listed(names)}")
        return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# Attribute paths.


def places(layers: Sequence[tuple[str, Layer]], loose: Mapping[str, Weight]) -> list[Place]:
    """Return the weights of layers by attribute path, then those outside of layers.

    Parameters
    ----------
    layers
        The layers of a model with their labels. A model of one layer needs no label.
    loose
        Weights outside of layers, by name.
    """
    holders = [(label, layer) for label, layer in layers if layer.weights()]
    all_places: list[Place] = []
    visited: set[Any] = set()
    for label, layer in holders:
        weights = {weight.variable: weight for weight in layer.weights().values()}
        path = "" if len(holders) == 1 and not loose else label
        for at, variable, around in layer._placed(path):
            if variable in weights and variable not in visited:
                visited.add(variable)
                all_places.append(Place(at, weights[variable], around))
    for name, weight in loose.items():
        if weight.variable not in visited:
            all_places.append(Place(name.replace("/", "."), weight, ()))
    return all_places


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# What a weight is made of.


@dataclass(frozen=True)
class _Source:
    """Tensors that can fill a weight, and how."""

    names: tuple[str, ...]
    make: Callable[..., np.ndarray] = lambda array: array
    settled: bool = False  # whether it has the weight's own order of axes already


def _sources(place: Place) -> list[_Source]:
    """Return the tensors that can fill a weight, best choice first."""
    leaf, parent = place.leaf, place.parent
    sources = [_Source((place.path,), settled=True)]
    sources += [_Source((_joined(parent, name),)) for name in _LEAVES.get(leaf, ())]
    if len(place.layers) > 1:
        path, layer = place.layers[-2]
        if isinstance(layer, MultiHeadAttention):
            sources += _of_attention(path, place)
        elif isinstance(layer, (RNN, LSTM, GRU)):
            sources += _of_recurrence(path, layer, place)
    return sources


def _of_attention(path: str, place: Place) -> list[_Source]:
    """Return the parts of torch's ``MultiheadAttention``, whose projections are one matrix."""
    projection = place.parent.rpartition(".")[2]
    kind = "weight" if place.leaf == "kernel" else "bias"
    if projection == "output":
        return [_Source((_joined(path, f"out_proj.{kind}"),))]
    third = ("query", "key", "value").index(projection)

    def part(array: np.ndarray) -> np.ndarray:
        size = array.shape[0] // 3
        return array[third * size : (third + 1) * size].T

    return [_Source((_joined(path, f"in_proj_{kind}"),), part, settled=True)]


def _of_recurrence(path: str, layer: Layer, place: Place) -> list[_Source]:
    """Return the weights of torch's recurrent layers, which have the same order of gates."""
    back = place.parent.endswith(".1") or getattr(layer, "reverse", False)
    end = "_l0_reverse" if back else "_l0"
    ih, hh = (_joined(path, f"bias_{which}{end}") for which in ("ih", "hh"))
    if place.leaf in ("kernel", "recurrent"):
        which = "ih" if place.leaf == "kernel" else "hh"
        name = _joined(path, f"weight_{which}{end}")
        return [_Source((name,), lambda array: array.T, settled=True)]
    if not isinstance(layer, GRU):
        return [_Source((ih, hh), lambda one, other: one + other)]
    size = place.weight.variable.shape[0] // (3 if place.leaf == "bias" else 1)

    def gates(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.concatenate([one[: 2 * size] + other[: 2 * size], one[2 * size :]])

    if place.leaf == "bias":
        return [_Source((ih, hh), gates)]
    return [_Source((hh,), lambda array: array[2 * size :])]


def loaded(
    own: Sequence[Place], tensors: Mapping[str, np.ndarray], strict: bool, source: str
) -> tuple[dict[str, np.ndarray], LoadReport]:
    """Return the new value of each weight that has one, and the report.

    Raises
    ------
    DataError
        If shapes do not fit, or, with `strict`, weights have no tensor or tensors no weight.
    """
    source_of: dict[str, _Source] = {}
    for place in own:
        for candidate in _sources(place):
            if all(name in tensors for name in candidate.names):
                source_of[place.path] = candidate
                break
    used = {name for candidate in source_of.values() for name in candidate.names}
    missing = tuple(place.path for place in own if place.path not in source_of)
    unexpected = tuple(
        name for name in tensors if name not in used and not name.endswith(_COUNTERS)
    )
    if strict and (missing or unexpected):
        lines = [f"{source} does not fit the network:"]
        if missing:
            lines.append(f"it has no tensors for {_listed(missing)}")
        if unexpected:
            lines.append(f"nothing is made of its tensors {_listed(unexpected)}")
        raise DataError(
            message(
                "\n".join(lines),
                need=f"tensors for the {len(own)} weights of `net.state_dict()`",
                hint="rename={'old': 'new'}, or strict=False to load a part",
            )
        )
    values, transposed_paths = {}, []
    usual = _usual_order(own, source_of, tensors)
    for place in own:
        if place.path in source_of:
            candidate = source_of[place.path]
            array = candidate.make(*(tensors[name] for name in candidate.names))
            value, transposed = _fitted(place, array, candidate, usual, source)
            values[place.path] = value
            if transposed:
                transposed_paths.append(place.path)
    report = LoadReport(
        {path: candidate.names for path, candidate in source_of.items()},
        tuple(transposed_paths), missing, unexpected,
    )  # fmt: skip
    return values, report


def _usual_order(
    own: Sequence[Place], source_of: Mapping[str, _Source], tensors: Mapping[str, np.ndarray]
) -> bool:
    """Return whether matrices whose shapes leave it open are transposed: as the others are."""
    for place in own:
        candidate = source_of.get(place.path)
        if candidate is None or candidate.settled or not _is_matrix(place):
            continue
        shape, there = place.weight.variable.shape, tensors[candidate.names[0]].shape
        if len(there) == 2 and shape[0] != shape[1]:
            return there == shape[::-1]
    return True  # as torch's Linear has them


def _is_matrix(place: Place) -> bool:
    inside = bool(place.layers) and isinstance(place.layers[-1][1], Dense)
    return inside and place.leaf == "kernel"


def _fitted(
    place: Place, array: np.ndarray, candidate: _Source, usual: bool, source: str
) -> tuple[np.ndarray, bool]:
    """Return a tensor in the shape and dtype of a weight, and whether it was transposed."""
    variable = place.weight.variable
    shape = tuple(variable.shape)
    orders: list[tuple[int, ...]] = [tuple(range(array.ndim))]
    if not candidate.settled and array.ndim == 2 and place.leaf == "kernel":
        orders.append((1, 0))
        if usual and _is_matrix(place):
            orders.reverse()
    elif not candidate.settled and array.ndim > 2:
        spatial = tuple(range(2, array.ndim))
        orders += [(*spatial, 1, 0), (*spatial, 0, 1), (1, 0, *spatial)]
    for order in orders:
        if tuple(array.shape[axis] for axis in order) == shape:
            fitted = np.ascontiguousarray(array.transpose(order)).astype(variable.dtype)
            return fitted, order != orders[0] or order != tuple(range(array.ndim))
    if array.size == variable.state.held.size and array.ndim != len(shape):
        ones = [e for e in array.shape if e != 1] == [e for e in shape if e != 1]
        if ones:
            return array.reshape(shape).astype(variable.dtype), False
    raise DataError(
        message(
            f"{source}: {' and '.join(candidate.names)} gives {array.dtype.name}"
            f"{list(array.shape)} for the weight {place.path}",
            need=f"{variable.dtype.name}{list(shape)}"
            + (", or its transpose" if len(shape) > 1 else ""),
        )
    )


# Files and state dicts.


def renamed(
    tensors: Mapping[str, np.ndarray], rename: Renames, source: str
) -> dict[str, np.ndarray]:
    """Return tensors under new names; those whose new name is None are left out."""
    if rename is None:
        return dict(tensors)
    new_tensors: dict[str, np.ndarray] = {}
    for name, array in tensors.items():
        new = rename(name) if callable(rename) else _renamed(name, rename)
        if new is None:
            continue
        if new in new_tensors:
            raise DataError(message(f"{source}: two tensors are renamed {new!r}, one is {name!r}"))
        new_tensors[new] = array
    return new_tensors


def _renamed(name: str, rename: Mapping[str, str | None]) -> str | None:
    for pattern, new in rename.items():
        try:
            if new is None:
                if re.search(pattern, name):
                    return None
                continue
            name = re.sub(pattern, new, name)
        except re.error as error:
            raise ConfigError(
                message(f"rename has {pattern!r}: {error}", need="a regular expression")
            ) from None
    return name


def read_state(source: Any) -> tuple[dict[str, np.ndarray], str]:
    """Return the tensors of a file, a folder or a state dict, and what messages call it."""
    if isinstance(source, Mapping):
        return {str(name): _array(name, value) for name, value in source.items()}, "the state dict"
    if hasattr(source, "state_dict") and callable(source.state_dict):
        return read_state(source.state_dict())[0], f"the {type(source).__name__}"
    if not isinstance(source, (str, os.PathLike)):
        raise DataError(
            message(
                f"load_torch is given a {type(source).__name__}",
                need="a path, a state dict, or a module of torch",
            )
        )
    path = Path(source)
    if path.is_dir():
        path = _in_folder(path)
    label = f"{os.fspath(path)!r}"
    if path.name.endswith(_INDEX):
        return _sharded(path, label), label
    if path.suffix in _PICKLES:
        return _unpickled(path, label), label
    return _safe(path, label), label


def _array(name: Any, value: Any) -> np.ndarray:
    """Return a tensor of torch, or what NumPy reads, as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()  # exact; the weight's own dtype decides in the end
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise DataError(message(f"the tensor {name!r} is {array.dtype}", need="numbers"))
    return array


def _in_folder(folder: Path) -> Path:
    """Return the file of weights in a folder, as Hugging Face names it."""
    for name in (f"model{_INDEX}", "model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        message(f"{os.fspath(folder)!r} holds no weights",
                need=f"model.safetensors, model{_INDEX} or pytorch_model.bin")
    )  # fmt: skip


def _safe(path: Path, label: str) -> dict[str, np.ndarray]:
    content = read_file(path)
    with reading(label, "is truncated, damaged, or no safetensors file"):
        return files.unpacked(content)


def _sharded(path: Path, label: str) -> dict[str, np.ndarray]:
    """Return the tensors of all files that an index names, all of them in its folder."""
    content = read_file(path, limit=_LARGEST_INDEX)
    with reading(label, "is damaged"):
        index = parse_json(content, "the index")
        weight_map: Any = index.get("weight_map") if isinstance(index, dict) else None
        table = isinstance(weight_map, dict)
        if not table or not all(isinstance(name, str) for name in weight_map.values()):
            raise Damaged("it has no table 'weight_map' of names of files")
        folder = path.resolve().parent
        read_tensors: dict[str, np.ndarray] = {}
        for name in sorted(set(weight_map.values())):
            shard = (folder / name).resolve()
            if shard.parent != folder or "\\" in name:
                raise Damaged(f"it names the file {name!r}, which is not in its folder")
            read_tensors.update(_safe(shard, f"{os.fspath(shard)!r}"))
        missing = [name for name in weight_map if name not in read_tensors]
        if missing:
            raise Damaged(f"its files lack the tensors {_listed(missing)}")
    return read_tensors


def _unpickled(path: Path, label: str) -> dict[str, np.ndarray]:
    """Return the tensors of a file of torch's, by its loader that makes tensors alone."""
    torch = _torch(f"{label} is a pickle, which only torch reads")
    read_file(path, limit=None)  # its errors name the problem of the path
    with reading(label, "is no file of tensors alone"):
        state = torch.load(path, map_location="cpu", weights_only=True)
        for key in ("state_dict", "model_state_dict", "model"):
            if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
                state = state[key]
        if not isinstance(state, Mapping):
            raise Damaged(f"it holds a {type(state).__name__}, and not tensors by name")
        return {str(name): _array(name, value) for name, value in state.items()}


def _torch(why: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingLibraryError(
            message(f"{why}, and torch is not installed",
                    hint="pip install torch, or write the weights with safetensors")
        ) from error  # fmt: skip
    return torch


def torch_state(own: Sequence[Place]) -> dict[str, np.ndarray]:
    """Return weights under torch's names, matrices and filters in torch's order of axes."""
    by_torch_name: dict[str, np.ndarray] = {}
    for place in own:
        array = np.asarray(place.weight.variable.value)
        recurrent = len(place.layers) > 1 and isinstance(place.layers[-2][1], (RNN, LSTM, GRU))
        if recurrent:
            path, layer = place.layers[-2]
            (source,) = _of_recurrence(path, layer, place)
            size = array.shape[-1] // (1 if place.leaf == "candidate_bias" else 3)
            if place.leaf in ("kernel", "recurrent"):
                by_torch_name[source.names[0]] = array.T
            elif place.leaf == "bias":
                by_torch_name[source.names[0]] = array
                by_torch_name.setdefault(source.names[1], np.zeros_like(array))
            else:
                other = np.zeros(3 * size, array.dtype)
                other[2 * size :] = array
                by_torch_name[source.names[0]] = other
            continue
        name = _LEAVES.get(place.leaf, (place.leaf,))[0]
        if _is_matrix(place):
            array = array.T
        elif place.leaf == "kernel" and _channels_last(place):
            count = array.ndim - 2
            array = array.transpose((count + 1, count, *range(count)))
        by_torch_name[_joined(place.parent, name)] = array
    return by_torch_name


def _channels_last(place: Place) -> bool:
    sliding = getattr(place.layers[-1][1], "sliding", {}) if place.layers else {}
    return str(sliding.get("layout", "")).endswith("C")


def write_state(path: FilePath, tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors as safetensors, or with torch where the name ends as its files do."""
    arrays = {name: np.array(array, order="C") for name, array in tensors.items()}
    if Path(path).suffix in _PICKLES:
        torch = _torch(f"{os.fspath(path)!r} is written by torch")
        buffer = io.BytesIO()
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, buffer)
        write_file(path, buffer.getvalue())
        return
    write_file(path, files.packed(arrays))
