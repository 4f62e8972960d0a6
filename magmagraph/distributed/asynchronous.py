"""Asynchronous stochastic gradient descent: ranks that do not wait for each other's steps.

Each rank takes its own steps on its own rows, from the weights that it has. Rank 0 holds the
weights of all. What a step changes is sent there, added, and answered with the sum of all changes;
until the answer comes the rank goes on with its own (J. Dean and others, "Large scale distributed
deep networks", NIPS 2012). How many changes of other ranks came between the weights that a step
began with and its own change is its staleness, which is counted. It is bounded: a rank waits that
is more than a bound of steps ahead of the answers, or of the slowest rank (Q. Ho and others, "More
effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013). So a change
with number c began with an answer to one of the last ``bound + 1`` changes of its rank, given when
the slowest rank was at most `bound` changes behind that; and no other rank has made more than
``c + 2 bound`` changes (rank 0 no more than ``c + bound``) by the time it arrives. In between
each rank makes ``4 bound + 1`` changes at most, rank 0 ``3 bound + 1``.

Messages are polled for, in no order that a graph could tell: this mode is outside of the guarantee
that programs do not wait for each other forever. It ends by `Exchange.finish`, which all ranks
call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.communicator import Communicator
from ..ir.graph import Node, topological
from ..ir.op import Effect
from ..ops.control.identities import GRADIENT

__all__ = ["Exchange", "weights_of"]

_CHANGE, _ANSWER, _LAST = 9001, 9002, 9003  # tags of messages
_PATIENCE = 2e-5  # seconds between two looks for a message


def weights_of(outputs: Sequence[Node], updates: Sequence[tuple[Node, Node]]) -> list[Node]:
    """Return the variables that ranks share: the updated ones that gradients are computed from."""
    roots = [*outputs, *(value for _, value in updates)]
    marked = [n for n in topological(roots) if n.attrs.get("role") == GRADIENT]
    read = {node for node in topological(marked) if node.op.effect is Effect.STATE}
    floats = [variable for variable, _ in updates if variable.dtype.kind not in "iub"]
    return [variable for variable in floats if variable in read] if marked else floats


class Exchange:
    """One rank's side of the exchange of changes.

    ranks: Those that train together; rank 0 of them holds the weights.
    weights: The shared variables, in the same order on all ranks.
    bound: How many steps a rank may be ahead of rank 0's answers, and of the slowest rank.
    staleness: How often each staleness was found: of all changes so far on rank 0; on the others as
        of the last answer.
    """

    def __init__(self, ranks: Communicator, weights: Sequence[Any], bound: int) -> None:
        self.ranks = ranks
        self.weights = list(weights)
        self.bound = bound
        self.staleness: Counter[int] = Counter()
        self._version = 0  # changes that rank 0's weights hold, or did when they were sent
        self._made = 0  # changes that this rank has made
        self._base = [
            variable.value for variable in self.weights
        ]  # rank 0's weights, as of `_version`
        self._own = 0  # how many of this rank's own changes they hold
        self._pending: dict[int, list[np.ndarray]] = {}
        self._begin()

    def _begin(self) -> None:
        """Count the steps of all ranks from 0."""
        self._start = self._made
        self._clocks = dict.fromkeys(range(self.ranks.size), 0)  # of those that are not done
        self._unanswered: dict[int, tuple[int, int]] = {}  # the last change, and the clock then

    def step(self, run: Callable[[], Any]) -> Any:
        """Take a step of this rank's own, and exchange what there is to exchange."""
        self._take()
        before = [variable.value for variable in self.weights]
        result = run()
        changes = [
            variable.value - start for variable, start in zip(self.weights, before, strict=True)
        ]
        self._made += 1
        if self.ranks.rank == 0:
            self._version += 1
            self.staleness[0] += 1
            self._clocks[0] = self._made - self._start
            self._take()
            while self._clocks[0] - min(self._clocks.values()) > self.bound:
                time.sleep(_PATIENCE)
                self._take()
            return result
        self._pending[self._made] = changes
        others = self._version - self._own  # changes of other ranks that the step began with
        clock = self._made - self._start
        self.ranks.post((self._made, clock, others, changes), 0, _CHANGE)
        self._take()
        while len(self._pending) > self.bound:
            time.sleep(_PATIENCE)
            self._take()
        return result

    def _take(self) -> None:
        """Take what has come, without waiting."""
        if self.ranks.rank == 0:
            self._serve()
        else:
            self._receive()

    def _serve(self) -> None:
        while (received := self.ranks.poll(None, _CHANGE)) is not None:
            source, (number, clock, others, changes) = received
            # Of the changes so far, `number - 1` are its own.
            self.staleness[self._version - (number - 1) - others] += 1
            for variable, change in zip(self.weights, changes, strict=True):
                variable.assign(variable.value + change)
            self._version += 1
            self._clocks[source] = clock
            self._unanswered[source] = number, clock
        while (received := self.ranks.poll(None, _LAST)) is not None:
            self._clocks.pop(received[0])
        slowest = min(self._clocks.values(), default=None)
        for source, (number, clock) in list(self._unanswered.items()):
            if slowest is None or clock - slowest <= self.bound:
                del self._unanswered[source]
                values = [variable.value for variable in self.weights]
                answer = (number, self._version, values, dict(self.staleness))
                self.ranks.post(answer, source, _ANSWER)

    def _receive(self) -> None:
        newest = None
        while (answer := self.ranks.poll(0, _ANSWER)) is not None:
            newest = answer[1]
        if newest is None:
            return
        self._own, self._version, self._base, counted = newest
        self.staleness = Counter(counted)
        self._pending = {k: sent for k, sent in self._pending.items() if k > self._own}
        for i, variable in enumerate(self.weights):
            variable.assign(self._base[i] + sum((sent[i] for sent in self._pending.values()), 0))

    def finish(self) -> None:
        """Wait until all changes of all ranks are in, and give every rank the weights of rank 0."""
        ranks = self.ranks
        if ranks.size == 1:
            return
        if ranks.rank == 0:
            self._clocks.pop(0)
            while self._clocks:
                self._serve()
                time.sleep(_PATIENCE)
        else:
            while self._pending:
                self._receive()
                time.sleep(_PATIENCE)
            ranks.post(None, 0, _LAST)
        for variable in self.weights:
            value = variable.value
            whole = ranks.broadcast(np.ascontiguousarray(value), 0)
            variable.assign(whole.reshape(value.shape))  # a scalar was given an axis
        self._version, counted = ranks.from_first(
            (self._version, dict(self.staleness)), "the end of asynchronous training"
        )
        self.staleness = Counter(counted)
        self._own = self._made
        self._base = [variable.value for variable in self.weights]
        self._begin()
