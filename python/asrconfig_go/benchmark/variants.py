"""The sides of a benchmark: a plan, or settings by the Trainer's names, as TrainingArguments."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.json_files import read_object
from ..apply.training_arguments import arguments_of, named
from ..config import TrainingConfig

# What a few steps neither log nor keep. Both sides are told so, so that none of it is between them.
_OWN: dict[str, Any] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "auto_find_batch_size": False,  # it would change the batch
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "dataloader_drop_last": False,
}
_PLACE = ("output_dir", "logging_dir", "overwrite_output_dir", "resume_from_checkpoint", "hub_token")
SHOWN = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "fp16", "bf16", "tf32", "gradient_checkpointing",
    "optim", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers",
    "dataloader_pin_memory", "torch_compile", "train_sampling_strategy", "group_by_length",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One way to train. ``settings`` are the Trainer's names; with a ``plan`` those that win over it."""

    name: str
    settings: Mapping[str, Any]
    plan: TrainingConfig | None = None
    arguments_class: Any = None

    @property
    def effective_batch(self) -> int:
        """Samples of an optimizer step."""
        if self.plan is not None:
            return self.plan.effective_batch_size
        each = self.settings.get("per_device_train_batch_size", 8)  # the Trainer's own default
        return int(each) * int(self.settings.get("gradient_accumulation_steps", 1))

    def arguments(self, folder: str, steps: int, seed: int, model: Any) -> Any:
        """New TrainingArguments with this number of steps: newer ones leave accelerate's state as they found it."""
        own = named({**_OWN, "max_steps": steps, "seed": seed}, self.arguments_class)
        settings = {**self.settings, **own}
        if self.plan is None:
            return arguments_of(settings, folder, self.arguments_class)
        return self.plan.to_training_arguments(folder, arguments_class=self.arguments_class, model=model, **settings)


def most_workers(plan: TrainingConfig, original: Side | None, sweep: Sequence[str] | None, cores: float) -> int:
    """Loader workers of any side that is trained, whose loader gives a step in one batch."""
    counts = [plan.dataloader_num_workers]
    if original is not None and original.plan is None:
        batches = int(original.settings.get("gradient_accumulation_steps", 1))
        counts.append(-(-int(original.settings.get("dataloader_num_workers", 0)) // batches))
    if sweep is None or "workers" in sweep:  # they may be tried
        counts.append(int(min(cores, 8)))
    return max(counts)


def safe_side(effective_batch: int) -> Side:
    """What works everywhere: one clip at a time, accumulated; all else as the Trainer has it."""
    settings = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": effective_batch}
    return Side("original", settings)


def original_side(given: Any) -> Side:
    """Of TrainingArguments, a plan, a dictionary of either's names, or a JSON file of one.

    Raises ``InvalidArgumentError`` for anything else and for unknown names, ``NotFoundError`` for a missing
    file and ``CorruptFileError`` for one that holds no JSON object.
    """
    if isinstance(given, str | os.PathLike):
        given = read_object(given, "settings", "save them with save_config, or as TrainingArguments.to_json_string")
    if isinstance(given, TrainingConfig):
        return Side("original", {}, given)
    if isinstance(given, Mapping):
        if "schema_version" in given:
            return Side("original", {}, TrainingConfig.from_dict(dict(given)))
        return Side("original", named(_without_place(given)))
    if not dataclasses.is_dataclass(given) or not hasattr(given, "per_device_train_batch_size"):
        raise InvalidArgumentError(
            f"original = {type(given).__name__} holds no training settings",
            "pass TrainingArguments, a TrainingConfig, a dictionary of their names, or a JSON file",
        )
    return Side("original", _changed(given), arguments_class=type(given))


def _changed(arguments: Any) -> dict[str, Any]:
    """What differs from the defaults, each setting once: newer versions keep some under an older name as well."""
    kind = type(arguments)
    try:
        usual = arguments_of({}, arguments.output_dir, kind)
    except TypeError as error:
        raise InvalidArgumentError(f"a {kind.__name__} cannot be made again: {error}", "pass a dictionary") from error
    found: dict[str, Any] = {}
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name, None)
        if field.init and value != getattr(usual, field.name, None) and field.name not in _PLACE:
            found |= named({field.name: value}, kind)
    return found


def _without_place(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _PLACE}
