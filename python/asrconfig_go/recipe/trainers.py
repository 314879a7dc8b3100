"""The Trainer of a speech model: evaluation gives word error rates and keeps no logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .model_building import is_whisper
from .model_collator import CollatorSettings, make_collator
from .speech_data import SpeechData, column
from .transcription import word_error_rates

if TYPE_CHECKING:
    from typing_extensions import Unpack

_GENERATED = 225  # tokens of a transcript at most, as usual for Whisper's 30 s
_ROOM = 8  # tokens above twice the longest transcript


def arguments_class(processor: Any) -> Any:
    """What ``config.to_training_arguments(arguments_class=…)`` is to build for ``make_trainer``."""
    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    return Seq2SeqTrainingArguments if is_whisper(processor) else TrainingArguments


def speech_settings(processor: Any, model: Any, data: SpeechData) -> dict[str, Any]:
    """Settings for ``config.to_training_arguments`` that the data and the model need."""
    settings: dict[str, Any] = {"remove_unused_columns": False}  # the collator reads audio, which no model knows
    if is_whisper(processor):
        # Of a model that repeats itself for ever, more says nothing new and takes the evaluation's time.
        said = 2 * max(map(len, column(data.train, "labels"))) + _ROOM
        longest = min(_GENERATED, model.config.max_target_positions, said)
        settings |= {"predict_with_generate": True, "generation_max_length": longest}
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
    """A ``Trainer`` for CTC, a ``Seq2SeqTrainer`` for Whisper, of prepared ``data``, that evaluates word error rates.

    Evaluation for CTC keeps the best token of each frame in place of logits, so its memory does not grow with the
    vocabulary. ``args`` need ``remove_unused_columns=False``, and for Whisper ``predict_with_generate=True``.
    ``collator_options`` are those of ``make_collator``. Checkpoints hold the processor, too.

    >>> from transformers import TrainingArguments
    >>> data = load_speech("demo", progress=False)
    >>> processor = build_processor(data.train["text"], "tiny-wav2vec2")
    >>> model = load_model("tiny-wav2vec2", processor)
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], remove_unused_columns=False)
    >>> type(make_trainer(model, args, prepare(data, processor), processor).data_collator).__name__
    'CTCCollator'
    """
    from transformers import Seq2SeqTrainer

    from .hf_trainers import CTCTrainer

    kind = Seq2SeqTrainer if is_whisper(processor) else CTCTrainer
    return kind(
        model=model,
        args=args,
        train_dataset=data.train,
        eval_dataset=data.evaluation,
        data_collator=make_collator(processor, model, **collator_options),
        compute_metrics=word_error_rates(processor),
        processing_class=processor,
        callbacks=list(callbacks),
    )
