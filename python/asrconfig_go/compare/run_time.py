"""The time of a run whose settings are all decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._base import native
from .._base.checks import checked
from .._base.choices import Attention, Optimizer, Precision
from .._base.defaults import ACCUMULATION, OPTIMIZER
from .._base.records import from_json
from ..plan.plan_options import EvaluationOptions, EvaluationSettings
from .comparison_records import RunTime

if TYPE_CHECKING:
    from typing_extensions import Unpack


def estimate_run_time(
    model: Any,
    gpu: str,
    *,
    steps: int,
    batch: int,
    seconds: float,
    precision: Precision | None = None,
    gradient_checkpointing: bool = False,
    accumulation: int = ACCUMULATION,
    optimizer: Optimizer = OPTIMIZER,
    freeze_feature_encoder: bool = False,
    lora_rank: int = 0,
    attention: Attention = "sdpa",
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
    in ``EvaluationOptions``. The planner estimates its runs by the same functions.

    Raises ``NotFoundError`` for an unknown GPU or model, ``InvalidArgumentError`` for values out of range.

    >>> shape = {"batch": 16, "seconds": 10}
    >>> run = estimate_run_time("whisper-small", "T4", steps=4000, eval_steps=1000, eval_samples=500, **shape)
    >>> run.run_parts.evaluation.likely < run.run_parts.training.likely < run.run_hours.likely
    True
    """
    from ..memory.model_source import analytic_request

    request = {
        "model": analytic_request(model, freeze_feature_encoder),
        "gpu": checked("gpu", gpu, str),
        "steps": checked("steps", steps, int),
        "batch": checked("batch", batch, int),
        "seconds": checked("seconds", seconds, float),
        "precision": precision or "",
        "checkpointing": gradient_checkpointing,
        "accumulation": checked("accumulation", accumulation, int),
        "optimizer": optimizer,
        "freeze_feature_encoder": freeze_feature_encoder,
        "lora_rank": checked("lora_rank", lora_rank, int),
        "attention": attention,
        "workers": checked("workers", workers, int),
        "loader_rate": checked("loader_rate", loader_rate, float | None),
        "eval_steps": checked("eval_steps", eval_steps, int),
        "eval_batch": checked("eval_batch", batch if eval_batch is None else eval_batch, int),
        "save_steps": checked("save_steps", save_steps, int),
        **vars(EvaluationOptions(**evaluation)),
    }
    return from_json(RunTime, native.call("timing.run", request))
