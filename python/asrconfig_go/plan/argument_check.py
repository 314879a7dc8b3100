"""The arguments of a Trainer against the plan: what differs, and whether the training still fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.render import gib
from .._core.transformers_features import has_any_depth
from ..errors import AsrConfigError
from ..predict.memory_settings import allocator_in_force, parse_alloc_conf
from .plan_record import PlanRecord
from .training_arguments import REPORTED

if TYPE_CHECKING:
    import torch
    from transformers import TrainingArguments

    from ..predict.estimate import MemoryEstimate


_SAME_STATE = {"adamw_torch", "adamw_torch_fused"}  # the Trainer's default, before version 5 and since
_PLANNED_ARGUMENTS = "config.to_training_arguments(output_dir)"


class Difference(NamedTuple):
    """A difference in words, what to pass instead, and the fields of the plan that differ."""

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

    def check(self, args: TrainingArguments, model: torch.nn.Module, splits: bool = False) -> str:
        """Describe how a Trainer's arguments differ from the plan, with their predicted memory; "" for no difference.

        What ``to_training_arguments`` has reported is only repeated where memory does not suffice and no guard
        ``splits`` batches by it.
        """
        unsupported, overridden = getattr(args, REPORTED, ((), ()))
        elsewhere = () if _cuda() else unsupported  # supported by the planned GPU, not by this machine
        present = [d for d in differences(self.config, args, model) if not d.fields <= set(elsewhere)]
        unreported = [d for d in present if not d.fields <= {*unsupported, *overridden}]
        if not present or (splits and not unreported):
            return ""
        predicted = self._predicted(args, model, bool({"fp16", "bf16"} & set(elsewhere)))
        too_much = predicted is not None and predicted.fits is False
        if not unreported and not too_much:
            return ""
        named = present if too_much else unreported
        words = ", ".join(d.words for d in named)
        remedies = ", ".join(dict.fromkeys(d.remedy for d in named if d.remedy))
        remedy = f"pass {remedies}, or use {_PLANNED_ARGUMENTS}" if remedies else f"use {_PLANNED_ARGUMENTS}"
        memory = _memory_words(predicted, self.config.budget_bytes, splits)
        if any("alloc_conf" in d.fields for d in named):
            remedy += ", and call config.apply(model) before anything uses the GPU"
        return f"the training is not as planned: {words}{memory} → {remedy}"

    def _predicted(self, args: TrainingArguments, model: torch.nn.Module, elsewhere: bool) -> MemoryEstimate | None:
        """The memory of these arguments on this machine's GPU, else on the planned one; None where it is unknown.

        ``elsewhere``: their precision differs from the plan only because this machine lacks the planned GPU.
        """
        from ..predict.calibration import training_settings
        from ..predict.memory_model import MemoryModel

        config, seconds = self.config, self._seconds()
        if seconds is None or not config.gpu_name or config.distributed not in ("none", "ddp"):
            return None
        settings = training_settings(args, model)
        if elsewhere:
            settings["precision"] = config.precision
        shape = {"batch": args.per_device_train_batch_size, "seconds": seconds}
        gpu, allocator = None if _cuda() else config.gpu_name, allocator_in_force()
        try:
            # Without what estimate_memory does where it does not fit: traces of all settings that would.
            with MemoryModel.trace(
                model, self.batch_fn, **settings, gpu=gpu, allocator=allocator, progress=False
            ) as memory:
                return memory.estimate(**shape, timeline=0)
        except AsrConfigError:
            return None

    def _seconds(self) -> float | None:
        lengths = [self.longest_s, self.config.max_length_s, *(b.up_to_s for b in self.config.length_buckets[-1:])]
        limits = [seconds for seconds in lengths if seconds]
        return min(limits) if limits else None


def differences(config: PlanRecord, args: TrainingArguments, model: torch.nn.Module) -> list[Difference]:
    """Compare a Trainer's arguments with the plan."""
    from ..predict.calibration import training_settings

    settings = training_settings(args, model)
    return [*_precision(config, args, settings), *_checkpointing(config, settings), *_steps(config, args, settings)]


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


def _steps(config: PlanRecord, args: TrainingArguments, settings: dict[str, Any]) -> Iterator[Difference]:
    optimizer = settings["optimizer"]
    if optimizer != config.optimizer and not {optimizer, config.optimizer} <= _SAME_STATE:
        words = f"{optimizer} instead of {config.optimizer}"
        yield Difference(words, "optim=config.optimizer", frozenset(("optimizer",)))
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    ours, theirs = ([getattr(source, name) for name in names] for source in (config, args))
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
