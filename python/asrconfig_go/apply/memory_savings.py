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


@dataclass(frozen=True)
class _Traced:
    """What is traced: a model with the batches of its user's collator, as a plan has it, on ``gpu``."""

    model: Any
    batches: SpeechBatches
    plan: PlanRecord
    gpu: str | None
    new_rank: int


def memory_savings(traced: _Traced) -> list[Alternative]:
    """What would take less memory than the plan for its micro-batch of the longest clip, by traces with and without.

    Empty where nothing applies; then nothing is traced.
    """
    plan, batches = traced.plan, traced.batches
    pairs = batches.pairs()
    if not pairs:
        return []
    size = plan.micro_batch_size if plan.micro_batching == "memory" else plan.per_device_train_batch_size
    point = batches.real((size, *max(pairs)))  # the longest clip with its own text
    savings = list(_savings(traced.model, batches, point))
    if not savings:
        return []
    before, found = _peak(traced, batches.batch, point), []
    for saving in savings:
        with saving.changed():
            after = _peak(traced, saving.batch, point)
        seconds = point[1] / batches.length_per_second
        words = f"{saving.how}: {gib(after)} instead of {gib(before)} for {size} × {seconds:.3g} s"
        found.append(Alternative(saving.name, words, True, after, None, None))
    return found


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


def _peak(traced: _Traced, batch: BatchFunction, point: Point) -> int:
    from ..memory import MemoryModel

    plan, per_second = traced.plan, traced.batches.length_per_second
    with MemoryModel.trace(
        traced.model, batch, precision=plan.precision, gradient_checkpointing=plan.gradient_checkpointing,
        optimizer=plan.optimizer, accumulation=TRACED_MICRO_BATCHES, every_n_layers=plan.every_n_layers,
        offload_checkpoints=plan.offload_checkpoints, freeze_feature_encoder=plan.freeze_feature_encoder,
        lora_rank=traced.new_rank, gpu=traced.gpu, points=[point], length_per_second=per_second, progress=False,
    ) as memory:  # fmt: skip
        estimate = memory.estimate(point[0], point[1] / per_second, point[2], timeline=0)
        return estimate.peak_device or estimate.peak_reserved


def add_savings(model: Any, batches: Any, plan: PlanRecord, gpu: str | None, new_rank: int) -> None:
    """Append them to a plan's alternatives; where no rows tell its batches, or the changed one fails, there are none.

    ``new_rank`` is that of adapters that the model does not have yet.
    """
    if not hasattr(batches, "pairs"):
        return
    with contextlib.suppress(AsrConfigError):
        found = memory_savings(_Traced(model, batches, plan, gpu, new_rank))
        object.__setattr__(plan, "alternatives", (*plan.alternatives, *found))
