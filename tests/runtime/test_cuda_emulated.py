"""Whole functions on a GPU that is emulated: feeds and results where the caller has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cuda_emulator import available

HELPERS = Path(__file__).parent.parent / "helpers"
pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")


@pytest.mark.parametrize("part", ["few", pytest.param("all", marks=pytest.mark.slow)])
def test_scans_with_the_regions_around_them(part: str) -> None:
    command = [sys.executable, str(HELPERS / "emulated_scans.py"), part]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith("all right"), done.stdout


def test_functions_on_an_emulated_device() -> None:
    command = [sys.executable, str(HELPERS / "emulated_program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith("all right"), done.stdout
