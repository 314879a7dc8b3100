"""The sides of a benchmark: a plan, or settings by the Trainer's names, as TrainingArguments."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._base.checks import checked
from .._base.errors import InvalidArgumentError
from ..apply.training_arguments import arguments_of, named
from ..config import TrainingConfig

# Both sides neither log nor save, so that none of it differs between them.
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
SHOWN = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "fp16", "bf16", "tf32", "gradient_checkpointing",
    "optim", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers",
    "dataloader_pin_memory", "torch_compile", "train_sampling_strategy", "group_by_length",
)  # fmt: skip


PLAN, YOURS, DEFAULTS = "plan", "your settings", "the Trainer's defaults"


@dataclass(frozen=True)
class Side:
    """One way to train. ``settings`` are the Trainer's names; with a ``plan`` those that win over it.

    ``adapted`` is why its batch is another than the one that was meant.
    """

    name: str
    settings: Mapping[str, Any]
    plan: TrainingConfig | None = None
    arguments_class: Any = None
    adapted: str = ""

    @property
    def batch(self) -> tuple[int, int]:
        """Clips of a micro-batch, and how many are accumulated; the Trainer's defaults where they are not set."""
        usual = defaults(self.arguments_class) if self.plan is None else self.plan.to_dict()
        settings = {**usual, **self.settings}
        return _size("per_device_train_batch_size", settings), _size("gradient_accumulation_steps", settings)

    @property
    def effective_batch(self) -> int:
        """Clips of an optimizer step."""
        return math.prod(self.batch) if self.plan is None else self.plan.effective_batch_size

    def shown(self, arguments: Any = None) -> dict[str, Any]:
        """The settings to report of its ``arguments``, which are made here where it could not be trained."""
        if arguments is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arguments = self.arguments("out", 1, 0, None)
        values = {name: getattr(arguments, name) for name in SHOWN if hasattr(arguments, name)}
        values = {name: getattr(value, "value", value) for name, value in values.items()}
        if self.plan is not None:
            values |= {"micro_batching": self.plan.micro_batching, "length_handling": self.plan.length_handling}
        return values

    def halved(self) -> Side | None:
        """Half the micro-batch for the same step, of the Trainer's defaults; None where that leaves one clip alone."""
        batch, accumulated = self.batch
        if self.name != DEFAULTS or batch % 2 or batch < 4:
            return None
        reason = f"{batch} × {accumulated} ran out of memory on this device"
        settings = batch_settings(batch // 2, 2 * accumulated)
        return dataclasses.replace(
            self,
            settings={**self.settings, **settings},
            adapted=f"{self.adapted}; {reason}" if self.adapted else reason,
        )

    def arguments(self, folder: str, steps: int, seed: int, model: Any) -> Any:
        """New TrainingArguments with this number of steps: newer ones leave accelerate's state as they found it."""
        own = named({**_OWN, "max_steps": steps, "seed": seed}, self.arguments_class)
        settings = {**self.settings, **own}
        if self.plan is None:
            return arguments_of(settings, folder, self.arguments_class)
        return self.plan.to_training_arguments(folder, arguments_class=self.arguments_class, model=model, **settings)


def most_workers(plan: TrainingConfig, original: Side | None, sweep: Sequence[str] | None, cores: float) -> int:
    """The most loader workers of any side, counted per batch of a step."""
    counts = [plan.dataloader_num_workers]
    if original is not None and original.plan is None:
        _, batches = original.batch
        counts.append(-(-int(original.settings.get("dataloader_num_workers", 0)) // batches))
    if sweep is None or "workers" in sweep:  # they may be tried
        counts.append(int(min(cores, 8)))
    return max(counts)


def _size(name: str, settings: Mapping[str, Any]) -> int:
    if checked(name, settings[name], int) < 1:
        raise InvalidArgumentError(f"{name} = {settings[name]} is not 1 or more", "correct the settings")
    return int(settings[name])


def batch_settings(size: int, accumulated: int) -> dict[str, int]:
    """By the Trainer's names."""
    return {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}


def defaults(arguments_class: Any = None) -> dict[str, Any]:
    """Those of the installed TrainingArguments, or of a class of the user's."""
    from transformers import TrainingArguments

    return {field.name: field.default for field in dataclasses.fields(arguments_class or TrainingArguments)}
