"""Small stand-ins for what pages call yours: a dataset, a model, a collator, a trainer, a folder of clips."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from asrconfig_go.audio import load_audio
from asrconfig_go.data.source import CLIPS
from asrconfig_go.data.splits import demo_rows, load_split
from speech_models import wav2vec2

SECONDS = 0.5
CLIPS_USED = 16


def model() -> Any:
    """A wav2vec2 with a thousandth of the usual size."""
    torch.manual_seed(0)
    return wav2vec2("mean")


def clips(count: int = CLIPS_USED) -> Any:
    """Spoken digits as a ``datasets.Dataset`` with the columns audio, text and length."""
    return load_split("train").select(range(count))


def prepared(count: int = CLIPS_USED) -> Any:
    """The same as a prepared ``datasets.Dataset``: input_values, a little shortened, and labels."""
    import datasets

    rows = [row for row in demo_rows() if row["split"] == "train"][:count]
    values = [load_audio(row["audio_filepath"])[: int(SECONDS * 16_000)].tolist() for row in rows]
    labels = [[3 + k % 5 for k in range(4)] for _ in rows]
    return datasets.Dataset.from_dict({"input_values": values, "labels": labels})


def collator(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows of ``prepared`` as a padded batch."""
    pad = torch.nn.utils.rnn.pad_sequence
    values = [torch.tensor(row["input_values"]) for row in rows]
    labels = [torch.tensor(row["labels"]) for row in rows]
    return {
        "input_values": pad(values, batch_first=True),
        "attention_mask": pad([torch.ones(len(v), dtype=torch.long) for v in values], batch_first=True),
        "labels": pad(labels, batch_first=True, padding_value=-100),
    }


def arguments(output: str = "out", **settings: Any) -> TrainingArguments:
    """Settings of a training of one step that says nothing."""
    quiet = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "max_steps": 1}
    return TrainingArguments(output, **{**quiet, "per_device_train_batch_size": 4, **settings})


def trainer(**settings: Any) -> Trainer:
    """A trainer on all of these."""
    return Trainer(model(), arguments(**settings), train_dataset=prepared(), data_collator=collator)


def folder(name: str = "clips", count: int = CLIPS_USED) -> Path:
    """A folder of clips, here."""
    made = Path(name)
    made.mkdir(parents=True, exist_ok=True)
    for row in demo_rows()[:count]:
        shutil.copy(row["audio_filepath"], made)
    return made


def manifest(name: str = "train.jsonl", count: int = 4) -> Path:
    """A manifest of clips with their texts, here."""
    rows = [json.dumps(row) for row in demo_rows()[:count]]
    Path(name).write_text("\n".join(rows), "utf-8")
    return Path(name)
