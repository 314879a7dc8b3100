"""A Trainer with length-grouped batches: its orders are drawn from the global generator, epoch by epoch."""

from __future__ import annotations

from typing import Any

from transformers import Trainer
from transformers.trainer_pt_utils import LengthGroupedSampler


class Grouped(Trainer):  # type: ignore[misc]
    """By invented lengths, which need no column."""

    def _get_train_sampler(self, *_: Any) -> Any:
        lengths = [1 + i % 7 for i in range(len(self.train_dataset))]
        size = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGroupedSampler(size, lengths=lengths)
