"""cuDNN graphs: one operation each, its plan chosen by the heuristics and a measured trial.

The library is reached through NVIDIA's Python frontend, which builds graphs of operations and asks
for plans that compute them. Graphs are made once a process for each shape, and the choice among
their first plans is timed on the arrays of the step itself and kept on disk. Plans whose sums
depend on the order of threads are not taken, so that two runs give the same bits, but for gradients
of attention, unless ``deterministic=True`` asks for that. Workspace is the scratch memory of the
stream where that suffices.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ...config import config
from ...errors import message
from ..cache import content_key, default_choices
from .device import SCRATCH

__all__ = ["LibraryGraph", "available", "graph_of", "refused", "version", "why_unavailable"]

TRIED = 3  # plans that are timed, the heuristics' first ones
LOOKED_AT = 5  # plans that are looked at for one that needs little workspace
PAUSE = 150_000  # nanoseconds in which the host launches a few graphs
_REPEATS = 3
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


def refused(what: str, reason: object) -> None:
    """Tell once that something runs by its array expression, and why."""
    text = " ".join(str(reason).split())
    warnings.warn(
        message(
            f"{what} runs as array expressions, which is slow: cuDNN refuses it: {text[:300]}",
            mend="another dtype or layout, or fewer groups",
        ),
        RuntimeWarning,
        stacklevel=2,
    )


Build = Callable[[Any], tuple[Sequence[Any], Sequence[Any]]]


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
        Whether tensor cores are kept out, which cut float32 factors to 11 digits.
    limit
        The most bytes of workspace.
    deterministic
        Whether plans whose sums depend on the order of threads are left out.

    Raises
    ------
    Exception
        Whatever the frontend raises where no plan computes the graph.
    """

    def __init__(
        self, device: Any, key: Hashable, build: Build, dtype: str, *, exact: bool = False,
        limit: int = SCRATCH, deterministic: bool = True,
    ) -> None:  # fmt: skip
        import cudnn

        self.device, self.key, self.limit = device, key, limit
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
            barred += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        graph.deselect_numeric_notes(barred)
        graph.check_support()
        self.chosen = -1
        self.workspace = 0
        self.uids = [tensor.get_uid() for tensor in self.tensors]

    def settle(self, addresses: Sequence[int]) -> None:
        """Choose a plan: the one known for this key, else the fastest on these arrays."""
        key = content_key("cudnn", self.device.name, repr(self.key), version())
        choices = default_choices()
        known = choices.get(key)
        count = self.graph.get_execution_plan_count()
        if isinstance(known, list) and len(known) == 2 and known[0] < count:
            index, name = known
            if self.graph.get_plan_name_at_index(index) == name and self._built(index):
                self._take(index)
                return
        built = self._candidates(count)
        if not built:
            raise RuntimeError(f"none of {count} plans can be built with {self.limit:,} bytes")
        self._take(built[0])
        if len(built) > 1:
            self._take(self._fastest(built, addresses))
        choices.set(key, [self.chosen, self.graph.get_plan_name_at_index(self.chosen)])

    def _candidates(self, count: int) -> list[int]:
        """Return the plans to try: the first ones that a stream's scratch memory suffices for.

        Where there is none among the first, those that need more are taken.
        """
        wanted = TRIED if config.tuning else 1
        small: list[int] = []
        large: list[int] = []
        for index in range(count):
            if len(small) == wanted or (large and not small and index >= LOOKED_AT):
                break
            if self._built(index):
                size = int(self.graph.get_workspace_size_plan_at_index(index))
                (small if size <= SCRATCH else large).append(index)
        return small or large[:wanted]

    def _built(self, index: int) -> bool:
        """Build a plan; return whether there is one within the limit of workspace."""
        try:
            self.graph.build_plan_at_index(index)
            size = int(self.graph.get_workspace_size_plan_at_index(index))
        except Exception:  # barred or unsupported: the next one may do
            return False
        return size <= self.limit

    def _take(self, index: int) -> None:
        self.chosen = index
        self.workspace = int(self.graph.get_workspace_size_plan_at_index(index))

    def _fastest(self, built: Sequence[int], addresses: Sequence[int]) -> int:
        cupy, stream = self.device.cupy, self.device.stream
        size = max(int(self.graph.get_workspace_size_plan_at_index(index)) for index in built)
        place = self.place(stream, self.device.empty(size) if size > SCRATCH else None)
        best, winner = float("inf"), built[0]
        for index in built:
            self.chosen = index
            try:
                self.launch(addresses, place, stream)
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                self.device.pause(stream, PAUSE)  # so that no launch is waited for in between
                begin.record(stream)
                for _ in range(_REPEATS):
                    self.launch(addresses, place, stream)
                end.record(stream)
                end.synchronize()
            except Exception:  # a plan that does not run here is no candidate
                stream.synchronize()
                continue
            taken = float(cupy.cuda.get_elapsed_time(begin, end))
            if taken < best:
                best, winner = taken, index
        return winner

    def own_workspace(self) -> Any:
        """Return memory for what the chosen plan needs beyond a stream's scratch memory, or None.

        It is for one step: others may run beside it.
        """
        return self.device.empty(self.workspace) if self.workspace > SCRATCH else None

    def place(self, stream: Any, own: Any) -> int:
        """Return the address of the workspace on a stream."""
        return self.device.scratch(stream) if own is None else int(own.data.ptr)

    def launch(self, addresses: Sequence[int], workspace: int, stream: Any) -> None:
        """Put the graph on a stream."""
        import cudnn

        cudnn.set_stream(self.handle, stream.ptr)
        pack = dict(zip(self.uids, addresses, strict=True))
        self.graph.execute_plan_at_index(pack, workspace, self.chosen, handle=self.handle)


_graphs: dict[tuple[int, Hashable], LibraryGraph | str] = {}


def graph_of(
    device: Any, key: Hashable, build: Build, dtype: str, addresses: Sequence[int], what: str,
    **options: Any,
) -> LibraryGraph | None:  # fmt: skip
    """Return the graph of a key, made and settled once a process, or None where it is refused.

    Parameters
    ----------
    device, key, build, dtype, options
        As for `LibraryGraph`.
    addresses
        Arrays that a trial may read and write.
    what
        Named in the warning of a refusal.
    """
    place = (device.number, key)
    if place not in _graphs:
        try:
            made = LibraryGraph(device, key, build, dtype, **options)
            made.settle(addresses)
        except Exception as error:  # the frontend raises kinds of its own
            refused(what, error)
            _graphs[place] = str(error)
        else:
            _graphs[place] = made
    found = _graphs[place]
    return found if isinstance(found, LibraryGraph) else None
