"""Damaged and hostile files of every format, read in a process with little memory and time.

    python tests/helpers/mutants.py TRIALS SEED FORMAT...

prints for each format, as a line of JSON, how many were read, how many were refused by the
package's own errors, and what came of the others. Half of the trials change bytes of the file; the
others change what is inside, and write checksums that fit, so that the change is reached.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import hashlib
import io
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import magmagraph as mg
from magmagraph.errors import ConfigError, DataError, PlanError

SPARE = 512 << 20  # bytes of memory beside what the process has when it begins
SECONDS = 10  # for one file

HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 7, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**12, 10**30, 0.5,
    -0.0, 1e308, float("inf"), float("nan"), "", "x", "a" * 1000, "\0", "../../etc/passwd", "%0",
    "float32", "int64", "nan", "__class__", "é\ud800", [], {}, [[]], [0], [-1], ["x"], {"x": 1},
    [10**12], [2**62, 2**62], {"layer": "Dense"}, {"penalty": 1}, {"dict": [[[], 0]]},
    {"kind": "Hybrid", "of": [{"kind": "Hybrid", "of": []}]}, [[[[[[[[]]]]]]]],
]  # fmt: skip
NUMBERS = [b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"9223372036854775807",
           b"9223372036854775808", b"1000000000000", b"1e999", b"9999999999999999999"]  # fmt: skip

Rng = np.random.Generator


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


# ------------------------------------------------------------------------------------ changes


def bytes_changed(content: bytes, rng: Rng) -> bytes:
    """Return content with some bytes changed, cut off, put in, or written twice."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(changed) + 1))
        some = int(rng.choice([1, 1, 2, 4, 8, 64]))
        kind = rng.integers(8)
        if kind == 0 or not changed:
            changed[at:at] = rng.bytes(some)
        elif kind == 1:
            del changed[at : at + some]
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            changed[at : at + some] = pick(rng, [b"\0", b"\xff", b"\x7f", b"\x80", b"["]) * some
        elif kind == 4:
            changed[at:at] = changed[at : at + 16 * some]
        elif kind == 5:
            changed[at : at + some] = pick(rng, NUMBERS)
        else:
            changed[min(at, len(changed) - 1)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def text_changed(content: bytes, rng: Rng) -> bytes:
    """Return a text with a number, a word or a line changed, or as `bytes_changed`."""
    if rng.integers(2):
        return bytes_changed(content, rng)
    import re

    pieces = re.split(rb"(\d+|\w+|\n)", content)
    at = int(rng.integers(len(pieces)))
    pieces[at] = pick(rng, [*NUMBERS, pick(rng, pieces), b"", b"((((", b"[" * 2000, b'"'])
    return b"".join(pieces)


def json_changed(value: Any, rng: Rng) -> Any:
    """Return a JSON value with one of its parts replaced, removed or added."""
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        keys = part.keys() if isinstance(part, dict) else range(len(part))
        for key in list(keys):
            places.append((part, key))
            if isinstance(part[key], (dict, list)):
                walk(part[key])

    value = json.loads(json.dumps(value))
    walk(value)
    if not places:
        return pick(rng, HOSTILE)
    for _ in range(int(rng.integers(1, 3))):
        owner, key = pick(rng, places)
        kind = rng.integers(5)
        with contextlib.suppress(KeyError, IndexError):
            if kind == 0:
                del owner[key]
            elif kind == 1 and isinstance(owner, dict):
                owner[pick(rng, ["x", "extra", "", "__class__"])] = pick(rng, HOSTILE)
            elif kind == 2:
                other, at = pick(rng, places)
                owner[key] = other[at] if other is not owner else pick(rng, HOSTILE)
            else:
                owner[key] = pick(rng, HOSTILE)
    try:
        json.dumps(value)
    except (ValueError, RecursionError):  # a part was put into itself
        return pick(rng, HOSTILE)
    return value


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


# ------------------------------------------------------------------------------------ formats


class Format:
    """A kind of file: one that is whole, how its inside is changed, and who reads it."""

    def __init__(
        self,
        name: str,
        whole: bytes,
        read: Callable[[Path], Any],
        inside: Callable[[Rng], bytes] | None = None,
        errors: tuple[type[Exception], ...] = (DataError,),
        spare: int = SPARE,
    ) -> None:
        self.spare = spare
        self.name, self.whole, self.read, self.errors = name, whole, read, errors
        self.inside = inside or (lambda rng: text_changed(whole, rng))


def archive_format(folder: Path) -> Format:
    from magmagraph.function.archive import seal

    rng = np.random.default_rng(0)
    x = mg.var("x", shape=("batch", 6))
    w = mg.var("W", init=rng.normal(size=(6, 4)).astype("f4"))
    half = mg.var("half", init=np.arange(4.0), dtype="bfloat16")
    table = mg.constant(rng.normal(size=(6, 4)).astype("f4"))
    y = mg.softmax(x @ (w + table) + mg.cast(half, "float32"), axis=1)
    noise = mg.random.uniform((3,))
    function = mg.function([x], {"y": y, "rest": [noise, (mg.sum(y),)]}, {w: w * 0.5})
    path = folder / "archive"
    function.save(path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    inner = [name for name in members if name[:2] in ("so", "va", "co", "se", "ma")]

    def inside(rng: Rng) -> bytes:
        files = dict(members)
        name = pick(rng, [*inner, "settings.json", "settings.json", "manifest.json"])
        if name.endswith(".json"):
            files[name] = dumped(json_changed(json.loads(files[name]), rng))
        else:
            files[name] = text_changed(files[name], rng)
        if name != "manifest.json":
            manifest = json.loads(files["manifest.json"])
            manifest["members"][name] = hashlib.sha256(files[name]).hexdigest()
            files["manifest.json"] = json.dumps(manifest).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for entry, content in files.items():
                archive.writestr(entry, content, int(rng.choice([0, 8])))
            archive.comment = b"0" * 64
        seal(path)
        return path.read_bytes()

    return Format("archive", whole, mg.load, inside, (PlanError,))


LOG = b"epoch,loss,val_loss\n1,0.5,\n2,0.25,0.75\n3,0.125,0.5\n"


def weights_changed(whole: bytes) -> Callable[[Rng], bytes]:
    """Return what changes a file of weights, with checksums that fit."""
    from safetensors.numpy import save

    from magmagraph.model import files

    tensors, texts = files._unpacked(whole)
    about = json.loads(texts["magmagraph"])

    def inside(rng: Rng) -> bytes:
        weights, about_changed = dict(tensors), json.loads(json.dumps(about))
        about_changed.pop("said", None)
        kind = rng.integers(4)
        if kind == 0:  # the header of the container
            size = int.from_bytes(whole[:8], "little")
            header = dumped(json_changed(json.loads(whole[8 : 8 + size]), rng))
            return len(header).to_bytes(8, "little") + header + whole[8 + size :]
        if kind == 1:
            name = pick(rng, list(weights))
            value = weights.pop(name)
            negative = np.asarray(-value) if value.dtype != bool else None
            other = [None, value[..., None], value.astype("f8"), value.reshape(-1)[:0], negative]
            changed = pick(rng, other) if negative is not None else None
            if changed is not None:
                weights[pick(rng, [name, name, "extra", "weight/x"])] = changed
        else:
            about_changed = json_changed(about_changed, rng)
        if isinstance(about_changed, dict) and about_changed.get("checksum") == about["checksum"]:
            about_changed["checksum"] = files._checksum(weights)
        text = dumped(
            {**about_changed, "said": files._seal(about_changed)}
            if isinstance(about_changed, dict)
            else about_changed
        )
        return save(weights, {"magmagraph": text.decode()})

    return inside


def model_format(folder: Path) -> Format:
    x = mg.var("x", shape=("batch", 3))
    dense = mg.nn.Dense(3, "relu", regularizer=mg.regularize.l2(0.1))
    y = mg.nn.Residual([mg.nn.Dense(3), mg.nn.BatchNorm()])(dense(x)) + mg.exp(x)
    rate = mg.schedule.warmup(5, mg.schedule.cosine(0.1, 20))
    model = mg.Model(x, y, loss="mse", metrics=["mse"], optimizer=mg.optimizer.Adam(rate))
    path = folder / "model"
    model.save(path)
    whole = path.read_bytes()
    return Format("model", whole, mg.Model.load, weights_changed(whole))


def network_format(folder: Path) -> Format:
    net = mg.NeuralNetwork(
        [mg.nn.Input((1, 6, 6)), mg.nn.Conv2D(3, 2, mg.relu), mg.nn.BatchNorm(), mg.nn.Flatten(),
         mg.nn.Dropout(0.2), mg.nn.Output(2)],
        loss="cross_entropy", metrics=["accuracy"], optimizer=mg.optimizer.SGD(0.1, momentum=0.9),
    )  # fmt: skip
    path = folder / "network"
    net.save(path)
    whole = path.read_bytes()
    return Format("network", whole, mg.NeuralNetwork.load, weights_changed(whole))


def checkpoint_format(folder: Path) -> Format:
    from magmagraph.model.training import Training

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)).astype("f4"), rng.integers(0, 2, 20)
    path = folder / "checkpoint"

    def callbacks() -> list[Any]:
        kinds = mg.callbacks
        return [kinds.Checkpoint(path), kinds.EarlyStopping("loss"), kinds.ReduceOnPlateau("loss")]

    net = mg.NeuralNetwork(
        [mg.nn.Input((4,)), mg.nn.Dense(3, "relu"), mg.nn.Dropout(0.2), mg.nn.Output(2)],
        loss="cross_entropy", metrics=["accuracy"], optimizer=mg.optimizer.Adam(0.1),
    )  # fmt: skip
    net.fit(x, y, epochs=2, callbacks=callbacks())
    whole = path.read_bytes()
    training = Training(
        net, x, y, batch_size=32, epochs=3, validation_data=None, validation_split=0.0,
        callbacks=callbacks(), shuffle=True, verbose=0, options={},
    )  # fmt: skip

    def state() -> Any:
        tensors_now = [*net.tensors().items(), *net.optimizer.state_dict().items()]
        tensors_now += [(str(i), own.value) for i, own in enumerate(training._own())]
        position = (training.epoch, training.step, training._rows, training.stopping,
                    training.batch_size, repr(training.history.records))  # fmt: skip
        return [(name, value.tobytes()) for name, value in tensors_now], position, repr(
            [callback.state_dict() for callback in training.callbacks]
        )

    def read(path: Path) -> None:
        before = state()
        try:
            training.resume(path)
        except Exception:
            if state() != before:
                raise AssertionError("a refused checkpoint changed something") from None
            raise

    return Format("checkpoint", whole, read, weights_changed(whole))


def journal_format(folder: Path) -> Format:
    path = folder / "journal"
    space = {"x": mg.tune.grid(0, 3), "y": mg.tune.choice(["a", "b"]), "z": [0.5, 1.0]}

    def objective(trial: Any) -> float:
        trial.report(0, 1.0)
        return float(trial["x"])

    mg.tune.search(objective, space, "grid", trials=3, journal=path)
    whole = path.read_bytes()

    def inside(rng: Rng) -> bytes:
        lines = whole.splitlines()
        at = int(rng.integers(len(lines)))
        lines[at] = json.dumps(json_changed(json.loads(lines[at]), rng)).encode()
        return b"\n".join(lines) + b"\n"

    def read(path: Path) -> None:
        try:
            result, _ = mg.tune.read(path)
            str(result)
        finally:
            with contextlib.suppress(ConfigError):  # of another search
                mg.tune.search(objective, space, "grid", trials=3, journal=path)

    return Format("journal", whole, read, inside)


WORKFLOW = b"""
[workflow]
name = "flow"
iterations = 2
grace = 1.5
[modules.first]
command = ["{python}", "-c", "print({rank:03})"]
copies = 2
timeout = 5
environment = {A = "1"}
[modules.second]
function = "os.path:join"
after = ["first"]
grid = {rate = [0.1, 0.2], kind = ["a", {b = 1}]}
[modules.second.arguments]
x = [1, 2, {y = 1979-05-27}]
"""


def pickled(x: np.ndarray, y: np.ndarray) -> bytes:
    rows = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return pickle.dumps({b"data": rows, b"labels": [int(i) for i in y], b"n": ["a", "b"]}, 2)


def formats(folder: Path) -> dict[str, Callable[[], Format]]:
    """Return what makes each format, by name."""
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8), np.arange(3, dtype=np.uint8)
    idx = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]) + bytes(range(24))

    def arrays(save: Callable[..., None], *args: Any, **keywords: Any) -> bytes:
        file = io.BytesIO()
        save(file, *args, **keywords)
        return file.getvalue()

    ramp = np.arange(60.0).reshape(3, 4, 5)
    npy = arrays(np.save, ramp)
    zipped = arrays(np.savez, a=ramp, b=np.asfortranarray(ramp[0]), c=np.array(["x", "yz"]))
    packed = arrays(np.savez_compressed, a=ramp, b=np.zeros(1000, [("u", "i4"), ("v", "f8")]))
    table = b"a,b,c\n" + b"1,2,x\n3.5,?,y\n-1e3,nan,x\n" * 3

    def members_changed(rng: Rng) -> bytes:
        with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        name = pick(rng, list(files))
        files[name] = text_changed(files[name], rng)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for entry, content in files.items():
                archive.writestr(entry, content, int(rng.choice([0, 8, 8])))
        return file.getvalue()

    def hdf5() -> Format:
        import h5py

        from magmagraph.data import hdf5 as hdf5_reader

        hdf5_reader.PATIENCE = 5.0
        with h5py.File(folder / "h", "w") as out:
            out["train/x"] = ramp
            out.create_dataset("y", data=np.arange(100), chunks=(10,), compression="gzip")
            out["z"] = h5py.SoftLink("/train/x")
        return Format("hdf5", (folder / "h").read_bytes(), mg.data.read_hdf5)

    def images(kind: str) -> Callable[[], Format]:
        def image_format() -> Format:
            from PIL import Image

            file = io.BytesIO()
            Image.fromarray(x[0]).save(file, kind)
            (folder / kind / "class").mkdir(parents=True)

            def read(path: Path) -> None:
                (folder / kind / "class" / f"a.{kind}").write_bytes(path.read_bytes())
                mg.data.read_images(folder / kind)

            # 64 million pixels, the limit, are held three times while they are converted.
            return Format(kind, file.getvalue(), read, spare=1 << 30)

        return image_format

    csv = lambda path: mg.data.read_csv(path, categorical=["c"])  # noqa: E731
    plain: dict[str, Callable[[], Format]] = {
        "cifar": lambda: Format(
            "cifar",
            np.concatenate([y[:, None], x.reshape(3, -1)], 1).tobytes(),
            mg.data.read_cifar10,
        ),
        "cifar-pickle": lambda: Format("cifar-pickle", pickled(x, y), mg.data.read_cifar10),
        "idx": lambda: Format("idx", idx, mg.data.read_idx),
        "idx-gzip": lambda: Format(
            "idx-gzip", gzip.compress(idx), mg.data.read_idx,
            lambda rng: gzip.compress(bytes_changed(idx, rng)),
        ),
        "npy": lambda: Format("npy", npy, mg.data.read_npy),
        "npy-mapped": lambda: Format(
            "npy-mapped", npy, lambda path: mg.data.read_npy(path, mapped=True)
        ),
        "npz": lambda: Format("npz", zipped, mg.data.read_npz, members_changed),
        "npz-mapped": lambda: Format(
            "npz-mapped", zipped, lambda path: mg.data.read_npz(path, mapped=True), members_changed
        ),
        "npz-packed": lambda: Format("npz-packed", packed, mg.data.read_npz),
        "csv": lambda: Format("csv", table, csv),
        "workflow": lambda: Format(
            "workflow", WORKFLOW, mg.workflow.read, errors=(ConfigError,)
        ),
        "log": lambda: Format(
            "log", LOG, lambda path: mg.loggers.CSV(path, step="epoch").log(4, {"loss": 0.5})
        ),
        "hdf5": hdf5,
        "png": images("png"), "jpeg": images("jpeg"), "gif": images("gif"), "tiff": images("tiff"),
        "webp": images("webp"), "bmp": images("bmp"),
    }  # fmt: skip
    makers = {
        "archive": archive_format, "model": model_format, "network": network_format,
        "checkpoint": checkpoint_format, "journal": journal_format,
    }  # fmt: skip
    return {name: (lambda make=make: make(folder)) for name, make in makers.items()} | plain


# -------------------------------------------------------------------------------------- trials


class TookTooLong(BaseException):
    """A file was read for too long."""


def _ring(*about: Any) -> None:
    raise TookTooLong


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def tried(name: str, trials: int, seed: int) -> dict[str, Any]:
    """Return what came of some trials of a format."""
    counts: collections.Counter[str] = collections.Counter()
    others: list[str] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        format_parts = formats(folder)[name]()
        path = folder / "mutant"
        path.write_bytes(format_parts.whole)
        format_parts.read(path)  # a whole file is read
        limit = _memory() + format_parts.spare
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        signal.signal(signal.SIGALRM, _ring)
        for trial in range(trials):
            rng = np.random.default_rng([seed, trial, zlib.crc32(name.encode())])
            content = (
                format_parts.inside(rng) if trial % 2 else bytes_changed(format_parts.whole, rng)
            )
            path.write_bytes(content)
            began = time.monotonic()
            signal.alarm(SECONDS)
            try:
                format_parts.read(path)
                result = "read"
            except format_parts.errors as error:
                memory = "more memory than there is" in str(error)
                result = "memory" if memory else "refused"
                if memory or not str(error).strip():
                    others.append(f"{name} {seed} {trial}: {error}")
            except TookTooLong:
                result = "slow"
                others.append(f"{name} {seed} {trial}: more than {SECONDS} seconds")
            except BaseException:
                result = "other"
                others.append(f"{name} {seed} {trial}: {traceback.format_exc(limit=-4)}")
            signal.alarm(0)
            counts[result] += 1
            slowest = max(slowest, time.monotonic() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    about = {"format": name, "trials": trials, "slowest": round(slowest, 2), "peak MiB": peak}
    return {**about, **counts, "others": others[:20]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # an archive of another machine, an image with odd parts
    for chosen in sys.argv[3:]:
        print(json.dumps(tried(chosen, int(sys.argv[1]), int(sys.argv[2]))), flush=True)
