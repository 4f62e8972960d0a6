"""Every operation, one record each, joined into one table."""

from __future__ import annotations

import importlib
import pkgutil

from ..op import Composite, Op

TABLE: dict[str, Op | Composite] = {}
"""Name -> record, of every operation."""


def register(records: tuple[Op | Composite, ...]) -> None:
    """Add the records of a family to the table."""
    for record in records:
        if TABLE.setdefault(record.name, record) is not record:
            raise RuntimeError(f"two operations are named {record.name!r}")


for _family in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    register(getattr(importlib.import_module(f"{__name__}.{_family}"), "RECORDS", ()))
