"""The Trainer of a speech model, which evaluates CTC, prompted models and transducers. Imports transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

from .._core.modules import bare, ends_with_frames
from ..audio.processor_batches import CollatorSettings, ProcessorCollator, make_collator, without_transcripts
from .speech_data import SpeechData
from .transcription import best_tokens, generated, generates, word_error_rates

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, ProcessorMixin
    from typing_extensions import Unpack


class CTCTrainer(Trainer):  # type: ignore[misc]
    """A ``Trainer`` whose predictions are token ids of frames, not logits."""

    def prediction_step(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Tensor],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """Return the loss, token ids of shape (clips, frames) with -100 behind a clip's end, and the labels."""
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
        """Return the loss, the token ids that were generated behind the prompts, and the labels."""
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


def arguments_class(model: PreTrainedModel) -> Any:
    """The class of arguments that ``make_trainer`` needs, for ``config.to_training_arguments(arguments_class=…)``."""
    return Seq2SeqTrainingArguments if generates(model) else TrainingArguments


def make_trainer(
    model: PreTrainedModel,
    args: TrainingArguments,
    data: SpeechData,
    processor: ProcessorMixin,
    *,
    callbacks: Sequence[Any] = (),
    **collator_options: Unpack[CollatorSettings],
) -> Any:
    """Make the Trainer of prepared speech, which evaluates word and character error rates.

    It is a ``Trainer`` for CTC and a ``Seq2SeqTrainer`` for all other models. Evaluation for CTC keeps the best token
    of each frame in place of logits, so its memory does not grow with the vocabulary. Where batches have a prompt, an
    evaluation generates what follows it. Checkpoints hold the processor, too.

    Args:
        model: The model to train.
        args: The training arguments, with ``remove_unused_columns=False`` and, except for CTC,
            ``predict_with_generate=True``.
        data: The speech that ``prepare`` returned.
        processor: The model's processor.
        callbacks: Callbacks of the Trainer, such as ``manager.callback()``.
        **collator_options: Options of ``make_collator``.

    Returns:
        The Trainer, ready for ``manager.train``.

    Raises:
        InvalidArgumentError: The collator has no such option.
        UnsupportedError: The processor cannot make batches for this model; see ``make_collator``.

    Example:
        >>> from transformers import TrainingArguments
        >>> data = load_speech("demo", progress=False)
        >>> processor = build_processor(data.train["text"], "tiny-wav2vec2")
        >>> model = load_model("tiny-wav2vec2", processor)
        >>> args = TrainingArguments("out", use_cpu=True, report_to=[], remove_unused_columns=False)
        >>> type(make_trainer(model, args, prepare(data, processor), processor).data_collator).__name__
        'CTCCollator'
    """
    collator = make_collator(processor, model, **collator_options)
    generating = PromptTrainer if isinstance(collator, ProcessorCollator) else Seq2SeqTrainer
    trainer_class = generating if generates(model) else CTCTrainer
    return trainer_class(
        model=model, args=args, train_dataset=data.train, eval_dataset=data.evaluation, data_collator=collator,
        compute_metrics=word_error_rates(processor), processing_class=processor, callbacks=list(callbacks),
    )  # fmt: skip
