"""Trainings on several devices, and one that is killed, on the stand-in CUDA runtime (forked.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cuda_standin
import torch
from cuda_standin.values import Values

from asrconfig_go import ASRConfigManager
from asrconfig_go.guard import attach
from asrconfig_go.watch import AdaptiveMemoryCallback
from cuda_tests.tools import trainer_in
from scripts.killable import train
from tiny_training import tiny_trainer


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


class Wide(torch.nn.Module):  # type: ignore[misc]
    """Two layers with 8 MiB of activations a sample; nothing in it depends on a value.

    The values of small tensors are not computed in DataParallel's threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 2**20), torch.nn.Linear(2**20, 1)

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        """Loss and predictions."""
        logits = self.last(torch.tanh(self.first(x)))
        return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}


def one_process(folder: str) -> list[dict[str, Any]]:
    """The Trainer's DataParallel by ``manager.train``: with batches that fit, and with those that do not."""
    return [_parallel(Path(folder) / str(batch), batch) for batch in (4, 64)]


def _parallel(folder: Path, batch: int) -> dict[str, Any]:
    settings = {"use_cpu": False, "per_device_train_batch_size": batch, "max_steps": 2, "optim": "sgd"}
    trainer = tiny_trainer(folder, model=Wide(), samples=256, **settings)
    attach(trainer, rule="mean")
    said = ["", ""]
    try:
        ASRConfigManager().train(trainer, verbose=False)
    except torch.OutOfMemoryError as error:
        said = [str(error), *getattr(error, "__notes__", [""])]  # Python 3.10 has no notes
    return {
        "devices": trainer.args.n_gpu,
        "wrapped": type(trainer.model_wrapped).__name__,
        "steps": trainer.state.global_step,
        "said": said,
        "peaks": [torch.cuda.max_memory_allocated(i) for i in range(2)],
        "ooms": [torch.cuda.memory_stats(i)["num_ooms"] for i in range(2)],
    }


def killable(told: dict[str, Any]) -> list[Any]:
    """A training of killable.py on cuda:0; the samples of each step that was made."""
    with Values():
        train({**told, "cuda": True, "workers": 0, "grouped": True})
    return [json.loads(line) for line in (Path(told["output"]) / "steps.jsonl").read_text().splitlines()]
