"""Steps that hold bodies: loops and branches, whose bodies' steps C runs again and again.

A body is a program of its own: a plan bound to the sizes of the call, with its own arena. Before
each run C (`mg_loop`, `mg_branch`) sets the cells that hold addresses of rows, carries and reads.
Where a step of the body runs in Python, so does the loop, by its array expression.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...ir import dims
from ...ir.graph import Graph
from ...ir.interpret import body_function
from ...ir.plan import Step
from ...ir.types import Type
from .memory import Address, address_of, aligned_empty
from .support import support

_READ, _ROW, _BEFORE, _AFTER = range(4)


class Cell(ctypes.Structure):
    """Where an address goes: a cell of the body's program, and what of the loop it is of."""

    _fields_ = (
        ("cell", ctypes.c_void_p),
        ("kind", ctypes.c_int64),
        ("argument", ctypes.c_int64),  # of the step; the number of a carry for carries
        ("stride", ctypes.c_int64),
    )


class Carry(ctypes.Structure):
    """A carry of a loop: its addresses before, during and after the iterations."""

    _fields_ = (
        ("start", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("buffers", ctypes.c_void_p * 2),
        ("bytes", ctypes.c_int64),
    )


class Rows(ctypes.Structure):
    """A stack of rows that is zero where no iteration writes it."""

    _fields_ = (("argument", ctypes.c_int64), ("bytes", ctypes.c_int64))


class Nest(ctypes.Structure):
    """A body's program, and the arguments that are set before each run.

    Attributes
    ----------
    bound, parts
        The body, and its cells, carries and rows.
    """

    bound: BodyProgram
    parts: tuple[Sequence[Cell], Sequence[Carry], Sequence[Rows]]

    _fields_ = (
        ("steps", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("cells", ctypes.c_void_p),
        ("cell_count", ctypes.c_int64),
        ("carries", ctypes.c_void_p),
        ("carry_count", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("row_count", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("reverse", ctypes.c_int64),
        ("flag", ctypes.c_int64),
        ("pace", ctypes.c_int64 * 3),  # C's own: how often it looks at the clock
    )


class Choice(ctypes.Structure):
    """The bodies of a branch.

    Attributes
    ----------
    members
        Their tables.
    """

    members: Sequence[Nest]

    _fields_ = (
        ("nests", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("results", ctypes.c_int64),
        ("index_bytes", ctypes.c_int64),
        ("unsigned_index", ctypes.c_int64),
    )


_FLAGS = {"": 0, "carry": 1, "stack": 2}


class BodyProgram(Protocol):
    """A body bound to sizes, whose steps C can run."""

    @property
    def is_program(self) -> bool:
        """Whether all its steps are one call into C, with nothing to check or to write after."""
        ...

    @property
    def may_fail(self) -> bool:
        """Whether a step may stop the program before its end."""
        ...

    def program_steps(self) -> tuple[int, int]:
        """Return the address of the list of steps, and their number."""
        ...

    def feed_addresses(self) -> list[list[int]]:
        """Return for each feed the addresses of the cells that hold its own."""
        ...

    def result_addresses(self) -> list[list[int]]:
        """Return for each result the addresses of the cells that hold its own."""
        ...


def loop_step(step: Step, sizes: Mapping[str, int], keep: list[Any]) -> tuple[int, int] | None:
    """Return the function and the first cell of a loop; the others are its results and operands."""
    attrs = step.node.attrs
    bound = _program(attrs["body"], sizes)
    if bound is None:
        return None
    carries, stacks = attrs["carries"], attrs["stacks"]
    results = len(step.outputs)
    cells = []
    for place, addresses in enumerate(bound.feed_addresses()):
        kind, argument, stride = _READ, results + place, 0
        if place < carries:
            kind, argument = _BEFORE, place
        elif place < carries + stacks:
            kind, stride = _ROW, _row_bytes(step.inputs[place].type)
        cells += [Cell(address, kind, argument, stride) for address in addresses]
    for place, addresses in enumerate(bound.result_addresses()):
        kind, argument, stride = _AFTER, place, 0
        if place >= carries:
            kind, stride = _ROW, _row_bytes(step.outputs[place].type)
        cells += [Cell(address, kind, argument, stride) for address in addresses]
    loop_carries = []
    for place in range(carries):
        size = int(step.outputs[place].type.bytes)
        memory = [aligned_empty(max(1, size)) for _ in range(2)]
        keep.append(memory)
        buffers = (ctypes.c_void_p * 2)(*map(address_of, memory))
        loop_carries.append(Carry(results + place, place, buffers, size))
    rows = [Rows(place, int(step.outputs[place].type.bytes)) for place in range(carries, results)]
    if stacks:
        length = int(step.inputs[carries].type.shape[0])
    else:
        bounds = attrs["length"]
        length = -1 if bounds is None else _number(bounds, sizes)
    nest = _nest(bound, cells, loop_carries, rows, keep)
    nest.length, nest.reverse, nest.flag = length, bool(attrs["reverse"]), _FLAGS[attrs["flag"]]
    keep.append(nest)
    return _function("mg_loop", [bound]), Address(ctypes.addressof(nest), nest)


def branch_step(step: Step, sizes: Mapping[str, int], keep: list[Any]) -> tuple[int, int] | None:
    """Return the function and the first cell of a branch; the others are results and operands."""
    results = len(step.outputs)
    nests, programs = [], []
    for body in step.node.attrs["bodies"]:
        bound = _program(body, sizes)
        if bound is None:
            return None
        cells = [
            Cell(address, _READ, argument, 0)
            for argument, addresses in [
                *enumerate(bound.result_addresses()),
                *enumerate(bound.feed_addresses(), results + 1),  # the index stands before
            ]
            for address in addresses
        ]
        nests.append(_nest(bound, cells, [], [], keep))
        programs.append(bound)
    table = (Nest * len(nests))(*nests)
    dtype = step.inputs[0].type.dtype
    choice = Choice(
        ctypes.addressof(table), len(nests), results, dtype.itemsize, dtype.kind == "u"
    )
    choice.members = nests
    keep += [table, choice]
    return _function("mg_branch", programs), Address(ctypes.addressof(choice), choice)


def _function(name: str, bodies: Sequence[BodyProgram]) -> int:
    """Return the address of what runs bodies; one that may fail has a name of its own."""
    failing = any(bound.may_fail for bound in bodies)
    return support().address(f"{name}_may_fail" if failing else name)


def _program(body: Graph, sizes: Mapping[str, int]) -> BodyProgram | None:
    """Return a body bound to sizes, or None where a step of it does not run in C."""
    function = body_function(body)
    if function is None:
        return None
    bound: BodyProgram = function.bound_to(sizes)
    return bound if bound.is_program else None


def _nest(
    bound: BodyProgram,
    cells: Sequence[Cell],
    carries: Sequence[Carry],
    rows: Sequence[Rows],
    keep: list[Any],
) -> Nest:
    steps, count = bound.program_steps()
    tables: list[tuple[Any, Sequence[Any]]] = [(Cell, cells), (Carry, carries), (Rows, rows)]
    arrays = [(kind * max(1, len(members)))(*members) for kind, members in tables]
    keep += [bound, *arrays]
    at = [ctypes.addressof(array) for array in arrays]
    nest = Nest(steps, count, at[0], len(cells), at[1], len(carries), at[2], len(rows), 1, 0, 0)
    nest.bound, nest.parts = bound, (cells, carries, rows)
    return nest


def _row_bytes(type_: Type) -> int:
    length = int(type_.shape[0])
    return int(type_.bytes) // length if length else 0


def _number(extent: Any, sizes: Mapping[str, int]) -> int:
    return int(dims.evaluate(extent, sizes)) if isinstance(extent, dims.Dim) else int(extent)
