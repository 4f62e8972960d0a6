"""The line between a rank and its launcher: messages of JSON, a line each, over a socket.

Both prove that they know the job's token, which ranks have from their environment, before the other
uses anything that they send. The token itself is not sent. A message has at most `MESSAGE` bytes,
and is of one of the forms of `FORMS`; texts that may be longer, as the result of a function, come
in parts, of at most `LARGEST` bytes together.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...files.reading import Damaged, parse_json
from ...files.schema import Schema, either, none, number, one_of, table, text, whole

__all__ = [
    "FORMS",
    "LARGEST",
    "MAIN",
    "READING",
    "Line",
    "address",
    "check_form",
    "enter",
    "program_message",
    "proof",
    "split_address",
]

PATIENCE = 30.0  # seconds to connect, to be answered, and to send a part
TRIES = 5  # a launcher that strangers keep busy may close a rank's connection
MAIN = "__magmagraph_main__"  # the launcher's own script, in a rank that calls its function
READING: list[str] = []  # the module that this rank imports, to call a function of it

MESSAGE = 1 << 20  # bytes of one message
PART = 1 << 18  # characters of a part of a long text, all of ASCII
TEXT = 1 << 14  # characters of another text: a traceback, say; JSON may need 12 bytes for each
LARGEST = 1 << 30  # bytes of all parts of a text
ANSWER = 4096  # bytes of a launcher's first message

_TEXT = text(TEXT)
_PART = table({"part": text(PART)})
_STATE = table(
    {"waiting": either(none, _TEXT), "seconds": number(0.0), "count": whole(), "where": _TEXT}
)
# What a rank may send after its first message, by the key that tells them apart.
FORMS: Mapping[str, Schema] = {
    "beat": table({"beat": _STATE}),
    "size": table({"size": whole(1)}),
    "stack": table({"stack": _TEXT, "where": _TEXT}),
    "done": table({"done": one_of(True)}, {"result": text(LARGEST)}),
    "failed": table(
        {"failed": _TEXT, "text": _TEXT, "where": _TEXT, "trace": _TEXT, "status": whole(1, 255)}
    ),
}


def check_form(content: dict[str, Any]) -> None:
    """Raise `Damaged` where a message is of no form that ranks send."""
    for key, form in FORMS.items():
        if key in content:
            return form(content, "its message")
    raise Damaged(f"its message has none of the keys {', '.join(FORMS)}")


def _shortened(value: Any) -> Any:
    """Return a message with the middle of long texts left out."""
    if isinstance(value, dict):
        return {key: _shortened(member) for key, member in value.items()}
    if not isinstance(value, str) or len(value) <= TEXT:
        return value
    kept = TEXT // 2 - 50
    return f"{value[:kept]}\n... {len(value) - 2 * kept} characters ...\n{value[-kept:]}"


class Line:
    """One end of a connection; any thread may send, one thread receives.

    Attributes
    ----------
    fault : str
        What was wrong with the message after which nothing is received, empty if nothing was.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._file = connection.makefile("rb")
        self._lock = threading.Lock()
        self._parts: list[str] = []
        self._size = 0
        self.fault = ""
        if hasattr(socket, "SO_SNDTIMEO"):  # an end that reads nothing blocks nobody for ever
            seconds = struct.pack("ll", int(PATIENCE), 0)
            with contextlib.suppress(OSError):  # pairs of other kinds have no such option
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)

    def send(self, content: dict[str, Any]) -> None:
        """Send a message, with long texts shortened; OSError where the other end is gone."""
        self._send(_shortened(content))

    def send_whole(self, content: dict[str, Any], name: str, value: str) -> None:
        """Send a message with a text of ASCII of any length up to `LARGEST`, in parts."""
        for start in range(0, len(value), PART):
            self._send({"part": value[start : start + PART]})
        self._send({**_shortened(content), "whole": name})

    def _send(self, fields: dict[str, Any]) -> None:
        content = json.dumps(fields).encode() + b"\n"
        with self._lock:
            self._socket.sendall(content)

    def receive(
        self,
        limit: int = MESSAGE,
        largest: int = LARGEST,
        check: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any] | None:
        """Return the next message, or None where the other end is gone, or sends none.

        limit: Bytes that a message may have.
        largest: Bytes that the parts of a text may have together.
        check: Raises `Damaged` for a message of another form than is expected.
        """
        try:
            while "part" in (received := self._message(limit)):
                _PART(received, "its message")
                self._size += len(received["part"])
                if self._size > largest:
                    raise Damaged(f"its text has more than {largest} bytes")
                self._parts.append(received["part"])
            received = self._joined(received)
            if check is not None:
                check(received)
            return received
        except (OSError, ValueError) as error:  # a file that is closed is a ValueError
            self.fault = str(error) if isinstance(error, Damaged) else ""
        self._parts.clear()
        with contextlib.suppress(OSError):
            self._file.close()  # here: the thread that reads is the one that may
        return None

    def _message(self, limit: int) -> dict[str, Any]:
        content = self._file.readline(limit + 1)
        if len(content) > limit:
            raise Damaged(f"its message has more than {limit} bytes")
        if not content.endswith(b"\n"):
            raise ConnectionResetError
        fields = parse_json(content, "its message")
        if not isinstance(fields, dict):
            raise Damaged("its message is no table")
        return fields

    def _joined(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a message with the text whose parts have come before it, if it names one."""
        if "whole" not in fields:
            return fields
        name = fields.pop("whole")
        if not isinstance(name, str) or name in fields:
            raise Damaged("its message does not say what its parts are")
        fields[name] = "".join(self._parts)
        self._parts.clear()
        self._size = 0
        return fields

    def close(self) -> None:
        """Let the other end see that nobody is here; wakes a thread that receives."""
        with contextlib.suppress(OSError):  # it has gone first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def leave(self) -> None:
        """Close both directions, in the thread that receives."""
        self.close()
        with contextlib.suppress(OSError):
            self._file.close()


def address(host: str, port: int, token: str, folder: str) -> str:
    """Return what a rank needs to know, as one text.

    Examples
    --------
    >>> split_address(address("127.0.0.1", 4000, "a1", "/tmp/a:b"))
    ('127.0.0.1', 4000, 'a1', '/tmp/a:b')
    """
    return f"{host}:{port}:{token}:{folder}"


def split_address(text: str) -> tuple[str, int, str, str]:
    """Return host, port, token, and the folder of pipes, which may be empty."""
    host, port, token, folder = text.split(":", 3)
    return host, int(port), token, folder


def proof(token: str, *parts: object) -> str:
    """Return what only those who know a job's token can say of some parts.

    Examples
    --------
    >>> proof("token", "rank", 1, "nonce") == proof("token", "rank", 1, "nonce")
    True
    >>> proof("token", "rank", 1, "nonce") == proof("token", "rank", 2, "nonce")
    False
    """
    return hmac.new(token.encode(), json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def program_message(token: str, nonce: str, program: str) -> dict[str, Any]:
    """Return the first message of a launcher: it proves the length and the digest of a program."""
    size, digest = len(program), hashlib.sha256(program.encode()).hexdigest()
    return {"size": size, "digest": digest, "proof": proof(token, nonce, size, digest)}


def enter(
    host: str, port: int, token: str, rank: int, about: dict[str, Any]
) -> tuple[Line, dict[str, Any]]:
    """Return a rank's line to its launcher, and what the rank is to run.

    host, port, token: The launcher's address, and the token of the job.
    rank: This rank.
    about: What the launcher is to know of it.
    raises OSError: There is no launcher at the address, or another program than the job's launcher.
    """
    for _ in range(TRIES):
        connection = socket.create_connection((host, port), PATIENCE)
        line, nonce = Line(connection), secrets.token_hex(16)
        hello = {"hello": rank, "nonce": nonce, "proof": proof(token, "rank", rank, nonce)}
        late = threading.Timer(PATIENCE, line.close)  # of a stranger who answers byte by byte
        late.daemon = True
        late.start()
        try:
            line.send({**about, **hello})
            answer = line.receive(ANSWER, 0)
        except OSError:
            answer = None
        late.cancel()
        if answer is not None:
            size, digest = answer.get("size"), answer.get("digest")
            said, expected = str(answer.get("proof")), proof(token, nonce, size, digest)
            if hmac.compare_digest(said.encode(errors="replace"), expected.encode()):
                received = line.receive(largest=answer["size"])
                program = "" if received is None else str(received.get("program"))
                if hashlib.sha256(program.encode()).hexdigest() == digest:
                    connection.settimeout(None)
                    return line, json.loads(program)
        line.leave()
        if answer is not None or line.fault:
            raise ConnectionRefusedError(f"{host}:{port} is not the launcher of this job")
        time.sleep(0.1)
    raise ConnectionRefusedError(f"the launcher at {host}:{port} does not answer")
