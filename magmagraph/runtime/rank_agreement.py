"""Steps that may fail on one rank alone, where ranks run a plan together: no rank commits then.

A step in Python, an assertion or a look for NaN can raise on a rank whose rows it does not like.
That rank still takes part in the messages that are left of the call, with whatever their operands
hold, and all ranks meet before the commit point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MagmagraphError
from ..ir.communicator import Communicator
from ..ir.graph import Graph, Node
from ..ir.op import Kind
from ..ir.rank_failures import described, refused

__all__ = ["bodies_within", "holds", "run_before", "says", "speaks"]

_WHERE = "the end of a call"


def says(part: Any) -> bool:
    """Return whether a part of a bound plan is a message, or waits for one."""
    node = getattr(part, "node", None)
    return node is not None and speaks(node)


def speaks(node: Node) -> bool:
    """Return whether a node, or one of its bodies, is something that ranks do together."""
    return _is_collective(node) or any(holds(body, _is_collective) for body in bodies_within(node))


def _is_collective(node: Node) -> bool:
    return node.op.kind is Kind.COLLECTIVE


def bodies_within(node: Node) -> list[Graph]:
    """Return the graphs among a node's attributes."""
    bodies = []
    for value in node.attrs.values():
        several = value if isinstance(value, tuple) else (value,)
        bodies += [part for part in several if isinstance(part, Graph)]
    return bodies


def holds(graph: Graph, asked: Callable[[Node], bool]) -> bool:
    """Return whether a graph, or a body in it, has a node that is asked for."""
    return any(
        asked(node) or any(holds(body, asked) for body in bodies_within(node))
        for node in graph.nodes
    )


def run_before(
    parts: Sequence[Any],
    check: Callable[[], object] | None,
    ranks: Communicator | None,
    meet: Callable[[], object] | None = None,
    first: int = 0,
    may_say: Callable[[Any], bool] = says,
) -> None:
    """Run the steps before the commit point, and raise one rank's error on all ranks.

    Parameters
    ----------
    parts
        Each has a method `run`.
    check
        What looks at the results.
    ranks
        All that run the plan, where one of them may fail alone; None where none can.
    meet
        Where all ranks go on, or none; None where they do not meet.
    first
        The part before which they do: nothing before it speaks.
    may_say
        Whether others may wait for a message of a part.
    """
    if meet is not None:
        for each in parts[:first]:
            each.run()
        meet()
        parts = parts[first:]
    if ranks is None:
        for each in parts:
            each.run()
        if check is not None:
            check()
        return
    left = iter(parts)
    part: Any = None
    try:
        for part in left:
            part.run()
        part = None
        if check is not None:
            check()
    except Exception as error:
        if part is not None and says(part):
            raise  # ranks are no longer in one place
        for part in left:
            if may_say(part):
                part.run()
        others = ranks.agree(described(error), _WHERE) or ()
        if isinstance(error, MagmagraphError):
            error.alone = any(failed is None for failed in others)
        raise
    answers = ranks.agree(None, _WHERE)
    if answers is not None:
        raise refused(answers, ranks, "no rank has changed a variable")
