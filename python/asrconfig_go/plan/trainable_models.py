"""The known models that can be trained on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .._core.checks import checked
from .._core.declared import Precision
from .._core.defaults import LORA_RANK, SAFETY_MARGIN, TRACED_MICRO_BATCHES
from .._core.records import to_json
from .._core.render import Shown
from ..errors import InvalidArgumentError, NotFoundError
from ..predict.hardware import HardwareProfile, check_margin
from ..predict.memory_model import MemoryModel
from ..predict.model_profile import ModelProfile, known_models, profile_model
from ..predict.recordings import recorded_models
from .plan_records import Remedy
from .time_estimates import usual_precision


@dataclass(frozen=True)
class TrainableModel:
    """What a model takes of a GPU at a micro-batch of one clip with gradient checkpointing."""

    name: str
    parameters: int
    full: Remedy
    eight_bit: Remedy
    lora: Remedy


@dataclass(frozen=True, repr=False)
class LargestModels(Shown, kind="largest models"):
    """The known models on one GPU, the largest first."""

    gpu: str
    budget_bytes: int
    seconds: float
    lora_rank: int
    models: tuple[TrainableModel, ...]

    def largest(self, method: str = "full") -> TrainableModel | None:
        """The largest that fits with ``method`` ``"full"``, ``"eight_bit"`` or ``"lora"``; None where none does."""
        if method not in ("full", "eight_bit", "lora"):
            raise InvalidArgumentError(f"method = {method!r} is not known", "choose full, eight_bit or lora")
        return next((model for model in self.models if getattr(model, method).fits), None)

    def to_dict(self) -> dict[str, object]:
        """Everything as plain data."""
        return dict(to_json(self))


def largest_models(
    gpu: str,
    family: str = "",
    *,
    seconds: float = 15.0,
    lora_rank: int = LORA_RANK,
    precision: Precision | None = None,
    safety_margin: float = SAFETY_MARGIN,
) -> LargestModels:
    """Return the known models that can be fine-tuned on ``gpu``: fully, with an 8-bit optimizer, with LoRA.

    They are those of which a recording comes with the package. ``family`` is a part of the names to look at, such as
    ``"whisper"`` or ``"xls-r"``; ``seconds`` the longest clip. What the 8-bit optimizer and LoRA take is about the
    recorded peak without the state that they do not keep.

    Raises ``NotFoundError`` for an unknown GPU and for a family without a model.

    >>> found = largest_models("T4", "whisper-t")
    >>> [model.name for model in found.models]
    ['openai/whisper-tiny']
    """
    for name, value in (("seconds", seconds), ("lora_rank", lora_rank)):
        if not checked(name, value, float) > 0:
            raise InvalidArgumentError(f"{name} = {value!r} is too small", "give a number above 0")
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
    return LargestModels(card.name, budget, float(seconds), lora_rank, tuple(models))


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
                fixed = memory.about.get("fixed_length")
                longest = min(seconds, fixed / memory.length_per_second) if fixed else seconds
                peaks[file] = memory.estimate(1, longest, timeline=0).peak_device or 0
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
