"""Training arguments and model of a run, compared when it is resumed."""

from __future__ import annotations

import enum
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from .._base.errors import InvalidArgumentError
from ..guard.training_report import Change

# Those of TrainingArguments that the installed transformers has; batch, accumulation and devices are the record's.
_ARGUMENTS = (
    "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio", "num_train_epochs",
    "max_steps", "optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "seed", "data_seed", "fp16", "bf16", "tf32", "label_smoothing_factor", "neftune_noise_alpha",
    "train_sampling_strategy", "group_by_length", "dataloader_drop_last",
)  # fmt: skip
_SCHEDULE = set(_ARGUMENTS[1:7])
# A checkpoint's optimizer brings its own; orders and random numbers continue from the record's.
_OF_THE_CHECKPOINT = {"learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"}
_SAME_STATE = {"adamw_torch", "adamw_torch_fused"}  # what one of them saved, the other takes
_NOT_OF_THE_RESULT = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache", "architectures")
_ANEW = "start a new run, in another output_dir or by manager.train(trainer, resume=False)"


@dataclass(frozen=True)
class ModelRecord:
    """A model without its weights; ``shapes`` is a digest of its parameters' names and shapes."""

    class_name: str
    vocabulary: int | None
    parameters: int
    trainable: int
    shapes: str

    def __str__(self) -> str:
        tokens = f", {self.vocabulary} tokens" if self.vocabulary is not None else ""
        return f"{self.class_name}{tokens}, {self.parameters:,} parameters, {self.trainable:,} of them trained"


def model_record(model: Any) -> ModelRecord:
    """That of a ``torch.nn.Module``."""
    digest, total, trained = hashlib.blake2b(digest_size=16), 0, 0
    for name, parameter in model.named_parameters():
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))  # DeepSpeed's, where the weights are elsewhere
        size = math.prod(shape)
        total += size
        trained += size if parameter.requires_grad else 0
        digest.update(f"{name} {shape} {parameter.requires_grad}\n".encode())
    words = getattr(getattr(model, "config", None), "vocab_size", None)
    return ModelRecord(
        class_name=type(model).__name__,
        vocabulary=words if isinstance(words, int) else None,
        parameters=total,
        trainable=trained,
        shapes=digest.hexdigest(),
    )


def settings_of(trainer: Any) -> dict[str, Any]:
    """By name, as JSON: of ``args``, and of the model's config as ``config.<name>``."""
    args = {name: _plain(getattr(trainer.args, name)) for name in _ARGUMENTS if hasattr(trainer.args, name)}
    config: Any = getattr(trainer.model, "config", None)
    options = config.to_dict() if hasattr(config, "to_dict") else {}
    return {
        **args,
        **{
            f"config.{name}": _plain(value)
            for name, value in sorted(options.items())
            if name not in _NOT_OF_THE_RESULT and not name.startswith("_attn") and not name.endswith("_token_id")
        },
    }


def _plain(value: Any) -> Any:
    """The value as it comes back from JSON."""
    value = value.value if isinstance(value, enum.Enum) else value
    return json.loads(json.dumps(value, default=str, sort_keys=True))


def changes(before: dict[str, Any], now: dict[str, Any], resumed: bool) -> tuple[Change, ...]:
    """The settings in both that have another value ``now``; ``resumed``: the training continues from a checkpoint."""
    unused = {"seed"} | (_OF_THE_CHECKPOINT if resumed else set())
    different = [name for name in before if name in now and before[name] != now[name]]
    return tuple(Change(name, before[name], now[name], name not in unused) for name in different)


def changes_schedule(changed: tuple[Change, ...]) -> bool:
    """Whether the schedule of the learning rate changes from here on."""
    return any(change.name in _SCHEDULE for change in changed)


def check_model(before: ModelRecord | None, now: ModelRecord, folder: Any) -> None:
    """Raise ``InvalidArgumentError`` where the weights of the run are not those of this model."""
    if before is not None and (before.class_name, before.shapes) != (now.class_name, now.shapes):
        raise InvalidArgumentError(
            f"the model is another than that of the run in {folder}: {now}; the run's: {before}",
            f"make the model as for that run, or {_ANEW}",
        )


def check_optimizer(before: dict[str, Any], now: dict[str, Any], folder: Any) -> None:
    """Raise ``InvalidArgumentError`` where the optimizer cannot take the state of the run's."""
    was, is_now = before.get("optim"), now.get("optim")
    if isinstance(was, str) and was != is_now and not {was, is_now} <= _SAME_STATE:
        raise InvalidArgumentError(
            f"optim = {is_now!r} cannot continue with the state of the run in {folder}, whose optimizer is {was!r}",
            f"set optim={was!r}, or {_ANEW}",
        )


def check_rows(before: int | None, now: int | None, folder: Any) -> None:
    """Raise ``InvalidArgumentError`` where no position in this data is that of the run."""
    if None not in (before, now) and before != now:
        raise InvalidArgumentError(
            f"train_dataset has {now} rows, that of the run in {folder} was recorded with {before}",
            f"pass the same data, or {_ANEW}, from the weights that you have",
        )
