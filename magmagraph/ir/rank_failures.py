"""Messages between ranks when one of them cannot take part in a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import (
    CheckError,
    CommunicationError,
    FeedError,
    MagmagraphError,
    NonFiniteError,
    message,
)
from .communicator import Communicator

__all__ = ["Failed", "described", "refused"]

# What a caller may catch by its type: ranks that skip such a batch all skip it.
_OWN_KIND = {kind.__name__: kind for kind in (FeedError, NonFiniteError, CheckError)}


class Failed(NamedTuple):
    """A rank's failure, as the others receive it: the error's type, and its text."""

    kind: str
    text: str


def described(error: BaseException) -> Failed:
    """Return the description of an error for other ranks."""
    return Failed(type(error).__name__, str(error))


def refused(failures: Sequence[Failed | None], ranks: Communicator, what: str) -> MagmagraphError:
    """Return the error of a rank that could go on, where others could not.

    failures: What each rank says.
    ranks: All of these.
    what: What has not happened, in words.
    returns (MagmagraphError): Of the failure's own type where that is one of feeds or values, so
        that all ranks can catch the same; `CommunicationError` for others.

    Examples
    --------
    >>> from magmagraph.ir.ranks import current
    >>> print(refused([Failed("ValueError", "no such file")], current(), "nothing has run"))
    rank 0 of 1 has failed, and nothing has run
      ValueError: no such file
    """
    rank, first = next((rank, failed) for rank, failed in enumerate(failures) if failed is not None)
    others = sum(failed is not None for failed in failures) - 1
    behind = f" (and {others} more)" if others else ""
    kind = _OWN_KIND.get(first.kind, CommunicationError)
    error = kind(
        message(
            f"rank {rank} of {ranks.size} has failed{behind}, and {what}\n"
            f"{first.kind}: {first.text}"
        )
    )
    error.alone = True
    return error
