"""Sizes: putting numbers, or other extents, in the place of dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import ShapeError, message
from ..records import record
from .algebra import Atom, Dim, Extent, Floor, atom_dim, floor_div, minimum, terms_of


def evaluate(extent: Extent, sizes: Mapping[str, int]) -> int:
    """Compute an extent for given sizes.

    extent (int or Dim):
    sizes (mapping of str to int): The size of every dimension that occurs, by name; anonymous ones
        as they print (``"?0"``).
    returns (int):
    raises ShapeError: If a size is missing, or a divisor is zero.

    Examples
    --------
    >>> evaluate(2 * Dim("batch") + 1, {"batch": 100})
    201
    """
    if isinstance(extent, int):
        return extent
    try:
        name = extent.name
        return _value(extent, sizes) if name is None else sizes[name]
    except KeyError as missing:
        raise ShapeError(
            message(
                f"no size is given for the dimension {missing.args[0]!r}",
                need=f"sizes of {', '.join(sorted(names(extent)))}",
            )
        ) from None
    except ZeroDivisionError:
        bindings = ", ".join(f"{name} = {sizes[name]}" for name in sorted(names(extent)))
        raise ShapeError(message(f"{extent} divides by zero for {bindings}")) from None


def _value(extent: Extent, sizes: Mapping[str, int]) -> int:
    total = 0
    for monomial, count in terms_of(extent):
        for atom in monomial:
            if isinstance(atom, str):
                count *= sizes[atom]
            elif isinstance(atom, Floor):
                count *= _value(atom.numerator, sizes) // _value(atom.divisor, sizes)
            else:
                count *= min(_value(atom.argument, sizes), 0)
        total += count
    return total


def names(extent: Extent) -> frozenset[str]:
    """Collect the dimensions that occur in an extent, by name.

    Examples
    --------
    >>> sorted(names(Dim("n") // 2 + Dim("m")))
    ['m', 'n']
    """
    if isinstance(extent, int):
        return frozenset()
    if extent.name is not None:
        return frozenset((extent.name,))
    all_names: set[str] = set()
    for monomial, _ in terms_of(extent):
        for atom in monomial:
            if isinstance(atom, str):
                all_names.add(atom)
            elif isinstance(atom, Floor):
                all_names |= names(atom.numerator) | names(atom.divisor)
            else:
                all_names |= names(atom.argument)
    return frozenset(all_names)


def substitute(extent: Extent, mapping: Mapping[str, Extent]) -> Extent:
    """Put extents in the place of dimensions; those without one stay.

    Examples
    --------
    >>> substitute(Dim("n") // 2 + Dim("m"), {"n": 4 * Dim("k")})
    2*k + m
    """
    if isinstance(extent, int):
        return extent
    if extent.name is not None:
        return mapping.get(extent.name, extent)
    total: Extent = 0
    for monomial, count in terms_of(extent):
        product: Extent = count
        for atom in monomial:
            product = product * _substituted(atom, mapping)
        total = total + product
    return total


def _substituted(atom: Atom, mapping: Mapping[str, Extent]) -> Extent:
    if isinstance(atom, str):
        return mapping[atom] if atom in mapping else atom_dim(atom)
    if isinstance(atom, Floor):
        return floor_div(substitute(atom.numerator, mapping), substitute(atom.divisor, mapping))
    return minimum(substitute(atom.argument, mapping), 0)


@record(frozen=True)
class BindingFailure:
    """Why actual shapes do not fit symbolic ones.

    index (int): Which shape.
    axis (int or None): Where in it; None if the ranks differ.
    expected (int or Dim): The extent (or the rank) that it should have.
    actual (int): The one that it has.
    reason (str): The same in words.
    """

    index: int
    axis: int | None
    expected: Extent
    actual: int
    reason: str

    def __str__(self) -> str:
        return self.reason


def solve(
    shapes: Sequence[tuple[Extent, ...]],
    actual: Sequence[tuple[int, ...]],
    names: Sequence[str] | None = None,
) -> dict[str, int] | BindingFailure:
    """Derive the sizes of dimensions from actual shapes.

    Plain names are read off first; then compound extents in one unknown, such as ``2*n + 1``, give
    that; all others are checked.

    shapes (sequence of shapes): The symbolic ones.
    actual (sequence of tuples of int): As many.
    names (sequence of str, optional): What failures call the shapes' owners: "input 0" and so on
        otherwise.
    returns (dict of str to int, or BindingFailure): The size of every dimension, by name.

    Examples
    --------
    >>> n = Dim("n")
    >>> solve([(n, 784), (2 * n,)], [(100, 784), (200,)])
    {'n': 100}
    >>> print(solve([(n, 784), (2 * n,)], [(100, 784), (100,)]).reason)
    axis 0 is 100, but 2*n is 200 for n = 100
    """
    sizes: dict[str, int] = {}
    origin: dict[str, tuple[int, int]] = {}
    compound: list[tuple[int, int, Dim, int]] = []
    for index, (shape, extents) in enumerate(zip(shapes, actual, strict=True)):
        if len(shape) != len(extents):
            return BindingFailure(
                index,
                None,
                len(shape),
                len(extents),
                (f"it has {_axes(len(extents))}, but {_axes(len(shape))} are wanted"),
            )
        for axis, (extent, size) in enumerate(zip(shape, extents, strict=True)):
            if isinstance(extent, int):
                if extent != size:
                    return BindingFailure(
                        index, axis, extent, size, f"axis {axis} is {size}, not {extent}"
                    )
            elif extent.name is None:
                compound.append((index, axis, extent, size))
            elif sizes.setdefault(extent.name, size) != size:
                first, where = origin[extent.name]
                owner = f"input {first}" if names is None else names[first]
                place = "" if first == index else f" of {owner}"
                return BindingFailure(
                    index,
                    axis,
                    extent,
                    size,
                    (
                        f"axis {axis} is {size}, but {extent} is {sizes[extent.name]} "
                        f"by axis {where}{place}"
                    ),
                )
            else:
                origin.setdefault(extent.name, (index, axis))
    return _solve_compound(compound, sizes) if compound else sizes


def _axes(count: int) -> str:
    return f"{count} {'axis' if count == 1 else 'axes'}"


def _solve_compound(
    compound: list[tuple[int, int, Dim, int]], sizes: dict[str, int]
) -> dict[str, int] | BindingFailure:
    waiting = compound
    progress = True
    while progress:
        progress = False
        for index, axis, extent, size in waiting:
            unknown = names(extent) - sizes.keys()
            if len(unknown) != 1:
                continue
            (name,) = unknown
            value = _root(substitute(extent, sizes), name, size)
            if value is not None:
                if value < 0:
                    return BindingFailure(
                        index,
                        axis,
                        extent,
                        size,
                        (
                            f"axis {axis} is {size}, but {extent} is at least "
                            f"{evaluate(extent, {**sizes, name: 0})}"
                        ),
                    )
                sizes[name] = value
                progress = True
    for index, axis, extent, size in compound:
        unknown = names(extent) - sizes.keys()
        if unknown:
            return BindingFailure(
                index,
                axis,
                extent,
                size,
                (
                    f"axis {axis} is {size}, and {', '.join(sorted(unknown))} cannot be derived "
                    f"from {extent}"
                ),
            )
        value = evaluate(extent, sizes)
        if value != size:
            bindings = ", ".join(f"{name} = {sizes[name]}" for name in sorted(names(extent)))
            return BindingFailure(
                index,
                axis,
                extent,
                size,
                (f"axis {axis} is {size}, but {extent} is {value} for {bindings}"),
            )
    return sizes


def _root(extent: Extent, name: str, size: int) -> int | None:
    """Solve ``extent == size`` for the one name, where the extent is a multiple plus an int.

    Where that does not come out even, the nearest int below is returned: the check that follows
    finds the extent to be another.
    """
    slope = constant = 0
    for monomial, count in terms_of(extent):
        if not monomial:
            constant = count
        elif monomial == (name,):
            slope = count
        else:
            return None
    return (size - constant) // slope if slope else None
