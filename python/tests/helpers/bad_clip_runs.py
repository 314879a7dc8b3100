"""Trainings in which one clip is bad, of clips that have paths and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainingArguments

from speech_models import MODELS, SHAPES, Clips

BAD = 5
"""The row of the bad clip."""


class NamedClips(Clips):
    """16 clips with path and text, of which row ``bad`` is spoilt by ``kind_of_damage``."""

    def __init__(self, kind: str, damage: str = "nan", bad: int | None = BAD) -> None:
        super().__init__(kind)
        self.input = SHAPES.get(kind, ("input_values", ()))[0]
        for i, item in enumerate(self.items):
            item |= {"path": f"clips/{i}.wav", "text": f"text {i}"}
        if bad is not None:
            self._spoil(self.items[bad], damage)

    def _spoil(self, item: dict[str, Any], damage: str) -> None:
        audio = item[self.input] = item[self.input].clone()
        if damage == "nan":
            audio.view(-1)[7] = float("nan")
        elif damage == "labels":
            item["labels"] = torch.arange(100) % 4 + 3
        elif damage == "loud":
            audio *= 1e4


class CollateNamed:
    """Stacks inputs and pads labels; ``drop`` leaves rows out, as if the dataset did not have them."""

    def __init__(self, name: str, drop: tuple[int, ...] = (), reverse: bool = False) -> None:
        self.name, self.drop, self.reverse = name, {f"clips/{row}.wav" for row in drop}, reverse

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        rows = [row for row in rows if row["path"] not in self.drop]
        rows = rows[::-1] if self.reverse else rows
        labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
        return {self.name: torch.stack([row[self.name] for row in rows]), "labels": labels}


def bad_trainer(output: Path, kind: str = "ctc mean", damage: str = "nan", **settings: Any) -> Any:
    """Batches of 4, accumulated twice; ``drop``, ``bad`` and ``reverse`` are those of the classes above.

    ``evaluation`` is the dataset of evaluations.
    """
    torch.manual_seed(0)
    data = settings.pop("data", None) or NamedClips(kind, damage, settings.pop("bad", BAD))
    evaluation, name = settings.pop("evaluation", None), SHAPES.get(kind, ("input_values", ()))[0]
    collate = CollateNamed(name, settings.pop("drop", ()), settings.pop("reverse", False))
    arguments = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 1,
        "optim": "sgd",  # AdamW hides gradients of the wrong size
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        **settings,
    }
    return Trainer(
        MODELS[kind](),
        TrainingArguments(str(output), **arguments),
        train_dataset=data,
        eval_dataset=evaluation,
        data_collator=collate,
    )
