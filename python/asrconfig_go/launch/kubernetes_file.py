"""A PyTorchJob of Kubeflow's training operator."""

from __future__ import annotations

from typing import Any

from .cluster_job import NAME, ClusterJob
from .yaml_text import as_yaml

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
