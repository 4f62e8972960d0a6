"""What training reported, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["History"]


class History(Mapping[str, list[Any]]):
    """A mapping from the name of a number to its values, one for each epoch.

    "loss", the metrics, and "seconds"; where there is validation data also "val_loss" and the like.

    Attributes
    ----------
    records
        A dict for each epoch.

    Examples
    --------
    >>> history = History([{"loss": 2.0}, {"loss": 1.0}])
    >>> history["loss"], len(history.records), history.seconds
    ([2.0, 1.0], 2, 0.0)
    """

    def __init__(self, records: list[dict[str, Any]] | None = None) -> None:
        self.records: list[dict[str, Any]] = records or []

    def __getitem__(self, name: str) -> list[Any]:
        found = [record[name] for record in self.records if name in record]
        if not found:
            raise KeyError(f"{name!r} was not reported; what was: {', '.join(self) or 'nothing'}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for record in self.records for name in record))

    def __len__(self) -> int:
        return len(dict.fromkeys(name for record in self.records for name in record))

    @property
    def seconds(self) -> float:
        """How long all epochs took, validation left out."""
        return float(sum(record.get("seconds", 0.0) for record in self.records))

    def __repr__(self) -> str:
        last = ", ".join(f"{k}={v:.4g}" for k, v in (self.records or [{}])[-1].items()
                         if isinstance(v, (int, float)))
        return f"<history of {len(self.records)} epochs: {last}>"
