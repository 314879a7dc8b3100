"""A training in two processes by ``manager.train(resume=True)`` that a launcher restarts.

``launched_training.py OUTPUT HOW``: with ``HOW`` ``fails`` a callback of the second process runs out of memory before
step 4, once: nothing that a guard could compute again. With ``late`` the second process alone finds behind step 3 that
a checkpoint would come too late for its deadline. Each process appends the clips of its optimizer steps to
``OUTPUT/rank<n>.jsonl``; the first writes the weights.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager
from asrconfig_go.train.train_options import DeadlineCallback
from tiny_training import OUT_OF_MEMORY, Regression, leave, tiny_trainer


class Steps(TrainerCallback):  # type: ignore[misc]
    """Writes down the clips of every optimizer step, and fails once where it is asked to."""

    def __init__(self, output: Path, rank: str, fails: bool) -> None:
        self.file, self.flag, self.fails = output / f"rank{rank}.jsonl", output / "failed", fails and rank == "1"

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        getattr(model, "module", model).seen.clear()
        if self.fails and state.global_step == 3 and not self.flag.exists():
            self.flag.touch()
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        seen = getattr(model, "module", model).seen
        with self.file.open("a") as file:
            print(json.dumps([state.global_step, [i for batch in seen for i in batch]]), file=file)


def main() -> None:
    output, rank = Path(sys.argv[1]), os.environ["RANK"]
    torch.manual_seed(0)
    model = Regression()
    trainer = tiny_trainer(
        output,
        model=model,
        samples=32,
        callbacks=[Steps(output, rank, sys.argv[2] == "fails")],
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        save_strategy="steps",
        save_steps=2,
        ddp_backend="gloo",
    )
    late = sys.argv[2] == "late"
    if late:
        setattr(DeadlineCallback, "_late", lambda _, __, state, ___: rank == "1" and state.global_step >= 3)  # noqa: B010
    ASRConfigManager().train(trainer, resume=True, save_by="1h" if late else None)
    if rank == "0":
        torch.save(torch.cat([p.detach().flatten() for p in model.parameters()]), output / "weights.pt")
    torch.distributed.barrier()
    leave()


if __name__ == "__main__":
    main()
