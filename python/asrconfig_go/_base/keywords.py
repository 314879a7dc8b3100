"""Names of settings that nothing has, and the nearest ones that there are."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import InvalidArgumentError

# Names that other libraries and this one have for the same thing.
_SYNONYMS = (
    ("num_train_epochs", "epochs", "num_epochs", "n_epochs", "max_epochs"),
    ("target_batch_size", "batch_size", "effective_batch_size", "train_batch_size", "global_batch_size"),
    ("base_learning_rate", "learning_rate", "lr", "base_lr"),
    ("optimizer", "optim"),
    ("gradient_checkpointing", "activation_checkpointing", "checkpointing"),
    ("max_length_s", "max_length", "max_duration", "max_seconds", "max_audio_length"),
    ("lora_rank", "lora_r", "lora", "rank"),
    ("safety_margin", "margin"),
    ("gpu", "gpus", "gpu_name"),
)
_PRECISIONS = ("fp16", "bf16", "fp32")


def nearest(name: str, names: Iterable[str], count: int = 1, cutoff: float = 0.6) -> str:
    """``did you mean 'epochs'?``; "" where no name is near."""
    near = difflib.get_close_matches(name, list(names), n=count, cutoff=cutoff)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def check_keywords(
    settings: Mapping[str, Any], accepted: Iterable[str], owner: str, planned: Iterable[str] = ()
) -> None:
    """Raise ``InvalidArgumentError`` for the first setting that ``owner`` does not accept, with the likely name.

    ``planned`` are settings that a plan has once it is made.
    """
    names = list(accepted)
    for name, value in settings.items():
        if name not in names:
            raise InvalidArgumentError(f"{owner} takes no {name!r}", _hint(name, value, names, set(planned)))


def _hint(name: str, value: Any, accepted: list[str], planned: set[str]) -> str:
    meant = next((other for group in _SYNONYMS if name in group for other in group if other in accepted), None)
    if meant is not None:
        return f"did you mean {meant}={value!r}?"
    if name in _PRECISIONS and "precision" in accepted:
        return f'did you mean precision="{name}"?'
    if name in planned:
        return f"set it in the plan: config.{name} = {value!r}"
    if planned and _of_arguments(name):
        others = "output_dir" if name == "output_dir" else f"output_dir, {name}={value!r}"
        return f"it is the Trainer's: config.to_training_arguments({others})"
    near = nearest(name, accepted, cutoff=0.7)
    return near or f"it takes {', '.join(accepted)}"


def _of_arguments(name: str) -> bool:
    try:
        from transformers import TrainingArguments
    except ImportError:
        return False
    return name in {field.name for field in dataclasses.fields(TrainingArguments)}
