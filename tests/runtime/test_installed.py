"""Libraries that were built at installation: used where they fit, and nowhere else."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from magmagraph.cli import info
from magmagraph.errors import CacheWarning, CompilerUnavailable, ConfigError
from magmagraph.runtime.cpu import compiler, compilers, installed, installing, sources, toolchain
from magmagraph.runtime.cpu.compiler import compile_library, start_libraries
from magmagraph.runtime.cpu.compilers import find_compiler

ROOT = Path(__file__).parents[2]
FEW = ("support", "blas-float32")
PROGRAM = """
import sys
sys.path.insert(0, {place!r})
import numpy as np
import magmagraph as mg
x, v = mg.input("x", shape=("n", 100)), mg.input("v", shape=(100,))
f = mg.function([x, v], [x @ v])
got = f(np.ones((3, 100), np.float32), np.full(100, 0.5, np.float32))
assert (np.asarray(got) == 50.0).all(), got
print(len([n for n in sys.modules if n.startswith("concurrent")]))
"""


@pytest.fixture
def counting(monkeypatch, tmp_path):
    """Give a compiler that writes a line for each of its runs, and the list of these lines."""
    try:
        real = find_compiler().command[0]
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    script = tmp_path / "counting-cc"
    runs = tmp_path / "runs"
    script.write_text(f'#!/bin/sh\necho "$*" >> {runs}\nexec {real} "$@"\n')
    script.chmod(0o755)
    runs.touch()
    monkeypatch.setenv("MAGMAGRAPH_CC", str(script))
    monkeypatch.delenv("MAGMAGRAPH_INSTALLED", raising=False)
    yield lambda: runs.read_text().splitlines()
    compiler._abandon()
    compilers._find.cache_clear()
    installed._found.cache_clear()


@pytest.fixture
def folder(counting, monkeypatch, tmp_path):
    """Give a folder of two libraries as an installation leaves it, and forget all else."""
    few = [fixed for fixed in sources.fixed_sources() if fixed.name in FEW]
    monkeypatch.setattr(installing, "fixed_sources", lambda: few)
    place = tmp_path / toolchain.FOLDER
    place.mkdir()
    assert installing.build(place, 120.0) == 2
    monkeypatch.setattr(installed, "_folders", lambda: [place])
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    _forget(monkeypatch)
    (tmp_path / "runs").write_text("")
    return place


def _forget(monkeypatch):
    monkeypatch.setattr(compiler, "_loaded", {})
    monkeypatch.setattr(compiler, "_started", {})
    monkeypatch.setattr("magmagraph.runtime.cache._opened", {})
    compilers._find.cache_clear()
    installed._found.cache_clear()
    installed._tell_damaged.cache_clear()


def _load_support():
    return compile_library(sources.support_source(), sources.SUPPORT_LEVEL)


def _snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_what_was_installed_is_not_compiled(folder, counting, tmp_path):
    before = _snapshot(folder)
    library = _load_support()
    assert library.mg_thread_count() >= 1
    assert library._name == str(folder / "support.so")
    start_libraries([sources.support_source()], [sources.SUPPORT_LEVEL])
    assert not compiler._started
    assert counting() == []  # not even to say what it is
    assert not list(tmp_path.glob("cache/**/*.so"))
    assert _snapshot(folder) == before


def test_a_program_of_products_starts_no_compiler(folder, counting, tmp_path):
    """In a process of its own, as a user's is, with nothing but the folder to find."""
    environment = {**os.environ, "MAGMAGRAPH_CACHE_DIR": str(tmp_path / "cold")}
    program = PROGRAM.format(place=str(tmp_path))
    beside = Path(installed.__file__).parents[3] / toolchain.FOLDER
    if beside.exists():
        pytest.skip("a folder beside the package comes first")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0\n"  # what builds is not imported
    assert counting() == []
    environment["MAGMAGRAPH_INSTALLED"] = "0"
    subprocess.run([sys.executable, "-c", program], timeout=120, env=environment, check=True)
    assert sum(".c -o" in line for line in counting()) == 2


def test_another_compiler_builds_its_own(folder, counting, monkeypatch, tmp_path):
    other = tmp_path / "other-cc"
    other.write_text((tmp_path / "counting-cc").read_text())
    other.chmod(0o755)
    monkeypatch.setenv("MAGMAGRAPH_CC", str(other))
    assert str(folder) not in _load_support()._name
    assert len(counting()) == 2  # what it is, and the library


def test_a_compiler_that_was_replaced_is_asked_anew(folder, counting, tmp_path):
    """By the time of its file; where it says the same, the libraries still fit."""
    os.utime(tmp_path / "counting-cc", ns=(1, 1))
    assert _load_support()._name == str(folder / "support.so")
    assert len(counting()) == 1


def test_other_flags_build_anew(folder, counting, monkeypatch):
    assert str(folder) not in compile_library(sources.support_source(), "2")._name
    assert len(counting()) == 1
    command = os.environ["MAGMAGRAPH_CC"]
    monkeypatch.setenv("MAGMAGRAPH_CC", command + " -DNOTHING")
    _forget(monkeypatch)
    assert str(folder) not in _load_support()._name


def test_another_processor_builds_anew(folder, counting, monkeypatch):
    here = toolchain.machine()
    monkeypatch.setattr(toolchain, "machine", lambda: (*here, "without some instructions"))
    assert not installed.found().is_for_this_machine()
    library = _load_support()
    assert str(folder) not in library._name
    assert library.mg_thread_count() >= 1


@pytest.mark.parametrize("damage", ["changed", "empty", "gone"])
def test_a_damaged_file_is_compiled_instead(folder, counting, damage):
    path = folder / "support.so"
    good = path.read_bytes()
    path.unlink()
    if damage != "gone":
        middle = len(good) // 2
        changed = good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :]
        path.write_bytes(changed if damage == "changed" else b"")
    with pytest.warns(CacheWarning, match=r"support\.so cannot be used") as said:
        library = _load_support()
    assert len(said) == 1
    assert library.mg_thread_count() >= 1
    assert sum(".c -o" in line for line in counting()) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"libraries": 3}'])
def test_a_damaged_index_is_said_once(folder, counting, text):
    (folder / toolchain.INDEX).write_text(text)
    with pytest.warns(CacheWarning, match=r"index\.json cannot be used") as said:
        assert _load_support().mg_thread_count() >= 1
    assert len(said) == 1


def test_what_cannot_be_loaded_is_compiled(folder, counting, monkeypatch):
    original = compiler.Library

    def no_code(name, *arguments, **options):
        if str(name).startswith(str(folder)):
            raise OSError(f"{name}: failed to map segment from shared object")
        return original(name, *arguments, **options)

    monkeypatch.setattr(compiler, "Library", no_code)
    assert _load_support().mg_thread_count() >= 1
    assert sum(".c -o" in line for line in counting()) == 1


def test_the_variable_leaves_them_aside(folder, counting, monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_INSTALLED", "off")
    assert str(folder) not in _load_support()._name
    monkeypatch.setenv("MAGMAGRAPH_INSTALLED", "perhaps")
    with pytest.raises(ConfigError, match="MAGMAGRAPH_INSTALLED is 'perhaps'"):
        installed.found()


def _told(name="installed libraries"):
    return next(fact for fact in info.facts() if fact.name == name)


def test_info_tells_what_is_used_and_why_not(folder, counting, monkeypatch, tmp_path):
    count = len(list(sources.fixed_sources()))
    assert _told().value.startswith(f"2 of {count}, in {folder}; the others were not built")
    few = [fixed for fixed in sources.fixed_sources() if fixed.name in FEW]
    monkeypatch.setattr(sources, "fixed_sources", lambda: few)
    assert (_told().value, _told().advice) == (f"2 of 2, in {folder}", "")
    record = json.loads((folder / toolchain.INDEX).read_text())
    for what, said in (("machine", "for another processor"), ("libraries", "have changed since")):
        changed = {**record, what: {} if what == "libraries" else "another"}
        changed["libraries"] = {}
        (folder / toolchain.INDEX).write_text(json.dumps(changed))
        installed._found.cache_clear()
        assert _told().value.startswith(f"0 of 2, in {folder}; ")
        assert said in _told().value
        assert "again" in _told().advice
    changed = {**record, "libraries": {}, "compiler": {**record["compiler"], "version": "gcc 1.2"}}
    (folder / toolchain.INDEX).write_text(json.dumps(changed))
    (tmp_path / "cache").mkdir(exist_ok=True)
    os.utime(tmp_path / "counting-cc", ns=(1, 1))
    _forget(monkeypatch)
    assert _told().value.endswith("they were built by " + os.environ["MAGMAGRAPH_CC"] + ", gcc 1.2")
    monkeypatch.setenv("MAGMAGRAPH_INSTALLED", "0")
    assert _told().value == "not used: they are switched off"
    monkeypatch.delenv("MAGMAGRAPH_INSTALLED")
    monkeypatch.setattr(installed, "_folders", list)
    installed._found.cache_clear()
    assert (_told().value, "pip" in _told().advice) == ("none", True)


# ---------------------------------------------------------------------------- at installation


class _Hook:
    """What the build's own library gives a hook, as far as this one asks for it."""

    def __init__(self):
        self.root = str(ROOT)
        self.said = []
        self.app = types.SimpleNamespace(
            display_info=self.said.append, display_warning=self.said.append
        )
        builder = types.SimpleNamespace(
            get_best_matching_tag=lambda: "cp311-cp311-linux_x86_64",
            get_default_tag=lambda: "py3-none-any",
        )
        self.build_config = types.SimpleNamespace(builder=builder)


@pytest.fixture
def hook(counting, monkeypatch):
    """Give the hook of the build, and what it is given of a wheel."""
    file = ROOT / "hatch_build.py"
    if not file.exists():
        pytest.skip("an installed copy has no top level")
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = _Hook
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build_of_the_test", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    original = module._module

    def with_few(root, name):
        found = original(root, name)
        few = [fixed for fixed in found.fixed_sources() if fixed.name in FEW]
        found.fixed_sources = lambda: few
        return found

    monkeypatch.setattr(module, "_module", with_few)
    assert module.FOLDER == toolchain.FOLDER
    return module.InstalledLibraries(), {"force_include": {}, "force_include_editable": {}}


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_a_wheel_with_libraries_is_for_one_kind_of_machine(hook, version):
    made, data = hook
    before = sys.modules["magmagraph.runtime.cpu.installing"]
    made.initialize(version, data)
    assert sys.modules["magmagraph.runtime.cpu.installing"] is before
    included = data["force_include" if version == "standard" else "force_include_editable"]
    names = {f"magmagraph.libs/{name}" for name in ("support.so", "blas-float32.so", "index.json")}
    assert set(included.values()) == names
    assert all(Path(path).is_file() for path in included)
    assert (data["tag"], data["pure_python"]) == ("py3-none-linux_x86_64", False)
    if version == "editable":
        assert made.build_config.builder.get_default_tag() == "py3-none-linux_x86_64"
    assert made.said == ["2 libraries are built ahead"]
    made.finalize(version, data, "")
    assert not any(Path(path).exists() for path in included)


@pytest.mark.parametrize("command", ["/nonexistent/cc", "false", sys.executable])
def test_no_compiler_ends_no_installation(hook, monkeypatch, command):
    made, data = hook
    monkeypatch.setenv("MAGMAGRAPH_CC", command)
    made.initialize("standard", data)
    made.finalize("standard", data, "")
    assert data == {"force_include": {}, "force_include_editable": {}}
    assert made.said[0].startswith("no libraries are built ahead: ")


def test_a_compiler_that_fails_or_hangs_ends_no_installation(hook, monkeypatch, tmp_path):
    """It says what it is, refuses one source, and is not done with the other in time."""
    real = find_compiler().command[0]
    script = tmp_path / "bad-cc"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *support.c*) exit 1;; *-shared*.c*) exec sleep 60;; esac\n'
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("MAGMAGRAPH_CC", str(script))
    made, data = hook
    monkeypatch.setitem(made.initialize.__globals__, "SECONDS", 1.0)
    made.initialize("standard", data)
    made.finalize("standard", data, "")
    assert data == {"force_include": {}, "force_include_editable": {}}


def test_the_variable_builds_none(hook, monkeypatch, counting):
    made, data = hook
    monkeypatch.setenv("MAGMAGRAPH_INSTALLED", "0")
    made.initialize("standard", data)
    assert data == {"force_include": {}, "force_include_editable": {}}
    assert counting() == []


def test_building_needs_pythons_own_library_alone():
    """The package is built before anything that it needs is installed."""
    file = ROOT / "hatch_build.py"
    if not file.exists():
        pytest.skip("an installed copy has no top level")
    code = (
        "import importlib.util, pathlib, sys, types\n"
        "interface = types.ModuleType('hatchling.builders.hooks.plugin.interface')\n"
        "interface.BuildHookInterface = object\n"
        "sys.modules[interface.__name__] = interface\n"
        f"spec = importlib.util.spec_from_file_location('build', {str(file)!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        f"path = pathlib.Path({str(ROOT)!r})\n"
        "made = module._module(path, 'magmagraph.runtime.cpu.installing')\n"
        "print(len(list(made.fixed_sources())))\n"
        "assert not any(name.startswith('magmagraph') for name in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(list(sources.fixed_sources()))


def test_fixed_sources_are_those_that_a_first_call_wants():
    """What `warmup` begins is what was installed: one text, one level, one key."""
    import numpy as np

    from magmagraph.runtime.cpu import warmup
    from magmagraph.runtime.cpu.convolution.convolution import convolution_source
    from magmagraph.runtime.cpu.convolution.pooling import pooling_source
    from magmagraph.runtime.cpu.products.products import product_source, tiled_source

    float32 = np.dtype(np.float32)
    texts = {fixed.source for fixed in sources.fixed_sources()}
    wanted = [product_source(float32), tiled_source(float32), product_source(np.float64)]
    wanted += [convolution_source(float32, name) for name in warmup.ALGORITHMS]
    wanted += [pooling_source(float32, name) for name in warmup._POOLING]
    assert {sources.SUPPORT_HEADER + text for text in wanted} <= texts
    names = [fixed.name for fixed in sources.fixed_sources()]
    assert len(names) == len(set(names))
