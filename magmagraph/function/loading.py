"""`mg.load`: make functions of the archives that `Function.save` wrote."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..collection import collection_paused
from ..distributed.written import strategy_of
from ..dtypes import canonical
from ..errors import DeviceError, FallbackWarning, PlanError
from ..files.arrays import read_npy
from ..files.reading import Damaged, parse_json, reading
from ..graph import Node
from ..text.archive import (
    PLAIN_SETTINGS,
    SETTINGS_FILE,
    SOURCE,
    checked_members,
    content_of,
    machine_name,
)
from ..text.archive_schema import SETTINGS
from ..text.reading import load_graph
from ..types import FilePath
from . import Function, check_settings


def load(path: FilePath) -> Any:
    """Return the function of an archive, with variables of its own.

    It takes the same inputs by name and order, gives outputs of the same form, and renews its
    variables likewise. They are found in ``f.source_graph.variables``.

    Parameters
    ----------
    path
        What `Function.save` wrote.

    Returns
    -------
    Function

    Raises
    ------
    PlanError
        The file is no archive, is truncated or damaged, or is of a later format.
    MissingFileError
        There is no such file; it is a FileNotFoundError, too.
    """
    name = Path(path).name
    members, manifest = checked_members(name, content_of(path))
    with reading(name, "does not hold a function", PlanError), collection_paused():
        function = _function(members)
    if manifest.get("version") != __version__ or manifest.get("machine") != machine_name():
        warnings.warn(
            f"{name} was saved by magmagraph {manifest.get('version')} on "
            f"{manifest.get('machine')}: it is lowered anew for this machine",
            FallbackWarning,
            stacklevel=2,
        )
    elif "chip" in manifest:
        with contextlib.suppress(DeviceError):  # a device that is not here: a call will say so
            here = function._chip()
            if manifest["chip"] != here:
                warnings.warn(
                    f"{name} was saved on {manifest['chip']}: it is lowered anew for {here}",
                    FallbackWarning,
                    stacklevel=2,
                )
    return function


def _function(members: Mapping[str, bytes]) -> Any:
    """Return the function that an archive's members describe."""
    for name in (SETTINGS_FILE, SOURCE):
        if name not in members:
            raise Damaged(f"it lacks {name!r}")
    saved = parse_json(members[SETTINGS_FILE], SETTINGS_FILE)
    SETTINGS(saved, SETTINGS_FILE)
    values = [
        _array(members, f"variables/{i}.npy", dtype, shape)
        for i, (_, dtype, shape) in enumerate(saved["variables"])
    ]
    data = {
        digest: _array(members, f"constants/{digest[1:]}.npy", dtype, shape)
        for digest, dtype, shape in saved["constants"]
    }
    graph = load_graph(members[SOURCE].decode(), SOURCE, data=data, values=values)
    variables = [node for node in graph.nodes if "state" in node.attrs]
    if len(variables) != len(values):
        raise Damaged(f"{SOURCE} has {len(variables)} variables, and {SETTINGS_FILE} {len(values)}")
    random = saved["random"]
    if random is not None and random >= len(variables):
        raise Damaged(
            f"{SETTINGS_FILE}.random is {random}, and there are {len(variables)} variables"
        )
    settings = {key: saved["settings"][key] for key in PLAIN_SETTINGS}
    settings["skip"] = tuple(settings["skip"])
    settings["passes"] = None
    check_settings(settings)
    settings["distribute"] = strategy_of(saved.get("distribute"))
    strategy = settings["distribute"]
    program = (list(graph.outputs), list(graph.updates))
    outputs, updates = program if strategy is None else strategy.prepared(*program)
    function = Function.__new__(Function)
    function.__setstate__(
        {
            "inputs": graph.inputs,
            "outputs": _restored(saved["outputs"], outputs),
            "updates": list(updates),
            "program": program,
            "effects": graph.effects,
            "settings": settings,
            "device": saved["device"],
            "name": saved["name"],
            "strict_feeds": saved["strict_feeds"],
            "random": None if random is None else variables[random],
        }
    )
    return function


def _array(members: Mapping[str, bytes], name: str, dtype: str, shape: list[int]) -> np.ndarray:
    """Return the array of a member, which has the dtype and the shape that the settings state."""
    if name not in members:
        raise Damaged(f"it lacks {name!r}")
    content, wanted = members[name], canonical(dtype)
    with reading(name, "is no array"):
        array = read_npy(io.BytesIO(content), len(content), whole=True)
    if array.dtype.itemsize != wanted.itemsize or array.size != math.prod(shape):
        raise Damaged(
            f"{name} is {array.dtype.name}{list(array.shape)}, and {SETTINGS_FILE} states "
            f"{wanted.name}{shape}"
        )
    return array.view(wanted).reshape(shape)


def _restored(form: Any, outputs: Sequence[Node]) -> Any:
    """Return the outputs in the form that `_form` described."""
    if form is None:
        return None
    if isinstance(form, int):
        if form >= len(outputs):
            raise Damaged(f"output {form} is asked for, and there are {len(outputs)}")
        return outputs[form]
    ((kind, members),) = form.items()
    if kind == "dict":
        return {key: _restored(member, outputs) for key, member in members}
    made = [_restored(member, outputs) for member in members]
    return tuple(made) if kind == "tuple" else made
