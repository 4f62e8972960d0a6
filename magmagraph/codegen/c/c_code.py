"""The state that all writers of a region's C share: names, numbers, and the values in scope.

A region's functions are put together of nests of loops, batches of rows and strips of columns. All
of these share one `CCode`.
"""

from __future__ import annotations

from ...ir.graph import Node
from ..region.analysis import Region
from .region_code import RegionCode
from .scalar import storage_type
from .text import indent, mentions

__all__ = ["KNOWN", "CCode"]

KNOWN = 256  # the longest row whose length is a constant in the C text


class CCode(RegionCode):
    """Names, numbers and known values of the C functions of one region.

    Attributes
    ----------
    walk
        What each pass computes.
    name
        The beginning of the functions' names.
    declarations
        Reductions that vector loops use, to be placed before the functions.
    vector
        The innermost loop.
    finishing
        Whether the function that ends sums is being written.
    top
        Lines before all loops of the function that is being written.
    lanes, kept_lanes
        Arrays of the values of a strip's columns, and which of these values need one.
    """

    def __init__(self, region: Region, name: str) -> None:
        super().__init__(region)
        self.walk = region.walk
        self.name = name
        self.declarations: dict[str, None] = {}
        self.vector = region.depth - 1
        self._known: dict[str, int] = {}
        self._unique = 0
        self.finishing = False
        self.top: list[str] = []
        self.lanes: dict[Node, str] = {}
        self.kept_lanes = self._kept_lanes()

    def begin_finish(self) -> None:
        """Begin the function that ends sums: nothing is known in it yet."""
        self.finishing = True
        self.top, self.scope, self.lanes = [], {}, {}

    def extent(self, loop: int) -> str:
        """Return the number of iterations of a loop."""
        name, length = f"n{loop}", self.region.loops[loop].extent
        if loop == self.vector and loop in self.region.row and type(length) is int:
            if length <= KNOWN:
                self._known[name] = length
                return name
        return super().extent(loop)

    def index(self, loop: int) -> str:
        """Return the position along a loop."""
        if self.strips and loop == self.vector:
            return f"(first + i{loop})"
        return super().index(loop)

    @property
    def strips(self) -> bool:
        """Whether the innermost loop is taken in strips here."""
        return self.region.strip and (not self.finishing or self.region.columns)

    def of(self, node: Node) -> str:
        """Return the name of a node's value."""
        return self.names[node]

    def fresh(self, label: str) -> str:
        """Return a name that is not used yet."""
        self._unique += 1
        return f"{label}{self._unique}"

    def function(self, suffix: str, body: list[str], parameters: str) -> str:
        """Return a function with what its lines use of operands, results and numbers."""
        head: list[str] = []
        text = "\n".join(body)
        for i, leaf in enumerate(self.region.body.inputs):
            if mentions(text, f"in{i}"):
                head.append(f"const {storage_type(leaf.dtype)} *in{i} = in[{i}];")
        for i, node in enumerate(self.region.body.outputs):
            if mentions(text, f"out{i}"):
                head.append(f"{storage_type(node.dtype)} *out{i} = out[{i}];")
        for name, position in self.places.items():
            if mentions(text, name):
                head.append(f"const int64_t {name} = (int64_t)tail[{position}];")
        for name, length in self._known.items():
            if mentions(text, name):
                head.append(f"const int64_t {name} = {length};")
        signature = (
            f"static void {self.name}_{suffix}(void **in, void **out, char *workspace, "
            f"void **tail, {parameters})"
        )
        return "\n".join([signature, "{", *indent([*head, *body]), "}", ""]) + "\n"

    def _kept_lanes(self) -> set[Node]:
        """Return the values of a strip's columns that are used after their stage."""
        kept = {node for nodes in self.walk.passes for node in nodes}
        for index, nodes in enumerate(self.walk.stages):
            needed = [operand for node in nodes for operand in self.walk.operands(node)]
            needed += self.walk.sinks(index, element=False)
            kept.update(node for node in needed if self.phase(node) < index)
        return {node for node in kept if self.walk.of_row(node)}

    def phase(self, node: Node) -> int:
        """Return the stage in which a row's value is computed."""
        return self.region.values[node].phase
