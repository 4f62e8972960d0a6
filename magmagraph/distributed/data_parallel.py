"""Data parallelism: every rank has the whole model and its own rows of each batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..dtypes import canonical
from ..errors import ConfigError, message
from ..ir.communicator import Group
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.ranks import current
from .asynchronous import Exchange, weights_of
from .compression import compressed
from .parts import Parts
from .strategies import BUCKET_BYTES, Facts, MicroBatches, Strategy
from .sums import Sums

__all__ = ["DataParallel"]

ALGORITHMS = ("allreduce", "ring", "torus", "parameter_server", "async")
STALENESS = 4


@documented
class DataParallel(Strategy):
    """Give each rank its own rows of every batch; sums over the batch are sums over ranks.

    One rule: a named dimension is sharded. Each rank binds it to the rows that it is fed. A
    reduction or contraction over it becomes the rank's own and an all-reduce, and its size is that
    of all ranks together. Losses, gradients, updates and statistics are then those of one process
    that is fed all rows; ranks may have different numbers of rows, also none.

    dim (str): Name of the dimension, as the inputs' shapes have it.
    algorithm ({"allreduce", "ring", "torus", "parameter_server", "async"}): How gradients are
        summed over the ranks: by MPI's or NCCL's all-reduce; by a ring of sends and receives; by
        rings along the two axes of the mesh that `group` names; by rank 0, which all others send
        to, and which sends the sums back. With "async" nothing is summed: ranks take steps of their
        own on their rows, and rank 0 adds up what they change, see the notes.
    group (str or sequence of str, optional): Axes of the mesh whose ranks share the batch: the axis
        ``data`` where the mesh has one, all ranks otherwise.
    compression ({"float16", "bfloat16"}, optional): Gradients are rounded to this dtype before they
        are sent, which halves the bytes of float32. What rounding leaves over is kept on each rank
        and added to the next gradient, so that none is lost; it is not part of checkpoints.
    bucket_bytes (int, optional): Gradients are sent in messages of about so many bytes, in the
        order in which the backward pass makes them; 25 MiB unless said.
    sync_batch_norm (bool): Whether batch normalization takes its statistics from all ranks' rows,
        as one process would: two small messages forward and two backward for each layer. False
        takes them from a rank's own rows, and the running statistics are the mean of the ranks'.
    shard_optimizer (bool): Whether ranks share what `Optimizer.step` remembers of each variable:
        each has one part, renews its part of the variable, and the parts are gathered (ZeRO, stage
        1). For rules that work element by element. `Optimizer.state_dict` gives the whole, and is
        called by all ranks.
    accumulate (int): A rank's rows are cut into so many micro-batches, which are computed one after
        the other in a step; their gradients are added on the rank, and sent once. A step's numbers
        are those of the whole batch, its activations those of one micro-batch.
    staleness (int, optional): With "async": how many steps a rank may be ahead of rank 0's answers
        to its changes; 4 unless said.
    raises ConfigError: Where an option is not one of these.

    Notes
    -----
    Results that have the dimension stay on their rank: a function returns the rows of what the
    rank was fed. Everything else that it returns is the same on all ranks. When a function is
    compiled, the variables that it uses are set to rank 0's values. Inputs without the dimension
    have to be fed equal values on all ranks.

    Asynchronous ranks may call a function different numbers of times. Results are those of a rank's
    own rows. `finish`, which all ranks call at the end, waits for all changes and gives every rank
    the same weights; `Model.fit` calls it after each epoch. Optimizers' states stay each rank's
    own. Nothing keeps such a program from waiting forever if one rank does not call `finish`.

    >>> def job():
    ...     x = mg.input("x", shape=("batch",))
    ...     f = mg.function([x], mg.mean(x), distribute=mg.distributed.DataParallel())
    ...     return float(f([1.0, 2.0, 3.0] if mg.distributed.rank() == 0 else [10.0]))
    >>> mg.distributed.threads(2, job)
    [4.0, 4.0]
    """

    last = True
    _own_axis = "data"

    def __init__(
        self,
        dim: str = "batch",
        algorithm: str = "allreduce",
        *,
        group: Group | None = None,
        compression: str | None = None,
        bucket_bytes: int | None = None,
        sync_batch_norm: bool = True,
        shard_optimizer: bool = False,
        accumulate: int = 1,
        staleness: int | None = None,
    ) -> None:
        if not isinstance(dim, str) or not dim.isidentifier():
            raise ConfigError(
                message(f"dim={dim!r}", need="the name of a dimension", hint="dim='batch'")
            )
        if algorithm not in ALGORITHMS:
            raise ConfigError(
                message(f"algorithm={algorithm!r}", need=f"one of {', '.join(ALGORITHMS)}")
            )
        counted = (
            ("bucket_bytes", bucket_bytes, 0, "a number of bytes"),
            ("staleness", staleness, 0, "a number of steps"),
            ("accumulate", accumulate, 1, "a number of micro-batches, 1 or more"),
        )
        for name, number, least, need in counted:
            if number is not None and (type(number) is not int or number < least):
                raise ConfigError(message(f"{name}={number!r}", need=need))
        if compression not in (None, "float16", "bfloat16"):
            raise ConfigError(
                message(f"compression={compression!r}", need="None, 'float16' or 'bfloat16'")
            )
        for name, value in (
            ("sync_batch_norm", sync_batch_norm), ("shard_optimizer", shard_optimizer)
        ):  # fmt: skip
            if not isinstance(value, bool):
                raise ConfigError(message(f"{name}={value!r}", need="True or False"))
        if algorithm == "async":
            sums = (("compression", compression), ("bucket_bytes", bucket_bytes))
            for option, of_sums in sums:
                if of_sums is not None:
                    raise ConfigError(
                        message(
                            f"{option}={of_sums!r} with algorithm='async'",
                            need="an algorithm that sums gradients over ranks",
                            hint=f"leave {option}= out, or algorithm='allreduce'",
                        )
                    )
        elif staleness is not None:
            raise ConfigError(
                message(
                    f"staleness={staleness} with algorithm={algorithm!r}",
                    need="ranks that do not wait for each other",
                    hint="algorithm='async', or leave staleness= out",
                )
            )
        if shard_optimizer and (algorithm != "allreduce" or compression is not None):
            raise ConfigError(
                message(
                    f"shard_optimizer=True with algorithm={algorithm!r}, "
                    f"compression={compression!r}",
                    need="gradients that are summed and scattered by the library",
                    hint="algorithm='allreduce', compression=None",
                )
            )
        self.shard_optimizer = shard_optimizer
        self._parts: list[Parts] = []
        self.asynchronous = algorithm == "async"
        self.bound = STALENESS if staleness is None else staleness
        self.accumulate = accumulate
        self._exchanges: list[Exchange] = []
        self.compression = compression
        self.dim = dim
        self.algorithm = algorithm
        self.group = group
        self.bucket_bytes = BUCKET_BYTES if bucket_bytes is None else bucket_bytes
        self.sync_batch_norm = sync_batch_norm

    def options(self) -> dict[str, Any]:
        """Return what it was made with, as plain values by the names of its arguments."""
        options = {
            "dim": self.dim,
            "algorithm": self.algorithm,
            "group": self.group,
            "sync_batch_norm": self.sync_batch_norm,
            "shard_optimizer": self.shard_optimizer,
            "accumulate": self.accumulate,
        }
        if self.asynchronous:
            return {**options, "staleness": self.bound}
        return {**options, "compression": self.compression, "bucket_bytes": self.bucket_bytes}

    def facts(self) -> Facts:
        """Return what the pass is told, for the ranks that there are."""
        mesh = current().mesh
        group = self.group
        if group is None:
            group = "data" if "data" in mesh.axes else ()
        axes: list[tuple[str, ...]] = [mesh.group(group)]
        if self.algorithm == "torus":
            names = mesh.group(group) or tuple(mesh.axes)
            if len(names) != 2:
                raise ConfigError(
                    message(
                        f"a torus over {', '.join(names)} of {mesh!r}",
                        need="two axes of the mesh",
                        hint="mg.distributed.use(mg.distributed.Mesh(rows=2, columns=2)), "
                        "group=('rows', 'columns')",
                    )
                )
            axes = [mesh.group(name) for name in names]
        return Facts(
            dim=self.dim,
            group=mesh.group(group),
            size=mesh.extent(group),
            axes=tuple((names, mesh.extent(names)) for names in axes),
            synchronized=self.sync_batch_norm,
            bucket_bytes=self.bucket_bytes,
            algorithm=self.algorithm,
            pipeline=MicroBatches(self.accumulate) if self.accumulate > 1 else None,
        )

    def prepared(
        self, outputs: list[Node], updates: list[tuple[Node, Node]]
    ) -> tuple[list[Node], list[tuple[Node, Node]]]:
        """Return a function's outputs and updates as the strategy has them, before any pass."""
        if self.shard_optimizer and updates and self.facts().size > 1:
            self._check_parts([variable for variable, _ in updates])
        if self.compression is None or self.facts().size == 1:
            return outputs, updates
        return compressed(outputs, updates, canonical(self.compression))

    def _check_parts(self, updated: list[Node]) -> None:
        """Refuse a program whose optimizer was not told of the strategy, and has whole states."""
        if self.own_variables().isdisjoint(updated) and not any(p.begun for p in self._parts):
            raise ConfigError(
                message(
                    "shard_optimizer=True, and no optimizer of the function has its state in parts",
                    need="updates that `Optimizer.step` makes",
                    hint="optimizer.step(loss, weights, inputs, outputs, distribute=...)",
                )
            )

    def optimizer_parts(self) -> Parts | None:
        """Return how ranks share what an optimizer remembers; None where each has all of it."""
        facts = self.facts()
        if not self.shard_optimizer or facts.size == 1:
            return None
        self._parts.append(Parts(facts.group, facts.size))
        return self._parts[-1]

    def optimizer_sums(self) -> Sums | None:
        """Return who adds up gradients over calls apart; None where all ranks have the sums."""
        facts = self.facts()
        return None if self.asynchronous or facts.size == 1 else Sums(facts.group)

    def own_variables(self) -> set[Node]:
        """Return the variables that hold other values on each rank."""
        return {variable for parts in self._parts for variable in parts.held}

    def begin(
        self, outputs: list[Node], updates: list[tuple[Node, Node]]
    ) -> Exchange:
        """Return this rank's side of an asynchronous function's exchange of changes."""
        ranks = current().group(self.facts().group)
        exchange = Exchange(ranks, weights_of(outputs, updates), self.bound)
        self._exchanges.append(exchange)
        return exchange

    def finish(self) -> None:
        """Wait for all changes of asynchronous ranks, and set their weights to the same values.

        All ranks call it.
        """
        for exchange in self._exchanges:
            exchange.finish()

    @property
    def staleness(self) -> dict[int, int]:
        """How often a change met weights that so many changes of other ranks had renewed since."""
        totals: Counter[int] = sum((e.staleness for e in self._exchanges), Counter())
        return dict(sorted(totals.items()))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_exchanges": []}

    def __repr__(self) -> str:
        return f"DataParallel({self.dim!r}, {self.algorithm!r})"
