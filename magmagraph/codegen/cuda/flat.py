"""CUDA C for regions without rows: threads take elements in turn."""

from __future__ import annotations

from ..c.text import indent
from .cuda_code import CudaCode
from .limits import LANES, THREADS

__all__ = ["flat"]

TURNS = 4


def flat(code: CudaCode, width: int) -> list[str]:
    """Return the kernel in which threads take elements in turn.

    Parameters
    ----------
    code
        Of the region.
    width
        How many neighbours a thread takes at a time.
    """
    region = code.region
    nodes = code.walk.passes[0] if code.walk.passes else []
    folds = [fold for fold in region.folds if fold.element]
    outputs = [output for output in region.outputs if not output.epilogue]
    top = code.top()
    begin = [line for fold in folds for line in code.begin(fold)]
    update = {f: (code.fold_name(f), f"{code.fold_name(f)}_at") for f in folds}
    if region.depth:
        work = code.elements(nodes, folds, outputs, width, update)
        groups = code.number(f"groups{width}", "groups", width)
        # Where nothing is written, reads of several turns can be under way together.
        turns = [f"#pragma unroll {TURNS if folds and not outputs else 1}"]
        loop = [
            *turns,
            f"for (idx group = (idx)blockIdx.x * {THREADS} + threadIdx.x; group < {groups};",
            f"     group += (idx)gridDim.x * {THREADS}) {{",
            *indent([f"idx rest = group * {width};",
                     *code.decode("rest", range(region.depth)), *work]),
            "}",
        ]
    else:
        loop = [*code.define(nodes)]
        for fold in folds:
            loop += code.take(fold, *update[fold], condition="threadIdx.x == 0")
        if outputs:
            writes = [code.write(output) for output in outputs]
            loop += ["if (threadIdx.x == 0) {", *indent(writes), "}"]
    end: list[str] = []
    for fold in folds:
        end += code.across_block(fold, "threadIdx.x", f"{THREADS // LANES}")
        end += code.store_partial(fold, "blockIdx.x", "0", "threadIdx.x == 0")
    return [*top, *begin, *loop, *end]
