"""Workflows of the tests: what writes and runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import magmagraph as mg

LONGEST = 20.0  # seconds of a job


def runner(tmp_path: Path) -> Callable[..., Any]:
    """Return what writes a workflow and runs it on some ranks; what rank 0 gets is returned."""

    def start(text: str, ranks: int = 1) -> Any:
        path = tmp_path / "flow.toml"
        path.write_text(text)
        if ranks == 1:
            return mg.workflow.run(path)
        results = mg.distributed.threads(ranks, lambda: mg.workflow.run(path), timeout=LONGEST)
        assert {tuple(result.runs) for result in results} == {tuple(results[0].runs)}
        return results[0]

    return start


def table(name: str, function: str, **keys: Any) -> str:
    """Return the table of a module."""
    lines = [f"[modules.{name}]", f'function = "flows:{function}"']
    arguments = keys.pop("arguments", None)
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    if arguments:
        given = ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in arguments.items())
        lines.append(f"arguments = {{{given}}}")
    return "\n".join(lines) + "\n"


def program(name: str, *words: str, **keys: Any) -> str:
    """Return the table of a program."""
    lines = [f"[modules.{name}]", f"command = {json.dumps(['{python}', '-c', *words])}"]
    return (
        "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]) + "\n"
    )


def statuses(result: Any) -> dict[str, str]:
    return {run.module: run.status for run in result.runs}
