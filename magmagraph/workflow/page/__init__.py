"""A page of this machine that edits a workflow file and shows the workflow while it runs.

The server listens on 127.0.0.1, below a random path that only its user gets to know.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...errors import ConfigError, MagmagraphError, message
from ...executors import executor_of
from ...files.writing import write_file
from ...inspect.viewer import asset
from ...inspect.viewer.data import styles
from ..edit import change
from ..file import LARGEST_FILE, bytes_of, parse, text_of
from .draft import FIELDS, described
from .job import Job
from .progress import Progress, line_of

__all__ = ["Page", "Progress", "line_of", "served"]

EXECUTORS = ("serial", "process", "mpi", "dask")
_LIMIT = 6 * LARGEST_FILE + 4096  # bytes of a request: JSON may write a byte as \u0000
_PATIENCE = 30.0  # seconds for the imports of functions
_SHARED = ("elements.js", "theme.js")  # of the viewer
_SCRIPTS = ("graph.js", "forms.js", "live.js", "page.js")


class Refused(ValueError):
    """A request is no request of the page."""


class Page:
    """What the page shows and does: one workflow file, with no state but how it was saved.

    Parameters
    ----------
    path
        Of the workflow file.
    progress
        Of a workflow that runs, which the page shows; without it the page edits, and runs.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.progress = progress
        self.job: Job | None = None
        self._saving = threading.Lock()
        self.calls: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "read": self.read, "progress": self.shown, "check": self.check,
        }  # fmt: skip
        if progress is None:
            self.calls |= {
                "change": self.change, "find": self.find, "save": self.save,
                "run": self.run, "stop": self.stop,
            }  # fmt: skip

    def html(self, nonce: str) -> str:
        """Return the page."""
        start = {
            "styles": styles(), "fields": FIELDS, "executors": EXECUTORS,
            "editing": self.progress is None, "file": self.path.name,
        }  # fmt: skip
        own = files(__name__)
        parts = [*map(asset, _SHARED), *((own / name).read_text("utf-8") for name in _SCRIPTS)]
        script = "\n".join(parts)
        return (
            (own / "page.html").read_text("utf-8")
            .replace("{{title}}", escape(self.path.name))
            .replace("{{nonce}}", nonce)
            .replace("{{style}}", asset("viewer.css") + (own / "page.css").read_text("utf-8"))
            .replace("{{script}}", f'(() => {{\n"use strict";\n{script}\n}})();')
            .replace("{{data}}", json.dumps(start).replace("<", "\\u003c"))
        )  # fmt: skip

    def read(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file as it is now; nothing where there is none yet."""
        content = self._content()
        text = text_of(self.path, content).replace("\r\n", "\n")
        return {**described(text, self.path), "read": _digest(content)}

    def _content(self) -> bytes:
        return bytes_of(self.path) if self.path.exists() else b""

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a text."""
        return described(_text(request), self.path)

    def change(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a change to a text and describe the result."""
        wish = request.get("change")
        if not isinstance(wish, dict):
            raise Refused("no change")
        place = wish.get("table")
        if (
            not isinstance(place, list)
            or not all(isinstance(part, str) for part in place)
            or [len(place), *place[:1]] not in ([1, "workflow"], [1, "store"], [2, "modules"])
            or not isinstance(wish.get("set", {}), dict)
            or not isinstance(wish.get("rename", ""), str)
        ):
            raise Refused("a change of no table")
        return described(change(_text(request), self.path, wish), self.path)

    def find(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Look for the functions and programs, in a new process: modules are imported there."""
        text = _text(request)
        parse(text, self.path)
        with executor_of("process", 1, timeout=_PATIENCE) as pool:
            assert pool is not None
            try:
                pool.submit(_find, text, self.path).result()
            except (BrokenExecutor, TimeoutError) as error:
                raise ConfigError(
                    message(
                        f"{self.path.name}: the functions cannot be imported: {error}",
                        need="modules that can be imported without running a program",
                    )
                ) from None
        return {}

    def save(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Write a text, which has to be right, to the file, which has to be what was read."""
        text = _text(request)
        parse(text, self.path)
        with self._saving:
            before = self._content()
            if _digest(before) != request.get("read"):
                raise ConfigError(
                    message(
                        f"{self.path.name} has changed since it was read, and was not overwritten",
                        need="the file as this page knows it",
                        hint="copy what you need from the text, and read the file again",
                    )
                )
            data = text.replace("\n", "\r\n" if b"\r\n" in before else "\n").encode()
            write_file(self.path, data)
        return {"read": _digest(data)}

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start the workflow as the file describes it."""
        executor, workers = request.get("executor"), request.get("workers")
        if executor not in EXECUTORS or not (
            workers is None or (type(workers) is int and 0 < workers < 10**6)
        ):
            raise Refused("an executor or a number of workers")
        with self._saving:
            if self.job is not None and self.job.running:
                raise ConfigError(message("the workflow runs already", hint="stop it first"))
            self.job = Job(self.path, executor, workers)
        return {}

    def stop(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Interrupt the workflow that the page has started."""
        if self.job is not None:
            self.job.stop()
        return {}

    def shown(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return how far the workflow is."""
        progress = self.job.progress if self.job is not None else self.progress
        if progress is None:
            return {}
        state = progress.shown(str(request.get("module", "")))
        return {**state, "printed": self.job.printed} if self.job is not None else state

    def end(self) -> None:
        """End the workflow that the page has started."""
        if self.job is not None:
            self.job.end()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _find(text: str, path: Path) -> None:
    parse(text, path).check()


def _text(request: Mapping[str, Any]) -> str:
    text = request.get("text")
    try:
        if isinstance(text, str) and len(text.encode()) <= LARGEST_FILE:
            return text
    except UnicodeEncodeError:  # half of a pair of surrogates
        pass
    raise Refused("no text of a file")


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # an open connection of a browser does not hold the end up

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.token = secrets.token_urlsafe(32)
        super().__init__(("127.0.0.1", port), _Handler)
        self.hosts = [f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show what went wrong here, and nothing of browsers that close a connection."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        name = self._allowed(url.path)
        if name is None:
            self._send(404, b"")
        elif name == "":
            nonce = secrets.token_urlsafe(16)
            policy = (
                f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
                "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'"
            )
            html = self.server.page.html(nonce).encode()
            self._send(200, html, "text/html; charset=utf-8", policy)
        elif name in ("read", "progress"):
            request = {key: values[0] for key, values in parse_qs(url.query).items()}
            self._answer(name, request)
        else:
            self._send(404, b"")

    def do_POST(self) -> None:
        name = self._allowed(urlsplit(self.path).path, origin=True)
        length = self.headers.get("Content-Length", "")
        if name is None or name not in self.server.page.calls:
            self._send(404, b"")
        elif not length.isdecimal() or int(length) > _LIMIT:
            self._send(413, b"")
        elif self.headers.get_content_type() != "application/json":
            self._send(415, b"")
        else:
            request = None
            with suppress(ValueError, RecursionError):
                request = json.loads(self.rfile.read(int(length)))
            if isinstance(request, dict):
                self._answer(name, request)
            else:
                self._send(400, b"")

    def _allowed(self, path: str, origin: bool = False) -> str | None:
        """Return the last part of a path if the request is one of the page, or its first one."""
        _, token, *name = [*path.split("/"), ""]
        is_authorized = secrets.compare_digest(token.encode(), self.server.token.encode())
        host = self.headers.get("Host", "")
        origins = {f"http://{host}"} if origin else {None, f"http://{host}"}
        if (
            not is_authorized
            or host not in self.server.hosts
            or self.headers.get("Origin") not in origins
        ):
            return None
        return name[0] if len(name) == 2 else None

    def _answer(self, name: str, request: Mapping[str, Any]) -> None:
        try:
            answer = self.server.page.calls[name](request)
        except MagmagraphError as error:
            answer = {"refused": str(error)}
        except OSError as error:
            answer = {"refused": f"{error.filename or ''}: {error.strerror or error}"}
        except Refused as error:
            self._send(400, str(error).encode())
            return
        self._send(200, json.dumps(answer).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str = "text/plain", policy: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", policy or "default-src 'none'")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing: addresses have the token."""


@contextmanager
def served(page: Page, port: int = 0) -> Iterator[str]:
    """Serve a page from a thread, and yield its address.

    Parameters
    ----------
    page
        What is served.
    port
        The port; one that is free unless given.

    Raises
    ------
    ConfigError
        The port is in use, or not this user's.
    """
    try:
        server = _Server(page, port)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            message(f"port {port} of 127.0.0.1: {error}", need="a port that is free, or none")
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{server.token}/"
    finally:
        server.shutdown()
        server.server_close()
        page.end()
