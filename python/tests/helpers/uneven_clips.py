"""Clips of different lengths with their transcripts, collated with padding and attention masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainingArguments

from asrconfig_go.guard import Guard, attach
from speech_models import MODELS
from tiny_training import OUT_OF_MEMORY


class UnevenClips(torch.utils.data.Dataset):  # type: ignore[misc]
    """``size`` clips of 400 to 1600 samples of audio (w2v-BERT: 20 to 80 frames) and one to four labels."""

    def __init__(self, kind: str, size: int = 24) -> None:
        source = torch.Generator().manual_seed(1)
        self.items = []
        for i in range(size):
            length = int(torch.randint(20, 81, (1,), generator=source))
            shape = (length, 8) if kind == "w2v-bert" else (length * 20,)
            labels = torch.randint(3, 8, (1 + i % 4,), generator=source)
            self.items.append({"audio": torch.randn(*shape, generator=source), "labels": labels, "id": i})

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return dict(self.items[i])


class Collator:
    """Pads as the usual collators do, and notes which clips it was given."""

    def __init__(self) -> None:
        self.order: list[int] = []

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        self.order += [row["id"] for row in rows]
        audio = pad_sequence([row["audio"] for row in rows], batch_first=True)
        lengths = torch.tensor([len(row["audio"]) for row in rows])
        name = "input_features" if audio.dim() == 3 else "input_values"
        mask = (torch.arange(audio.shape[1]) < lengths[:, None]).long()
        labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
        return {name: audio, "attention_mask": mask, "labels": labels}


class Appetite:
    """Notes the shapes (samples, length) that a model is trained on; more than ``limit`` values do not fit."""

    def __init__(self, model: Any, limit: int | None) -> None:
        self.limit = limit
        self.shapes: list[tuple[int, int]] = []
        model.register_forward_pre_hook(self._begin, with_kwargs=True)

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        audio = kwargs["input_values"] if "input_values" in kwargs else kwargs["input_features"]
        if model.training and torch.is_grad_enabled():  # in a step
            self.shapes.append((audio.shape[0], audio.shape[1]))
            if self.limit and audio.shape[0] * audio.shape[1] > self.limit:
                raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)


class Run:
    """A training of uneven clips under a guard: 24 clips in batches of 8, two epochs."""

    def __init__(
        self, output: Path, kind: str = "ctc mean", limit: int | None = None, model: Any = None, **options: Any
    ) -> None:
        torch.manual_seed(0)
        self.model = model or MODELS[kind]()
        self.start = self.weights()
        self.appetite, self.collator = Appetite(self.model, limit), Collator()
        settings = {"optim": "sgd", "learning_rate": 1e-2, "num_train_epochs": 2, **options.pop("settings", {})}
        arguments = TrainingArguments(
            str(output),
            per_device_train_batch_size=8,
            max_grad_norm=0.0,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=1,
            save_strategy="no",
            remove_unused_columns=False,
            **settings,
        )
        self.trainer = Trainer(
            self.model, arguments, train_dataset=UnevenClips(kind), data_collator=self.collator,
            callbacks=options.pop("callbacks", None),
        )  # fmt: skip
        self.guard: Guard = attach(self.trainer, **options)

    def train(self) -> Run:
        self.trainer.train()
        return self

    def weights(self) -> Any:
        return torch.cat([p.detach().flatten().clone() for p in self.model.parameters()])

    def apart(self, other: Run) -> float:
        """How far the weights are from those of ``other``, of the way that these have gone."""
        return float((self.weights() - other.weights()).norm() / (other.weights() - other.start).norm())
