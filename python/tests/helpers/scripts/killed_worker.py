"""A training whose loader worker is killed by the system: run by a test in a process of its own.

    python killed_worker.py FOLDER 0|1    # lasting workers or not

Prints whether batches and weights are those of a training in which nothing happened, and the guard's events.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from asrconfig_go.guard import attach
from tiny_training import Regression, tiny_trainer


class Deadly(torch.utils.data.Dataset):  # type: ignore[misc]
    """Points; the worker that first loads number ``at`` is killed."""

    def __init__(self, points: Any, flag: Path, at: int) -> None:
        self.points, self.flag, self.at = points, flag, at

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, i: int) -> Any:
        if i == self.at and torch.utils.data.get_worker_info() is not None and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.points[i]


def train(folder: Path, lasting: bool, at: int | None) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = Regression(dropout=0.2)
    trainer = tiny_trainer(
        folder,
        model=model,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        dataloader_num_workers=2,
        dataloader_persistent_workers=lasting,
    )
    if at is not None:
        trainer.train_dataset = Deadly(trainer.train_dataset, folder / "killed", at)
    guard = attach(trainer)
    trainer.train()
    return model.seen, torch.cat([p.detach().flatten() for p in model.parameters()]), guard


def main() -> None:
    folder, lasting = Path(sys.argv[1]), sys.argv[2] == "1"
    calm, weights, _ = train(folder, lasting, None)
    seen, got, guard = train(folder, lasting, calm[2][0])
    events = [[e.place, e.micro_batch_before, e.micro_batch_after] for e in guard.events]
    print(json.dumps({"batches": seen == calm, "weights": torch.equal(got, weights), "events": events}))


if __name__ == "__main__":
    main()
