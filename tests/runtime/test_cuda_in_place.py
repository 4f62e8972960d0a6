"""CUDA kernels whose results overwrite operands read each operand for the last time before that."""

from __future__ import annotations

import re

import pytest
from regions import CASES, Case

from magmagraph.codegen.cuda.kernels import RegionKernels
from magmagraph.codegen.region.analysis import Region, analyze, analyze_for_gpu
from magmagraph.codegen.region.parts import in_place
from magmagraph.ir.fallback import Refused
from magmagraph.runtime.families.fused import FUSED_FAMILY


def kernels_of(case: Case) -> RegionKernels:
    region = analyze_for_gpu(case.body())
    assert isinstance(region, Region)
    return RegionKernels(region)


def reads_after_writes(text: str, pairs: frozenset[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs (operand, result) whose operand is read after the result is written.

    A kernel is one text whose passes follow each other, so the order of lines is the order in
    which a thread reads and writes one element.
    """
    late = []
    body = text.partition("mg_begin();")[2].splitlines()
    for operand, result in pairs:
        reads = [i for i, line in enumerate(body)
                 if re.search(rf"\bin{operand}\b", line) and "mg_bring" not in line]
        writes = [i for i, line in enumerate(body)
                  if re.search(rf"\bout{result}(\[| \+)", line.partition(" = ")[0])]
        if reads and writes and max(reads) > min(writes):
            late.append((operand, result))
    return late


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_kernel_reads_an_operand_after_overwriting_it(case: Case) -> None:
    try:
        kernels = kernels_of(case)
    except Refused:
        return  # the array expression runs, which computes all results before it writes one
    pairs = kernels.region.in_place_recomputed
    for suffix, text in kernels.texts.items():
        assert not reads_after_writes(text, pairs), f"{case.name}: kernel {suffix}"


def test_the_order_of_lines_shows_a_wrong_pair() -> None:
    """The pairs of the CPU, which saves the exponentials, are wrong where a pass computes again."""
    case = next(case for case in CASES if case.name == "softmax with its exponentials")
    kernels = kernels_of(case)
    region = kernels.region
    assert in_place(region, region.walk) == {(0, 0), (0, 2)}
    assert region.in_place_recomputed == {(0, 2)}
    late = {suffix: reads_after_writes(text, region.in_place)
            for suffix, text in kernels.texts.items()}
    assert late["v1"] == [(0, 0)]
    assert late["k4"] == []  # keeps the row in registers


def test_the_plan_of_each_device_has_the_pairs_of_its_kernels() -> None:
    """Softmax between two products: its exponentials overwrite the scores on the CPU alone."""
    import magmagraph as mg

    q, k, v = (mg.var(name, shape=(2, 333, 16)) for name in "qkv")
    value = mg.softmax(q @ mg.swapaxes(k, -1, -2), axis=-1) @ v
    f = mg.function([q, k, v], mg.grad(mg.sum(value * value), [q, k, v]), device="cpu")
    several = [s.node for s in f.plan.steps if s.kernel == "fused" and len(s.outputs) > 1]
    assert several
    seen = 0
    for node in several:
        pairs = FUSED_FAMILY.in_place(node, "cuda")
        assert pairs <= FUSED_FAMILY.in_place(node, "cpu")
        region = analyze(node.attrs["body"])
        assert isinstance(region, Region)
        seen += bool(region.walk.saved) and pairs < FUSED_FAMILY.in_place(node, "cpu")
    assert seen, "no step of the plan computes again what it overwrites"
