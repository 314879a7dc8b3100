"""Estimated time of a step and of a run whose settings are decided, and measured over estimated times, kept."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.checks import check_keywords, check_seconds, checked, checked_list, listed
from .._core.declared import Optimizer, Precision
from .._core.defaults import ACCUMULATION, OPTIMIZER, TRACED_MICRO_BATCHES
from .._core.files import read_json
from .._core.modules import installed_version, lora_rank as rank_of
from .._core.records import from_json, to_json
from ..errors import AsrConfigError
from ..predict.hardware import HardwareProfile, known_kernel_profiles, read_kernel_profile
from ..predict.memory_model import MemoryModel
from ..predict.memory_settings import MAX_ACCUMULATION, MAX_BATCH, calibration_file, positive, write_calibration
from ..predict.model_profile import ModelProfile, profile_model
from ..trace.model import Model
from .plan_options import EvaluationOptions, EvaluationSettings
from .plan_records import RunTime, StepCalibration, StepTime
from .traced_answers import decoder_of

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

_MACHINE = ("gpu", "precision", "optimizer", "kernel_profile", "kernel_profiles")
_RUN = (
    "model", "work", "one", "decoder", "batch", "seconds", "accumulation", "steps", "workers", "loader_rate",
    "eval_steps", "eval_batch", "save_steps",
)  # fmt: skip
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("gpu", "optimizer"), str),
    **dict.fromkeys(("batch", "every_n_layers", "accumulation", "lora_rank", "steps", "workers"), int),
    **dict.fromkeys(("eval_steps", "eval_batch", "save_steps"), int),
    **dict.fromkeys(("gradient_checkpointing", "offload_checkpoints", "freeze_feature_encoder"), bool),
    "seconds": float, "precision": Precision | None, "loader_rate": float | None,
}  # fmt: skip
_RECORDED = (
    "precision", "gradient_checkpointing", "every_n_layers", "offload_checkpoints", "optimizer",
    "freeze_feature_encoder", "lora_rank",
)  # fmt: skip
_MAX_RECORDS = 64  # records of a model: cards and settings
_MAX_FACTOR, _MAX_STEPS = 1e3, 1 << 40  # in a file that is sound
_PLAUSIBLE = (0.02, 50.0)  # measured over estimated


def estimate_step_time(
    model: object,
    gpu: str,
    *,
    batch: int,
    seconds: float,
    precision: Precision | None = None,
    gradient_checkpointing: bool = False,
    every_n_layers: int = 1,
    offload_checkpoints: bool = False,
    accumulation: int = ACCUMULATION,
    optimizer: Optimizer = OPTIMIZER,
    freeze_feature_encoder: bool = False,
    lora_rank: int = 0,
    gpu_profile: str | os.PathLike[str] | None = None,
    measured_s: Iterable[float] | None = None,
) -> StepTime:
    """Estimate the time of one optimizer step.

    Args:
        model: A known name, a folder with ``config.json``, a transformers config, or a live module.
        gpu: The GPU, a name of the catalogue such as ``"T4"`` or ``"2xA100-40GB"``.
        batch: The clips of a micro-batch, 1 to 65536.
        seconds: The seconds to which its clips are padded.
        precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``; None for what suits the GPU.
        gradient_checkpointing: Whether layers are computed again in the backward pass.
        every_n_layers: With checkpointing, one of so many layers is computed again.
        offload_checkpoints: Whether what checkpointing saves is kept in pinned host memory.
        accumulation: The micro-batches of the step, 1 to 65536.
        optimizer: The optimizer, by the Trainer's name.
        freeze_feature_encoder: Whether the convolutional feature encoder does not train.
        lora_rank: The rank of adapters that train in place of the model; 0 for none.
        gpu_profile: The file of ``asrconfig profile-gpu`` with the measured kernels of this GPU; None for the one in
            the cache folder. The answer names the day of that measurement as ``measured``.
        measured_s: The seconds of real steps of this shape, without the first few. The answer then has a
            ``calibration``, which ``compare_gpus`` takes.

    Returns:
        The time and its parts.

    Raises:
        NotFoundError: The GPU or the model is not known.
        InvalidArgumentError: A value is out of range.

    Example:
        >>> step = estimate_step_time("wav2vec2-base", "T4", batch=4, seconds=10)
        >>> step.step_s.low < step.step_s.likely < step.step_s.high
        True
    """
    request = _request(
        model, gpu=gpu, batch=batch, seconds=seconds, precision=precision,
        gradient_checkpointing=gradient_checkpointing, every_n_layers=every_n_layers,
        offload_checkpoints=offload_checkpoints,
        accumulation=accumulation, optimizer=optimizer, freeze_feature_encoder=freeze_feature_encoder,
        lora_rank=lora_rank, gpu_profile=gpu_profile,
    )  # fmt: skip
    request = {name: request[name] for name in (*_MACHINE, "work", "accumulation")}
    request["measured_s"] = None if measured_s is None else checked_list("measured_s", measured_s, float)
    return from_json(StepTime, native.call("timing.step", request))


def estimate_run_time(
    model: object,
    gpu: str,
    *,
    steps: int,
    batch: int,
    seconds: float,
    precision: Precision | None = None,
    gradient_checkpointing: bool = False,
    every_n_layers: int = 1,
    offload_checkpoints: bool = False,
    accumulation: int = ACCUMULATION,
    optimizer: Optimizer = OPTIMIZER,
    freeze_feature_encoder: bool = False,
    lora_rank: int = 0,
    gpu_profile: str | os.PathLike[str] | None = None,
    workers: int = 0,
    loader_rate: float | None = None,
    eval_steps: int = 0,
    eval_batch: int | None = None,
    save_steps: int = 0,
    **evaluation: Unpack[EvaluationSettings],
) -> RunTime:
    """Estimate the time of a run: training, evaluations, checkpoints and the start.

    The planner estimates its runs by the same functions.

    Args:
        model: A known name, a folder with ``config.json``, a transformers config, or a live module.
        gpu: The GPU, a name of the catalogue such as ``"T4"`` or ``"2xA100-40GB"``.
        steps: The optimizer steps of the run, 1 to 10⁹.
        batch: The clips of a GPU's micro-batch, 1 to 65536.
        seconds: The seconds of a clip, in training and evaluation.
        precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``; None for what suits the GPU.
        gradient_checkpointing: Whether layers are computed again in the backward pass.
        every_n_layers: With checkpointing, one of so many layers is computed again.
        offload_checkpoints: Whether what checkpointing saves is kept in pinned host memory.
        accumulation: The micro-batches of a step, 1 to 65536.
        optimizer: The optimizer, by the Trainer's name.
        freeze_feature_encoder: Whether the convolutional feature encoder does not train.
        lora_rank: The rank of adapters that train in place of the model; 0 for none.
        gpu_profile: The file of ``asrconfig profile-gpu`` with the measured kernels of this GPU; None for the one in
            the cache folder.
        workers: The loader workers of each GPU, 0 to 1024. With 0 the GPU waits while its process prepares each batch.
        loader_rate: The seconds of audio that a loader worker prepares per second; None for an assumed rate.
        eval_steps: The optimizer steps between evaluations; 0 for none. Evaluations require ``eval_samples``.
        eval_batch: The clips of a GPU's evaluation batch; None for ``batch``.
        save_steps: The optimizer steps between checkpoints; 0 for none.
        evaluation: Fields of ``EvaluationOptions``. ``eval_samples`` are the clips of each evaluation.

    Returns:
        The time and its parts.

    Raises:
        NotFoundError: The GPU or the model is not known.
        InvalidArgumentError: A value is out of range, or there are evaluations without ``eval_samples``.

    Example:
        >>> shape = {"batch": 16, "seconds": 10}
        >>> run = estimate_run_time("whisper-small", "T4", steps=4000, eval_steps=1000, eval_samples=500, **shape)
        >>> run.run_parts.evaluation.likely < run.run_parts.training.likely < run.run_hours.likely
        True
    """
    check_keywords(evaluation, EvaluationSettings.__annotations__, "estimate_run_time")
    request = _request(
        model, gpu=gpu, batch=batch, seconds=seconds, precision=precision,
        gradient_checkpointing=gradient_checkpointing, every_n_layers=every_n_layers,
        offload_checkpoints=offload_checkpoints,
        accumulation=accumulation, optimizer=optimizer, freeze_feature_encoder=freeze_feature_encoder,
        lora_rank=lora_rank, gpu_profile=gpu_profile, steps=steps, workers=workers,
        loader_rate=loader_rate, eval_steps=eval_steps, eval_batch=batch if eval_batch is None else eval_batch,
        save_steps=save_steps,
    )  # fmt: skip
    request = {name: request[name] for name in (*_MACHINE, *_RUN)}
    return from_json(RunTime, native.call("timing.run", request | vars(EvaluationOptions(**evaluation))))


def _request(model: object, *, gpu_profile: str | os.PathLike[str] | None, **settings: Any) -> dict[str, Any]:
    """A model and how it trains, as ``timing.step`` and ``timing.run`` take it, with what its recorded step runs."""
    request = {name: checked(name, value, _TYPES[name]) for name, value in settings.items()}
    request["precision"] = request["precision"] or usual_precision(request["gpu"])
    positive("accumulation", request["accumulation"], MAX_ACCUMULATION)
    request["kernel_profile"] = None if gpu_profile is None else read_kernel_profile(gpu_profile)
    request["kernel_profiles"] = known_kernel_profiles()
    shape = positive("batch", request["batch"], MAX_BATCH), check_seconds("seconds", request["seconds"])
    recorded = {name: request[name] for name in _RECORDED}
    with recorded_step(model, request["gpu"], **recorded) as step:
        request |= {"work": work_of(step, *shape), "one": work_of(step, 1, shape[1])}
        request["decoder"] = decoder_of(step, shape[1])
    request["model"] = to_json(profile_model(model, freeze_feature_encoder=request["freeze_feature_encoder"]))
    return request


def recorded_step(model: object, gpu: str, *, freeze_feature_encoder: bool = False, **settings: Any) -> MemoryModel:
    """Return a recorded training step, opened for questions: one of the package, an earlier one, or a new one."""
    source = Model.of(model, freeze_feature_encoder)
    wanted = {**settings, "freeze_feature_encoder": freeze_feature_encoder, "accumulation": TRACED_MICRO_BATCHES}
    recording = MemoryModel.of_known(source.label, gpu=gpu, record=None, **wanted)
    return recording or MemoryModel.trace(source, gpu=gpu, progress=False, **wanted)


def work_of(step: MemoryModel, batch: int, seconds: float) -> dict[str, Any]:
    """Return what one micro-batch runs, as ``timing.step`` takes it."""
    return {name: value for name, value in step.work(batch, seconds).items() if name != "unknown"}


def usual_precision(gpu: str) -> Precision:
    """Return the precision that suits a GPU: bfloat16 where it has it, float16 where that is fast."""
    card = HardwareProfile.detect(gpu).gpus[0]
    return "bf16" if card.bf16 else "fp32" if card.tensor_tflops is None else "fp16"


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
    """A measured optimizer step.

    Attributes:
        micro_batches: The clips and the padded seconds of each micro-batch.
        seconds: The seconds that the step took.
    """

    micro_batches: tuple[tuple[int, float], ...]
    seconds: float


@dataclass(frozen=True)
class StepRecord:
    """One measurement of a training's optimizer steps.

    Attributes:
        gpu: The driver's name of the GPU.
        padded_s: The seconds of audio that were computed, padding included.
        kernels: As in ``StepCalibration``.
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


def calibrate_steps(model: object, gpu: str, settings: StepSettings, steps: Iterable[MeasuredStep]) -> StepRecord:
    """Compare measured steps with the estimate for exactly their micro-batches.

    Args:
        model: What ``estimate_step_time`` takes.
        gpu: The GPU.
        settings: The settings of the training.
        steps: The measured steps.

    Returns:
        The measurement.

    Raises:
        AsrConfigError: As ``estimate_step_time``.
    """
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
    """Store a measurement in place of one with the same GPU and settings.

    Args:
        model: The profile of the model.
        record: The measurement.

    Returns:
        Whether it was stored; it is not where the cache cannot be written, or where the factor is implausible.
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
