"""What is optimized: variables in groups with settings of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..dtypes import is_complex, is_float
from ..errors import ConfigError, UpdateError, message
from ..ir.graph import Node
from ..ir.nesting import leaves
from ..ir.op import describe
from ..ir.records import record
from ..ops.leaf import Variable
from .rate import Rate

_PARTS = "two real variables, put together by mg.complex(real, imag)"


@record(frozen=True)
class Group:
    """Variables with one rate and one set of settings."""

    variables: tuple[Variable, ...]
    rate: Rate
    options: Mapping[str, Any]


def entries(wrt: Any, settings: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each group's targets and its own settings; targets alone are one group."""
    grouped = isinstance(wrt, (list, tuple)) and any(
        isinstance(member, Mapping) and "wrt" in member for member in wrt
    )
    given: Sequence[Any] = wrt if grouped else [{"wrt": wrt}]
    for entry in given:
        if not isinstance(entry, Mapping) or "wrt" not in entry:
            raise ConfigError(
                message("a parameter group lacks the key 'wrt'", need="{'wrt': [...], ...}")
            )
        own = {name: value for name, value in entry.items() if name != "wrt"}
        allowed = ("learning_rate", *settings)
        unknown = [name for name in own if name not in allowed]
        if unknown:
            raise ConfigError(
                message(f"a parameter group sets {unknown[0]!r}", need=", ".join(allowed))
            )
        yield entry["wrt"], own


def targets(wrt: Any, seen: set[Variable]) -> tuple[Variable, ...]:
    """Return the variables of a nested structure; each may be seen once only."""
    variables: list[Variable] = []
    for label, member in leaves(wrt, "wrt"):
        if not isinstance(member, Variable) or not is_float(member.dtype):
            what = describe(member) if isinstance(member, Node) else type(member).__name__
            raise UpdateError(
                message(
                    f"{label} is {what}",
                    need="variables of a float dtype: they hold what is optimized",
                    hint=_PARTS
                    if isinstance(member, Variable) and is_complex(member.dtype)
                    else "mg.variable(name, init=...), or mg.var(name, init=...)",
                )
            )
        if member in seen:
            raise UpdateError(message(f"variable '{member.name}' is given twice"))
        seen.add(member)
        variables.append(member)
    return tuple(variables)
