"""Values of functions at extreme arguments, computed once with many digits and kept in a file.

An entry belongs to the text of a graph: where a function or its gradient is written otherwise, its
values are computed anew. ``python tests/helpers/extreme_values.py`` writes the file; a test of
``make test-all`` computes a part of the entries again.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FILE", "argument", "kept", "key_of", "named"]

FILE = Path(__file__).parents[1] / "ops" / "extreme_values.json.xz"
Values = dict[str, "list[float] | None"]


def named(graph: Any, *words: object) -> str:
    """Return the name of the entries of a graph."""
    digest = hashlib.sha256(str(graph).encode()).hexdigest()[:16]
    return " ".join([*map(str, words), digest])


def key_of(x: Any) -> str:
    """Return the text of an argument, or of a tuple of them, with all its digits."""
    if isinstance(x, tuple):
        return ",".join(map(key_of, x))
    if isinstance(x, (int, float)):
        return float(x).hex()
    sign, mantissa, exponent, _ = x._mpf_
    return f"{'-' if sign else ''}{int(mantissa):x}p{int(exponent):x}"


def argument(key: str) -> Any:
    """Return the argument, or the tuple of them, that a text is of."""
    import mpmath

    if "," in key:
        return tuple(map(argument, key.split(",")))
    if "." in key or "n" in key:  # a float: 0x1.8p+1, inf, nan
        return float.fromhex(key)
    mantissa, exponent = key.split("p")
    with mpmath.workprec(max(64, 4 * len(mantissa))):
        return mpmath.ldexp(mpmath.mpf(int(mantissa, 16)), int(exponent, 16))


@cache
def kept() -> dict[str, Values]:
    """Return the entries of the file: arguments and values, by the names of graphs."""
    if not FILE.exists():
        return {}
    entries: dict[str, Values] = json.loads(lzma.decompress(FILE.read_bytes()))
    return entries


def _write() -> None:
    """Compute the values at all arguments that the tests of `make test` use."""
    folder = FILE.parent
    sys.path[:0] = [str(folder), str(folder.parents[1]), str(Path(__file__).parent)]
    FILE.unlink(missing_ok=True)
    import test_extremes as tests

    entries: dict[str, Values] = {}
    for kind, parameters in (
        (tests.Truth, tests.cases()),
        (tests.TupleTruth, tests.tuple_cases()),
    ):
        for parameter in parameters:
            name, i = parameter.values
            if kind is tests.Truth:
                tests.check(name, i)
            else:
                tests.check_tuples(name, i, 5)
            truth = tests.truth_of(kind, name, i)
            entries[truth.name] = dict(sorted(truth.known.items()))
    text = json.dumps(dict(sorted(entries.items())), separators=(",", ":"))
    FILE.write_bytes(lzma.compress(text.encode(), preset=9))


if __name__ == "__main__":
    _write()
