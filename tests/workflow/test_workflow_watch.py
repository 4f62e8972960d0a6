"""Records of a workflow while it runs: who gets them, and what the command and its page do."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from workflows import program, table

import magmagraph as mg
from magmagraph import cli
from magmagraph.workflow.file import parse
from magmagraph.workflow.page import Page, Progress, served
from magmagraph.workflow.page.draft import described
from magmagraph.workflow.page.progress import record_of
from magmagraph.workflow.result import ModuleRun


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "flow.toml"
    path.write_text(text)
    return path


# ------------------------------------------------------------------- records


@pytest.mark.parametrize("workers", [1, 2])
def test_each_state_and_iteration_is_told_once_and_in_order(tmp_path, workers):
    text = "[workflow]\non_failure = 'continue'\niterations = 2\n"
    text += table("first", "rest", arguments={"seconds": 0.4}, iterations=2)
    text += table("fail", "fail", after=["first"]) + table("next", "nothing", after=["fail"])
    told: list[ModuleRun] = []
    with ThreadPoolExecutor(workers) as pool:
        options: dict[str, Any] = {} if workers == 1 else {"executor": pool}
        result = mg.workflow.run(written(tmp_path, text), watch=told.append, **options)
    for turn in (0, 1):
        seen = [(r.module, r.iteration, r.status) for r in told if r.turn == turn]
        assert seen == [
            ("first", 0, "waiting"), ("fail", 0, "waiting"), ("next", 0, "waiting"),
            ("first", 0, "running"), ("first", 0, "done"), ("first", 1, "running"),
            ("first", 1, "done"), ("fail", 0, "running"), ("fail", 0, "failed"),
            ("next", 0, "skipped"),
        ]  # fmt: skip
    ended = [run for run in told if run.status not in ("waiting", "running")]
    assert sorted(ended, key=repr) == sorted(result.runs, key=repr)


def test_what_a_watcher_raises_ends_the_workflow(tmp_path):
    def watch(record: ModuleRun) -> None:
        raise KeyError(record.module)

    with pytest.raises(KeyError, match="first"):
        mg.workflow.run(written(tmp_path, table("first", "nothing")), watch=watch)


@pytest.mark.slow
def test_dask_starts_a_module_again_whose_worker_is_killed(tmp_path):
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    told: list[ModuleRun] = []
    mark = str(tmp_path / "mark")
    path = written(tmp_path, table("once", "die_once", arguments={"mark": mark}))
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # another cluster has the port that Dask would open
            other.bind(("127.0.0.1", 8787))
            other.listen()
        result = mg.workflow.run(path, executor="dask", workers=2, watch=told.append)
    assert [(run.status, run.attempt) for run in result.runs] == [("done", 2)]
    assert ("running", 2) in [(run.status, run.attempt) for run in told]


def test_progress_counts_copies_iterations_and_failures(tmp_path):
    text = table("fit", "nothing", copies=3, iterations=2) + table("next", "nothing", after=["fit"])
    progress = Progress(parse(text, tmp_path / "flow.toml"))

    def tell(copy: int, iteration: int, status: str, attempt: int = 1, cause: str = "") -> None:
        progress(
            ModuleRun("fit", copy, iteration, (copy,), status, 1.0, 2.0, cause, attempt=attempt)
        )

    tell(0, 0, "done")
    tell(1, 0, "running", attempt=2)
    tell(2, 0, "waiting")
    fit = progress.shown()["modules"]["fit"]
    assert (fit["state"], fit["attempts"]) == ("retried", 2)
    assert (fit["counts"], fit["iterations_done"]) == ({"running": 2, "waiting": 1}, 1)
    assert progress.shown()["workers"] == [(0, "fit", 0, 1, 2.0), (1, "fit", 1, 0, 1.0)]
    tell(0, 1, "done")
    tell(1, 0, "failed", cause="module fit: no data")
    fit = progress.shown()["modules"]["fit"]
    assert (fit["state"], fit["counts"]["done"], fit["iterations_done"]) == ("failed", 1, 2)
    assert [failure["cause"] for failure in fit["failures"]] == ["module fit: no data"]
    assert progress.shown()["modules"]["next"]["state"] == "waiting"
    progress.end(False, "it failed")
    assert progress.shown()["workers"] == []


def test_a_draft_is_drawn_also_where_it_is_wrong(tmp_path):
    text = "".join(table(n, "nothing", after=[b]) for n, b in ("ab", "bc", "ca"))
    found = described(text, tmp_path / "flow.toml")
    assert "after: a cycle, " in found["error"]
    edges = {edge["from"] + edge["to"] for edge in found["edges"]}
    assert edges == {"ba", "cb", "ac"}
    for wrong in ("modules = 3", "[modules]\na = 3", "[[modules]]", "x", "[modules.a]\nafter = 3",
                  "x = " + "[" * 900 + "]" * 900):  # fmt: skip
        assert described(wrong, tmp_path / "flow.toml")["error"]
    many = "".join(table(f"m{i}", "nothing", after=[f"m{j}" for j in range(i)]) for i in range(40))
    found = described(many, tmp_path / "flow.toml")
    assert len(found["edges"]) == 40 * 39 / 2
    assert all(0 <= x <= found["width"] for edge in found["edges"] for x, _ in edge["points"])


# ------------------------------------------------------------------- the command


def test_the_command_writes_records(tmp_path):
    path = written(tmp_path, program("one", "print(1)"))
    records = tmp_path / "records"
    assert cli.main(["workflow", "run", str(path), "--records", str(records)]) == 0
    lines = [record_of(line) for line in records.read_text().splitlines()]
    assert [(run.module, run.status) for run in lines] == [
        ("one", "waiting"), ("one", "running"), ("one", "done"),
    ]  # fmt: skip
    assert lines[-1].ranks == (0,)


@pytest.mark.parametrize("part", ["edit", "run"])
def test_an_interrupt_ends_the_page(tmp_path, part):
    path = written(tmp_path, program("one", "print(1)"))
    words = {"edit": ["edit", str(path)], "run": ["run", str(path), "--page"]}[part]
    process = subprocess.Popen(
        [sys.executable, "-m", "magmagraph", "workflow", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    address = urlsplit(process.stdout.readline().removeprefix("page: ").strip())
    last = "Ctrl-C ends"
    while last not in (line := process.stdout.readline()):
        assert line, "the process has ended"
    assert get(address.port, f"{address.path}read")[0] == 200
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", address.port or 0))


def test_a_port_in_use_and_a_folder_are_refused(tmp_path, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        path = written(tmp_path, program("one", "print(1)"))
        assert cli.main(["workflow", "edit", str(path), "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1: " in capsys.readouterr().err
    assert cli.main(["workflow", "edit", str(tmp_path)]) == 1
    assert "flow" not in capsys.readouterr().out


# ------------------------------------------------------------------- strangers


def get(
    port: int | None, path: str, body: Any = None, **headers: str | None
) -> tuple[int, dict[str, str], bytes]:
    """Ask as a browser would that has the page open; headers can be replaced or left out."""
    origin = f"http://127.0.0.1:{port}"
    sent: dict[str, str | None] = {"Host": f"127.0.0.1:{port}"}
    if body is not None:
        sent |= {"Origin": origin, "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection._encode_request = str.encode  # type: ignore[method-assign]  # any bytes
    connection.putrequest("GET" if body is None else "POST", path, skip_host=True)
    if data is not None:
        sent.setdefault("Content-Length", str(len(data)))
    for name, value in sent.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(data)
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers.items()), answer.read()
    connection.close()
    return found


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The port of a page that edits, and its path."""
    with served(Page(written(tmp_path, table("first", "nothing")))) as address:
        url = urlsplit(address)
        yield url.port or 0, url.path


def test_only_the_page_itself_is_answered(page, tmp_path):
    port, path = page
    wish = {"text": "[modules.a]\ncommand = ['x']\n", "read": "0" * 64}
    assert get(port, path)[0] == 200
    assert get(port, f"{path}check", wish)[0] == 200
    other = f"http://127.0.0.1:{port + 1}"
    for status, place, body, headers in (
        (404, "/", None, {}),
        (404, "/" + "x" * 43 + "/", None, {}),
        (404, path[:-2] + "/", None, {}),
        (404, path[:-1], None, {"Host": "x"}),
        (404, "/" + "\u00e9/", None, {}),
        (404, f"{path}../read", None, {}),
        (404, f"{path}save", None, {}),
        (404, f"{path}absent", {}, {}),
        (404, path, None, {"Host": f"attacker.example:{port}"}),
        (404, path, None, {"Host": None}),
        (404, f"{path}read", None, {"Origin": "http://attacker.example"}),
        (404, f"{path}check", wish, {"Host": f"attacker.example:{port}"}),
        (404, f"{path}check", wish, {"Origin": "http://attacker.example"}),
        (404, f"{path}check", wish, {"Origin": other}),
        (404, f"{path}check", wish, {"Origin": "null"}),
        (404, f"{path}check", wish, {"Origin": None}),
        (415, f"{path}check", wish, {"Content_Type": "text/plain"}),
        (413, f"{path}check", wish, {"Content_Length": str(1 << 40)}),
        (413, f"{path}check", wish, {"Content_Length": "-1"}),
        (400, f"{path}check", b"{", {}),
        (400, f"{path}check", [], {}),
        (400, f"{path}check", {"text": 3}, {}),
        (400, f"{path}check", {"text": "\ud800"}, {}),
        (400, f"{path}check", {"text": "x" * (2 << 20)}, {}),
        (400, f"{path}change", {"text": "", "change": {"table": ["files", "x"]}}, {}),
        (400, f"{path}change", {"text": "", "change": 3}, {}),
        (400, f"{path}run", {"executor": "tcp://10.0.0.1:80", "workers": 1}, {}),
        (400, f"{path}run", {"executor": "serial", "workers": True}, {}),
    ):
        assert get(port, place, body, **headers)[0] == status, (place, body, headers)
    assert (tmp_path / "flow.toml").read_text() == table("first", "nothing")


def test_a_page_may_run_its_own_code_alone(page):
    port, path = page
    _, first, html = get(port, path)
    _, second, _ = get(port, path)
    policy = first["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy != second["Content-Security-Policy"]  # a nonce is used once
    assert first["Referrer-Policy"] == "no-referrer"
    assert b"http://" not in html.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in html


def test_a_page_that_shows_a_run_changes_nothing(tmp_path):
    path = written(tmp_path, table("first", "nothing"))
    with served(Page(path, Progress(parse(path.read_text(), path)))) as address:
        url = urlsplit(address)
        for name in ("save", "change", "run", "stop", "find"):
            assert get(url.port, f"{url.path}{name}", {})[0] == 404
        assert get(url.port, f"{url.path}progress?module=first")[0] == 200


def test_it_listens_to_this_machine_alone(page):
    port, _ = page
    own = socket.gethostbyname(socket.gethostname())
    if own.startswith("127."):
        own = "127.0.0.2"
    with pytest.raises((ConnectionRefusedError, TimeoutError)):
        socket.create_connection((own, port), timeout=2)


# ------------------------------------------------------------------- saving


def test_files_are_made_and_line_ends_stay(tmp_path):
    text = "# one\n[modules.a]\ncommand = ['true']\n"
    page = Page(tmp_path / "new.toml")
    assert page.read({})["text"] == ""
    saved = page.save({"text": text, "read": page.read({})["read"]})
    assert (tmp_path / "new.toml").read_bytes() == text.encode()
    assert page.read({})["read"] == saved["read"]
    (tmp_path / "new.toml").write_bytes(text.replace("\n", "\r\n").encode())
    found = page.read({})
    assert found["text"] == text
    page.save({"text": text + "copies = 2\n", "read": found["read"]})
    assert (tmp_path / "new.toml").read_bytes() == (text + "copies = 2\n").replace(
        "\n", "\r\n"
    ).encode()
    for wrong in ("", "[modules.a]\n", "[["):
        with pytest.raises(mg.errors.ConfigError):
            page.save({"text": wrong, "read": page.read({})["read"]})
