"""The state of a run of training: written to a file, and taken back by the same program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..distributed.sharded_state import whole_of
from ..distributed.strategies import held_apart
from ..distributed.training import Team
from ..errors import ConfigError
from ..files.reading import Damaged, reading
from ..function import Function
from ..ir.types import FilePath
from ..ops.leaf import Variable
from . import files
from .callbacks import Callback, EarlyStopping
from .changes import aspects, check_same
from .history import History
from .run import Trained
from .sources import Source

__all__ = ["Resumable"]

# What an epoch is the same with from its beginning to its end.
_OF_AN_EPOCH = frozenset({"data", "shuffle", "batch_size", "seed", "loss", "metrics"})


class Resumable:
    """How a run is written and read; mixed into `Training`."""

    model: Trained
    function: Function
    callbacks: list[Callback]
    history: History
    epoch: int
    step: int
    batch_size: int
    shuffle: bool
    stopping: bool
    data: Source
    _team: Team
    _wanted: Any
    _totals: list[Any]
    _rows: int
    _seconds: float
    _first: int  # how many epochs the model was trained for before this run
    _initial: int  # the number of the first epoch of this run

    def check_weights(self) -> None:
        """Raise where a weight is not finite."""
        raise NotImplementedError

    def _begin_epoch(self, epoch: int) -> None:
        raise NotImplementedError

    def _own(self) -> list[Variable]:
        """Return the other variables that a step updates: random counters, loss scales."""
        others = {weight.variable for weight in self.model.weights().values()}
        others.update(self.model.optimizer.state.values())
        # Residuals of compression are per rank and small: a resumed run starts without them.
        apart = held_apart(self.function.source_graph)
        renewed = (whole_of(variable) for variable in self.function.updated)
        return [
            variable
            for variable in renewed
            if variable is not None and variable not in others and variable.state not in apart
        ]

    def _architecture(self) -> dict[str, Any] | None:
        try:
            return self.model.architecture()
        except ConfigError:  # functions of the user's, which only his code builds again
            return None

    def save(self, path: FilePath) -> None:
        """Write all that the run needs to go on, to a file, whole or not at all.

        Where ranks train together, all of them call this: rank 0 writes the whole of the state, and
        all of them raise where it cannot.

        Raises
        ------
        DivergedError
            If a weight is not finite; the file that was there stays.
        StorageError
            If the disk is full or refuses; the file that was there stays.
        """
        self.check_weights()
        tensors = {f"weight/{k}": v for k, v in self.model.tensors().items()}
        optimizer = self.model.optimizer.state_dict()
        tensors.update((f"optimizer/{k}", v) for k, v in optimizer.items())
        tensors.update((f"total/{i}", np.asarray(v)) for i, v in enumerate(self._totals))
        callback_states: list[dict[str, Any]] = []
        for i, callback in enumerate(self.callbacks):
            plain = {}
            for key, value in callback.state_dict().items():
                if isinstance(value, np.ndarray):
                    tensors[f"callback/{i}/{key}"] = value
                else:
                    plain[key] = value
            callback_states.append(
                {"kind": type(callback).__name__, "resumes": callback.resumes, "state": plain}
            )
        tensors.update((f"own/{i}", variable.value) for i, variable in enumerate(self._own()))
        about = {
            "kind": "checkpoint",
            "architecture": self._architecture(),
            "optimizer": type(self.model.optimizer).__name__,
            "data": self.data.about(),
            "first_epoch": self._first,
            "initial_epoch": self._initial,
            "epoch": self.epoch,
            "step": self.step,
            "rows": self._rows,
            "seconds": self._seconds,
            "batch_size": self.batch_size,
            "wanted_size": self._wanted(self.epoch),
            "shuffle": self.shuffle,
            # A run that was cut within an epoch is to go on.
            "stopping": self.stopping and self.step == 0,
            "history": [
                {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in record.items()}
                for record in self.history.records
            ],
            "callbacks": callback_states,
        }
        self._team.write(lambda: files.write(path, tensors, about))

    def resume(self, path: FilePath, changes: frozenset[str] = frozenset()) -> None:
        """Go to where a file was written; a file that is not there means the beginning.

        Where ranks train together, all of them call this, and rank 0 reads; their number may be
        another one than when the file was written.

        Parameters
        ----------
        path
            Of the file.
        changes
            What of the run may differ from the one that wrote it, some of `CHANGES`.

        Raises
        ------
        DataError
            If the file is damaged, or of a run that differs in anything else. Nothing is changed
            then.
        """
        content = self._team.read(lambda: files.content_of(path))
        if content is None:
            return
        tensors, about = files.read(path, "checkpoint", content)
        source = f"{str(path)!r}"
        # By its class, too: one with a rate of the user's is in no architecture.
        optimizer = type(self.model.optimizer).__name__
        here = aspects(
            self._architecture(),
            optimizer=optimizer,
            data=self.data.about(),
            shuffle=self.shuffle,
            callbacks=[type(c).__name__ for c in self._resuming()],
        )
        there = aspects(
            about["architecture"],
            optimizer=about.get("optimizer", optimizer),
            data=about["data"],
            shuffle=about["shuffle"],
            callbacks=[c["kind"] for c in about["callbacks"] if c["resumes"]],
        )
        if about["step"]:  # within an epoch
            here["batch_size"] = self._wanted(about["epoch"])
            there["batch_size"] = about["wanted_size"]
        check_same(source, there, here, changes)
        with reading(source, "is no whole checkpoint of this run"):
            restore = self._checked(_parts(tensors), about, source, changes)
            restore_state = self._restorer()
            try:
                restore()
            except BaseException:
                restore_state()
                raise

    def _checked(
        self,
        parts: dict[str, dict[str, np.ndarray]],
        about: dict[str, Any],
        source: str,
        changes: frozenset[str],
    ) -> Callable[[], None]:
        """Check all that a checkpoint holds, and return what restores it."""
        weights, optimizer = parts.pop("weight", {}), parts.pop("optimizer", {})
        totals, own = parts.pop("total", {}), parts.pop("own", {})
        self.model.check_tensors(weights, source)
        if "optimizer" in changes:
            optimizer = {}
        else:
            state = set(self.model.optimizer.state)
            if "learning_rate" in changes:
                optimizer.pop("learning_rate", None)
                state.discard("learning_rate")
                if "step" not in state or "step" not in optimizer:  # which a schedule counts
                    optimizer.pop("step", None)
                    state.discard("step")
            _same_names("of the optimizer", optimizer, state)
            self.model.optimizer._memory.fitted(optimizer)
        if "metrics" not in changes:
            _same_names("of the totals", totals, map(str, range(len(self._totals))))
        if totals["0"].shape != () or any(t.dtype.kind not in "iuf" for t in totals.values()):
            raise Damaged("a total is no number")
        variables = self._own()
        _same_names("of random counters and loss scales", own, map(str, range(len(variables))))
        values = [variable.state.fitted(own[str(i)]) for i, variable in enumerate(variables)]
        if len(about["history"]) != about["epoch"] - about.get("initial_epoch", 0):
            raise Damaged(f"it has epoch {about['epoch']}, and {len(about['history'])} records")
        states = []
        for i, of in enumerate(about["callbacks"]):
            arrays = parts.pop(f"callback/{i}", {})
            best = {name[7:]: value for name, value in arrays.items() if name[:7] == "weight/"}
            if best and of["kind"] == EarlyStopping.__name__:
                self.model.check_tensors(best, source)
            if of["resumes"]:
                states.append((of["kind"], {**of["state"], **arrays}))
        if parts:
            raise Damaged(f"it has unknown tensors: {', '.join(parts)}")

        def restore() -> None:
            self.model.set_tensors(weights, source)
            self.model.optimizer.load_state_dict(optimizer)
            if "learning_rate" in changes:
                self.model.optimizer._follow_schedule()
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            self._restore_position(about)
            self._totals = [float(totals["0"]), *(totals[str(i)] for i in range(1, len(totals)))]
            if changes & _OF_AN_EPOCH:  # that is begun again where it was cut
                self._begin_epoch(self.epoch)
            self.stopping = self.stopping and "callbacks" not in changes
            for callback in self._resuming():
                kind = type(callback).__name__
                place = next((i for i, state in enumerate(states) if state[0] == kind), None)
                if place is not None:  # else it is new, and begins
                    callback.load_state_dict(states.pop(place)[1])

        return restore

    def _restore_position(self, about: Mapping[str, Any]) -> None:
        self._first = about.get("first_epoch", 0)
        self._initial = about.get("initial_epoch", 0)
        self.epoch, self.step = about["epoch"], about["step"]
        self._rows, self._seconds = about["rows"], about["seconds"]
        self.batch_size, self.stopping = about["batch_size"], about["stopping"]
        self.history.records[:] = about["history"]

    def _resuming(self) -> list[Callback]:
        return [callback for callback in self.callbacks if callback.resumes]

    def _restorer(self) -> Callable[[], None]:
        """Return a function that puts the present state back if restoring another one fails."""
        variables = [weight.variable for weight in self.model.weights().values()]
        variables += [*self.model.optimizer.state.values(), *self._own()]
        values = [(variable, variable.value) for variable in variables]
        states = [(callback, callback.state_dict()) for callback in self._resuming()]
        about = {
            "first_epoch": self._first,
            "initial_epoch": self._initial,
            "epoch": self.epoch,
            "step": self.step,
            "rows": self._rows,
            "seconds": self._seconds,
            "batch_size": self.batch_size,
            "stopping": self.stopping,
            "history": list(self.history.records),
        }
        totals = self._totals

        def put_back() -> None:
            for variable, value in values:
                variable.assign(value)
            self._restore_position(about)
            self._totals = totals
            for callback, state in states:
                callback.load_state_dict(state)

        return put_back


def _same_names(what: str, names_there: Iterable[str], names_here: Iterable[str]) -> None:
    """Raise unless a checkpoint has the tensors that this run has."""
    there, here = set(names_there), set(names_here)
    for names, wrong in ((here - there, "lacks"), (there - here, "has the unknown")):
        if names:
            raise Damaged(f"it {wrong} tensors {what}: {', '.join(sorted(names)[:5])}")


def _parts(tensors: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return tensors by the first part of their names, callbacks' by the first two."""
    by_part: dict[str, dict[str, np.ndarray]] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        if part == "callback":
            number, _, rest = rest.partition("/")
            part = f"{part}/{number}"
        by_part.setdefault(part, {})[rest] = value
    return by_part
