"""Fused steps as CUDA kernels: sources put together, compiled, loaded, bound to sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...errors import PlanError, message
from ...graph import Graph
from ...region import Refusal, analyze
from .compiler import compile_sources
from .element import Unsupported
from .kernels import RegionKernels
from .prelude import MAX_ARGUMENTS, complete
from .shares import WIDE, Launch, Shares

__all__ = ["Modules", "kernels_of", "source_of", "words"]

_PER_SOURCE = 8  # kernels of as many regions are compiled together


@lru_cache(maxsize=4096)
def kernels_of(body: Graph) -> RegionKernels | None:
    """Return the kernels of a body, or None where its array expressions have to run."""
    region = analyze(body)
    if isinstance(region, Refusal):
        raise PlanError(message(f"a fused body is not one region: {region.reason}"))
    try:
        return RegionKernels(region)
    except Unsupported:
        return None


def source_of(kernels: Sequence[RegionKernels], wide: bool = False) -> str:
    """Return one source with the kernels of some regions.

    Parameters
    ----------
    kernels
        One for each structure.
    wide
        Whether positions are 64-bit numbers.
    """
    texts = [k.source.replace("mg_kernel_", f"fused_{k.key}_") for k in kernels]
    most = max(words(k) for k in kernels)
    if most > MAX_ARGUMENTS:
        raise PlanError(message(f"a kernel takes {most} arguments", need=f"up to {MAX_ARGUMENTS}"))
    index = "typedef long long idx;" if wide else "typedef int idx;"
    return complete("\n".join([index, *texts]), most)


def words(kernels: RegionKernels) -> int:
    """Return how many arguments the kernels of a region take."""
    body = kernels.region.body
    return len(body.inputs) + len(body.outputs) + 1 + len(kernels.code.numbers)


class Modules:
    """The loaded kernels of a device, shared by all plans of the process."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._functions: dict[tuple[str, bool], int] = {}
        self._modules: list[Any] = []

    def build(self, kernels: Sequence[RegionKernels], wide: bool = False) -> None:
        """Compile and load what is not loaded yet."""
        new = {k.key: k for k in kernels if (f"{k.key}_v1", wide) not in self._functions}
        ordered = list(new.values())
        groups = [ordered[i : i + _PER_SOURCE] for i in range(0, len(ordered), _PER_SOURCE)]
        sources = [source_of(group, wide) for group in groups]
        for group, cubin in zip(
            groups, compile_sources(sources, self.device.architecture), strict=True
        ):
            module = self.device.cupy.cuda.function.Module()
            module.load(cubin)
            self._modules.append(module)
            for k in group:
                for suffix in k.suffixes:
                    function = module.get_function(f"fused_{k.key}_{suffix}")
                    self._modules.append(function)
                    self._functions[f"{k.key}_{suffix}", wide] = function.ptr

    def bind(
        self, kernels: RegionKernels, sizes: Mapping[str, int], lines: int, counter: int
    ) -> list[tuple[int, Launch]]:
        """Return the launches of a region for given sizes, each with its function's address."""
        launches, wide = kernels.launches(sizes, lines, counter)
        if wide:
            self.build([kernels], wide=True)
        return [(self._functions[launch.kernel, wide], launch) for launch in launches]

    def ends(self, kernels: RegionKernels, shares: Shares) -> list[tuple[int, Launch]]:
        """Return the launches that end the sums of a region whose main part ran elsewhere."""
        if not kernels.cross:
            return []
        numbers = tuple(shares.numbers())
        wide = shares.elements > WIDE
        return [
            (
                self._functions[f"{kernels.key}_{suffix}", wide],
                Launch(f"{kernels.key}_{suffix}", grid, block, numbers),
            )
            for suffix, grid, block in shares.finish()
        ]
