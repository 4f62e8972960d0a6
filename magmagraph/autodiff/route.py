"""The way of a backward sweep: the nodes it passes, with their stable forms in their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.graph import Node, topological
from ..ir.lines import attribute, attributed
from ..ir.op import Parts
from ..ops.rules.stable_forms import Form, stable_form
from .attribution import Attribution

_MOST_INSIDE = 256  # nodes that one form replaces; none comes near


class Route:
    """The nodes between outputs and targets, and where the cotangent of each goes on to.

    outputs, targets: The ends of the way.
    free: Whether a target is taken as free, whatever it is computed from.
    attribution: Gives the line of what is made for a node.
    order: Every node once, operands first.
    wanted: The identities of the targets.
    """

    def __init__(
        self,
        outputs: Sequence[Node],
        targets: Sequence[Node],
        free: bool,
        attribution: Attribution,
    ) -> None:
        self._attribution = attribution
        self.wanted = {id(target) for target in targets}
        self._stop = (lambda node: id(node) in self.wanted) if free else None
        self.order = topological(outputs, stop=self._stop)
        # Only a target that is computed from others can lie inside of what a form replaces.
        self._inner = any(target.inputs for target in targets)
        with attributed(None):
            self._forms = self._find_forms()
        if self._forms:
            self.order = _ordered(outputs, self.operands)

    def operands(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that the cotangent of a node goes on to."""
        form = self._forms.get(id(node))
        if form is not None:
            return form.operands
        return () if self._stop is not None and self._stop(node) else node.inputs

    def parts(self, node: Node, cotangent: Node) -> Parts:
        """Return a cotangent for each of a node's `operands`."""
        form = self._forms.get(id(node))
        if form is not None:
            return form.rule(cotangent)
        return () if node.op.gradient is None else node.op.gradient(node, cotangent)

    def _find_forms(self) -> dict[int, Form]:
        """Return the stable forms of nodes on the way, and of what those are made of."""
        forms: dict[int, Form] = {}
        varying = set(self.wanted)
        for node in self.order:
            if any(id(operand) in varying for operand in node.inputs):
                varying.add(id(node))
        in_order = {id(node) for node in self.order}
        waiting = [
            node
            for node in self.order
            if id(node) in varying and (self._stop is None or not self._stop(node))
        ]
        while waiting:
            added: list[Node] = []
            for node in waiting:
                attribute(self._attribution.line(node))
                form = stable_form(node)
                if form is None or (self._inner and self._hides_target(node, form, in_order)):
                    continue
                forms[id(node)] = form
                parts = topological(form.operands, stop=lambda part: id(part) in in_order)
                new = [part for part in parts if id(part) not in in_order]
                in_order.update(id(part) for part in new)
                added += new
            waiting = added
        return forms

    def _hides_target(self, node: Node, form: Form, in_order: set[int]) -> bool:
        """Return whether a target lies between a node and what its form is made of."""
        parts = topological(form.operands, stop=lambda part: id(part) in in_order)
        ends = {id(part) for part in parts if id(part) in in_order}
        stack = list(node.inputs)
        seen: set[int] = set()
        while stack:
            part = stack.pop()
            if id(part) in ends or id(part) in seen:
                continue
            if id(part) in self.wanted or len(seen) == _MOST_INSIDE:
                return True
            seen.add(id(part))
            stack += part.inputs
        return False


def _ordered(roots: Sequence[Node], operands: Callable[[Node], tuple[Node, ...]]) -> list[Node]:
    """Return what the roots need through `operands`, operands first, each once."""
    order: list[Node] = []
    entered: set[int] = set()
    done: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if id(node) in entered:
            stack.pop()
            if id(node) not in done:
                done.add(id(node))
                order.append(node)
            continue
        entered.add(id(node))
        stack += [part for part in reversed(operands(node)) if id(part) not in entered]
    return order
