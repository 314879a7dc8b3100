"""Checks of the Trainer and the options that a guard is attached with."""

from __future__ import annotations

import inspect
from typing import Any, get_args

from .._base.checks import check_seconds, checked
from .._base.choices import TooLong, WeightRule
from .._base.errors import InvalidArgumentError
from .._base.parallel_training import cannot_retry

_NEEDED = (
    "training_step", "prediction_step", "evaluation_loop", "get_batch_samples", "compute_loss", "_save_checkpoint",
    "accelerator",
)  # fmt: skip


def check_trainer(trainer: Any) -> None:
    """Raise ``InvalidArgumentError`` for what cannot be guarded."""
    for name in _NEEDED:
        if not hasattr(trainer, name):
            raise InvalidArgumentError(f"{type(trainer).__name__} has no {name}", "pass a transformers.Trainer")
    if not getattr(trainer, "model_init", None) and not any(p.requires_grad for p in trainer.model.parameters()):
        raise InvalidArgumentError(
            f"{type(trainer.model).__name__} has no parameter that requires a gradient",
            "unfreeze what should be trained before attaching",
        )
    norms = [name for name, m in trainer.model.named_modules() if type(m).__name__ == "SyncBatchNorm"]
    if norms and trainer.args.world_size > 1:
        raise InvalidArgumentError(
            f"{norms[0]} waits for the other processes in each forward, where one may need more of them than another",
            "use BatchNorm, or normalise over the features",
        )


def check_options(
    max_halvings: Any, micro_batch: Any, overhead_s: Any, rule: Any, too_long: Any, preflight: Any
) -> None:
    """Raise ``InvalidArgumentError`` for values that mean nothing."""
    if overhead_s is not None and not 0 <= checked("overhead_s", overhead_s, float) <= 1e6:
        raise InvalidArgumentError(f"overhead_s = {overhead_s!r} is out of range", "pass seconds of audio, 4 is usual")
    for name, value, least in (("max_halvings", max_halvings, 0), ("micro_batch", micro_batch, 1)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and least <= value <= 100_000):
            raise InvalidArgumentError(f"{name} = {value!r} is not a whole number from {least}", "3 halvings are usual")
    if not callable(rule):
        checked("rule", rule, WeightRule | None)
    if too_long not in get_args(TooLong) and not callable(too_long):
        raise InvalidArgumentError(
            f"too_long = {too_long!r} is not known", '"raise", "skip", or a function from a batch of one to a list'
        )
    if not isinstance(preflight, bool):
        check_seconds("preflight", preflight)


def check_windows(trainer: Any, processes: int) -> str:
    """What is wrong with windows that do not end with an epoch; "" where they do.

    transformers 4.46 counts batches across epochs, and carries the gradients of the last ones into the next. Raises
    ``InvalidArgumentError`` for several processes, whose gradients would then never be averaged.
    """
    from transformers import Trainer
    from transformers.trainer_utils import has_length

    every, loader = trainer.args.gradient_accumulation_steps, trainer.callback_handler.train_dataloader
    ends_windows = "device" in inspect.signature(Trainer.get_batch_samples).parameters
    if ends_windows or not has_length(loader) or len(loader) <= every or len(loader) % every == 0:
        return ""
    what = f"this version of the Trainer carries the gradients of the last {len(loader) % every} batches of an epoch on"
    hint = "accumulate a number of batches that divides those of an epoch, or take a newer transformers"
    if processes > 1:
        raise InvalidArgumentError(f"{what}, where the weights of several processes come apart", hint)
    return f"{what}, with the weight of a whole window: {hint}"


def caveats(trainer: Any) -> tuple[str, ...]:
    """What the guard cannot do for this training, in sentences."""
    if not cannot_retry(trainer):
        return ()
    return (
        "processes or GPUs that share each step cannot go back one by one: weights of micro-batches are kept right, "
        "but out of memory ends the run; manager.train says what to restart with",
    )
