"""How a function is called: feeds read, the plan for their sizes run, results handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import dims
from ..collection import collection_paused
from ..distributed.matching import agree
from ..errors import ConfigError, MagmagraphError, NonFiniteError, message
from ..ranks import using
from .compiling import Compiled
from .epochs import repeated, run_batches, stack
from .feeds import Signature, bind_sizes, check_targets, conform
from .structure import Structure


class Called(Compiled):
    """What calls need beside a compiled graph: the feeds' order, and the results' structure."""

    strict_feeds: bool
    _structure: Structure

    def _start(self) -> None:
        super()._start()
        self._signature = Signature(self._inputs)
        self._dtypes = [node.dtype for node in self._inputs]
        self._spare: dict[tuple[tuple[int, ...], ...], Any] = {}  # of calls that interrupt calls

    def __call__(self, *feeds: Any, out: Any = None, **named: Any) -> Any:
        """Run once: by position, `f({x: batch})`, or by name `f(x=batch)`.

        Parameters
        ----------
        feeds, named
            A value for every input, NumPy-like, DLPack, or a number.
        out
            Arrays of the outputs' structure to write the results into. Kernels write straight
            into those that are contiguous, of the output's dtype, and apart from the feeds; after
            a call that raises, what such an array holds is not defined.

        Returns
        -------
        The structure of `outputs`, of NumPy arrays that the caller owns.

        Raises
        ------
        FeedError
            A feed is missing, unknown, given twice or does not fit.
        """
        with self._lock:
            if self._in_use:
                return self._interrupting(feeds, named, out)
            self._in_use = True
            try:
                if named or len(feeds) != len(self._inputs) or (feeds and type(feeds[0]) is dict):
                    feeds = tuple(self._signature.arrange(feeds, named))
                bound = self._last
                if bound is not None:
                    for value, dtype, shape in zip(
                        feeds, self._dtypes, self._last_shapes, strict=True
                    ):
                        if type(value) is not np.ndarray or value.dtype is not dtype:
                            break
                        flags = value.flags
                        if value.shape != shape or not (flags.c_contiguous and flags.aligned):
                            break
                    else:
                        return self._results(bound, feeds, out)
                arrays = [
                    conform(self._brought(value), node, self.strict_feeds)
                    for value, node in zip(feeds, self._inputs, strict=True)
                ]
                shapes = tuple([array.shape for array in arrays])
                if bound is not None and shapes == self._last_shapes:
                    return self._results(bound, arrays, out)
                with collection_paused():  # a first run makes much that stays, too
                    return self._results(self._specialize(shapes), arrays, out)
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._in_use = False

    def _interrupting(self, feeds: Sequence[Any], named: Mapping[str, Any], out: Any) -> Any:
        """Answer a call that interrupts a use by the same thread: on memory of its own, or raise.

        What the interrupted call has read of variables must not change, and what it has written
        in part must not be read. So a function that changes none answers, and others refuse.
        """
        if self._user_updates:
            raise self._refused("it updates variables, which one call at a time may do")
        if self._compiled is None:
            raise self._refused("it is not compiled yet")
        if self.device != "cpu" or self._communicator is not None:
            raise self._refused("it runs on a device or with other ranks, in the order of calls")
        arrays = [
            conform(self._brought(value), node, self.strict_feeds)
            for value, node in zip(
                self._signature.arrange(feeds, named), self._inputs, strict=True
            )
        ]
        shapes = tuple([array.shape for array in arrays])
        spare = self._spare.pop(shapes, None)  # a call that interrupts this one finds none
        if spare is None:
            spare = self.bound_to(
                bind_sizes(self._inputs, shapes, self.source_graph.constraints)
            )
        results = self._called(spare, arrays, out)
        self._spare = {shapes: spare}
        return results

    def _results(self, bound: Any, feeds: Sequence[Any], out: Any) -> Any:
        """Run, and return what the caller gets."""
        if self._exchange is None:
            if out is None and self._communicator is None:
                return self._structure.build(self._run(bound, feeds))
            return self._called(bound, feeds, out)
        return self._exchange.step(partial(self._called, bound, feeds, out))

    def _called(self, bound: Any, feeds: Sequence[Any], out: Any) -> Any:
        if out is None:
            return self._structure.build(self._run(bound, feeds))
        targets = self._structure.match(out)
        # Before anything runs: a refused call changes no variable.
        check_targets(targets, [fetch.type for fetch in bound.plan.fetches])
        return self._structure.build(self._run(bound, feeds, targets))

    def _brought(self, value: Any) -> Any:
        """Return a fed value of another library's device as an array of this function's."""
        if type(value) is np.ndarray or not hasattr(value, "__dlpack_device__"):
            return value
        from ..runtime.execute import received

        return received(value, self.device)

    def _run(self, bound: Any, feeds: Sequence[Any], out: Any = None) -> Any:
        try:
            if self._communicator is None:
                return bound.run(feeds, out)
            with using(self._communicator):
                if self._open:
                    self._meet_for(bound)
                    agree(self._open, bound.plan.sizes or {}, self._communicator)
                found = bound.run(feeds, out)
                self._met = False
                return found
        except MagmagraphError as error:
            if error.node is not None:
                from ..inspect.fate import locate

                locate(self, error)
            if isinstance(error, NonFiniteError) and not error.alone:
                from ..inspect.checking.blame import append_blame

                self._in_use = False  # it has run: what explains the error uses it again
                append_blame(self, feeds, error)
            raise

    def run(self, batches: Any, feeds: Any = None, *, keep: str = "all") -> Any:
        """Repeat the call: over an iterable of feeds, or `n` times with the same feeds.

        On a CUDA device several steps are one captured graph, and a `mg.batches` object's rows
        stay on the device, where they fit: nothing returns to Python between steps. Results and
        variables are those of calls, bit for bit.

        Parameters
        ----------
        batches
            An iterable of feeds (tuples or lists of arrays, dicts, or single arrays), or a number
            of calls.
        feeds
            With a number of calls: the feeds of each.
        keep
            ``"all"`` stacks each output over the steps, or lists them where their shapes differ
            (rows of a last, partial batch); ``"last"`` returns the last. Without any step a
            stack has no rows (and is an empty list where an extent is known only at a call), and
            the last is None.

        Raises
        ------
        ConfigError
            `keep` is another word, or the number of calls is below 0.
        """
        if keep not in ("all", "last"):
            raise ConfigError(message(f"keep={keep!r}", need="'all' or 'last'"))
        if isinstance(batches, (int, np.integer)) and batches < 0:
            raise ConfigError(message(f"run({batches}, ...)", need="0 calls or more"))
        if not isinstance(batches, (int, np.integer, Iterable)):
            raise ConfigError(
                message(f"run({batches!r}, ...)", need="a number of calls, or an iterable of feeds")
            )
        if self.device != "cpu":
            try:
                found = self._run_there(batches, feeds, keep == "all")
            except BaseException as error:
                self._fail(error)
                raise
            self._met = False
            if found is not None:
                return self._structure.build(found)
        several: Iterable[Any]
        if isinstance(batches, (int, np.integer)):
            several = (self._given(feeds) for _ in range(int(batches)))
        else:
            several = batches
        stacked: list[list[Any]] = []
        result: Any = None
        for batch in self._drawn(several):
            result = self(*self._given(batch))
            if keep == "all":
                stacked.append(Structure(result).leaves)
        if keep == "last":
            return result
        if not stacked:
            return self._structure.build(self._stacks_of_none(feeds))
        # With a last, partial batch the steps of an output of rows do not stack: a list then.
        return self._structure.build([stack(column) for column in zip(*stacked, strict=True)])

    def _run_there(self, batches: Any, feeds: Any, stacked: bool) -> list[Any] | None:
        """Return the outputs of `run` where the device needs no host between steps, or None."""
        from ..data.batching import Batches
        from ..runtime.execute import resident

        strategy = self._settings.get("distribute")
        if strategy is not None and strategy.asynchronous:
            return None
        with self._exclusive(), collection_paused():
            if isinstance(batches, (int, np.integer)):
                if batches < 1:
                    return None
                values = self._signature.arrange(self._given(feeds), {})
                arrays = [
                    conform(self._brought(value), node, self.strict_feeds)
                    for value, node in zip(values, self._inputs, strict=True)
                ]
                return repeated(self._begun, int(batches), arrays, stacked)
            if type(batches) is not Batches or not len(batches) or batches.shard[1] > 1:
                return None
            if len(batches.arrays) != len(self._inputs):
                return None  # a call says what is missing
            return run_batches(
                self._begun, self._inputs, batches, stacked, self.strict_feeds,
                partial(resident, device=self.device),
            )

    def _given(self, feeds: Any) -> tuple[Any, ...]:
        """Return the arguments of a call that feeds of `run` stand for."""
        if isinstance(feeds, tuple):
            return feeds
        if isinstance(feeds, list) and len(self._inputs) > 1:  # of one input it is the array
            return tuple(feeds)
        return () if feeds is None else (feeds,)

    def _begun(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        """Return the plan bound to shapes of feeds, of several steps that ranks begin together."""
        bound = self._specialize(shapes)
        self._meet_for(bound)
        return bound

    def _stacks_of_none(self, feeds: Any) -> list[Any]:
        """Return what `run` stacks for each output where it takes no step."""
        sizes: dict[str, int] = {}
        if feeds is not None:
            values = self._signature.arrange(self._given(feeds), {})
            arrays = map(partial(conform, strict=self.strict_feeds), values, self._inputs)
            shapes = [array.shape for array in arrays]
            sizes = bind_sizes(self._inputs, shapes, self.source_graph.constraints)
        return [
            np.empty((0, *(dims.evaluate(e, sizes) for e in node.shape)), node.dtype)
            if all(dims.names(e) <= sizes.keys() for e in node.shape)
            else []
            for node in self._user_outputs
        ]
