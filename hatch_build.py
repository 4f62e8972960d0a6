"""Builds the libraries that no program changes, for the wheel that is about to be installed.

A first call then compiles no more than its own kernels. Where there is no C compiler, or it fails,
the wheel holds Python alone, and what is missing is compiled when it is first needed: nothing here
ends an installation. MAGMAGRAPH_INSTALLED=0 builds none.

MAGMAGRAPH_PORTABLE=1 is for a wheel that is given away: its libraries are for each variant of this
kind of machine (x86-64-v3 and v4; aarch64), whatever processor builds them, and the machine that
imports them takes the best that it runs, without a compiler. An error ends such a build. Where what
magmagraph needs is installed already (pip wheel --no-build-isolation), the kernels of common
programs are built, too (packaging/common_regions.py).
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PORTABLE_SECONDS = 1200.0  # for all variants
SECONDS = 30.0  # after which what is not built yet is left out
# Packages whose own first lines import what need not be installed yet.
BARE = ("magmagraph", "magmagraph.ops", "magmagraph.ops.convolution")
FOLDER = "magmagraph.libs"  # next to the package: runtime/cpu/toolchain.py
OFF = ("0", "false", "no", "off", "")


class InstalledLibraries(BuildHookInterface):
    """Adds the folder of libraries to a wheel, which is one of this kind of machine then."""

    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say what the wheel holds."""
        if os.environ.get("MAGMAGRAPH_INSTALLED", "1").strip().lower() in OFF:
            return
        portable = os.environ.get("MAGMAGRAPH_PORTABLE", "0").strip().lower() not in OFF
        try:
            self._folder = tempfile.mkdtemp(prefix="magmagraph-")
            installing = _module(Path(self.root), "magmagraph.runtime.cpu.installing")
            if portable:
                regions = self._regions()
                count = installing.build_portable(Path(self._folder), PORTABLE_SECONDS, regions)
            else:
                count = installing.build(Path(self._folder), SECONDS)
        except Exception as error:  # whatever it is, the package works without
            if portable:
                raise  # but who asked for a wheel to give away wants it whole
            self.app.display_warning(f"no libraries are built ahead: {error}")
            return
        if not count:
            return
        self.app.display_info(f"{count} libraries are built ahead")
        editable = version == "editable"
        included = build_data["force_include_editable" if editable else "force_include"]
        for path in sorted(Path(self._folder).iterdir()):
            included[str(path)] = f"{FOLDER}/{path.name}"
        builder = self.build_config.builder
        tag = "py3-none-" + builder.get_best_matching_tag().rpartition("-")[2]
        build_data["pure_python"] = False
        build_data["tag"] = tag
        if editable:  # where the builder asks itself for the tag, whatever is said
            builder.get_default_tag = lambda: tag

    def _regions(self) -> Any:
        """Return the kernels of common programs, or none where the package's needs are missing."""
        with tempfile.TemporaryDirectory(prefix="magmagraph-") as folder:
            path = Path(folder) / "regions.json"
            program = Path(self.root) / "packaging" / "common_regions.py"
            environment = {**os.environ, "PYTHONPATH": self.root}
            done = subprocess.run(
                [sys.executable, str(program), str(path)],
                capture_output=True, text=True, env=environment, cwd=folder, check=False,
            )  # fmt: skip
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["it ended"])[-1]
                self.app.display_warning(f"no kernels of common programs are built: {said}")
                return ()
            return json.loads(path.read_text(encoding="utf-8"))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _module(root: Path, name: str) -> types.ModuleType:
    """Import a module of the package where nothing that the package needs is installed."""
    before = {known: sys.modules.pop(known) for known in list(sys.modules) if _is_own(known)}
    try:
        for package in BARE:
            bare = types.ModuleType(package)
            bare.__path__ = [str(root.joinpath(*package.split(".")))]
            sys.modules[package] = bare
        return importlib.import_module(name)
    finally:
        for known in [known for known in sys.modules if _is_own(known)]:
            del sys.modules[known]
        sys.modules.update(before)


def _is_own(name: str) -> bool:
    return name.partition(".")[0] == "magmagraph"
