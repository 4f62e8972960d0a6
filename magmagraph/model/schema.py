"""What the header of a file of weights may hold: of a model, and of a checkpoint."""

from __future__ import annotations

from typing import Any

from ..files.schema import (
    LARGEST,
    Schema,
    anything,
    either,
    flag,
    items,
    mapping,
    none,
    number,
    one_of,
    row,
    table,
    text,
    whole,
    wrong,
)

__all__ = ["CHECKPOINT", "MODEL", "about"]

MOST_LAYERS = 100_000

_ANY_WHOLE = whole(-LARGEST)
_PLAIN = either(none, flag, number(finite=False), text())


def layer(value: Any, place: str) -> None:
    """Take the class of a layer, and its arguments."""
    table({"layer": text(200), "arguments": mapping(argument)})(value, place)


def argument(value: Any, place: str) -> None:
    """Take an argument of a layer: a plain value, a penalty, a layer, or a list of arguments."""
    if isinstance(value, list):
        items(argument, MOST_LAYERS)(value, place)
    elif isinstance(value, dict) and "penalty" in value:
        table({"penalty": row(number(), number())})(value, place)
    elif isinstance(value, dict):
        layer(value, place)
    else:
        _PLAIN(value, place)


def schedule(value: Any, place: str) -> None:
    """Check the class of a schedule and its values."""
    if not isinstance(value, dict):
        raise wrong(value, place, "a schedule")
    values = either(none, flag, number(), schedule)
    table({"schedule": text(200), "values": mapping(values)})(value, place)


_OPTIMIZER = table(
    {
        "optimizer": text(200),
        "learning_rate": either(number(), schedule),
        "settings": mapping(either(none, flag, number())),
    }
)
_ARCHITECTURE = table(
    {
        "layers": items(layer, MOST_LAYERS),
        "loss": either(none, text()),
        "metrics": items(text()),
        "optimizer": either(none, _OPTIMIZER),
        "seed": _ANY_WHOLE,
    },
    {
        "regularize": either(none, row(number(), number())),
        "single": flag,
        "inputs": whole(0, MOST_LAYERS),
        "graph": text(),
        "calls": items(
            table(
                {
                    "layer": whole(0, MOST_LAYERS),
                    "operands": whole(0, MOST_LAYERS),
                    "options": mapping(_PLAIN),
                    "position": either(none, whole(0, MOST_LAYERS)),
                    "group": whole(0, MOST_LAYERS),
                }
            ),
            MOST_LAYERS,
        ),
    },
)
_COMMON: dict[str, Schema] = {
    "kind": text(200),
    "version": whole(),
    "checksum": whole(),
}
_OLDER: dict[str, Schema] = {"bfloat16": items(text())}
_DATA = (
    table({"batches": either(none, whole())}),
    table({"examples": whole()}),
    table({"shapes": items(items(whole(), 64)), "sample": whole()}),
)
MODEL = table({**_COMMON, "architecture": either(none, _ARCHITECTURE)}, _OLDER)
CHECKPOINT = table(
    {
        **_COMMON,
        "architecture": either(none, _ARCHITECTURE),
        "data": either(*_DATA, table({"shards": items(either(*_DATA))})),
        "epoch": whole(),
        "step": whole(),
        "rows": number(0),
        "seconds": number(0),
        "batch_size": whole(1),
        "wanted_size": number(0),
        "shuffle": flag,
        "stopping": flag,
        "history": items(mapping(anything)),
        "callbacks": items(
            table({"kind": text(), "resumes": flag, "state": mapping(anything)}), 10_000
        ),
    },
    {"optimizer": text(200), "first_epoch": whole(), "initial_epoch": whole(), **_OLDER},
)
ADAPTERS = table({**_COMMON, "rank": whole(1), "factor": number()})
_KINDS: dict[str, Schema] = {"model": MODEL, "checkpoint": CHECKPOINT, "adapters": ADAPTERS}
_OF_ANY_KIND = table({**_COMMON, "kind": one_of(*_KINDS)}, others=anything)


def about(value: Any, place: str) -> None:
    """Check a file's header."""
    _OF_ANY_KIND(value, place)
    _KINDS[value["kind"]](value, place)
