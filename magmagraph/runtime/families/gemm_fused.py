"""Matrix products with the steps that read their results, in one launch; on CUDA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Node
from ...ir.plan import KernelFamily, Role, Step

if TYPE_CHECKING:
    from ..cuda.launching.launch_units import Unit
    from ..cuda.launching.launches import StepLaunches


def _never(node: Node) -> bool:
    return False  # the pass `fuse_products` makes such steps


def _on_tiles(launches: StepLaunches, step: Step) -> list[Unit] | None:
    return launches.alone(step, launches.merged.call(step))


def _by_library(launches: StepLaunches, step: Step) -> list[Unit] | None:
    return launches.alone(step, launches.with_epilogue(step))


GEMM_FUSED = KernelFamily("gemm_fused", role=Role.EPILOGUE, takes=_never, cuda=_on_tiles)
GEMM_EPILOGUE = KernelFamily(
    "gemm_epilogue", role=Role.LIBRARY_EPILOGUE, takes=_never, cuda=_by_library
)
