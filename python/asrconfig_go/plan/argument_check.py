"""Compares a Trainer's arguments with the plan: what differs, and whether the training still fits.

``watch`` calls it when a training begins, and logs its answer. Predicting memory traces the model; neither the model
nor the arguments are changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.modules import has_any_depth
from .._core.render import gib
from ..errors import AsrConfigError
from ..predict.memory_settings import allocator_in_force, parse_alloc_conf
from .plan_record import BATCH_FIELDS, PlanRecord
from .training_arguments import REPORTED

if TYPE_CHECKING:
    import torch
    from transformers import TrainingArguments

    from ..predict.estimate import MemoryEstimate


_SAME_STATE = {"adamw_torch", "adamw_torch_fused"}  # Trainer's default before version 5 and since: the same memory
_PLANNED_ARGUMENTS = "config.to_training_arguments(output_dir)"


class Difference(NamedTuple):
    """A setting of the Trainer that differs from the plan: what is set instead of what, in fields of the plan.

    ``remedy`` is the argument to pass, as code; empty where no argument sets it.
    """

    words: str
    remedy: str
    fields: frozenset[str]


@dataclass(frozen=True)
class PlannedTraining:
    """A plan, and the training that it was made for.

    ``longest_s`` is None where the dataset was not measured; ``batch_fn`` makes batches for the trace of a model whose
    inputs are not known.
    """

    config: PlanRecord
    longest_s: float | None = None
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None

    def check(self, args: TrainingArguments, model: torch.nn.Module, splits: bool = False) -> str:
        """One sentence on how a Trainer's arguments differ from the plan, with predicted memory and a remedy, or "".

        ``to_training_arguments`` has reported some differences already. They are repeated only where the training does
        not fit, and no guard ``splits`` its batches.
        """
        unsupported, overridden = getattr(args, REPORTED, ((), ()))
        # Made for another machine: what its GPU supports and this machine does not is no difference.
        missing_here = () if _has_cuda() else unsupported
        forms = (self.config, self.config.without_guard())
        nearest = min((differences(form, args, model) for form in forms), key=len)
        present = [d for d in nearest if not d.fields <= set(missing_here)]
        unreported = [d for d in present if not d.fields <= {*unsupported, *overridden}]
        if not present or (splits and not unreported):
            return ""
        predicted = self._predicted(args, model, planned_precision=bool({"fp16", "bf16"} & set(missing_here)))
        does_not_fit = predicted is not None and predicted.fits is False
        if not unreported and not does_not_fit:
            return ""
        reported = present if does_not_fit else unreported
        words = ", ".join(d.words for d in reported)
        remedies = ", ".join(dict.fromkeys(d.remedy for d in reported if d.remedy))
        remedy = f"pass {remedies}, or use {_PLANNED_ARGUMENTS}" if remedies else f"use {_PLANNED_ARGUMENTS}"
        memory = _memory_words(predicted, self.config.budget_bytes, splits)
        if any("alloc_conf" in d.fields for d in reported):
            remedy += ", and call config.apply(model) before anything uses the GPU"
        return f"the training is not as planned: {words}{memory} → {remedy}"

    def _predicted(
        self, args: TrainingArguments, model: torch.nn.Module, planned_precision: bool
    ) -> MemoryEstimate | None:
        """The memory of these arguments on this machine's GPU, else on the planned one; None where it is unknown.

        ``planned_precision``: predict the plan's precision, which only this machine cannot train in.
        """
        from ..predict.memory_model import MemoryModel
        from ..predict.trainer_settings import training_settings

        config, seconds = self.config, self.longest_trained_s()
        if seconds is None or not config.gpu_name or config.distributed not in ("none", "ddp"):
            return None
        settings = training_settings(args, model)
        if planned_precision:
            settings["precision"] = config.precision
        shape = {"batch": args.per_device_train_batch_size, "seconds": seconds}
        gpu, allocator = None if _has_cuda() else config.gpu_name, allocator_in_force()
        try:
            # estimate_memory would also trace all other settings where these do not fit, which takes too long here.
            with MemoryModel.trace(
                model, self.batch_fn, **settings, gpu=gpu, allocator=allocator, progress=False
            ) as memory:
                return memory.estimate(**shape, timeline=0)
        except AsrConfigError:
            return None

    def longest_trained_s(self) -> float | None:
        """The longest clip of a batch: of the dataset, and no longer than the plan trains on."""
        lengths = [self.longest_s, self.config.max_length_s, *(b.up_to_s for b in self.config.length_buckets[-1:])]
        limits = [seconds for seconds in lengths if seconds]
        return min(limits) if limits else None


def differences(config: PlanRecord, args: TrainingArguments, model: torch.nn.Module) -> list[Difference]:
    """The differences in precision, checkpointing, optimizer, batch and allocator."""
    from ..predict.trainer_settings import training_settings

    settings = training_settings(args, model)
    return [
        *_precision(config, args, settings),
        *_checkpointing(config, settings),
        *_optimizer(config, settings),
        *_batch(config, args),
        *_allocator(config),
    ]


def _precision(config: PlanRecord, args: TrainingArguments, settings: dict[str, Any]) -> Iterator[Difference]:
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


def _optimizer(config: PlanRecord, settings: dict[str, Any]) -> Iterator[Difference]:
    optimizer = settings["optimizer"]
    if optimizer != config.optimizer and not {optimizer, config.optimizer} <= _SAME_STATE:
        words = f"{optimizer} instead of {config.optimizer}"
        yield Difference(words, "optim=config.optimizer", frozenset(("optimizer",)))


def _batch(config: PlanRecord, args: TrainingArguments) -> Iterator[Difference]:
    planned, actual = ([getattr(source, name) for name in BATCH_FIELDS] for source in (config, args))
    if planned != actual:
        words = "batches of {} × {} instead of {} × {}".format(*actual, *planned)
        changed = [name for name in BATCH_FIELDS if getattr(config, name) != getattr(args, name)]
        yield Difference(words, ", ".join(f"{name}=config.{name}" for name in changed), frozenset(changed))


def _allocator(config: PlanRecord) -> Iterator[Difference]:
    planned = parse_alloc_conf(config.alloc_conf) or {}
    in_force = parse_alloc_conf(allocator_in_force()) or {}
    if planned and not planned.keys() <= in_force.keys() and _has_cuda():
        yield Difference(f"PyTorch's allocator without {config.alloc_conf}", "", frozenset(("alloc_conf",)))


def _has_cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _memory_words(predicted: MemoryEstimate | None, budget_bytes: int, splits: bool) -> str:
    """The predicted peak as the end of a sentence; empty where it is unknown."""
    if predicted is None or predicted.peak_device is None or predicted.target.available_bytes is None:
        return ""
    gpu = predicted.target
    words = f": predicted {gib(predicted.peak_device)} of {gib(gpu.available_bytes)} on {gpu.name}"
    if predicted.fits is False:
        return words + ", which does not fit" + (": the guard splits such batches" if splits else "")
    is_over_budget = 0 < budget_bytes < predicted.peak_device
    return words + (f", over the budget of {gib(budget_bytes)}" if is_over_budget else "")
