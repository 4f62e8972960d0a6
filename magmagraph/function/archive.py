"""`f.save(path)` and `mg.load(path)`: a function as one file, without pickle or machine code.

The file is a zip archive of text and plain arrays. Its manifest has a checksum of every member, and
its end one of all bytes before it; nothing is made of a file before all of them are right. What
runs is compiled again from the source graph: the optimized graph, the plan and its kernels' sources
are kept for reading and for comparison.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import platform
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..distributed.serialized import strategy_of, written
from ..distributed.strategies import held_apart
from ..dtypes import canonical
from ..errors import (
    DeviceError,
    FallbackWarning,
    MissingFileError,
    PlanError,
    message,
)
from ..files.arrays import read_npy
from ..files.reading import Archive, Damaged, parse_json, read_file, reading
from ..files.writing import replace_file
from ..ir.collection import collection_paused
from ..ir.graph import Graph, Node
from ..ir.plan import GENERATED
from ..ir.types import FilePath
from ..text.reading import load_graph
from ..text.writing import Writer, dump
from .archive_schema import MANIFEST, SETTINGS
from .structure import Structure

FORMAT = 1
_MANIFEST = "manifest.json"
_SOURCE = "source.txt"
_SETTINGS = "settings.json"
_KEPT = ("optimized.txt", "plan.txt", "report.json")  # to read and compare; not needed to run
_PLAIN_SETTINGS = (
    "precision", "skip", "nan", "deterministic", "compile_budget", "options",
)
_STAMP = (1980, 1, 1, 0, 0, 0)  # equal functions make equal files
_DIGITS = 2 * hashlib.sha256().digest_size  # of the checksum that ends a file, as zip's comment


def save(function: Any, path: FilePath) -> None:
    """Write a function to an archive.

    The file takes its place when it is whole: what stood there before is kept on an error.

    function (Function): Compiled, if it is not yet.
    path: Where; any suffix.
    raises PlanError: The function was made with passes of its own, which are code, or its outputs
        are in a form that is not made of lists, tuples and dicts with plain keys, or its ranks
        share what an optimizer remembers.
    raises StorageError: The file cannot be written; what was there is as it was.

    Examples
    --------
    >>> import magmagraph as mg, os, tempfile
    >>> x = mg.input("x", shape=(3,))
    >>> path = os.path.join(tempfile.mkdtemp(), "double.magma")
    >>> mg.function([x], x * 2.0).save(path)
    >>> mg.load(path)([1.0, 2.0, 3.0])
    array([2., 4., 6.], dtype=float32)
    """
    members = _members(function)
    manifest = {
        "format": FORMAT,
        "version": __version__,
        "machine": _machine(),
        "chip": function._chip(),
        "sealed": True,
        "members": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    with replace_file(path) as file:
        with zipfile.ZipFile(file, "w") as archive:
            _write(archive, _MANIFEST, _json(manifest))
            for name, content in members.items():
                _write(archive, name, content)
            archive.comment = b"0" * _DIGITS
        seal(file)


def load(
    path: FilePath,
    check_settings: Callable[[dict[str, Any]], None],
    function_of: Callable[[dict[str, Any]], Any],
) -> Any:
    """Return the function of an archive; see `magmagraph.load`.

    path: What `Function.save` wrote.
    check_settings: Raises where a setting is not one of a function.
    function_of: Makes a function of its state.
    """
    name = Path(path).name
    members, manifest = _checked(name, _content(path))
    with reading(name, "does not hold a function", PlanError), collection_paused():
        function = function_of(_state(members, check_settings))
    if manifest.get("version") != __version__ or manifest.get("machine") != _machine():
        warnings.warn(
            f"{name} was saved by magmagraph {manifest.get('version')} on "
            f"{manifest.get('machine')}: it is compiled again for this machine",
            FallbackWarning,
            stacklevel=3,
        )
    elif "chip" in manifest:
        with contextlib.suppress(DeviceError):  # a device that is not here: a call will say so
            here = function._chip()
            if manifest["chip"] != here:
                warnings.warn(
                    f"{name} was saved on {manifest['chip']}: it is compiled again for {here}",
                    FallbackWarning,
                    stacklevel=3,
                )
    return function


# ---------------------------------------------------------------------- saving


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"


def seal(path: Path) -> None:
    """Write the checksum of a file's other bytes over its last ones, which are zip's comment."""
    with path.open("r+b") as file:
        content = file.read()
        file.seek(-_DIGITS, os.SEEK_END)
        file.write(_checksum(content))


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(memoryview(content)[:-_DIGITS]).hexdigest().encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _STAMP)
    entry.compress_type = zipfile.ZIP_DEFLATED if name.endswith((".txt", ".json", ".c")) else 0
    archive.writestr(entry, content)


def _members(function: Any) -> dict[str, bytes]:
    """Return the content of each member by its name."""
    state = function.__getstate__()
    settings = state["settings"]
    if settings["passes"] is not None:
        raise PlanError(
            message(
                "a function with passes= of its own cannot be saved: they are code",
                hint="save one that is made with skip= or without, or save dump(f.graph)",
            )
        )
    if settings.get("target") is not None:
        raise PlanError(
            message(
                f"a function for {settings['target'].label}, a made-up target, cannot be saved",
                need="a function for a device",
                hint="dump(f.plan), from magmagraph.text.writing, is its plan as a text",
            )
        )
    source: Graph = function._whole_graph()
    if held_apart(source):
        raise PlanError(
            message(
                "a function that adds up gradients over calls cannot be saved on many ranks: each "
                "has its own sum",
                hint="mg.callbacks.Checkpoint, or optimizer.state_dict(), which add them up",
            )
        )
    variables = [node for node in source.nodes if "state" in node.attrs]
    random = None
    if state["random"] is not None:
        owner = state["random"].attrs["state"]
        places = [i for i, node in enumerate(variables) if node.attrs["state"] is owner]
        random = places[0] if places else None
    form = Structure(state["outputs"]).build(range(len(source.outputs)))
    saved = {
        "name": state["name"],
        "device": state["device"],
        "strict_feeds": state["strict_feeds"],
        "outputs": _form(form),
        "random": random,
        "distribute": written(settings["distribute"]),
        "settings": {
            **{key: settings[key] for key in _PLAIN_SETTINGS},
            "memory_limit": settings.get("memory_limit"),
        },
        "variables": [],
        "constants": [],
    }
    writer = Writer()
    members: dict[str, bytes] = {_SOURCE: "\n".join(writer.graph(source)).encode()}
    with function._lock:
        for i, node in enumerate(variables):
            value = node.attrs["state"].read()
            saved["variables"].append([node.name, value.dtype.name, list(value.shape)])
            members[f"variables/{i}.npy"] = _array_bytes(value)
    for digest, array in writer.data.items():
        saved["constants"].append([digest, array.dtype.name, list(array.shape)])
        members[f"constants/{digest[1:]}.npy"] = _array_bytes(array)
    plan = function.plan
    saved["choices"] = dict(plan.choices)
    try:
        members[_SETTINGS] = _json(saved)
    except TypeError as error:
        raise PlanError(message(f"the function's settings cannot be saved: {error}")) from None
    members[_KEPT[0]] = dump(function.graph, data=False).encode()
    members[_KEPT[1]] = dump(plan, data=False).encode()
    records = json.loads(function.report.to_json())
    for record in records:
        record.pop("milliseconds", None)
    members[_KEPT[2]] = _json(records)
    for i, step in enumerate(plan.steps):
        if step.role in GENERATED:
            with contextlib.suppress(PlanError):  # a GPU runs some as expressions
                members[f"kernels/{i}.c"] = function.source(i).encode()
    return members


def _array_bytes(array: np.ndarray) -> bytes:
    """Return an array in NumPy's file format; bfloat16, which that lacks, as its bits."""
    plain = array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(plain), allow_pickle=False)
    return file.getvalue()


def _form(tree: Any) -> Any:
    """Return a nested form of positions as JSON values that tell lists from tuples and dicts."""
    if tree is None or isinstance(tree, int):
        return tree
    if isinstance(tree, dict):
        for key in tree:
            if not isinstance(key, (str, int, bool)):
                raise PlanError(
                    message(
                        f"an output is named by {key!r}, which an archive cannot hold",
                        need="strings or ints as keys of the outputs",
                    )
                )
        return {"dict": [[key, _form(member)] for key, member in tree.items()]}
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_form(member) for member in tree]}
    raise PlanError(message(f"outputs in the form {type(tree).__name__} cannot be saved"))


# ---------------------------------------------------------------------- loading


def _content(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file, or raise where it cannot be read."""
    if not os.path.exists(path):
        raise MissingFileError(
            message(f"there is no file {str(path)!r}", need="a file that f.save(path) wrote")
        )
    return read_file(path, PlanError)


def _checked(name: str, content: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the members and the manifest of an archive, all checksums being right."""
    hint = "save the function again; the file is truncated or damaged"
    if content[8:9] == b"{":  # safetensors
        hint = "mg.NeuralNetwork.load(path) or mg.Model.load(path), if a model wrote it"
    need = "a file that f.save(path) wrote"
    wrong = "is not a whole archive of magmagraph"
    with reading(name, wrong, PlanError, need=need, hint=hint):
        archive = Archive(io.BytesIO(content), len(content))
        if _MANIFEST not in archive.members:
            raise Damaged(f"it lacks {_MANIFEST!r}")
        members = {entry: archive.read(entry) for entry in archive.members}
        manifest = parse_json(members.pop(_MANIFEST), _MANIFEST)
        MANIFEST(manifest, _MANIFEST)
        # The comment is where the checksum is: a changed manifest does not turn the check off.
        sealed = manifest.get("sealed") or archive.comment
        if sealed and content[-_DIGITS:] != _checksum(content):
            raise Damaged("the checksum of the file is wrong")
    digests: Mapping[str, str] = manifest["members"]
    version = manifest["format"]
    if version != FORMAT:
        raise PlanError(
            message(
                f"{name} has the format {version} of magmagraph {manifest.get('version')}",
                need=f"format {FORMAT}, which magmagraph {__version__} reads",
                hint="load it with the version that saved it",
            )
        )
    for entry in (*digests, *(e for e in members if e not in digests)):
        if entry not in members or entry not in digests:
            state = "lacks" if entry not in members else "has an unknown"
            raise PlanError(message(f"{name} {state} member {entry!r}", hint="save it again"))
        if hashlib.sha256(members[entry]).hexdigest() != digests[entry]:
            raise PlanError(
                message(
                    f"{name} is damaged: the checksum of {entry!r} is wrong",
                    hint="save the function again",
                )
            )
    return members, manifest


def _state(
    members: Mapping[str, bytes], check_settings: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Return the state of the function that an archive's members describe."""
    for name in (_SETTINGS, _SOURCE):
        if name not in members:
            raise Damaged(f"it lacks {name!r}")
    saved = parse_json(members[_SETTINGS], _SETTINGS)
    SETTINGS(saved, _SETTINGS)
    values = [
        _array(members, f"variables/{i}.npy", dtype, shape)
        for i, (_, dtype, shape) in enumerate(saved["variables"])
    ]
    data = {
        digest: _array(members, f"constants/{digest[1:]}.npy", dtype, shape)
        for digest, dtype, shape in saved["constants"]
    }
    graph = load_graph(members[_SOURCE].decode(), _SOURCE, data=data, values=values)
    variables = [node for node in graph.nodes if "state" in node.attrs]
    if len(variables) != len(values):
        raise Damaged(f"{_SOURCE} has {len(variables)} variables, and {_SETTINGS} {len(values)}")
    random = saved["random"]
    if random is not None and random >= len(variables):
        raise Damaged(f"{_SETTINGS}.random is {random}, and there are {len(variables)} variables")
    settings = {key: saved["settings"][key] for key in _PLAIN_SETTINGS}
    settings["memory_limit"] = saved["settings"].get("memory_limit")
    settings["skip"] = tuple(settings["skip"])
    settings["passes"] = None
    check_settings(settings)
    settings["distribute"] = strategy_of(saved.get("distribute"))
    strategy = settings["distribute"]
    program = (list(graph.outputs), list(graph.updates))
    outputs, updates = program if strategy is None else strategy.prepared(*program)
    return {
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


def _array(members: Mapping[str, bytes], name: str, dtype: str, shape: list[int]) -> np.ndarray:
    """Return the array of a member, which has the dtype and the shape that the settings state."""
    if name not in members:
        raise Damaged(f"it lacks {name!r}")
    content, expected = members[name], canonical(dtype)
    with reading(name, "is no array"):
        array = read_npy(io.BytesIO(content), len(content), whole=True)
    if array.dtype.itemsize != expected.itemsize or array.size != math.prod(shape):
        raise Damaged(
            f"{name} is {array.dtype.name}{list(array.shape)}, and {_SETTINGS} states "
            f"{expected.name}{shape}"
        )
    return array.view(expected).reshape(shape)


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
    restored = [_restored(member, outputs) for member in members]
    return tuple(restored) if kind == "tuple" else restored
