"""Elementwise regions that are computed in a scan's kernel: its operands, and what reads it.

A thread of the scan computes the elements of its operands where it would read them, and the readers
of its results where it would write them, so that neither goes to memory. Values are rounded to the
dtype that memory would have held: the scan combines what it would have read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...ir.graph import Node
from ...ir.plan import Role, Step
from ...ir.records import record
from ...ir.types import Type
from ..c.scalar import load, storage_type
from ..c.text import indent
from ..region.analysis import Output, Region
from ..region.axes import concrete
from ..steps import bodies_of, shape_of
from .cuda_code import CudaCode
from .generated import kernels_of, refusal_of
from .kernels import RegionKernels
from .launch_config import WIDE, LaunchConfig
from .scan_cuts import cut_of_scan
from .scanning_code import WORDS, Scan, Transfer, scan_source

__all__ = ["FusedScan", "ScanParts", "parts_of_scan", "read_in_scan", "refusal_in_scan"]

HELD = 32  # registers of a thread for elements that are on their way
USUAL = 16  # as many as a plain scan has
FEWER_BLOCKS = 3  # of a multiprocessor, where threads have more


@record(frozen=True)
class ScanParts:
    """The steps that one launch of a scan computes.

    Attributes
    ----------
    producers
        Regions of one body that make operands.
    scan
        The scan.
    reader
        The region of one body that reads its result, or None.
    """

    producers: tuple[Step, ...]
    scan: Step
    reader: Step | None


def parts_of_scan(parts: Sequence[Step]) -> ScanParts:
    """Return the parts of a launch by what they are to the scan among them."""
    place = next(i for i, part in enumerate(parts) if part.role is Role.SCAN)
    reader = parts[place + 1] if place + 1 < len(parts) else None
    return ScanParts(tuple(parts[:place]), parts[place], reader)


def _written(step: Step) -> list[set[int]]:
    """Return the slots that each part of a launch writes to memory, and no later part over them."""
    last = {value.slot: n for n, part in enumerate(step.parts) for value in part.outputs}
    seen = {value.slot for value in step.outputs}
    return [
        {v.slot for v in part.outputs if v.slot in seen and last[v.slot] == n}
        for n, part in enumerate(step.parts)
    ]


def refusal_in_scan(step: Step) -> str:
    """Return why a region of one body cannot be computed in a scan's kernel; empty where it can."""
    (body,) = bodies_of(step)
    kernels = kernels_of(body)
    if kernels is None:
        return f"the region has no kernel: {refusal_of(body)}"
    region = kernels.region
    if region.folds or region.row:
        return "the region reduces"
    if not region.depth:
        return "the region has one element"
    if kernels.tiles is not None:
        return "the region reads an operand in another order"
    if any(not _in_order(region, output) for output in region.outputs):
        return "the region has results of other shapes"
    return ""


def read_in_scan(region: Region, parameter: int) -> Node | None:
    """Return a region's read of a parameter, if it is one element by element in its order."""
    reads = [n for n, access in region.accesses.items() if parameter in access.parameters]
    if len(reads) != 1:
        return None
    (node,) = reads
    access = region.accesses[node]
    source = region.body.inputs[parameter]
    if not access.whole or node.type.size != source.type.size:
        return None
    same = [axis for axis in access.axes[: region.depth] if axis is not None]
    return node if len(same) == region.depth and same == sorted(same) else None


def _in_order(region: Region, output: Output) -> bool:
    """Return whether a result is written in the order of the loops, by all of them."""
    axes = [axis for axis in output.axes[: region.depth] if axis is not None]
    return output.element and len(axes) == region.depth and axes == sorted(axes)


class _Part:
    """A region in a scan's kernel.

    Parameters
    ----------
    step
        Of one body.
    scanned
        The type of the scan's result.
    sizes, multiprocessors
        See `LaunchConfig`.
    """

    def __init__(
        self, step: Step, scanned: Type, sizes: Mapping[str, int], multiprocessors: int
    ) -> None:
        self.step, self.scanned = step, scanned
        (body,) = bodies_of(step)
        kernels = kernels_of(body)
        assert kernels is not None
        self.kernels: RegionKernels = kernels
        self.region = kernels.region
        self.code = CudaCode(self.region)
        self.config = LaunchConfig(kernels, sizes, 1, multiprocessors)
        self.nodes = self.code.walk.passes[0]
        self.first = 0  # the place of its first argument
        self.axis = -1  # the scanned one, where a thread knows its place along axes

    def width(self, most: int) -> int:
        """Return how many neighbours its operands and results can be moved by, `most` at most."""
        width = min(most, self.kernels.widths[-1])
        while width > 1 and self.config.vector_width(self.code.inner, width) != width:
            width //= 2
        return width

    @property
    def streamed(self) -> list[Node]:
        """The reads of which every element has its own, and neighbours are neighbours."""
        whole = [n for n in self.nodes if n in self.region.accesses and self.code.moves(n)]
        return [n for n in whole if len(self.region.values[n].loops) == self.region.depth]

    @property
    def words(self) -> int:
        """How many arguments it has."""
        body = self.region.body
        return len(body.inputs) + len(body.outputs) + 1 + len(self.code.numbers)

    def numbers(self) -> list[int]:
        """Return its arguments behind the addresses."""
        return [self.config.number(what, where) for what, where in self.code.numbers]

    def place(self) -> list[str]:
        """Return the lines that compute the positions along the loops.

        They take ``at`` apart, which costs a division for each loop but the first; or what a
        thread knows of its place, where loops end before and behind the scanned axis.
        """
        loops = list(range(self.region.depth))
        pieces = [("at", loops)]
        ends = self._ends() if self.axis >= 0 and len(loops) > 1 else []
        if ends:
            before = [loop for loop in loops if ends[loop] < self.axis]
            along = [loop for loop in loops if ends[loop] == self.axis]
            behind = [loop for loop in loops if ends[loop] > self.axis]
            whole = math.prod(shape_of(self.scanned)[: self.axis]) == 1
            first = ends[before[-1]] == self.axis - 1 if before else whole
            if along and first:
                pieces = [("slab", before), ("row", along), ("column", behind)]
            elif along:
                pieces = [("slab * v[5] + row", [*before, *along]), ("column", behind)]
            elif first:
                pieces = [("slab", before), ("row * v[6] + column", behind)]
        lines: list[str] = []
        for number, (expression, part) in enumerate(pieces):
            if part:
                lines.append(f"idx rest{number} = (idx)({expression});")
                lines += self.code.decode(f"rest{number}", part)
        return lines

    def _ends(self) -> list[int]:
        """Return the last axis of each loop, by a result of the scan's shape; none without one."""
        shape = shape_of(self.scanned)
        for output in self.region.outputs:
            if concrete(output.node.shape, self.config.sizes) == shape:
                return [axis for axis in output.axes[: self.region.depth] if axis is not None]
        return []

    def computed(
        self,
        known: Mapping[Node, str],
        width: int,
        staged: Mapping[Output, str],
        outputs: Sequence[Output] = (),
        where: str = "",
    ) -> list[str]:
        """Return the lines that compute `width` neighbours.

        Parameters
        ----------
        known
            Expressions of values that need not be read.
        width
            How many.
        staged
            Where results go, other than to memory.
        outputs, where
            Those that are written, and the condition under which.
        """
        self.code.scope = dict(known)
        top = self.code.top()
        work = self.code.elements(
            self.nodes, [], outputs, width, {}, mine=where, staged=staged
        )
        self.code.scope = {}
        lines = [*self.place(), *top, *work]
        for output, place in staged.items():
            lines += _apart(place, output.node.dtype, width)
        return lines

    def block(self, lines: Sequence[str]) -> str:
        """Return lines as a block, with the operands and numbers that they mention."""
        head = self.code.header("\n".join(lines), self.first)
        return "\n".join(indent(["{", *indent([*head, *lines]), "}"]))


def _apart(place: str, dtype: np.dtype, width: int) -> list[str]:
    """Return the lines after which floats are not contracted with what they are used for.

    Memory, where they would have gone, does the same. The workspace of a region that reduces
    nothing is the word 0.
    """
    if dtype.kind != "f" or dtype.itemsize < 4:
        return []  # they have been rounded
    return [
        "#pragma unroll",
        f"for (int k = 0; k < {width}; k++) {place} = apart({place}, (int64_t)workspace);",
    ]


class FusedScan:
    """The kernels of a scan with the regions that are computed in them.

    Attributes
    ----------
    cut
        Of the scan.
    transfer, source
        Their C.
    words
        How many arguments the kernels have.

    Parameters
    ----------
    step
        The launch.
    sizes
        The size of every dimension.
    multiprocessors
        Of the device.
    most
        How many neighbours may be moved at once.
    """

    def __init__(
        self, step: Step, sizes: Mapping[str, int], multiprocessors: int, most: int = 16
    ) -> None:
        self.parts = parts_of_scan(step.parts)
        self.written = _written(step)
        scan = self.parts.scan
        out, attrs = scan.outputs[0], scan.node.attrs
        cut = cut_of_scan(
            scan.node.op, out.type, attrs["axis"], attrs["reverse"], multiprocessors
        )
        steps = [*self.parts.producers, *filter(None, (self.parts.reader,))]
        self.regions = [_Part(one, out.type, sizes, multiprocessors) for one in steps]
        if cut.scan.columns or (cut.slabs == 1 and cut.layout[2] == 1):
            for region in self.regions:
                region.axis = attrs["axis"]
        width = min([most, cut.scan.width, *(r.width(cut.scan.width) for r in self.regions)])
        self.cut = cut.moving(width)
        self.transfer = self._transfer(self.cut.scan)
        self.source = scan_source(self.cut.scan, self.transfer)
        self.words = WORDS + sum(region.words for region in self.regions)

    @property
    def name(self) -> str:
        """How the kernels' names begin."""
        return self.cut.scan.name + self.transfer.key

    def _transfer(self, scan: Scan) -> Transfer:
        width, count = scan.width, len(self.parts.producers)
        out = self.parts.scan.outputs[0].slot
        made: dict[int, tuple[_Part, Output]] = {}  # by slot
        for region in self.regions[:count]:
            for output in region.region.outputs:
                made[region.step.outputs[output.position].slot] = region, output
        slots = [value.slot for value in self.parts.scan.inputs]
        plain = tuple(o for o in range(scan.operands) if slots[o] not in made)
        early, members = self._held(scan, plain)
        blocks: dict[str, list[tuple[_Part, list[str]]]] = {"bring": [], "take": [], "give": []}
        for region in self.regions[:count]:
            operands = {
                output: [o for o, slot in enumerate(slots) if made.get(slot) == (region, output)]
                for output in region.region.outputs
            }
            if early:
                held = {node: self._member(region, node) for node in region.streamed}
                bring = [
                    f"held.{name} = *(const {self._vector(n, width)} *)&{region.code.read(n)};"
                    for n, name in held.items()
                ]
                if bring:
                    blocks["bring"].append((region, [*region.place(), *bring]))
                known = {n: load(f"held.{name}.x[k]", n.dtype) for n, name in held.items()}
                blocks["take"] += self._taken(region, known, width, operands, "to[{}].x[k]")
            else:
                blocks["bring"] += self._taken(region, {}, width, operands, "held.x{}.x[k]")
        take = [] if early else [
            f"    to[{o}] = held.x{o};" for o in range(scan.operands) if o not in plain
        ]
        give: list[str] = []
        if self.parts.reader is not None:
            give = self._given(self.regions[-1], made, scan, blocks["give"])
        first = WORDS
        for region in self.regions:
            region.first, first = first, first + region.words
        texts = {
            name: "\n".join(region.block(lines) for region, lines in entries)
            for name, entries in blocks.items()
        }
        return Transfer(
            members, texts["bring"], "\n".join([*take, texts["take"]]).strip("\n"),
            "\n".join([*give, texts["give"]]).strip("\n"), plain,
            out in self.written[len(self.parts.producers)], self._blocks(scan, plain, early),
            self._wide(),
        )

    # ---- Operands

    def _held(self, scan: Scan, plain: Sequence[int]) -> tuple[bool, str]:
        """Return whether threads keep what operands are computed of, and the struct's members.

        Where that takes too many registers, they compute operands as soon as memory answers.
        """
        if self._registers(scan, plain) <= HELD:
            return True, "".join(
                f"    {self._vector(node, scan.width)} {self._member(region, node)};\n"
                for region in self.regions[: len(self.parts.producers)]
                for node in region.streamed
            )
        return False, "".join(
            f"    V x{o};\n" for o in range(scan.operands) if o not in plain
        )

    def _registers(self, scan: Scan, plain: Sequence[int]) -> int:
        """Return how many registers elements take that are on their way."""
        producers = self.regions[: len(self.parts.producers)]
        size = len(plain) * self.cut.itemsize
        size += sum(node.dtype.itemsize for region in producers for node in region.streamed)
        return -(-size * scan.items // 4)

    def _blocks(self, scan: Scan, plain: Sequence[int], early: bool) -> int:
        return FEWER_BLOCKS if not early or self._registers(scan, plain) > USUAL else 0

    def _member(self, region: _Part, node: Node) -> str:
        return f"p{self.regions.index(region)}_{region.code.names[node]}"

    def _vector(self, node: Node, width: int) -> str:
        return f"mg_vector<{storage_type(node.dtype)}, {width}>"

    def _taken(
        self,
        region: _Part,
        known: Mapping[Node, str],
        width: int,
        operands: Mapping[Output, Sequence[int]],
        place: str,
    ) -> list[tuple[_Part, list[str]]]:
        """Return the blocks that compute operands into a place for each."""
        staged = {output: place.format(mine[0]) for output, mine in operands.items() if mine}
        written = self.written[self.regions.index(region)]
        outputs = [o for o in operands if region.step.outputs[o.position].slot in written]
        lines = region.computed(known, width, staged, outputs, "writes")
        for mine in operands.values():
            for other in mine[1:]:
                again = place.removesuffix(".x[k]")
                lines.append(f"{again.format(other)} = {again.format(mine[0])};")
        return [(region, lines)]

    # ---- Results

    def _given(
        self,
        reader: _Part,
        made: Mapping[int, tuple[_Part, Output]],
        scan: Scan,
        blocks: list[tuple[_Part, list[str]]],
    ) -> list[str]:
        """Add the blocks that compute the reader, with operands of the scan that it reads, too."""
        out = self.parts.scan.outputs[0].slot
        known: dict[Node, str] = {}
        again: dict[int, str] = {}
        for parameter, value in enumerate(reader.step.inputs):
            if value.slot != out and value.slot not in made:
                continue
            if value.slot != out and any(value.slot in slots for slots in self.written[:-1]):
                continue  # this thread has written it
            node = read_in_scan(reader.region, parameter)
            if node is None:
                continue  # no element is read
            name = "scanned"
            if value.slot != out:
                name = again.setdefault(value.slot, f"again{len(again)}")
            known[node] = load(f"{name}.x[k]", node.dtype)
        for slot, name in again.items():
            region, output = made[slot]
            blocks.append((region, region.computed({}, scan.width, {output: f"{name}.x[k]"})))
        outputs = list(reader.region.outputs)
        lines = reader.computed(known, scan.width, {}, outputs)
        before = ["V scanned = made;"]
        before += _apart("scanned.x[k]", self.parts.scan.outputs[0].type.dtype, scan.width)
        blocks.append((reader, [*before, *lines]))
        return [
            f"    {self._vector(made[slot][1].node, scan.width)} {name};"
            for slot, name in again.items()
        ]

    def _wide(self) -> bool:
        return any(region.config.elements > WIDE for region in self.regions)
