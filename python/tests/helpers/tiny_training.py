"""A training small enough for tests: a regression on fixed points that notes what it saw and fails when asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB"
_left: list[int] = []

# Seconds that a loader waits for each worker when an error has ended its epoch. PyTorch's 5 are mostly waited out.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.2


def running_short(times: int, most: int, after: int = 0, error: Exception | None = None) -> Any:
    """A ``fail`` of ``Regression``: memory runs out ``times`` times for more than ``most`` samples.

    ``after`` batches pass first. What is left is counted in a variable of this module, as the guard puts back what a
    failed attempt changes in objects.
    """
    number = len(_left)
    _left.append(times)

    def fail(model: Any, size: int) -> None:
        if _left[number] and size > most and len(model.seen) > after:
            _left[number] -= 1
            raise error or torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    return fail


def flat(model: Any) -> Any:
    """A copy of all weights."""
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def apart(got: Any, wanted: Any) -> float:
    """How far the weights of two trainers are from each other, of the way that those of ``wanted`` went from start."""
    end = flat(wanted.model)
    return float((flat(got.model) - end).norm() / (end - wanted.start).norm())


def notes_of(error: BaseException, log: str) -> str:
    """What was added to an error; Python 3.10 has no notes, so it is logged."""
    return "\n".join([*getattr(error, "__notes__", ()), log])


class Points(torch.utils.data.Dataset):  # type: ignore[misc]
    """``size`` fixed points with their index."""

    def __init__(self, size: int) -> None:
        source = torch.Generator().manual_seed(3)
        self.x = torch.randn(size, 6, generator=source)
        self.y = torch.randn(size, 1, generator=source)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": self.x[i], "labels": self.y[i], "index": i}


class Streamed(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """The same without a length, in another order each epoch, divided by the loader's workers."""

    def __init__(self, size: int) -> None:
        self.size, self.epoch = size, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        worker, points = torch.utils.data.get_worker_info(), Points(self.size)
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        return (points[i] for i in (order if worker is None else order[worker.id :: worker.num_workers]))


class Regression(torch.nn.Module):  # type: ignore[misc]
    """Two layers, a buffer and a mean squared error; ``dropout`` draws from the global generator.

    ``seen`` holds the indices of every training batch. ``fail`` is asked before each training batch with the model
    and the batch's size, and may raise.
    """

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(8, 1)
        self.dropout = torch.nn.Dropout(dropout)
        self.register_buffer("batches", torch.zeros(()))
        self.seen: list[list[int]] = []
        self.fail: Any = None

    def forward(self, x: Any, labels: Any = None, index: Any = None) -> dict[str, Any]:
        """Loss and predictions."""
        if self.training and torch.is_grad_enabled():
            self.seen.append(index.tolist())
            if self.fail:
                self.fail(self, len(x))
        if self.training:
            self.batches += 1
        logits = self.last(self.dropout(torch.tanh(self.first(x))))
        return {"loss": torch.nn.functional.mse_loss(logits, labels), "logits": logits}


def tiny_trainer(output: Path, *, samples: int = 16, trainer_class: Any = Trainer, **settings: Any) -> Any:
    """A ``Trainer`` on the CPU, 4 steps an epoch by default.

    ``model``, ``callbacks``, ``optimizers``, ``model_init`` and ``compute_metrics`` go to the Trainer, the rest to its
    arguments.
    """
    names = ("model", "callbacks", "optimizers", "model_init", "compute_metrics")
    own = {name: settings.pop(name) for name in names if name in settings}
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "learning_rate": 0.05,
        **settings,
    }
    if "model" not in own and "model_init" not in own:
        torch.manual_seed(0)
        own["model"] = Regression()
    data = Points(samples)
    return trainer_class(args=TrainingArguments(str(output), **arguments), train_dataset=data, eval_dataset=data, **own)


def leave() -> NoReturn:
    """Destroy the process group and end the process with status 0, without Python's finalization.

    Gloo's threads release the tensors of their last operation some time after it: while Python finalizes, the wait for
    the GIL ends such a thread, and C++ aborts the process (about one run in five with torch 2.15).
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class Grouped(Trainer):  # type: ignore[misc]
    """By invented lengths, which need no column."""

    def _get_train_sampler(self, *_: Any) -> Any:
        lengths = [1 + i % 7 for i in range(len(self.train_dataset))]
        size = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGroupedSampler(size, lengths=lengths)
