"""What training reported, epoch by epoch."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import ConfigError, MissingLibraryError, message
from ..ir.frames import data_frame
from ..ir.html import Displayed, sparkline, table_html

__all__ = ["History"]

_SHOWN = 20  # epochs that a notebook shows


class History(Displayed, Mapping[str, list[Any]]):
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
        values = [record[name] for record in self.records if name in record]
        if not values:
            raise KeyError(f"{name!r} was not reported; what was: {', '.join(self) or 'nothing'}")
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for record in self.records for name in record))

    def __len__(self) -> int:
        return len(dict.fromkeys(name for record in self.records for name in record))

    @property
    def seconds(self) -> float:
        """How long all epochs took, validation left out."""
        return float(sum(record.get("seconds", 0.0) for record in self.records))

    def to_frame(self) -> Any:
        """Return the history as a ``pandas.DataFrame``: a row for each epoch, from 1.

        Raises
        ------
        MissingLibraryError
            pandas is not installed.
        """
        frame = data_frame(self.records)
        frame.index = range(1, len(self.records) + 1)
        frame.index.name = "epoch"
        return frame

    def plot(self, names: Sequence[str] | None = None) -> Any:
        """Draw the numbers over the epochs with matplotlib.

        Parameters
        ----------
        names : sequence of str, optional
            Which, such as ``["loss", "accuracy"]``; all but "seconds" unless given. Each has axes
            of its own, with the number of the validation beside it.

        Returns
        -------
        matplotlib.figure.Figure
            Notebooks show it; ``figure.savefig("history.png")`` writes it.

        Raises
        ------
        MissingLibraryError
            matplotlib is not installed.
        ConfigError
            A name was not reported, or there is nothing to draw.
        """
        shown_names = [name for name in self._numbers() if name != "seconds"]
        if names is not None:
            unknown = [name for name in names if name not in self._numbers()]
            if unknown:
                raise ConfigError(
                    message(
                        f"plot: {unknown[0]!r} was not reported",
                        need=f"some of {', '.join(self._numbers()) or 'nothing'}",
                    )
                )
            shown_names = list(names)
        if not shown_names:
            raise ConfigError(message("plot: no epoch reported numbers", need="a run of `fit`"))
        try:
            from matplotlib.figure import Figure  # optional
        except ImportError as error:
            raise MissingLibraryError(
                message(
                    "matplotlib is not installed",
                    need="matplotlib, to draw a history",
                    hint="pip install matplotlib; print(history.records) needs nothing",
                )
            ) from error

        class Drawn(Figure):
            """A figure that notebooks show whether or not they have imported pyplot."""

            def _repr_png_(self) -> bytes:
                content = io.BytesIO()
                self.savefig(content, format="png", dpi=110)
                return content.getvalue()

        titles = list(dict.fromkeys(name.removeprefix("val_") for name in shown_names))
        figure = Drawn(figsize=(4.5 * len(titles), 3.2), layout="constrained")
        for axes, title in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles,
                               strict=True):
            for name, style in ((title, "-"), (f"val_{title}", "--")):
                if name in shown_names:
                    points = [
                        (epoch, record[name])
                        for epoch, record in enumerate(self.records, 1)
                        if name in record
                    ]
                    axes.plot(*zip(*points, strict=True), style, marker=".", label=name)
            axes.set_xlabel("epoch")
            axes.set_ylabel(title)
            axes.locator_params(axis="x", integer=True)
            axes.legend()
        return figure

    def _numbers(self) -> list[str]:
        """Return the names whose values are single numbers."""
        return [
            name for name in self if all(isinstance(value, (int, float)) for value in self[name])
        ]

    def _html(self) -> str:
        numbers = self._numbers()
        first = max(0, len(self.records) - _SHOWN)
        rows = [("epoch", *numbers)]
        for epoch, record in enumerate(self.records[first:], first + 1):
            values = (record.get(name) for name in numbers)
            rows.append(
                (str(epoch), *("" if value is None else f"{value:.4g}" for value in values))
            )
        lines = "".join(
            f"<div>{name} {sparkline(self[name], name)}</div>"
            for name in numbers
            if name != "seconds" and len(self[name]) > 1
        )
        return table_html(rows, left=()) + lines

    def __repr__(self) -> str:
        last = ", ".join(f"{k}={v:.4g}" for k, v in (self.records or [{}])[-1].items()
                         if isinstance(v, (int, float)))
        return f"<history of {len(self.records)} epochs: {last}>"
