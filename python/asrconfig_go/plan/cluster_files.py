"""Jobs for clusters: Slurm, Ray, SkyPilot, Kubernetes."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from typing import Any

from .._core import native
from ..errors import InvalidArgumentError
from .plan_record import PlanRecord

NAME = "asrconfig"


@dataclass(frozen=True)
class ClusterJob:
    """``machines`` that run ``folder/torchrun.sh``, and the folder ``output`` of the script's checkpoints."""

    config: PlanRecord
    folder: Path
    machines: int
    max_restarts: int
    command: tuple[str, ...]
    """The script and its arguments."""
    environment: Mapping[str, str]
    output: str

    @property
    def processes(self) -> int:
        """On each machine, one for each GPU."""
        return self.config.device_count // self.machines

    @property
    def gpus(self) -> int:
        """On each machine."""
        return self.processes if self.config.gpu_name else 0

    @property
    def cores(self) -> int:
        """On each machine: the loaders' workers, and the processes that train."""
        return self.processes * (self.config.dataloader_num_workers + 1)

    def relative(self) -> str:
        """The folder below the working folder, which another machine has under another name."""
        name = os.path.relpath(self.folder)
        if name.startswith(os.pardir):
            raise InvalidArgumentError(
                f"the folder {self.folder} is not below the working folder {Path.cwd()}, which the job takes along",
                "write to a folder below it, such as launch",
            )
        return name


def as_json(content: Mapping[str, Any]) -> str:
    """Indented, with a line end."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_yaml(content: Mapping[str, Any], indent: str = "") -> str:
    """Tables, lists of tables and scripts; all other values are JSON's, whose quotes keep NO a text."""
    text = ""
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            text += f"{indent}{name}:\n{as_yaml(value, indent + '  ')}"
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            items = (as_yaml(item, indent + "    ") for item in value)
            text += f"{indent}{name}:\n" + "".join(f"{indent}  - {item.lstrip()}" for item in items)
        elif isinstance(value, str) and "\n" in value:
            text += f"{indent}{name}: |\n" + "".join(f"{indent}  {line}\n" for line in value.splitlines())
        else:
            text += f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}\n"
    return text


_WORK = "/workspace"


def pytorch_job(job: ClusterJob, image: str, claim: str) -> str:
    """For ``kubectl apply``: a pod for each machine; the volume of ``claim`` holds what the working folder does.

    The operator starts a lost pod again, and torchrun the processes of the others.
    """
    replicas: dict[str, Any] = {"Master": _replica(job, image, claim, 1)}
    if job.machines > 1:
        replicas["Worker"] = _replica(job, image, claim, job.machines - 1)
    return as_yaml(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": NAME},
            "spec": {"runPolicy": {"backoffLimit": job.max_restarts}, "pytorchReplicaSpecs": replicas},
        }
    )


def _replica(job: ClusterJob, image: str, claim: str, count: int) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "pytorch",  # the operator looks for this name
        "image": image,
        "workingDir": _WORK,
        "command": ["sh", "-c", 'FIRST_MACHINE="$MASTER_ADDR" exec sh "$0"', f"{job.relative()}/torchrun.sh"],
        "resources": {"requests": {"cpu": str(job.cores)}},
        "volumeMounts": [{"name": "work", "mountPath": _WORK}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    if job.gpus:
        container["resources"]["limits"] = {"nvidia.com/gpu": str(job.gpus)}
    volumes = [
        {"name": "work", "persistentVolumeClaim": {"claimName": claim}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},  # loaders' workers hand batches over in it
    ]
    pod = {"containers": [container], "volumes": volumes}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}


_TEXT = '''"""The plan by Ray Train: python {file} [arguments of the script]. Written by asrconfig launch.

All nodes see the folders below. When a worker or a node is lost, all workers start again, and the script resumes.
"""

import os
import runpy
import sys

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

FOLDER = {folder!r}
COMMAND = {command}
STORAGE = {storage!r}
ENVIRONMENT = {environment}


def train(config):
    """What each worker runs, in the process group that Ray has made."""
    os.chdir(FOLDER)
    sys.argv = COMMAND + config["arguments"]
    sys.path.insert(0, os.path.dirname(os.path.abspath(COMMAND[0])))
    runpy.run_path(COMMAND[0], run_name="__main__")


if __name__ == "__main__":
    ray.init(runtime_env={{"env_vars": ENVIRONMENT}})
    TorchTrainer(
        train,
        train_loop_config={{"arguments": sys.argv[1:]}},
        scaling_config=ScalingConfig(num_workers={workers}, use_gpu={gpu}, resources_per_worker={resources}),
        run_config=RunConfig(
            name={name!r}, storage_path=STORAGE, failure_config=FailureConfig(max_failures={max_restarts})
        ),
    ).fit()
'''


def ray_script(job: ClusterJob) -> str:
    """For ``python`` on a node of a Ray cluster, or ``ray job submit``; a worker is a process with a GPU."""
    resources = {"CPU": job.config.dataloader_num_workers + 1} | ({"GPU": 1} if job.gpus else {})
    return _TEXT.format(
        file=job.folder / "ray_train.py",
        folder=str(Path.cwd()),
        command=pformat(list(job.command)),
        storage=str(Path(job.output).absolute() / "ray"),
        environment=pformat(dict(job.environment)),
        workers=job.config.device_count,
        gpu=bool(job.gpus),
        resources=resources,
        name=NAME,
        max_restarts=job.max_restarts,
    )


# Names of the catalogue's cards in SkyPilot's own catalogue.
_SKY_NAMES = {
    "T4": "T4", "V100-16": "V100", "V100-32": "V100-32GB", "A10G": "A10G", "L4": "L4", "L40S": "L40S",
    "A100-40GB SXM": "A100", "A100-80GB SXM": "A100-80GB", "H100-80GB SXM": "H100", "H200": "H200", "B200": "B200",
}  # fmt: skip
_LOWEST_CAPABILITY = {True: 8.0, False: 7.5}  # compute capability for bf16, and of current PyTorch


def skypilot_task(job: ClusterJob, bucket: str) -> str:
    """For ``sky jobs launch``: the working folder goes along, ``output`` is in the bucket, lost machines are replaced.

    SkyPilot takes the cheapest of the cards that hold the plan.
    """
    resources: dict[str, Any] = {"use_spot": True, "cpus": f"{job.cores}+"}
    if job.gpus:
        resources["accelerators"] = dict.fromkeys(cards(job), job.gpus)
    resources["job_recovery"] = {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": job.max_restarts}
    place = job.output if job.output.startswith(("/", "~")) else f"~/sky_workdir/{job.output}"
    store = {"source" if "://" in bucket else "name": bucket, "mode": "MOUNT"}
    content: dict[str, Any] = {"name": NAME, "workdir": ".", "num_nodes": job.machines, "resources": resources}
    content["file_mounts"] = {place: store}
    content["setup"] = "test ! -f requirements.txt || pip install -r requirements.txt\n"
    content["run"] = (
        'export FIRST_MACHINE=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)\n'
        f"sh {shlex.quote(job.relative() + '/torchrun.sh')}\n"
    )
    return as_yaml(content)


def cards(job: ClusterJob) -> list[str]:
    """SkyPilot's names of the cards that hold the plan, the cheapest by our prices first, those without one last."""
    prices = {price["gpu"]: price["usd_per_hour"] for price in native.call("timing.prices")}
    fitting = [card for card in native.call("hardware.catalogue") if card["key"] in _SKY_NAMES and _fits(card, job)]
    fitting.sort(key=lambda card: prices.get(card["key"], float("inf")))
    return [_SKY_NAMES[card["key"]] for card in fitting] or [job.config.gpu_name]


def _fits(card: dict[str, Any], job: ClusterJob) -> bool:
    config = job.config
    if config.gpu_name in (card["key"], *card["aliases"], *card["driver_names"]):
        return True
    if config.gpu_memory_bytes is None or float(card["compute_capability"]) < _LOWEST_CAPABILITY[config.bf16]:
        return False
    needed = config.predicted_high_bytes or config.predicted_bytes
    unused = max(0, config.budget_bytes - needed) if config.budget_bytes and needed else 0
    return bool(card["memory_total_bytes"] >= config.gpu_memory_bytes - unused)


_NOTICE_S = 120  # before the time limit; Slurm may send the signal up to a minute earlier


def slurm_script(job: ClusterJob) -> str:
    """A script for ``sbatch``: torchrun on each node, requeued when it is preempted or its time is over.

    Partition, account and time limit are options of sbatch, not known here.
    """
    options = [f"--job-name={NAME}", f"--nodes={job.machines}", "--ntasks-per-node=1", f"--cpus-per-task={job.cores}"]
    options += [f"--gpus-per-node={job.gpus}"] if job.gpus else []
    options += ["--requeue", "--open-mode=append", f"--signal=B:USR1@{_NOTICE_S}"]
    return f"""#!/bin/bash
{chr(10).join(f"#SBATCH {option}" for option in options)}
# sbatch --partition=NAME --time=04:00:00 {shlex.quote(str(job.folder / "slurm.sbatch"))}
# When the time is nearly over, the job goes back to the queue, as Slurm does with preempted jobs; the script resumes.
trap 'scontrol requeue "$SLURM_JOB_ID"; wait' USR1
FIRST_MACHINE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export FIRST_MACHINE
srun --cpus-per-task={job.cores} --kill-on-bad-exit=1 sh {shlex.quote(str(job.folder / "torchrun.sh"))} "$@" &
wait "$!"
"""
