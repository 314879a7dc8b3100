"""What waits for a GPU in benchmarks/gpu, on the stand-in runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_tests.process import REPOSITORY, stand_in, torch_version  # noqa: F401

GPU_BENCHMARKS = REPOSITORY / "benchmarks" / "gpu"


def run_all(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return on_stand_in("T4", "run_all.py", "--results", str(folder), *more)


def on_stand_in(gpu: str, script: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cuda_standin", "--gpu", gpu, str(GPU_BENCHMARKS / script), *more]
    paths = os.pathsep.join(str(REPOSITORY / name) for name in ("build", "python"))
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": paths})


@pytest.mark.slow
def test_all_pieces_go_on_where_they_stopped(tmp_path: Path) -> None:
    only = ("--only", "allocator: random, usual settings")
    assert run_all(tmp_path, *only, "--minutes", "0.1").returncode == 3, "there is no time for a piece"
    assert not list(tmp_path.iterdir())
    first = run_all(tmp_path, *only)
    assert first.returncode == 0, first.stderr
    found = json.loads((tmp_path / "Tesla-T4.json").read_text())
    assert found["gpu"] == "Tesla T4"
    assert set(found["versions"]) == {"asrconfig-go", "torch", "transformers"}
    (piece,) = found["pieces"].values()
    assert piece["events"] > 10_000
    if torch_version() >= (2, 13):  # before, it depends on the driver's addresses: docs/memory-model.md
        assert piece["first_difference"] is None
    again = run_all(tmp_path, *only)
    assert (again.returncode, again.stdout.count("\n")) == (0, 1), "nothing is run twice"


@pytest.mark.slow
def test_a_plan_is_trained_and_timed() -> None:
    done = on_stand_in("H100", "throughput.py", "--one", "the plan", "--model", "openai/whisper-tiny")
    assert done.returncode == 0, done.stderr
    speed, peak_gib, micro_batches, padding, steps, errors = json.loads(done.stdout.splitlines()[-1])
    assert speed > 0 and steps > 0 and peak_gib > 1
    assert (micro_batches, padding, errors) == (1, 0, 0), "all clips of Whisper have one length"


def test_the_page_of_results_is_what_was_measured() -> None:
    done = subprocess.run([sys.executable, str(REPOSITORY / "benchmarks" / "gpu_results.py"), "--check"], timeout=60)
    assert done.returncode == 0, "run benchmarks/gpu_results.py"


def test_without_a_gpu(tmp_path: Path) -> None:
    script = GPU_BENCHMARKS / "run_all.py"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no CUDA GPU was found: run this on a machine with one\n"
