"""A driver for Ray Train."""

from __future__ import annotations

from pathlib import Path
from pprint import pformat

from .cluster_job import NAME, ClusterJob

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
