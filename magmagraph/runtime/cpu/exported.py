"""Bound plans as C tables: the steps, the arguments of their functions, memory, and constants.

What runs in Python by addresses is written down by names: a cell that is an `Address` knows what is
there, and one that is an `Entry` its function and the library whose source is written beside.
"""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.plan import Place, Plan, Slot, Value
from ...ir.records import record
from .bound import NumpyBound
from .compiler import Library
from .memory import Address
from .nested import Choice, Nest
from .products.products import tiled_library
from .sources import SUPPORT_HEADER, support_parts
from .support import Entry, Program, support
from .threads import SPIN_NANOSECONDS

__all__ = ["Array", "Image", "Labels", "c_string", "c_type"]

_C_TYPES = {
    "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
    "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
    "uint64": "uint64_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double", "complex64": "float", "complex128": "double",
}  # fmt: skip
# Functions and variables that other files see: their definitions begin a line.
_EXTERNAL = re.compile(
    r"^(?!static|typedef|extern|else|return)[a-z][\w \*]*?\b(\w+)(?:\(| = )", re.MULTILINE
)
_ROUTINE = re.compile(r"^void (mg_\w+)\(void\*\* \w+\)", re.MULTILINE)
_ALIGNMENT = 64
_REALS = {"s": np.dtype(np.float32), "d": np.dtype(np.float64)}
_GUARDED = {
    "float16": "MG_FLOAT16", "bfloat16": "MG_BFLOAT16", "float32": "MG_FLOAT32",
    "float64": "MG_FLOAT64", "complex64": "MG_FLOAT32", "complex128": "MG_FLOAT64",
}  # fmt: skip


def c_type(dtype: np.dtype[Any]) -> str:
    """Return the C type of an element; complex numbers are pairs, 16-bit floats their bits."""
    return _C_TYPES[dtype.name]


def c_string(text: str) -> str:
    """Return a string literal."""
    plain = text.encode("ascii", "replace").decode()
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.replace("??", '?""?')  # no trigraphs


@record(frozen=True)
class Array:
    """An array that a call takes or gives, or a variable: its name, dtype and extents."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@record(frozen=True, eq=False)
class Labels:
    """Labels of classes that a call is fed, to be checked.

    Attributes
    ----------
    feed, input
        The input's position and name.
    dtype, count
        Of the labels.
    classes, ignored, function
        See `class_labels`.
    bound
        What makes the labels of the feed; None where they are all that is fed.
    """

    feed: int
    input: str
    dtype: np.dtype[Any]
    count: int
    classes: int
    ignored: int | None
    function: str
    bound: NumpyBound | None


@record(frozen=True)
class _Steps:
    """The steps of a bound plan in C.

    Attributes
    ----------
    name
        Of their list.
    before
        How many stand before the commit point.
    order
        The number in the plan of each.
    arena
        Where its arena begins.
    """

    name: str
    before: int
    order: tuple[int, ...]
    arena: int


class Image:
    """The C of some bound plans: tables, and the libraries that their steps are functions of.

    Parameters
    ----------
    prefix
        What external names begin with.
    blas
        Whether products run by BLAS where they do in Python; else all run by our own.
    """

    def __init__(self, prefix: str, blas: bool) -> None:
        self.prefix = prefix
        self.blas = blas
        self.variables: dict[int, tuple[Array, int]] = {}  # by the state's identity
        self.states: list[Any] = []
        self.threads = 1
        self._libraries: dict[int, Library] = {}
        self._prototypes: dict[str, None] = {}
        self._lines: list[str] = []
        self._places: list[tuple[str, int]] = []
        self._size = 0
        self._data: dict[bytes, str] = {}
        self._programs = 0
        self._nests = 0
        self._calls = 0
        self._cells: list[tuple[int, int, str]] = []  # address, bytes and name of each table

    # ------------------------------------------------------------------ memory

    def _memory(self, size: int) -> int:
        """Return where new memory of some bytes begins."""
        at = self._size
        self._size += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        return at

    def variable(self, state: Any, name: str) -> None:
        """Give a variable its place."""
        data = state.data
        if id(state) not in self.variables:
            array = Array(name, data.dtype, data.shape)
            self.variables[id(state)] = (array, self._memory(data.nbytes))
            self.states.append(state)

    def _constant(self, array: np.ndarray) -> str:
        """Return the C name of an array's content."""
        content = np.ascontiguousarray(array).tobytes() or b"\0"
        name = self._data.get(content)
        if name is None:
            name = self._data[content] = f"data_{len(self._data)}"
            kind, size = ("uint32_t", 4) if len(content) % 4 == 0 else ("uint8_t", 1)
            words = np.frombuffer(content, f"<u{size}")
            self._lines.append(
                f"static const {kind} {name}[{len(words)}] __attribute__((aligned(64))) = {{"
            )
            self._lines += [
                "    " + ", ".join(f"0x{word:x}" for word in words[i : i + 12]) + ","
                for i in range(0, len(words), 12)
            ]
            self._lines.append("};")
        return name

    # ------------------------------------------------------------------ functions

    def _number(self, library: Library) -> int:
        """Return the number of a library's file; -1 is the support library."""
        if library is support().library:
            return -1
        if id(library) not in self._libraries:
            if library.products is not None:
                self._number(library.products)
            self._libraries[id(library)] = library
        return [*self._libraries].index(id(library))

    def _external(self, library: Library, name: str) -> str:
        number = self._number(library)
        return name if number < 0 else f"{self.prefix}_{number}_{name}"

    def _function(self, entry: Entry, cells: Sequence[int]) -> str:
        """Return the C name of a step's function."""
        name, library = entry.name, entry.library
        if not self.blas and name in ("mg_gemm", "mg_gemm_batch") and cells[10] > 0:
            name, library = f"{name}_tiles", tiled_library(_REALS[library.blas])
        return self._declared(library, name)

    def _declared(self, library: Library, name: str) -> str:
        external = self._external(library, name)
        if self._number(library) >= 0:
            self._prototypes[f"void {external}(void** arguments);"] = None
        return external

    # ------------------------------------------------------------------ programs

    def _program(self, bound: NumpyBound, texts: Sequence[str] = ()) -> _Steps:
        """Write the steps of a bound plan."""
        self._programs += 1
        number = self._programs
        arena = self._memory(bound.plan.arena or 0)
        before, after = bound.programs()
        rows, order = [], []
        for part, (program, numbers) in enumerate((*before, *after)):
            name = f"cells_{number}_{part}"
            self._cells.append((ctypes.addressof(program.cells), 8 * len(program.cells), name))
            rows += self._steps(name, program, numbers, bound, arena, texts)
            order += numbers
        self._lines.append(f"static const mg_step steps_{number}[] = {{")
        self._lines += rows or ["    { 0, 0 },"]
        self._lines.append("};")
        return _Steps(f"steps_{number}", sum(len(p) for p, _ in before), tuple(order), arena)

    def _steps(
        self, name: str, program: Program, numbers: Sequence[int], bound: NumpyBound, arena: int,
        texts: Sequence[str],
    ) -> list[str]:  # fmt: skip
        """Write the arguments of a program; return the rows of its steps."""
        lines, rows, at = [], [], 0
        for (function, cells), step in zip(program.steps, numbers, strict=True):
            assert isinstance(function, Entry)
            words = [self._word(word, f"{name}[{at + i}]", bound, arena)
                     for i, word in enumerate(cells)]  # fmt: skip
            text = texts[step] if step < len(texts) else ""
            lines += [f"    /* {step}: {_in_comment(text)} */", f"    {', '.join(words)},"]
            rows.append(f"    {{ {self._function(function, cells)}, {name} + {at} }},")
            at += len(cells)
        self._lines.append(f"static void* {name}[{max(at, 1)}] = {{")
        self._lines += lines or ["    0,"]
        self._lines.append("};")
        return rows

    def _word(self, word: int, cell: str, bound: NumpyBound, arena: int) -> str:
        """Return the initial value of a cell; what lies in memory is set when it is there."""
        if isinstance(word, Entry):
            return f"(void*){self._external(word.library, word.name)}"
        if not isinstance(word, Address):
            return f"I({int(word)})" if word else "0"
        what = word.what
        if isinstance(what, Nest):
            return f"&{self._nest(what)}"
        if isinstance(what, Choice):
            return f"(void*)&{self._choice(what)}"
        if isinstance(what, np.ndarray):
            return f"(void*){self._constant(what)}"
        return self._in_slot(what, cell, bound, arena)

    def _in_slot(self, slot: Slot, cell: str, bound: NumpyBound, arena: int) -> str:
        if slot.place is Place.CONSTANT:
            array = bound.held(slot.index)
            assert array is not None
            return f"(void*){self._constant(array)}"
        if slot.place is Place.ARENA:
            assert slot.offset is not None
            self._places.append((cell, arena + slot.offset))
        elif slot.place is Place.STATE:
            self._places.append((cell, self.variables[id(slot.owner)][1]))
        return "0"

    def _cell(self, address: int) -> str:
        """Return the C name of a cell of a program that is written."""
        for start, size, name in self._cells:
            if start <= address < start + size:
                return f"{name}[{(address - start) // 8}]"
        raise AssertionError("a cell of no program")

    # ------------------------------------------------------------------ loops and branches

    def _nest(self, nest: Nest) -> str:
        initial = self._nest_tables(nest)
        name = f"nest_{self._nests}"
        self._lines.append(f"static mg_nest {name} = {initial};")
        return name

    def _nest_tables(self, nest: Nest) -> str:
        """Write what a body's table points at; return its own initial value."""
        bound: Any = nest.bound
        steps = self._program(bound)
        self._nests += 1
        number = self._nests
        cells, carries, rows = nest.parts
        cell_rows = [
            f"{{ &{self._cell(c.cell)}, {c.kind}, {c.argument}, {c.stride} }}" for c in cells
        ]
        carry_rows = []
        for i, carry in enumerate(carries):
            for side in range(2):
                place = f"carries_{number}[{i}].buffers[{side}]"
                self._places.append((place, self._memory(carry.bytes)))
            carry_rows.append(f"{{ {carry.start}, {carry.end}, {{ 0, 0 }}, {carry.bytes} }}")
        row_rows = [f"{{ {row.argument}, {row.bytes} }}" for row in rows]
        parts = []
        for kind, name, members in (
            ("const mg_cell", "loop_cells", cell_rows),
            ("mg_carry", "carries", carry_rows),
            ("const mg_rows", "rows", row_rows),
        ):
            if members:
                inside = ", ".join(members)
                self._lines.append(f"static {kind} {name}_{number}[] = {{ {inside} }};")
            parts.append(f"{name}_{number}, {len(members)}" if members else "0, 0")
        flags = f"{nest.length}, {nest.reverse}, {nest.flag}, {{ 0, 0, 0 }}"
        return f"{{ {steps.name}, {len(steps.order)}, {', '.join(parts)}, {flags} }}"

    def _choice(self, choice: Choice) -> str:
        tables = [self._nest_tables(nest) for nest in choice.members]
        self._nests += 1
        number = self._nests
        self._lines.append(f"static mg_nest nests_{number}[] = {{ {', '.join(tables)} }};")
        self._lines.append(
            f"static const mg_choice choice_{number} = {{ nests_{number}, {len(tables)}, "
            f"{choice.results}, {choice.index_bytes}, {choice.unsigned_index} }};"
        )
        return f"choice_{number}"

    # ------------------------------------------------------------------ calls

    def call(
        self, bound: NumpyBound, feeds: Sequence[Array], results: Sequence[Array],
        texts: Sequence[str], labels: Sequence[Labels],
    ) -> str:  # fmt: skip
        """Write the tables of a call, and return their C name.

        Parameters
        ----------
        bound
            A plan whose steps all have compiled functions.
        feeds, results
            What the call takes and gives.
        texts
            For each step of the plan, what it computes, for comments and messages.
        labels
            What is checked of the feeds.
        """
        self.threads = max(self.threads, bound.plan.threads)
        steps = self._program(bound, texts)
        cells = [
            f"{{ &{self._cell(address)}, {i}, {result} }}"
            for result, places in enumerate((bound.feed_addresses(), bound.result_addresses()))
            for i, addresses in enumerate(places)
            for address in addresses
        ]
        self._calls += 1
        number = self._calls
        checks = [self._labels(each) for each in labels]
        finite = self._finite(bound.plan, steps.arena) if bound.plan.guard else []
        arrays = [
            f"{{ {c_string(a.name)}, {c_string(a.dtype.name)}, {len(a.shape)}, "
            f"{self._shape(a.shape)}, {a.bytes} }}"
            for a in (*feeds, *results)
        ]
        said = [c_string(texts[i]) for i in steps.order]
        fields = []
        for kind, name, members, counted in (
            ("const mg_call_cell", "call_cells", cells, True),
            ("const char* const", "texts", said, False),
            ("const mg_labels", "labels", checks, True),
            ("const mg_finite", "finite", finite, True),
            (f"const {self.prefix}_array", "arrays", arrays, False),
        ):
            if members:
                inside = ",\n    ".join(members)
                self._lines.append(f"static {kind} {name}_{number}[] = {{\n    {inside}\n}};")
            member_table = f"{name}_{number}" if members else "0"
            fields.append(f"{member_table}, {len(members)}" if counted else member_table)
        self._lines.append(
            f"static const mg_program program_{number} = {{ {steps.name}, {steps.before}, "
            f"{len(steps.order)},\n    "
            f"{', '.join(fields)}, {len(feeds)}, {len(results)} }};"
        )
        return f"program_{number}"

    def _shape(self, shape: Sequence[int]) -> str:
        return f"(const int64_t[]){{ {', '.join(map(str, shape))} }}" if shape else "0"

    def _labels(self, labels: Labels) -> str:
        ignored = labels.ignored
        name, count, cells, name_place, result = "0", 0, "0", 0, 0
        if labels.bound is not None:
            bound = labels.bound
            steps = self._program(bound)
            name, count = steps.name, len(steps.order)
            result = self._memory(labels.count * labels.dtype.itemsize)
            for address in bound.result_addresses()[0]:
                self._places.append((self._cell(address), result))
            names = [f"&{self._cell(address)}" for address in bound.feed_addresses()[0]]
            name_place = len(names)
            if names:
                cells = f"(void** const[]){{ {', '.join(names)} }}"
        return (
            f"{{ {labels.feed}, {c_string(labels.input)}, {c_string(labels.function)}, "
            f"{labels.dtype.itemsize}, {int(labels.dtype.kind == 'i')}, {labels.count}, "
            f"{labels.classes}, {int(ignored is not None)}, {ignored or 0}, {name}, {count}, "
            f"{cells}, {name_place}, {result} }}"
        )

    def _finite(self, plan: Plan, arena: int) -> list[str]:
        """Return rows that check results and new values, as `nan="raise"` asks."""
        checks, written = [], set()
        for step in plan.steps[plan.commit :]:
            target = plan.slots[step.outputs[0].slot]
            written.add(target.index)
            state = target.place is Place.STATE
            what = (
                f"the new value of variable '{target.owner.name}'"
                if state
                else f"result {target.owner}"
            )
            checks.append((step.inputs[0], what))
        for i, fetch in enumerate(plan.fetches):
            if fetch.slot not in written:
                checks.append((fetch, f"result {i}"))
        rows = [self._finite_row(plan, value, what, arena) for value, what in checks]
        return [row for row in rows if row]

    def _finite_row(self, plan: Plan, value: Value, what: str, arena: int) -> str:
        slot, dtype = plan.slots[value.slot], value.type.dtype
        if dtype.name not in _GUARDED:
            return ""
        feeds = [s.index for s in plan.slots if s.place is Place.FEED]
        places = {
            Place.ARENA: ("MG_IN_MEMORY", arena + (slot.offset or 0)),
            Place.FEED: ("MG_IN_FEED", feeds.index(slot.index) if slot.index in feeds else 0),
            Place.RESULT: ("MG_IN_RESULT", slot.owner),
        }
        if slot.place is Place.STATE:
            places[slot.place] = ("MG_IN_MEMORY", self.variables[id(slot.owner)][1])
        if slot.place not in places:
            return ""  # a constant, which was looked at when it was made
        where, at = places[slot.place]
        count = math.prod(map(int, value.type.shape)) * (2 if dtype.kind == "c" else 1)
        return f"{{ {where}, {at}, {count}, {_GUARDED[dtype.name]}, {c_string(what)} }}"

    # ------------------------------------------------------------------ files

    def support_files(self) -> dict[str, str]:
        """Return the header of all files, and the pool of threads and the list of steps."""
        declarations, text = support_parts()
        names = sorted(set(_EXTERNAL.findall(text)))
        renamed = "\n".join(f"#define {name} {self.prefix}_{name}" for name in names)
        routines = "\n".join(f"void {name}(void** arguments);" for name in _ROUTINE.findall(text))
        guard = f"{self.prefix}_support_h"
        header = "\n".join(
            [f"#ifndef {guard}", f"#define {guard}", _QUIET, renamed, declarations, _PROTOTYPES,
             routines, "#endif", ""]
        )  # fmt: skip
        include = f'#include "{self.prefix}_support.h"\n'
        return {
            f"{self.prefix}_support.h": header,
            f"{self.prefix}_support.c": include + text,
        }

    def kernel_files(self) -> dict[str, str]:
        """Return the files of the kernels: the sources that Python compiles, with other names."""
        files = {}
        for number, library in enumerate(self._libraries.values()):
            text = library.source.removeprefix(SUPPORT_HEADER)
            lines = [f'#include "{self.prefix}_support.h"']
            lines += [
                f"#define {name} {self.prefix}_{number}_{name}"
                for name in dict.fromkeys(_EXTERNAL.findall(text))
            ]
            files[f"{self.prefix}_kernels_{number}.c"] = "\n".join([*lines, text, ""])
        return files

    def tables(self) -> str:
        """Return the tables, and the functions of the header that need no tables of their own."""
        lines = ["#include <math.h>", f'#include "{self.prefix}_support.h"', "", _TYPES]
        lines += [*self._prototypes, *self._lines]
        pairs = ",\n    ".join(f"{{ (void**)&{cell}, {at} }}" for cell, at in self._places)
        lines.append(f"static const mg_place places[] = {{\n    {pairs or '{ 0, 0 }'}\n}};")
        lines += self._variable_tables()
        lines += [
            f"#define MG_MEMORY {max(self._size, _ALIGNMENT)}ll",
            f"#define MG_PLACES {len(self._places)}u",
            f"#define MG_MOST_THREADS {self.threads}",
            f"#define MG_SPIN {SPIN_NANOSECONDS}",
            *self._joins(),
        ]
        text = (Path(__file__).parent / "exported.c").read_text(encoding="utf-8")
        return "\n".join([*lines, text]).replace("@P@", self.prefix)

    def _variable_tables(self) -> list[str]:
        variables = [self.variables[id(state)] for state in self.states]
        rows = [
            f"    {{ {c_string(a.name)}, {c_string(a.dtype.name)}, {len(a.shape)}, "
            f"{self._shape(a.shape)}, {a.bytes} }},"
            for a, _ in variables
        ]
        offsets = ", ".join(str(at) for _, at in variables)
        return [
            f"static const {self.prefix}_array variables[] = {{",
            *(rows or ["    { 0, 0, 0, 0, 0 },"]),
            "};",
            f"static const int64_t variable_offsets[] = {{ {offsets or '0'} }};",
            f"#define MG_VARIABLES {len(variables)}u",
            f"static const char file_header[] = {c_string(self.file_header().decode())};",
        ]

    def file_header(self) -> bytes:
        """Return the header, of the format safetensors, of the file of variables."""
        entries: dict[str, Any] = {}
        at = 0
        for state in self.states:
            array, _ = self.variables[id(state)]
            name = _FILE_DTYPES.get(array.dtype.name)
            shape = [*array.shape] if name else [array.bytes]
            entries[array.name] = {
                "dtype": name or "U8", "shape": shape, "data_offsets": [at, at + array.bytes]
            }  # fmt: skip
            at += array.bytes
        text = json.dumps(entries, separators=(",", ":")).encode()
        return text + b" " * (-(len(text) + 8) % 8)

    def file(self) -> bytes:
        """Return the file of the variables' values now."""
        header = self.file_header()
        values = [np.ascontiguousarray(state.data).tobytes() for state in self.states]
        return b"".join([len(header).to_bytes(8, "little"), header, *values])

    def _joins(self) -> list[str]:
        """Return the function that tells libraries where others are."""
        declared: dict[str, None] = {}
        calls = []
        for library in self._libraries.values():
            if library.blas and self.blas:
                function = self._external(library, "mg_set_blas")
                pointers = ", ".join(["void*"] * 4)
                declared[f"void {function}(int64_t, int64_t, {pointers});"] = None
                routines = [f"MG_BLAS_NAME({library.blas}{name})" for name in ("gemm", "gemv")]
                declared |= dict.fromkeys(f"extern void {name}(void);" for name in routines)
                addresses = ", ".join(f"(void*){name}" for name in routines)
                calls.append(f"    {function}(MG_BLAS_INTERFACE, 0, {addresses}, 0, 0);")
            if library.products is not None:
                function = self._external(library, "mg_set_products")
                declared[f"void {function}(void*, void*, void*);"] = None
                names = [
                    self._external(library.products, name)
                    for name in ("mg_product", "mg_products_begin", "mg_products_end")
                ]
                declared |= dict.fromkeys(f"extern void {name}(void);" for name in names)
                addresses = ", ".join(f"(void*){name}" for name in names)
                calls.append(f"    {function}({addresses});")
        head = [_BLAS] if self.blas else []
        return [*head, *declared, "static void join_libraries(void)", "{", *calls, "}"]


def _in_comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").encode("ascii", "replace").decode()


_FILE_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "float16": "F16", "bfloat16": "BF16", "uint32": "U32", "int32": "I32", "float32": "F32",
    "uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64",
}  # fmt: skip

_QUIET = """\
#if defined(__GNUC__) /* helpers that this program has no use for */
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"
#endif"""

_PROTOTYPES = """\
void mg_share(mg_body body, void* context, int64_t max_threads, int64_t work);
void mg_parallel(mg_body body, void* context, int64_t max_threads);
int64_t mg_thread_count(void);
int64_t mg_set_threads(int64_t threads, int64_t spin);
int64_t mg_run_alone(const mg_step* steps, int64_t count);
void mg_fail(void);
#define mg_enter_blas() ((void)0)
#define mg_leave_blas() ((void)0)"""

_BLAS = """\
/* -DMG_BLAS_INTERFACE=1 for a CBLAS with 64-bit integers, -D'MG_BLAS_NAME(f)=cblas_##f##64_' for
   one of other names. */
#ifndef MG_BLAS_INTERFACE
#define MG_BLAS_INTERFACE 2
#endif
#ifndef MG_BLAS_NAME
#define MG_BLAS_NAME(f) cblas_##f
#endif"""

_TYPES = """\
#define I(number) (void*)(intptr_t)(number##ll)

enum { MG_IN_MEMORY, MG_IN_FEED, MG_IN_RESULT };
enum { MG_FLOAT16, MG_BFLOAT16, MG_FLOAT32, MG_FLOAT64 };

/* A cell that holds the address of memory, which is allocated at the start. */
typedef struct {
    void** cell;
    int64_t offset;
} mg_place;

/* A cell that holds the address of an input or of a result of a call. */
typedef struct {
    void** cell;
    int64_t argument;
    int result;
} mg_call_cell;

typedef struct {
    int64_t feed;
    const char* input;
    const char* function;
    int bytes, is_signed;
    int64_t count, classes;
    int ignores;
    int64_t ignored;
    const mg_step* steps; /* what makes the labels of the input, where not all of it is labels */
    int64_t step_count;
    void** const* cells; /* that hold the address of the input */
    int64_t cell_count, result;
} mg_labels;

typedef struct {
    int place;
    int64_t at, count;
    int kind;
    const char* what;
} mg_finite;

typedef struct {
    const mg_step* steps;
    int64_t before, count; /* steps before the commit point, and all */
    const mg_call_cell* cells;
    int64_t cell_count;
    const char* const* texts;
    const mg_labels* labels;
    int64_t label_count;
    const mg_finite* finite;
    int64_t finite_count;
    const @P@_array* arrays; /* inputs, then results */
    int64_t feed_count, result_count;
} mg_program;
"""
