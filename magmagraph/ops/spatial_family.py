"""How functions over one, two and three spatial axes share a docstring.

Convolution, its transpose and pooling each have a function that is described in full, and functions
for a number of spatial axes that say what shape they take and refer to it for the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ..graph import Node
from .family import publish

ALONG = {1: "along one spatial axis", 2: "over two spatial axes", 3: "over three spatial axes"}
"""Spatial axes -> the words for them that summaries end in."""

_SHAPES = {
    1: """Of shape ``(batch, channels, w)``, or ``(batch, w, channels)`` with layout ``"NWC"``.""",
    2: """Of shape ``(batch, channels, h, w)``, or ``(batch, h, w, channels)`` with layout
    ``"NHWC"``.""",
    3: """Of shape ``(batch, channels, d, h, w)``, or ``(batch, d, h, w, channels)`` with layout
    ``"NDHWC"``.""",
}
_DOC = """{summary}

Parameters
----------
x
    {shape}
{options}
    As for `{like}`.

Returns
-------
Node
    As `{like}` gives it.

Raises
------
ShapeError, DTypeError
    As for `{raises}`.

Examples
--------
>>> import magmagraph as mg
{example}
"""


def publish_spatial(
    function: Callable[..., Node],
    name: str,
    module: str,
    count: int,
    *,
    summary: str,
    like: str,
    example: str,
    raises: str = "",
) -> None:
    """Publish a generated function over `count` spatial axes, which is otherwise as `like`.

    `raises` says where errors are described, if not at `like`; `example` is doctest text without
    the import.
    """
    _, *options = inspect.signature(function).parameters
    doc = _DOC.format(
        summary=summary,
        shape=_SHAPES[count],
        options=", ".join(options),
        like=like,
        raises=raises or like,
        example=example,
    )
    publish(function, name, module, doc)
