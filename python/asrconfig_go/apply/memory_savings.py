"""Changes to a training's batches and model that the planner cannot make, each with the memory that a trace shows."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._base.defaults import TRACED_MICRO_BATCHES
from .._base.errors import AsrConfigError
from .._base.wrapped_model import bare
from ..plan.plan_parts import Alternative
from ..view.units import gib

if TYPE_CHECKING:
    from ..plan.plan_record import PlanRecord
    from ..trace import SpeechBatches

Point = tuple[int, int, int]  # batch, length, labels
BatchFunction = Callable[[int, int, int], dict[str, Any]]


@dataclass(frozen=True)
class Saving:
    """A change, how to make it, and what to trace in place of the plan's batches and model."""

    name: str
    how: str
    batch: BatchFunction
    changed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def add_savings(model: Any, batches: Any, plan: PlanRecord, gpu: str | None, new_rank: int) -> None:
    """Append to a plan's alternatives what would take less memory for its micro-batch of the longest clip.

    By traces with and without each change, of batches as the user's collator makes them. There are none where no rows
    tell its batches, or the changed one fails. ``new_rank`` is that of adapters that the model does not have yet.
    """
    with contextlib.suppress(AsrConfigError):
        pairs = batches.pairs() if hasattr(batches, "pairs") else []
        if not pairs:
            return
        size = plan.micro_batch_size if plan.micro_batching == "memory" else plan.per_device_train_batch_size
        point = batches.real((size, *max(pairs)))  # the longest clip with its own text
        savings = list(_savings(model, batches, point))
        if not savings:
            return
        per_second = batches.length_per_second
        peak = functools.partial(_peak, model, plan, gpu, new_rank, per_second, point)
        before, found = peak(batches.batch), []
        for saving in savings:
            with saving.changed():
                after = peak(saving.batch)
            words = f"{saving.how}: {gib(after)} instead of {gib(before)} for {size} × {point[1] / per_second:.3g} s"
            found.append(Alternative(saving.name, words, True, after, None, None))
        object.__setattr__(plan, "alternatives", (*plan.alternatives, *found))


def _savings(model: Any, batches: SpeechBatches, point: Point) -> Iterator[Saving]:
    from ..loading.text_logits import ARGUMENT, cut_labels, keeps_logits

    if keeps_logits(model) and ARGUMENT not in (batch := batches(*point)) and ARGUMENT in cut_labels(batch):
        yield Saving(
            "logits of the text alone", "collator = text_logits_only(collator, model)",
            lambda *shape: cut_labels(batches(*shape)),
        )  # fmt: skip
    for name, part in frozen_normalised(model):
        how = f"freeze(model.{name}), so that the guard can split batches that run out of memory"
        yield Saving(f"{name} in evaluation mode", how, batches.batch, functools.partial(_eval, part))


def frozen_normalised(model: Any) -> Iterator[tuple[str, Any]]:
    """The largest parts of a model without trained parameters whose batch normalisation is in training mode."""
    from torch.nn.modules.batchnorm import _BatchNorm

    def is_one(module: Any) -> bool:
        untrained = not any(p.requires_grad for p in module.parameters())
        return untrained and any(isinstance(m, _BatchNorm) and _trains(m) for m in module.modules())

    inside, taken = bare(model), ""
    for name, module in inside.named_modules():
        if name and not (taken and name.startswith(f"{taken}.")) and is_one(module):
            taken = name
            yield name, module


def _trains(norm: Any) -> bool:
    """Whether a layer follows ``model.train()``: a frozen part has a ``train`` of its own."""
    return "train" not in vars(norm) and bool(norm.training)


@contextlib.contextmanager
def _eval(part: Any) -> Iterator[None]:
    """A part frozen for as long as a trace takes, and then as it was."""
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
    model: Any, plan: PlanRecord, gpu: str | None, new_rank: int, per_second: float, point: Point, batch: BatchFunction
) -> int:
    from ..memory import MemoryModel

    with MemoryModel.trace(
        model, batch, precision=plan.precision, gradient_checkpointing=plan.gradient_checkpointing,
        optimizer=plan.optimizer, accumulation=TRACED_MICRO_BATCHES, every_n_layers=plan.every_n_layers,
        offload_checkpoints=plan.offload_checkpoints, freeze_feature_encoder=plan.freeze_feature_encoder,
        lora_rank=new_rank, gpu=gpu, points=[point], length_per_second=per_second, progress=False,
    ) as memory:  # fmt: skip
        estimate = memory.estimate(point[0], point[1] / per_second, point[2], timeline=0)
        return estimate.peak_device or estimate.peak_reserved
