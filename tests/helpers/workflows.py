"""Workflows of the tests: what writes and runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import magmagraph as mg


def runner(tmp_path: Path) -> Callable[..., Any]:
    """Return what writes a workflow and runs it on some workers, which are threads."""

    def start(text: str, workers: int = 1) -> Any:
        path = tmp_path / "flow.toml"
        path.write_text(text)
        if workers == 1:
            return mg.workflow.run(path)
        with ThreadPoolExecutor(workers) as pool:
            return mg.workflow.run(path, executor=pool)

    return start


def table(name: str, function: str, **keys: Any) -> str:
    """Return the table of a module."""
    lines = [f"[modules.{name}]", f'function = "flows:{function}"']
    arguments = keys.pop("arguments", None)
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    if arguments:
        arguments_text = ", ".join(
            f"{json.dumps(k)} = {json.dumps(v)}" for k, v in arguments.items()
        )
        lines.append(f"arguments = {{{arguments_text}}}")
    return "\n".join(lines) + "\n"


def program(name: str, *words: str, **keys: Any) -> str:
    """Return the table of a program."""
    lines = [f"[modules.{name}]", f"command = {json.dumps(['{python}', '-c', *words])}"]
    return (
        "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]) + "\n"
    )


def statuses(result: Any) -> dict[str, str]:
    return {run.module: run.status for run in result.runs}
