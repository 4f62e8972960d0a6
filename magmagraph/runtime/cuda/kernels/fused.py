"""Fused steps as CUDA kernels: sources put together, compiled, loaded, bound to sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ....codegen.cuda.generated import words
from ....codegen.cuda.kernels import ALONE_NAME, RegionKernels
from ....codegen.cuda.launch_config import ALONE, WIDE, Launch, LaunchConfig, launches_of, lines_for
from ....codegen.cuda.prelude import MAX_ARGUMENTS, complete
from ....errors import PlanError, message
from ....ir.fallback import Refused
from ..compiler import begin_sources, compile_sources
from .many import many_text, table_size

__all__ = ["Modules", "source_of"]

Place = tuple[str, bool]  # a kernel's name, and whether positions are 64-bit numbers
_CHARACTERS = 8_000  # of kernels that are compiled together: many small texts keep all cores busy


class KernelRequest(NamedTuple):
    """One kernel of a region.

    Attributes
    ----------
    kernels
        Of the region.
    suffix
        Which of them.
    wide
        Whether positions are 64-bit numbers.
    """

    kernels: RegionKernels
    suffix: str
    wide: bool

    @property
    def place(self) -> Place:
        """The key in the table of modules."""
        return f"{self.kernels.key}_{self.suffix}", self.wide

    @property
    def name(self) -> str:
        """A name that no other has."""
        return f"{self.kernels.key}_{self.suffix}_{self.wide}"

    @property
    def text(self) -> str:
        """Its source."""
        text = self.kernels.text(self.suffix)
        return text.replace("mg_kernel_", f"fused_{self.kernels.key}_")


def _source_of_many(kernels: RegionKernels, suffix: str, count: int, size: int) -> str:
    text = "\n".join(["typedef int idx;", many_text(kernels, suffix, count)])
    return complete(text, size)


def _suffix(kernel: str) -> str:
    return kernel.partition("_")[2]


def source_of(kernels: Sequence[RegionKernels]) -> str:
    """Return one source with the kernels of some regions, one for each structure."""
    texts = [k.source.replace("mg_kernel_", f"fused_{k.key}_") for k in kernels]
    return _source(texts, kernels, wide=False)


def _source(texts: Sequence[str], kernels: Sequence[RegionKernels], wide: bool) -> str:
    most = max(words(k) for k in kernels)
    if most > MAX_ARGUMENTS:
        raise PlanError(message(f"a kernel takes {most} arguments", need=f"up to {MAX_ARGUMENTS}"))
    index = "typedef long long idx;" if wide else "typedef int idx;"
    return complete("\n".join([index, *texts]), most)


class Modules:
    """The loaded kernels of a device, shared by all plans of the process."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._functions: dict[Place, int] = {}
        self._modules: list[Any] = []

    def build(self, kernels: Sequence[RegionKernels], wide: bool = False) -> None:
        """Compile and load every kernel of some regions."""
        self._build([KernelRequest(k, suffix, wide) for k in kernels for suffix in k.suffixes])

    def begin_launched(
        self,
        kernels: Sequence[RegionKernels],
        sizes: Mapping[str, int],
        lines: int,
        on_tiles: Sequence[RegionKernels] = (),
    ) -> Callable[[], None]:
        """Begin to compile the kernels that are launched for given sizes, side by side.

        Parameters
        ----------
        kernels
            Of each body.
        sizes
            The size of every dimension.
        lines
            For how many workers workspaces were planned.
        on_tiles
            Of those bodies that products compute, but for the ends of their sums.

        Returns
        -------
        callable
            Waits for that, and loads them.
        """
        requests = []
        count = self.device.multiprocessors
        often = Counter(k.key for k in kernels)
        ended = {k.key for k in on_tiles}
        often.subtract(k.key for k in on_tiles)
        many: dict[Place, str] = {}
        for k in {k.key: k for k in kernels}.values():
            try:
                here = lines_for(k, sizes, lines, count)
                for tail in (True, False)[: 1 + bool(k.cross)]:  # sums may be ended apart
                    launches, wide = launches_of(k, sizes, here, 0, tail, count)
                    main = 0 if often[k.key] > 0 else 1
                    requests += [
                        KernelRequest(k, _suffix(one.kernel), wide) for one in launches[main:]
                    ]
            except Refused:
                continue  # the step's own launches say so
            if k.key in ended:
                requests += [KernelRequest(k, suffix, wide) for suffix in k.ends]
            if often[k.key] > 1 and not wide:
                many |= self._likely_many(k, launches, often[k.key])
        groups, sources = self._groups(requests)
        compiled = begin_sources([*sources, *many.values()], self.device.architecture)

        def load() -> None:
            cubins = compiled()
            self._load(groups, cubins[: len(groups)])
            for place, cubin in zip(many, cubins[len(groups) :], strict=True):
                self._load_many(place, cubin)

        return load

    def _likely_many(
        self, kernels: RegionKernels, launches: Sequence[Launch], count: int
    ) -> dict[Place, str]:
        """Return the sources of kernels that compute as many bodies at a time, by their places."""
        if kernels.way != "flat" or kernels.region.folds:
            return {}
        needed = words(kernels)
        size = table_size(min(count, (MAX_ARGUMENTS - 2) // (needed + 1)), needed)
        sources = {}
        for launch in launches:
            plain = _suffix(launch.kernel.removesuffix(ALONE_NAME))
            for suffix in (plain, plain + ALONE_NAME):
                place = f"{kernels.key}_{suffix}_{size}", False
                if place not in self._functions and plain.startswith("v"):
                    sources[place] = _source_of_many(kernels, suffix, needed, size)
        return sources

    def _load_many(self, place: Place, cubin: bytes) -> None:
        module = self.device.cupy.cuda.function.Module()
        module.load(cubin)
        function = module.get_function("mg_many")
        self._modules += [module, function]
        self._functions[place] = function.ptr

    def _groups(
        self, requests: Sequence[KernelRequest]
    ) -> tuple[list[list[KernelRequest]], list[str]]:
        """Return the kernels not loaded yet in groups of similar length, and their sources."""
        new = {w.name: w for w in requests if w.place not in self._functions}
        groups: list[list[KernelRequest]] = []
        size = _CHARACTERS
        for one in sorted(new.values(), key=lambda w: (w.wide, -len(w.text))):
            if size + len(one.text) > _CHARACTERS or groups[-1][0].wide != one.wide:
                groups.append([])
                size = 0
            groups[-1].append(one)
            size += len(one.text)
        sources = [_source([w.text for w in g], [w.kernels for w in g], g[0].wide) for g in groups]
        return groups, sources

    def _build(self, requests: Sequence[KernelRequest]) -> None:
        groups, sources = self._groups(requests)
        self._load(groups, compile_sources(sources, self.device.architecture))

    def _load(self, groups: Sequence[Sequence[KernelRequest]], cubins: Sequence[bytes]) -> None:
        for group, cubin in zip(groups, cubins, strict=True):
            module = self.device.cupy.cuda.function.Module()
            module.load(cubin)
            self._modules.append(module)
            for one in group:
                function = module.get_function(f"fused_{one.place[0]}")
                self._modules.append(function)
                self._functions[one.place] = function.ptr

    def _function(self, kernels: RegionKernels, suffix: str, wide: bool) -> int:
        one = KernelRequest(kernels, suffix, wide)
        if one.place not in self._functions:
            self._build([one])
        return self._functions[one.place]

    def bind(
        self, kernels: RegionKernels, sizes: Mapping[str, int], lines: int, counter: int,
        tail: bool = True,
    ) -> list[tuple[int, Launch]]:
        """Return the launches of a region for given sizes, each with its function's address."""
        launches, wide = launches_of(
            kernels, sizes, lines, counter, tail, self.device.multiprocessors
        )
        return [
            (self._function(kernels, _suffix(launch.kernel), wide), launch) for launch in launches
        ]

    def many(self, kernels: RegionKernels, launches: Sequence[Launch], count: int) -> int:
        """Return the kernel that computes several bodies of a region without sums in one launch.

        Parameters
        ----------
        kernels
            Of the region.
        launches
            Of each body by itself; positions are 32-bit numbers.
        count
            How many arguments a body has.
        """
        blocks = sum(launch.grid[0] for launch in launches)
        suffix = _suffix(launches[0].kernel.removesuffix(ALONE_NAME))
        if blocks > ALONE * self.device.multiprocessors:
            suffix += ALONE_NAME
        size = table_size(len(launches), count)
        place = f"{kernels.key}_{suffix}_{size}", False
        if place not in self._functions:
            source = _source_of_many(kernels, suffix, count, size)
            (cubin,) = compile_sources([source], self.device.architecture)
            self._load_many(place, cubin)
        return self._functions[place]

    def end(self, kernels: RegionKernels, shares: LaunchConfig, suffix: str) -> int:
        """Return a kernel that ends the sums of a region whose main part ran elsewhere."""
        return self._function(kernels, suffix, shares.elements > WIDE)
