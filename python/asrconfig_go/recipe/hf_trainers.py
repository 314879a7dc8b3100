"""Trainers of transformers with evaluations for CTC, and for prompts and transducers. Imports transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import Seq2SeqTrainer, Trainer

from .._core.modules import bare, ends_with_frames
from ..audio.processor_batches import without_transcripts
from .transcription import best_tokens, generated

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


class CTCTrainer(Trainer):  # type: ignore[misc]
    """A ``Trainer`` whose predictions are token ids of frames, not logits."""

    def prediction_step(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Tensor],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """Loss, token ids (clips, frames) with -100 where a clip has ended, labels."""
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        if logits is None:
            return loss, logits, labels
        logits = logits[0] if isinstance(logits, tuple) else logits
        return loss, best_tokens(self.accelerator.unwrap_model(model), self._prepare_inputs(inputs), logits), labels


class PromptTrainer(Seq2SeqTrainer):  # type: ignore[misc]
    """A ``Seq2SeqTrainer`` that generates behind the prompt of each row, without the transcript that follows it."""

    def prediction_step(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Tensor],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **_: object,
    ) -> tuple[Any, Any, Any]:
        """Loss, token ids behind the prompts, labels."""
        loss, _logits, _labels = Trainer.prediction_step(self, model, inputs, True, ignore_keys)
        if prediction_loss_only or not self.args.predict_with_generate:
            return loss, None, None
        inputs = self._prepare_inputs(inputs)
        unwrapped = self.accelerator.unwrap_model(model)
        if ends_with_frames(bare(unwrapped).config):
            prompts = {name: value for name, value in inputs.items() if name not in ("labels", "decoder_input_ids")}
        else:
            prompts = without_transcripts(inputs, self.processing_class.tokenizer.pad_token_id)
        return loss, generated(unwrapped, prompts, self.args.generation_max_length), inputs["labels"]
