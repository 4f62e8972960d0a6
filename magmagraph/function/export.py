"""`f.export(folder)`: compiled functions as C sources that need neither Python nor this package.

The plan is the program: its steps, with the kernels' own sources and the places that were laid
out, are written as tables (`runtime.cpu.exported`). Here are the checks, the header and the README.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._version import __version__
from ..errors import ConfigError, ExportError, FeedError, PathError, message
from ..files.writing import write_file
from ..inspect.node_history import step_describer
from ..ir import dims
from ..ir.graph import Graph, Node
from ..ir.interpret import body_function, compiling_bodies
from ..ir.plan import Place, Plan, Role
from ..ir.records import record
from ..ir.types import FilePath
from ..ops.leaf import input
from .feeds import bind_sizes
from .labels import FedLabels

if TYPE_CHECKING:
    from ..runtime.cpu.exported import Array, Image, Labels

__all__ = ["export"]

FLAGS = (
    "-std=gnu11 -O2 -fno-math-errno -fwrapv -ffp-contract=off -fno-trapping-math -fopenmp-simd "
    "-Wno-psabi"
)
_C_WORDS = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    "union|unsigned|void|volatile|while|asm|typeof|and|or|not|xor|bool|true|false|class|new|"
    "delete|template|this|namespace"
)
_MORE = "ranks do it together, and an exported program is one process"


def export(
    function: Any,
    folder: FilePath,
    language: str = "c",
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    blas: bool = False,
    others: Mapping[str, Any] | None = None,
) -> None:
    """Write functions as C; see `Function.export`."""
    from ..runtime.cpu.exported import Image  # it loads the compiled support library

    place = Path(folder)
    prefix = _checked_name(name if name is not None else place.name, name is None)
    if language != "c":
        raise ConfigError(
            message(
                f"language={language!r}",
                need="'c'",
                hint="programs of a GPU (CUDA) are not exported: compile with device='cpu'",
            )
        )
    members = {"run": function, **(others or {})}
    for label in others or {}:
        _checked_name(label, False)
    if place.exists() and not place.is_dir():
        raise PathError(message(f"{place} is a file", need="a folder, which may be new"))
    calls = [
        _Call(label, member, one)
        for label, member in members.items()
        for one in _sizes_of(label, member, type(function), sizes)
    ]
    refusals = [row for call in calls for row in call.refusals()]
    if refusals:
        listed = "\n".join(f"  {row}" for row in dict.fromkeys(refusals))
        raise ExportError(
            message(
                f"{len(dict.fromkeys(refusals))} steps have no form in C:\n{listed}",
                need="steps that run as compiled kernels on the CPU",
                hint="print(f.report) lists them as well; write them with other operations, or "
                "leave them to the caller of the C program",
            )
        )
    image = Image(prefix, blas)
    _place_variables(image, calls)
    programs: dict[str, list[tuple[_Call, str]]] = {label: [] for label in members}
    for call in calls:
        tables = image.call(
            call.bound, call.feeds, call.results, call.texts(), [*call.labels()]
        )
        programs[call.label].append((call, tables))
    files = {
        f"{prefix}.h": _header(image, programs, function),
        f"{prefix}.c": _main_file(image, programs),
        **image.support_files(),
        **image.kernel_files(),
        "main.c": _example(image, programs),
        "README.md": _readme(image, programs, function, blas),
    }
    place.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        write_file(place / file, text.encode())
    write_file(place / f"{prefix}.safetensors", image.file())


def _checked_name(name: str, guessed: bool) -> str:
    if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and not _C_WORDS.fullmatch(name):
        return name
    where = "the folder's name, which external names begin with," if guessed else "name="
    raise ConfigError(
        message(
            f"{where} is {name!r}",
            need="a name in C: letters, digits and _, a letter first",
            hint="f.export(folder, name='step')",
        )
    )


def _sizes_of(
    label: str,
    function: Any,
    kind: Any,
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]] | None,
) -> list[dict[str, int]]:
    """Return the sets of sizes that a function is exported for."""
    if not isinstance(function, kind):
        raise ConfigError(
            message(f"others[{label!r}] is a {type(function).__name__}", need="a function")
        )
    compiled: Any = function
    names = {n for node in compiled.inputs for e in node.shape for n in dims.names(e)}
    if not names:
        return [{}]
    if sizes is None:
        specialized = [size_sets for size_sets, _ in compiled.specializations]
        if not specialized:
            raise FeedError(
                message(
                    f"the sizes of {', '.join(sorted(names))} are not known",
                    need="a set of sizes, or a function that was called with some",
                    hint=f"f.export(folder, sizes={{{sorted(names)[0]!r}: 32}})",
                )
            )
        return specialized
    several = [sizes] if isinstance(sizes, Mapping) else list(sizes)
    size_sets = []
    for one in several:
        missing = sorted(names - one.keys())
        if missing:
            raise FeedError(
                message(
                    f"sizes={dict(one)} does not say the size of {', '.join(missing)}",
                    need=f"the sizes of {', '.join(sorted(names))}",
                )
            )
        size_sets.append({n: int(one[n]) for n in sorted(names)})
    return [dict(pairs) for pairs in dict.fromkeys(tuple(one.items()) for one in size_sets)]


@record(frozen=True)
class _Refusal:
    """A step without a form in C."""

    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class _Call:
    """A function bound to sizes, to be written.

    label: The end of its name in C.
    bound: The plan with its memory.
    feeds, results: What a call takes and gives.
    """

    def __init__(self, label: str, function: Any, sizes: Mapping[str, int]) -> None:
        from ..runtime.cpu.exported import Array

        self.label = label
        self.function = function
        if function.device != "cpu":
            raise ExportError(
                message(
                    f"{function!r} runs on {function.device}",
                    need="a function of the CPU: programs of a GPU (CUDA) are not exported",
                    hint="mg.function(..., device='cpu')",
                )
            )
        if function.communicator is not None:
            raise ExportError(
                message(f"{function!r} runs on several ranks", need="one process", hint=_MORE)
            )
        shapes = [node.type.concrete(sizes) for node in function.inputs]
        self.sizes = bind_sizes(function.inputs, shapes, function.source_graph.constraints)
        self.bound = function.bound_to(self.sizes)
        self.plan: Plan = self.bound.plan
        names = _unique([node.name or "x" for node in function.inputs])
        self.feeds = [
            Array(name, node.dtype, tuple(shape))
            for name, node, shape in zip(names, function.inputs, shapes, strict=True)
        ]
        labels = [node.name or "" for node in function._user_outputs]
        plain = ["result" if len(labels) == 1 else f"result_{i}" for i in range(len(labels))]
        result_names = [a if a else b for a, b in zip(labels, plain, strict=True)]
        self.results = [
            Array(name, fetch.type.dtype, tuple(map(int, fetch.type.shape)))
            for name, fetch in zip(
                _unique([*names, *result_names])[len(names) :], self.plan.fetches, strict=True
            )
        ]

    def refusals(self) -> Iterator[_Refusal]:
        """Yield the steps that have no form in C."""
        with compiling_bodies(self.function._bodies):
            yield from _refusals(self.function, self.bound)
        for each in self.function._labels:
            if each.steps:
                inner = self._labels_function(each)
                yield from _refusals(inner, inner.bound_to(self.sizes))

    def texts(self) -> list[str]:
        """Return what each step of the plan computes, in the user's terms."""
        described = step_describer(self.function)
        return [f"{step.kernel}: {described(step.node)}" for step in self.plan.steps]

    def _labels_function(self, labels: FedLabels) -> Any:
        """Return the function that makes labels of what is fed."""
        leaf = input("labels", labels.input.shape, labels.input.dtype)
        result: Node = leaf
        for node in labels.steps:
            result = self.function.source_graph.interner.make(node, (result,))
        return type(self.function)([leaf], result, device="cpu", default_updates=False)

    def labels(self) -> Iterator[Labels]:
        """Yield the labels of classes that are fed, to be checked."""
        from ..runtime.cpu.exported import Labels

        for each in self.function._labels:
            attrs = each.marker.attrs
            last = each.steps[-1] if each.steps else each.input
            count = int(np.prod(last.type.concrete(self.sizes), dtype=np.int64))
            classes = attrs["classes"]
            if last.dtype.kind not in "iu":
                continue
            yield Labels(
                each.position,
                each.input.name or "",
                last.dtype,
                count,
                classes if type(classes) is int else dims.evaluate(classes, self.sizes),
                attrs["ignored"],
                attrs["function"],
                self._labels_function(each).bound_to(self.sizes) if each.steps else None,
            )


def _refusals(function: Any, bound: Any) -> Iterator[_Refusal]:
    """Yield the steps of a bound plan, and of its loops' and branches' bodies, without C."""
    before, after = bound.programs()
    compiled = {number for _, numbers in (*before, *after) for number in numbers}
    described = step_describer(function)
    reasons = {row.step: row.reason for row in function._compiled.fallbacks}
    for number, step in enumerate(bound.plan.steps):
        if number in compiled:
            continue
        what = f"step {number} ({step.kernel}), {described(step.node)}"
        if step.role in (Role.COLLECTIVE, Role.WAIT):
            yield _Refusal(what, _MORE)
            continue
        inner = []
        if step.role is Role.NESTED:
            for body in _bodies(step.node):
                compiled_body: Any = body_function(body)
                if compiled_body is not None:
                    within = compiled_body.bound_to(bound.plan.sizes or {})
                    inner += [*_refusals(compiled_body, within)]
        for row in inner:
            yield _Refusal(f"{what}, in its body {row.what}", row.reason)
        if not inner:
            yield _Refusal(what, reasons.get(number, "it runs in Python"))


def _bodies(node: Node) -> tuple[Graph, ...]:
    attrs = node.attrs
    return tuple(attrs["bodies"]) if "bodies" in attrs else (attrs["body"],)


def _place_variables(image: Image, calls: Sequence[_Call]) -> None:
    """Give every variable of the calls a place and a name of its own."""
    states: dict[int, Any] = {}
    for call in calls:
        for slot in call.plan.slots:
            if slot.place is Place.STATE:
                states.setdefault(id(slot.owner), slot.owner)
    names = _unique([str(state.name or "variable") for state in states.values()], c=False)
    for state, name in zip(states.values(), names, strict=True):
        image.variable(state, name)


def _unique(names: Sequence[str], *, c: bool = True) -> list[str]:
    """Return names that differ, and that C takes unless told otherwise."""
    unique: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII) if c else name
        if c and (not plain or plain[0].isdigit() or _C_WORDS.fullmatch(plain)):
            plain = f"x_{plain}"
        chosen, count = plain, 1
        while chosen in unique:
            count += 1
            chosen = f"{plain}_{count}"
        unique.append(chosen)
    return unique


# ---- The header


def _entry(image: Image, label: str) -> str:
    return f"{image.prefix}_{label}"


def _parameters(call: _Call) -> list[str]:
    """Return the parameters of a call in C: sizes of dimensions, inputs, results."""
    from ..runtime.cpu.exported import c_type

    sizes = [f"int64_t {name}" for name in _dims(call)]
    feeds = [f"const {c_type(a.dtype)}* {a.name}" for a in call.feeds]
    results = [f"{c_type(a.dtype)}* {a.name}" for a in call.results]
    return [*sizes, *feeds, *results] or ["void"]


def _dims(call: _Call) -> list[str]:
    """Return C names of the dimensions whose sizes are told, in order."""
    arrays = [*(a.name for a in call.feeds), *(a.name for a in call.results)]
    names = [*call.sizes]
    return _unique([*arrays, *(n if n[:1].isalpha() else f"size_{n}" for n in names)])[len(arrays):]


def _signature(image: Image, call: _Call) -> str:
    return f"int {_entry(image, call.label)}({', '.join(_parameters(call))})"


def _described(array: Array, extents: Sequence[object]) -> str:
    return f"{array.name}: {array.dtype.name}[{', '.join(map(str, extents))}]"


def _call_comment(call: _Call, calls: Sequence[_Call]) -> list[str]:
    """Return lines that say what a call takes and gives."""
    function = call.function
    lines = ["Run once. Updates of variables land together, after every step that can fail."]
    shapes = [node.shape for node in function.inputs]
    lines += [
        f"  {_described(a, shape)}" for a, shape in zip(call.feeds, shapes, strict=True)
    ]
    outputs = [node.shape for node in function._user_outputs]
    lines += [
        f"  {_described(a, shape)}, a result"
        for a, shape in zip(call.results, outputs, strict=True)
    ]
    if call.sizes:
        sizes = "; ".join(_sizes_text(each) for each in calls)
        lines.append(f"Sizes: {sizes}.")
    lines.append("Arrays are row-major, and none overlaps a result.")
    return lines


def _sizes_text(call: _Call) -> str:
    return ", ".join(
        f"{name} = {size}"
        for name, size in zip(_dims(call), call.sizes.values(), strict=True)
    )


def _comment(lines: Sequence[str]) -> str:
    safe = [line.replace("*/", "* /") for line in lines]
    return "/* " + "\n   ".join(safe) + " */"


def _header(
    image: Image, programs: Mapping[str, Sequence[tuple[_Call, str]]], function: Any
) -> str:
    prefix = image.prefix
    title = f"'{function.name}'" if function.name else "A function"
    parts = [
        _comment(
            [f"{title}, exported by magmagraph {__version__}. README.md says how it is compiled."]
        ),
        f"#ifndef {prefix}_h\n#define {prefix}_h\n\n#include <stddef.h>\n#include <stdint.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _ABI.replace("@P@", prefix),
    ]
    for pairs in programs.values():
        calls = [call for call, _ in pairs]
        parts.append(_comment(_call_comment(calls[0], calls)))
        parts.append(_signature(image, calls[0]) + ";\n")
    parts.append("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
    return "\n".join(parts)


_ABI = """\
/* What a function returns; @P@_message() says more of the last failure. */
enum {
    @P@_OK = 0,
    @P@_NOT_READY = 1,    /* no @P@_init or no @P@_load before */
    @P@_NO_MEMORY = 2,
    @P@_BAD_ARGUMENT = 3, /* a NULL, an unknown name, a wrong number of bytes */
    @P@_BAD_SIZE = 4,     /* sizes that were not exported */
    @P@_BAD_LABEL = 5,    /* a label of no class */
    @P@_STEP_FAILED = 6,  /* a step has no result for these values: a singular matrix, say */
    @P@_NOT_FINITE = 7,   /* a result or a new value is not finite, and nan="raise" was set */
    @P@_BAD_FILE = 8,
    @P@_BUSY = 9          /* another thread is in a call */
};

/* An array: its name, dtype ("float32"), axes, extents and bytes. */
typedef struct {
    const char* name;
    const char* dtype;
    int rank;
    const int64_t* shape;
    size_t bytes;
} @P@_array;

/* Allocate memory; first of all, once. Teams have so many threads, at most those of the export. */
int @P@_init(int threads);
/* Free the memory. */
void @P@_end(void);
/* Return the reason of the last failure. */
const char* @P@_message(void);

/* Return the variables, and their number. */
const @P@_array* @P@_variables(size_t* count);
/* Copy the value of a variable out or in; bytes is that of the whole array. */
int @P@_get(const char* variable, void* data, size_t bytes);
int @P@_set(const char* variable, const void* data, size_t bytes);
/* Read or write the values of all variables: a file of the format safetensors. A file that does not
   fit changes none. @P@.safetensors has the values of the export. */
int @P@_load(const char* path);
int @P@_save(const char* path);
"""


def _main_file(image: Image, programs: Mapping[str, Sequence[tuple[_Call, str]]]) -> str:
    parts = [f'#include "{image.prefix}.h"', image.tables()]
    for pairs in programs.values():
        first = pairs[0][0]
        names = _dims(first)
        feeds = ", ".join(a.name for a in first.feeds)
        results = ", ".join(a.name for a in first.results)
        lines = [_signature(image, first), "{"]
        lines.append(f"    const void* feeds[] = {{ {feeds or '0'} }};")
        lines.append(f"    void* results[] = {{ {results or '0'} }};")
        for call, tables in pairs:
            condition = " && ".join(
                f"{n} == {size}" for n, size in zip(names, call.sizes.values(), strict=True)
            )
            head = f"    if ({condition}) " if condition else "    "
            lines.append(f"{head}return run(&{tables}, feeds, results);")
        if names:
            pattern = ", ".join(f"{n} = %lld" for n in names)
            all_sizes = "; ".join(_sizes_text(call) for call, _ in pairs)
            size_arguments = ", ".join(f"(long long){n}" for n in names)
            lines.append(
                f'    return fails({image.prefix}_BAD_SIZE, "{pattern}: exported for {all_sizes}", '
                f"{size_arguments});"
            )
        parts.append("\n".join([*lines, "}", ""]))
    return "\n".join(parts)


# ---- What shows how it is used


def _example(image: Image, programs: Mapping[str, Sequence[tuple[_Call, str]]]) -> str:
    from ..runtime.cpu.exported import c_type

    prefix = image.prefix
    call = next(iter(programs.values()))[0][0]
    lines = [
        _comment([f"An example: {_entry(image, call.label)} runs three times on zeros."]),
        f'#include "{prefix}.h"',
        "#include <stdio.h>\n#include <stdlib.h>\n",
        "static int failed(void)\n{",
        f'    fprintf(stderr, "%s\\n", {prefix}_message());\n    return 1;\n}}\n',
        "int main(int count, char** arguments)\n{",
        f'    const char* file = count > 1 ? arguments[1] : "{prefix}.safetensors";',
        f"    if ({prefix}_init(1) || {prefix}_load(file)) return failed();",
    ]
    for array in (*call.feeds, *call.results):
        kind = c_type(array.dtype)
        lines.append(f"    {kind}* {array.name} = calloc({max(array.bytes, 1)}, 1);")
        lines.append(f"    if (!{array.name}) return 1;")
    arguments = [*map(str, call.sizes.values()), *(a.name for a in (*call.feeds, *call.results))]
    lines.append("    for (int i = 0; i < 3; i++) {")
    lines.append(
        f"        if ({_entry(image, call.label)}({', '.join(arguments)})) return failed();"
    )
    for array in call.results:
        if not array.bytes:
            continue
        if array.dtype.kind in "iub":
            shown = f'"{array.name}[0] = %lld\\n", (long long){array.name}[0]'
        else:
            shown = f'"{array.name}[0] = %g\\n", (double){array.name}[0]'
        lines.append(f"        printf({shown});")
    lines.append("    }")
    lines += [f"    free({a.name});" for a in (*call.feeds, *call.results)]
    return "\n".join([*lines, f"    {prefix}_end();", "    return 0;", "}", ""])


def _readme(
    image: Image, programs: Mapping[str, Sequence[tuple[_Call, str]]], function: Any,
    blas: bool,
) -> str:  # fmt: skip
    prefix = image.prefix
    line = f"cc {FLAGS} -pthread *.c -o example -lm" + (" -lopenblas" if blas else "")
    rows = [f"    {a.name}: {a.dtype.name}{list(a.shape)}" for a, _ in image.variables.values()]
    calls = "\n".join(f"- `{_signature(image, pairs[0][0])}`" for pairs in programs.values())
    sizes = [
        f"- `{_entry(image, label)}`: {'; '.join(_sizes_text(call) for call, _ in pairs)}"
        for label, pairs in programs.items()
        if pairs[0][0].sizes
    ]
    text = _README.replace("@P@", prefix).replace("@LINE@", line).replace("@CALLS@", calls)
    text = text.replace("@SIZES@", "\n".join(sizes) or "There are no named dimensions.")
    text = text.replace("@VARIABLES@", "\n".join(rows) or "    none")
    text = text.replace("@FLAGS@", FLAGS).replace("@THREADS@", str(image.threads))
    products = _WITH_BLAS if blas else _WITHOUT_BLAS
    named = f" '{function.name}'" if function.name else ""
    return text.replace("@PRODUCTS@", products).replace("@NAMED@", named)


_WITH_BLAS = """\
Matrix products call a CBLAS, which is linked: `-lopenblas` above, or another. Of one with 64-bit
integers or other names say so: `-DMG_BLAS_INTERFACE=1 '-DMG_BLAS_NAME(f)=cblas_##f##64_'`."""
_WITHOUT_BLAS = """\
Matrix products are in these files; no BLAS is needed."""
_README = """\
# @P@

A function@NAMED@ that magmagraph compiled, as C: `@P@.h` is the interface, `@P@.c` has the steps,
their arguments and constants, `@P@_kernels_*.c` the kernels, `@P@_support.c` a pool of threads and
the list of steps, `@P@.safetensors` the values of the variables, `main.c` an example. Neither
Python nor magmagraph is needed.

## Compile

    @LINE@

gcc and clang take it, on a little-endian processor with 64-bit pointers. Without POSIX threads,
leave `-pthread` out and say `-DMG_NO_THREADS`. These flags serve every processor of the family.
For this one alone add `-march=native` (clang on x86: also `-fveclib=libmvec`), which is faster.
With it, the compiler of the export and the same products, results have the bits of Python there.
Elsewhere sums are taken in another order, and differ in their last digits.
`-ffast-math` changes what infinities and NaN do: leave it out. For WebAssembly:

    emcc @FLAGS@ -DMG_NO_THREADS -sMEMORY64=1 -sALLOW_MEMORY_GROWTH=1 *.c -o example.js \\
        --preload-file @P@.safetensors

@PRODUCTS@

## Call

    @P@_init(threads)           once, first; at most @THREADS@ threads work
    @P@_load("@P@.safetensors")  the variables' values
    @P@_run(...)                as often as you like
    @P@_get, @P@_set, @P@_save   read, change and keep variables
    @P@_end()

@CALLS@

Each function returns 0, or an error code of `@P@.h`; `@P@_message()` says why. A call that fails
changes no variable. There is one instance in a process, for one call at a time.

## Sizes

@SIZES@

## Variables

@VARIABLES@
"""
