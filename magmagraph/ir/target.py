"""The target of a plan: a kind of device, and the kernel families that run on it."""

from __future__ import annotations

from dataclasses import field

from ..errors import PassError, message
from .graph import Node
from .plan import KernelFamily, Role
from .records import record

__all__ = ["Target"]


@record(frozen=True)
class Target:
    """Facts of the device that a plan is for. Equal targets give equal plans.

    Attributes
    ----------
    device
        "cpu", or a CUDA device such as "cuda:0".
    families
        The kernel families, in the order in which they are asked for a node; the last one takes
        every operation.
    threads
        Threads of the runtime; on a CUDA device the warps or blocks that fold partial results.
    spread
        Up to so many bytes of memory nothing is written over something else, so that steps can
        run side by side; 0 where they run one after the other.
    """

    device: str = "cpu"
    families: tuple[KernelFamily, ...] = field(default=(), repr=False)
    threads: int = 1
    spread: int = 0

    def family(self, node: Node) -> KernelFamily:
        """Return the first family that takes a node and does not refuse it."""
        for family in self.families:
            if family.takes(node) and family.refusal(node, self.device) is None:
                return family
        raise self._lacks(f"{node.op.name}")

    def refusals(self, node: Node) -> list[tuple[KernelFamily, str]]:
        """Return the families that are for a node's operation and refuse it, with the reasons."""
        reasons = []
        for family in self.families:
            if family.takes(node):
                reason = family.refusal(node, self.device)
                if reason is None:
                    break
                reasons.append((family, reason))
        return reasons

    def with_role(self, role: Role) -> KernelFamily:
        """Return the family of a role that only one has, such as copies."""
        for family in self.families:
            if family.role is role:
                return family
        raise self._lacks(role.name.lower())

    def _lacks(self, what: str) -> PassError:
        return PassError(
            message(
                f"the target {self.device!r} has no kernel family for {what}",
                need="a target with families",
                hint="magmagraph.runtime.target.target_of('cpu')",
            )
        )
