"""``magmagraph scaling``: what the lines of epochs add up to, and wrong requests."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.cli import main, scaling
from magmagraph.cli.scaling_chart import chart
from magmagraph.cli.target import CommandError


def _lines(ranks: int, rows: int, seconds: list[float]) -> list[dict[str, Any]]:
    return [
        {"ranks": ranks, "first": not i, "steps": 5, "rows": rows, "seconds": one}
        for i, one in enumerate(seconds)
    ]


def test_the_first_epoch_does_not_count_if_there_are_others() -> None:
    one = scaling.measured(_lines(1, 100, [9.0, 2.0, 2.0]), 1, "train.py")
    two = scaling.measured(_lines(2, 100, [9.0, 1.25]), 2, "train.py")
    found = two.plain(one)
    assert found["samples_per_second"] == 80
    assert found["seconds_per_step"] == 0.25
    assert found["speed_up"] == pytest.approx(1.6)
    assert found["efficiency"] == pytest.approx(0.8)
    assert not found["with_compiling"]
    only = scaling.measured(_lines(1, 100, [9.0]), 1, "train.py")
    assert only.compiled
    assert only.throughput == pytest.approx(100 / 9)


@pytest.mark.parametrize(
    ("rows", "kind"), [((100, 100), "strong"), ((100, 200), "weak"), ((100, 150), "other")]
)
def test_kinds_of_scaling(rows: tuple[int, int], kind: str) -> None:
    found = [
        scaling.measured(_lines(n, count, [1.0, 1.0]), n, "")
        for n, count in zip((1, 2), rows, strict=True)
    ]
    assert scaling.kind_of(found) == kind


def test_runs_without_a_training_of_all_ranks_are_refused() -> None:
    with pytest.raises(CommandError, match="ended on 2 ranks without an epoch"):
        scaling.measured([], 2, "train.py")
    with pytest.raises(CommandError, match=r"on 1 of 2 ranks.*distribute="):
        scaling.measured(_lines(1, 10, [1.0, 1.0]), 2, "train.py")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train.py"], "no number of ranks is given"),
        (["train.py", "-n", "1,x"], "-n 1,x is no list of numbers of ranks"),
        (["train.py", "-n", "0"], "-n 0 is no list"),
        (["absent.py", "-n", "1"], "there is no script 'absent.py'"),
    ],
)
def test_wrong_requests(
    words: list[str], text: str, capfd: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["scaling", *words]) == 1
    assert text in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "ranks", "arguments"),
    [
        (["t.py", "-n", "1,2"], "1,2", []),
        (["t.py", "-n", "1,2", "--", "-n", "7"], "1,2", ["-n", "7"]),
        (["-n", "2", "t.py", "-n", "7"], "2", ["-n", "7"]),
        (["t.py", "--rate", "0.1", "-n", "2"], "2", ["--rate", "0.1"]),
    ],
)
def test_options_may_be_after_the_script(
    words: list[str], ranks: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def one(chosen: Any, rest: list[str], count: int) -> scaling.Measured:
        seen.append((chosen.ranks, rest))
        raise CommandError("enough")

    monkeypatch.setattr(scaling, "_one", one)
    assert main(["scaling", *words]) == 1
    assert seen == [(ranks, arguments)]


def test_results_before_a_failure_are_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(chosen: Any, rest: list[str], ranks: int) -> scaling.Measured:
        if ranks == 4:
            raise CommandError("on 4 ranks, rank 3 of 4 failed: ValueError: no such file")
        return scaling.measured(_lines(ranks, 100, [1.0, 2.0 / ranks]), ranks, "")

    monkeypatch.setattr(scaling, "_one", one)
    place = tmp_path / "found"
    assert main(["scaling", "t.py", "-n", "4,1,2", "-o", str(place)]) == 1
    shown = capsys.readouterr()
    assert "rank 3 of 4 failed: ValueError: no such file" in shown.err
    assert "    2        100       1.000     200.00      2.00        100%" in shown.out
    held = json.loads(place.with_suffix(".json").read_text())
    assert [run["ranks"] for run in held["runs"]] == [1, 2]
    assert held["kind"] == "strong"
    ET.fromstring(place.with_suffix(".svg").read_text())


def test_the_chart_has_a_point_for_each_run_and_escapes_its_title() -> None:
    runs = [{"ranks": n, "samples_per_second": 50.0 * n**0.8} for n in (1, 2, 4)]
    root = ET.fromstring(chart(runs, "<a&b>.py"))
    spaces = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{spaces}circle")) == 3
    texts = [text.text for text in root.findall(f"{spaces}text")]
    assert "<a&b>.py" in texts
    assert {"1", "2", "4"} <= set(texts)
    assert chart(runs[:1], "t").count("<circle") == 1


def test_fit_reports_its_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "epochs"
    monkeypatch.setenv("MAGMAGRAPH_EPOCH_LOG", str(path))
    net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(1)], loss="mse", device="cpu")
    x = np.ones((10, 3), np.float32)
    history = net.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["ranks"], line["epoch"], line["first"]) for line in lines] == [
        (1, 0, True), (1, 1, False),
    ]  # fmt: skip
    assert [(line["rows"], line["steps"]) for line in lines] == [(10, 3), (10, 3)]
    assert [line["seconds"] for line in lines] == list(history["seconds"])
    monkeypatch.setenv("MAGMAGRAPH_EPOCH_LOG", str(tmp_path))
    with pytest.raises(mg.StorageError, match="MAGMAGRAPH_EPOCH_LOG=.* cannot be written"):
        net.fit(x, x[:, :1], verbose=0)
