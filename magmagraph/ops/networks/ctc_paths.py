"""Sums over alignments, in logarithms: what the loss of alignments computes of arrays.

An alignment gives each step of time a class; equal neighbours are one, and blanks are left out. The
alignments of a label sequence are the paths through its extended sequence of states, blanks before,
between and behind the labels: a step stays, goes to the next state, or passes over a blank between
two different labels. ``ahead[t]`` holds the logarithm of the weight of all paths up to step t that
end in each state, the emission of step t included; ``behind`` that of all paths from there on, the
emission of step t left out (A. Graves et al., "Connectionist temporal classification", ICML 2006,
sections 4.1 and 4.2).

A direction in the space of log-probabilities may be carried along: `lines` of weights and of their
derivatives then go through the same recursion (forward mode), which gives products with the matrix
of second derivatives. All is computed in float64, whatever the operands are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir.types import Extent, Type

DOUBLE = np.dtype(np.float64)


class Paths:
    """The states of a batch of label sequences, and what they emit.

    logs: Log-probabilities, of shape (N, T, C).
    labels, lengths, counts: Of shapes (N, S), (N,) and (N,): classes, steps of time and labels that
        count.
    direction: Of the shape of `logs`, or None.
    """

    def __init__(
        self, xp: Any, logs: Any, labels: Any, lengths: Any, counts: Any, blank: int,
        direction: Any = None,
    ) -> None:  # fmt: skip
        self.xp = xp
        self.logs, self.direction = logs, direction
        batch, self.steps, classes = logs.shape
        if blank >= classes:
            raise ShapeError(
                message(f"ctc_loss: blank={blank} for {classes} classes", "one of the classes")
            )
        self.states = 2 * labels.shape[1] + 1
        self.rows = xp.arange(batch)
        states = xp.full((batch, self.states), blank, np.int64)
        states[:, 1::2] = xp.clip(labels.astype(np.int64), 0, max(0, classes - 1))
        self.classes = states
        self.skips = xp.zeros((batch, self.states), bool)
        self.skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
        self.lengths = xp.clip(lengths.astype(np.int64), 0, self.steps)
        self.last = 2 * xp.clip(counts.astype(np.int64), 0, labels.shape[1])
        numbers = xp.arange(self.states)
        ends = (numbers == self.last[:, None]) | (numbers == self.last[:, None] - 1)
        self.ends = ends

    def emitted(self, t: int) -> tuple[Any, Any]:
        """Return the log-probability of each state's class at a step, and its derivative."""
        at = (self.rows[:, None], t, self.classes)
        slope = None if self.direction is None else self.direction[at].astype(DOUBLE)
        return self.logs[at].astype(DOUBLE), slope

    def _merged(self, weights: list[Any], slopes: list[Any] | None) -> tuple[Any, Any]:
        """Return the logarithm of a sum of weights, and its derivative."""
        xp = self.xp
        stacked = xp.stack(weights)
        top = stacked.max(axis=0)
        base = xp.where(xp.isfinite(top), top, 0.0)
        parts = xp.exp(stacked - base)
        total = parts.sum(axis=0)
        merged = xp.log(total) + base
        if slopes is None:
            return merged, None
        mixed = (parts * xp.stack(slopes)).sum(axis=0)
        return merged, mixed / xp.where(total == 0, 1.0, total)

    def _shifted(self, line: Any, by: int, fill: float) -> Any:
        """Shift a line by `by` states (to the left if negative)."""
        shifted = self.xp.full_like(line, fill)
        if by > 0:
            shifted[:, by:] = line[:, : max(0, self.states - by)]
        else:
            shifted[:, :by] = line[:, -by:]
        return shifted

    def _step(self, weight: Any, slope: Any, way: int) -> tuple[Any, Any]:
        """Return lines after a transition, forwards (1) or backwards in time (-1)."""
        xp = self.xp
        far = 2 * way
        jump = self._shifted(weight, far, -np.inf) if self.states > 2 else weight * 0 - np.inf
        allowed = self.skips if way > 0 else self._shifted(self.skips, far, False)
        if self.states <= 2:
            allowed = xp.zeros_like(self.skips)
        jump = xp.where(allowed, jump, -np.inf)
        near = self._shifted(weight, way, -np.inf) if self.states > 1 else jump
        slopes = None
        if slope is not None:
            nearer = self._shifted(slope, way, 0.0) if self.states > 1 else slope * 0
            further = self._shifted(slope, far, 0.0) if self.states > 2 else slope * 0
            slopes = [slope, nearer, further]
        return self._merged([weight, near, jump], slopes)

    def ahead(self, lines: Any = None) -> tuple[Any, Any]:
        """Return the logarithm of the weight of all alignments, and its derivative.

        `lines`, if given, receives the lines of each step: shape (lines, T, N, states).
        """
        xp = self.xp
        shape = self.classes.shape
        whole = xp.where((self.lengths == 0) & (self.last == 0), 0.0, -np.inf)
        whole_slope = xp.zeros(shape[0])
        weight, slope = xp.full(shape, -np.inf), None
        for t in range(self.steps):
            emitted, change = self.emitted(t)
            if t == 0:
                weight = xp.where(xp.arange(self.states) < 2, 0.0, -np.inf) + xp.zeros(shape)
                slope = None if change is None else xp.zeros(shape)
            else:
                weight, slope = self._step(weight, slope, 1)
            weight = weight + emitted
            slope = None if change is None else slope + change
            if lines is not None:
                lines[0][t] = weight
                if slope is not None:
                    lines[1][t] = slope
            ending = xp.where(self.ends, weight, -np.inf)
            total, total_slope = self._merged(
                list(ending.T), None if slope is None else list(slope.T)
            )
            now = self.lengths == t + 1
            whole = xp.where(now, total, whole)
            if slope is not None:
                whole_slope = xp.where(now, total_slope, whole_slope)
        return whole, whole_slope

    def occupied(self, lines: Any, whole: Any, whole_slope: Any, target: Any) -> None:
        """Add to a target, for each step and class, the probability of being there.

        With a direction it is the derivative of that probability.
        """
        xp = self.xp
        target[...] = 0
        weight = slope = None
        possible = xp.isfinite(whole)
        base = xp.where(possible, whole, 0.0)[:, None]
        for t in reversed(range(self.steps)):
            if weight is not None:
                emitted, change = self.emitted(t + 1)
                weight = weight + emitted
                slope = None if change is None else slope + change
                weight, slope = self._step(weight, slope, -1)
            else:
                weight = xp.full(self.classes.shape, -np.inf)
                slope = None if self.direction is None else xp.zeros(self.classes.shape)
            starts = (self.lengths == t + 1)[:, None]
            weight = xp.where(starts, xp.where(self.ends, 0.0, -np.inf), weight)
            if slope is not None:
                slope = xp.where(starts, 0.0, slope)
            chance = xp.where(possible[:, None], xp.exp(lines[0][t] + weight - base), 0.0)
            if slope is not None:
                chance = chance * (lines[1][t] + slope - whole_slope[:, None])
            xp.add.at(target, (self.rows[:, None], t, self.classes), chance)


def held_bytes(logs: Type, labels: Type, lines: int) -> Extent:
    """Return the bytes of the lines of all steps, and of those that a step makes."""
    batch, steps, _ = logs.shape
    line = batch * (2 * labels.shape[1] + 1) * DOUBLE.itemsize
    return lines * (steps + 12) * line


def lines_of(workspace: Any, lines: int, paths: Paths) -> Any:
    """Return the lines of all steps as an array in a workspace."""
    shape = (lines, paths.steps, len(paths.rows), paths.states)
    count = int(np.prod(shape))
    return workspace[: count * DOUBLE.itemsize].view(DOUBLE).reshape(shape)
