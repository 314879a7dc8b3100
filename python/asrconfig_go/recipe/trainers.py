"""The Trainer of a speech model, whose evaluation computes word error rates and keeps no logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._base.wrapped_model import bare
from ..loading.processor_batches import CollatorSettings, ProcessorCollator
from .generation import generates
from .model_collator import make_collator
from .speech_data import SpeechData, column
from .transcription import word_error_rates

if TYPE_CHECKING:
    from typing_extensions import Unpack

_GENERATED = 225  # tokens of a transcript at most, as usual for Whisper's 30 s
_ROOM = 8  # tokens above twice the longest transcript


def arguments_class(model: Any) -> Any:
    """What ``config.to_training_arguments(arguments_class=…)`` is to build for ``make_trainer``."""
    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    return Seq2SeqTrainingArguments if generates(model) else TrainingArguments


def speech_settings(model: Any, data: SpeechData) -> dict[str, Any]:
    """Settings for ``config.to_training_arguments`` that the data and the model need."""
    settings: dict[str, Any] = {"remove_unused_columns": False}  # the collator reads audio, which no model knows
    if generates(model):
        # A model that repeats itself for ever would only take the evaluation's time.
        longest = 2 * max(map(len, column(data.train, "labels"))) + _ROOM
        positions = getattr(bare(model).config, "max_target_positions", None) or _GENERATED
        settings |= {"predict_with_generate": True, "generation_max_length": min(_GENERATED, positions, longest)}
    return settings


def make_trainer(
    model: Any,
    args: Any,
    data: SpeechData,
    processor: Any,
    *,
    callbacks: Sequence[Any] = (),
    **collator_options: Unpack[CollatorSettings],
) -> Any:
    """A ``Trainer`` for CTC, a ``Seq2SeqTrainer`` for all others, of prepared ``data``: it evaluates word error rates.

    Evaluation for CTC keeps the best token of each frame in place of logits, so its memory does not grow with the
    vocabulary. ``args`` need ``remove_unused_columns=False``, and but for CTC ``predict_with_generate=True``: behind
    the prompt, where there is one. ``collator_options`` are those of ``make_collator``. Checkpoints hold the processor,
    too.

    >>> from transformers import TrainingArguments
    >>> data = load_speech("demo", progress=False)
    >>> processor = build_processor(data.train["text"], "tiny-wav2vec2")
    >>> model = load_model("tiny-wav2vec2", processor)
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], remove_unused_columns=False)
    >>> type(make_trainer(model, args, prepare(data, processor), processor).data_collator).__name__
    'CTCCollator'
    """
    from transformers import Seq2SeqTrainer

    from .hf_trainers import CTCTrainer, PromptTrainer

    collator = make_collator(processor, model, **collator_options)
    kind = PromptTrainer if isinstance(collator, ProcessorCollator) else Seq2SeqTrainer
    return (kind if generates(model) else CTCTrainer)(
        model=model, args=args, train_dataset=data.train, eval_dataset=data.evaluation, data_collator=collator,
        compute_metrics=word_error_rates(processor), processing_class=processor, callbacks=list(callbacks),
    )  # fmt: skip
