"""Data: downloads that end in time, and MNIST, which is downloaded."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_data import idx_bytes

from magmagraph import data
from magmagraph.data import datasets
from magmagraph.data.download import RemoteFile, download
from magmagraph.errors import DataError

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Give a function that starts a server on this machine and returns its address."""
    servers: list[http.server.ThreadingHTTPServer] = []
    threads: list[threading.Thread] = []

    def start(answer: Answer) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    answer(self)
                except OSError:
                    self.close_connection = True  # the client has gone

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        servers.append(server)
        threads.append(thread)
        return f"http://127.0.0.1:{server.server_address[1]}/"

    yield start
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def content_of(name: str) -> bytes:
    return name.encode() * 1000


def remote(name: str) -> RemoteFile:
    content = content_of(name)
    return RemoteFile(name, len(content), hashlib.sha256(content).hexdigest())


def whole(handler: http.server.BaseHTTPRequestHandler) -> None:
    content = content_of(handler.path.rpartition("/")[2])
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def refused(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_error(404)


def wrong(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"<html>please log in</html>")


def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))


FILES = [remote("first"), remote("second")]


def test_download_puts_whole_files(tmp_path, serve):
    download(FILES, [serve(whole)], tmp_path / "new" / "folder")
    found = {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()}
    assert found == {file.name: content_of(file.name) for file in FILES}


@pytest.mark.parametrize("bad", [refused, wrong, endless])
def test_download_goes_on_to_the_next_mirror(tmp_path, serve, bad):
    download(FILES, [serve(bad), serve(whole)], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [(refused, "404"), (wrong, "the checksum is another one"), (endless, "checksum")],
)
def test_download_says_what_the_mirror_said_and_leaves_nothing(tmp_path, serve, bad, complaint):
    with pytest.raises(DataError, match=complaint):
        download(FILES, [serve(bad)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_download_gives_up_on_a_server_that_drips(tmp_path, serve):
    """The limit binds the whole, not each byte; what came whole before it stays."""
    release = threading.Event()

    def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path.endswith("first"):
            return whole(handler)
        handler.send_response(200)
        handler.end_headers()
        while not release.wait(0.02):
            handler.wfile.write(b"x")
        return None

    address = serve(drip)
    begin = time.monotonic()
    with pytest.raises(DataError) as raised:
        download(FILES, [address], tmp_path, timeout=0.5)
    # Far below any wait for the server, which answers until it is released.
    assert time.monotonic() - begin < 5
    release.set()
    assert str(raised.value).startswith("second could not be downloaded within 0.5 s: ")
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


@pytest.fixture
def tiny(monkeypatch, tmp_path) -> tuple[dict[str, bytes], Path]:
    """Replace MNIST by four small files, an empty cache and mirrors that are not there."""
    images, labels = np.arange(2 * 6, dtype="u1").reshape(2, 2, 3), np.array([3, 9], "u1")
    arrays = [images, labels, images[:1] + 243, labels[:1]]
    contents = {
        file.name: gzip.compress(idx_bytes(array), mtime=0)
        for file, array in zip(datasets.MNIST_FILES, arrays, strict=True)
    }
    remotes = tuple(
        RemoteFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    )
    monkeypatch.setattr(datasets, "MNIST_FILES", remotes)
    monkeypatch.setattr(datasets, "MNIST_MIRRORS", ("http://127.0.0.1:9/",))
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("MAGMAGRAPH_DATA", raising=False)
    return contents, tmp_path


def put(contents: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("inner", ["", "mnist"])
def test_mnist_from_the_folder_that_the_environment_names(tiny, monkeypatch, inner):
    contents, folder = tiny
    put(contents, folder / "given" / inner)
    monkeypatch.setenv("MAGMAGRAPH_DATA", str(folder / "given"))
    digits = data.mnist()
    assert digits.source == f"MNIST from {folder / 'given' / inner}"
    assert digits.image_shape == (2, 3)
    expected = (np.arange(12).reshape(2, 6) / 255).astype(np.float32)
    np.testing.assert_array_equal(digits.x_train, expected, strict=True)
    np.testing.assert_array_equal(digits.y_train, np.array([3, 9], np.int32), strict=True)
    assert digits.x_test.shape == (1, 6)
    assert digits.x_test.max() == np.float32(248 / 255)
    assert repr(digits).endswith("2 examples and 1 for tests, 6 features, 10 classes)")


@pytest.mark.parametrize("inner", ["", "mnist"])
def test_mnist_from_a_folder_that_is_given(tiny, monkeypatch, inner):
    contents, folder = tiny
    put(contents, folder / inner)
    monkeypatch.setenv("MAGMAGRAPH_DATA", str(folder / "elsewhere"))
    digits = data.mnist(str(folder))
    assert digits.source == f"MNIST from {folder / inner}"
    (x_train, y_train), (x_test, y_test) = digits
    assert x_train is digits.x_train and y_train is digits.y_train
    assert x_test is digits.x_test and y_test is digits.y_test


def test_a_given_folder_that_lacks_a_file_is_told_and_nothing_stands_in(tiny, monkeypatch):
    contents, folder = tiny
    put(contents, folder)
    monkeypatch.setenv("MAGMAGRAPH_DATA", str(folder))
    put(contents, folder / "other")
    name = datasets.MNIST_FILES[2].name
    (folder / "other" / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"MNIST is not whole in .*: there is no {name}\n"):
        data.mnist(folder / "other")


def test_mnist_unpacked_is_found_too(tiny, monkeypatch):
    contents, folder = tiny
    put({n.removesuffix(".gz"): gzip.decompress(c) for n, c in contents.items()}, folder)
    monkeypatch.setenv("MAGMAGRAPH_DATA", str(folder))
    assert data.mnist().x_train.shape == (2, 6)


def test_mnist_that_is_truncated_raises_and_nothing_stands_in(tiny, monkeypatch):
    contents, folder = tiny
    put(contents, folder)
    name = datasets.MNIST_FILES[0].name
    (folder / name).write_bytes(contents[name][:-5])
    monkeypatch.setenv("MAGMAGRAPH_DATA", str(folder))
    with pytest.raises(DataError, match=f"{name} is truncated or corrupted"):
        data.mnist()


def test_mnist_whose_labels_are_another_number_raises(tiny, monkeypatch):
    contents, folder = tiny
    names = list(contents)
    put(contents | {names[1]: contents[names[3]]}, folder)
    monkeypatch.setenv("MAGMAGRAPH_DATA", str(folder))
    with pytest.raises(DataError, match="the train files in .* do not fit each other"):
        data.mnist()


def test_mnist_is_downloaded_once_and_a_damaged_copy_again(tiny, monkeypatch, serve):
    contents, folder = tiny
    asked: list[str] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        name = handler.path[1:]
        asked.append(name)
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(contents[name])

    monkeypatch.setattr(datasets, "MNIST_MIRRORS", (serve(answer),))
    cache = folder / "cache" / "data" / "mnist"
    assert data.mnist().source == f"MNIST from {cache}"
    assert sorted(asked) == sorted(contents)
    data.mnist()
    assert len(asked) == 4
    name = datasets.MNIST_FILES[2].name
    (cache / name).write_bytes(b"damaged")
    data.mnist()
    assert asked[4:] == [name]


def test_small_digits_stand_in_and_say_so(tiny):
    pytest.importorskip("sklearn")
    digits = data.mnist(timeout=1.0)
    assert digits.source.startswith("scikit-learn's 8 x 8 digits in place of MNIST (")
    assert digits.x_train.shape == (1437, 64)
    assert digits.x_test.shape == (360, 64)
    assert digits.x_train.dtype == np.float32
    assert digits.y_train.dtype == np.int32
    assert (digits.x_train.min(), digits.x_train.max()) == (0.0, 1.0)
    assert set(digits.y_test.tolist()) == set(range(10))
    with pytest.raises(DataError, match="could not be downloaded"):
        data.mnist(timeout=1.0, substitute=False)
    with pytest.raises(DataError, match="no download is allowed"):
        data.mnist(timeout=0, substitute=False)


def test_a_cache_that_cannot_be_made_is_no_disaster(tiny, monkeypatch):
    pytest.importorskip("sklearn")
    _, folder = tiny
    (folder / "file").write_text("in the way")
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(folder / "file"))
    assert "Not a directory" in data.mnist(timeout=1.0).source


def test_module_reports_by_its_exit_status(tiny, monkeypatch, capsys):
    from magmagraph.data.__main__ import main

    contents, folder = tiny
    assert main(["cifar"]) == 2
    monkeypatch.setattr(datasets.mnist, "__kwdefaults__", {"timeout": 0.5, "substitute": True})
    assert main(["mnist"]) == 3
    assert "could not be downloaded" in capsys.readouterr().err
    put(contents, folder)
    monkeypatch.setenv("MAGMAGRAPH_DATA", str(folder))
    assert main(["mnist"]) == 0
    assert "MNIST from" in capsys.readouterr().out
