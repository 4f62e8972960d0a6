"""An optimizer's state in parts: each rank remembers, and renews, one part of every variable.

S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, "ZeRO: memory optimizations toward training trillion
parameter models", SC 2020, stage 1. A gradient is summed and scattered, so that each rank gets its
part of the sum; it renews its part of the variable; the parts are gathered. As many bytes travel as
in an all-reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..autodiff.transforms.rebuild import rebuild
from ..errors import ConfigError, message
from ..ir.graph import Node, topological
from ..ir.op import Kind, describe
from ..ir.ranks import current
from ..ops.collective.rows import ALLGATHER, RANK_ROW, REDUCE_SCATTER
from ..ops.collective.timed import ALLGATHER_WHEN, REDUCE_SCATTER_WHEN
from ..ops.control.identities import GRADIENT, MARKER, SCATTERED, SENT_WHEN
from ..ops.elementwise.arithmetic import MULTIPLY, multiply
from ..ops.leaf import Variable, variable
from ..ops.shape.arrange import reshape
from ..ops.shape.slicing import PLACE, cut

__all__ = ["Parts"]


class Parts:
    """How variables are cut for the ranks of a group.

    group, size: Axes of the mesh, and how many ranks differ in them.
    """

    def __init__(self, group: tuple[str, ...], size: int) -> None:
        self.group = group
        self.size = size
        self.shapes: dict[str, tuple[int, ...]] = {}  # of what is in parts, by name
        self.held: set[Node] = set()  # the variables that hold a part
        self._gradients: set[Node] = set()  # the parts that were made

    def length(self, shape: tuple[int, ...]) -> int:
        """Return the number of elements of a part."""
        return -(-int(np.prod(shape, dtype=np.int64)) // self.size)

    @property
    def begun(self) -> bool:
        """Whether an optimizer has taken its part of a gradient."""
        return bool(self._gradients)

    # ---- As nodes

    def _rows(self, value: Node) -> Node:
        count, length = int(value.size), self.length(value.shape)  # type: ignore[arg-type]
        flat = reshape(value, (count,))
        if length * self.size != count:
            flat = PLACE(flat, starts=(0,), steps=(1,), shape=(length * self.size,), value=0)
        return reshape(flat, (self.size, length))

    def own(self, value: Node) -> Node:
        """Return this rank's part of a value that all ranks have."""
        return RANK_ROW(self._rows(value), shift=0, group=self.group, size=self.size)

    def gradient(self, gradient: Node) -> Node:
        """Return this rank's part of a gradient, of a sum that is not taken yet where it can be."""
        factors = gradient.inputs
        if gradient.op is MARKER and gradient.attrs["role"] == GRADIENT:
            rows = self._rows(MARKER(gradient.inputs[0], role=SCATTERED))
            part = REDUCE_SCATTER(rows, op="sum", group=self.group, size=self.size)
            part = MARKER(part, name=gradient.name, **gradient.attrs)
        elif gradient.op is MULTIPLY and factors[0].op is SENT_WHEN:  # the mean of some calls
            term, ready = factors[0].inputs
            rows = self._rows(MARKER(term, role=SCATTERED))
            total = REDUCE_SCATTER_WHEN(
                rows, ready, op="sum", group=self.group, size=self.size
            )
            part = multiply(total, factors[1])
        else:
            part = self.own(gradient)  # clipped, say: all of it is there
        self._gradients.add(part)
        return part

    def whole(self, part: Node, like: Node, ready: Node | None = None) -> Node:
        """Return the value that all ranks' parts make; with a flag, at calls that have it."""
        group: dict[str, Any] = {"group": self.group, "size": self.size}
        rows = ALLGATHER(part, **group) if ready is None else ALLGATHER_WHEN(part, ready, **group)
        flat = reshape(rows, (int(rows.size),))
        return reshape(cut(flat, 0, 0, like.size), like.shape)

    def updated(
        self, target: Variable, update: Callable[[Variable], Node], ready: Node | None = None
    ) -> tuple[Node, Callable[[Node], Node]]:
        """Return a variable's new value, and what puts the variable into other nodes of the update.

        target: The variable.
        update: Gives the new part from a variable of a part's shape, which stands for the target's.
        ready: Whether a call renews it, where some do not.
        """
        shape = (self.length(target.shape),)  # type: ignore[arg-type]
        stand_in = variable(target.name or "variable", shape, np.zeros(shape, target.dtype))
        new = update(stand_in)
        own = self.own(target)
        begun: set[Node] = {stand_in, *self._gradients, *self.held}

        def settled(node: Node) -> Node:
            self._check(node, begun)
            (part,) = rebuild([node], {stand_in: own})
            return part

        return self.whole(settled(new), target, ready), settled

    def _check(self, root: Node, begun: set[Node]) -> None:
        """Refuse what works on a variable's elements together: a part would not do."""
        varying = set(begun)
        for node in topological([root], stop=begun.__contains__):
            read = [operand for operand in node.inputs if operand in varying]
            if node in begun or not read:
                continue
            if node.op.kind is not Kind.ELEMENTWISE and any(o.size != node.size for o in read):
                raise ConfigError(
                    message(
                        f"shard_optimizer=True, and the rule reads all of a variable: "
                        f"{describe(node)}",
                        need="a rule that works element by element (SGD, Adam, AdamW, ...)",
                        hint="shard_optimizer=False",
                    )
                )
            varying.add(node)

    # ---- As arrays

    def gathered(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return the whole of what ranks have of a named value; all of them call it."""
        shape = self.shapes[name]
        rows = current().group(self.group).allgather(np.ascontiguousarray(value))
        count = int(np.prod(shape, dtype=np.int64))
        whole: np.ndarray = np.asarray(rows).reshape(-1)[:count].reshape(shape)
        return whole

    def cut(self, name: str, value: Any) -> Any:
        """Return this rank's part of a whole value."""
        array = np.asarray(value)
        shape = self.shapes[name]
        if array.shape != shape:
            return value  # what assigns it says what is wrong
        length = self.length(shape)
        rows = np.zeros((self.size, length), array.dtype)
        rows.reshape(-1)[: array.size] = array.reshape(-1)
        ranks = current().group(self.group)
        return rows[ranks.rank]

    def parted(self, by_name: Mapping[str, Variable], shape: tuple[int, ...], label: str) -> None:
        """Note which of a variable's named values are in parts."""
        for name, own_part in by_name.items():
            if own_part.shape == (self.length(shape),):
                self.shapes[f"{label}/{name}"] = shape
                self.held.add(own_part)
