"""A Trainer of transformers with an evaluation for CTC. Imports transformers; see ``trainers``."""

from __future__ import annotations

from typing import Any

from transformers import Trainer

from .transcription import best_tokens


class CTCTrainer(Trainer):  # type: ignore[misc]
    """A ``Trainer`` whose predictions are token ids of frames, not logits."""

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Any, Any, Any]:
        """Loss, token ids (clips, frames) with -100 where a clip has ended, labels."""
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        if logits is None:
            return loss, logits, labels
        logits = logits[0] if isinstance(logits, tuple) else logits
        return loss, best_tokens(self.accelerator.unwrap_model(model), self._prepare_inputs(inputs), logits), labels
