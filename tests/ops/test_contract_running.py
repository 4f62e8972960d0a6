"""The public face, promise by promise: compiling and running functions."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance
from magmagraph.values.dlpack import tensor_in

FLOAT32 = np.dtype(np.float32)
BATCH = np.arange(6, dtype=np.float32).reshape(2, 3)


def agree(actual: Any, expected: Any) -> None:
    """Compare in the tolerance of float32."""
    assert tolerance(FLOAT32, "reassoc").close(actual, expected), (actual, expected)


def step() -> tuple[mg.Function, mg.Node, mg.Node, mg.Node]:
    """Return a training step ``f``, its inputs and its variable: the second snippet."""
    x = mg.var("x", shape=("batch", 3))
    t = mg.var("t", shape=("batch",))
    W = mg.var("W", init=np.array([1.0, -1.0, 0.5], np.float32))
    y = x @ W
    loss = mg.mean((y - t) ** 2)
    g = mg.grad(loss, W)
    f = mg.function([x, t], [y, loss], updates={W: W - 0.1 * g})
    return f, x, t, W


def test_the_second_snippet() -> None:
    """eval, function with updates, and the three ways to feed."""
    f, x, t, W = step()
    w = W.value.astype(np.float64)
    target = np.array([1.0, 2.0])
    y = mg.sigmoid(x)
    agree(y.eval({x: BATCH}), 1 / (1 + np.exp(-BATCH.astype(np.float64))))
    for call in (
        lambda: f(BATCH, target),
        lambda: f({x: BATCH, t: target}),
        lambda: f(x=BATCH, t=target),
        lambda: f(BATCH, t=target),
    ):
        out, loss = call()
        error = BATCH @ w - target
        agree(out, BATCH @ w)
        agree(loss, (error**2).mean())
        w = w - 0.1 * BATCH.T @ error
        agree(W.value, w)
        assert type(out) is np.ndarray and type(loss) is np.ndarray


def test_structures_of_outputs() -> None:
    """A node, lists, nested dicts, None and [] come back in their form."""
    x = mg.var("x", shape=(3,))
    v = mg.var("v", init=0.0)
    assert mg.function([x], x + 1)([1, 2, 3]).shape == (3,)
    result = mg.function([x], {"a": [x, x * 2], "b": {"c": mg.sum(x)}})([1.0, 2.0, 3.0])
    assert set(result) == {"a", "b"} and isinstance(result["a"], list)
    agree(result["a"][1], [2, 4, 6])
    agree(result["b"]["c"], 6)
    assert mg.function([x], None, updates={v: v + mg.sum(x)})([1, 2, 3]) is None
    assert mg.function([x], [], updates={v: v + mg.sum(x)})([1, 2, 3]) == []
    assert v.value == 12


def test_results_are_the_callers() -> None:
    """A later call never overwrites them; out= writes into the caller's."""
    f, _, _, _ = step()
    first, _ = f(BATCH, np.ones(2))
    kept = first.copy()
    f(BATCH + 1, np.ones(2))
    np.testing.assert_array_equal(first, kept)
    into = [np.empty(2, np.float32), np.empty((), np.float32)]
    g = mg.function(f.inputs, [f.inputs[0][:, 0], mg.sum(f.inputs[1])])
    result = g(BATCH, np.ones(2), out=into)
    assert result[0] is into[0] and result[1] is into[1]
    agree(into[0], BATCH[:, 0])
    agree(into[1], 2)


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (np.empty((3, 3), np.float32), "shape"),
        (np.empty((2, 3), np.int32), "int32"),
        ([[0.0] * 3] * 2, "form"),
    ],
)
def test_out_is_checked_before_anything_runs(out: Any, text: str) -> None:
    """A refused call leaves the variables as they were."""
    x, v = mg.var("x", shape=("batch", 3)), mg.var("v", init=1.0)
    f = mg.function([x], [x * v], updates={v: v + 1.0})
    with pytest.raises(mg.FeedError, match=text):
        f(BATCH, out=[out])
    assert v.value == 1


def test_updates_land_together() -> None:
    """All see the values from before; a call that fails changes none."""
    x = mg.var("x", shape=())
    a, b = mg.var("a", init=1.0), mg.var("b", init=2.0)
    f = mg.function([x], a + b, updates={a: b * x, b: a + mg.log(x)}, nan="raise")
    assert f(1.0) == 3 and (a.value, b.value) == (2, 1)
    with pytest.raises(mg.NonFiniteError), np.errstate(all="ignore"):
        f(-1.0)
    assert (a.value, b.value) == (2, 1)


def test_feeds_of_many_kinds() -> None:
    """Lists, numbers, foreign byte orders, strides, read-only arrays and DLPack."""
    x = mg.var("x", shape=(3,))
    f = mg.function([x], x * 2)
    frozen = np.array([1.0, 2.0, 3.0], np.float32)
    frozen.flags.writeable = False

    class Exchanged:
        """An array of another library, as DLPack hands it over."""

        def __dlpack__(self, **_: Any) -> Any:
            return np.array([1.0, 2.0, 3.0], np.float32).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    for feed in (
        [1.0, 2.0, 3.0], (1.0, 2.0, 3.0), np.array([1.0, 2.0, 3.0]), frozen,
        np.array([1.0, 2.0, 3.0], ">f4"), np.array([3.0, 2.0, 1.0], np.float32)[::-1], Exchanged(),
    ):
        agree(f(feed), [2, 4, 6])
    np.testing.assert_array_equal(frozen, [1, 2, 3])


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


def test_new_sizes_specialize() -> None:
    """They reuse the kernels, and are listed with the dimension that caused them."""
    f, _, _, _ = step()
    f(BATCH, np.ones(2))
    f(np.ones((5, 3)), np.ones(5))
    f(BATCH, np.ones(2))
    assert len(f.specializations) == 2
    sizes = [sizes for sizes, _ in f.specializations]
    assert {"batch": 2} in sizes and {"batch": 5} in sizes
    assert any("batch" in cause for _, cause in f.specializations)


def test_what_a_function_shows() -> None:
    """Graphs, plan, steps with bytes, report and memory, before anything ran."""
    x = mg.var("x", shape=(4, 3))
    f = mg.function([x], mg.softmax(x), name="soft")
    assert isinstance(f.graph, mg.Graph) and isinstance(f.source_graph, mg.Graph)
    (only,) = f.plan.steps
    assert only.bytes == 2 * 4 * 3 * 4
    assert "simplify" in str(f.report) and "fuse" in str(f.report)
    assert f.memory.feeds == f.memory.results == 48
    assert f.memory.total >= 96
    assert "soft" in repr(f)
    assert "softmax" not in str(f.graph) and "fused" in str(f.graph)
    assert str(f.source_graph).splitlines()[-1].startswith("return %")


def test_saving_and_loading(tmp_path: Path) -> None:
    """An archive without pickle keeps graph, variables and values; damage is noticed."""
    f, _, _, W = step()
    f(BATCH, np.ones(2))
    path = tmp_path / "step.mgz"
    f.save(path)
    held = W.value
    loaded = mg.load(path)
    first, second = (loaded(BATCH, np.ones(2)) for _ in "ab")
    np.testing.assert_array_equal(W.value, held)  # a loaded function has variables of its own
    for made, expected in ((first, f(BATCH, np.ones(2))), (second, f(BATCH, np.ones(2)))):
        agree(made[0], expected[0])
        agree(made[1], expected[1])
    with zipfile.ZipFile(path) as archive:  # the generated kernels can be read there
        kept = {name for name in archive.namelist() if name.startswith("kernels/")}
        fused = [i for i, s in enumerate(f.plan.steps) if s.kernel == "fused"]
        assert kept == {f"kernels/{i}.c" for i in fused} and kept
        assert archive.read(f"kernels/{fused[0]}.c").decode() == f.source(fused[0])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(mg.PlanError):
        mg.load(path)
    path.write_bytes(bytes(content[: len(content) // 3]))
    with pytest.raises(mg.PlanError):
        mg.load(path)


def test_running_many_batches() -> None:
    """f.run over batches or n times; stacked, or only the last; a partial batch at the end."""
    f, _, _, W = step()
    start = W.value
    X, Y = np.random.default_rng(0).normal(size=(10, 3)), np.arange(10.0)
    losses = []
    for begin in range(0, 10, 4):
        losses.append(f(X[begin : begin + 4], Y[begin : begin + 4])[1])
    after = W.value
    W.value = start
    _, last = f.run(mg.batches(X, Y, size=4, shuffle=False), keep="last")
    agree(last, losses[-1])
    agree(W.value, after)
    W.value = start
    outputs, stacked = f.run(3, (X[:4], Y[:4]))
    assert outputs.shape == (3, 4) and stacked.shape == (3,)
    assert stacked[0] > stacked[1] > stacked[2]
    ragged, loss = f.run(mg.batches(X, Y, size=4, shuffle=False))
    assert [len(part) for part in ragged] == [4, 4, 2] and loss.shape == (3,)
    assert len(mg.batches(X, Y, size=4, drop_last=True)) == 2
    seen = np.concatenate([y for _, y in mg.batches(X, Y, size=4, shuffle=True, seed=0)])
    np.testing.assert_array_equal(np.sort(seen), Y)
    mg.synchronize()


def test_threads_share_a_function() -> None:
    """Calls from several threads land one by one."""
    v = mg.var("v", init=np.zeros(1000))
    f = mg.function([], v[0] * 1.0, updates={v: v + 1.0})
    seen: list[float] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(float(f()) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(200)) and (v.value == 200).all()


def test_copies_and_pickles() -> None:
    """Nodes and functions pickle and deep-copy; a copy's variables are its own."""
    f, x, _, W = step()
    for twin in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        before = W.value
        first, loss = twin(BATCH, np.ones(2))
        agree(first, BATCH @ before)
        np.testing.assert_array_equal(W.value, before)
        assert twin(BATCH, np.ones(2))[1] != loss  # the twin's own variable has moved on
    y = mg.exp(x) * 2
    for node in (pickle.loads(pickle.dumps(y)), copy.deepcopy(y)):
        agree(node.eval(x=BATCH), 2 * np.exp(BATCH.astype(np.float64)))


def test_settings() -> None:
    """mg.config holds the settings; a changed float dtype is the dtype of numbers from then on."""
    kept = mg.config.float_dtype
    try:
        mg.config.float_dtype = np.dtype(np.float64)
        assert mg.constant(1.0).dtype == np.float64
    finally:
        mg.config.float_dtype = kept


def test_settings_of_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads and cache can be set in the program, which comes before the variables."""
    from magmagraph.data.files import user_cache
    from magmagraph.runtime.cache import cache_directory, cache_limit
    from magmagraph.runtime.numpy.threads import get_threads

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
        "deterministic": False, "compile_budget": None,
    }  # fmt: skip


def test_a_run_of_fewer_calls_than_none() -> None:
    """A negative number of calls is refused, and nothing runs."""
    count = mg.var("count", init=0)
    with pytest.raises(mg.ConfigError, match="0 calls or more"):
        mg.function([], count, updates={count: count + 1}).run(-1)
    assert count.value == 0


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_what_a_caller_does_to_a_result_stays_with_it(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are the caller's: read-only, of another dtype or shape, and dropped in the end."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    x = mg.var("x", shape=(2, 3))
    f = mg.function([x], x * 2.0)

    def change(name: str, value: Any) -> None:
        result = f(BATCH)
        if name == "write":
            result.flags.writeable = value
        else:
            setattr(result, name, value)

    for name, value in (("write", False), ("dtype", np.int32), ("shape", (3, 2))):
        change(name, value)
        for _ in range(2):
            result = f(BATCH)
            assert result.flags.writeable and result.dtype == np.float32
            np.testing.assert_array_equal(result, 2 * BATCH)
            del result


@pytest.mark.parametrize("batches", [None, 2.0])
def test_a_run_of_what_is_no_number_and_no_series(batches: Any) -> None:
    x = mg.var("x", shape=(3,))
    with pytest.raises(mg.ConfigError, match="a number of calls, or an iterable of feeds"):
        mg.function([x], x * 2.0).run(batches)


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
        kept = getattr(mg.config, name)
        with pytest.raises(mg.ConfigError) as caught:
            setattr(mg.config, name, wrong)
        assert str(caught.value) == f"mg.config.{name} is set to {wrong!r}\n  needed: {need}"
        assert getattr(mg.config, name) == kept
    with pytest.raises(AttributeError, match="there is no setting 'devise'"):
        mg.config.devise = "cpu"  # type: ignore[attr-defined]


class Brain:
    """An array of bfloat16 of another library, which gives itself by DLPack alone."""

    def __init__(self, values: np.ndarray) -> None:
        whole = np.zeros(values.shape[0] * 64, np.uint16)  # laid out as the values are
        steps = [2 * step // values.itemsize for step in values.strides]
        self.bits = np.lib.stride_tricks.as_strided(whole, values.shape, steps)
        self.bits[...] = values.astype(canonical("bfloat16")).view(np.uint16)

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.bits.__dlpack__()
        tensor_in(capsule).code = 4  # NumPy has no name for it
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(48.0).reshape(6, 8)[::2, 1::2],
        np.arange(12.0).reshape(4, 3).T,
        np.zeros((0, 4)),
    ],
)
def test_bfloat16_of_another_library_is_fed(values: np.ndarray) -> None:
    brain = Brain(values)
    for dtype in ("float32", "bfloat16"):
        x = mg.var("x", shape=("n", 4), dtype=dtype)
        found = mg.function([x], x * 2.0)(brain)
        assert found.dtype == canonical(dtype)
        np.testing.assert_array_equal(found.astype(np.float32), 2.0 * values)
    np.testing.assert_array_equal(mg.from_dlpack(brain).eval().astype(np.float32), values)


@pytest.mark.parametrize("holder", [mg.Tensor, mg.variable])
def test_what_is_held_takes_what_its_dtype_holds(holder: Any) -> None:
    """Numbers of Python count as a higher kind; what would be cut off or wrap changes nothing."""

    def held(dtype: str) -> tuple[Any, Any]:
        if holder is mg.Tensor:
            tensor = mg.Tensor((2,), init=1, dtype=dtype)
            return tensor.copy_from, tensor.numpy
        variable = mg.variable("v", init=np.ones(2, dtype))
        return variable.assign, lambda: variable.value

    for dtype, value in (
        ("float32", [3, 4]),
        ("float32", np.array([3, 4], ">f8")),
        ("float16", np.array([3, 4], "<f2")),
        ("float32", Brain(np.array([3.0, 4.0]))),
        ("int8", np.array([3, 4], ">i8")),
        ("complex64", [3, 4.0]),
        ("bool", [True, True]),
    ):
        put, read = held(dtype)
        if holder is mg.Tensor and isinstance(value, Brain):
            continue  # it has no shape
        put(value)
        assert read().dtype == dtype
        np.testing.assert_array_equal(read(), [1, 1] if dtype == "bool" else [3, 4])
    for dtype, value in (
        ("int32", [2.5, 1]),
        ("int32", [2.0, 1]),
        ("int32", [2**31, 1]),
        ("int8", np.array([128, 1])),
        ("uint8", [-1, 1]),
        ("float32", [2j, 1]),
        ("float32", [True, False]),
        ("float32", np.array([3, 4])),
        ("bool", [1, 0]),
    ):
        put, read = held(dtype)
        with pytest.raises(mg.DTypeError, match="needed: "):
            put(value)
        np.testing.assert_array_equal(read(), [1, 1])


def test_one_number_that_a_variable_does_not_hold() -> None:
    count = mg.var("count", init=5)
    for value in (2.5, 2**31, np.float64(3), True):
        with pytest.raises(mg.DTypeError, match="variable 'count' is int32, the new value "):
            count.value = value
    count.value = -(2**31)
    assert count.value == -(2**31)
    with pytest.raises(mg.DTypeError, match="variable 'count' is given what is no array: np.as"):
        count.assign(mg.constant(3))


def test_no_elements_are_of_every_kind() -> None:
    x = mg.var("x", shape=("n",), dtype="int32")
    assert mg.function([x], mg.sum(x))([]) == 0
    with pytest.raises(mg.FeedError, match="is fed float64"):
        mg.function([x], mg.sum(x))(np.zeros(0))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"deterministic": "no"}, "deterministic='no'\n  needed: True or False"),
        ({"strict_feeds": 2}, "strict_feeds=2\n  needed: True or False"),
        ({"default_updates": "x"}, "default_updates='x'\n  needed: True or False"),
        ({"compile_budget": "x"}, "compile_budget='x'\n  needed: seconds, a number of at least 0"),
        ({"compile_budget": -1}, "compile_budget=-1\n  needed: seconds, a number of at least 0"),
        ({"skip": "fuse"}, "skip='fuse' is a string\n  needed: a tuple\n  mend: ('fuse',)"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], text: str) -> None:
    x = mg.var("x", shape=(3,))
    with pytest.raises((mg.ConfigError, mg.PassError)) as caught:
        mg.function([x], x * 2.0, **options)
    assert str(caught.value) == text


def test_inputs_are_any_series_of_nodes() -> None:
    x = mg.var("x", shape=(3,))
    f = mg.function((node for node in (x,)), x * 2.0)
    np.testing.assert_array_equal(f(np.ones(3)), [2, 2, 2])
    for wrong in (None, 3, "x"):
        with pytest.raises(mg.GraphError, match="needed: a list of inputs"):
            mg.function(wrong, x * 2.0)  # type: ignore[arg-type]


def test_what_gives_no_elements_is_a_feed_error() -> None:
    class Meta(Brain):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise ValueError("a tensor without elements")

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("there is nothing to give")

    x = mg.var("x", shape=(3,))
    f = mg.function([x], x * 2.0)
    with pytest.raises(mg.FeedError, match="'x' .* cannot be made an array: "):
        f(Meta(np.ones(3)))


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
        assert str(caught.value) == f"{variable} is {text!r}\n  needed: {need}"
    assert config.threads is None
    setattr(config, name, good)
    assert getattr(config, name) == good
    with pytest.raises(AttributeError, match="there is no setting 'devise'"):
        config.devise  # noqa: B018


def test_an_update_whose_rows_are_known_at_the_call() -> None:
    """A name against an int is a constraint, which the call checks."""
    x = mg.var("x", shape=("batch", 3))
    W = mg.var("W", init=np.zeros((2, 3), np.float32))
    f = mg.function([x], None, updates={W: x * 2.0})
    f(BATCH)
    agree(W.value, 2 * BATCH)
    with pytest.raises(mg.FeedError, match="'the update of W' needs batch == 2, but batch is 4"):
        f(np.ones((4, 3)))
    agree(W.value, 2 * BATCH)
    for shape in (("rows", 4), (1, 3), (3,)):
        with pytest.raises(mg.UpdateError, match=r"needed: shape \(2, 3\)"):
            mg.function([y := mg.var("y", shape=shape)], None, updates={W: y})


def test_a_run_without_steps() -> None:
    """Empty stacks of the outputs' form; what nobody can know the extent of is an empty list."""
    x = mg.var("x", shape=("batch", 3))
    f = mg.function([x], {"rows": mg.sum(x, axis=1), "all": [mg.sum(x)]})
    found = f.run(0, BATCH)
    assert found["rows"].shape == (0, 2) and found["rows"].dtype == FLOAT32
    assert found["all"][0].shape == (0,)
    for feeds in ((BATCH,), {x: BATCH}, {"x": BATCH}):
        assert f.run(0, feeds)["rows"].shape == (0, 2)
    unknown = f.run([])
    assert unknown["rows"] == [] and unknown["all"][0].shape == (0,)
    assert f.run([], keep="last") is None
    assert mg.function([x], None).run([]) is None
    with pytest.raises(mg.FeedError, match="is fed an array of shape"):
        f.run(0, np.ones((2, 4)))


def test_source_of_a_step_that_is_not_there() -> None:
    """The number of a step is checked."""
    x = mg.var("x", shape=(3,))
    f = mg.function([x], mg.exp(x))
    for step in (1, -2, "0"):
        with pytest.raises(mg.PlanError) as caught:
            f.source(step)  # type: ignore[arg-type]
        assert str(caught.value) == (
            f"there is no step {step!r}\n"
            "  needed: a number from 0 to 0\n"
            "  mend: print(f.plan) lists the steps"
        )


def test_a_report_is_shown() -> None:
    """mg.show takes the report itself, too."""
    x = mg.var("x", shape=(3,))
    f = mg.function([x], mg.exp(x))
    assert mg.show(f.report).text() == str(f.report)
    assert repr(mg.show([x, x])) == "<shown list of 2>"



# Seeing.


def test_looking_at_things(tmp_path: Path) -> None:
    """print, mg.show, mg.to_networkx, explain and check."""
    import networkx

    _, x, t, W = step()
    y = x @ W
    loss = mg.mean((y - t) ** 2)
    f = mg.function([x, t], [y, loss], updates={W: W - 0.1 * mg.grad(loss, W)})
    assert "matmul" in str(y)
    for thing in (y, [y, x], f, f.report.records[0]):
        shown = mg.show(thing)
        assert isinstance(shown.text(), str) and shown.dot().startswith("digraph")
    mg.show(f).save(tmp_path / "f.dot")
    mg.show(f).save(tmp_path / "f.txt")
    assert (tmp_path / "f.dot").read_text().startswith("digraph")
    graph = mg.to_networkx(f)
    assert isinstance(graph, networkx.MultiDiGraph) and len(graph) >= len(f.graph.nodes)
    assert networkx.is_directed_acyclic_graph(mg.to_networkx(y))
    assert "gem" in str(f.explain(y)), "a product ends as gemm or gemv"
    before = W.value
    text = str(f.check(BATCH, np.ones(2)))
    assert "simplify" in text and "fuse" in text
    np.testing.assert_array_equal(W.value, before)
