"""Measured over estimated step times of a model on a GPU, kept between sessions for comparisons."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.checks import checked, listed
from .._core.declared import Optimizer, Precision
from .._core.defaults import OPTIMIZER, TRACED_MICRO_BATCHES
from .._core.files import read_json
from .._core.modules import lora_rank as rank_of
from .._core.records import from_json
from ..errors import AsrConfigError
from ..predict.hardware import HardwareProfile, known_kernel_profiles
from ..predict.memory_model import MemoryModel
from ..predict.memory_settings import calibration_file, torch_version, write_calibration
from ..predict.model_profile import ModelProfile, profile_model
from ..trace.model import Model
from .plan_records import StepCalibration

if TYPE_CHECKING:
    from pathlib import Path


def recorded_step(model: object, gpu: str, *, freeze_feature_encoder: bool = False, **settings: Any) -> MemoryModel:
    """One opened for questions: one that comes with the package, an earlier one, or a new one."""
    source = Model.of(model, freeze_feature_encoder)
    wanted = {**settings, "freeze_feature_encoder": freeze_feature_encoder, "accumulation": TRACED_MICRO_BATCHES}
    recording = MemoryModel.of_known(source.label, gpu=gpu, record=None, **wanted)
    return recording or MemoryModel.trace(source, gpu=gpu, progress=False, **wanted)


def work_of(step: MemoryModel, batch: int, seconds: float) -> dict[str, Any]:
    """What one micro-batch runs, as ``timing.step`` takes it."""
    return {name: value for name, value in step.work(batch, seconds).items() if name != "unknown"}


def usual_precision(gpu: str) -> Precision:
    """What suits a card: bfloat16 where it has it, float16 where that is fast."""
    card = HardwareProfile.detect(gpu).gpus[0]
    return "bf16" if card.bf16 else "fp32" if card.tensor_tflops is None else "fp16"


_MAX_RECORDS = 64  # records of a model: cards and settings
_MAX_FACTOR, _MAX_STEPS = 1e3, 1 << 40  # in a file that is sound
_PLAUSIBLE = (0.02, 50.0)  # measured over estimated


@dataclass(frozen=True)
class StepSettings:
    """The settings of a measurement, besides the model, the GPU and the version of torch."""

    precision: Precision
    gradient_checkpointing: bool
    optimizer: Optimizer = OPTIMIZER
    lora_rank: int = 0
    devices: int = 1
    every_n_layers: int = 1
    offload_checkpoints: bool = False


@dataclass(frozen=True)
class MeasuredStep:
    """An optimizer step: ``micro_batches`` of (clips, padded seconds), and the seconds that it took."""

    micro_batches: tuple[tuple[int, float], ...]
    seconds: float


@dataclass(frozen=True)
class StepRecord:
    """One measurement. ``gpu`` is the driver's name of the card; ``padded_s`` the audio that was computed.

    ``kernels`` is that of ``StepCalibration``.
    """

    gpu: str
    precision: str
    gradient_checkpointing: bool
    lora_rank: int
    factor: float
    low: float
    high: float
    steps: int
    padded_s: float
    day: str
    kernels: str

    @property
    def calibration(self) -> StepCalibration:
        """As ``compare_gpus`` takes it."""
        return StepCalibration(self.factor, self.low, self.high, self.steps, self.kernels)


def find_step_calibration(
    model: object,
    gpu: str,
    *,
    precision: Precision | None = None,
    gradient_checkpointing: bool | None = None,
    lora_rank: int = 0,
    freeze_feature_encoder: bool = False,
) -> StepCalibration | None:
    """What earlier trainings with the installed torch measured of ``model`` on ``gpu``; None when there was none.

    ``model`` is what ``compare_gpus`` takes; models of one architecture, width and depth that train the same share of
    their weights are one. With None of ``precision`` and ``gradient_checkpointing`` the newest measurement with any
    counts. Raises ``NotFoundError`` for an unknown GPU or model.

    >>> find_step_calibration("wav2vec2-base", "H200") is None  # nothing was trained here
    True
    """
    counted = profile_model(model, freeze_feature_encoder=freeze_feature_encoder)
    card = _card(checked("gpu", gpu, str))
    for record in _records(counted):
        matches = precision in (None, record.precision) and lora_rank == record.lora_rank
        matches = matches and gradient_checkpointing in (None, record.gradient_checkpointing)
        if matches and record.gpu == card:
            return record.calibration
    return None


def known_calibrations(model: ModelProfile, precision: str | None, lora_rank: int) -> dict[str, StepCalibration]:
    """The newest of each card, of a model that was counted."""
    newest: dict[str, StepCalibration] = {}
    for record in _records(model):
        if precision in (None, record.precision) and lora_rank == record.lora_rank:
            newest.setdefault(record.gpu, record.calibration)
    return newest


def calibrate_steps(model: object, gpu: str, settings: StepSettings, steps: Iterable[MeasuredStep]) -> StepRecord:
    """Compare measured steps with the estimate for exactly their micro-batches. Raises as ``estimate_step_time``."""
    measured = list(steps)
    shapes = sorted({shape for step in measured for shape in step.micro_batches})
    places = {shape: place for place, shape in enumerate(shapes)}
    with recorded_step(
        model, gpu, precision=settings.precision, gradient_checkpointing=settings.gradient_checkpointing,
        every_n_layers=settings.every_n_layers, offload_checkpoints=settings.offload_checkpoints,
        optimizer=settings.optimizer, lora_rank=0 if rank_of(model) else settings.lora_rank,
    ) as recorded:  # fmt: skip
        works = [work_of(recorded, clips, seconds) for clips, seconds in shapes]
    request = {
        "gpu": gpu if settings.devices == 1 else f"{settings.devices}x{gpu}",
        "precision": settings.precision,
        "optimizer": settings.optimizer,
        "kernel_profiles": known_kernel_profiles(),
        "shapes": [
            {"clips": clips, "seconds": seconds, "work": work}
            for (clips, seconds), work in zip(shapes, works, strict=True)
        ],
        "steps": [
            {"micro_batches": [places[shape] for shape in step.micro_batches], "measured_s": step.seconds}
            for step in measured
        ],
    }
    answer = native.call("timing.calibrate", request)
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    return StepRecord(
        gpu=_card(answer["gpu"]), precision=answer["precision"], gradient_checkpointing=settings.gradient_checkpointing,
        lora_rank=settings.lora_rank, padded_s=answer["padded_s"], day=today, **answer["calibration"],
    )  # fmt: skip


def store_step_calibration(model: ModelProfile, record: StepRecord) -> bool:
    """Store a measurement in place of one with the same card and settings; returns whether it was stored.

    It is not where the cache cannot be written, or where the factor is implausible.
    """
    if not _PLAUSIBLE[0] < record.factor < _PLAUSIBLE[1]:
        return False
    others = [other for other in _records(model) if _settings(other) != _settings(record)]
    with contextlib.suppress(OSError):
        write_calibration(_file(model), [asdict(other) for other in [record, *others][:_MAX_RECORDS]])
        return True
    return False


def _settings(record: StepRecord) -> tuple[str, str, bool, int]:
    return record.gpu, record.precision, record.gradient_checkpointing, record.lora_rank


def _records(model: ModelProfile) -> list[StepRecord]:
    """The stored records of a model, the newest first; empty where the file is broken.

    Records that rest on a table of kernels that no longer exists are left out.
    """
    path = _file(model)
    try:
        rows = listed("records", read_json(path, "calibration", ""))
        records = [from_json(StepRecord, {"kernels": "", **row} if isinstance(row, dict) else row) for row in rows]
    except AsrConfigError:
        return []
    cards = {gpu for gpu in {record.gpu for record in records} if _is_card(gpu)}
    tables = {(_card(table["gpu"]), table["date"]) for table in known_kernel_profiles()}
    records = [r for r in records if r.gpu in cards and _is_sound(r)]
    return [r for r in records if not r.kernels or (r.gpu, r.kernels) in tables]


def _is_sound(record: StepRecord) -> bool:
    return 0 < record.low <= record.factor <= record.high < _MAX_FACTOR and 0 < record.steps < _MAX_STEPS


def _is_card(gpu: str) -> bool:
    """Whether the library can plan for it: one unknown name would make it refuse all."""
    try:
        return bool(gpu) and _card(gpu) == gpu
    except AsrConfigError:
        return False


def _file(model: ModelProfile) -> Path:
    """The file of a model; vocabularies and heads, which differ between its trainings, do not count."""
    trainable = model.total_parameters if model.trainable_parameters is None else model.trainable_parameters
    trained = round(trainable / max(1, model.total_parameters), 2)
    size = json.dumps([model.architecture, model.hidden_size, model.layers, trained])
    return calibration_file("step", size, torch_version())


def _card(gpu: str) -> str:
    return HardwareProfile.detect(gpu).gpu_name
