"""The rows of a text: lines with the bodies that are written inside of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import MagmagraphError, message

DEPTH = 50  # of bodies, and of brackets, inside of each other


@dataclass(frozen=True)
class Row:
    """A line, and the bodies that are written inside of it.

    number: Of its first line in the text, from 1.
    text: The line; ``{0}``, ``{1}``, ... stand for bodies.
    bodies: The rows of each body.
    end: Number of its last line.
    """

    number: int
    text: str
    bodies: tuple[tuple[Row, ...], ...]
    end: int


class Rows:
    """A text as rows, and the errors that name its lines.

    text: The text.
    error: The class of its errors.
    line: Number of the line that is being read.
    data: Name -> (line, content), of the lines of data.
    """

    def __init__(self, text: str, error: type[MagmagraphError]) -> None:
        self.error = error
        self.line = 1
        self.data: dict[str, tuple[int, str]] = {}
        self._lines = text.split("\n")
        self._depth = 0

    def wrong(self, what: str, need: str | None = None, line: int | None = None) -> MagmagraphError:
        """Make (not raise) an error about a line, the present one unless said."""
        return self.error(message(f"line {self.line if line is None else line}: {what}", need))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Convert every error while a line is read into one about that line.

        Records and extents compute with what a line says, and are written for what functions give
        them.
        """
        try:
            yield
        except MagmagraphError as error:
            if isinstance(error, self.error):
                raise
            raise self.wrong(str(error)) from error
        except Exception as error:
            raise self.wrong(f"{type(error).__name__}: {str(error)[:80]}") from error

    def rows(self) -> list[Row]:
        """Return the rows of the text; lines of data are taken out."""
        rows: list[Row] = []
        at = 0
        while at < len(self._lines):
            row, at = self._row(at)
            if row is not None:
                rows.append(row)
        return rows

    def _row(self, at: int) -> tuple[Row | None, int]:
        """Return the row that begins at a position, and the position after it."""
        line = self._lines[at].strip()
        number = at + 1
        at += 1
        if not line or line[0] == "#":
            return None, at
        if line.startswith("data "):
            name, equals, content = line[5:].partition(" = ")
            if not equals:
                raise self.wrong(f"{line[:40]!r}", "data @digest = base64", number)
            self.data[name] = (number, content)
            return None, at
        if line[0] == "}":
            raise self.wrong("a body ends that did not begin", line=number)
        self._depth += 1
        if self._depth > DEPTH:
            raise self.wrong(
                "too many bodies inside of each other", f"at most {DEPTH}", number
            )
        bodies: list[tuple[Row, ...]] = []
        pieces = [line]
        while pieces[-1].endswith("{"):
            inside: list[Row] = []
            while True:
                if at >= len(self._lines):
                    raise self.wrong(
                        f"the text ends inside the body that begins in line {number}",
                        "a line that starts with }",
                        len(self._lines),
                    )
                if self._lines[at].lstrip().startswith("}"):
                    break
                row, at = self._row(at)
                if row is not None:
                    inside.append(row)
            pieces[-1] += str(len(bodies))
            bodies.append(tuple(inside))
            pieces.append(self._lines[at].strip())
            at += 1
        self._depth -= 1
        return Row(number, "".join(pieces), tuple(bodies), at), at

    def split(self, text: str, start: int = 0, end: str = "") -> list[str]:
        """Return the parts between commas outside of brackets and strings.

        With `end`, the list ends at that bracket, and its position is the last part.
        """
        if not end and not any(c in text for c in "([{'\""):
            return [part.strip() for part in text.split(",") if part.strip()]
        parts: list[str] = []
        depth = 0
        begin = at = start
        while at < len(text):
            c = text[at]
            if c in "'\"":
                at += 1
                while at < len(text) and text[at] != c:
                    at += 2 if text[at] == "\\" else 1
            elif c in "([{":
                depth += 1
                if depth > DEPTH:
                    raise self.wrong(
                        f"{text[begin:][:60]!r} has too many brackets inside of each other",
                        f"at most {DEPTH}",
                    )
            elif c in ")]}":
                if depth == 0 and c == end:
                    break
                depth -= 1
            elif c == "," and depth == 0:
                parts.append(text[begin:at].strip())
                begin = at + 1
            at += 1
        if depth or (end and at >= len(text)):
            raise self.wrong(
                f"{text[start:][:60]!r} ends before a bracket is closed", end or "a closing bracket"
            )
        parts.append(text[begin:at].strip())
        if parts[-1] == "":
            parts.pop()
        return [*parts, str(at)] if end else parts
