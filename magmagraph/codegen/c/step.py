"""C for one step: the regions of a fused node, or of several in one launch.

A kernel is ``void name(void** arguments)``. Its arguments are the addresses of all operands of all
bodies, then those of all results, the workspace, and numbers: how many chunks the work is cut
into, then for each body its number of items, the units of work of an item, and what
`CCode.numbers` lists. A chunk is a range of the work of all bodies together, so that many small
tensors are shared out as evenly as one large one; partial results belong to chunks, so that a
result does not depend on which threads happened to run them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import PlanError, message
from ...ir.graph import Graph, Node
from ...ir.op import Kind
from ...ir.records import record
from ...ir.types import Extent
from ...ops.leaf import PARAMETER
from ..functions import philox
from ..functions.declared import declared_math
from ..functions.groups import GROUP_TYPES
from ..functions.rationals import RATIONALS
from ..functions.scalar import prelude, vector_math
from ..literals import shown, word
from ..region.analysis import Refusal, Region, analyze
from .binding import SHARE, Binding
from .region_code import Number
from .rows import RowsCode
from .scalar import HALF_HELPERS

__all__ = ["StepCode", "assemble", "region_of", "step_code"]

_PLACEHOLDER = "mg_kernel"


@record(frozen=True)
class BodyCode:
    """The C of one structure of bodies, with ``mg_kernel`` as a placeholder for its name.

    It holds texts alone, and no graph: it may outlive the body that it was written for.

    Attributes
    ----------
    text, declarations, numbers, finishes
        As `RowsCode` and `CCode` have them.
    comment
        What it computes, for people, as it was in the first body of its structure.
    key
        A hash of the text: bodies of one structure have the same.
    """

    text: str
    declarations: tuple[str, ...]
    numbers: tuple[Number, ...]
    finishes: bool
    comment: str
    key: str


def region_of(body: Graph) -> Region:
    """Return the region of a body that a pass has found to be one."""
    region = analyze(body)
    if isinstance(region, Refusal):
        raise PlanError(message(f"a fused body is not one region: {region.reason}"))
    if region.joins:
        raise PlanError(message("a fused body joins arrays", need="kernels of a GPU"))
    return region


def body_code(body: Graph) -> BodyCode:
    """Return the C of one body, which is kept as long as the body lives."""
    return body.analysis(_shared)


def _shared(body: Graph) -> BodyCode:
    signature = plain_signature(body)
    if signature is None:
        return _write(body)
    shared = _plain.get(signature)
    if shared is None:
        if len(_plain) >= _PLAIN_LIMIT:
            _plain.clear()  # not a part of them: another thread may be adding one
        shared = _plain[signature] = _write(body)
    return shared


_plain: dict[tuple[Any, ...], BodyCode] = {}
_PLAIN_LIMIT = 256


def plain_signature(body: Graph) -> tuple[Any, ...] | None:
    """Return what alone the C of an elementwise body depends on; None for other bodies.

    An optimizer has the same body for each of some hundred tensors: it is written once.
    """
    extents: dict[Extent, int] = {1: 0}
    number: dict[Node, int] = {}
    rows: list[Any] = []
    for node in (*body.inputs, *body.nodes):
        if node in number:
            continue
        number[node] = len(number)
        shape = tuple(extents.setdefault(extent, len(extents)) for extent in node.shape)
        if node.op is PARAMETER:
            rows.append((node.dtype, shape))
        elif node.op.kind is Kind.ELEMENTWISE:
            rows.append((node.op, node.dtype, shape, *(number[i] for i in node.inputs)))
        elif "value" in node.attrs and not node.ndim:
            rows.append((node.dtype, node.attrs["value"].tobytes()))
        else:
            return None
    return (len(body.inputs), *rows, *(number[node] for node in body.outputs))


def _write(body: Graph) -> BodyCode:
    region = region_of(body)
    rows = RowsCode(region, _PLACEHOLDER)
    code = rows.code
    text = "\n".join((*code.declarations, rows.text))
    return BodyCode(
        text=rows.text,
        declarations=tuple(code.declarations),
        numbers=tuple(code.numbers),
        finishes=rows.finishes,
        comment=describe(region, code.names),
        key=hashlib.sha256(text.encode()).hexdigest()[:16],
    )


class StepCode:
    """The C of one step.

    Attributes
    ----------
    regions
        Its bodies.
    codes
        The C of each.
    key
        Steps of the same key run the same kernel, whatever their sizes.
    name
        The kernel's name.
    size
        Characters of its functions, which tell what compiling them will cost.
    vectors
        Whether all of it is written in vectors: no loop is left for the compiler to vectorize.
    lower
        Whether it is, and gcc at -O1 makes of it what it makes at -O2: of sums that are results,
        and of a softmax. Passes that only write came out up to a tenth slower, other exp 3 %.
    """

    def __init__(self, bodies: tuple[Graph, ...]) -> None:
        self.regions = [region_of(body) for body in bodies]
        self.codes = [body_code(body) for body in bodies]
        # Where arguments lie depends on how many there are, also of those that no text reads.
        pairs = zip(self.codes, bodies, strict=True)
        text = " ".join(f"{c.key}/{len(b.inputs)}/{len(b.outputs)}" for c, b in pairs)
        self.key = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.name = f"fused_{self.key}"
        self.size = sum(len(code.text) for code in {c.key: c for c in self.codes}.values())
        self.vectors = all(
            "mg_group_f32" in code.text and "omp simd" not in code.text and not code.finishes
            for code in self.codes
        )
        self.lower = self.vectors and all(
            "mg_group_exp_below" in code.text
            or "mg_group_exp_within" in code.text
            or not ("mg_group_exp" in code.text or "mg_group_store" in code.text)
            for code in self.codes
        )

    def text(self) -> str:
        """Return the functions alone, for people: a structure that occurs twice is written once."""
        bodies = {code.key: code for code in self.codes}
        texts = (f"{code.comment}\n{code.text.strip()}" for code in bodies.values())
        return "\n\n".join(texts)

    def driver(self) -> str:
        """Return the kernel and the function that does one thread's chunks."""
        inputs = [len(region.body.inputs) for region in self.regions]
        outputs = [len(region.body.outputs) for region in self.regions]
        pointers = sum(inputs) + sum(outputs)
        if len(self.codes) == 1:
            return self._single(inputs[0], pointers)
        rows: list[str] = []
        first_in, first_out, tail = 0, sum(inputs), pointers + 2
        finishes: list[str] = []
        for code, taken, written in zip(self.codes, inputs, outputs, strict=True):
            function = f"rows_{code.key}"
            rows.append(f"{{{function}_rows, {first_in}, {first_out}, {tail}}},")
            if code.finishes:
                finishes.append(
                    f"{function}_finish(arguments + {first_in}, arguments + {first_out}, "
                    f"arguments[{pointers}], arguments + {tail + 2}, chunks);"
                )
            first_in += taken
            first_out += written
            tail += 2 + len(code.numbers)
        listed = "\n".join(f"    {row}" for row in rows)
        ending = "".join(f"\n    {line}" for line in finishes)
        return f"""
static const struct {{
    void (*rows)(void **, void **, char *, void **, int64_t, int64_t, int64_t);
    int64_t in, out, tail;
}} {self.name}_bodies[{len(rows)}] = {{
{listed}
}};

static int64_t {self.name}_work(void **arguments)
{{
    int64_t work = 0;
    for (int64_t b = 0; b < {len(rows)}; b++) {{
        void **tail = arguments + {self.name}_bodies[b].tail;
        work += (int64_t)tail[0] * (int64_t)tail[1];
    }}
    return work;
}}

static void {self.name}_chunks(void *context, int64_t thread, int64_t threads)
{{
    void **arguments = context;
    const int64_t chunks = (int64_t)arguments[{pointers + 1}];
    const int64_t work = {self.name}_work(arguments);
    for (int64_t chunk = chunks * thread / threads; chunk < chunks * (thread + 1) / threads;
         chunk++) {{
        const int64_t low = work / chunks * chunk;
        const int64_t high = chunk == chunks - 1 ? work : work / chunks * (chunk + 1);
        int64_t start = 0;
        for (int64_t b = 0; b < {len(rows)}; b++) {{
            void **tail = arguments + {self.name}_bodies[b].tail;
            const int64_t items = (int64_t)tail[0], unit = (int64_t)tail[1];
            int64_t begin = low <= start ? 0 : (low - start + unit - 1) / unit;
            int64_t end = high <= start ? 0 : (high - start + unit - 1) / unit;
            if (begin > items) begin = items;
            if (end > items) end = items;
            {self.name}_bodies[b].rows(
                arguments + {self.name}_bodies[b].in, arguments + {self.name}_bodies[b].out,
                arguments[{pointers}], tail + 2, chunk, begin, end);
            start += items * unit;
        }}
    }}
}}

void {self.name}(void **arguments)
{{
    const int64_t chunks = (int64_t)arguments[{pointers + 1}];
    mg_share({self.name}_chunks, arguments, chunks, {self.name}_work(arguments));{ending}
}}
"""

    def _single(self, inputs: int, pointers: int) -> str:
        code = self.codes[0]
        function = f"rows_{code.key}"
        operands = f"arguments, arguments + {inputs}, arguments[{pointers}]"
        ending = ""
        if code.finishes:
            ending = f"\n    {function}_finish({operands}, arguments + {pointers + 4}, chunks);"
        return f"""
static void {self.name}_chunks(void *context, int64_t thread, int64_t threads)
{{
    void **arguments = context;
    const int64_t chunks = (int64_t)arguments[{pointers + 1}];
    const int64_t items = (int64_t)arguments[{pointers + 2}];
    for (int64_t chunk = chunks * thread / threads; chunk < chunks * (thread + 1) / threads;
         chunk++) {{
        {function}_rows({operands}, arguments + {pointers + 4},
            chunk, items * chunk / chunks, items * (chunk + 1) / chunks);
    }}
}}

void {self.name}(void **arguments)
{{
    const int64_t chunks = (int64_t)arguments[{pointers + 1}];
    const int64_t work = (int64_t)arguments[{pointers + 2}] * (int64_t)arguments[{pointers + 3}];
    mg_share({self.name}_chunks, arguments, chunks, work);{ending}
}}
"""

    def numbers(self, sizes: Mapping[str, int], threads: int) -> list[int]:
        """Return the arguments after the workspace for given sizes."""
        bindings = [Binding(region, sizes, threads) for region in self.regions]
        work = sum(binding.items * binding.work for binding in bindings)
        items = sum(binding.items for binding in bindings)
        result = [max(1, min(threads, items, work // SHARE))]
        base = 0
        for code, binding in zip(self.codes, bindings, strict=True):
            binding.shift(base)
            result += [binding.items, binding.work]
            result += [binding.number(what, where) for what, where in code.numbers]
            base += binding.workspace
        return result


def step_code(bodies: tuple[Graph, ...]) -> StepCode:
    """Return the C of a step; the same object for the same bodies, as long as they live."""
    return bodies[0].analysis(_step_code, bodies[1:])


def _step_code(first: Graph, others: tuple[Graph, ...]) -> StepCode:
    return StepCode((first, *others))


def assemble(steps: Sequence[StepCode]) -> str:
    """Return one C source with the kernels of several steps, each structure once.

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import freeze
    >>> from magmagraph.ops.leaf import parameter
    >>> x = parameter(0, mg.constant([1.0, 2.0]).type)
    >>> source = assemble([step_code((freeze([x], [x * x + 1.0]),))])
    >>> "multiply_1 + 1.0f" in source
    True
    """
    bodies: dict[str, BodyCode] = {}
    declarations: dict[str, None] = {}
    drivers: dict[str, str] = {}
    for step in steps:
        for code in step.codes:
            bodies.setdefault(code.key, code)
            declarations.update(dict.fromkeys(code.declarations))
        drivers.setdefault(step.key, step.driver())
    functions = [
        f"{code.comment}\n{code.text.replace(_PLACEHOLDER, f'rows_{key}')}"
        for key, code in bodies.items()
    ]
    text = "\n".join([*declarations, "", *functions, *drivers.values()])
    helpers = prelude(text)
    rational = [part for word, part in RATIONALS.items() if word in helpers or word in text]
    parts = [vector_math("\n".join([helpers, text, *rational]))]
    halves = dict.fromkeys(part for word, part in HALF_HELPERS.items() if word in text)
    parts += halves
    parts += rational
    if "mg_group_f32" in text:
        parts.append(GROUP_TYPES)
    if "mg_random" in text:
        parts.append(philox.SOURCE)
    parts += [helpers, text]
    return "\n".join(["#include <stdint.h>", declared_math("\n".join(parts)), *parts])


def describe(region: Region, names: Mapping[Node, str]) -> str:
    """Return a comment with what a region computes, node by node, over which loops."""
    lines = []
    kinds = {dtype: dtype.name for dtype in {node.dtype for node in region.values}}
    for node, value in region.values.items():
        access = region.accesses.get(node)
        if access is not None:
            what = f"operand {access.parameter}"
            what += "".join(
                f", {word(view.op.name)}" for view in access.views if not view.op.layout.alias
            )
        elif value.source is not node:
            what = f"{word(node.op.name)} of {names[value.source]}"
        elif "value" in node.attrs and not node.ndim:
            what = shown(node.attrs["value"])
        else:
            what = f"{word(node.op.name)}({', '.join(names[i] for i in node.inputs)})"
        loops = ", ".join(f"i{loop}" for loop in sorted(value.loops))
        lines.append(f"   {names[node]} = {what}   {kinds[node.dtype]}[{loops}]")
    for output in region.outputs:
        lines.append(f"   result {output.position} is {names[output.node]}")
    passes = f"{region.passes} passes over a row" if region.passes > 1 else "one pass"
    text = "\n".join(lines)
    return f"/* {passes}\n{text} */"
