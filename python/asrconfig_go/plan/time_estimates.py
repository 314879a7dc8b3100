"""Estimated time of a step and of a run whose settings are decided."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.checks import check_keywords, check_seconds, checked, checked_list
from .._core.declared import Optimizer, Precision
from .._core.records import from_json, to_json
from .._core.settings import ACCUMULATION, OPTIMIZER, TRACED_MICRO_BATCHES
from ..predict.hardware import HardwareProfile, known_kernel_profiles, read_kernel_profile
from ..predict.memory_model import MemoryModel, open_model
from ..predict.memory_settings import MAX_ACCUMULATION, MAX_BATCH, MemorySettings, positive
from ..predict.model_profile import profile_model
from .plan_options import EvaluationOptions, EvaluationSettings
from .plan_records import RunTime, StepTime
from .traced_answers import decoder_of

if TYPE_CHECKING:
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


def _request(model: object, *, gpu_profile: str | os.PathLike[str] | None, **asked: Any) -> dict[str, Any]:
    """A model and how it trains, as ``timing.step`` and ``timing.run`` take it, with what its recorded step runs."""
    request = {name: checked(name, value, _TYPES[name]) for name, value in asked.items()}
    request["precision"] = request["precision"] or usual_precision(request["gpu"])
    positive("accumulation", request["accumulation"], MAX_ACCUMULATION)
    request["kernel_profile"] = None if gpu_profile is None else read_kernel_profile(gpu_profile)
    request["kernel_profiles"] = known_kernel_profiles()
    shape = positive("batch", request["batch"], MAX_BATCH), check_seconds("seconds", request["seconds"])
    settings = MemorySettings(**{name: request[name] for name in _RECORDED}, accumulation=TRACED_MICRO_BATCHES)
    with open_model(model, settings, request["gpu"]) as step:
        request |= {"work": work_of(step, *shape), "one": work_of(step, 1, shape[1])}
        request["decoder"] = decoder_of(step, shape[1])
    request["model"] = to_json(profile_model(model, freeze_feature_encoder=request["freeze_feature_encoder"]))
    return request


def work_of(step: MemoryModel, batch: int, seconds: float) -> dict[str, Any]:
    """Return what one micro-batch runs, as ``timing.step`` takes it."""
    return {name: value for name, value in step.work(batch, seconds).items() if name != "unknown"}


def usual_precision(gpu: str) -> Precision:
    """Return the precision that suits a GPU: bfloat16 where it has it, float16 where that is fast."""
    card = HardwareProfile.detect(gpu).gpus[0]
    return "bf16" if card.bf16 else "fp32" if card.tensor_tflops is None else "fp16"
