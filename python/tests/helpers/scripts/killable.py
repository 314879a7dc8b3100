"""Small trainings in processes of their own that are killed by SIGKILL where they are asked to be.

``python killable.py RUNS``, a JSON list of ``output``, ``grouped``, ``workers``, ``resume``, ``cuda`` and ``kill``,
``[place, time]``: in the ``time``-th ``forward``, ``begin`` of an epoch or ``save`` of a file. Each appends the samples
of every optimizer step to ``OUTPUT/steps.jsonl`` and writes the last weights to ``OUTPUT/weights.pt``. Prints exit
statuses.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.trainer_callback import TrainerCallback

from asrconfig_go import ASRConfigManager
from tiny_training import Grouped, Regression, tiny_trainer


class Killer:
    """Ends this process without a word when a place is passed for the ``time``-th time."""

    def __init__(self, place: str, time: int) -> None:
        self.place, self.left = place, time

    def pass_by(self, place: str) -> None:
        if place == self.place:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Steps(TrainerCallback):  # type: ignore[misc]
    """Writes down the samples of every optimizer step."""

    def __init__(self, file: Path, killer: Killer) -> None:
        self.file, self.killer = file, killer

    def on_epoch_begin(self, *_: Any, **kwargs: Any) -> None:
        self.killer.pass_by("begin")

    def on_step_begin(self, *_: Any, model: Any = None, **kwargs: Any) -> None:
        model.seen.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        with self.file.open("a") as file:
            print(json.dumps([state.global_step, [i for batch in model.seen for i in batch]]), file=file)


def killing_saves(killer: Killer) -> None:
    """Let half of a file be written before the process is killed."""
    real = torch.save

    def save(state: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        real(state, path, *args, **kwargs)
        if "checkpoint-" in str(path):
            whole = Path(path).read_bytes()
            Path(path).write_bytes(whole[: len(whole) // 2])
            killer.pass_by("save")
            Path(path).write_bytes(whole)

    torch.save = save


def train(told: dict[str, Any]) -> None:
    output = Path(told["output"])
    output.mkdir(exist_ok=True)
    killer = Killer(*(told.get("kill") or ("", 0)))
    killing_saves(killer)
    torch.manual_seed(0)
    model = Regression()
    model.fail = lambda *_: killer.pass_by("forward")
    trainer = tiny_trainer(
        output,
        model=model,
        samples=64,
        use_cpu=not told.get("cuda"),
        trainer_class=Grouped if told["grouped"] else Trainer,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        save_strategy="steps",
        save_steps=3,
        dataloader_num_workers=told["workers"],
        dataloader_persistent_workers=told["workers"] > 0,
        callbacks=[Steps(output / "steps.jsonl", killer)],
    )
    ASRConfigManager().train(trainer, resume=told.get("resume", True))
    torch.save(torch.cat([p.detach().flatten() for p in model.parameters()]), output / "weights.pt")


def in_a_process(told: dict[str, Any]) -> int:
    """Train in a child, forked where nothing has run yet: importing everything again takes longer than a training."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            train(told)
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    gc.freeze()  # collections then pass over what is imported
    print(*[in_a_process(told) for told in json.loads(sys.argv[1])])
