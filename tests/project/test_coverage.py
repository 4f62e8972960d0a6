"""The page that says what of NumPy, SciPy and JAX is here: nothing left out, nothing made up."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
if not DOCS.is_dir():
    pytest.skip("an installed copy has no docs", allow_module_level=True)
sys.path.insert(0, str(DOCS))

import library_coverage  # noqa: E402

LIBRARIES = library_coverage.libraries()


@pytest.mark.parametrize("title", LIBRARIES)
def test_every_function_is_explained(title: str) -> None:
    entries = library_coverage.classify(LIBRARIES[title])
    assert [entry.name for entry in entries] == LIBRARIES[title]["names"].split()
    assert sum(entry.state != library_coverage.ABSENT for entry in entries) > len(entries) / 4


@pytest.mark.parametrize("title", [name for name in LIBRARIES if name != "jax.nn"])
def test_the_names_are_those_of_the_version(title: str) -> None:
    module = importlib.import_module({"NumPy": "numpy"}.get(title, title))
    root = importlib.import_module(module.__name__.partition(".")[0])
    version = LIBRARIES[title]["version"]
    if not f"{root.__version__}.".startswith(f"{version}."):
        pytest.skip(f"{root.__name__} {root.__version__} is installed, not {version}")
    found = {
        name
        for name in getattr(module, "__all__", dir(module))
        if not name.startswith("_")
        and callable(value := getattr(module, name))
        and not isinstance(value, (type, types.ModuleType))
    }
    assert found == set(LIBRARIES[title]["names"].split())


def test_what_is_explained_by_nothing_is_told() -> None:
    library = {"names": "exp no_such_thing", "homes": ["mg"], "version": "1"}
    with pytest.raises(ValueError, match="these have no entry: no_such_thing"):
        library_coverage.classify(library)
    for wrong, text in (
        ({"other": {"exp": "`mg.log`"}}, "explained as if it were not"),
        ({"other": {"no_such_thing": "`mg.no_such_thing`"}}, "which is not here"),
        ({"other": {"other": "`mg.log`"}}, "not among the names: other"),
    ):
        with pytest.raises(ValueError, match=text):
            library_coverage.classify(library | wrong)
