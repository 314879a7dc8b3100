"""Records of GPU comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._core.checks import RowKind
from .._core.records import Range, to_json
from .._core.render import Shown
from ..errors import InvalidArgumentError
from ..predict.model_profile import ModelProfile
from .plan_parts import PlannedRunParts, PlannedStepParts


@dataclass(frozen=True)
class Price:
    """Dollars per hour of one GPU, with the provider, the date (year and month) and the source."""

    gpu: str
    usd_per_hour: float
    provider: str
    date: str
    source: str


@dataclass(frozen=True)
class Remedy:
    """A change, and the bytes that the training would then take of one GPU."""

    what: str
    peak_bytes: int
    fits: bool


@dataclass(frozen=True)
class StepCalibration:
    """Measured over predicted time of ``steps`` steps: the median, the fastest and the slowest tenth.

    ``kernels`` is the day on which kernels of the card were measured that the predicted times rest on, "" for none.
    """

    factor: float
    low: float
    high: float
    steps: int
    kernels: str = ""


@dataclass(frozen=True)
class GPUPlan:
    """The plan for one GPU, or for ``count`` of them; sizes are bytes of one.

    The settings are those of the plan for that machine: ``micro_batching`` ``"memory"`` says that the guard splits each
    step (``manager.attach``). ``largest_batch`` is about the largest micro-batch that would fit.
    ``peak_bytes`` is the predicted peak for a batch of the longest clips, the CUDA context included; times, cost and
    energy are None when it does not fit, cost also without a price, energy also without a known board power. ``bound``
    names the largest part of the time, of those in ``parts`` or the loader. ``remedies`` are changes with which it
    would fit.
    """

    gpu: str
    count: int
    memory_bytes: int
    budget_bytes: int
    unverified: bool
    fits: bool
    precision: str
    gradient_checkpointing: bool
    every_n_layers: int
    offload_checkpoints: bool
    optimizer: str
    lora_rank: int
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    effective_batch_size: int
    largest_batch: int
    peak_bytes: int
    micro_batching: str
    length_handling: str
    parts: PlannedStepParts | None
    step_s: Range | None
    epoch_hours: Range | None
    run_hours: Range | None
    run_parts: PlannedRunParts | None
    audio_rate: Range | None
    bound: str
    calibrated: bool
    measured: str
    price: Price | None
    cost_usd: Range | None
    energy_kwh: Range | None
    cheapest: bool
    fastest: bool
    notes: tuple[str, ...]
    remedies: tuple[Remedy, ...]

    @property
    def name(self) -> str:
        """``"T4"``, ``"2 × T4"``."""
        return self.gpu if self.count == 1 else f"{self.count} × {self.gpu}"


@dataclass(frozen=True, repr=False)
class Comparison(Shown, kind="comparison"):
    """One training on several GPUs, in the order asked for. Seconds, hours of audio, bytes, dollars.

    ``row_kind`` ``"texts"`` says that what is trained on are texts, ``clips`` of them, and 50 tokens count as a second.
    """

    model: ModelProfile
    row_kind: RowKind
    clips: int
    hours: float
    longest_s: float
    target_batch_size: int
    epochs: float
    rows: tuple[GPUPlan, ...]
    assumptions: tuple[str, ...]

    @property
    def cheapest(self) -> GPUPlan | None:
        """The plan with the lowest likely cost; None where no price is known."""
        return next((row for row in self.rows if row.cheapest), None)

    @property
    def fastest(self) -> GPUPlan | None:
        """The plan that likely ends first; None where none fits."""
        return next((row for row in self.rows if row.fastest), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return dict(to_json(self))


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

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return dict(to_json(self))


@dataclass(frozen=True)
class RunTime:
    """The time of a run; ``step_s`` is of an optimizer step, the loader's part in it.

    ``measured`` is the day on which kernels of the card were measured that it rests on, "" for none.
    """

    gpu: str
    precision: str
    step_s: Range
    run_hours: Range
    run_parts: PlannedRunParts
    """Hours that add up to it."""
    measured: str


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step; with measured steps, scaled by their ``calibration``.

    ``measured`` is the day on which kernels of the card were measured that they rest on, "" for none.
    """

    gpu: str
    precision: str
    step_s: Range
    parts: PlannedStepParts
    measured: str
    calibration: StepCalibration | None
