"""The house rules: who imports whom, how long files are, and that what is written is true."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import magmagraph

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "magmagraph"

SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))

# The rooms, bottom to top: each imports those before it.
ORDER = (
    "errors", "_version", "config", "dtypes", "ir", "init", "ops", "autodiff", "codegen", "files",
    "help", "losses", "functional", "schedule", "regularize", "text", "passes",
    "runtime",
    "distributed", "function", "data", "inspect", "certificate", "optimizer", "nn", "model",
    "run", "checks", "executors", "workflow", "tune", "callbacks", "loggers",
    "metrics", "estimators", "random", "linalg", "special", "fft", "interchange", "cli", "__main__",
)  # fmt: skip
# Imports that go up all the same: a room, and what of it imports what.
UPWARD = {
    ("config", "ir"): "element types, which are tables alone",
    ("dtypes", "ir"): "element types, which are tables alone",
    ("ir", "help"): "names of other libraries, where an attribute is missing",
    ("ir", "runtime"): "the communicator of the process, made when it is first asked for",
    ("ops", "autodiff"): "gradients of loops, branches and attention",
    ("distributed", "function"): "a cost model that measures a function",
    ("distributed", "inspect"): "a cost model that measures and draws",
    ("function", "data"): "batches, which functions take",
    ("function", "inspect"): "what functions show of themselves",
    ("function", "certificate"): "what functions prove of themselves",
}

# Libraries that only some files may import, wherever in the file the import stands.
ONLY_IN = {
    "cudnn": {"magmagraph/runtime/cuda/library"},
    "cupy": {"magmagraph/runtime/cuda"},
    "cupy_backends": {"magmagraph/runtime/cuda"},
    "cupyx": {"magmagraph/runtime/cuda/namespace.py"},
    "nvmath": {"magmagraph/runtime/cuda/products"},
    "h5py": {"magmagraph/data/hdf5.py"},
    "PIL": {"magmagraph/data/images.py"},
    "onnx": {"magmagraph/inspect/onnx_export.py", "magmagraph/interchange/onnx/files.py"},
    "torch": {"magmagraph/interchange/torch", "magmagraph/model/torch_weights.py"},
    "IPython": {"magmagraph/model/progress.py"},
    "matplotlib": {"magmagraph/tune/result.py", "magmagraph/model/history.py"},
    "pandas": {"magmagraph/ir/frames.py"},
    "mpmath": {"magmagraph/certificate/arithmetic.py"},
    "mpi4py": {"magmagraph/runtime/comm/mpi.py"},
    "networkx": {"magmagraph/inspect"},
    "pooch": {"magmagraph/data/download.py"},
    "pyarrow": {"magmagraph/data/csv_files.py"},
    "safetensors": {"magmagraph/model/files.py"},
    "optuna": {"magmagraph/tune"},
    "requests": {"magmagraph/data/download.py"},
    "rich": {
        "magmagraph/cli", "magmagraph/data/download.py", "magmagraph/model",
        "magmagraph/passes/report.py",
    },
    "z3": {"magmagraph/certificate/extents.py"},
    "sklearn": {"magmagraph/data/datasets.py", "magmagraph/estimators.py"},
}

# Where names that operations have as well are those of something else.
OTHER_NAMES = {
    "magmagraph/ir/communicator.py": "reductions over ranks",
    "magmagraph/codegen/functions/complex_numbers.py": "functions of complex numbers in C++",
    "magmagraph/codegen/functions/declared.py": "functions of the C library",
    "magmagraph/codegen/functions/scalar.py": "functions of the C library",
    "magmagraph/certificate/arithmetic.py": "a second account of them, for checks",
    "magmagraph/certificate/plans.py": "a second account of them, for checks",
    "magmagraph/certificate/proof.py": "a second account of them, for checks",
}


def below(path: str, places: set[str]) -> bool:
    """Return whether a file is one of some places, or lies in one."""
    return any(path == place or path.startswith(place + "/") for place in places)


@functools.cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), path)


@functools.cache
def module_exists(dotted: str) -> bool:
    place = ROOT.joinpath(*dotted.split("."))
    return place.with_suffix(".py").is_file() or place.is_dir()


def origin(path: str, node: ast.ImportFrom) -> str:
    """Return the full name of the module or package that a file imports names from."""
    package = path.removesuffix(".py").split("/")[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *filter(None, [node.module])])


@functools.cache
def import_nodes(path: str) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports of a file, anywhere in it."""
    return [n for n in ast.walk(tree(path)) if isinstance(n, (ast.Import, ast.ImportFrom))]


@functools.cache
def imports(path: str) -> list[tuple[int, str]]:
    """Return the line and the full name of each module that a file imports."""
    found = []
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        else:
            start = origin(path, node)
            names = (f"{start}.{alias.name}" for alias in node.names)
            found += [(node.lineno, name) for name in (start, *filter(module_exists, names))]
    return found


def room(dotted: str) -> str | None:
    """Return the room, or public module, that a module of the package is in."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == "magmagraph" and len(parts) > 1 else None


def forget() -> None:
    for cached in (tree, import_nodes, imports, module_exists):
        cached.cache_clear()


def test_the_walk_sees_imports_of_all_forms(tmp_path, monkeypatch):
    """The rules below are worth what this walk sees."""
    (tmp_path / "magmagraph/passes").mkdir(parents=True)
    (tmp_path / "magmagraph/passes/fuse.py").write_text(
        "import a.b\nfrom ..runtime import cache\nfrom . import report\n"
        "def f():\n    from ...magmagraph.runtime.cache import g\n    import cupy\n"
    )
    (tmp_path / "magmagraph/passes/report.py").touch()
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    forget()
    found = {name for _, name in imports("magmagraph/passes/fuse.py")}
    forget()
    assert {"a.b", "magmagraph.runtime", "magmagraph.passes.report", "cupy"} <= found
    assert "magmagraph.runtime.cache" in found
    rooms = [room(name) for name in ("magmagraph.passes.x", "magmagraph.ir.op", "numpy")]
    assert rooms == ["passes", "ir", None]


def test_the_root_holds_public_modules_and_rooms():
    names = {room(path.removesuffix(".py").replace("/", ".")) for path in SOURCES}
    assert names - {"__init__"} == set(ORDER)


def upward(path: str) -> set[tuple[str, str]]:
    """Return the pairs of rooms of which a file imports the upper one from the lower one."""
    own = room(path.removesuffix(".py").replace("/", "."))
    targets = {room(name) for _, name in imports(path)} - {None, own}
    if own is None or own == "__init__":
        return set()
    return {(own, name) for name in targets if ORDER.index(name) > ORDER.index(own)}


def test_imports_follow_the_arrows():
    wrong = {path: pairs for path in SOURCES if (pairs := upward(path) - set(UPWARD))}
    assert not wrong, f"files import rooms above them: {wrong}"


def test_no_import_goes_by_the_links_at_the_top():
    """They are not installed."""
    first = {path: {name.split(".")[0] for _, name in imports(path)} for path in SOURCES}
    assert [path for path in SOURCES if first[path] & {"passes", "runtime"}] == []


# The demo's network is written as a user would write it, and only the command line imports it.
IMPORTS_THE_ROOT = "magmagraph/cli/network.py"


def from_the_root(path: str) -> Iterator[str]:
    """Yield the places where a file imports the package itself, or a name of it."""
    for node in import_nodes(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name == "magmagraph"]
        elif origin(path, node) == "magmagraph":
            names = [a.name for a in node.names if not module_exists(f"magmagraph.{a.name}")]
        yield from (f"{path}:{node.lineno} imports {name} of the root" for name in names)


def test_no_module_imports_the_root():
    """Modules take a name from where it is defined; the root is for users."""
    paths = [path for path in SOURCES if path != IMPORTS_THE_ROOT]
    wrong = [place for path in paths for place in from_the_root(path)]
    assert not wrong, "\n".join(wrong)


LARGEST_CIRCLE = 1  # files that import each other: none do


def imported_files(path: str) -> set[str]:
    """Return the files of the package that a file imports from, anywhere in it.

    Imports at the top, in functions and under TYPE_CHECKING count alike. A package whose module is
    imported (``from ..package import module``) does not count, unless a name is taken from it.
    """
    modules: set[str] = set()
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        else:
            start = origin(path, node)
            names = [f"{start}.{alias.name}" for alias in node.names]
            modules.update(name if module_exists(name) else start for name in names)
    places = [module.replace(".", "/") for module in modules]
    files = {file for place in places for file in (f"{place}.py", f"{place}/__init__.py")}
    return {file for file in files if file != path and (ROOT / file).is_file()}


def circles(imported: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of files in which each imports all others, on some way; largest first."""
    reached: dict[str, set[str]] = {}
    for start in imported:
        files, open_ends = set(), [start]
        while open_ends:
            new = imported[open_ends.pop()] - files
            files |= new
            open_ends += new
        reached[start] = files
    groups = {
        frozenset(other for other in files if start in reached[other])
        for start, files in reached.items()
    }
    return sorted((sorted(group) for group in groups if group), key=len, reverse=True)


def test_imports_anywhere_in_a_file_close_a_circle(tmp_path, monkeypatch):
    (tmp_path / "magmagraph/passes").mkdir(parents=True)
    for name, text in {
        "magmagraph/passes/__init__.py": "from .fuse import fuse\n",
        "magmagraph/nodes.py": "def f():\n    from .passes import report\n",
        "magmagraph/passes/fuse.py": "from ..nodes import Graph\n",
        "magmagraph/passes/report.py": "if TYPE_CHECKING:\n    from .fuse import fuse\n",
    }.items():
        (tmp_path / name).write_text(text)
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.py"))
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    forget()
    found = circles({path: imported_files(path) for path in files})
    forget()
    own_files = [
        "magmagraph/nodes.py",
        "magmagraph/passes/fuse.py",
        "magmagraph/passes/report.py",
    ]
    assert found == [own_files]


def test_circles_of_imports_are_small():
    """Whoever reads a file of a circle has to read all of it."""
    found = circles({path: imported_files(path) for path in SOURCES})
    large = [circle for circle in found if len(circle) > LARGEST_CIRCLE]
    assert not large, "\n".join(f"{len(circle)}: {', '.join(circle)}" for circle in large)


def test_imports_that_go_up_do_so():
    """An exception that nobody needs would hide the next mistake."""
    assert set().union(*map(upward, SOURCES)) == set(UPWARD)


def libraries(path: str) -> set[str]:
    """Return the libraries that a file imports and that Python does not bring."""
    names = {name.split(".")[0] for _, name in imports(path)}
    return names - set(sys.stdlib_module_names) - {"magmagraph"}


def test_each_library_has_its_files():
    """Those that any file may import are installed with the package, and quick to import."""
    found = {(name, path) for path in SOURCES for name in libraries(path)}
    assert {name for name, _ in found} == {*ONLY_IN, "ml_dtypes", "numpy", "scipy"}
    needed = {
        (name, place)
        for name, places in ONLY_IN.items()
        for place in places
        if any(name == other and below(path, {place}) for other, path in found)
    }
    assert needed == {(name, place) for name, places in ONLY_IN.items() for place in places}


def test_optional_libraries_stay_in_their_files():
    wrong = [
        f"{path}:{line} imports {name}"
        for path in SOURCES
        for line, name in imports(path)
        if (places := ONLY_IN.get(name.split(".")[0])) is not None and not below(path, places)
    ]
    assert not wrong, "\n".join(wrong)


def listed_names(module: ast.Module, known: set[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each literal collection that holds three or more names, all of operations."""
    exported = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            exported.add(id(node.value))
    for node in ast.walk(module):
        if not isinstance(node, (ast.Set, ast.Tuple, ast.List, ast.Dict)) or id(node) in exported:
            continue
        members = node.keys if isinstance(node, ast.Dict) else node.elts
        names = [
            member.value
            for member in members
            if isinstance(member, ast.Constant) and isinstance(member.value, str)
        ]
        if len(names) >= 3 and len(names) == len(members) and set(names) <= known:
            yield node.lineno, names


def operation_names() -> set[str]:
    from magmagraph.ops import TABLE

    return set(TABLE)


def test_lists_of_operations_are_seen():
    known = {"exp", "log", "sin"}
    code = '__all__ = ["exp", "log", "sin"]\nA = {"exp", "log", "sin"}\nB = ("exp", "log", "x")\n'
    code += 'C = {"sin": 1, "log": 2, "exp": 3}\nD = ["exp", "log"]\n'
    assert [line for line, _ in listed_names(ast.parse(code), known)] == [2, 4]


def test_operations_are_listed_in_their_records_only():
    """A rule that goes by a list of names is wrong for the operation that is added next."""
    known = operation_names()
    wrong = [
        f"{path}:{line} lists {names}"
        for path in SOURCES
        if not path.startswith("magmagraph/ops/") and path not in OTHER_NAMES
        for line, names in listed_names(tree(path), known)
    ]
    assert not wrong, "\n".join(wrong)


LAZY = ["cupy", "mpi4py", "networkx", "optuna", "rich", "scipy", "sklearn", "urllib.request"]


def test_import_brings_no_library_but_numpy():
    code = f"import sys, magmagraph; print([n for n in {LAZY} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------ the repository


def test_the_links_at_the_top_lead_into_the_package():
    for name in ("passes", "runtime"):
        link = ROOT / name
        if not link.exists():
            pytest.skip("an installed copy has no top level")
        # A checkout on a system without links has a file that holds the target.
        target = os.readlink(link) if link.is_symlink() else link.read_text(encoding="utf-8")
        assert target.strip() == f"magmagraph/{name}"


def test_extras_and_markers_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert {"cuda13", "cuda12", "mpi", "tune", "bench", "dev"} <= set(extras)
    core = {re.split(r"[<>=]", line)[0] for line in project["project"]["dependencies"]}
    assert core == {"numpy", "scipy", "ml_dtypes", "networkx", "pooch", "rich", "safetensors"}


def test_a_citation_names_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    told = dict(re.findall(r'^([a-z-]+): "?(.*?)"?$', cited, re.MULTILINE))
    assert told["cff-version"] == "1.2.0"
    assert told["title"] == project["name"]
    assert told["version"] == magmagraph.__version__
    assert told["license"] == project["license"]
    assert told["abstract"].startswith(project["description"])
    assert re.findall(r'^  - name: "(.+)"$', cited, re.MULTILINE), "nobody is cited"
    assert {"message", "authors"} <= set(re.findall(r"^([a-z-]+):", cited, re.MULTILINE))
    listed = re.findall(r'^  - "(.+)"$', cited, re.MULTILINE)
    assert listed == project["keywords"]


def test_the_gate_runs_the_tests():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").rstrip().endswith("exec make test")


# ------------------------------------------------------------------- what is written about it


def environment_names() -> set[str]:
    """Return the environment variables that the package reads: all its own, and foreign ones."""
    names = set()
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"MAGMAGRAPH_[A-Z0-9_]+", node.value):
                    names.add(node.value)
            key = None
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
                key = node.slice
            elif isinstance(node, ast.Call) and node.args:
                if ast.unparse(node.func) in ("os.environ.get", "os.getenv"):
                    key = node.args[0]
            if isinstance(key, ast.Constant):
                names.add(key.value)
    return names


def test_environment_page_lists_each_variable_and_no_other():
    text = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([A-Z0-9_]+)`", text, re.MULTILINE))
    assert listed == environment_names()
