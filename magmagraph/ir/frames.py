"""Tables of pandas, where it is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import MissingLibraryError, message

__all__ = ["data_frame"]


def data_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as a ``pandas.DataFrame``.

    raises MissingLibraryError: pandas is not installed.
    """
    try:
        import pandas  # optional
    except ImportError as error:
        raise MissingLibraryError(
            message("pandas is not installed", need="pandas, for tables", hint="pip install pandas")
        ) from error
    return pandas.DataFrame(list(rows))
