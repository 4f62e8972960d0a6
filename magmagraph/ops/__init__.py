"""Every operation, one record each, joined into one table.

A folder is a concept, a file in it a family. `rules` has what records say of operations beside what
they compute. All folders stand on `leaf` and `convert`, and `operators` on all of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator

from ..op import Composite, Op

TABLE: dict[str, Op | Composite] = {}
"""Name -> record, of every operation."""


def register(records: tuple[Op | Composite, ...]) -> None:
    """Add the records of a family to the table."""
    for record in records:
        if TABLE.setdefault(record.name, record) is not record:
            raise RuntimeError(f"two operations are named {record.name!r}")


def _families(package: str, places: Iterable[str]) -> Iterator[str]:
    """Yield the names of all modules in a package and in the packages below it, in order."""
    for module in pkgutil.iter_modules(places, f"{package}."):
        if module.ispkg:
            yield from _families(module.name, importlib.import_module(module.name).__path__)
        else:
            yield module.name


for _family in _families(__name__, __path__):
    register(getattr(importlib.import_module(_family), "RECORDS", ()))
