"""Executors and journals: processes that die, searches that are killed."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import searched

import magmagraph as mg
from magmagraph.tune.journal import read_journal

ROOT = Path(__file__).resolve().parents[2]
HELPERS = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers")])
PLANE = {"x": mg.tune.grid(0, 5), "y": mg.tune.grid(0.0, 1.0, 0.25)}


def same(one, other):
    """Return whether two searches tried the same points and found the same of them."""
    kept = [
        [(t.number, t.params, t.state, t.goal, t.reports) for t in found.trials]
        for found in (one, other)
    ]
    return kept[0] == kept[1]


# ------------------------------------------------------------------------------ processes


def test_processes_find_what_serial_runs_find():
    before = dict(os.environ)
    serial = mg.tune.search(searched.counted, PLANE, "grid")
    spread = mg.tune.search(searched.counted, PLANE, "grid", "process", workers=2, threads=3)
    assert same(serial, spread)
    assert {trial.values["threads"] for trial in spread.trials} == {3.0}
    assert dict(os.environ) == before


def test_a_process_that_dies_is_replaced_and_its_trial_tried_again(tmp_path):
    objective = functools.partial(searched.killed_once, folder=str(tmp_path))
    found = mg.tune.search(objective, {"x": [0, 1, 2, 3]}, "grid", "process", workers=1)
    assert [trial.state for trial in found.trials] == ["done"] * 4
    assert [trial.attempts for trial in found.trials] == [1, 2, 1, 1]


def test_trials_that_kill_or_hold_their_process_fail_alone():
    found = mg.tune.search(
        searched.troubled, {"x": [4, 5, 6, 7]}, "grid", "process",
        workers=1, timeout=0.3, retries=0,
    )  # fmt: skip
    assert [trial.state for trial in found.trials] == ["failed", "failed", "done", "done"]
    assert "that ran it was killed, or ended itself" in found.trials[0].error
    assert found.trials[1].error == "it was ended after timeout=0.3 s"


def test_objectives_that_cannot_be_sent_are_refused():
    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(lambda trial: 0.0, PLANE, "grid", "process")
    assert 'try: executor="serial" runs any function' in str(caught.value)


def test_programs_without_a_guard_are_told_so(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import magmagraph as mg\n"
        "def objective(trial):\n    return 0.0\n"
        "mg.tune.search(objective, {'x': [1]}, 'grid', 'process')\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 1
    assert 'try: if __name__ == "__main__": in front of what the program does' in done.stderr


def test_more_workers_than_may_run_at_once_are_refused():
    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(searched.curve, {"height": mg.tune.uniform(1, 2)}, "random", "process",
                       minimize="loss", trials=3, stop="median", workers=6)  # fmt: skip
    assert "6 workers, and ahead=4: 2 of them would never work" in str(caught.value)
    assert "try: ahead=6" in str(caught.value)


# ------------------------------------------------------------------------------ all executors


def learned(executor, **options):
    """Search with everything that depends on earlier trials."""
    return mg.tune.search(
        searched.curve, {"height": mg.tune.uniform(1, 2)}, "tpe", executor,
        minimize="loss", trials=24, stop=mg.tune.Median(startup=2), ahead=4, **options,
    )  # fmt: skip


def test_what_is_learned_does_not_depend_on_the_executor():
    """Stops and points are those of trials up to i - ahead, in whichever order trials end."""
    serial = learned("serial")
    assert serial.count("stopped") > 3
    assert same(serial, learned("process", workers=4))
    with ThreadPoolExecutor(3) as own:
        assert same(serial, learned(own))
        assert own.submit(int, "3").result() == 3  # it stays open


def test_a_cluster_of_dask_finds_what_serial_runs_find(tmp_path):
    pytest.importorskip("distributed.client")
    from distributed import Client, LocalCluster

    objective = functools.partial(searched.killed_once, folder=str(tmp_path))
    with (
        LocalCluster(4, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        assert same(mg.tune.search(searched.bowl, PLANE, "grid"),
                    mg.tune.search(searched.bowl, PLANE, "grid", client))  # fmt: skip
        assert same(learned("serial"), learned(cluster.scheduler_address))
        # A worker that is killed costs nothing: Dask runs its trials again.
        found = mg.tune.search(objective, {"x": mg.tune.grid(0, 9)}, "grid", client)
    assert [trial.goal for trial in found.trials] == list(map(float, range(10)))


def test_the_trial_that_reaches_the_goal_is_the_last_for_any_number_of_workers():
    space = {"x": mg.tune.uniform(0, 6), "y": mg.tune.uniform(0, 1)}
    serial = mg.tune.search(searched.bowl, space, until=0.1)
    for workers in (2, 4):
        assert same(serial, mg.tune.search(searched.bowl, space, until=0.1,
                                           executor="process", workers=workers))  # fmt: skip


def test_an_executor_that_breaks_ends_the_search_and_the_same_call_goes_on(tmp_path):
    objective = functools.partial(searched.killed_once, folder=str(tmp_path))
    options = {"space": {"x": [0, 1, 2]}, "method": "grid", "journal": tmp_path / "search.log"}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as own, pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(objective, executor=own, **options)
    assert 'try: executor="process", or the same call again, with journal=' in str(caught.value)
    found = mg.tune.search(objective, executor="process", workers=1, **options)
    assert [trial.attempts for trial in found.trials] == [1, 3, 1] or found.interrupted
    assert [trial.goal for trial in found.trials] == [0.0, 1.0, 2.0]


# ------------------------------------------------------------------------------ journals


def ended(journal):
    """Return the trials that have an end, and those that have none."""
    _, trials = read_journal(journal)
    done = {number for number, event in trials.items() if event.end is not None}
    return done, set(trials) - done


def started(folder):
    path = folder / "started"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("method", ["grid", "random", "tpe"])
def test_a_cut_search_goes_on_without_losing_or_repeating_a_trial(method, tmp_path):
    if method == "tpe":
        pytest.importorskip("optuna")
    objective = functools.partial(searched.noted, folder=str(tmp_path))
    journal = tmp_path / "search.log"
    options = {"method": method, "trials": 12, "journal": journal}
    whole = mg.tune.search(searched.bowl, PLANE, method, trials=12)

    calls = []

    def cut(trial):
        calls.append(trial.number)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return objective(trial)

    cut.__qualname__ = "noted"
    with pytest.raises(KeyboardInterrupt):
        mg.tune.search(cut, PLANE, **options)
    assert started(tmp_path) == [0, 1, 2, 3, 4]
    found = mg.tune.search(objective, PLANE, **options)
    assert started(tmp_path) == list(range(12))
    assert found.interrupted == [5]
    assert [trial.attempts for trial in found.trials] == [1, 1, 1, 1, 1, 2, *[1] * 6]
    assert "left running by an earlier process, and run again: 5" in str(found)
    assert same(whole, found)
    # A third call has nothing left to do.
    before = journal.read_bytes()
    assert same(whole, mg.tune.search(objective, PLANE, **options))
    assert started(tmp_path) == list(range(12))
    assert journal.read_bytes() == before


def test_a_killed_search_goes_on(tmp_path):
    """Kill the process with trials in the middle; the same call then ends it."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import functools, sys
            import magmagraph as mg
            import searched

            if __name__ == "__main__":
                folder, seconds = sys.argv[1:]
                objective = functools.partial(
                    searched.slow, folder=folder, seconds=float(seconds))
                space = {"x": mg.tune.grid(0, 5), "y": [0.0, 0.5]}
                found = mg.tune.search(objective, space, "grid", "process", workers=1,
                                       journal=folder + "/search.log")
                print(found.best.params, found.interrupted)
            """
        )
    )
    # The same program, first with trials that take long, so that the kill meets some.
    command = [sys.executable, str(program), str(tmp_path)]
    where = {**os.environ, "PYTHONPATH": HELPERS}
    cut = subprocess.Popen([*command, "0.15"], env=where, stdout=subprocess.PIPE, text=True)
    journal = tmp_path / "search.log"
    end = time.monotonic() + 60
    while True:  # until some trials have ended, and one runs
        assert time.monotonic() < end
        assert cut.poll() is None
        os.kill(cut.pid, signal.SIGSTOP)
        try:
            done, running = ended(journal)
        except mg.DataError:  # it is not there yet, or has no header yet
            done, running = set(), set()
        if len(done) >= 3 and running:
            break
        os.kill(cut.pid, signal.SIGCONT)
        time.sleep(0.02)
    os.kill(cut.pid, signal.SIGKILL)
    cut.communicate()
    read, open_ones = mg.tune.read(journal)
    assert {trial.number for trial in read.trials} == set(done)
    assert set(open_ones) == set(running)

    again = subprocess.run(
        [*command, "0"], env=where, capture_output=True, text=True, timeout=60, check=True
    )
    assert again.stdout.strip() == f"{{'x': 3, 'y': 0.5}} {sorted(running)}"
    runs = started(tmp_path)
    assert {number for number in runs if runs.count(number) > 1} <= running
    assert set(runs) == set(range(12))
    assert ended(journal) == (set(range(12)), set())


def journaled(tmp_path, **options):
    journal = tmp_path / "search.log"
    objective = functools.partial(searched.noted, folder=str(tmp_path))
    found = mg.tune.search(objective, PLANE, "grid", trials=3, journal=journal, **options)
    return journal, found


@pytest.mark.parametrize("keep", ["header", "all but a character", "half"])
def test_a_torn_last_line_is_cut_off(keep, tmp_path):
    journal, found = journaled(tmp_path)
    content = journal.read_bytes()
    size = {"header": 20, "all but a character": len(content) - 1, "half": len(content) - 60}
    journal.write_bytes(content[: size[keep]])
    _, again = journaled(tmp_path)
    assert same(found, again)
    assert started(tmp_path) == ([0, 1, 2, 0, 1, 2] if keep == "header" else [0, 1, 2, 2])
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_a_damaged_journal_is_refused_and_kept(tmp_path):
    journal, _ = journaled(tmp_path)
    content = journal.read_bytes().splitlines(keepends=True)
    content[3] = content[3][:20] + b"\n"
    journal.write_bytes(b"".join(content))
    with pytest.raises(mg.DataError, match="is not the journal of a search, or is damaged"):
        journaled(tmp_path)
    assert journal.read_bytes() == b"".join(content)


def test_a_last_line_that_is_damaged_but_whole_is_refused(tmp_path):
    """Optuna passes over it until another line follows, which a resumed search would write."""
    journal, _ = journaled(tmp_path)
    content = journal.read_bytes()[:-2] + b"\\\n"
    journal.write_bytes(content)
    with pytest.raises(mg.DataError, match="is not the journal of a search, or is damaged"):
        journaled(tmp_path)
    assert journal.read_bytes() == content


def test_a_changed_digit_in_a_result_is_noticed(tmp_path):
    journal, _ = journaled(tmp_path)
    content = journal.read_text()
    at = content.rindex('\\"goals\\": [') + len('\\"goals\\": [')
    assert content[at].isdigit() or content[at] == "-"
    at += content[at] == "-"
    digit = "7" if content[at] != "7" else "8"
    journal.write_text(content[:at] + digit + content[at + 1 :])
    with pytest.raises(mg.DataError, match="is damaged"):
        journaled(tmp_path)


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n", b"{}\n", b'{"journal": "x"}\n'])
def test_other_files_are_not_taken_for_journals(content, tmp_path):
    (tmp_path / "search.log").write_bytes(content)
    with pytest.raises(mg.DataError, match="is not the journal of a search"):
        journaled(tmp_path)
    assert (tmp_path / "search.log").read_bytes() == content


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"method": "random"}, 'its method is\n  "grid", and here\n  "random"'),
        ({"space": {"x": [1, 2]}}, "its space is"),
        ({"maximize": "value"}, "its goal is"),
        ({"seed": 3}, "its seed is\n  0, and here\n  3"),
        ({"stop": "median"}, "its stop is\n  null, and here"),
        ({"objective": searched.bowl}, 'its objective is\n  "noted", and here\n  "bowl"'),
    ],
)
def test_the_journal_of_another_search_is_refused(changed, text, tmp_path):
    journal, _ = journaled(tmp_path)
    before = journal.read_bytes()
    objective = functools.partial(searched.noted, folder=str(tmp_path))
    options = {"objective": objective, "space": PLANE, "method": "grid", **changed}
    with pytest.raises(mg.ConfigError) as caught:
        mg.tune.search(**options, journal=journal)
    assert text in str(caught.value)
    assert journal.read_bytes() == before


def test_a_journal_is_for_one_search_at_a_time(tmp_path):
    journal = tmp_path / "search.log"

    def objective(trial):
        with pytest.raises(mg.ConfigError, match="is the journal of a search that is running"):
            mg.tune.search(objective, PLANE, "grid", journal=journal)
        return 0.0

    assert mg.tune.search(objective, {"x": [0]}, journal=journal).best.goal == 0.0


def test_journals_that_cannot_be_written_are_told_before_any_trial(tmp_path):
    path = tmp_path / "none" / "search.log"
    with pytest.raises(mg.ConfigError, match=f"try: mkdir {tmp_path}/none"):
        mg.tune.search(searched.bowl, PLANE, "grid", journal=path)


def test_a_full_disk_ends_the_search_and_the_same_call_goes_on(tmp_path):
    journal = tmp_path / "search.log"
    code = f"""
        import functools, resource, magmagraph as mg, searched
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
        import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        objective = functools.partial(searched.noted, folder={str(tmp_path)!r})
        space = {{"x": mg.tune.grid(0, 5), "y": mg.tune.grid(0.0, 1.0, 0.25)}}
        mg.tune.search(objective, space, "grid", trials=9, journal={str(journal)!r})
    """
    where = {**os.environ, "PYTHONPATH": HELPERS}
    full = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=where, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert full.returncode == 1
    assert "File too large" in full.stderr
    objective = functools.partial(searched.noted, folder=str(tmp_path))
    found = mg.tune.search(objective, PLANE, "grid", trials=9, journal=journal)
    assert same(mg.tune.search(searched.bowl, PLANE, "grid", trials=9), found)
    assert 0 < len(started(tmp_path)) - 9 <= 1


def test_failed_trials_of_a_journal_can_be_repeated(tmp_path):
    journal = tmp_path / "search.log"
    mended = []

    def objective(trial):
        if trial["x"] == 1 and not mended:
            raise ValueError("a mistake")
        return trial["x"]

    options = {"method": "grid", "journal": journal}
    first = mg.tune.search(objective, {"x": [0, 1, 2]}, **options)
    assert first.count("failed") == 1
    mended.append(True)
    assert mg.tune.search(objective, {"x": [0, 1, 2]}, **options).count("failed") == 1
    found = mg.tune.search(objective, {"x": [0, 1, 2]}, **options, failures="repeat")
    assert [trial.state for trial in found.trials] == ["done"] * 3
    assert [trial.attempts for trial in found.trials] == [1, 2, 1]
    assert mg.tune.search(objective, {"x": [0, 1, 2]}, **options).count("failed") == 0


def test_numbers_that_json_lacks_survive_the_journal(tmp_path):
    def objective(trial):
        trial.report(0, float("inf"))
        return {"loss": trial["x"], "ratio": float("nan")}

    journal = tmp_path / "search.log"
    mg.tune.search(objective, {"x": [0.1, float("inf")]}, "grid", journal=journal)
    found = mg.tune.search(objective, {"x": [0.1, float("inf")]}, "grid", journal=journal)
    assert found.trials[0].values["ratio"] != found.trials[0].values["ratio"]
    assert found.trials[0].reports == [(0, float("inf"))]
    assert found.best.params == {"x": 0.1}


def test_optuna_reads_the_journal(tmp_path):
    """As its dashboard does: values of parameters, reports and states are where it looks."""
    from optuna import load_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    journal = tmp_path / "search.log"
    space = {
        "height": mg.tune.log_uniform(1, 2),
        "n": mg.tune.grid(2, 8, factor=2),
        "r": mg.tune.grid(0.1, 0.3, 0.1),
        "rule": mg.tune.choice([max, None, True, "a"]),
    }
    found = mg.tune.search(searched.curve, space, trials=12, minimize="loss", stop="median",
                           journal=journal)  # fmt: skip
    study = load_study(study_name="magmagraph", storage=JournalStorage(
        JournalFileBackend(str(journal))))  # fmt: skip
    states = {"done": "COMPLETE", "stopped": "PRUNED", "failed": "FAIL"}
    for ours, theirs in zip(found.trials, study.trials, strict=True):
        assert theirs.params == ours.labels
        assert theirs.state.name == states[ours.state]
        assert theirs.intermediate_values == dict(ours.reports)
        assert theirs.value == ours.goal
    assert study.best_trial.params == found.best.labels
