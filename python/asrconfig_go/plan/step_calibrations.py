"""Measured over estimated times of optimizer steps, kept for later estimates."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .._core import native
from .._core.checks import checked, listed
from .._core.declared import Precision
from .._core.files import read_json
from .._core.modules import installed_version, lora_rank as rank_of
from .._core.records import from_json
from .._core.settings import TRACED_MICRO_BATCHES
from ..errors import AsrConfigError
from ..predict.hardware import HardwareProfile, known_kernel_profiles
from ..predict.memory_model import open_model
from ..predict.memory_settings import MemorySettings, calibration_file, utc_day, write_calibration
from ..predict.model_profile import ModelProfile, profile_model
from .plan_records import StepCalibration
from .time_estimates import work_of

if TYPE_CHECKING:
    from pathlib import Path

_MAX_RECORDS = 64  # records of a model: cards and settings
_MAX_FACTOR, _MAX_STEPS = 1e3, 1 << 40  # in a file that is sound
_PLAUSIBLE = (0.02, 50.0)  # measured over estimated


@dataclass(frozen=True)
class MeasuredStep:
    """The seconds that an optimizer step took, with the clips and the padded seconds of each of its micro-batches."""

    micro_batches: tuple[tuple[int, float], ...]
    seconds: float


@dataclass(frozen=True)
class StepRecord:
    """One measurement of a training's optimizer steps, in ``padded_s`` seconds of audio, padding included.

    ``gpu`` is the driver's name, ``kernels`` as in ``StepCalibration``.
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
        """The calibration in the form that ``compare_gpus`` takes."""
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
    """Find what earlier trainings measured of a model's steps on a GPU.

    Only trainings with the installed version of torch count. Models of one architecture, width and depth that train the
    same share of their weights are one.

    Args:
        model: What ``compare_gpus`` takes.
        gpu: The GPU, a name of the catalogue.
        precision: The precision of the training; None for any.
        gradient_checkpointing: Whether the training used checkpointing; None for either.
        lora_rank: The rank of the training's adapters; 0 for none.
        freeze_feature_encoder: Whether the convolutional feature encoder did not train.

    Returns:
        The newest measurement; None where there is none.

    Raises:
        NotFoundError: The GPU or the model is not known.

    Example:
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
    """Return the newest calibration of each GPU, of a model that was counted."""
    oldest_first = reversed(_records(model))
    matching = (r for r in oldest_first if precision in (None, r.precision) and lora_rank == r.lora_rank)
    return {record.gpu: record.calibration for record in matching}


def calibrate_steps(
    model: object, gpu: str, settings: MemorySettings, steps: Iterable[MeasuredStep], *, devices: int = 1
) -> StepRecord:
    """Compare measured steps with the estimate for exactly their micro-batches.

    ``model`` is what ``estimate_step_time`` takes, ``devices`` how many of the GPU share a step. Raises errors as that.
    """
    measured = list(steps)
    shapes = sorted({shape for step in measured for shape in step.micro_batches})
    places = {shape: place for place, shape in enumerate(shapes)}
    new_rank = 0 if rank_of(model) else settings.lora_rank
    traced = dataclasses.replace(settings, accumulation=TRACED_MICRO_BATCHES, lora_rank=new_rank)
    with open_model(model, traced, gpu) as recorded:
        works = [work_of(recorded, clips, seconds) for clips, seconds in shapes]
    request = {
        "gpu": gpu if devices == 1 else f"{devices}x{gpu}",
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
    return StepRecord(
        gpu=_card(answer["gpu"]), precision=answer["precision"],
        gradient_checkpointing=settings.gradient_checkpointing is not False, lora_rank=settings.lora_rank,
        padded_s=answer["padded_s"], day=utc_day(), **answer["calibration"],
    )  # fmt: skip


def store_step_calibration(model: ModelProfile, record: StepRecord) -> bool:
    """Store a measurement in place of one with the same GPU and settings.

    Returns False where the cache cannot be written, or where the factor is implausible.
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
        records = [from_json(StepRecord, row) for row in rows]
    except AsrConfigError:
        return []
    cards = {gpu for gpu in {record.gpu for record in records} if _is_card(gpu)}
    tables = {(_card(table["gpu"]), table["date"]) for table in known_kernel_profiles()}
    records = [r for r in records if r.gpu in cards and 0 < r.low <= r.factor <= r.high < _MAX_FACTOR]
    records = [r for r in records if 0 < r.steps < _MAX_STEPS]
    return [r for r in records if not r.kernels or (r.gpu, r.kernels) in tables]


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
    return calibration_file("step", size, installed_version("torch"))


def _card(gpu: str) -> str:
    return HardwareProfile.detect(gpu).gpu_name
