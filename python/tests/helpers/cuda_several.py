"""Trainings on several devices, and one that is killed, on the stand-in CUDA runtime (cuda_forked.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_standin
import torch
from cuda_standin.values import Values

from asrconfig_go.benchmark import benchmark_training
from asrconfig_go.errors import AsrConfigError
from asrconfig_go.guard import attach
from asrconfig_go.memory import MemoryModel, calibrate
from asrconfig_go.monitor import AdaptiveMemoryCallback
from cuda_tools import MEMORY, Clips, trainer_in
from killable import train


def rank(folder: str, batch: int, steps: int) -> dict[str, Any]:
    """One of the processes of a DDP training with the guard; the card's memory decides how it computes its batches."""
    with Values():
        watching = AdaptiveMemoryCallback(panel=False, run_file=False, progress=False)
        settings = {"ddp_backend": "gloo", "ddp_find_unused_parameters": False, "max_steps": steps}
        trainer = trainer_in(folder, batch=batch, **settings)
        guard = attach(trainer, rule="mean")
        sizes: list[int] = []
        trainer.model.register_forward_pre_hook(
            lambda model, args, kwargs: sizes.append(len(kwargs["labels"])), with_kwargs=True
        )
        trainer.add_callback(watching)
        trainer.train()
        torch.distributed.barrier()
    device = trainer.args.device
    return {
        "device": str(device),
        "wrapped": type(trainer.model_wrapped).__name__,
        "steps": trainer.state.global_step,
        "sizes": sizes,
        "events": [[e.place, e.micro_batch_before, e.micro_batch_after] for e in guard.events],
        "ooms": torch.cuda.memory_stats(device)["num_ooms"],
        "elsewhere": torch.cuda.memory_allocated(1 - device.index),
        "ranks": [str(peaks) for peaks in watching.summary().ranks],
        "unsupported": cuda_standin.unsupported(),
    }


def one_process(folder: str) -> dict[str, Any]:
    """What the Trainer's DataParallel lets do: training, what the guard says, and what is refused."""
    with Values():
        trainer = trainer_in(folder)
        guard = attach(trainer, rule="mean")
        trainer.train()
        found = {
            "devices": trainer.args.n_gpu,
            "wrapped": type(trainer.model_wrapped).__name__,
            "peaks": [torch.cuda.max_memory_allocated(i) for i in range(2)],
            "notes": list(guard.notes),
            "steps": trainer.state.global_step,
        }
        guard.detach()
        with MemoryModel.trace(trainer.model, **MEMORY, progress=False) as memory:
            tries = {
                "calibration": lambda: calibrate(trainer, memory, batch=2, seconds=5.0),
                "benchmark": lambda: benchmark_training(
                    trainer.model, Clips(), target_batch_size=2, loader=False, sweep="none", progress=False
                ),
            }
            return found | {name: _refused(function) for name, function in tries.items()}


def _refused(function: Callable[[], Any]) -> str:
    try:
        function()
    except AsrConfigError as error:
        return f"{type(error).__name__}: {error.message}"
    return ""


def killable(told: dict[str, Any]) -> list[Any]:
    """A training of killable.py on cuda:0; the samples of each step that was made."""
    with Values():
        train({**told, "cuda": True, "workers": 0, "grouped": True})
    return [json.loads(line) for line in (Path(told["output"]) / "steps.jsonl").read_text().splitlines()]
