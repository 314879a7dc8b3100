"""The arguments of a Trainer against the plan: what differs, and whether the training still fits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base.allocator_settings import allocator_in_force, parse_alloc_conf
from .._base.errors import AsrConfigError
from .._base.transformers_features import has_any_depth
from ..plan.plan_record import PlanRecord
from ..view.units import gib
from .training_arguments import REPORTED

if TYPE_CHECKING:
    from ..memory import MemoryEstimate

_SAME_STATE = {"adamw_torch", "adamw_torch_fused"}  # the Trainer's default, before version 5 and since
_PLANNED_ARGUMENTS = "config.to_training_arguments(output_dir)"


class Difference(NamedTuple):
    """What the arguments have instead of the plan's, what to pass, and the fields of the plan that it is about."""

    words: str
    remedy: str
    fields: frozenset[str]


@dataclass(frozen=True)
class PlannedTraining:
    """A plan, and what is known of the training that it was made for.

    ``longest_s`` is the longest clip; ``batch_fn`` makes the batches of a model of unknown kind.
    """

    config: PlanRecord
    longest_s: float | None = None
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None

    def check(self, args: Any, model: Any, splits: bool = False) -> str:
        """What of a Trainer's arguments is not as planned, and what they are predicted to take; "" for nothing.

        What ``to_training_arguments`` has reported is only mentioned where memory does not suffice and no guard
        ``splits`` batches by it.
        """
        unsupported, overridden = getattr(args, REPORTED, ((), ()))
        elsewhere = () if _cuda() else unsupported  # what the planned GPU can do and this machine cannot
        found = [each for each in differences(self.config, args, model) if not each.fields <= set(elsewhere)]
        news = [each for each in found if not each.fields <= {*unsupported, *overridden}]
        if not found or (splits and not news):
            return ""
        predicted = self._predicted(args, model, bool({"fp16", "bf16"} & set(elsewhere)))
        too_much = predicted is not None and predicted.fits is False
        if not news and not too_much:
            return ""
        named = found if too_much else news
        words = ", ".join(each.words for each in named)
        remedies = ", ".join(dict.fromkeys(each.remedy for each in named if each.remedy))
        remedy = f"pass {remedies}, or use {_PLANNED_ARGUMENTS}" if remedies else f"use {_PLANNED_ARGUMENTS}"
        memory = _memory_words(predicted, self.config.budget_bytes, splits)
        if any("alloc_conf" in each.fields for each in named):
            remedy += ", and call config.apply(model) before anything uses the GPU"
        return f"the training is not as planned: {words}{memory} → {remedy}"

    def _predicted(self, args: Any, model: Any, elsewhere: bool) -> MemoryEstimate | None:
        """The memory of these arguments on the GPU here, else on the planned one; None where nothing can tell.

        ``elsewhere`` is whether they have another precision than the plan for this machine alone.
        """
        from ..memory.calibration_trainer import training_settings
        from ..memory.question import EstimatorWarning, estimate_memory

        config, seconds = self.config, self._seconds()
        if seconds is None or not config.gpu_name or config.distributed not in ("none", "ddp"):
            return None
        settings = training_settings(args, model)
        if elsewhere:
            settings["precision"] = config.precision
        shape = {"batch": args.per_device_train_batch_size, "seconds": seconds}
        gpu, allocator = None if _cuda() else config.gpu_name, allocator_in_force()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EstimatorWarning)
                if self.batch_fn is None:
                    return estimate_memory(model, **shape, **settings, gpu=gpu, allocator=allocator, progress=False)
                from ..memory import MemoryModel

                traced = MemoryModel.trace(
                    model, self.batch_fn, **settings, gpu=gpu, allocator=allocator, progress=False
                )
                with traced:
                    return traced.estimate(**shape, timeline=0)
        except AsrConfigError:
            return None

    def _seconds(self) -> float | None:
        lengths = [self.longest_s, self.config.max_length_s, *(b.up_to_s for b in self.config.length_buckets[-1:])]
        known = [seconds for seconds in lengths if seconds]
        return min(known) if known else None


def differences(config: PlanRecord, args: Any, model: Any) -> list[Difference]:
    """What the arguments of a Trainer have instead of the plan's."""
    from ..memory.calibration_trainer import training_settings

    settings = training_settings(args, model)
    return [*_precision(config, args, settings), *_checkpointing(config, settings), *_steps(config, args, settings)]


def _precision(config: PlanRecord, args: Any, settings: dict[str, Any]) -> Iterator[Difference]:
    if settings["precision"] != config.precision:
        names = [name for name in ("fp16", "bf16") if getattr(args, name) != getattr(config, name)]
        yield Difference(
            f"{settings['precision']} instead of {config.precision}",
            ", ".join(f"{name}=config.{name}" for name in names),
            frozenset(names),
        )


def _checkpointing(config: PlanRecord, settings: dict[str, Any]) -> Iterator[Difference]:
    name = "gradient_checkpointing"
    if settings[name] != config.gradient_checkpointing:
        words = "on instead of off" if settings[name] else "off instead of on"
        yield Difference(f"gradient checkpointing {words}", f"{name}=config.{name}", frozenset((name,)))
    elif config.gradient_checkpointing and has_any_depth() and settings["every_n_layers"] != config.every_n_layers:
        words = f"checkpoints of every {settings['every_n_layers']} layers instead of {config.every_n_layers}"
        yield Difference(words, "", frozenset(("every_n_layers",)))


def _steps(config: PlanRecord, args: Any, settings: dict[str, Any]) -> Iterator[Difference]:
    optimizer = settings["optimizer"]
    if optimizer != config.optimizer and not {optimizer, config.optimizer} <= _SAME_STATE:
        words = f"{optimizer} instead of {config.optimizer}"
        yield Difference(words, "optim=config.optimizer", frozenset(("optimizer",)))
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    ours, theirs = ([getattr(each, name) for name in names] for each in (config, args))
    if ours != theirs:
        words = "batches of {} × {} instead of {} × {}".format(*theirs, *ours)
        changed = [name for name in names if getattr(config, name) != getattr(args, name)]
        yield Difference(words, ", ".join(f"{name}=config.{name}" for name in changed), frozenset(changed))
    planned = parse_alloc_conf(config.alloc_conf) or {}
    in_force = parse_alloc_conf(allocator_in_force()) or {}
    if planned and not planned.keys() <= in_force.keys() and _cuda():
        yield Difference(f"PyTorch's allocator without {config.alloc_conf}", "", frozenset(("alloc_conf",)))


def _cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _memory_words(predicted: MemoryEstimate | None, budget_bytes: int, splits: bool) -> str:
    if predicted is None or predicted.peak_device is None or predicted.target.available_bytes is None:
        return ""
    gpu = predicted.target
    words = f": predicted {gib(predicted.peak_device)} of {gib(gpu.available_bytes)} on {gpu.name}"
    if predicted.fits is False:
        return words + ", which does not fit" + ": the guard splits such batches" * splits
    over = 0 < budget_bytes < predicted.peak_device
    return words + (f", over the budget of {gib(budget_bytes)}" if over else "")
