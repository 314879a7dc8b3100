"""The callback with two processes: one of them samples, both tell their peaks, and a failed one hangs nobody."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from asrconfig_go.watch.telemetry import RunLog
from locations import HELPERS

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without processes")

LIMIT_S = 240  # a hang, even on a slow machine


def launched(output: Path, fails: bool) -> tuple[int, str]:
    """Exit status and output of a launcher, which is ended with all its processes when it takes too long."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            *(str(HELPERS / "scripts" / "watched_ranks.py"), str(output), str(int(fails))),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text = process.communicate(timeout=LIMIT_S)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, text


@pytest.mark.slow
def test_all_processes_tell_their_peaks_and_one_samples(tmp_path: Path) -> None:
    (tmp_path / ".asrconfig").mkdir()
    stale = tmp_path / ".asrconfig" / "memory-rank1.json"
    stale.write_text(json.dumps({"rank": 1, "device": "", "allocated": None, "reserved": None, "rss": 7}))
    status, text = launched(tmp_path, fails=False)
    assert status == 0, text
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["sampled"] and not second["sampled"]
    assert [peaks["rank"] for peaks in first["ranks"]] == [0, 1] and second["ranks"] == []
    assert all(peaks["rss"] > 1 << 20 for peaks in first["ranks"]), "what an earlier run left is not taken for it"
    assert "rank 1" in first["summary"]
    run_log = RunLog.load(tmp_path / "asrconfig_monitor.json")
    assert [text for text in event_texts(run_log) if text.startswith("rank ")], "the run log has them, too"
    assert run_log.steps.number[-1] == 4


def event_texts(run_log: Any) -> list[str]:
    return [event.text for event in run_log.events]


@pytest.mark.slow
def test_a_process_that_fails_leaves_nobody_waiting(tmp_path: Path) -> None:
    status, text = launched(tmp_path, fails=True)
    assert status != 0
    assert "ValueError: on purpose" in text
    assert not (tmp_path / "rank1.json").exists()
