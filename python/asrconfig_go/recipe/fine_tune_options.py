"""The options and the result of ``fine_tune``, and the Trainer's settings that follow from them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.modules import bare
from .._core.output import shortened
from .._core.render import box, plural
from .._core.settings import TARGET_BATCH_SIZE
from ..config import TrainingConfig
from ..errors import InvalidArgumentError
from ..guard.training_report import TrainingReport
from ..trace.tiny_models import TINY
from .processors import family
from .speech_data import SpeechData, column
from .transcription import generates

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_GENERATED = 225  # the most tokens of a transcript, usual for Whisper's 30 s
_ROOM = 8  # tokens above twice the longest transcript
_MAX_STEPS = 500  # the most between two checkpoints
_CHECKPOINTS = 4  # the fewest of a run
_LOGS = 25  # the most steps between two log lines

FROM_RANDOM_WEIGHTS: dict[str, Any] = {
    "learning_rate": 1.5e-3,
    "adam_beta2": 0.98,
    # Grouped by length, few clips would come in nearly the same order in every epoch.
    "group_by_length": False,
}
"""The settings of a tiny model with random weights, which replace a plan's: those are for fine-tuning."""
RANDOM_WEIGHTS_STEPS = 1000
_LLM_RANK = 16
_TINY_BATCH = 8  # with few clips, many small steps learn faster than few large ones
_SHOWN = 60  # characters of a transcript


@dataclass(frozen=True)
class FineTuneOptions:
    """See ``fine_tune``."""

    model: str
    output: Path
    language: str | None
    clean: bool | None
    align: str | None
    epochs: float | None
    max_steps: int | None
    target_batch_size: int | None
    lora_rank: int | None
    bits: int | None
    gpu: str | None
    config: TrainingConfig | str | os.PathLike[str] | None
    settings: dict[str, Any]
    resume: bool | str | os.PathLike[str]
    save_by: str | None
    push: bool | str
    token: str | None
    callbacks: tuple[Any, ...]
    profile: int | None
    seed: int
    verbose: bool

    def __post_init__(self) -> None:
        if self.max_steps is not None and self.epochs is not None:
            raise InvalidArgumentError("both max_steps and epochs are set", "set only one of them")
        if (self.max_steps is not None and self.max_steps < 1) or (self.epochs is not None and self.epochs <= 0):
            option = f"epochs = {self.epochs}" if self.max_steps is None else f"max_steps = {self.max_steps}"
            raise InvalidArgumentError(f"{option} trains nothing", "set it to at least 1")
        if self.save_by is not None or self.profile is not None:
            from ..train.train_options import check_profile, deadline_of

            if self.save_by is not None:
                deadline_of(self.save_by)
            if self.profile is not None:
                check_profile(self.profile)

    @property
    def tiny(self) -> bool:
        """Whether the model is one of those with random weights."""
        return self.model in TINY

    @property
    def rank(self) -> int:
        """The rank of the adapters, 0 without; by default published audio LLMs get adapters, other models none."""
        if self.lora_rank is not None:
            return self.lora_rank
        return 0 if self.tiny or family(self.model) != "audio-llm" else _LLM_RANK

    @property
    def steps(self) -> int | None:
        """Optimizer steps; None for as many as the plan's epochs take."""
        return RANDOM_WEIGHTS_STEPS if self.tiny and self.max_steps is None and self.epochs is None else self.max_steps

    @property
    def batch(self) -> int:
        """Clips of an optimizer step."""
        return self.target_batch_size or (_TINY_BATCH if self.tiny else TARGET_BATCH_SIZE)


def speech_settings(model: PreTrainedModel, data: SpeechData) -> dict[str, Any]:
    """Settings for ``config.to_training_arguments`` that the data and the model need."""
    settings: dict[str, Any] = {
        "remove_unused_columns": False
    }  # the collator reads audio, which is no argument of a model
    if generates(model):
        # A model that repeats itself forever would only prolong the evaluation.
        longest = 2 * max(map(len, column(data.train, "labels"))) + _ROOM
        positions = getattr(bare(model).config, "max_target_positions", None) or _GENERATED
        settings |= {"predict_with_generate": True, "generation_max_length": min(_GENERATED, positions, longest)}
    return settings


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


def override(plan: TrainingConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Set the ``settings`` that are fields of ``plan``; returns the others, and the intervals."""
    fields = {field.name for field in dataclasses.fields(plan)} - {"eval_steps", "save_steps"}
    for name, value in settings.items():
        if name in fields:
            setattr(plan, name, value)
    return {name: value for name, value in settings.items() if name not in fields}


@dataclass(frozen=True, repr=False)
class FineTuneResult:
    """A trained model in a folder, its error rates and how it was trained.

    ``from_pretrained(output_dir)`` loads the model and its processor. Where ``save_by`` stopped the training
    (``training.stopped``), the folder has only its checkpoint.

    Attributes:
        output_dir: The folder with the model, its processor and the plan.
        model: The model that was fine-tuned, as it was passed.
        wer_before: The word error rate of the evaluation clips before the training, as a fraction; None where it was
            not measured: for a resumed training, and for more than ten minutes of audio.
        wer: The word error rate after the training, as a fraction; None where nothing was evaluated.
        cer: The character error rate after the training, as a fraction; None where nothing was evaluated.
        samples: Pairs of reference and transcript for the first evaluation clips.
        training: The report of the training: steps, seconds, and what the guard did.
        config: The plan.
        notes: Sentences on what was found in the data, changed and left out.
        pushed: What became of the upload; ``""`` where none was requested.
        memory: The peaks of memory.
    """

    output_dir: Path
    model: str
    wer_before: float | None
    wer: float | None
    cer: float | None
    loss: float | None
    """The mean training loss of this process's steps, None if there were none."""
    samples: tuple[tuple[str, str], ...]
    training: TrainingReport
    config: TrainingConfig = field(repr=False)
    notes: tuple[str, ...] = ()
    pushed: str = ""
    memory: str = ""
    report: Path | None = None
    """The page of ``asrconfig_go.watch``, None where the training was not watched."""

    def __repr__(self) -> str:
        if self.training.stopped:
            return self._stopped()
        samples = (tuple(shortened(text, _SHOWN) for text in pair) for pair in self.samples)
        lines = [
            f"{self.model}: {plural(self.training.steps, 'step')} in {self.training.seconds:.0f} s",
            *self._rates(),
            *(f"  said: {said:<32}  heard: {heard}" for said, heard in samples),
            *([self.memory] if self.memory else []),
            f"model, processor and plan: {self.output_dir}" + (f"; report: {self.report}" if self.report else ""),
            *([self.pushed] if self.pushed else []),
        ]
        return "\n".join(lines)

    def _stopped(self) -> str:
        made = f"{self.model}: {self.training.steps} of {plural(self.training.planned_steps, 'step')}"
        again = "continue by the same call with resume=True (asrconfig train … --resume)"
        return f"{made}; {self.training.stopped}\n  → {again}"

    def _rates(self) -> list[str]:
        if self.wer is None or self.cer is None:
            return ["no clips to evaluate with: no word error rate"]
        before = "" if self.wer_before is None else f" ({self.wer_before:.0%} before)"
        return [f"word error rate {self.wer:.1%}{before}, character error rate {self.cer:.1%}"]

    def _repr_html_(self) -> str:
        return box("Fine-tuned", repr(self))
