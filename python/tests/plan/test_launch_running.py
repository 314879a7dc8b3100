"""The commands that ``launch_files`` writes really train: two processes on the CPU, by torchrun and accelerate."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from locations import HELPERS
from training_fixtures import make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

SCRIPT = HELPERS / "scripts" / "planned_training.py"
LIMIT_S = 240  # a machine that others use, too
PLAN = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 2.0}


def start(command: Path, output: Path, log: Path, by: str = "sh", **variables: str) -> subprocess.Popen[bytes]:
    """One launcher, as a person would start it, in a group of its own."""
    here = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([here, os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    with log.open("w") as file:
        return subprocess.Popen(
            [by, str(command), str(command.parent / "plan.json"), str(output)],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finish(launchers: list[tuple[subprocess.Popen[bytes], Path]]) -> None:
    """Wait for all; end what is left of them, and fail with their output, if they do not succeed in time."""
    end = time.monotonic() + LIMIT_S
    codes = []
    try:
        for process, _ in launchers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                codes.append(process.wait(max(1, end - time.monotonic())))
    finally:
        for process, _ in launchers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert codes == [0] * len(launchers), "\n".join(log.read_text()[-3000:] for _, log in launchers)


def results(output: Path) -> list[dict[str, Any]]:
    return [torch.load(output / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def trained(output: Path, launcher: str, fail: str | None = None) -> list[dict[str, Any]]:
    """Two processes by one launcher, of which one may ``fail`` (see planned_training.py)."""
    plan = make_plan(device_count=2, **PLAN)
    plan.alloc_conf = "expandable_segments:True"
    written = plan.launch_files(output / "launch", script=str(SCRIPT))
    if fail is not None:
        (output / "fail").write_text(fail)
    log = output / "log"
    finish([(start(written.folder / f"{launcher}.sh", output, log), log)])
    return results(output)


def check(processes: list[dict[str, Any]], batches: int) -> None:
    """Both have made all steps of the plan, with the same weights."""
    for rank, result in enumerate(processes):
        assert (result["rank"], result["world"], result["steps"]) == (rank, 2, 4)
        assert result["batches"] == [2] * batches
        assert result["distributed"] == "DistributedType.MULTI_CPU"
        assert result["environment"]["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert torch.equal(processes[0]["weights"], processes[1]["weights"])


@pytest.mark.slow
def test_torchrun_and_accelerate_train_the_plan(tmp_path: Path) -> None:
    """By accelerate a process ends in between, and all continue from the checkpoint of step 2."""
    weights = []
    for launcher, fail, batches in (("torchrun", None, 8), ("accelerate", "", 4)):
        (tmp_path / launcher).mkdir()
        processes = trained(tmp_path / launcher, launcher, fail)
        check(processes, batches)  # of the last attempt; 16 clips, 2 epochs, 2 processes, 2 clips at once
        assert processes[0]["environment"]["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
        assert not (tmp_path / launcher / "fail").exists()
        weights.append(processes[0]["weights"])
    assert torch.equal(*weights)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (asrconfig-go[ray])")
def test_ray_trains_the_plan_and_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two workers is killed before the third step; all start again, with the weights of an undisturbed run."""
    monkeypatch.chdir(tmp_path)
    plan = make_plan(device_count=2, **PLAN)
    weights = []
    for name, kill, batches in (("whole", "", 8), ("killed", str(int(signal.SIGKILL)), 4)):
        output = tmp_path / name
        written = plan.launch_files(output / "launch", script=str(SCRIPT), output=str(output))
        if kill:
            (output / "fail").write_text(kill)
        log = output / "log"
        driver = start(written.folder / "ray_train.py", output, log, by=sys.executable, RAY_ADDRESS="local")
        finish([(driver, log)])
        check(results(output), batches)
        assert not (output / "fail").exists()
        weights.append(results(output)[0]["weights"])
    assert torch.equal(*weights)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_two_machines(tmp_path: Path, launcher: str) -> None:
    """Two launchers that meet at one address stand for two machines."""
    plan = make_plan(device_count=2, **PLAN)
    written = plan.launch_files(tmp_path / "launch", script=str(SCRIPT), machines=2)
    port = free_port()
    command = written.folder / f"{launcher}.sh"
    command.write_text(command.read_text().replace("29500", str(port)))
    launchers = []
    for rank in range(2):
        log = tmp_path / f"log{rank}"
        process = start(command, tmp_path, log, FIRST_MACHINE="127.0.0.1", MACHINE_RANK=str(rank))
        launchers.append((process, log))
        if rank == 0 and launcher == "accelerate":  # the first one insists on a port that nobody has
            wait_for(port, process)
    finish(launchers)
    check(results(tmp_path), 8)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
