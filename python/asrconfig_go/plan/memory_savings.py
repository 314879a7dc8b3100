"""Changes to a training that save memory, with the memory that a trace shows for each; the largest models that fit."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core.checks import checked
from .._core.declared import Precision
from .._core.modules import bare
from .._core.records import to_json
from .._core.render import Shown, gib
from .._core.settings import SAFETY_MARGIN, TRACED_MICRO_BATCHES
from ..errors import AsrConfigError, InfeasiblePlanError, InvalidArgumentError, NotFoundError
from ..predict.hardware import HardwareProfile, check_margin
from ..predict.memory_model import MemoryModel
from ..predict.model_profile import ModelProfile, known_models, profile_model
from ..predict.recordings import recorded_models
from .model_preparation import ARGUMENT, cut_labels, freeze, keeps_logits
from .plan_record import RECOMPUTING, PlanRecord
from .plan_records import Alternative, Remedy
from .time_estimates import usual_precision

if TYPE_CHECKING:
    import torch

    from ..trace.made_up_batches import BatchFunction, Point, SpeechBatches


@dataclass(frozen=True)
class Saving:
    """A change to a training, and how to trace it.

    ``advice`` says how to make it. ``batch`` makes the batches in place of the plan's, and within the context of
    ``changed`` the model is as the change would leave it.
    """

    name: str
    advice: str
    batch: BatchFunction
    changed: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def add_savings(model: torch.nn.Module, batches: Any, plan: PlanRecord, gpu: str | None, new_rank: int) -> None:
    """Append to a plan's alternatives the changes that would save memory for its micro-batch of the longest clips.

    Each is traced with batches of the user's collator. None is added without collated rows, nor any after the first
    that cannot be traced. ``new_rank`` is the rank of adapters that the model does not have yet.
    """
    size = plan.micro_batch_size if plan.micro_batching == "memory" else plan.per_device_train_batch_size
    names = ("precision", "optimizer", "freeze_feature_encoder", *RECOMPUTING)
    settings = {name: getattr(plan, name) for name in names} | {"accumulation": TRACED_MICRO_BATCHES}
    settings |= {"lora_rank": new_rank, "gpu": gpu, "devices": plan.device_count}
    savings = _traced(model, batches, settings, size)
    object.__setattr__(plan, "alternatives", (*plan.alternatives, *savings))


def savings_in_hint(error: InfeasiblePlanError, model: torch.nn.Module, batches: Any, settings: dict[str, Any]) -> None:
    """Append the same changes, traced for one of the longest clips, to the hint of a training that does not fit."""
    error.hint += "".join(f"\n  · {saving.what}" for saving in _traced(model, batches, settings, 1))


def _traced(model: torch.nn.Module, batches: Any, settings: dict[str, Any], size: int) -> list[Alternative]:
    alternatives: list[Alternative] = []
    if not hasattr(batches, "pairs"):
        return alternatives
    with contextlib.suppress(AsrConfigError):
        if not (pairs := batches.pairs()):
            return alternatives
        point = batches.real((size, *max(pairs)))  # the longest clip with its own text
        shape = f"{size} × {point[1] / batches.length_per_second:.3g} s"
        before: int | None = None
        for saving in list(_savings(model, batches, point)):  # all found before one of them changes the model
            before = before or _peak(model, batches, settings, point, batches.batch)
            with saving.changed():
                after = _peak(model, batches, settings, point, saving.batch)
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
        yield Saving(f"{name} in evaluation mode", advice, batches.batch, functools.partial(_frozen, part))


def frozen_normalised(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The untrained parts of a model whose batch normalisation is in training mode, with their names.

    A part is a module without trained parameters that is not inside another such module.
    """
    from torch.nn.modules.batchnorm import _BatchNorm

    def qualifies(module: torch.nn.Module) -> bool:
        untrained = not any(p.requires_grad for p in module.parameters())
        return untrained and any(isinstance(m, _BatchNorm) and _in_training_mode(m) for m in module.modules())

    found = ""  # the newest part; the modules inside it come next
    for name, module in bare(model).named_modules():
        if name and not (found and name.startswith(f"{found}.")) and qualifies(module):
            found = name
            yield name, module


def _in_training_mode(norm: torch.nn.Module) -> bool:
    """Whether a layer is in training mode, and not one that ``freeze`` keeps as it is by its own ``train``."""
    return "train" not in vars(norm) and bool(norm.training)


@contextlib.contextmanager
def _frozen(part: torch.nn.Module) -> Iterator[None]:
    """Freeze a part of the model for the block."""
    from ..predict.probe import modes_kept

    with modes_kept(part):
        freeze(part)
        try:
            yield
        finally:
            del part.train


def _peak(model: torch.nn.Module, batches: Any, settings: dict[str, Any], point: Point, batch: BatchFunction) -> int:
    per_second = batches.length_per_second
    options = {"points": [point], "length_per_second": per_second, "progress": False}
    with MemoryModel.trace(model, batch, **settings, **options) as memory:
        estimate = memory.estimate(point[0], point[1] / per_second, point[2], timeline=0)
        return estimate.peak_device or estimate.peak_reserved


@dataclass(frozen=True)
class TrainableModel:
    """What a model takes of a GPU, for a micro-batch of one clip with gradient checkpointing.

    Attributes:
        name: The model's full name.
        parameters: The number of its parameters.
        full: All parameters train, with AdamW.
        eight_bit: All parameters train, with 8-bit AdamW.
        lora: Adapters train, with AdamW.
    """

    name: str
    parameters: int
    full: Remedy
    eight_bit: Remedy
    lora: Remedy


@dataclass(frozen=True, repr=False)
class LargestModels(Shown, kind="largest models"):
    """The known models on one GPU, the largest first.

    Attributes:
        gpu: The name of the GPU.
        budget_bytes: The memory that a training may use.
        seconds: The seconds of the longest clip.
        models: The models, those that do not fit among them.
    """

    gpu: str
    budget_bytes: int
    seconds: float
    models: tuple[TrainableModel, ...]

    def largest(self, method: str = "full") -> TrainableModel | None:
        """Return the largest model that fits.

        Args:
            method: How it trains: ``"full"``, ``"eight_bit"`` or ``"lora"``.

        Returns:
            The model; None where none fits.

        Raises:
            InvalidArgumentError: ``method`` is something else.
        """
        if method not in ("full", "eight_bit", "lora"):
            raise InvalidArgumentError(f"method = {method!r} is not known", "choose full, eight_bit or lora")
        return next((model for model in self.models if getattr(model, method).fits), None)

    def to_dict(self) -> dict[str, object]:
        """Return the models as a JSON object."""
        return dict(to_json(self))


def largest_models(
    gpu: str,
    family: str = "",
    *,
    seconds: float = 15.0,
    precision: Precision | None = None,
    safety_margin: float = SAFETY_MARGIN,
) -> LargestModels:
    """Return the known models that can be fine-tuned on a GPU: fully, with an 8-bit optimizer, with LoRA.

    They are the models of which a recording comes with the package. What the 8-bit optimizer and LoRA take is about the
    recorded peak, less the gradients and optimizer state that they do without; the adapters themselves are not counted.

    Args:
        gpu: The GPU, a name of the catalogue such as ``"T4"``.
        family: A part of the names to look at, such as ``"whisper"`` or ``"xls-r"``; ``""`` for all.
        seconds: The seconds of the longest clip.
        precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``; None for what suits the GPU.
        safety_margin: The share of GPU memory to use, 0.70 to 0.95.

    Returns:
        The models, the largest first.

    Raises:
        NotFoundError: The GPU is not in the catalogue, or the family has no model.
        InvalidArgumentError: A value is out of range.

    Example:
        >>> found = largest_models("T4", "whisper-t")
        >>> [model.name for model in found.models]
        ['openai/whisper-tiny']
    """
    if not checked("seconds", seconds, float) > 0:
        raise InvalidArgumentError(f"seconds = {seconds!r} is too small", "pass a number above 0")
    checked("precision", precision, Precision | None)
    card = HardwareProfile.detect(checked("gpu", gpu, str)).gpus[0]
    check_margin(safety_margin)
    budget = int(safety_margin * card.memory_total_bytes)
    precision = precision or usual_precision(gpu)
    models = list(_trainable(gpu, checked("family", family, str), float(seconds), precision, budget))
    if not models:
        raise NotFoundError(
            f"no recorded model has {family!r} in its name", "try whisper, xls-r, wav2vec2, hubert, wavlm or mms"
        )
    models.sort(key=lambda model: -model.parameters)
    return LargestModels(card.name, budget, float(seconds), tuple(models))


def _trainable(gpu: str, family: str, seconds: float, precision: Precision, budget: int) -> Iterator[TrainableModel]:
    peaks: dict[str, int] = {}  # by the file of the recording, which equal models share
    for name, file in recorded_models().items():
        if family.lower() not in name.lower() or name not in known_models():
            continue
        if file not in peaks:
            recording = MemoryModel.of_known(
                name, gpu=gpu, record=False, precision=precision, gradient_checkpointing=True,
                accumulation=TRACED_MICRO_BATCHES,
            )  # fmt: skip
            if recording is None:
                continue
            with recording as memory:
                peaks[file] = memory.estimate(1, min(seconds, memory.longest_s), timeline=0).peak_device or 0
        yield _ways(name, profile_model(name), peaks[file], budget)


def _ways(name: str, model: ModelProfile, peak: int, budget: int) -> TrainableModel:
    state = model.optimizer_bytes
    saved = {
        "every parameter, AdamW": 0,
        "every parameter, 8-bit AdamW": state["adamw"] - state["adamw_8bit"],
        "LoRA, AdamW": state["adamw"] + (model.gradient_bytes or 0),
    }
    ways = [Remedy(label, peak - less, peak - less <= budget) for label, less in saved.items()]
    return TrainableModel(name, model.total_parameters, *ways)
