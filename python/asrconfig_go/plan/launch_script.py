"""Writes the files with which a plan is launched on one or several machines, and says which commands use them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from .._core.declared import Strategy
from .._core.files import user_path, write_whole
from .._core.settings import MAX_RETRIES
from ..errors import InvalidArgumentError, NotFoundError
from .cluster_files import ClusterJob, as_json, as_yaml, pytorch_job, ray_script, skypilot_task, slurm_script
from .launch_arguments import SHARDED, accelerate_config, deepspeed_config, for_strategy, fsdp_units
from .plan_record import PlanRecord

if TYPE_CHECKING:
    import torch

PORT = 29500  # of the first machine, where all processes meet; torch's own default

# Environment variables without which a script for several machines stops, and what they mean.
PLACEHOLDERS = {
    "FIRST_MACHINE": "name or address of the machine that all others reach, the same everywhere",
    "MACHINE_RANK": "number of this machine, 0 on the first one",
}


def launch_environment(config: PlanRecord) -> dict[str, str]:
    """Variables of the launcher's environment.

    The first is for restarts: without it torchrun (seen with PyTorch 2.15) keeps one store for all attempts, with the
    addresses of processes that it has ended (docs/training.md). The allocator's settings are given under both names
    that versions of PyTorch read.
    """
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    if config.alloc_conf:
        variables |= dict.fromkeys(("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), config.alloc_conf)
    return variables


def torchrun_command(config: PlanRecord, machines: int, restarts: int, script: Sequence[str]) -> str:
    """The command for ``machines``, the same on each."""
    words = ["torchrun", "--standalone"]
    if machines > 1:
        words = ["torchrun", "--nnodes", str(machines), "--rdzv-id", "asrconfig", "--rdzv-backend", "c10d"]
    words += ["--nproc-per-node", str(config.device_count // machines), "--max-restarts", str(restarts)]
    # Appended after quoting: the shell is to replace the variable.
    endpoint = f'--rdzv-endpoint "$FIRST_MACHINE:{PORT}" ' if machines > 1 else ""
    return f"{shlex.join(words)} {endpoint}{shlex.join(script)}"


def accelerate_command(config: PlanRecord, machines: int, restarts: int, file: str, script: Sequence[str]) -> str:
    """The command for ``machines``, the same on each; ``$MACHINE_RANK`` says which one it is."""
    words = ["accelerate", "launch", "--config_file", file]
    if config.device_count > 1:
        words += ["--rdzv_backend", "c10d", "--max_restarts", str(restarts)]
    addresses = ""
    if machines > 1:
        addresses = f'--machine_rank "$MACHINE_RANK" --main_process_ip "$FIRST_MACHINE" --main_process_port {PORT} '
    return f"{shlex.join(words)} {addresses}{shlex.join(script)}"


def shell_script(command: str, variables: Mapping[str, str], about: Sequence[str]) -> str:
    """A shell script that sets the environment, asks for placeholders, and runs ``command`` with further arguments."""
    lines = ["#!/bin/sh", *(f"# {line}" for line in about)]
    lines += [f': "${{{name}:?set it: {meaning}}}"' for name, meaning in PLACEHOLDERS.items() if f"${name}" in command]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, f'exec {command} "$@"', ""])


@dataclass(frozen=True, repr=False)
class LaunchFiles:
    """The files that ``launch_files`` wrote, and how to use them.

    Attributes:
        folder: The folder that they are in.
        strategy: How the GPUs share the model, one of ``STRATEGIES``.
    """

    folder: Path
    strategy: Strategy
    files: tuple[Path, ...]
    """``plan.json``, ``accelerate.yaml``, ``torchrun.sh``, ``accelerate.sh``, ``slurm.sbatch``, ``ray_train.py``,
    and, where asked for, ``deepspeed.json`` (by a strategy of ZeRO), ``skypilot.yaml`` and ``pytorchjob.yaml``."""
    torchrun: str
    """The command that ``torchrun.sh`` runs."""
    accelerate: str
    """The command that ``accelerate.sh`` runs."""
    environment: Mapping[str, str]
    """Variables that both commands need; the scripts set them."""
    notes: tuple[str, ...]
    """What to know before starting."""

    def __repr__(self) -> str:
        variables = " ".join(f"{name}={value}" for name, value in self.environment.items())
        lines = [f"{self.strategy}: {len(self.files)} files in {self.folder}", *(f"  {f.name}" for f in self.files)]
        lines += [f"environment:  {variables}", f"either  {self.torchrun}", f"or      {self.accelerate}"]
        return "\n".join([*lines, *(f"! {note}" for note in self.notes)])


class LaunchSettings(TypedDict, total=False):
    """What ``launch_files`` takes by keyword."""

    script: str
    arguments: Sequence[str]
    strategy: Strategy | None
    machines: int
    max_restarts: int
    model: torch.nn.Module | None
    layers: Sequence[str]
    output: str
    bucket: str
    image: str
    claim: str


def launch_files(
    config: PlanRecord,
    folder: str | os.PathLike[str],
    *,
    script: str = "train.py",
    arguments: Sequence[str] = (),
    strategy: Strategy | None = None,
    machines: int = 1,
    max_restarts: int = MAX_RETRIES,
    model: torch.nn.Module | None = None,
    layers: Sequence[str] = (),
    output: str = "out",
    bucket: str = "",
    image: str = "",
    claim: str = "",
) -> LaunchFiles:
    """Write the plan for torchrun, accelerate, DeepSpeed and clusters, each file completely or not at all.

    Neither torch nor any of these engines is needed for it.

    Args:
        config: The plan. Its ``device_count`` GPUs are those of all machines together.
        folder: The folder to write to; it is made where it does not exist.
        script: The Python file that each process runs. It passes ``trainer_arguments`` of the same strategy to its
            ``TrainingArguments``.
        arguments: The arguments of the script.
        strategy: One of ``STRATEGIES``; None for the plan's own.
        machines: The number of machines, 1 to 1024. All have equally many GPUs.
        max_restarts: How often all processes are started again after one has ended with an error, 0 to 1000.
        model: The live module, in which FSDP's layers are found.
        layers: The class names of the layers that FSDP shards by, instead of those of ``model``.
        output: The folder to which the script writes checkpoints and from which it resumes.
        bucket: Where SkyPilot keeps ``output``: a name or a URL such as ``"s3://name"``; ``""`` for no task of
            SkyPilot.
        image: The container image of a PyTorchJob for Kubernetes, which requires ``claim``; ``""`` for no such job.
        claim: The name of the persistent volume claim whose volume holds the working folder of that job.

    Returns:
        The files, and the commands that start them.

    Raises:
        InvalidArgumentError: The engines cannot do what is asked.
        NotFoundError: The files cannot be written.

    Example:
        >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="2xT4", trace=False, verbose=False)
        >>> [file.name for file in launch_files(config, "launch").files]
        ['plan.json', 'accelerate.yaml', 'torchrun.sh', 'accelerate.sh', 'slurm.sbatch', 'ray_train.py']
    """
    _check(config, script, machines, max_restarts)
    settled = for_strategy(config, strategy)
    units = fsdp_units(layers, model) if settled.distributed == "fsdp" else None
    target = user_path(folder, "output folder").absolute()
    command = [script, *arguments]
    variables = launch_environment(settled)
    torchrun = torchrun_command(settled, machines, max_restarts, command)
    accelerate = accelerate_command(settled, machines, max_restarts, str(target / "accelerate.yaml"), command)
    notes = _notes(config, settled, machines)
    texts = {"plan.json": as_json(settled.to_dict())}
    if settled.distributed.startswith("zero"):
        texts["deepspeed.json"] = as_json(deepspeed_config(int(settled.distributed[-1])))
    texts["accelerate.yaml"] = as_yaml(accelerate_config(settled, machines, units, str(target / "deepspeed.json")))
    about = [f"{settled.distributed}, {settled.device_count} processes, {machines} machine(s)", *notes]
    texts["torchrun.sh"] = shell_script(torchrun, variables, about)
    texts["accelerate.sh"] = shell_script(accelerate, variables, about)
    job = ClusterJob(settled, target, machines, max_restarts, (script, *arguments), variables, output)
    texts |= _for_clusters(job, bucket, image, claim)
    files = _write(target, texts)
    return LaunchFiles(target, settled.distributed, files, torchrun, accelerate, variables, notes)


def _for_clusters(job: ClusterJob, bucket: str, image: str, claim: str) -> dict[str, str]:
    if bool(image) != bool(claim):
        raise InvalidArgumentError(
            f"image = {image!r} with claim = {claim!r}",
            "Kubernetes needs both: an image, and a claim of a shared volume",
        )
    texts = {"slurm.sbatch": slurm_script(job), "ray_train.py": ray_script(job)}
    if bucket:
        texts["skypilot.yaml"] = skypilot_task(job, bucket)
    if image:
        texts["pytorchjob.yaml"] = pytorch_job(job, image, claim)
    return texts


def _check(config: PlanRecord, script: str, machines: int, restarts: int) -> None:
    if not isinstance(script, str) or not script.strip():
        raise InvalidArgumentError(f"script = {script!r}", "name the Python file that trains")
    for name, value, lowest, highest in (("machines", machines, 1, 1024), ("max_restarts", restarts, 0, 1000)):
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise InvalidArgumentError(f"{name} = {value!r}", f"pass a whole number from {lowest} to {highest}")
    if config.device_count % machines:
        raise InvalidArgumentError(
            f"{config.device_count} GPUs cannot be shared equally by {machines} machines",
            "plan with device_count= the GPUs of all machines together",
        )


def _notes(planned: PlanRecord, settled: PlanRecord, machines: int) -> tuple[str, ...]:
    notes = []
    if machines > 1:
        notes.append("Run the script on every machine, with the same files at the same place.")
        notes += [f"{name}: {meaning}." for name, meaning in PLACEHOLDERS.items()]
    before = (planned.per_device_train_batch_size, planned.gradient_accumulation_steps)
    after = (settled.per_device_train_batch_size, settled.gradient_accumulation_steps)
    if before != after:
        batches = f"{before[0]} × {before[1]} became {after[0]} × {after[1]}"
        notes.append(f"{batches}: sharded processes make equal steps; the effective batch is the same.")
    factor = settled.gradient_accumulation_steps * settled.device_count
    if factor > 1:
        notes.append(
            "In the script call manager.train(trainer), not trainer.train(): the Trainer alone makes gradients of a "
            f"mean loss (Whisper, CTC with ctc_loss_reduction='mean') up to {factor} times too large."
        )
    sizes = {device.micro_batch_size for device in settled.devices}
    if len(sizes) > 1 and settled.distributed not in SHARDED:
        notes.append("GPUs differ: manager.attach gives each process the limits of its own (docs/distributed.md).")
    return tuple(notes)


def _write(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text.encode(errors="surrogateescape"))  # names of files need not be UTF-8
    except OSError as error:
        raise NotFoundError(f"cannot write to {folder}: {error}", "choose a folder that can be written") from error
    return tuple(folder / name for name in texts)
