"""cuDNN graphs: one operation each, its plan chosen by the heuristics and a measured trial.

The library is reached through NVIDIA's Python frontend, which builds graphs of operations and asks
for plans that compute them. Graphs are made once a process for each shape, and the choice among
their first plans is timed on the arrays of the step itself and kept on disk. Where the fastest of
them takes far longer than the arithmetic and the bytes need, the first plan of every other engine
is timed, too: some are two to three times faster, and need workspace; where float32 keeps all
digits, those are taken only that agree with the first plan. Plans whose sums depend on
the order of threads are not taken, so that two runs give the same bits, but for gradients of
attention, unless ``deterministic=True`` asks for that. Workspace is the scratch memory of the
stream where that suffices; steps of a plan that need more share one block, and take turns
(`cudnn_plans`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....config import config
from ....errors import MagmagraphError
from ....ir.fallback import Refused
from ...cache import content_key, default_choices
from ..device import SCRATCH
from ..launching.measure import burst
from ..memory import DEVICE_TO_HOST, HOST_TO_DEVICE

__all__ = [
    "LibraryGraph", "available", "check_available", "graph_of", "version", "why_unavailable",
]  # fmt: skip

TRIED = 3  # plans that are timed, the heuristics' first ones
LOOKED_AT = 5  # plans that are looked at for one that needs little workspace
FAR = 1.5  # times what a graph needs at least, from which on other engines are tried
OTHERS = 8  # engines of which a plan is tried, then
ROUNDED = 3e-5  # of a result's norm: two orders of float32 sums differ by less
PATTERN = 1 << 20  # random numbers, repeated, that results are compared on
# Ways to compute float32 that lose digits beside a plain sum of products.
INEXACT = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13")
_ROUNDS = 3  # of a trial, in which each plan has its turn
_SLOWER = 3.0  # times the fastest, above which a plan has no further turn
_DATA = {"float64": "DOUBLE", "float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}


@functools.lru_cache(maxsize=1)
def why_unavailable() -> str | None:
    """Return why cuDNN cannot be used in this process, or None where it can."""
    try:
        import cudnn

        cudnn.backend_version()
    except Exception as error:  # missing packages and libraries raise whatever their loaders raise
        return f"{type(error).__name__}: {error}"
    return None


def available() -> bool:
    """Return whether the frontend and the library are installed."""
    return why_unavailable() is None


def check_available() -> None:
    """Raise `Refused` unless the library can be used."""
    reason = why_unavailable()
    if reason is not None:
        raise Refused(f"cuDNN cannot be used: {reason}")


@functools.lru_cache(maxsize=1)
def version() -> str:
    """Return the versions of the library and of its frontend, which plans depend on."""
    import cudnn

    return f"{cudnn.backend_version()} {cudnn.__version__}"


@functools.cache
def _handle(number: int) -> Any:
    """Return the library's handle of a device, which is current."""
    import cudnn

    return cudnn.create_handle()


def data_type(name: str) -> Any:
    """Return the library's name of a dtype."""
    import cudnn

    return getattr(cudnn.data_type, _DATA[name])


@functools.lru_cache(maxsize=1)
def refusals() -> tuple[type[Exception], ...]:
    """Return the frontend's exceptions for a graph, or a plan, that the library lacks."""
    general = RuntimeError, ValueError
    if not available():
        return general
    import cudnn

    own = getattr(cudnn, "cudnnGraphNotSupportedError", None)
    return general if own is None else (own, *general)


Build = Callable[[Any], tuple[Sequence[Any], Sequence[Any]]]
Launch = Callable[[Sequence[int]], None]
Check = Callable[[Launch], bool]


class LibraryGraph:
    """A graph of cuDNN with a plan, ready to be launched on any addresses.

    Parameters
    ----------
    device
        Where it runs.
    key
        What it computes: equal keys, equal plans.
    build
        ``build(graph)`` adds the operations and returns the tensors that are read and those that
        are written.
    dtype
        Of what is read and written.
    exact
        Whether tensor cores are kept out, which cut float32 factors to 11 digits, and transforms
        that cancel digits.
    limit
        The most bytes of workspace.
    deterministic
        Whether plans whose sums depend on the order of threads are left out.
    check
        ``check(launch)`` tells whether a plan, which ``launch(addresses)`` runs, computes what it
        should; None where plans are trusted.
    least
        Microseconds that its arithmetic and its bytes need at least; infinite: not known.

    Attributes
    ----------
    chosen, name, workspace
        The plan, what the library calls it, and its bytes of workspace.
    microseconds
        What it was measured to take; 0 where nothing was.

    Raises
    ------
    Exception
        One of `refusals`, where no plan computes the graph.
    """

    def __init__(
        self, device: Any, key: Hashable, build: Build, dtype: str, *, exact: bool = False,
        limit: int = SCRATCH, deterministic: bool = True, least: float = float("inf"),
        check: Check | None = None,
    ) -> None:  # fmt: skip
        import cudnn

        self.device, self.key, self.limit, self.least = device, key, limit, least
        self.exact, self.check = exact, check
        self.handle = _handle(device.number)
        inner = cudnn.data_type.DOUBLE if dtype == "float64" else cudnn.data_type.FLOAT
        self.graph = graph = cudnn.pygraph(
            io_data_type=data_type(dtype), intermediate_data_type=inner, compute_data_type=inner,
            handle=self.handle,
        )
        read, written = build(graph)
        self.tensors = [*read, *written]
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        notes = cudnn.numerical_note
        barred = [notes.NONDETERMINISTIC] if deterministic else []
        if exact:
            barred += [getattr(notes, name) for name in INEXACT if hasattr(notes, name)]
        graph.deselect_numeric_notes(barred)
        graph.check_support()
        self.chosen, self.name = -1, ""
        self.workspace, self.microseconds = 0, 0.0
        self.uids = [tensor.get_uid() for tensor in self.tensors]

    def settle(self, addresses: Sequence[int]) -> None:
        """Choose a plan: the one known for this key, else the fastest on these arrays."""
        room = str(self.limit.bit_length())  # where there is more memory, other plans may be faster
        notes = INEXACT if self.check is None else (*INEXACT, "checked")
        key = content_key("cudnn", self.device.name, repr(self.key), version(), room, *notes)
        choices = default_choices()
        choice = choices.get(key)
        count = self.graph.get_execution_plan_count()
        if isinstance(choice, list) and len(choice) == 3 and choice[0] < count:
            index, name, taken = choice
            if self.graph.get_plan_name_at_index(index) == name and self._built(index):
                self._take(index, float(taken))
                return
        built = self._candidates(count)
        if not built:
            right = "" if self.check is None else " and gives the right results"
            raise RuntimeError(
                f"none of {count} plans can be built with {self.limit:,} bytes{right}"
            )
        self._take(built[0])
        if config.tuning:
            self._take(*self._fastest(built, addresses))
            if self.microseconds > FAR * self.least:
                self._try_others(count, built, addresses)
            choices.set(key, [self.chosen, self.name, self.microseconds])

    def _candidates(self, count: int) -> list[int]:
        """Return the plans to try: the first ones that a stream's scratch memory suffices for.

        Where there is none among the first, those that need more are taken.
        """
        most = TRIED if config.tuning else 1
        small: list[int] = []
        large: list[int] = []
        for index in range(count):
            if len(small) == most or (large and not small and index >= LOOKED_AT):
                break
            if self._built(index) and self._right(index):
                size = int(self.graph.get_workspace_size_plan_at_index(index))
                (small if size <= SCRATCH else large).append(index)
        return small or large[:most]

    def _try_others(self, count: int, built: Sequence[int], addresses: Sequence[int]) -> None:
        """Take the first plan of another engine where it is faster than the chosen one."""
        best, taken = self.chosen, self.microseconds
        engines = {self._engine(index) for index in built}
        others: list[int] = []
        for index in range(count):
            if len(others) == OTHERS:
                break
            if self._engine(index) in engines or not self._built(index):
                continue
            if self._right(index):
                engines.add(self._engine(index))
                others.append(index)
        while others:
            index, microseconds = self._fastest(others, addresses)
            if not microseconds < taken:
                break
            if not self.exact or self._agree(built[0], index):
                best, taken = index, microseconds
                break
            others.remove(index)
        self._take(best, taken)

    def _agree(self, one: int, other: int) -> bool:
        """Return whether two plans give the same float32 numbers but for rounding.

        Some engines lose half the digits without a note that says so. The operands are our own:
        in a trial the plan's hold anything.
        """
        runtime, stream = self.device.cupy.cuda.runtime, self.device.stream
        pattern = np.random.default_rng(0).standard_normal(PATTERN).astype(np.float32)
        results = []
        try:
            blocks = [
                self.device.empty(pattern.itemsize * math.prod(tensor.get_dim()))
                for tensor in self.tensors
            ]
            for block in blocks[:-1]:
                for at in range(0, block.size, pattern.nbytes):
                    count = min(pattern.nbytes, block.size - at)
                    place = int(block.data.ptr) + at
                    runtime.memcpy(place, pattern.ctypes.data, count, HOST_TO_DEVICE)
            runtime.deviceSynchronize()
            for index in (one, other):
                self._run(index, [int(block.data.ptr) for block in blocks])
                actual = np.empty(min(blocks[-1].size, pattern.nbytes) // 4, np.float32)
                at = int(blocks[-1].data.ptr)
                runtime.memcpy(actual.ctypes.data, at, actual.nbytes, DEVICE_TO_HOST)
                results.append(actual.astype(np.float64))
        except refusals():  # no memory for it, or a plan that does not run here
            stream.synchronize()
            return False
        error = np.linalg.norm(results[1] - results[0])
        return bool(error <= ROUNDED * np.linalg.norm(results[0]))

    def _right(self, index: int) -> bool:
        """Return whether a plan passes the check, where there is one."""
        if self.check is None:
            return True
        try:
            return self.check(partial(self._run, index))
        except refusals():  # no memory for it, or a plan that does not run here
            self.device.stream.synchronize()
            return False

    def _run(self, index: int, addresses: Sequence[int]) -> None:
        """Run a plan with workspace of its own, and wait for it."""
        stream = self.device.stream
        self.chosen = index
        size = int(self.graph.get_workspace_size_plan_at_index(index))
        own = self.device.empty(size) if size > SCRATCH else None
        self.launch(addresses, self.place(stream, 0 if own is None else int(own.data.ptr)), stream)
        stream.synchronize()

    def _engine(self, index: int) -> str:
        """Return which of the library's engines runs a plan."""
        return str(self.graph.get_plan_name_at_index(index)).partition("_")[0]

    def _built(self, index: int) -> bool:
        """Build a plan; return whether there is one within the limit of workspace."""
        try:
            self.graph.build_plan_at_index(index)
            size = int(self.graph.get_workspace_size_plan_at_index(index))
        except refusals():  # barred or unsupported: the next one may do
            return False
        return size <= self.limit

    def _take(self, index: int, microseconds: float = 0.0) -> None:
        self.chosen, self.microseconds = index, microseconds
        self.name = str(self.graph.get_plan_name_at_index(index))
        self.workspace = int(self.graph.get_workspace_size_plan_at_index(index))

    def _fastest(self, built: Sequence[int], addresses: Sequence[int]) -> tuple[int, float]:
        """Return the fastest of some plans, and its least microseconds in rounds of all."""
        taken = dict.fromkeys(built, float("inf"))
        for _ in range(_ROUNDS):
            for index in list(taken):
                try:
                    taken[index] = min(taken[index], self._burst(index, addresses))
                except refusals():  # a plan that does not run here is no candidate
                    self.device.stream.synchronize()
                    del taken[index]
            best = min(taken.values(), default=0.0)
            taken = {index: time for index, time in taken.items() if time <= _SLOWER * best}
        if not taken:
            return built[0], float("inf")
        winner = min(taken, key=lambda index: taken[index])
        return winner, taken[winner]

    def _burst(self, index: int, addresses: Sequence[int]) -> float:
        """Return the microseconds of a plan in one burst of launches."""
        stream = self.device.stream
        self.chosen = index
        size = int(self.graph.get_workspace_size_plan_at_index(index))
        own = self.device.empty(size) if size > SCRATCH else None
        place = self.place(stream, 0 if own is None else int(own.data.ptr))
        return burst(self.device, partial(self.launch, addresses, place, stream), stream)

    def place(self, stream: Any, shared: int) -> int:
        """Return the address of the workspace on a stream, or in the block of a plan."""
        return shared or int(self.device.scratch(stream))

    def launch(self, addresses: Sequence[int], workspace: int, stream: Any) -> None:
        """Put the graph on a stream."""
        import cudnn

        cudnn.set_stream(self.handle, stream.ptr)
        pack = dict(zip(self.uids, addresses, strict=True))
        self.graph.execute_plan_at_index(pack, workspace, self.chosen, handle=self.handle)


_graphs: dict[tuple[int, Hashable, bool], LibraryGraph | str] = {}


def graph_of(
    device: Any, key: Hashable, build: Build, dtype: str, addresses: Sequence[int],
    *, least_limit: int = SCRATCH, **options: Any,
) -> LibraryGraph:  # fmt: skip
    """Return the graph of a key, made and settled once a process.

    Parameters
    ----------
    device, key, build, dtype, options
        As for `LibraryGraph`.
    addresses
        Arrays that a trial may read and write.
    least_limit
        Bytes of workspace that there are in any case: where the plan that was chosen needs more
        than the limit now, one is chosen that needs no more than these.

    Raises
    ------
    Refused
        The library has no plan that computes it.
    """
    limit = max(options.pop("limit", SCRATCH), least_limit)
    for little in (False, True):
        place = (device.number, key, little)
        if little:
            limit = least_limit
        if place not in _graphs:
            try:
                new_graph = LibraryGraph(device, key, build, dtype, limit=limit, **options)
                new_graph.settle(addresses)
                new_graph.check = None  # it holds the plan that asked
            except (MagmagraphError, *device.errors):
                raise  # of the device, not of the graph
            except refusals() as error:
                _graphs[place] = str(error)
            else:
                _graphs[place] = new_graph
        cached = _graphs[place]
        if isinstance(cached, str):
            raise Refused(f"cuDNN refuses it: {cached}")
        if cached.workspace <= limit:
            return cached
    raise Refused("cuDNN has no plan that fits in the workspace")
