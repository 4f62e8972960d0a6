"""Exported programs: built by plain `cc` and called, their results bit for bit those of Python."""

from __future__ import annotations

import shutil
import subprocess

import exported
import numpy as np
import pytest
from exported import Built, blas_flags, states

import magmagraph as mg
from magmagraph.function.export import FLAGS
from magmagraph.ir.graph import topological

QUICK = ["-O1"]  # of what is built in the default run


@pytest.fixture(autouse=True)
def own_products(monkeypatch):
    """Let products run by our own kernels, as they do in an export without BLAS."""
    monkeypatch.setattr(mg.config, "products", "tiles")


def outputs(function, feeds):
    result = function(*feeds)
    return [] if result is None else result if isinstance(result, list) else [result]


def assert_same_bits(function, built, batches, label="run", functions=None):
    """Run both on the same feeds, one after the other: results and variables have the same bits."""
    for feeds in batches:
        expected = outputs(function, feeds)
        out = [np.full_like(array, 7) for array in expected]
        sizes = [*(function.plan.sizes or {}).values()]
        status = built.run(*feeds, out=out, label=label, sizes=sizes)
        assert status == 0, built.message
        for one, other in zip(expected, out, strict=True):
            assert one.tobytes() == other.tobytes()
    values = built.values()
    for name, state in states(functions or [function]).items():
        assert state.data.tobytes() == values[name].tobytes(), name


def variables_of(*nodes):
    return [node for node in topological([*nodes]) if isinstance(node, mg.Variable)]


def classifier(features=20, hidden=12, classes=5, rate=0.1):
    """Return a training step with dropout, and the function that predicts by the same weights."""
    x = mg.var("x", shape=("batch", features))
    labels = mg.var("labels", shape=("batch",), dtype="int64")
    w = mg.var("W", shape=(features, hidden), init=mg.init.glorot_uniform(seed=0))
    b = mg.var("b", shape=(hidden,), init=mg.init.zeros())
    v = mg.var("V", shape=(hidden, classes), init=mg.init.glorot_uniform(seed=1))
    hidden_units = mg.relu(x @ w + b)
    loss = mg.cross_entropy(mg.dropout(hidden_units, rate) @ v, labels)
    step = mg.optimizer.Adam(1e-2).step(loss, [w, b, v], inputs=[x, labels], outputs=[loss])
    return step, mg.function([x], mg.softmax(hidden_units @ v))


def batches_of(rng, size, count=3, features=20, classes=5):
    return [
        (rng.normal(size=(size, features)).astype(np.float32), rng.integers(0, classes, size))
        for _ in range(count)
    ]


def recurrent():
    x = mg.var("x", shape=(6, "batch", 4))
    states = mg.nn.GRU(5)(mg.transpose(x, (1, 0, 2)))
    branch = mg.cond(mg.mean(x) > 0, lambda: mg.sum(states), lambda: mg.sum(states * states))
    loss = mg.mean(mg.square(states)) + 0.01 * branch
    return mg.optimizer.SGD(0.1).step(loss, variables_of(loss), inputs=[x], outputs=[loss])


def solver():
    a = mg.var("a", shape=(3, 3))
    count = mg.var("count", init=np.int64(0))
    total = mg.var("total", init=np.zeros(3, np.float32))
    solution = mg.linalg.solve(a, mg.constant(np.ones(3, np.float32)))
    return mg.function([a], solution, updates={total: total + solution, count: count + 1})


def guarded():
    x = mg.var("x", shape=(4,))
    kept = mg.var("kept", init=np.ones(4, np.float32))
    return mg.function([x], mg.log(x), updates={kept: kept / x}, nan="raise")


def fed_as_floats():
    """Return a function whose labels are a cast column of what is fed."""
    table = mg.var("table", shape=(5, 3))
    loss = mg.cross_entropy(table[:, :2], mg.cast(table[:, 2], "int32"))
    return mg.function([table], loss)


def filtered():
    """Return a function with transforms of real lines, and complex arithmetic between them."""
    x = mg.var("x", shape=(5, 24))
    return mg.function([x], mg.fft.irfft(mg.fft.rfft(x) / mg.complex(2.0, 1.0), n=24))


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Export functions that share variables as one program, and build it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mg.config, "products", "tiles")
        step, predict = classifier()
        functions = {
            "run": step, "predict": predict, "scan": recurrent(), "solve": solver(),
            "guard": guarded(), "table": fed_as_floats(), "filter": filtered(),
        }  # fmt: skip
        folder = tmp_path_factory.mktemp("exported") / "step"
        others = {name: f for name, f in functions.items() if name != "run"}
        step.export(folder, sizes=[{"batch": 8}, {"batch": 3}], others=others)
        built = Built(folder, "step", [*exported.native_flags(), *QUICK])
        return functions, built


class TestTogether:
    """One program of several functions; each test leaves Python and C with the same values."""

    def compare(self, together, label, batches):
        functions, built = together
        assert_same_bits(functions[label], built, batches, label, functions.values())

    def test_training_steps_and_predictions(self, together, rng):
        for size in (8, 3):
            self.compare(together, "run", batches_of(rng, size))
        x = rng.normal(size=(8, 20)).astype(np.float32)
        self.compare(together, "predict", [(x,)])

    def test_loops_and_branches(self, together, rng):
        feeds = [(rng.normal(size=(6, 8, 4)).astype(np.float32) + shift,) for shift in (1, -1)]
        self.compare(together, "scan", feeds)

    def test_transforms(self, together, rng):
        self.compare(together, "filter", [(rng.normal(size=(5, 24)).astype(np.float32),)])

    def test_a_failing_step_changes_nothing(self, together, rng):
        _, built = together
        good = rng.normal(size=(3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
        before = built.values()
        out = [np.zeros(3, np.float32)]
        assert built.run(np.zeros((3, 3), np.float32), out=out, label="solve") == 6
        assert "by solve, made at" in built.message
        assert "test_export.py" in built.message
        assert "no variable was changed" in built.message
        for name, value in built.values().items():
            assert value.tobytes() == before[name].tobytes()
        self.compare(together, "solve", [(good,), (good.T.copy(),)])

    def test_values_that_are_not_finite(self, together):
        functions, built = together
        self.compare(together, "guard", [(np.ones(4, np.float32) * 2,)])
        out = [np.zeros(4, np.float32)]
        assert built.run(np.float32([1, 0, 1, 1]), out=out, label="guard") == 7
        assert "the new value of variable 'kept' holds" in built.message
        assert "at element 1" in built.message
        kept = states([functions["guard"]])["kept"].data
        assert built.values()["kept"].tobytes() == kept.tobytes()

    def test_labels_of_no_class(self, together, rng):
        functions, built = together
        before = built.values()
        ((x, labels),) = batches_of(rng, 3, 1)
        loss = [np.zeros((), np.float32)]
        for wrong in (5, -1):
            labels[1] = wrong
            assert built.run(x, labels, out=loss, sizes=[3]) == 5
            assert f"input 'labels' is fed the label {wrong} at element 1" in built.message
            assert "cross_entropy has 5 classes" in built.message
            with pytest.raises(mg.FeedError, match=f"label {wrong}"):
                functions["run"](x, labels)
        assert all(v.tobytes() == before[n].tobytes() for n, v in built.values().items())

    def test_labels_in_a_column_of_floats(self, together, rng):
        _, built = together
        table = rng.normal(size=(5, 3)).astype(np.float32)
        table[:, 2] = [0, 1, 1, 0, 1]
        self.compare(together, "table", [(table,)])
        table[3, 2] = 2
        loss = [np.zeros((), np.float32)]
        assert built.run(table, out=loss, label="table") == 5
        assert "the label 2 at element 3" in built.message

    def test_sizes_and_arguments(self, together, rng):
        _, built = together
        ((x, labels),) = batches_of(rng, 3, 1)
        assert built.run(x, labels, out=[np.zeros(())], sizes=[4]) == 4
        assert built.message == "batch = 4: exported for batch = 8; batch = 3"
        assert built._function("run")(3, None, None, None) == 3
        assert built.message == "input 'x' is NULL"
        assert built.set("W", np.zeros(3, np.float32)) == 3
        assert "variable 'W' has 960 bytes, not 12" in built.message
        assert built.set("none", np.zeros(3, np.float32)) == 3
        assert "there is no variable 'none'" in built.message

    def test_files_of_variables(self, together, tmp_path, rng):
        from safetensors.numpy import load_file

        functions, built = together
        path = tmp_path / "kept.safetensors"
        before = built.values()
        assert built.save(path) == 0
        read = load_file(path)
        assert read.keys() == before.keys()
        assert all(read[name].tobytes() == value.tobytes() for name, value in before.items())
        changed = rng.normal(size=(20, 12)).astype(np.float32)
        assert built.set("W", changed) == 0
        assert built.values()["W"].tobytes() == changed.tobytes()
        assert built.load(path) == 0
        assert built.values()["W"].tobytes() == before["W"].tobytes()
        path.write_bytes(path.read_bytes()[:-1])
        assert built.load(path) == 8
        assert built.load(tmp_path / "none") == 8
        assert "cannot be read" in built.message
        assert built.values()["W"].tobytes() == before["W"].tobytes()
        assert states([functions["run"]])["W"].data.tobytes() == before["W"].tobytes()

    def test_nothing_runs_before_variables_have_values(self, together):
        _, built = together
        kept = built.values()
        built.end()
        assert built.run(np.eye(3, dtype=np.float32), out=[np.zeros(3)], label="solve") == 1
        assert "step_init" in built.message
        assert built._function("init")(1) == 0
        assert built.run(np.eye(3, dtype=np.float32), out=[np.zeros(3)], label="solve") == 1
        assert "step_load" in built.message
        assert built._function("init")(1) == 3
        assert built.load(built.folder / "step.safetensors") == 0
        for name, value in kept.items():
            assert built.set(name, value) == 0


class TestRefused:
    def test_all_steps_without_c_are_named(self, tmp_path):
        x = mg.var("x", shape=(8,))
        ordered = mg.sort(x)
        spectrum = mg.fft.fft(ordered[:7])
        length = mg.scan(lambda c, r: (c + mg.sum(mg.sort(x * r)), c), mg.constant(0.0), x)[0]
        f = mg.function([x], [mg.real(spectrum), length])
        with pytest.raises(mg.ExportError) as caught:
            f.export(tmp_path / "step")
        text = str(caught.value)
        assert text.startswith("3 steps have no form in C")
        assert "sort" in text
        assert "fft" in text
        assert "in its body" in text
        assert text.count("made at") == 4
        assert not (tmp_path / "step").exists()

    def test_without_a_compiler(self, tmp_path, monkeypatch):
        monkeypatch.setattr(mg.config, "compiler", "off")
        x = mg.var("x", shape=(8,))
        f = mg.function([x], mg.exp(x))
        with pytest.raises(mg.ExportError, match="MAGMAGRAPH_COMPILER=off"):
            f.export(tmp_path / "step")

    def test_wrong_arguments(self, tmp_path):
        x = mg.var("x", shape=("n",))
        f = mg.function([x], mg.exp(x))
        with pytest.raises(mg.ConfigError, match=r"language='cuda'[\s\S]*GPU"):
            f.export(tmp_path / "step", language="cuda")
        with pytest.raises(mg.FeedError, match="the sizes of n are not known"):
            f.export(tmp_path / "step")
        with pytest.raises(mg.FeedError, match="does not say the size of n"):
            f.export(tmp_path / "step", sizes={"m": 3})
        with pytest.raises(mg.ConfigError, match=r"'2 step'[\s\S]*name='step'"):
            f.export(tmp_path / "2 step", sizes={"n": 3})
        with pytest.raises(mg.ConfigError, match="name= is 'int'"):
            f.export(tmp_path / "step", name="int", sizes={"n": 3})
        with pytest.raises(mg.ConfigError, match=r"others\['more'\] is a Node"):
            f.export(tmp_path / "step", sizes={"n": 3}, others={"more": x})
        (tmp_path / "file").write_text("")
        with pytest.raises(mg.ConfigError, match="is a file"):
            f.export(tmp_path / "file", sizes={"n": 3})

    def test_sizes_of_the_calls_before(self, tmp_path):
        x = mg.var("x", shape=("n",))
        f = mg.function([x], mg.exp(x))
        f(np.zeros(3, np.float32))
        f(np.zeros(5, np.float32))
        f.export(tmp_path / "step")
        assert "n = 3; n = 5" in (tmp_path / "step" / "README.md").read_text()


def test_the_example_is_a_program(tmp_path):
    """Compile by the line of the README, word for word, and run it."""
    x = mg.var("x", shape=("n", 3), dtype="float64")
    w = mg.var("W", init=np.arange(3.0))
    f = mg.function([x], mg.sum(x @ w) + 5.0, updates={w: w + 1.0}, name="sums")
    f.export(tmp_path / "sums", sizes={"n": 4})
    readme = (tmp_path / "sums" / "README.md").read_text()
    line = next(line.strip() for line in readme.splitlines() if line.strip().startswith("cc "))
    assert "W: float64[3]" in readme
    done = subprocess.run(
        f"{line} && ./example", shell=True, cwd=tmp_path / "sums", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "result[0] = 5\n" * 3


@pytest.mark.slow
@pytest.mark.optimized
class TestPrograms:
    """Larger training steps, at the level of optimization of users."""

    def test_digits(self, tmp_path, rng):
        step, _ = classifier(784, 528, 10)
        step.export(tmp_path / "step", sizes={"batch": 100})
        batches = batches_of(rng, 100, 5, 784, 10)
        assert_same_bits(step, Built(tmp_path / "step", "step", threads=2), batches)

    def convolutional(self):
        x = mg.var("x", shape=("batch", 1, 12, 12))
        y = mg.var("y", shape=("batch",), dtype="int64")
        first = mg.var("first", shape=(4, 1, 3, 3), init=mg.init.he_normal(seed=0))
        second = mg.var("second", shape=(8, 4, 3, 3), init=mg.init.he_normal(seed=1))
        w = mg.var("W", shape=(72, 10), init=mg.init.he_normal(seed=2))
        units = mg.max_pool2d(mg.relu(mg.conv2d(x, first)), 2)
        units = mg.reshape(mg.relu(mg.conv2d(units, second)), (-1, 72))
        loss = mg.cross_entropy(mg.dropout(units, 0.2) @ w, y)
        sgd = mg.optimizer.SGD(0.05, momentum=0.9)
        return sgd.step(loss, [first, second, w], inputs=[x, y], outputs=[loss])

    def images(self, rng):
        return [
            (rng.normal(size=(8, 1, 12, 12)).astype(np.float32), rng.integers(0, 10, 8))
            for _ in range(3)
        ]

    def test_convolutions(self, tmp_path, rng):
        step = self.convolutional()
        step.export(tmp_path / "step", sizes={"batch": 8})
        assert_same_bits(step, Built(tmp_path / "step", "step"), self.images(rng))

    def test_products_by_blas(self, tmp_path, rng, monkeypatch):
        linked = blas_flags()
        if linked is None:
            pytest.skip("the BLAS of NumPy has no CBLAS that can be linked")
        monkeypatch.setattr(mg.config, "products", "blas")
        monkeypatch.setattr(mg.config, "threads", 1)
        step = self.convolutional()
        step.export(tmp_path / "step", sizes={"batch": 8}, blas=True)
        built = Built(tmp_path / "step", "step", [*exported.native_flags(), *linked])
        assert_same_bits(step, built, self.images(rng))

    def test_a_transformer_block(self, tmp_path, rng):
        x = mg.var("x", shape=("batch", 16, 32))
        target = mg.var("target", shape=("batch", 16, 32))
        seen = x + mg.nn.MultiHeadAttention(4)(mg.layer_norm(x))
        wide = mg.var("wide", shape=(32, 64), init=mg.init.glorot_uniform(seed=0))
        narrow = mg.var("narrow", shape=(64, 32), init=mg.init.glorot_uniform(seed=1))
        result = seen + mg.gelu(mg.layer_norm(seen) @ wide) @ narrow
        loss = mg.mean(mg.square(result - target))
        adam = mg.optimizer.Adam(1e-3)
        step = adam.step(loss, variables_of(loss), inputs=[x, target], outputs=[loss])
        step.export(tmp_path / "step", sizes={"batch": 4})
        batches = [
            tuple(rng.normal(size=(4, 16, 32)).astype(np.float32) for _ in range(2))
            for _ in range(3)
        ]
        assert_same_bits(step, Built(tmp_path / "step", "step"), batches)

    def test_softmax_regression(self, tmp_path, rng):
        x = mg.var("x", shape=("batch", 30))
        y = mg.var("y", shape=("batch",), dtype="int64")
        w = mg.var("W", shape=(30, 4), init=mg.init.zeros())
        loss = mg.cross_entropy(mg.dropout(x, 0.3) @ w, y)
        step = mg.optimizer.SGD(0.1).step(loss, [w], inputs=[x, y], outputs=[loss])
        step.export(tmp_path / "step", sizes={"batch": 50})
        batches = batches_of(rng, 50, 4, 30, 4)
        assert_same_bits(step, Built(tmp_path / "step", "step"), batches)

    @pytest.mark.parametrize(
        "how", [[], ["-DMG_NO_THREADS"], ["clang"], ["-O0"]], ids=["plain", "alone", "clang", "O0"]
    )
    def test_portable_builds(self, tmp_path, rng, how):
        """Without flags for this processor, values agree to rounding."""
        compiler = ["clang"] if how == ["clang"] else ["cc"]
        if shutil.which(compiler[0]) is None:
            pytest.skip("clang is not installed")
        flags = [] if how == ["clang"] else how
        step = self.convolutional()
        step.export(tmp_path / "step", sizes={"batch": 8})
        built = Built(tmp_path / "step", "step", flags, compiler=compiler)
        for feeds in self.images(rng):
            (expected,) = outputs(step, feeds)
            out = np.zeros_like(expected)
            assert built.run(*feeds, out=[out], sizes=[8]) == 0, built.message
            np.testing.assert_allclose(out, expected, rtol=1e-4)

    def test_webassembly(self, tmp_path):
        if shutil.which("emcc") is None:
            pytest.skip("emscripten is not installed")
        x = mg.var("x", shape=(4,))
        mg.function([x], mg.sum(mg.exp(x))).export(tmp_path / "step")
        command = ["emcc", *FLAGS.split(), "-DMG_NO_THREADS", "-sMEMORY64=1"]
        files = [*exported.sources(tmp_path / "step"), str(tmp_path / "step" / "main.c")]
        subprocess.run([*command, *files, "-o", str(tmp_path / "step.js")], check=True)

    def test_two_programs_in_one_process(self, tmp_path, rng):
        """Their names differ, so that both link into one library."""
        step, predict = classifier()
        step.export(tmp_path / "step", sizes={"batch": 4})
        predict.export(tmp_path / "predict", sizes={"batch": 4})
        files = exported.sources(tmp_path / "step") + exported.sources(tmp_path / "predict")
        subprocess.run(
            ["cc", *FLAGS.split(), "-pthread", "-shared", "-fPIC", *files, "-o",
             str(tmp_path / "both.so"), "-lm"], check=True,
        )  # fmt: skip
