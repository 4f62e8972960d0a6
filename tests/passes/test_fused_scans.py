"""Plans for a GPU in which scans are launched with the regions around them, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plan_interpreter import Interpreter, random_order

import magmagraph as mg
from magmagraph.codegen.cuda import scan_parts
from magmagraph.ir.plan import Place, Plan, Role
from magmagraph.text.writing import dump

H200 = mg.Target.made_up("h200")
ROWS = 4096
ARRAY = 4 * ROWS * 1024  # bytes of an operand
Made = tuple[list[Any], Any, dict[Any, Any]]  # inputs, outputs, updates


def program(build: Callable[..., Any], *shapes: tuple[Any, ...]) -> Made:
    inputs = [mg.input(name, shape) for name, shape in zip("xyzw", shapes, strict=False)]
    made = build(*inputs)
    outputs, updates = made if isinstance(made, tuple) else (made, {})
    return inputs, outputs, updates


def planned(made: Made, sizes: list[tuple[int, ...]], target: Any = H200, **options: Any) -> Any:
    inputs, outputs, updates = made
    f = mg.function(inputs, outputs, updates=updates, target=target, **options)
    return f, f.specialize(*sizes).plan


def _moving_average(x: Any) -> Any:
    rate = mg.variable("rate", shape=(1024,), init=mg.init.ones())
    sums = mg.cumsum(x * rate, 1)
    return sums * rate, {rate: rate - 0.1 * mg.cumsum(rate * rate, 0)}


def _twice(e: Any) -> list[Any]:
    return [mg.cumsum(e, 1), mg.sum(e)]


# name: program, how many of its operands have all rows, launches, arrays moved with and without
PROGRAMS: dict[str, tuple[Callable[..., Any], int, int, int, int]] = {
    "operand": (lambda x, y: mg.cumsum(x * y, 1), 2, 1, 3, 5),
    "reader": (lambda x, y: mg.tanh(mg.cumsum(x, 1)) * y, 2, 1, 3, 5),
    "both": (lambda x, y: mg.tanh(mg.cumsum(x * y, 1)) * x, 2, 1, 3, 8),
    "of a mask": (lambda x: mg.cummax(mg.where(x > 0, x, -x), 0), 1, 1, 2, 4),
    "exclusive": (lambda x, y: mg.cumsum(x * y, 1) - x * y, 2, 1, 3, 8),
    "kept": (lambda x: (lambda s: [s, mg.exp(s)])(mg.cumsum(x, 1)), 1, 1, 3, 4),
    "an output": (lambda x: [mg.exp(x), mg.cumsum(mg.exp(x), 1)], 1, 1, 3, 4),
    "one operand of two": (lambda x: [mg.cumsum(x * x, 1), mg.cumsum(x * x, 0)], 1, 2, 5, 6),
    "two readers": (
        lambda x: (lambda s: [mg.tanh(s), mg.sum(s, 1)])(mg.cumsum(x * x, 1)), 1, 2, 4, 6,
    ),
    "gradient": (
        lambda x, y: mg.grad(mg.sum(mg.cumsum(mg.sin(x) * y, 1) ** 2), [x, y]), 2, 2, 9, 14,
    ),
    "recurrence": (
        lambda x, y: mg.linear_recurrence(mg.sigmoid(x), x * y, 1) * y, 2, 1, 3, 10,
    ),
    "reduced": (lambda x: mg.sum(mg.cumsum(x * x, 1), 0), 1, 3, 3, 5),
    "turned": (lambda x: mg.cumsum(mg.transpose(x) * 2, 1), 1, 2, 4, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_launches_and_bytes(name: str) -> None:
    build, count, launches, moved, apart = PROGRAMS[name]
    sizes = [(ROWS, 1024)] * count
    made = program(build, *sizes)
    f, plan = planned(made, sizes)
    _, without = planned(made, sizes, skip=("fuse_scans",))
    assert len(plan.steps) == launches, str(plan)
    assert round(_moved(plan) / ARRAY, 1) == moved, str(plan)
    assert round(_moved(without) / ARRAY, 1) == apart, str(without)
    assert f.report["fuse_scans"].before == len(without.steps) or name == "reduced"
    assert not any(step.role is Role.FUSED_SCAN for step in without.steps)


def _moved(plan: Plan) -> int:
    return sum(int(step.bytes) for step in plan.steps)


@pytest.mark.parametrize("name", [*PROGRAMS, "variables"])
def test_a_plan_computes_what_the_cpu_does_in_any_order_of_its_streams(
    name: str, rng: np.random.Generator
) -> None:
    build = _moving_average if name == "variables" else PROGRAMS[name][0]
    count = 1 if name == "variables" else PROGRAMS[name][1]
    sizes = [(7, 1024)] * count
    made = program(build, *[("n", 1024)] * count)
    feeds = [rng.standard_normal(size).astype("f4") for size in sizes]
    spread = len(name) % 2 * H200.spread  # memory is used again, or it is not
    _, plan = planned(made, sizes, replace(H200, spread=spread))
    assert any(step.role is Role.FUSED_SCAN for step in plan.steps) or name == "turned"
    runs = []
    for order in (None, random_order(plan, rng)):
        memory = Interpreter(plan, feeds)
        runs.append([*memory.run(order), *memory.variables().values()])
    for one, other in zip(*runs, strict=True):
        assert one.tobytes() == other.tobytes()
    inputs, outputs, updates = made
    f = mg.function(inputs, outputs, updates=updates, device="cpu")
    host = f(*feeds)
    results = [*(host if isinstance(host, (list, tuple)) else [host])]
    results += [state.value for state in updates]
    for found, wanted in zip(runs[0], results, strict=True):
        np.testing.assert_allclose(found, wanted, 2e-3, 2e-3 * float(np.abs(wanted).max()))


def reasons(made: Made, sizes: list[tuple[int, ...]], **options: Any) -> set[str]:
    f, _ = planned(made, sizes, **options)
    return {refusal.reason for refusal in f.report["fuse_scans"].refusals}


def test_what_is_not_fused_says_why() -> None:
    size = (64, 1024)
    assert reasons(program(lambda x: mg.cumsum(x, 1), size), [size]) == set()
    turned = program(lambda x: mg.cumsum(mg.transpose(x) * 2, 1), size)
    assert reasons(turned, [size]) == {"the region reads an operand in another order"}
    summed = program(lambda x: _twice(mg.exp(x)), size)
    assert reasons(summed, [size]) == {"the region reduces"}
    # Blocks that share a line read it twice: four operands are more than an operand's way there.
    long = (1, 1 << 22)
    four = program(lambda x, y, z, w: mg.cumsum(x * y + z * w, 1), *[long] * 4)
    assert reasons(four, [long] * 4) == {
        "several blocks share a line, and would read what it is computed of twice"
    }
    _, plan = planned(program(lambda x, y: mg.cumsum(x * y, 1), long, long), [long] * 2)
    assert [step.kernel for step in plan.steps] == ["scan_fused"]
    whole = [(4096, 1024)] * 4
    _, plan = planned(program(lambda x, y, z, w: mg.cumsum(x * y + z * w, 1), *whole), whole)
    assert [step.kernel for step in plan.steps] == ["scan_fused"]
    z = mg.input("z", (64, 100), "complex64")
    _, plan = planned(([z], mg.cumsum(z * 2, 1), {}), [(64, 100)])
    assert "scan_fused" not in [step.kernel for step in plan.steps]


def test_what_looks_at_plans_knows_the_parts() -> None:
    size = (512, 1024)
    f, plan = planned(program(lambda x, y: mg.tanh(mg.cumsum(x * y, 1)), size, size), [size] * 2)
    assert "multiply of x, y, then cumsum, then tanh" in str(plan)
    assert [slot.place for slot in plan.slots].count(Place.INSIDE) == 2
    assert "scan_fused -> " in dump(plan)
    cumsum = next(node for node in f.source_graph.nodes if node.op.name == "cumsum")
    assert [(use.family, use.place) for use in f.explain(cumsum).kernels] == [
        ("scan_fused", "inside")
    ]
    source = f.source(0)
    assert "__global__" in source and "tanhf" in source and "_apply" in source
    assert mg.show(f).html()


def test_operands_that_take_many_registers_are_computed_when_they_are_read() -> None:
    size = (512, 1024)
    sources = {}
    for count in (2, 4):
        made = program(lambda *xs: mg.cumsum(sum(x * x for x in xs), 1), *[size] * count)
        f, _ = planned(made, [size] * count)
        sources[count] = f.source(0)
    assert "V x0;" not in sources[2] and "V x0;" in sources[4]
    assert "__launch_bounds__(THREADS, BLOCKS)" in sources[4]
    assert f"#define BLOCKS {scan_parts.FEWER_BLOCKS}" in sources[4]


def test_complex_sums_stay_apart_from_what_reads_them() -> None:
    """Their parts are scanned one by one: a region needs both."""
    z = mg.input("z", (70,), "complex64")
    f = mg.function([z], mg.exp(mg.cumsum(z * 2.0)) * 0.5, target=H200)
    plan = f.specialize((70,)).plan
    assert [step.family.name for step in plan.steps] == ["fused", "scan", "fused"]
    reasons = {refusal.reason for refusal in f.report["fuse_scans"].refusals}
    assert reasons == {"kernels scan the parts of complex64 one by one"}
