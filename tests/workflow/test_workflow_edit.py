"""Changes of a workflow file: the lines that change, those that stay, and what is refused."""

from __future__ import annotations

import difflib
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from magmagraph.errors import ConfigError
from magmagraph.workflow.edit import change, toml
from magmagraph.workflow.file import parse

PATH = Path("study.toml")
STUDY = """\
# A study.

[workflow]
name = "rates"  # for people

# Points near a line.
[modules.data]
function = "study:data"
arguments = {rows = 200, "a key" = '#'} # both

# One fit for each rate.
[modules.fit]
function = "study:fit"
after = [
    "data",  # which puts the points
]
[modules.fit.grid]
# two rates
rate = [0.1, 0.01]

# The least loss.
[modules.choose]
function = "study:choose"
after = ["fit", "data"]
"""
DOTTED = """\
[modules]
fit.function = "a:b" # why
fit.copies = 2
other = {function = "c:d", after = ["fit"]}
[[modules.third.arguments.list]]
x = 1
[modules.third]
function = '''a:b'''
"""


def changed(text: str, wish: dict[str, Any]) -> list[str]:
    """Return the lines that a change drops and adds."""
    new = change(text, PATH, wish)
    lines = difflib.ndiff(text.splitlines(), new.splitlines())
    return [line for line in lines if line[0] in "+-"]


def module(name: str, **keys: Any) -> dict[str, Any]:
    return {"table": ["modules", name], "set": keys}


@pytest.mark.parametrize(
    ("text", "wish", "lines"),
    [
        (STUDY, module("fit", threads="3"), ["+ threads = 3"]),
        (STUDY, module("data", arguments="{rows = 1}"),
         ["- arguments = {rows = 200, \"a key\" = '#'} # both", "+ arguments = {rows = 1} # both"]),
        (STUDY, module("choose", after=[]), ['- after = ["fit", "data"]']),
        (STUDY, module("data", function="x:y", iterations="2"),
         ['- function = "study:data"', '+ function = "x:y"', "+ iterations = 2"]),
        (STUDY, module("fit", grid="", copies="2"),
         ["+ copies = 2", "- [modules.fit.grid]", "- # two rates", "- rate = [0.1, 0.01]"]),
        (STUDY, {"table": ["workflow"], "set": {"name": "", "on_failure": "continue"}},
         ['- name = "rates"  # for people', '+ on_failure = "continue"']),
        (STUDY, {"table": ["store"], "set": {"servers": "3"}},
         ["+ ", "+ [store]", "+ servers = 3"]),
        (STUDY, module("show", command='["ls"]', after=["fit"]),
         ["+ ", "+ [modules.show]", '+ command = ["ls"]', '+ after = ["fit"]']),
        (STUDY, {"table": ["modules", "choose"], "remove": True},
         ["- ", "- # The least loss.", "- [modules.choose]", '- function = "study:choose"',
          '- after = ["fit", "data"]']),
        (STUDY, {"table": ["modules", "fit"], "rename": "train"},
         ["- [modules.fit]", "+ [modules.train]", "- [modules.fit.grid]", "+ [modules.train.grid]",
          '- after = ["fit", "data"]', '+ after = ["train", "data"]']),
        (DOTTED, module("fit", copies="1", threads="4"),
         ["- fit.copies = 2", "+ fit.copies = 1", "+ fit.threads = 4"]),
        (DOTTED, module("other", threads="4"),
         ['- other = {function = "c:d", after = ["fit"]}',
          '+ other = {function = "c:d", after = ["fit"], threads = 4}']),
        (DOTTED, module("third", arguments="{y = 2}"),
         ["- [[modules.third.arguments.list]]", "- x = 1", "+ arguments = {y = 2}"]),
        ("", module("first", function="a:b"), ["+ [modules.first]", '+ function = "a:b"']),
        ("[modules.a]\ncommand = ['x']", module("a", copies="2"), ["+ copies = 2"]),
    ],
)  # fmt: skip
def test_only_the_lines_of_what_changes_change(text, wish, lines):
    found = changed(text, wish)
    assert sorted(found) == sorted(lines)
    parse(change(text, PATH, wish), PATH)


def test_a_removed_module_takes_its_lines_and_no_others():
    new = change(STUDY, PATH, {"table": ["modules", "data"], "remove": True})
    left = STUDY[: STUDY.index("# Points")] + STUDY[STUDY.index("# One fit") :]
    left = left.replace('after = [\n    "data",  # which puts the points\n]\n', "")
    assert new == left.replace('["fit", "data"]', '["fit"]')


REFUSED = [
    (module("data", after=["choose"]), "after: a cycle, "),
    (module("data", after=["data"]), "after: a cycle, data -> data"),
    (module("fit", after=["absent"]), "after names 'absent', which is no module"),
    (module("data", copies="3x"), "copies = '3x'\n  expected: a whole number"),
    (module("data", copies="true"), "copies = True\n  expected: a whole number"),
    (module("data", copies="0"), "copies = 0\n  expected: a whole number"),
    (module("data", function=""), "neither function nor command"),
    (module("data", command='["x"]'), "both function and command"),
    (module("data", command="python x.py"), "command = 'python x.py'\n"),
    (module("new one", function="a:b"), "a name of letters, digits, _ and -"),
    (module("new"), "neither function nor command"),
    (module("data", speed="3"), "has the unknown key 'speed'"),
    ({"table": ["modules", "data"], "rename": "fit"}, "[modules.fit] is there already"),
    ({"table": ["workflow"], "set": {"grace": "-1"}}, "grace = -1\n  expected: seconds"),
]


@pytest.mark.parametrize(("wish", "said"), REFUSED)
def test_what_the_loader_refuses_is_refused_with_its_text(wish, said):
    with pytest.raises(ConfigError) as raised:
        change(STUDY, PATH, wish)
    assert said in str(raised.value)
    assert "study.toml" in str(raised.value)


def test_a_text_that_is_no_toml_has_to_be_corrected_first():
    with pytest.raises(ConfigError, match=r"study.toml is no TOML: .*at line 25"):
        change(STUDY + "[", PATH, module("fit", copies="2"))


def test_values_that_are_nested_too_deeply_are_refused():
    deep = "[" * 200 + "]" * 200
    with pytest.raises(ConfigError, match=r"study.toml is no TOML: .*deep|nested"):
        change(STUDY, PATH, module("data", arguments=f"{{x = {deep}}}"))
    with pytest.raises(ConfigError, match=r"study.toml is no TOML: .*deep|nested"):
        change(STUDY + f"[modules.late.arguments]\nx = {deep}\n", PATH, module("fit", copies="2"))


def test_a_text_that_would_not_say_what_was_asked_for_is_refused(monkeypatch):
    monkeypatch.setattr("magmagraph.workflow.edit._insert", lambda *_: None)
    with pytest.raises(ConfigError, match="this cannot be changed where it is written"):
        change(STUDY, PATH, module("new", function="c:d"))
    with pytest.raises(ConfigError, match="this cannot be changed where it is written"):
        change(STUDY, PATH, module("fit", threads="2"))


def test_a_table_that_is_none_is_named():
    with pytest.raises(ConfigError, match=r"\[modules.fit\] = 3"):
        change("[modules]\nfit = 3\n", PATH, module("fit", copies="2"))


def random_value(rng: random.Random, depth: int = 0) -> Any:
    text = "x = #'\"\\\n\t\x7fé"
    kinds = [rng.randrange(-9, 9), rng.random(), rng.random() < 0.5, text, float("inf")]
    if depth < 2:
        kinds.append([random_value(rng, depth + 1) for _ in range(rng.randrange(3))])
        kinds.append({f"k {i}"[rng.randrange(2) :]: random_value(rng, depth + 1) for i in range(2)})
    return rng.choice(kinds)


def test_values_are_written_as_they_are_read(seed):
    rng = random.Random(seed)
    for _ in range(300):
        value = random_value(rng)
        assert toml(tomllib.loads(f"x = {toml(value)}")["x"]) == toml(value)
    text = "x = [1979-05-27T07:32:00Z, 1979-05-27, 07:32:00, nan, -inf, 1e400]"
    assert toml(tomllib.loads(text)["x"]).startswith("[1979-05-27T07:32:00+00:00, 1979-05-27, ")


def test_random_changes_leave_comments_and_other_values(seed):
    """Each change says what was asked for, and keeps what it does not touch."""
    rng = random.Random(seed)
    for _ in range(60):
        text, expected = STUDY, tomllib.loads(STUDY)["modules"]
        for _ in range(4):
            name = rng.choice(list(expected))
            value = {"k": random_value(rng)}
            key = "arguments" if "function" in expected[name] else "threads"
            text = change(text, PATH, module(name, **{key: toml(value)}))
            expected[name][key] = tomllib.loads(f"x = {toml(value)}")["x"]
        assert toml(tomllib.loads(text)["modules"], sorted) == toml(expected, sorted)
        for comment in ("# A study.", "# for people", "# which puts the points", "# two rates"):
            assert comment in text
