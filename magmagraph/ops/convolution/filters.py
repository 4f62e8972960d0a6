"""The constants of Winograd's minimal filtering, as `winograd.py` says, in plain numbers.

This module needs Python's own library alone, since C is written by it before anything else is
installed.
"""

from __future__ import annotations

__all__ = ["MATRICES", "TILES"]

Matrix = tuple[tuple[float, ...], ...]

TILES = {"winograd-2x2": 2, "winograd-4x4": 4}

# Of F(m, 3), by m: of the input, of the filter, and of the result.
MATRICES: dict[int, tuple[Matrix, Matrix, Matrix]] = {
    2: (
        ((1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, -1.0, 1.0, 0.0),
         (0.0, 1.0, 0.0, -1.0)),
        ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0)),
        ((1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, -1.0)),
    ),
    4: (
        ((4.0, 0.0, -5.0, 0.0, 1.0, 0.0), (0.0, -4.0, -4.0, 1.0, 1.0, 0.0),
         (0.0, 4.0, -4.0, -1.0, 1.0, 0.0), (0.0, -2.0, -1.0, 2.0, 1.0, 0.0),
         (0.0, 2.0, -1.0, -2.0, 1.0, 0.0), (0.0, 4.0, 0.0, -5.0, 0.0, 1.0)),
        ((6 / 24, 0.0, 0.0), (-4 / 24, -4 / 24, -4 / 24), (-4 / 24, 4 / 24, -4 / 24),
         (1 / 24, 2 / 24, 4 / 24), (1 / 24, -2 / 24, 4 / 24), (0.0, 0.0, 1.0)),
        ((1.0, 1.0, 1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, 2.0, -2.0, 0.0),
         (0.0, 1.0, 1.0, 4.0, 4.0, 0.0), (0.0, 1.0, -1.0, 8.0, -8.0, 1.0)),
    ),
}  # fmt: skip
