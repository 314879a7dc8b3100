"""The time of a step, and of a run, whose settings are all decided."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.checks import check_keywords, check_seconds, checked, checked_list
from .._core.declared import Optimizer, Precision
from .._core.defaults import ACCUMULATION, OPTIMIZER
from .._core.records import from_json, to_json
from ..predict.hardware import known_kernel_profiles, read_kernel_profile
from ..predict.memory_settings import MAX_BATCH, positive
from ..predict.model_profile import profile_model
from .plan_options import EvaluationOptions, EvaluationSettings
from .plan_records import RunTime, StepTime
from .step_calibration import recorded_step, usual_precision, work_of
from .traced_answers import decoder_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    """Estimate the time of one optimizer step: ``accumulation`` micro-batches of ``batch`` clips of ``seconds``.

    ``measured_s``: seconds of real steps of that shape, without the first few; the answer then has a ``calibration``
    that ``compare_gpus`` takes. ``gpu_profile``: as of ``CompareOptions``; kernels that were measured on the card
    count here as in plans, and the answer has their day as ``measured``.

    Raises ``NotFoundError`` for an unknown GPU or model, ``InvalidArgumentError`` for values out of range.

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
    """Estimate a run of ``steps`` optimizer steps, each of ``accumulation`` batches of ``batch`` clips a GPU.

    ``seconds``: of a clip, in training and evaluation. Without ``workers`` the GPU waits while its process prepares
    each batch, ``loader_rate`` seconds of audio per second (None: assumed). ``eval_steps`` and ``save_steps``:
    optimizer steps between evaluations of ``eval_samples`` clips and between checkpoints; 0, none. ``evaluation``: as
    in ``EvaluationOptions``; ``gpu_profile`` as in ``CompareOptions``. The planner estimates its runs by the same
    functions.

    Raises ``NotFoundError`` for an unknown GPU or model, ``InvalidArgumentError`` for values out of range.

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


def _request(model: object, *, gpu_profile: str | os.PathLike[str] | None, **settings: Any) -> dict[str, Any]:
    """A model and how it trains, as ``timing.step`` and ``timing.run`` take it, with what its recorded step runs."""
    request = {name: checked(name, value, _TYPES[name]) for name, value in settings.items()}
    request["precision"] = request["precision"] or usual_precision(request["gpu"])
    request["kernel_profile"] = None if gpu_profile is None else read_kernel_profile(gpu_profile)
    request["kernel_profiles"] = known_kernel_profiles()
    shape = positive("batch", request["batch"], MAX_BATCH), check_seconds("seconds", request["seconds"])
    recorded = {name: request[name] for name in _RECORDED}
    with recorded_step(model, request["gpu"], **recorded) as step:
        request |= {"work": work_of(step, *shape), "one": work_of(step, 1, shape[1])}
        request["decoder"] = decoder_of(step, shape[1])
    request["model"] = to_json(profile_model(model, freeze_feature_encoder=request["freeze_feature_encoder"]))
    return request


_RECORDED = (
    "precision", "gradient_checkpointing", "every_n_layers", "offload_checkpoints", "optimizer",
    "freeze_feature_encoder", "lora_rank",
)  # fmt: skip
