"""The soak of ``benchmarks/monitor_soak.py``, cut down to seconds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from locations import REPOSITORY


@pytest.mark.slow
def test_a_monitor_that_samples_a_hundred_times_a_second() -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("the fake driver needs a C compiler")
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "python"), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "monitor_soak.py"), "--minutes", "0.1", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert len(set(found["goroutines"])) == 1
    assert found["samples"] > found["expected"] / 4  # a busy machine leaves some out
    assert max(found["most_rss_mib"]) - min(found["least_rss_mib"]) < 8
