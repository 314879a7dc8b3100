"""The Trainer of a speech model, and its settings that come from data, model and user."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .._core.modules import bare
from ..audio.processor_batches import CollatorSettings, ProcessorCollator
from ..config import TrainingConfig
from ..errors import InvalidArgumentError, UnsupportedError
from .speech_data import SpeechData, column
from .transcription import generates, make_collator, word_error_rates

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin, TrainingArguments
    from typing_extensions import Unpack


_GENERATED = 225  # tokens of a transcript at most, as usual for Whisper's 30 s
_ROOM = 8  # tokens above twice the longest transcript


def arguments_class(model: PreTrainedModel) -> Any:
    """What ``config.to_training_arguments(arguments_class=…)`` is to build for ``make_trainer``."""
    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    return Seq2SeqTrainingArguments if generates(model) else TrainingArguments


def speech_settings(model: PreTrainedModel, data: SpeechData) -> dict[str, Any]:
    """Settings for ``config.to_training_arguments`` that the data and the model need."""
    settings: dict[str, Any] = {"remove_unused_columns": False}  # the collator reads audio, which no model knows
    if generates(model):
        # A model that repeats itself for ever would only take the evaluation's time.
        longest = 2 * max(map(len, column(data.train, "labels"))) + _ROOM
        positions = getattr(bare(model).config, "max_target_positions", None) or _GENERATED
        settings |= {"predict_with_generate": True, "generation_max_length": min(_GENERATED, positions, longest)}
    return settings


def make_trainer(
    model: PreTrainedModel,
    args: TrainingArguments,
    data: SpeechData,
    processor: ProcessorMixin,
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


_MAX_STEPS = 500  # between two checkpoints
_CHECKPOINTS = 4  # of a run, at least
_LOGS = 25  # steps between two log lines, at most

FROM_RANDOM_WEIGHTS: dict[str, Any] = {
    "learning_rate": 1.5e-3,
    "adam_beta2": 0.98,
    # Sorted by length, few clips would come in nearly the same order in every epoch.
    "group_by_length": False,
}
"""What a tiny model with random weights needs in place of a plan's settings, which are for fine-tuning."""
RANDOM_WEIGHTS_STEPS = 1000


def schedule(steps: int, evaluates: bool, planned: int | None = None) -> dict[str, Any]:
    """How often a run of ``steps`` optimizer steps saves, evaluates and logs; ``planned``: the plan's interval."""
    interval = planned or max(1, min(_MAX_STEPS, steps // _CHECKPOINTS))
    return {
        "save_strategy": "steps",
        "save_steps": interval,
        "save_total_limit": 2,
        "eval_strategy": "steps" if evaluates else "no",
        **({"eval_steps": interval} if evaluates else {}),
        "logging_steps": max(1, min(_LOGS, steps // 10)),
        "report_to": ["tensorboard"] if find_spec("tensorboard") else [],
    }


def length_of_run(max_steps: int | None, epochs: float | None, tiny: bool) -> int | None:
    """The requested optimizer steps, None for the plan's. Raises ``InvalidArgumentError`` for less than 1."""
    if max_steps is not None and epochs is not None:
        raise InvalidArgumentError("both max_steps and epochs are given", "give one of them")
    if (max_steps is not None and max_steps < 1) or (epochs is not None and epochs <= 0):
        option = f"max_steps = {max_steps}" if max_steps is not None else f"epochs = {epochs}"
        raise InvalidArgumentError(f"{option} trains nothing", "give a number of at least 1")
    return RANDOM_WEIGHTS_STEPS if tiny and max_steps is None and epochs is None else max_steps


def override(plan: TrainingConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Set the fields of ``plan`` among ``settings``; returns the other settings and the intervals."""
    fields = {field.name for field in dataclasses.fields(plan)} - {"eval_steps", "save_steps"}
    for name, value in settings.items():
        if name in fields:
            setattr(plan, name, value)
    return {name: value for name, value in settings.items() if name not in fields}


def need(feature: str, *packages: str) -> None:
    """Raise ``UnsupportedError`` naming those of ``packages`` that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"{feature} needs {', '.join(missing)}", f"pip install {' '.join(missing)}")
