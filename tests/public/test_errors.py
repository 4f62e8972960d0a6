"""The error classes are what users catch, and messages have one form."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from magmagraph import errors
from magmagraph.errors import DivergedError, MagmagraphError, message

BUILTIN = {
    "ShapeError": ValueError,
    "ShardingError": ValueError,
    "DTypeError": TypeError,
    "FeedError": ValueError,
    "GradientError": ValueError,
    "GraphError": ValueError,
    "PassError": RuntimeError,
    "PlanError": ValueError,
    "ExportError": ValueError,
    "MemoryLimitError": MemoryError,
    "ReentrantError": RuntimeError,
    "UpdateError": ValueError,
    "DeviceError": RuntimeError,
    "DivergedError": ArithmeticError,
    "LinAlgError": np.linalg.LinAlgError,
    "NonFiniteError": ArithmeticError,
    "CheckError": AssertionError,
    "DataError": ValueError,
    "MissingFileError": FileNotFoundError,
    "MissingLibraryError": ImportError,
    "OnnxError": ValueError,
    "OnnxRuleError": ValueError,
    "StorageError": OSError,
    "PathError": FileNotFoundError,
    "ArgumentError": TypeError,
    "ConfigError": ValueError,
    "CommunicationError": RuntimeError,
    "CompilerUnavailable": RuntimeError,
}


@pytest.mark.parametrize("name", BUILTIN)
def test_an_error_is_also_the_builtin_that_users_expect(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, MagmagraphError)
    assert issubclass(error, BUILTIN[name])
    assert name in errors.__all__
    copy = pickle.loads(pickle.dumps(error("text")))
    assert type(copy) is error
    assert str(copy) == "text"
    bare = error.__new__(error, "text")  # as Dask makes them of what workers send
    assert type(bare) is error
    assert bare.args == ("text",)


def test_every_error_has_its_builtin() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, MagmagraphError)
    }
    assert classes - {"MagmagraphError"} == set(BUILTIN)


def test_divergence_keeps_its_step() -> None:
    assert DivergedError("text", step=7).step == 7
    assert pickle.loads(pickle.dumps(DivergedError("text", 7))).step == 7


def test_the_parts_of_a_message() -> None:
    assert message("a") == "a"
    assert message("a", hint="c") == "a\n  try: c"
    assert message("a\nb", "n", "m\nm", "w:1") == (
        "a\n  b\n  expected: n\n  try: m\n    m\n  at: w:1"
    )
