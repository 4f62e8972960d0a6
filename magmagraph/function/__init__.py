"""`mg.function`: the front door. This folder and the command line are all that sees all rooms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.target import Target
from .compiled import PRECISIONS, Function, check_settings
from .devices import device_arrays, synchronize

__all__ = [
    "PRECISIONS",
    "Function",
    "check_settings",
    "device_arrays",
    "function",
    "synchronize",
]


@documented
def function(
    inputs: Sequence[Node],
    outputs: Any,
    updates: Any = None,
    *,
    device: str = "auto",
    precision: str = "float32",
    passes: Sequence[Any] | None = None,
    skip: Sequence[str] = (),
    distribute: Any = None,
    name: str | None = None,
    nan: str = "allow",
    default_updates: bool = True,
    strict_feeds: bool = False,
    deterministic: bool = False,
    compile_budget: float | None = None,
    memory_limit: int | str | None = None,
    options: Mapping[str, Any] | None = None,
    target: Target | None = None,
) -> Function:
    """Compile a graph into a callable.

    inputs: Input nodes, in the order of positional feeds.
    outputs: A node, a list, tuple or (nested) dict of nodes, or None: the result has the same form.
    updates: ``{variable: new value}`` (or pairs). All see the values from before the call and land
        together or not at all.
    device: "auto" (a GPU where one can be used), "cpu", "cuda", or "cuda:1".
    precision: "float32", "tf32", "float16" or "bfloat16": in what float32 products, convolutions
        and attention may be computed; types stay, and gradients in float16 are scaled, see
        `Function.loss_scale`. "int8": products with weights in int8 on the CPU, for functions that
        do not train them, see `Function.calibrate`.
    passes: Passes in place of the pipeline, see `mg.passes.default`.
    skip: Names of optional passes to leave out.
    distribute: How it is spread over ranks: `mg.distributed.DataParallel`, say.
    name: What reports and messages call it.
    nan: "allow", or "raise": a call whose results or updates are not finite raises and changes
        nothing.
    default_updates: False leaves out the updates that nodes carry, see `stateful`.
    strict_feeds: Whether feeds must have the inputs' own dtypes.
    deterministic: True: the same bits in every run on a machine, also where trials would choose
        another algorithm, or a GPU's gradient of attention is faster when its sums take any order.
    compile_budget: Seconds after which kernels that are not built yet run in NumPy;
        `mg.config.compile_budget` unless given.
    memory_limit: Bytes that a call may take, or a text such as "8GiB": variables, feeds and results
        count. Where a plan takes more, values are computed again instead of being kept, until it
        fits; where it cannot, a call raises `MemoryLimitError` before anything runs.
    options: Settings of passes by name: ``reduce_to_gemv`` ("always", "never" or "measured"),
        ``loss_scale_growth`` (steps with finite gradients after which float16's scale doubles),
        ``tuning`` (whether passes may measure).
    target: A device that need not be here, such as ``mg.Target.made_up("h200")``: the function is
        planned for it, so that its plan, report and sources can be looked at. A call raises
        `DeviceError`.
    returns (Function):
    raises GraphError, UpdateError, PassError, DeviceError: An input that is not one, an input that
        is missing, a variable updated twice, an update of something else, an unknown pass or
        device.

    >>> x = mg.var("x", shape=(3,))
    >>> f = mg.function([x], mg.sum(x * 2.0))
    >>> f([1.0, 2.0, 3.0])
    array(12., dtype=float32)
    """
    return Function(
        inputs,
        outputs,
        updates,
        device=device,
        precision=precision,
        passes=passes,
        skip=skip,
        distribute=distribute,
        name=name,
        nan=nan,
        default_updates=default_updates,
        strict_feeds=strict_feeds,
        deterministic=deterministic,
        compile_budget=compile_budget,
        memory_limit=memory_limit,
        options=options,
        target=target,
    )
