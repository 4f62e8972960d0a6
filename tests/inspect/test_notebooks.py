"""What notebooks show: HTML of everything worth printing, histories, and progress."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.model import progress
from magmagraph.model.history import History
from magmagraph.workflow.result import Result

BATCH = np.ones((5, 4), np.float32)
NAME = '<a & "b">'  # a name that would be markup


def step() -> tuple[Any, mg.Node]:
    """Return a compiled step, and a node of it."""
    x = mg.input("x", shape=("batch", 4))
    w = mg.var(NAME, shape=(4, 3), init=mg.init.ones())
    y = mg.softmax(x @ w)
    made = mg.optimizer.SGD(0.1).step(mg.mean(y * y), [w], inputs=[x], outputs=[y], name=NAME)
    made(BATCH)
    return made, y


def network() -> mg.NeuralNetwork:
    layers = [mg.nn.Input((4,)), mg.nn.Dense(3, activation="gelu", name="last")]
    return mg.NeuralNetwork(layers, loss="mse")


def searched() -> Any:
    return mg.tune.search(lambda t: t["x"] ** 2, {"x": mg.tune.grid(-1, 2)}, method="grid")


def minimized() -> Any:
    z = mg.var("z", init=5.0)
    return mg.optimizer.SGD(0.1).minimize(z * z, [z], steps=3)


# What is shown, and words that are in it.
SHOWN: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "node": (lambda: step()[1], ("divide", "softmax")),
    "input": (lambda: mg.input(NAME, shape=(3,)), (NAME, "float32[3]")),
    "variable": (lambda: mg.var("w", init=[1.0, 2.5]), ("variable", "2.5")),
    "function": (lambda: step()[0], ("passes", "plan", "contract")),
    "new function": (lambda: mg.function([], mg.exp(mg.var("w", init=1.0))), ("not compiled",)),
    "graph": (lambda: step()[0].source_graph, ("matmul",)),
    "report": (lambda: step()[0].report, ("contract", "product to gemm")),
    "record": (lambda: step()[0].report["contract"], ("contract",)),
    "plan": (lambda: step()[0].plan, ("gemm", "arena")),
    "memory": (lambda: step()[0].memory, ("variables", "bytes")),
    "explanation": (lambda: (lambda f, y: f.explain(y))(*step()), ("divide", "in softmax")),
    "check": (lambda: step()[0].check(BATCH), ("allowed", "ok")),
    "profile": (lambda: step()[0].profile(BATCH, runs=1), ("gemm", "groups", "lines")),
    "ablation": (lambda: step()[0].ablate(BATCH, rounds=1), ("without", "fuse")),
    "network": (network, ("last", "parameters")),
    "unbuilt network": (lambda: mg.NeuralNetwork([mg.nn.Dense(3)]), ("not built", "Dense")),
    "layer": (lambda: network().layers[-1], ("kernel", "float32[4, 3]")),
    "history": (lambda: network().fit(BATCH, BATCH[:, :3], epochs=2), ("epoch", "loss")),
    "search": (searched, ("trials", "seconds")),
    "tensor": (lambda: mg.Tensor((2, 3), init=mg.init.ones()), ("2 x 3", "managed", "1. 1. 1.")),
    "minimization": (minimized, ("converged", "25")),
    "gradients": (
        lambda: mg.check_gradients(lambda v: mg.sum(v * v), [np.ones(3)]), ("largest error",),
    ),
    "workflow": (lambda: Result("flow", [], 1), ("flow", "module")),
}


@pytest.mark.parametrize("name", SHOWN)
def test_everything_worth_printing_has_html(name: str) -> None:
    make, words = SHOWN[name]
    html = make()._repr_html_()
    text = "".join(ElementTree.fromstring(f"<div>{html}</div>").itertext())  # well-formed
    for word in words:
        assert word in text, (word, text)


def test_a_summary_is_a_table() -> None:
    html = network().summary()._repr_html_()
    assert html.count("<tr>") == 2
    assert "parameters: 15" in html


# ---------------------------------------------------------------------- histories


RECORDS = [
    {"loss": 2.0, "val_loss": 2.5, "matrix": np.eye(2), "seconds": 1.0},
    {"loss": 1.0, "val_loss": 2.0, "matrix": np.eye(2), "seconds": 1.0},
]


def without(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a library be missing."""
    real = builtins.__import__

    def importing(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_a_history_is_drawn_with_the_numbers_of_validation_beside() -> None:
    pytest.importorskip("matplotlib")
    figure = History(list(RECORDS)).plot()
    assert figure._repr_png_()[1:4] == b"PNG"
    (axes,) = figure.axes  # one for the loss; none for what is no number, and none for seconds
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {"loss": [2.0, 1.0], "val_loss": [2.5, 2.0]}
    assert len(History(list(RECORDS)).plot(["seconds", "val_loss"]).axes) == 2
    with pytest.raises(mg.ConfigError, match="'accuracy' was not reported"):
        History(list(RECORDS)).plot(["accuracy"])
    with pytest.raises(mg.ConfigError, match="no epoch reported numbers"):
        History().plot()


def test_libraries_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without("matplotlib", monkeypatch)
    with pytest.raises(mg.MissingLibraryError, match="pip install matplotlib"):
        History(list(RECORDS)).plot()
    without("pandas", monkeypatch)
    for shown in (History(list(RECORDS)), searched()):
        with pytest.raises(mg.MissingLibraryError, match="pip install pandas"):
            shown.to_frame()


class Frame:
    """What a table of pandas is made of here."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.index: Any = None

    def set_index(self, name: str) -> Frame:
        self.index = types.SimpleNamespace(values=[row[name] for row in self.rows])
        return self


def test_frames_have_a_row_for_each_epoch_or_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pandas where it is installed, else with the part of it that is used."""
    try:
        import pandas
    except ImportError:
        monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=Frame))
        frame = searched().to_frame()
        assert frame.index.values == [0, 1, 2, 3]
        assert {row["x"] for row in frame.rows} == {-1, 0, 1, 2}
        return
    frame = History(list(RECORDS)).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.index) == [1, 2]
    assert list(frame["val_loss"]) == [2.5, 2.0]
    assert list(searched().to_frame().index) == [0, 1, 2, 3]


# ---------------------------------------------------------------------- progress


def fit(**options: Any) -> None:
    x = np.ones((40, 4), np.float32)
    network().fit(x, x[:, :3], batch_size=4, **options)


class Moved:
    """A view that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, training: Any) -> None:
        self.told.append("begin")

    def moved(self, training: Any, done: int, total: int | None, text: str) -> None:
        self.told.append((done, total, text.partition("  ")[0]))

    def epoch(self, training: Any, line: str) -> None:
        self.told.append(line.partition("  ")[0])

    def end(self) -> None:
        self.told.append("end")


@pytest.mark.parametrize("each", [False, True])
def test_the_bar_moves_within_an_epoch(each: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    view = Moved()
    monkeypatch.setattr(progress, "_Terminal", lambda: view)
    monkeypatch.setattr(progress, "_BAR_SECONDS", 0.0)

    class Step(mg.callbacks.Callback):
        def step_end(self, training: Any) -> None:
            pass

    fit(epochs=2, verbose=1, callbacks=[Step()] if each else [])
    epochs = [[(i, 10, f"epoch {e}/2") for i in range(1, 11)] for e in (1, 2)]
    assert view.told == ["begin", *epochs[0], "epoch 1/2", *epochs[1], "epoch 2/2", "end"]


def test_a_terminal_has_a_bar_and_a_log_has_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(progress, "_LOG_SECONDS", 0.0)
    fit(epochs=2)  # no terminal
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    monkeypatch.setattr(progress, "_LOG_SECONDS", 1e6)
    fit(epochs=2)
    assert capsys.readouterr().out == ""
    view = Moved()
    monkeypatch.setattr(progress, "_Terminal", lambda: view)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    fit(epochs=1)
    assert view.told[0] == "begin"
    assert view.told[-2:] == ["epoch 1/1", "end"]


def test_a_notebook_replaces_its_bar_by_the_last_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)
    shell = type("ZMQInteractiveShell", (), {})()
    display = types.SimpleNamespace(HTML=lambda text: text, display=lambda *a, **k: handle)
    monkeypatch.setitem(
        sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=display)
    )
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "_BAR_SECONDS", 0.0)
    fit(epochs=12)
    bars = [text for text in shown if "<progress" in text]
    assert 'value="10" max="10"' in bars[9]
    assert "epoch 1/12" in bars[9]
    assert "<progress" not in shown[-1]
    assert ">2 epochs before\nepoch 3/12" in shown[-1]
    assert shown[-1].count("\n") == 10
