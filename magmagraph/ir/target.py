"""The target of a plan: a kind of device, and the kernel families that run on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from ..errors import DeviceError, PassError, message
from .docstrings import documented
from .graph import Node
from .plan import KernelFamily, Role, Step
from .records import record

__all__ = ["ALIGNMENT", "SPREAD", "Target"]

ALIGNMENT = 256  # of values on CUDA devices: libraries want it of products
SPREAD = 64 << 20  # bytes of an arena on a CUDA device in which nothing is written over
# The compute capability and the multiprocessors of devices.
_KNOWN = {"a100": (80, 108), "h100": (90, 132), "h200": (90, 132), "b200": (100, 148)}


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
    alignment
        Bytes that places in the arena are multiples of.
    name
        What the device is called; empty for the one that programs run on.
    architecture, multiprocessors
        Of a CUDA device: its compute capability, 90 for 9.0, and how many multiprocessors it has.
    choose
        ``choose(key, candidates) -> name``: the fastest of some named ways to launch steps, each a
        tuple of steps, measured once a machine. None where nothing can be measured, as on a device
        that is not here: the first one is taken.
    """

    device: str = "cpu"
    families: tuple[KernelFamily, ...] = field(default=(), repr=False)
    threads: int = 1
    spread: int = 0
    alignment: int = 64
    name: str = ""
    architecture: int = 0
    multiprocessors: int = 0
    choose: Callable[[str, Mapping[str, tuple[Step, ...]]], str] | None = field(
        default=None, compare=False, repr=False
    )

    @classmethod
    @documented
    def made_up(cls, name: str) -> Target:
        """Return the target of a device that need not be here, to look at plans for it.

        name (str): "a100", "h100", "h200" or "b200".
        returns (Target): For `mg.function(..., target=)`. Nothing is measured: where passes would
            ask for the faster of two ways, they take the first.
        raises DeviceError: No such device is known.

        See Also
        --------
        function : its argument `target`.

        >>> x = mg.input("x", (100, 300))
        >>> W = mg.var("W", init=mg.init.zeros(), shape=(300, 64))
        >>> f = mg.function([x], mg.tanh(x @ W), target=mg.Target.made_up("h200"))
        >>> print(f.plan)
        step  kernel       bytes    FLOPs  stream  computes
           0  gemm_fused  222400  3846400       0  result 0 = x @ W, then tanh
        <BLANKLINE>
        arena 0 bytes, largest live set 0 bytes
        """
        facts = _KNOWN.get(name) if isinstance(name, str) else None
        if facts is None:
            raise DeviceError(
                message(
                    f"no device {name!r} is known", need=f"one of {', '.join(map(repr, _KNOWN))}"
                )
            )
        architecture, multiprocessors = facts
        return cls(
            "cuda:0", threads=2 * multiprocessors, spread=SPREAD, alignment=ALIGNMENT, name=name,
            architecture=architecture, multiprocessors=multiprocessors,
        )

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or self.device

    def chosen(self, key: str, candidates: Mapping[str, tuple[Step, ...]]) -> str:
        """Return the name of the fastest candidate, or of the first where nothing is measured."""
        return next(iter(candidates)) if self.choose is None else self.choose(key, candidates)

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
