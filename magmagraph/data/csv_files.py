"""Files of separated values: numbers, gaps, and columns of names."""

from __future__ import annotations

import csv
import io
import math
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..errors import DataError, message
from ..files.reading import Damaged, read_file, reading
from ..files.writing import replace_file
from ..ir.docstrings import documented
from ..ir.types import FilePath

MOST_COLUMNS = 1_000_000
_LONGEST_LINE = (
    1 << 16
)  # bytes of the first line of a file that pyarrow reads, whose blocks are 1 MiB
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null")


@dataclass(frozen=True)
class Table:
    """The numbers in a file of separated values.

    Attributes
    ----------
    values : numpy.ndarray, shape (rows, columns)
        The numbers. A gap is NaN; a cell of a categorical column is the index of its name.
    columns : tuple of str
        The names of the columns: those of the header, or ``"0"``, ``"1"``, and so on.
    categories : dict of str to tuple of str
        The sorted names that occur in each categorical column.
    """

    values: NDArray[Any]
    columns: tuple[str, ...]
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return the column of that name, shape (rows,)."""
        try:
            return self.values[:, self.columns.index(column)]
        except ValueError:
            raise KeyError(f"no column {column!r}; there are {', '.join(self.columns)}") from None


def _check_delimiter(name: str, delimiter: object) -> None:
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise DataError(message(f"{name}: delimiter={delimiter!r}", need="one character"))


@documented
def read_csv(
    path: FilePath,
    *,
    delimiter: str = ",",
    header: bool | Literal["auto"] = "auto",
    categorical: Iterable[int | str] | Literal["auto"] = (),
    missing: Collection[str] = MISSING,
    dtype: DTypeLike = np.float32,
) -> Table:
    r"""Read a file of separated values.

    Where pyarrow is installed (``pip install "magmagraph[data]"``), it reads files of numbers
    without quotes, some ten times as fast and with the same result.

    path (path-like): A text file in UTF-8. Empty lines are skipped.
    delimiter (str): The character between two cells.
    header (bool or "auto"): Whether the first line holds names. "auto" takes it for names if one of
        its cells, categorical columns aside, is neither a number nor one of `missing`.
    categorical (iterable of int or str, or "auto"): The columns, by index or by name, whose cells
        are names. Each name becomes its index among the column's sorted names. "auto" takes those
        in which no cell is a number; the first line is that of names then, unless `header` says
        otherwise, if a cell above a number is none.
    missing (collection of str): The cells that stand for a missing value, which becomes NaN.
    dtype (dtype): The floating-point dtype of the result.
    returns (Table): The numbers, the names of the columns and those of the categories.
    raises DataError: If the file cannot be read or is empty, a row has another number of cells than
        the first, or a cell is no number; file, line and column are named.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "iris.csv"
    ...     _ = file.write_text("length,kind\n5.5,setosa\n?,lily\n")
    ...     table = read_csv(file, categorical=["kind"])
    >>> table.columns, table.categories
    (('length', 'kind'), {'kind': ('lily', 'setosa')})
    >>> table.values
    array([[5.5, 1. ],
           [nan, 0. ]], dtype=float32)
    """
    _check_delimiter("read_csv", delimiter)
    path = Path(path)
    if not np.issubdtype(np.dtype(dtype), np.floating):
        raise DataError(
            message(
                f"read_csv cannot read into {np.dtype(dtype).name}",
                need="a floating-point dtype, which has a value for a gap",
                hint="read as float64 and convert the columns that are whole",
            )
        )
    content = read_file(path)
    chosen = categorical if categorical == "auto" else tuple(categorical)
    if not chosen:
        table = _numbers_by_arrow(content, delimiter, header, missing, np.dtype(dtype))
        if table is not None:
            return table
    rows, lines = _rows(path, content, delimiter)
    cells = list(zip(*rows, strict=True))
    first = [column[0] for column in cells]
    if chosen == "auto":
        if header == "auto":
            header = _is_header(cells, missing)
        chosen = tuple(_names(cells, 1 if header else 0, missing))
    skip = {key for key in chosen if isinstance(key, int)}
    if header == "auto":
        # Where columns are given by name, there must be a line of names.
        header = any(isinstance(key, str) for key in chosen) or any(
            cell not in missing and _number(cell) is None
            for index, cell in enumerate(first)
            if index not in skip and index - len(first) not in skip
        )
    columns = tuple(first) if header else tuple(str(index) for index in range(len(first)))
    by_name = {_index(key, columns, path) for key in chosen}
    values = np.empty((len(cells[0]) - bool(header), len(cells)), dtype)
    categories: dict[str, tuple[str, ...]] = {}
    for index, column in enumerate(cells):
        column, name = column[bool(header) :], columns[index]
        if index in by_name:
            categories[name] = tuple(sorted({cell for cell in column if cell not in missing}))
            code = {text: float(position) for position, text in enumerate(categories[name])}
            values[:, index] = [code.get(cell, math.nan) for cell in column]
            continue
        numbers = [math.nan if cell in missing else _number(cell) for cell in column]
        if None in numbers:
            row = numbers.index(None)
            raise DataError(
                message(
                    f"{path}, line {lines[row + bool(header)]}, column {name!r}: "
                    f"{column[row]!r} is not a number",
                    hint=f"categorical=[{name!r}] for a column of names, or add {column[row]!r} "
                    "to `missing`",
                )
            )
        values[:, index] = numbers
    return Table(values, columns, categories)


def _numbers_by_arrow(
    content: bytes,
    delimiter: str,
    header: bool | Literal["auto"],
    missing: Collection[str],
    dtype: np.dtype,
) -> Table | None:
    """Return the table of a file that holds numbers alone, read by pyarrow.

    None without pyarrow, and for all files that need more care: with quotes, names, space around
    gaps, or an error whose line must be named.
    """
    content = content.removeprefix(BOM_UTF8).lstrip(b"\r\n")
    line, _, rest = content.partition(b"\n")
    if b'"' in content or not rest or b"\r" in line[:-1] or len(line) > _LONGEST_LINE:
        return None
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions
        from pyarrow.csv import read_csv as read
    except ImportError:
        return None
    try:
        first = [cell.strip() for cell in line.decode().split(delimiter)]
        named = any(cell not in missing and _number(cell) is None for cell in first)
        skip = named if header == "auto" else header
        places = [str(index) for index in range(len(first))]
        table = read(
            io.BytesIO(rest if skip else content),
            ReadOptions(column_names=places),
            ParseOptions(delimiter=delimiter, quote_char=False),
            ConvertOptions(
                column_types=dict.fromkeys(places, "float64"), null_values=list(missing)
            ),
        )
    except (ArrowInvalid, UnicodeDecodeError):
        return None  # the other reader names the line, or knows the spelling
    values = np.empty((table.num_rows, len(first)), dtype)
    for index, column in enumerate(table.columns):
        values[:, index] = column.to_numpy()
    return Table(values, tuple(first if skip else places))


def _is_header(cells: Sequence[Sequence[str]], missing: Collection[str]) -> bool:
    """Return whether the first line is no row: it has a name above a number."""
    return any(
        column[0] not in missing
        and _number(column[0]) is None
        and any(_number(cell) is not None for cell in column[1:])
        for column in cells
    )


def _names(cells: Sequence[Sequence[str]], first: int, missing: Collection[str]) -> list[int]:
    """Return the columns that hold names: a cell that is not missing, and none is a number."""
    found = []
    for index, column in enumerate(cells):
        present = [cell for cell in column[first:] if cell not in missing]
        if present and all(_number(cell) is None for cell in present):
            found.append(index)
    return found


@documented
def write_csv(
    path: FilePath,
    values: ArrayLike,
    columns: Sequence[str] | None = None,
    *,
    delimiter: str = ",",
) -> None:
    """Write a matrix as separated values, so that `read_csv` gives back the same numbers.

    The file appears whole or not at all.

    path (path-like): The file, which is replaced if it exists.
    values (array-like, shape (rows, columns) or (rows,)): Numbers of any real dtype. NaN is written
        as an empty cell.
    columns (sequence of str, optional): The names for a first line.
    delimiter (str): The character between two cells.
    raises DataError: If `values` is not a matrix of real numbers, or does not fit `columns`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "loss.csv"
    ...     write_csv(file, [[1, 0.25], [2, float("nan")]], columns=["epoch", "loss"])
    ...     print(file.read_text(), end="")
    epoch,loss
    1.0,0.25
    2.0,
    """
    array = np.asarray(values)
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(
            message(
                f"values of shape {np.shape(values)} and dtype {array.dtype} are not a table",
                need="a matrix of real numbers, shape (rows, columns)",
            )
        )
    _check_delimiter("write_csv", delimiter)
    if columns is not None and len(columns) != array.shape[1]:
        raise DataError(
            message(
                f"{len(columns)} names for {array.shape[1]} columns",
                need="a name for each column",
            )
        )
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    if array.dtype.kind == "f":
        # The shortest text that reads back to the same bits; for float64, csv writes that itself.
        texts = array.astype(object if array.dtype == np.float64 else "U")
        texts[np.isnan(array)] = ""
        array = texts
    with replace_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        if columns is not None:
            writer.writerow(columns)
        writer.writerows(array.tolist())


def _rows(path: Path, content: bytes, delimiter: str) -> tuple[list[list[str]], list[int]]:
    """Return the cells of each line that is not empty, and the numbers of these lines."""
    rows, lines = [], []
    with reading(path, "is truncated or malformed"):
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(message(f"{path} is not text in UTF-8: {error}")) from error
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        for cells in reader:
            if len(cells) > MOST_COLUMNS:
                raise Damaged(
                    f"line {reader.line_num} has {len(cells)} cells, and the limit is "
                    f"{MOST_COLUMNS}"
                )
            if cells:
                rows.append([cell.strip() for cell in cells])
                lines.append(reader.line_num)
    if not rows:
        raise DataError(message(f"{path} is empty", need="a row of values at least"))
    for cells, line in zip(islice(rows, 1, None), islice(lines, 1, None), strict=True):
        if len(cells) != len(rows[0]):
            raise DataError(
                message(
                    f"{path}, line {line} has {len(cells)} cells",
                    need=f"{len(rows[0])}, as line {lines[0]} has",
                )
            )
    return rows, lines


def _index(key: int | str, columns: tuple[str, ...], path: Path) -> int:
    """Return the index of a column given by index or name."""
    if isinstance(key, str):
        if key in columns:
            return columns.index(key)
    elif -len(columns) <= key < len(columns):
        return key % len(columns)
    raise DataError(
        message(f"{path} has no column {key!r}", need=f"one of {', '.join(columns)}, or its index")
    )


def _number(cell: str) -> float | None:
    """Return the number that a cell holds, or None."""
    try:
        return float(cell)
    except ValueError:
        return None
