"""`mg.scope`: names for parts of a program, in pictures, reports and profiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import GraphError, message
from .docstrings import documented
from .lines import named_group, open_group


@contextmanager
@documented
def scope(name: str) -> Iterator[None]:
    """Let the nodes that are made in a block be a group of a name.

    Pictures draw a group in a frame, which the viewer can collapse; search, reports, profiles and
    explanations name it. Calls of layers and of functions such as `mg.softmax` are groups of their
    own accord. A scope changes nothing else: equal expressions of two scopes are still one node,
    in the scope of the first. Scopes may be nested; their names are joined by a slash.

    name: What the box is called; not empty, without a slash.
    raises GraphError: It is no such name.

    >>> x = mg.input("x", shape=(3,))
    >>> with mg.scope("encoder"), mg.scope("norm"):
    ...     y = x - mg.mean(x)
    >>> y.line.scope
    'encoder/norm'
    """
    if not isinstance(name, str) or not name or "/" in name:
        raise GraphError(
            message(
                f"scope: the name is {name!r}",
                need="a text that is not empty, without a slash",
                hint="open one scope inside of the other: with mg.scope('a'), mg.scope('b')",
            )
        )
    with open_group(named_group(name)):
        yield
