"""Loggers: the numbers of training in CSV files, TensorBoard, MLflow and Weights & Biases."""

import csv
import subprocess
import sys

import numpy as np
import pytest

import magmagraph as mg


def fit(*callbacks, epochs=3, **options):
    """Train a small network, and return the history."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype("f4")
    net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(1)], loss="mse", seed=1)
    options.setdefault("validation_split", 0.25)
    return net.fit(x, x[:, :1], epochs=epochs, callbacks=list(callbacks), **options)


class Recorder:
    def __init__(self):
        self.steps, self.closed = [], 0

    def log(self, step, values):
        self.steps.append((step, dict(values)))

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("given", [lambda logger: logger, mg.callbacks.Log])
def test_any_object_with_the_two_methods_is_a_logger(given):
    logger = Recorder()
    history = fit(given(logger))
    assert [step for step, _ in logger.steps] == [1, 2, 3]
    assert [values["val_loss"] for _, values in logger.steps] == history["val_loss"]
    assert logger.closed == 1


@pytest.mark.parametrize("wrong", [3, Recorder, object()])
def test_what_is_no_logger_is_refused(wrong):
    with pytest.raises(mg.ConfigError, match="log\\(step, values\\) and close\\(\\)"):
        mg.callbacks.Log(wrong)
    with pytest.raises(mg.ConfigError, match="is given as a callback"):
        fit(wrong)


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv(tmp_path):
    history = fit(mg.callbacks.CSVLog(tmp_path / "a.csv"), mg.loggers.CSV(tmp_path / "b.csv"))
    for name, step in (("a.csv", "epoch"), ("b.csv", "step")):
        rows = read(tmp_path / name)
        assert [float(row["val_loss"]) for row in rows] == history["val_loss"]
        assert [row[step] for row in rows] == ["1", "2", "3"]


def test_a_run_that_resumes_continues_its_csv_file(tmp_path):
    log, kept = tmp_path / "log.csv", tmp_path / "run.safetensors"
    whole = fit(mg.callbacks.CSVLog(tmp_path / "whole.csv"), epochs=4)
    run = [mg.callbacks.CSVLog(log), mg.callbacks.Checkpoint(kept)]

    def cut(epoch, record):
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(*run, cut, epochs=4)
    log.write_text(log.read_text() + "3,9,9,9\n")  # an epoch after the checkpoint
    fit(*run, lambda epoch, record: None, epochs=4, resume=kept)
    assert [float(row["loss"]) for row in read(log)] == whole["loss"]


@pytest.mark.parametrize("text", ["", "epoch,loss\n1,2,3\n", "a,b\n1,2\n", "epoch\nx\n", "\0", '"'])
def test_a_file_that_is_no_log_is_not_continued(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    logger = mg.loggers.CSV(path, step="epoch")
    if text in ("", "\0"):  # no rows
        logger.log(2, {"loss": 1.0})
        assert len(read(path)) == 1
        return
    with pytest.raises(mg.DataError, match="log.csv is not a log of training"):
        logger.log(2, {"loss": 1.0})
    assert path.read_text() == text
    logger.log(1, {"loss": 1.0})
    assert path.read_text() == "epoch,loss\n1,1.0\n"


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    logger = mg.loggers.TensorBoard(tmp_path / "new" / "events")
    history = fit(logger)
    logger.log(7, {"loss": 0.5})
    logger.close()
    files = sorted((tmp_path / "new" / "events").iterdir(), key=lambda path: path.stat().st_size)
    _, first = files
    found = {}
    content = first.read_bytes()
    while content:
        size = int.from_bytes(content[:8], "little")
        event, content = Event.FromString(content[12 : 12 + size]), content[16 + size :]
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    losses = np.array(history["loss"], "f4").tolist()
    assert found["loss"] == list(enumerate(losses, 1))
    assert set(found) >= {"loss", "val_loss", "seconds"}


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address = (tmp_path / "runs").as_uri()
    logger = mg.loggers.MLflow("digits", tracking_uri=address)
    history = fit(logger)
    client = mlflow.MlflowClient(tracking_uri=address)
    metrics = client.get_metric_history(logger.run_id, "loss")
    assert [(m.step, m.value) for m in metrics] == list(enumerate(history["loss"], 1))
    assert client.get_run(logger.run_id).info.status == "FINISHED"
    open_run = client.create_run(client.get_experiment_by_name("digits").experiment_id).info.run_id
    fit(mg.loggers.MLflow(tracking_uri=address, run_id=open_run))
    assert len(client.get_metric_history(open_run, "loss")) == 3
    assert client.get_run(open_run).info.status == "RUNNING"


def test_weights_and_biases_offline(tmp_path):
    pytest.importorskip("wandb")
    program = f"""
import sys; sys.path.insert(0, {str(__file__.rpartition("/")[0])!r})
import magmagraph as mg, wandb
from test_loggers import fit
logger = mg.loggers.WandB(project="digits", mode="offline", dir={str(tmp_path)!r})
logger.log(1, {{"loss": 0.5}})
assert logger.run.summary["loss"] == 0.5
logger.close()
assert logger.run is None
with wandb.init(project="digits", mode="offline", dir={str(tmp_path)!r}) as run:
    history = fit(mg.loggers.WandB(run))
    assert run.summary["loss"] == history["loss"][-1] and run.step >= 3, run.step
print("logged")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("logged\n"), done.stderr
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 2


class Run:
    """The documented methods of a run of Weights & Biases."""

    def __init__(self):
        self.rows, self.finished = [], False

    def log(self, values, step, commit):
        assert commit
        self.rows.append((step, values["loss"]))

    def finish(self):
        self.finished = True


def test_a_run_of_the_user_stays_open():
    run = Run()
    history = fit(mg.loggers.WandB(run))
    assert run.rows == list(enumerate(history["loss"], 1)) and not run.finished
    with pytest.raises(mg.ConfigError, match="a run and the settings project"):
        mg.loggers.WandB(run, project="digits")


@pytest.mark.parametrize(
    ("make", "library"),
    [
        (lambda: mg.loggers.TensorBoard("events"), "tensorboardX"),
        (lambda: mg.loggers.MLflow(), "mlflow"),
        (lambda: mg.loggers.WandB(project="digits"), "wandb"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_command(monkeypatch, make, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(mg.ConfigError) as raised:
        make()
    assert f"the library {library}, which is not installed" in str(raised.value)
    assert 'pip install "magmagraph[loggers]"' in str(raised.value)
