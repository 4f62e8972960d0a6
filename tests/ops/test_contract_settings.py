"""The public face, promise by promise: settings, and the options of functions."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_contract_running import BATCH, FLOAT32, agree, step

import magmagraph as mg


def test_devices_and_precisions() -> None:
    """The CPU is there; what is not there is said so."""
    x = mg.var("x", shape=(3,))
    for device in ("auto", "cpu"):
        assert mg.function([x], x + 1, device=device)([1, 2, 3]).sum() == 9
    with pytest.raises(mg.DeviceError, match="'tpu'"):
        mg.function([x], x + 1, device="tpu")
    assert mg.function([x], x + 1, precision="float32")([1, 2, 3]).dtype == FLOAT32
    with pytest.raises(ValueError, match="float8"):
        mg.function([x], x + 1, precision="float8")


@pytest.mark.parametrize(
    "name", [record.name for record in mg.passes.default() if record.optional]
)
def test_optional_passes_can_be_skipped(name: str) -> None:
    """Without any one of them the values are the same."""
    f, x, t, W = step()
    expected, loss = f(BATCH, np.ones(2))
    after = W.value
    W.value = np.array([1.0, -1.0, 0.5])
    y = x @ W
    new = mg.function(
        [x, t], [y, mg.mean((y - t) ** 2)],
        updates={W: W - 0.1 * mg.grad(mg.mean((y - t) ** 2), W)}, skip=(name,),
    )
    assert name not in [record.name for record in new.passes]
    for value, right in zip(new(BATCH, np.ones(2)), (expected, loss), strict=True):
        agree(value, right)
    agree(W.value, after)


def test_required_and_replaced_passes() -> None:
    """specialize, schedule, memory and lower stay; passes= replaces the pipeline."""
    x = mg.var("x", shape=(3,))
    for name in ("specialize", "schedule", "memory", "lower"):
        with pytest.raises(mg.PassError, match=name):
            mg.function([x], x + 1, skip=(name,))
    with pytest.raises(mg.PassError, match="polish"):
        mg.function([x], x + 1, skip=("polish",))
    default = mg.passes.default()
    assert isinstance(default, tuple)
    short = tuple(record for record in default if record.name != "fuse")
    agree(mg.function([x], mg.exp(x) * 2 + 1, passes=short)([0, 0, 0]), [3, 3, 3])


def test_settings() -> None:
    """mg.config holds the settings; a changed float dtype is the dtype of numbers from then on."""
    dtype_before = mg.config.float_dtype
    try:
        mg.config.float_dtype = np.dtype(np.float64)
        assert mg.constant(1.0).dtype == np.float64
    finally:
        mg.config.float_dtype = dtype_before


def test_settings_of_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads and cache can be set in the program, which comes before the variables."""
    from magmagraph.data.files import user_cache
    from magmagraph.runtime.cache import cache_directory, cache_limit
    from magmagraph.runtime.cpu.threads import get_threads

    monkeypatch.setenv("MAGMAGRAPH_CACHE_SIZE", "5000")
    before = get_threads()
    try:
        mg.config.threads = 3
        assert get_threads() == 3
    finally:
        mg.config.threads = None
    assert get_threads() == before
    variable = cache_directory()
    monkeypatch.setattr(mg.config, "cache_dir", tmp_path)
    assert cache_directory() == user_cache() == tmp_path != variable
    assert cache_limit() == 5000
    monkeypatch.setattr(mg.config, "cache_size", 0)
    assert cache_limit() == 0


def test_options_of_a_function() -> None:
    """What mg.function takes, and unless said, can be asked for."""
    parameters = inspect.signature(mg.function).parameters
    assert list(parameters)[:3] == ["inputs", "outputs", "updates"]
    options = {
        name: (parameter.kind, parameter.default) for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "options"
    }
    assert {name: default for name, (_, default) in options.items()} == {
        "device": "auto", "precision": "float32", "passes": None, "skip": (), "distribute": None,
        "name": None, "nan": "allow", "default_updates": True, "strict_feeds": False,
        "deterministic": False, "compile_budget": None, "memory_limit": None, "target": None,
    }  # fmt: skip


def test_settings_are_checked() -> None:
    """A setting that it does not take is refused with what it takes, and stays as it was."""
    for name, wrong, need in (
        ("float_dtype", "int32", "a float dtype: 'float32', 'float64', 'float16' or 'bfloat16'"),
        ("device", "gpu", "'auto', 'cpu', 'cuda' or 'cuda:1'"),
        ("verify", 2, "True or False"),
        ("compiler", "on", "'auto', 'off' or 'force'"),
        ("compile_budget", -1, "seconds, a number of at least 0"),
        ("specializations", 0, "an int of at least 1"),
        ("threads", 0, "an int of at least 1, or None"),
        ("cache_dir", 3, "the path of a folder, or None"),
        ("cache_size", -1, "bytes, an int of at least 0, or None"),
    ):
        value_before = getattr(mg.config, name)
        with pytest.raises(mg.ConfigError) as caught:
            setattr(mg.config, name, wrong)
        assert str(caught.value) == f"mg.config.{name} is set to {wrong!r}\n  expected: {need}"
        assert getattr(mg.config, name) == value_before
    with pytest.raises(AttributeError, match="there is no setting 'devise'"):
        mg.config.devise = "cpu"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"deterministic": "no"}, "deterministic='no'\n  expected: True or False"),
        ({"strict_feeds": 2}, "strict_feeds=2\n  expected: True or False"),
        ({"default_updates": "x"}, "default_updates='x'\n  expected: True or False"),
        ({"compile_budget": "x"}, "compile_budget='x'\n  expected: seconds, a number of at least "
        "0"),
        ({"compile_budget": -1}, "compile_budget=-1\n  expected: seconds, a number of at least 0"),
        ({"skip": "fuse"}, "skip='fuse' is a string\n  expected: a tuple\n  try: ('fuse',)"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], text: str) -> None:
    x = mg.var("x", shape=(3,))
    with pytest.raises((mg.ConfigError, mg.PassError)) as caught:
        mg.function([x], x * 2.0, **options)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("name", "variable", "text", "need", "good"),
    [
        ("compile_budget", "MAGMAGRAPH_COMPILE_BUDGET", "soon",
         "seconds, a number of at least 0", 2.0),
        ("specializations", "MAGMAGRAPH_SPECIALIZATIONS", "0", "an int of at least 1", 3),
        ("device", "MAGMAGRAPH_DEVICE", "gpu", "'auto', 'cpu', 'cuda' or 'cuda:1'", "cpu"),
        ("tuning", "MAGMAGRAPH_TUNING", "of", "one of 1, true, yes, on, 0, false, no, off", False),
    ],
)
def test_variables_of_settings_are_checked(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str, text: str, need: str, good: Any
) -> None:
    """A wrong variable is named where its setting is read, each time, until it is set."""
    monkeypatch.setenv(variable, text)
    config = type(mg.config)()
    for _ in range(2):
        with pytest.raises(mg.ConfigError) as caught:
            getattr(config, name)
        assert str(caught.value) == f"{variable} is {text!r}\n  expected: {need}"
    assert config.threads is None
    setattr(config, name, good)
    assert getattr(config, name) == good
    with pytest.raises(AttributeError, match="there is no setting 'devise'"):
        config.devise  # noqa: B018


@pytest.mark.parametrize(
    ("setting", "variable"),
    [("verify", "MAGMAGRAPH_VERIFY"), ("products", "MAGMAGRAPH_PRODUCTS"),
     ("tuning", "MAGMAGRAPH_TUNING")],
)
def test_a_wrong_variable_that_a_pass_meets_is_not_the_passes_fault(
    monkeypatch: pytest.MonkeyPatch, setting: str, variable: str
) -> None:
    x, w = mg.var("x", shape=("n", 64)), mg.var("w", init=np.ones((64, 64), np.float32))
    value_before = getattr(mg.config, setting)
    monkeypatch.setenv(variable, "nah")
    delattr(mg.config, setting)
    try:
        f = mg.function([x], mg.tanh(x @ w))
        with pytest.raises(mg.ConfigError, match=f"^{variable} is 'nah'\n  expected: "):
            f(np.ones((32, 64), np.float32))
    finally:
        setattr(mg.config, setting, value_before)
    assert f(np.ones((32, 64), np.float32)).shape == (32, 64)
