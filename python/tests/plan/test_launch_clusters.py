"""Plans for Slurm, SkyPilot, Kubernetes and Ray: each file read by its own tool, where that is installed, or run."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import TrainingConfig
from asrconfig_go._core import native
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.plan.cluster_files import as_yaml
from training_fixtures import make_plan

yaml: Any = pytest.importorskip("yaml")
jsonschema: Any = pytest.importorskip("jsonschema")

SCHEMA = Path(__file__).with_name("pytorchjob_schema.json")
GIB = 1 << 30


def plan(gpu: str = "L4", machines: int = 2, **changes: Any) -> TrainingConfig:
    """For four GPUs on each machine."""
    card = next(card for card in native.call("hardware.catalogue") if card["key"] == gpu)
    memory = card["memory_total_bytes"]
    budget = {"gpu_memory_bytes": memory, "budget_bytes": memory - 2 * GIB, "predicted_high_bytes": memory - 3 * GIB}
    settings = {"gpu_name": card["driver_names"][0], "bf16": True, "dataloader_num_workers": 3, **budget, **changes}
    return make_plan(device_count=4 * machines, **settings)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Options of sbatch (slurm.schedmd.com/sbatch.html) that are written.
SBATCH = {"job-name", "nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "requeue", "open-mode", "signal"}


def test_slurm_s_options(place: Path) -> None:
    plan().launch_files("launch", machines=2)
    script = place / "launch" / "slurm.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=10)
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script.read_text(), re.MULTILINE))
    assert set(options) == SBATCH
    assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == ("2", "1", "4")
    assert options["cpus-per-task"] == "16"  # 4 processes, each with 3 workers of the loader
    plan(gpu_name="").launch_files("cpu", machines=2)
    assert "gpus-per-node" not in (place / "cpu" / "slurm.sbatch").read_text()


def test_slurm_s_script_queues_itself_again(place: Path) -> None:
    """Run by bash with stand-ins for Slurm's own commands: on the signal it asks to be queued again."""
    written = plan().launch_files("my launch", machines=2)
    (place / "bin").mkdir()
    stand_ins = {
        "scontrol": 'echo "scontrol $*" >> log\ntest "$1" = show && echo n1 && echo n2\nexit 0',
        "srun": 'echo "srun $* at $FIRST_MACHINE" >> log\nexec sleep 60',
    }
    for name, body in stand_ins.items():
        (place / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (place / "bin" / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    log = place / "log"
    with subprocess.Popen(
        ["bash", str(written.folder / "slurm.sbatch"), "--size", "a b"],
        env={**environment, "SLURM_JOB_NODELIST": "n[1-2]"},
        start_new_session=True,
    ) as job:
        _until(lambda: log.exists() and "srun" in log.read_text())
        job.send_signal(signal.SIGUSR1)
        _until(lambda: "requeue" in log.read_text())
        os.killpg(job.pid, signal.SIGKILL)
    lines = log.read_text().splitlines()
    assert lines[0] == "scontrol show hostnames n[1-2]"
    place_of = written.folder / "torchrun.sh"
    assert lines[1] == f"srun --cpus-per-task=16 --kill-on-bad-exit=1 sh {place_of} --size a b at n1"
    assert lines[2] == "scontrol requeue 7"


def _until(ready: Any) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)


def sky_yaml(place: Path, config: TrainingConfig, **options: Any) -> dict[str, Any]:
    config.launch_files("launch", machines=2, bucket="s3://mine", **options)
    read: dict[str, Any] = yaml.safe_load((place / "launch" / "skypilot.yaml").read_text())
    return read


def test_skypilot_s_task(place: Path) -> None:
    task = sky_yaml(place, plan())
    assert (task["num_nodes"], task["workdir"], task["resources"]["use_spot"]) == (2, ".", True)
    assert task["resources"]["cpus"] == "16+"
    assert task["resources"]["job_recovery"]["max_restarts_on_errors"] == 3
    assert task["file_mounts"] == {"~/sky_workdir/out": {"source": "s3://mine", "mode": "MOUNT"}}
    assert "sh launch/torchrun.sh" in task["run"]
    for script in (task["run"], task["setup"]):
        subprocess.run(["sh", "-n"], input=script, text=True, check=True, timeout=10)
    assert "/data/out" in sky_yaml(place, plan(), output="/data/out")["file_mounts"]
    plan().launch_files("named", machines=2, bucket="mine")
    assert yaml.safe_load((place / "named" / "skypilot.yaml").read_text())["file_mounts"]["~/sky_workdir/out"] == {
        "name": "mine",
        "mode": "MOUNT",
    }


def test_cards_that_hold_the_plan_the_cheapest_first(place: Path) -> None:
    def cards(config: TrainingConfig) -> list[str]:
        accelerators: dict[str, int] = sky_yaml(place, config)["resources"]["accelerators"]
        assert set(accelerators.values()) == {4}
        return list(accelerators)

    prices = {"L4": 0.44, "L40S": 0.79, "A10G": 1.006, "A100": 1.31, "A100-80GB": 1.39, "H100": 2.69}
    assert cards(plan())[: len(prices)] == list(prices)
    assert "T4" not in cards(plan())  # 15 GiB, and no bf16
    small: dict[str, Any] = {"predicted_high_bytes": 4 * GIB}
    assert "T4" not in cards(plan(**small))  # no bf16
    assert cards(plan(**small, bf16=False, fp16=True))[0] == "T4"
    assert cards(plan("H200"))[0] == "H200"
    assert cards(plan(gpu_name="Ours 1", gpu_memory_bytes=None)) == ["Ours 1"]
    no_gpu = sky_yaml(place, plan(gpu_name=""))
    assert "accelerators" not in no_gpu["resources"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sky") is None, reason="SkyPilot is not installed (pip install skypilot)")
def test_skypilot_reads_its_task(place: Path) -> None:
    """SkyPilot pins older versions of what we use, so it has an environment of its own, where this test is run."""
    sky_yaml(place, plan())
    code = (
        "import sky; task = sky.Task.from_yaml('launch/skypilot.yaml'); "
        "print(task.num_nodes, sorted(str(r.accelerators) for r in task.resources),"
        " all(r.use_spot for r in task.resources), list(task.storage_mounts))"
    )
    read = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert read.returncode == 0, read.stderr[-2000:]
    assert read.stdout.startswith("2 [\"{'A100': 4}\"")
    assert "{'L4': 4}" in read.stdout
    assert read.stdout.endswith("True ['~/sky_workdir/out']\n")


def kubernetes_yaml(place: Path, config: TrainingConfig, machines: int = 2) -> dict[str, Any]:
    config.launch_files("my launch", machines=machines, image="registry/asr:1", claim="work")
    read: dict[str, Any] = yaml.safe_load((place / "my launch" / "pytorchjob.yaml").read_text())
    return read


def test_kubernetes_job(place: Path) -> None:
    schema = json.loads(SCHEMA.read_text())
    job = kubernetes_yaml(place, plan())
    jsonschema.validate(job, schema)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {name: replica["replicas"] for name, replica in replicas.items()} == {"Master": 1, "Worker": 1}
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "16"}, "limits": {"nvidia.com/gpu": "4"}}
    single = kubernetes_yaml(place, plan(machines=1, gpu_name=""), machines=1)
    jsonschema.validate(single, schema)
    assert list(single["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    assert (
        "limits"
        not in single["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["resources"]
    )
    (place / "my launch" / "torchrun.sh").write_text('echo "from $FIRST_MACHINE"')
    done = subprocess.run(
        container["command"], env={**os.environ, "MASTER_ADDR": "job-0"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "from job-0\n"


def test_ray_s_script(place: Path) -> None:
    plan(alloc_conf="expandable_segments:True").launch_files(
        "launch", machines=2, script="my train.py", arguments=["--size", "a'b"], max_restarts=5
    )
    tree = ast.parse((place / "launch" / "ray_train.py").read_text())
    values = {ast.unparse(n.targets[0]): ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign)}
    assert values["COMMAND"] == ["my train.py", "--size", "a'b"]
    assert (values["FOLDER"], values["STORAGE"]) == (str(place), str(place / "out" / "ray"))
    assert values["ENVIRONMENT"]["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    settings = {k.arg: ast.unparse(k.value) for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords}
    assert (settings["num_workers"], settings["use_gpu"], settings["max_failures"]) == ("8", "True", "5")
    assert settings["resources_per_worker"] == "{'CPU': 4, 'GPU': 1}"


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("out", {"image": "asr:1"}, "image = 'asr:1' with claim = ''"),
        ("out", {"claim": "work"}, "image = '' with claim = 'work'"),
        ("../out", {"bucket": "mine"}, "is not below the working folder"),
    ],
)
def test_it_refuses(place: Path, folder: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        plan().launch_files(folder, machines=2, **options)
    assert message in caught.value.message
    assert caught.value.hint
    assert list(place.iterdir()) == []
    plan().launch_files("launch", machines=2, bucket="mine", image="asr:1", claim="work")  # as the hints say


def test_yaml_is_what_was_meant() -> None:
    content = {
        "type": "NO",
        "deep": {"list": [{"a": "b: c # d", "e": [1, "x"]}, {"f": {"g": 1.5}}], "empty": [], "none": {}},
        "script": "one\n  two: 'x'\n",
        "enabled": True,
    }
    assert yaml.safe_load(as_yaml(content)) == content
