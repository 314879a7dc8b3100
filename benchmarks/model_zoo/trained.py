"""A short training of a model of the zoo by torch's own CUDA code, and the peaks that its allocator counts."""

from __future__ import annotations

import contextlib
import tempfile
import traceback
from typing import Any

import torch
from material import Row
from planned import ACCUMULATION, BATCH, subject, worst

STEPS = 3


def train(row: Row, settings: dict[str, Any], values: Any) -> dict[str, Any]:
    """Peaks in bytes over three optimizer steps of the largest batch; ``values`` is the stand-in's."""
    from transformers import TrainingArguments

    made = subject(row)
    with values or contextlib.nullcontext(), tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATION, max_steps=STEPS,
            fp16=settings["precision"] == "fp16", bf16=settings["precision"] == "bf16", optim=settings["optimizer"],
            gradient_checkpointing=settings["gradient_checkpointing"], logging_steps=1, save_strategy="no",
            report_to="none", disable_tqdm=True, dataloader_pin_memory=False, remove_unused_columns=False,
        )  # fmt: skip
        clips = worst(row) * (ACCUMULATION * STEPS)
        try:
            _trainer(made.model, arguments, train_dataset=clips, data_collator=made.collate).train()
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename.rsplit('site-packages/')[-1]}:{last.lineno}"
            return {"error": " ".join(f"{type(error).__name__}: {error} ({where})".split())[:300]}
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def _trainer(*inputs: Any, **settings: Any) -> Any:
    """A Trainer that takes the clips in their order."""
    from transformers import Trainer

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    return InOrder(*inputs, **settings)
