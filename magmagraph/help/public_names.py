"""The names that users call classes and functions by: ``mg.nn.Dense``."""

from __future__ import annotations

__all__ = ["PACKAGE", "name_class", "public_name", "short_name"]

PACKAGE = __name__.partition(".")[0]
_ATTRIBUTE = "_public_name"  # of a class


def name_class(cls: type, module: str) -> None:
    """Store in which module users find a class; the package's root comes before others."""
    if cls.__module__.partition(".")[0] == PACKAGE:
        if module == PACKAGE or _ATTRIBUTE not in vars(cls):
            setattr(cls, _ATTRIBUTE, f"{module}.{cls.__name__}")


def public_name(cls: type) -> str:
    """Return what users call a class: ``mg.nn.Dense``, or its own name where it is theirs."""
    return short_name(vars(cls).get(_ATTRIBUTE, cls.__name__))


def short_name(name: str) -> str:
    """Return what users call a function: ``mg.linalg.svd`` of ``magmagraph.linalg.svd``."""
    return name.replace("magmagraph.checks.", "mg.").replace("magmagraph", "mg", 1)
