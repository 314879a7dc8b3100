"""What W&B and MLflow keep of a training: the memory's figures at the steps that they are of."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from locations import HELPERS

pytest.importorskip("transformers")
pytest.importorskip("torch")

LIMIT_S = 240
SCRIPT = HELPERS / "scripts" / "reported_training.py"


@pytest.mark.parametrize(("reporter", "prefix"), [("wandb", "train/"), ("mlflow", "")])
def test_the_reporter_has_the_scalars_at_their_steps(reporter: str, prefix: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(reporter) is None:
        pytest.skip(f"{reporter} is not installed")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), reporter, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout.splitlines()[-1])
    assert metrics[f"{prefix}asrconfig/gpu0_memory_used_gib"] == [[2, 2.0], [4, 4.0]]
    assert metrics[f"{prefix}asrconfig/gpu0_memory_fraction"] == [[2, 0.2], [4, 0.4]]
    assert [step for step, _ in metrics[f"{prefix}asrconfig/loader_wait_share"]] == [2, 4]
    assert len(metrics[f"{prefix}loss"]) == 2, "beside what is logged anyway"
