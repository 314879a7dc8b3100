"""Changes to a training's batches and model that save memory, each with the memory that a trace shows."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .._core.defaults import TRACED_MICRO_BATCHES
from .._core.modules import bare
from .._core.render import gib
from ..errors import AsrConfigError, InfeasiblePlanError, InvalidArgumentError, UnsupportedError
from .plan_records import Alternative

if TYPE_CHECKING:
    import torch

    from ..predict.memory_settings import MemorySettings
    from ..trace.made_up_batches import BatchFunction, Point, SpeechBatches
    from .plan_record import PlanRecord


@dataclass(frozen=True)
class Saving:
    """A change, the advice how to make it, and what to trace in place of the plan's batches and model."""

    name: str
    advice: str
    batch: BatchFunction
    changed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def add_savings(model: torch.nn.Module, batches: Any, plan: PlanRecord, gpu: str | None, new_rank: int) -> None:
    """Append to a plan's alternatives changes that would take less memory for its micro-batch of the longest clips.

    Each is traced with batches of the user's collator; without collated rows, and after one that cannot be traced, none
    is added. ``new_rank`` is the rank of adapters that the model does not have yet.
    """
    from ..predict.memory_settings import MemorySettings

    size = plan.micro_batch_size if plan.micro_batching == "memory" else plan.per_device_train_batch_size
    settings = MemorySettings(
        plan.precision, plan.gradient_checkpointing, plan.optimizer, TRACED_MICRO_BATCHES, plan.freeze_feature_encoder,
        every_n_layers=plan.every_n_layers, offload_checkpoints=plan.offload_checkpoints, lora_rank=new_rank,
    )  # fmt: skip
    savings = _traced(model, batches, settings, gpu, size)
    object.__setattr__(plan, "alternatives", (*plan.alternatives, *savings))


def savings_in_hint(
    error: InfeasiblePlanError, model: torch.nn.Module, batches: Any, settings: MemorySettings, gpu: str | None
) -> None:
    """Append the same changes, traced for one of the longest clips, to the remedies of a training that does not fit."""
    error.hint += "".join(f"\n  · {saving.what}" for saving in _traced(model, batches, settings, gpu, 1))


def _traced(
    model: torch.nn.Module, batches: Any, settings: MemorySettings, gpu: str | None, size: int
) -> list[Alternative]:
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


def _savings(model: torch.nn.Module, batches: SpeechBatches, point: Point) -> Iterator[Saving]:

    if keeps_logits(model) and ARGUMENT not in (batch := batches(*point)) and ARGUMENT in cut_labels(batch):
        yield Saving(
            "logits of the text alone", "collator = text_logits_only(collator, model)",
            lambda *shape: cut_labels(batches(*shape)),
        )  # fmt: skip
    for name, part in frozen_normalised(model):
        advice = f"freeze(model.{name}), so that the guard can split batches that run out of memory"
        yield Saving(f"{name} in evaluation mode", advice, batches.batch, functools.partial(_eval, part))


def frozen_normalised(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The largest parts of a model without trained parameters whose batch normalisation is in training mode."""
    from torch.nn.modules.batchnorm import _BatchNorm

    def is_one(module: torch.nn.Module) -> bool:
        untrained = not any(p.requires_grad for p in module.parameters())
        return untrained and any(isinstance(m, _BatchNorm) and _trains(m) for m in module.modules())

    inside, parent = bare(model), ""
    for name, module in inside.named_modules():
        if name and not (parent and name.startswith(f"{parent}.")) and is_one(module):
            parent = name
            yield name, module


def _trains(norm: torch.nn.Module) -> bool:
    """Whether a layer follows ``model.train()``; a frozen part overrides ``train``."""
    return "train" not in vars(norm) and bool(norm.training)


@contextlib.contextmanager
def _eval(part: torch.nn.Module) -> Iterator[None]:

    modes = [(module, module.training) for module in part.modules()]
    freeze(part)
    try:
        yield
    finally:
        del part.train
        for module, mode in modes:
            module.training = mode


def _peak(
    model: torch.nn.Module, batches: Any, settings: MemorySettings, gpu: str | None, point: Point, batch: BatchFunction
) -> int:
    from ..predict.memory_model import MemoryModel

    per_second = batches.length_per_second
    options = {"gpu": gpu, "points": [point], "length_per_second": per_second, "progress": False}
    with MemoryModel.trace(model, batch, **asdict(settings), **options) as memory:
        estimate = memory.estimate(point[0], point[1] / per_second, point[2], timeline=0)
        return estimate.peak_device or estimate.peak_reserved


def freeze(part: torch.nn.Module) -> torch.nn.Module:
    """Keep ``part`` of a model as it is for the whole training, and return it: ``freeze(model.encoder)``.

    Its parameters get no gradient, and it stays in evaluation mode when the Trainer puts the model into training mode:
    no dropout, no masks, no dropped layers, and batch normalisation by its running statistics instead of those of the
    clips of a batch. So a step that ran out of memory can be computed again in smaller micro-batches, which the guard
    refuses while batch normalisation is in training mode. Call it before the plan, which then counts what is left.

    Args:
        part: A module of the model, or all of it before adapters are added.

    Raises:
        InvalidArgumentError: It is no torch module.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> model = small_model(tokens=12, seed=0)
        >>> freeze(model.wav2vec2.encoder).training, model.train().wav2vec2.encoder.training, model.training
        (False, False, True)
    """
    if not callable(getattr(part, "requires_grad_", None)) or not callable(getattr(part, "eval", None)):
        raise InvalidArgumentError(
            f"cannot freeze a {type(part).__name__}", "pass a module of the model, such as model.encoder"
        )
    part.requires_grad_(False)
    part.eval()
    part.train = functools.partial(_stay, part)  # what model.train() calls for each of its parts; can be pickled
    return part


def _stay(part: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
    """Replaces ``torch.nn.Module.train`` of a frozen part."""
    return part


ARGUMENT = "logits_to_keep"  # of forward, in transformers
_IGNORED = -100


@dataclass(frozen=True)
class TextLogitsCollator:
    """The batches of another collator, whose model computes logits from the first label that counts on: see
    ``text_logits_only``."""

    collator: Callable[[Any], Any]

    def __call__(self, rows: Any) -> Any:
        """A batch as ``collator`` makes it, with the columns of ``labels`` that count and ``logits_to_keep``."""
        return cut_labels(self.collator(rows))


def text_logits_only(collator: Callable[[Any], Any], model: torch.nn.Module) -> TextLogitsCollator:
    """Wrap a collator so that an audio language model computes logits for its text alone; the loss stays the same.

    A model's logits are as wide as its vocabulary, and take several copies of that in fp32 in the loss. Of a sequence
    of prompt, audio and text, the labels of the first two are -100, and so their logits are wasted: the wrapped
    collator cuts these labels off, and passes ``logits_to_keep``. Give the result to the plan and to the Trainer.

    Args:
        collator: Makes batches with ``labels`` as wide as ``input_ids``, -100 where no label counts.
        model: The model that is trained, also in PEFT's wrapper.

    Returns:
        A collator; it can be pickled where ``collator`` can.

    Raises:
        UnsupportedError: The model's ``forward`` takes no ``logits_to_keep``.

    Example:
        >>> import torch
        >>> class Decoder(torch.nn.Module):
        ...     def forward(self, input_ids, labels, logits_to_keep=0): ...
        >>> batch = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "labels": torch.tensor([[-100, -100, -100, 8]])}
        >>> text_logits_only(lambda rows: batch, Decoder())([])["logits_to_keep"]
        2
    """
    if not keeps_logits(model):
        raise UnsupportedError(
            f"forward of {type(bare(model)).__name__} takes no {ARGUMENT}: its logits are computed for every token",
            "leave the collator as it is, or upgrade transformers",
        )
    return TextLogitsCollator(collator)


def keeps_logits(model: torch.nn.Module) -> bool:
    """Whether a model's forward computes logits for the last tokens alone, if it is asked to."""
    forward = getattr(bare(model), "forward", None)
    return callable(forward) and ARGUMENT in inspect.signature(forward).parameters


def cut_labels(batch: Any) -> Any:
    """A batch without the labels before the first that counts, and with ``logits_to_keep``; others as they are.

    Logits predict the next token, so that those of the token before count, too.
    """
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    if labels is None or ARGUMENT in batch or labels.dim() != 2:
        return batch
    counted = (labels != _IGNORED).any(0).nonzero()
    first = int(counted[0]) if len(counted) else 0
    if first < 2:  # nothing to save
        return batch
    count = labels.shape[1] - first + 1
    return {**batch, "labels": labels[:, -count:], ARGUMENT: count}
