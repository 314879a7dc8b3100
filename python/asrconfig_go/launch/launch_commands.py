"""The commands that start a training in several processes, and the environment that they need."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..plan.plan_record import PlanRecord

PORT = 29500

# What the scripts for several machines ask for.
PLACEHOLDERS = {
    "FIRST_MACHINE": "name or address of the machine that all others reach, the same everywhere",
    "MACHINE_RANK": "number of this machine, 0 on the first one",
}


def environment(config: PlanRecord) -> dict[str, str]:
    """Variables of the launcher's environment.

    Restarts: without the first, torchrun (seen with PyTorch 2.15) keeps one store for all attempts, with the addresses
    of processes that it has ended (docs/training.md). The allocator is set under the name of either age of PyTorch.
    """
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    if config.alloc_conf:
        variables |= dict.fromkeys(("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"), config.alloc_conf)
    return variables


def torchrun(config: PlanRecord, machines: int, restarts: int, script: Sequence[str]) -> str:
    """The command for ``machines``, the same on each."""
    words = ["torchrun", "--standalone"]
    if machines > 1:
        words = ["torchrun", "--nnodes", str(machines), "--rdzv-id", "asrconfig", "--rdzv-backend", "c10d"]
    words += ["--nproc-per-node", str(config.device_count // machines), "--max-restarts", str(restarts)]
    place = f'--rdzv-endpoint "$FIRST_MACHINE:{PORT}" ' if machines > 1 else ""
    return f"{shlex.join(words)} {place}{shlex.join(script)}"


def accelerate(config: PlanRecord, machines: int, restarts: int, file: str, script: Sequence[str]) -> str:
    """The command for ``machines``, on each its own rank."""
    words = ["accelerate", "launch", "--config_file", file]
    if config.device_count > 1:
        words += ["--rdzv_backend", "c10d", "--max_restarts", str(restarts)]
    place = ""
    if machines > 1:
        place = f'--machine_rank "$MACHINE_RANK" --main_process_ip "$FIRST_MACHINE" --main_process_port {PORT} '
    return f"{shlex.join(words)} {place}{shlex.join(script)}"


def shell_script(command: str, variables: Mapping[str, str], about: Sequence[str]) -> str:
    """A shell script that sets the environment, asks for placeholders, and runs ``command`` with further arguments."""
    lines = ["#!/bin/sh", *(f"# {line}" for line in about)]
    lines += [f': "${{{name}:?set it: {meaning}}}"' for name, meaning in PLACEHOLDERS.items() if f"${name}" in command]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, f'exec {command} "$@"', ""])
