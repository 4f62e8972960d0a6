"""Strangers at a launcher's port and files, modules of the current folder, early ends."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_launch import linux, own_rank, starter

from magmagraph.distributed import launch
from magmagraph.distributed.launching import admission, tied
from magmagraph.distributed.launching.admission import HELLO, WAITING, Admission
from magmagraph.distributed.launching.line import (
    LARGEST,
    MESSAGE,
    TEXT,
    Line,
    address,
    check_form,
    enter,
    program_message,
    proof,
)
from magmagraph.distributed.launching.report import JobError
from magmagraph.errors import ConfigError, FallbackWarning
from magmagraph.files.reading import Damaged
from magmagraph.runtime.comm.host import Host

TOKEN = "a token"
ABOUT = {"process": 7, "host": "here"}
RANKS = 2


@pytest.fixture
def mpiexec(tmp_path: Path) -> str:
    return starter(tmp_path)


class Opened:
    """A door, and who was admitted."""

    def __init__(self, ranks: int = RANKS) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=WAITING + ranks)
        self.port = listener.getsockname()[1]
        self.admitted: list[int] = []
        self.lines: list[Line] = []
        self.door = Admission(listener, TOKEN, ranks, self.admit)
        self.door.open()

    def admit(self, rank: int, hello: dict[str, Any], connection: socket.socket) -> None:
        self.admitted.append(rank)
        line = Line(connection)
        self.lines.append(line)
        program = json.dumps({"rank": rank})
        line.send(program_message(TOKEN, hello["nonce"], program))
        line.send_whole({}, "program", program)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def answer(self, content: bytes) -> bytes:
        """Return what a connection that says something is told; nothing, where it is closed."""
        with self.connect() as connection:
            connection.settimeout(30)
            with contextlib.suppress(OSError):
                connection.sendall(content)
            try:
                return connection.recv(1 << 16)
            except ConnectionResetError:
                return b""


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    made.door.close()
    for line in made.lines:
        line.leave()


def hello(rank: Any = 0, nonce: Any = "n", token: str = TOKEN, **changes: Any) -> bytes:
    said = {**ABOUT, "hello": rank, "nonce": nonce, "proof": proof(token, "rank", rank, nonce)}
    return json.dumps({**said, **changes}).encode() + b"\n"


# ---- The port


def test_ranks_are_admitted_once_each(opened):
    for rank in (1, 0):
        line, program = enter("127.0.0.1", opened.port, TOKEN, rank, ABOUT)
        assert program == {"rank": rank}
        line.leave()
    assert opened.answer(hello(0)) == b""
    assert opened.admitted == [1, 0]


@pytest.mark.parametrize(
    "content",
    [
        b"\n", b"{}\n", b"[]\n", b"null\n", b"\xff\xfe\n", b"[" * 4000 + b"\n",
        hello(token="another"), hello(RANKS), hello(-1), hello(True), hello("0"), hello([0]),
        hello(0.0), hello(nonce=None), hello(proof=None), hello(proof="\u00e9"), hello(proof=3),
        hello(process="7"), hello(host=None), hello(0, proof=proof(TOKEN, "rank", 1, "n")),
        hello() + hello(1), b"x" * (HELLO + 1), b"x" * (1 << 22),
    ],
)  # fmt: skip
def test_a_stranger_is_sent_away_whatever_it_says(opened, content):
    assert opened.answer(content) == b""
    assert opened.admitted == []
    enter("127.0.0.1", opened.port, TOKEN, 0, ABOUT)[0].leave()
    assert opened.admitted == [0]


def test_silent_connections_take_no_threads_and_are_bounded(opened):
    before = threading.active_count()
    silent = [opened.connect() for _ in range(200)]
    for rank in range(RANKS):
        enter("127.0.0.1", opened.port, TOKEN, rank, ABOUT)[0].leave()
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)  # threads of ranks that left are about to end
    assert threading.active_count() == before
    closed = 0
    until = time.monotonic() + 30
    while closed < 200 - WAITING and time.monotonic() < until:
        closed = 0
        for connection in silent:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                closed += connection.recv(1) == b""
    assert closed >= 200 - WAITING
    for connection in silent:
        connection.close()


def test_a_silent_connection_is_closed_after_a_while(opened, monkeypatch):
    monkeypatch.setattr(admission, "PATIENCE", 0.05)
    with opened.connect() as connection:
        connection.settimeout(30)
        assert connection.recv(1) == b""


def test_a_closed_door_leaves_no_connection_and_no_thread():
    opened = Opened()
    with opened.connect() as connection:
        connection.settimeout(30)
        opened.door.close()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert not any(thread.name == "magmagraph-door" for thread in threading.enumerate())
    with pytest.raises(ConnectionRefusedError):
        opened.connect()


def test_a_line_without_an_end_does_not_grow_the_launcher(opened):
    """Of 64 MiB that a stranger sends, no more is kept than a rank may say."""
    with opened.connect() as connection:
        connection.settimeout(30)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 64 << 20:
                sent += connection.send(b"x" * (1 << 20))
        assert sent < 64 << 20  # it was closed
    assert not opened.door._visitors


def impostor(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Return the port of a program that is no launcher, and says something to who comes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            line = Line(listener.accept()[0])
            said = line.receive()
            assert said is not None
            assert TOKEN not in json.dumps(said)
            with contextlib.suppress(OSError):  # it may leave before it has read all
                line.send(answer(said))
                line.send_whole({}, "program", EVIL)
            line.receive()
            line.leave()

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


EVIL = json.dumps({"script": "evil.py"})


def of_other(said: dict[str, Any]) -> dict[str, Any]:
    """Return the proof of another program than the one that follows."""
    return {**program_message(TOKEN, said["nonce"], '{"other": 1}'), "size": len(EVIL)}


@pytest.mark.parametrize(
    "answer",
    [
        lambda said: {**program_message("another", said["nonce"], EVIL), "proof": said["proof"]},
        lambda said: program_message("another", said["nonce"], EVIL),
        lambda said: {"program": EVIL},
        lambda said: {"script": "evil.py", "arguments": []},
        of_other,
        lambda said: program_message(TOKEN, said["nonce"], '{"the": "other"}'),
        lambda said: {"size": 1, "digest": "", "proof": "\u00e9"},
        lambda said: {"size": 1, "digest": "", "proof": "\udc80"},
        lambda said: {"part": "x" * 100},
        lambda said: {"program": "x" * 10_000},
    ],
)
def test_a_rank_runs_nothing_for_a_stranger(answer):
    with pytest.raises(ConnectionRefusedError, match="is not the launcher of this job"):
        enter("127.0.0.1", impostor(answer), TOKEN, 0, ABOUT)


def test_a_job_goes_on_beside_strangers(mpiexec):
    """Whoever finds the port of a job that runs can do it no harm."""
    found: list[int] = []

    def ports() -> set[int]:
        tables = [Path(f"/proc/self/net/{name}").read_text() for name in ("tcp",)]
        lines = [line.split() for table in tables for line in table.splitlines()[1:]]
        return {int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A"}

    def bother(before: set[int], ended: threading.Event) -> None:
        while not ended.wait(0.01) and not found:
            found.extend(ports() - before)
        strangers = []
        for port in found:
            with contextlib.suppress(OSError):
                for _ in range(100):
                    strangers.append(socket.create_connection(("127.0.0.1", port), 5))
                strangers[-1].sendall(b"x" * (1 << 22))
        ended.wait(60)
        for stranger in strangers:
            stranger.close()

    if not Path("/proc/self/net/tcp").exists():
        pytest.skip("ports of others are seen in Linux's /proc")
    ended = threading.Event()
    stranger = threading.Thread(target=bother, args=(ports(), ended))
    stranger.start()
    try:
        assert launch(own_rank, ranks=2, mpiexec=mpiexec) == [0, 1]
    finally:
        ended.set()
        stranger.join()
    assert found


# ---- What an admitted rank sends


def received(content: bytes, **limits: int) -> tuple[Any, str]:
    """Return what a line receives of some bytes, after which nothing comes, and its fault."""
    ours, theirs = socket.socketpair()
    line = Line(ours)

    def send() -> None:
        with theirs, contextlib.suppress(OSError):
            theirs.sendall(content)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        return line.receive(**limits), line.fault
    finally:
        line.leave()
        sender.join()


PART = b'{"part": "abc"}\n'
LINES = {
    "has more than 1048576 bytes": b'{"beat": "' + b"x" * (64 << 20),
    "is no table": b"[1]\n",
    "is no JSON": b"{\n",
    "no JSON": b"\xff\xfe\n",
    "nested deeper": b'{"a": ' + b"[" * 100_000 + b"\n",
    "a key twice": b'{"a": 1, "a": 2}\n',
    "its message.part is 3": b'{"part": 3}\n',
    "its message.part has 262145 characters": json.dumps({"part": "x" * 262145}).encode() + b"\n",
    "its message has the unknown key": b'{"part": "", "beat": 1}\n',
    "its text has more than 8 bytes": PART * 3,
    "does not say what its parts are": PART + b'{"whole": [1]}\n',
    "not say what its parts are": PART + b'{"done": true, "whole": "done"}\n',
}


@pytest.mark.parametrize("fault", LINES)
def test_a_message_has_a_form_and_limits(fault):
    message, said = received(LINES[fault], largest=8)
    assert message is None
    assert fault in said
    assert len(said) < 300


def test_half_a_message_is_none():
    assert received(b'{"beat"') == received(b"") == received(PART) == (None, "")


def test_long_texts_come_in_parts_and_other_texts_are_short():
    ours, theirs = socket.socketpair()
    line, other = Line(ours), Line(theirs)
    result = "".join(map(chr, range(32, 127))) * 40_000

    def send() -> None:
        other.send_whole({"done": True}, "result", result)
        other.send({"text": "\U0001f30b" * 10**6, "state": {"where": "a" + "é" * 10**6 + "z"}})
        other.send_whole({"done": True}, "result", "")
        other.leave()

    sender = threading.Thread(target=send)
    sender.start()
    assert line.receive() == {"done": True, "result": result}
    told = line.receive()
    assert told is not None
    for text in (told["text"], told["state"]["where"]):
        assert len(text) <= TEXT
        assert " characters ..." in text
    assert told["state"]["where"][0] == "a" and told["state"]["where"][-1] == "z"
    assert line.receive() == {"done": True, "result": ""}
    assert line.receive() is None
    assert line.fault == ""
    sender.join()
    line.leave()


STATE = {"waiting": None, "seconds": 0.0, "count": 3, "where": "file:1"}


def test_messages_of_ranks_are_of_known_forms():
    whole = {"failed": "E", "text": "t", "where": "", "trace": "", "status": 1}
    for told in ({"beat": STATE}, {"size": 2}, {"done": True}, {"done": True, "result": "a"},
                 {"stack": "s", "where": ""}, whole):  # fmt: skip
        check_form(told)
    for told in (
        {}, {"hello": 1}, {"beat": 3}, {"beat": {}}, {"beat": {**STATE, "waiting": 3}},
        {"beat": {**STATE, "seconds": "x"}}, {"beat": {**STATE, "seconds": float("nan")}},
        {"beat": {**STATE, "where": None}}, {"beat": {**STATE, "more": 1}}, {"size": 0},
        {"size": "2"}, {"done": False}, {"done": True, "result": 3}, {"stack": 1, "where": ""},
        {**whole, "status": 0}, {**whole, "status": 256}, {**whole, "trace": "x" * (TEXT + 1)},
        {**whole, "text": None}, {"failed": "E"}, {"end": 1}, {"fault": "x"},
    ):  # fmt: skip
        with pytest.raises(Damaged, match="its message"):
            check_form(told)


def say(content: bytes, times: int) -> int:
    """Send something to the launcher as rank 1, and wait."""
    from magmagraph.runtime import watch

    if int(os.environ["PMI_RANK"]) == 1:
        line: Line = watch._tell.__self__  # type: ignore[union-attr]
        for _ in range(times):
            with line._lock:
                line._socket.sendall(content)
    time.sleep(60)
    return 0


@pytest.mark.parametrize(
    ("content", "times", "said"),
    [
        (b'{"beat": 3}\n', 1, "its message.beat is 3"),
        (b"x" * (1 << 20), 300, "more than 1048576 bytes"),
        (b'{"failed": "E"}\n', 1, "lacks 'text'"),
        (b"no JSON\n", 1, "is no JSON"),
    ],
)
def test_a_rank_that_sends_anything_else_ends_the_job(mpiexec, content, times, said):
    with pytest.raises(JobError, match="rank 1 of 2 has sent its launcher what no rank") as raised:
        launch(say, content, times, ranks=2, mpiexec=mpiexec)
    assert said in str(raised.value)


def flood_or_fail() -> None:
    """Send signs of life without an end as rank 1, and fail as rank 0."""
    if int(os.environ["PMI_RANK"]) == 1:
        say(json.dumps({"beat": STATE}).encode() + b"\n", 10**9)
    time.sleep(1.0)
    raise ValueError("rank 0 fails")


def test_a_rank_that_never_stops_to_speak_holds_nobody_up(mpiexec):
    began = time.monotonic()
    with pytest.raises(JobError, match="rank 0 of 2 failed: ValueError: rank 0 fails"):
        launch(flood_or_fail, ranks=2, mpiexec=mpiexec)
    assert time.monotonic() - began < 30


def doubled(text: str) -> str:
    if text == "fail":
        raise ValueError("é" * 10**6 + "the end")
    return text * 2


def test_arguments_results_and_errors_may_be_long(mpiexec):
    text = '"\\\n' * 10**6
    assert launch(doubled, text, ranks=2, mpiexec=mpiexec) == [text * 2] * 2
    with pytest.raises(JobError, match=r"ValueError: é+\s+... \d+ characters ...\s+é+the end"):
        launch(doubled, "fail", ranks=1, mpiexec=mpiexec)


def test_arguments_beyond_the_limit_start_nothing(monkeypatch):
    monkeypatch.setattr("magmagraph.distributed.launching.launcher.LARGEST", MESSAGE + 1000)
    assert LARGEST == 1 << 30
    with pytest.raises(ConfigError, match="the arguments of doubled have 1368 bytes, packed"):
        launch(doubled, "x" * 1000, ranks=2, mpiexec="none")


# ---- The file by which ranks of a host see each other


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give the path of the file of a job of two ranks."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("magmagraph.runtime.comm.host._launcher", lambda *_: "1-1")
    monkeypatch.delenv("MAGMAGRAPH_LAUNCH", raising=False)
    for name, value in (("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "2")):
        monkeypatch.setenv(name, value)
    host = Host.find(2)
    assert host is not None
    (path,) = tmp_path.iterdir()
    host.forget()
    os.close(host._file)
    return path


def link(path: Path) -> None:
    path.symlink_to("target")


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def writable(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


def of_other(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can make files that belong to another user")
    path.touch(0o600)
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize("put", [link, pipe, writable, of_other])
def test_a_file_that_a_stranger_has_put_there_is_not_used(job, put):
    put(job)
    with pytest.warns(FallbackWarning, match="ranks of this host cannot see each other"):
        assert Host.find(2) is None
    assert not job.with_name("target").exists()


def test_the_file_is_of_this_user_alone_and_its_name_depends_on_the_token(
    job, monkeypatch, tmp_path
):
    before = os.umask(0)
    try:
        for token in ("", "h:1:a:", "h:1:b:"):
            monkeypatch.setenv("MAGMAGRAPH_LAUNCH", token)
            host = Host.find(2)
            assert host is not None
            os.close(host._file)
    finally:
        os.umask(before)
    paths = list(tmp_path.iterdir())
    assert len(paths) == 3
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}


def test_a_slot_with_anything_else_is_of_no_rank(job):
    host = Host.find(2)
    assert host is not None
    for content in (b"[1]", b"3", b"null", b'"text"', b"\xff", b"{" * 4096):
        os.pwrite(host._file, content.ljust(4096, b"\0"), 4096)
        assert host.read() == {}
    host.forget()
    os.close(host._file)


# ---- Modules of the current folder


MODULES = ("base64", "pickle", "socket", "runpy", "traceback", "random", "selectors")


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a current folder with modules named as Python's, which leave a mark when they run."""
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / name)!r} + '.ran', 'w')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    return tmp_path


def ran(trap: Path) -> list[str]:
    return sorted(path.name for path in trap.glob("*.ran"))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `magmagraph` as its program does, which has a folder of its own before all others."""
    main = "import sys; from magmagraph.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-P", "-c", main, *words],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_run_takes_no_module_of_the_current_folder(trap, mpiexec):
    (trap / "script.py").write_text("import base64, random; print(base64.b64encode(b'a'))")
    done = command("run", "-n", "2", "--mpiexec", mpiexec, str(trap / "script.py"))
    assert (done.returncode, done.stdout) == (0, "b'YQ=='\n" * 2), done.stderr
    assert ran(trap) == []


def test_launch_takes_no_module_of_the_current_folder(trap, mpiexec):
    (trap / "program.py").write_text(
        "import sys\nimport magmagraph as mg\n"
        "def one():\n    import random\n    return 1\n"
        "if __name__ == '__main__':\n"
        "    print(mg.distributed.launch(one, ranks=2, mpiexec=sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, str(trap / "program.py"), mpiexec],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[1, 1]\n"), done.stderr
    assert ran(trap) == []


def test_info_takes_no_module_of_the_current_folder(trap):
    done = command("info")
    assert done.returncode == 0, done.stderr
    assert ran(trap) == []


def test_processes_of_a_search_take_no_module_of_the_current_folder(trap):
    (trap / "program.py").write_text(
        "import os\nimport magmagraph as mg\n"
        "def f(trial):\n"
        "    import random\n"
        "    assert 'PYTHONSAFEPATH' not in os.environ\n"
        "    return float(trial['x'])\n"
        "if __name__ == '__main__':\n"
        "    from magmagraph import tune\n"
        "    found = tune.search(f, {'x': [1, 2]}, 'grid', 'process', workers=1)\n"
        "    print(found.best.values)\n"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, str(trap / "program.py")],
        capture_output=True, text=True, timeout=120, check=False, env=kept,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ran(trap) == []


def test_a_module_that_is_named_is_that_of_the_current_folder(trap, mpiexec):
    """As with python -m: this is what was asked for."""
    (trap / "trap" / "program.py").write_text("print('the program')")
    done = command("run", "-n", "1", "--mpiexec", mpiexec, "-m", "program")
    assert (done.returncode, done.stdout) == (0, "the program\n"), done.stderr


# ---- A launcher that is killed before its ranks have come


@linux
def test_a_rank_whose_launcher_has_gone_ends(tmp_path):
    """Its pipes have no reader, and a rank that waited for one would wait for ever."""
    for name in ("0.out", "0.err"):
        os.mkfifo(tmp_path / name, 0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    place = address("127.0.0.1", port, TOKEN, str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "magmagraph.distributed.launching.rank"],
        env={**os.environ, "MAGMAGRAPH_LAUNCH": place, "PMI_RANK": "0"},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    without_pipes = address("127.0.0.1", port, TOKEN, "")
    done = subprocess.run(
        [sys.executable, "-m", "magmagraph.distributed.launching.rank"],
        env={**os.environ, "MAGMAGRAPH_LAUNCH": without_pipes, "PMI_RANK": "0"},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"rank 0 has no launcher" in done.stderr


@linux
def test_what_a_killed_launcher_has_started_ends_with_it(tmp_path):
    """The kernel ends it: a starter that does nothing yet would never look."""
    ready = tmp_path / "ready"
    mpiexec = starter(tmp_path, instead=f"echo $$ > {ready}; exec sleep 60")
    script = tmp_path / "script.py"
    script.touch()
    launcher = subprocess.Popen(
        [sys.executable, "-m", "magmagraph.run", "-n", "2", "--mpiexec", mpiexec, str(script)]
    )
    until = time.monotonic() + 60
    while not (ready.exists() and ready.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.01)
    number = int(ready.read_text())
    launcher.kill()
    launcher.wait()
    while alive(number) and time.monotonic() < until:
        time.sleep(0.01)
    gone = not alive(number)
    if not gone:
        os.kill(number, signal.SIGKILL)
    assert gone


def alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@linux
def test_a_command_that_is_tied_to_a_process_that_has_gone_is_not_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-S", tied.__file__, "1", "/bin/sh", "-c", "echo run"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    own = [sys.executable, "-P", "-S", tied.__file__, str(os.getpid()), "/bin/sh", "-c", "echo run"]
    assert subprocess.run(own, capture_output=True, text=True, check=True).stdout == "run\n"


MARK = "MAGMAGRAPH_TEST_JOB"


def marked(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return [number for number in found if alive(number)]


@linux
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5, 1.0, 2.0])
def test_no_rank_outlives_a_launcher_that_is_killed_early(tmp_path, mpiexec, seconds):
    script = tmp_path / "script.py"
    script.write_text("import time; time.sleep(60)")
    mark = secrets.token_hex(8)
    launcher = subprocess.Popen(
        [sys.executable, "-m", "magmagraph.run", "-n", "2", "--mpiexec", mpiexec, str(script)],
        env={**os.environ, MARK: mark},
    )
    until = time.monotonic() + 60
    while len(marked(mark)) < 2 and time.monotonic() < until:  # the job has begun
        time.sleep(0.01)
    time.sleep(seconds)
    launcher.kill()
    launcher.wait()
    until = time.monotonic() + 30
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    for number in left:
        os.kill(number, signal.SIGKILL)
    assert left == []
