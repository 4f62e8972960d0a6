"""Certificates: what they hold, what their check finds, and that it trusts nobody."""

from __future__ import annotations

import ast
import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_arrays  # noqa: F401  # adds domains
import random_domains
import random_networks  # noqa: F401  # adds domains

import magmagraph as mg
from magmagraph import cli
from magmagraph.certificate import read, verify
from magmagraph.certificate.extents import holds
from magmagraph.certificate.plans import _written_last
from magmagraph.certificate.verifying import seal, sealed, verify_data
from magmagraph.errors import DataError, PlanError

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "replay"))
import replay_programs  # noqa: E402

CHECKERS = ("verifying", "proof", "arithmetic", "plans", "extents")


def small() -> tuple[Any, list[np.ndarray]]:
    x = mg.var("x", shape=("n", 4))
    W = mg.var("W", init=np.linspace(-1, 1, 12).reshape(4, 3).astype("f4"))
    y = mg.log(1 + mg.exp(x @ W))
    f = mg.function([x], [y, mg.sum(y, axis=0)], {W: W * 0.5})
    return f, [np.linspace(-2, 2, 20).reshape(5, 4).astype("f4")]


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    f, feeds = small()
    made: dict[str, Any] = json.loads(f.certify(*feeds).to_json())
    return made


def failed(verdict: Any) -> list[Any]:
    return [row for row in verdict.rows if row.state == "fails"]


def test_a_certificate_holds_what_was_done_and_is_the_same_each_time(data):
    f, feeds = small()
    assert json.loads(f.certify(*feeds).to_json()) == data
    (rule,) = [r for r in data["rewrites"] if r["rule"] == "softplus"]
    assert rule["defined"].startswith("magmagraph/passes/simplify/stable.py:")
    assert "test_certificates.py" in rule["line"]
    verdict = verify(data)
    assert verdict.ok and not [r for r in verdict.rows if r.state == "open"]
    assert "simplify: softplus" in str(verdict) and str(verdict).endswith("ok")
    assert data["measured"]["same_bits"] and data["hashes"]["sources"]
    assert data["about"]["variables"] == [{"name": "W", "dtype": "float32", "shape": [4, 3]}]


@pytest.mark.parametrize("name", ["step_with_adam", "step_in_half_precision", "recurrent_network"])
def test_training_steps_are_proved(name):
    function, feeds = replay_programs.PROGRAMS[name]({})
    verdict = function.certify(*feeds).verdict
    assert not failed(verdict), str(verdict)
    passes = {r.item: r.state for r in verdict.rows if r.part == "pass"}
    assert passes.keys() >= {"simplify", "contract", "fuse", "schedule", "memory"}
    assert set(passes.values()) <= {"holds", "rounds"}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "made up"])
@pytest.mark.parametrize("name", list(replay_programs.PROGRAMS))
def test_nothing_fails_of_a_right_compile(name, device):
    options = {} if device == "cpu" else {"target": mg.Target.made_up("h200")}
    function, feeds = replay_programs.PROGRAMS[name](options)
    if options:
        function.specialize(*[np.shape(x) for x in feeds])
        feeds = []
    verdict = function.certify(*feeds).verdict
    assert verdict.ok, str(verdict)


def test_plans_of_absent_devices_are_checked_without_feeds():
    function, feeds = replay_programs.PROGRAMS["step_of_one_layer"](
        {"target": mg.Target.made_up("h200")}
    )
    certificate = function.specialize(*[np.shape(x) for x in feeds]).certify()
    assert certificate.verdict.ok and certificate.data["measured"] == {}
    steps = certificate.data["plan"]["steps"]
    waiting = next(step for step in steps if step["waits"])
    waiting["waits"] = []
    rows = failed(verify_data(certificate.data))
    assert [row.item for row in rows] == ["streams"] * len(rows) and rows


def test_what_cannot_be_certified_says_why():
    x = mg.var("x", shape=("n",))
    f = mg.function([x], mg.exp(x), target=mg.Target.made_up("h200"))
    with pytest.raises(PlanError, match="not known"):
        f.certify()
    assert f.certify(np.ones(4, "f4")).data["plan"]["sizes"] == {"n": 4}
    f = mg.function([x], mg.log(x), nan="raise")
    rows = f.certify(np.zeros(4, "f4")).verdict.rows
    assert [r.state for r in rows if r.text.startswith("refused")] == ["open"]


def test_the_verifier_imports_nothing_of_the_compiler():
    allowed = {"errors", "ir.tables", *(f"certificate.{name}" for name in CHECKERS)}
    for name in CHECKERS:
        path = ROOT / "magmagraph" / "certificate" / f"{name}.py"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = node.module or ""
                at = f"certificate.{base}" if node.level == 1 else base
                names = [at] if base else [f"certificate.{a.name}" for a in node.names]
                assert set(names) <= allowed, f"{name} imports {names}"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaves(v, (*path, k))]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in leaves(v, (*path, i))]
    return [path]


def changed(data: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """Return a certificate with one value changed, and a digest and verdict that fit."""
    made = copy.deepcopy(data)
    owner: Any = made
    for key in path[:-1]:
        owner = owner[key]
    value = owner[path[-1]]
    owner[path[-1]] = (
        not value if isinstance(value, bool) else value + 1 if isinstance(value, (int, float))
        else "int8" if value in ("float32", "bool") else f"{value}x"
        if isinstance(value, str) else 0
    )  # fmt: skip
    return made


def test_a_changed_file_is_found_by_its_digest(data):
    paths = leaves({k: v for k, v in data.items() if k not in ("schema", "version")})
    for path in paths:
        if path != ("digest",):
            assert sealed(changed(data, path)) != data["digest"], path
    verdict = verify(changed(data, ("about", "versions", "numpy")))
    assert [row.item for row in failed(verdict)] == ["digest"]


# What may be forged, with a new digest: names; limits that stay true; equal nodes. A changed node
# may be another program, of which all is as true; only the program can tell.
FORGED = {
    "graphs": {"pass", "outputs", "updates"},
    "rewrites": {"rule", "line", "defined"},
    "plan": {
        "symbolic", "arena", "guard", "offset", "first", "last", "of", "kernel", "role", "can_fail",
        "stream", "commit", "place",
    },
}  # fmt: skip


@pytest.mark.slow
def test_what_a_new_digest_hides_does_no_harm(data):
    missed = []
    for path in leaves({k: data[k] for k in FORGED}):
        made = changed(data, path)
        try:
            made["verdict"] = verify_data(made).as_dict()
        except DataError:
            continue
        seal(made)
        name = [key for key in path if isinstance(key, str)][-1]
        if verify(made).ok and name not in FORGED[path[0]]:
            missed.append(path)
    assert not missed


def test_a_false_rewrite_and_a_change_without_one_are_found(data):
    made = copy.deepcopy(data)
    rewrite = next(r for r in made["rewrites"] if r["rule"] == "softplus")
    node = made["nodes"][rewrite["after"]]
    node[0] = "exp"
    parts = {(row.part, row.state) for row in verify_data(made).rows}
    assert ("rewrite", "fails") in parts and ("pass", "fails") in parts
    made = copy.deepcopy(data)
    made["rewrites"] = []
    after = next(g for g in made["graphs"] if g["pass"] == "simplify")
    assert verify_data(made).ok  # the pass is evaluated as a whole then
    after["outputs"] = [after["outputs"][0], after["outputs"][0]]
    assert any(row.item == "simplify" for row in failed(verify_data(made)))


def test_files_that_are_no_certificates_are_refused(tmp_path, data, capsys):
    path = tmp_path / "c.json"
    for text, said in (
        ("{", "is not JSON"),
        ("{}", "is not a certificate"),
        (json.dumps({**data, "version": 2}), "of version 2"),
        (json.dumps({k: v for k, v in data.items() if k != "plan"}), "has no plan"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=said):
            read(path)
        assert cli.main(["verify", str(path)]) == 1
        assert said in capsys.readouterr().err
    broken = {**data, "nodes": data["nodes"][:10]}
    with pytest.raises(DataError, match="damaged"):
        verify(broken)


def test_the_command_checks_a_file_and_compares_it_with_the_program(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nimport magmagraph as mg\nx = mg.var('x', shape=('n',))\n"
        "f = mg.function([x], mg.log(1 + mg.exp(x)))\ng = mg.function([x], mg.exp(x))\n"
        "feeds = [np.ones(3, 'f4')]\n"
    )
    space: dict[str, Any] = {}
    exec(program.read_text(), space)
    path = tmp_path / "c.json"
    space["f"].certify(*space["feeds"], path=path)
    assert cli.main(["verify", str(path)]) == 0
    said = capsys.readouterr().out
    assert "softplus" in said and "give the program" in said and said.strip().endswith("ok")
    assert cli.main(["verify", str(path), "--program", f"{program}:g"]) == 1
    assert "not what the program gives" in capsys.readouterr().out


def test_extents_are_decided_for_all_sizes():
    assert holds("4*n*m", "<=", "4*n*m + 12*n") == (True, "polynomials")
    assert holds("n//2 + n//2", "<=", "n")[0]
    assert not holds("2*((n + 1)//2)", "<=", "n")[0]
    assert holds("4*m", "<=", "4*n", given=[("m", "==", "n")])[0]
    with pytest.raises(DataError, match="is not an extent"):
        holds("__import__('os')", "<=", "n")


def test_bodies_of_loops_are_compiles_of_their_own():
    function, feeds = replay_programs.PROGRAMS["branches"]({})
    certificate = function.certify(*feeds)
    assert certificate.verdict.ok and len(certificate.data["bodies"]) == 4
    inner = certificate.data["bodies"][1]["plan"]
    inner["fetches"] = [[0, *value[1:]] for value in inner["fetches"]]
    assert all("body 1" in row.item for row in failed(verify_data(certificate.data)))
    assert not verify_data(certificate.data).ok


def test_what_is_written_over_is_read_at_its_own_positions():
    square: list[Any] = ["float32", [3, 3]]
    leaf: list[Any] = ["parameter", {"index": 0}, [], square]
    turned: list[Any] = ["transpose", {"axes": [1, 0]}, [0], square]

    def why(*nodes: Any) -> str:
        body = {"nodes": [leaf, *nodes], "inputs": [0], "outputs": [len(nodes)]}
        return _written_last(body, 0, 0)

    assert why(["exp", {}, [0], square]) and why(turned, ["transpose", turned[1], [1], square])
    assert not why(turned) and not why(turned, ["add", {}, [0, 1], square])
    total: list[Any] = ["sum", {"axes": [0]}, [1], ["float32", [3]]]
    assert why(turned, total, ["multiply", {}, [0, 2], square])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("domain", ["mixed", "network", "linalg", "complex"])
def test_nothing_fails_of_random_programs(domain, seed):
    case = random_domains.case(domain, seed, "float32" if seed % 2 else "float64", 7)
    function = mg.function(list(case.inputs), case.outputs, case.updates)
    verdict = function.certify(*case.feeds).verdict
    assert verdict.ok, f"case({domain!r}, {seed}): {verdict}"
