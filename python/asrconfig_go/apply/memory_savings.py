"""Changes to a training's batches and model that the planner cannot make, each with the memory that a trace shows."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .._base.defaults import TRACED_MICRO_BATCHES
from .._base.errors import AsrConfigError, InfeasiblePlanError
from .._base.wrapped_model import bare
from ..plan.plan_parts import Alternative
from ..view.units import gib

if TYPE_CHECKING:
    from ..memory.memory_settings import MemorySettings
    from ..plan.plan_record import PlanRecord
    from ..trace import SpeechBatches

Point = tuple[int, int, int]  # batch, length, labels
BatchFunction = Callable[[int, int, int], dict[str, Any]]


@dataclass(frozen=True)
class Saving:
    """A change, the advice how to make it, and what to trace in place of the plan's batches and model."""

    name: str
    advice: str
    batch: BatchFunction
    changed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def add_savings(model: Any, batches: Any, plan: PlanRecord, gpu: str | None, new_rank: int) -> None:
    """Append to a plan's alternatives changes that would take less memory for its micro-batch of the longest clips.

    Each is traced with batches of the user's collator; without collated rows, and after one that cannot be traced, none
    is added. ``new_rank`` is the rank of adapters that the model does not have yet.
    """
    from ..memory.memory_settings import MemorySettings

    size = plan.micro_batch_size if plan.micro_batching == "memory" else plan.per_device_train_batch_size
    settings = MemorySettings(
        plan.precision, plan.gradient_checkpointing, plan.optimizer, TRACED_MICRO_BATCHES, plan.freeze_feature_encoder,
        every_n_layers=plan.every_n_layers, offload_checkpoints=plan.offload_checkpoints, lora_rank=new_rank,
    )  # fmt: skip
    savings = _traced(model, batches, settings, gpu, size)
    object.__setattr__(plan, "alternatives", (*plan.alternatives, *savings))


def savings_in_hint(
    error: InfeasiblePlanError, model: Any, batches: Any, settings: MemorySettings, gpu: str | None
) -> None:
    """Append the same changes, traced for one of the longest clips, to the remedies of a training that does not fit."""
    error.hint += "".join(f"\n  · {saving.what}" for saving in _traced(model, batches, settings, gpu, 1))


def _traced(model: Any, batches: Any, settings: MemorySettings, gpu: str | None, size: int) -> list[Alternative]:
    alternatives: list[Alternative] = []
    if not hasattr(batches, "pairs"):
        return alternatives
    with contextlib.suppress(AsrConfigError):
        if not (pairs := batches.pairs()):
            return alternatives
        point = batches.real((size, *max(pairs)))  # the longest clip with its own text
        shape = f"{size} × {point[1] / batches.length_per_second:.3g} s"
        before: int | None = None
        for saving in list(_savings(model, batches, point)):
            before = before or _peak(model, batches, settings, gpu, point, batches.batch)
            with saving.changed():
                after = _peak(model, batches, settings, gpu, point, saving.batch)
            words = f"{saving.advice}: {gib(after)} instead of {gib(before)} for {shape}"
            alternatives.append(Alternative(saving.name, words, True, after, None, None))
    return alternatives


def _savings(model: Any, batches: SpeechBatches, point: Point) -> Iterator[Saving]:
    from ..loading.text_logits import ARGUMENT, cut_labels, keeps_logits

    if keeps_logits(model) and ARGUMENT not in (batch := batches(*point)) and ARGUMENT in cut_labels(batch):
        yield Saving(
            "logits of the text alone", "collator = text_logits_only(collator, model)",
            lambda *shape: cut_labels(batches(*shape)),
        )  # fmt: skip
    for name, part in frozen_normalised(model):
        advice = f"freeze(model.{name}), so that the guard can split batches that run out of memory"
        yield Saving(f"{name} in evaluation mode", advice, batches.batch, functools.partial(_eval, part))


def frozen_normalised(model: Any) -> Iterator[tuple[str, Any]]:
    """The largest parts of a model without trained parameters whose batch normalisation is in training mode."""
    from torch.nn.modules.batchnorm import _BatchNorm

    def is_one(module: Any) -> bool:
        untrained = not any(p.requires_grad for p in module.parameters())
        return untrained and any(isinstance(m, _BatchNorm) and _trains(m) for m in module.modules())

    inside, parent = bare(model), ""
    for name, module in inside.named_modules():
        if name and not (parent and name.startswith(f"{parent}.")) and is_one(module):
            parent = name
            yield name, module


def _trains(norm: Any) -> bool:
    """Whether a layer follows ``model.train()``; a frozen part overrides ``train``."""
    return "train" not in vars(norm) and bool(norm.training)


@contextlib.contextmanager
def _eval(part: Any) -> Iterator[None]:
    from .frozen_parts import freeze

    modes = [(module, module.training) for module in part.modules()]
    freeze(part)
    try:
        yield
    finally:
        del part.train
        for module, mode in modes:
            module.training = mode


def _peak(
    model: Any, batches: Any, settings: MemorySettings, gpu: str | None, point: Point, batch: BatchFunction
) -> int:
    from ..memory import MemoryModel

    per_second = batches.length_per_second
    options = {"gpu": gpu, "points": [point], "length_per_second": per_second, "progress": False}
    with MemoryModel.trace(model, batch, **asdict(settings), **options) as memory:
        estimate = memory.estimate(point[0], point[1] / per_second, point[2], timeline=0)
        return estimate.peak_device or estimate.peak_reserved
