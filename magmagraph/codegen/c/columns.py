"""C for a region that folds columns: along all loops but the innermost, whose elements it keeps.

A kernel takes a strip of the columns at a time, and a band of the rows. Rows are folded element by
element into a part that stays in the nearest cache: a vector of floats is one load, one operation
and one store, where sums in double take four times as much. The parts of some rows go into a line
of the band. Where one band has all rows, a strip is done when its rows are; else lines are joined
when all are. Short rows are taken as one, several side by side (`Region.flat`), so that vectors
are full; their sums are joined with the lines. Memory is read faster in several places at once:
where a row's arithmetic is little, rows are taken together.
"""

from __future__ import annotations

import re

from ..functions.scalar import computing_type
from ..region.parts import costly, late_groups
from .binding import COLUMNS, STACKED
from .c_code import CCode
from .nest import Nest, write_late
from .scalar import combine_expression, identity_expression, widened
from .text import guarded, indent, part_name

__all__ = ["columns_text"]

_DECLARED = re.compile(r"(\w+) = ")


def columns_text(code: CCode) -> str:
    """Return the functions of a region that folds columns."""
    rows = _rows(code)
    code.begin_finish()
    done = _done(code)
    whole = _finish(code)
    code.finishing = False
    return done + rows + whole


def _rows(code: CCode) -> str:
    """Return the function that does items `begin` to `end`: strips of bands."""
    region = code.region
    nest = Nest(code, [code.vector], code.walk.passes[0], region.folds, [
        output for output in region.outputs if output not in region.late
    ])
    for name, what in (
        ("width", "strip_width"), ("columns", "row_width"), ("bands", "band_count"),
        ("height", "band_height"), ("rows", "row_count"), ("group", "row_group"),
    ):
        code.number(name, what)
    code.number("line", "line_size", 0)
    begin: list[str] = []
    flush: list[str] = []
    parts: list[str] = []
    for fold in region.folds:
        line, part = code.fold_name(fold), part_name(code.fold_name(fold))
        wide, dtype = code.accumulator(fold), fold.operand.dtype
        parts.append(f"{computing_type(dtype)} {part}[{COLUMNS}];")
        begin += [
            f"{line}[c] = {identity_expression(fold.node, wide)};",
            f"{part}[c] = {identity_expression(fold.node, dtype)};",
        ]
        seen = f"{widened(wide, dtype)}{part}[c]"
        flush += [
            f"{line}[c] = {combine_expression(fold.node, wide, f'{line}[c]', seen)};",
            begin[-1],
        ]
    item = [
        "const int64_t first = strip * width, top = band * height;",
        "const int64_t bottom = top + height < rows ? top + height : rows;",
        "const int64_t across = columns - first < width ? columns - first : width;",
        # Where a strip has all rows, its sums are not kept: the next one's take their place.
        "const int64_t at = alone ? chunk * line : band * line, shift = alone ? 0 : first;",
        *_lines(code),
        *parts,
        *_across(begin),
        "for (int64_t row = top; row < bottom;) {",
        *indent([
            f"const int64_t stop = row + {STACKED} < bottom ? row + {STACKED} : bottom;",
            *_together(code, nest),
            "for (; row < stop; row++) {",
            *indent([*_position(code, "row"), *_width(code), *nest.lines()]),
            "}",
            *_across(flush),
        ]),
        "}",
        *guarded("alone", [
            f"{code.name}_done(in, out, workspace, tail, first, across, at, shift);"
        ]),
        *guarded("++band == bands", ["band = 0;", "strip++;"]),
    ]
    body = [*code.top, *guarded("begin < end", [
        "const int alone = bands == 1 && group == 1;",
        "int64_t strip = begin / bands, band = begin % bands;",
        "for (int64_t item = begin; item < end; item++) {",
        *indent(item),
        "}",
    ])]
    return code.function("rows", body, "int64_t chunk, int64_t begin, int64_t end")


def _lines(code: CCode) -> list[str]:
    """Return the lines that find the sums of a strip, in double, `at` bytes from the first."""
    lines = []
    for position, fold in enumerate(code.region.folds):
        line, kind = code.fold_name(fold), computing_type(code.accumulator(fold))
        offset = code.number(f"{line}_offset", "line_place", position, 0)
        lines.append(f"{kind} *{line} = ({kind} *)(workspace + {offset} + at) + shift;")
    return lines


def _across(lines: list[str]) -> list[str]:
    head = "for (int64_t c = 0; c < across; c++) {"
    return ["#pragma omp simd", head, *indent(lines), "}"]


def _position(code: CCode, row: str) -> list[str]:
    """Return the lines that say where a row is: the indices of the outer loops."""
    first, *others = range(code.vector)
    if not others:
        return [f"const int64_t i{first} = {row};"]
    lines = [f"int64_t rest = {row};"]
    for loop in reversed(others):
        extent = code.extent(loop)
        lines += [f"const int64_t i{loop} = rest % {extent};", f"rest /= {extent};"]
    return [*lines, f"const int64_t i{first} = rest;"]


def _width(code: CCode) -> list[str]:
    """Return the lines that say how much of the strip a row has."""
    if not code.region.flat:
        return ["const int64_t wide = across;"]
    elements = code.number("elements", "element_count")
    return [  # the last of the rows that were put side by side may be missing
        f"const int64_t left = {elements} - row * columns - first;",
        "const int64_t wide = left < across ? left : across;",
    ]


def _count(code: CCode) -> int:
    """Return how many rows are taken together."""
    work = [node for node in code.walk.passes[0] if node not in code.region.accesses]
    if len(work) > 4 or code.region.counters or any(map(costly, work)):
        return 1
    return 4 if work else 8


def _together(code: CCode, nest: Nest) -> list[str]:
    """Return the loop over rows that are taken together: one loop along them all."""
    count = _count(code)
    if count == 1 or code.vector > 1:
        return []
    head: list[str] = []
    inside: list[str] = []
    outer, inner = nest.blocks
    for i in range(count):
        before = [*_position(code, f"row + {i}"), *outer.before]
        own = {name: f"{name}_{i}" for line in before for name in _DECLARED.findall(line)[:1]}
        names = re.compile(r"\b(" + "|".join(own) + r")\b")

        def renamed(
            lines: list[str], names: re.Pattern[str] = names, own: dict[str, str] = own
        ) -> list[str]:
            return [names.sub(lambda match: own[match.group()], line) for line in lines]

        head += renamed(before)
        inside += ["{", *indent(renamed([*inner.before, *inner.after])), "}"]
    limit = f"row + {count} <= stop"
    if code.region.flat:
        elements = code.number("elements", "element_count")
        limit += f" && (row + {count}) * columns <= {elements}"
    return [
        f"for (; {limit}; row += {count}) {{",
        *indent([
            *head,
            "#pragma omp simd",
            f"for (int64_t i{code.vector} = 0; i{code.vector} < across; i{code.vector}++) {{",
            *indent(inside),
            "}",
        ]),
        "}",
    ]


def _done(code: CCode) -> str:
    """Return the function that writes the remaining rows of a strip."""
    body: list[str] = []
    for outputs in late_groups(code.region, code.region.late):
        body += write_late(code, outputs)
    body = [*_lines(code), *code.top, *body]
    return code.function("done", body, "int64_t first, int64_t wide, int64_t at, int64_t shift")


def _finish(code: CCode) -> str:
    """Return the function that combines lines of partial results, and their adjacent parts."""
    joins: list[str] = []
    for position, fold in enumerate(code.region.folds):
        name, dtype = code.fold_name(fold), code.accumulator(fold)
        kind = computing_type(dtype)
        count = code.number(f"{name}_count", "line_length", position)
        update = combine_expression(fold.node, dtype, f"{name}[k]", "other[k]")
        joins += ["{", *indent([
            f"const {kind} *other = ({kind} *)((char *){name} + band * line) + side * {count};",
            "#pragma omp simd",
            f"for (int64_t k = 0; k < {count}; k++) {{",
            f"    {name}[k] = {update};",
            "}",
        ]), "}"]
    extent = code.extent(code.vector)
    body = [
        "const int64_t at = 0, shift = 0;",
        *_lines(code),
        "for (int64_t band = 0; band < bands; band++) {",
        "    for (int64_t side = band ? 0 : 1; side < group; side++) {",
        *indent(indent(joins)),
        "    }",
        "}",
        f"for (int64_t first = 0; first < {extent}; first += width) {{",
        f"    const int64_t wide = {extent} - first < width ? {extent} - first : width;",
        f"    {code.name}_done(in, out, workspace, tail, first, wide, 0, first);",
        "}",
    ]
    body = guarded("bands > 1 || group > 1", body)
    return code.function("finish", body, "int64_t chunks")
