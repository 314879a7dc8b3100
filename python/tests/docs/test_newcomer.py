"""What a newcomer copies from the pages runs, and the committed transcript is of the same steps, all done."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from locations import REPOSITORY

SCRIPT = REPOSITORY / "benchmarks" / "newcomer.py"


def steps(transcript: str) -> dict[str, str]:
    """How each step ended, without its seconds."""
    return dict(re.findall(r"(?m)^## (.+)\n\n(.+) in \d+ s$", transcript))


@pytest.mark.slow
def test_the_first_cells_run_as_they_stand() -> None:
    run = subprocess.run([sys.executable, SCRIPT, "--here"], capture_output=True, text=True, timeout=1200)
    assert run.returncode == 0, run.stdout + run.stderr
    committed = steps((SCRIPT.parent / "newcomer.md").read_text("utf-8"))
    assert {"Install": "done", **steps(run.stdout)} == committed
    assert set(committed.values()) == {"done"} and len(committed) == 6
