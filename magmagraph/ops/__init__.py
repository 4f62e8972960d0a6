"""Every operation, one record each, joined into one table.

A folder is a concept, a file in it a family. `rules` has what records say of operations beside what
they compute. All folders stand on `leaf` and `convert`, and `operators` on all of them.
"""

from __future__ import annotations

import copyreg
import importlib
import os
from collections.abc import Callable, Iterator

from ..ir.collection import collection_paused
from ..ir.op import Composite, Op

TABLE: dict[str, Op | Composite] = {}
"""Name -> record, of every operation."""


def register(records: tuple[Op | Composite, ...]) -> None:
    """Add the records of a family to the table."""
    for record in records:
        if TABLE.setdefault(record.name, record) is not record:
            raise RuntimeError(f"two operations are named {record.name!r}")


def _op_named(name: str) -> Op:
    record = TABLE[name]
    assert isinstance(record, Op)
    return record


def _pickled(record: Op) -> tuple[Callable[[str], Op], tuple[str]]:
    """Pickle a record of the table by its name."""
    return _op_named, (record.name,)


copyreg.pickle(Op, _pickled)


def _families(package: str, folder: str) -> Iterator[str]:
    """Yield the names of all modules in a folder and in those below it, in order."""
    for name in sorted(os.listdir(folder)):
        stem, _, suffix = name.partition(".")
        below = os.path.join(folder, name)
        if suffix == "py" and stem != "__init__":
            yield f"{package}.{stem}"
        elif not suffix and name != "__pycache__" and os.path.isdir(below):
            yield from _families(f"{package}.{name}", below)


with collection_paused():  # records, functions and their texts: many, and none is garbage
    for _family in _families(__name__, __path__[0]):
        register(getattr(importlib.import_module(_family), "RECORDS", ()))
