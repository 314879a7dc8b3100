"""A task for SkyPilot on spot machines."""

from __future__ import annotations

import shlex
from typing import Any

from .._base import native
from .cluster_job import NAME, ClusterJob
from .yaml_text import as_yaml

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
