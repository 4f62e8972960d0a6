"""How functions over one, two and three spatial axes share a signature and a docstring.

Convolution, its transpose and pooling each have a function that is described in full, and others
for a number of spatial axes, which say what shape they take and refer to it for the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, cast

from ...ir.graph import Node
from ..elementwise.family import publish

P = ParamSpec("P")

ALONG = {1: "along one spatial axis", 2: "over two spatial axes", 3: "over three spatial axes"}
"""Spatial axes -> the words for them that a summary ends in."""

_SHAPES = {
    1: """Of shape ``(batch, channels, w)``, or ``(batch, w, channels)`` with layout ``"NWC"``.""",
    2: """Of shape ``(batch, channels, h, w)``, or ``(batch, h, w, channels)`` with layout
    ``"NHWC"``.""",
    3: """Of shape ``(batch, channels, d, h, w)``, or ``(batch, d, h, w, channels)`` with layout
    ``"NDHWC"``.""",
}
_FIELDS = """x: {shape}
{options}: As for `{like}`.
returns: As `{like}` gives it.
raises ShapeError, DTypeError: As for `{raises}`.
"""


def publish_spatial(
    function: Callable[..., Node],
    name: str,
    count: int,
    summary: str,
    example: str,
    *,
    like: Callable[P, Node],
    raises: str = "",
) -> Callable[P, Node]:
    """Publish a generated function over `count` spatial axes, which is otherwise as `like`.

    function: With the signature of `like`.
    name, summary, example: What the docstring is made of; `example` is doctest text without the
        import.
    like: The function that is described in full. The new one is of its module.
    raises: The name of the function that describes the errors, if not `like`.
    """
    signature = inspect.signature(function)
    assert signature == inspect.signature(like), name
    fields = _FIELDS.format(
        shape=_SHAPES[count],
        options=", ".join(list(signature.parameters)[1:]),
        like=like.__name__,
        raises=raises or like.__name__,
    )
    published = publish(function, name, like.__module__, summary, fields, example)
    return cast("Callable[P, Node]", published)
