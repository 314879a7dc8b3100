"""The options of a plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypedDict, get_type_hints

from .._core import native
from .._core.checks import check_keywords, checked
from .._core.declared import (
    Distributed,
    LengthHandling,
    LRScaling,
    PlannedOptimizer,
    Policy,
    Precision,
    Preprocessing,
    Preset,
    WeightRule,
)
from .._core.defaults import OPTIMIZER, SAFETY_MARGIN, TARGET_BATCH_SIZE
from .._core.modules import can_offload_checkpoints, has_any_depth
from .._core.records import json_fields
from ..predict.hardware import check_margin, read_kernel_profile
from .plan_record import PlanRecord


class EvaluationSettings(TypedDict, total=False):
    """What plans and comparisons take of ``EvaluationOptions`` by keyword."""

    eval_samples: int | None
    max_eval_share: float | None
    predict_with_generate: bool | None
    generation_max_length: int | None
    num_beams: int | None


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """How a run is evaluated.

    ``eval_samples``: clips of the evaluation set; 0, none; None, a tenth of those trained on. ``max_eval_share``: of
    the training's time that evaluations may take, above 0 to 1; None for 0.1. Of models that generate
    ``predict_with_generate`` (None for True), ``generation_max_length`` in tokens (None for 225) and ``num_beams``
    (None for 1).
    """

    eval_samples: int | None = None
    max_eval_share: float | None = None
    predict_with_generate: bool | None = None
    generation_max_length: int | None = None
    num_beams: int | None = None


class PlanSettings(EvaluationSettings, total=False):
    """What ``create_optimal_config`` takes of ``PlanOptions`` by keyword."""

    policy: Policy
    preset: Preset
    optimizer: PlannedOptimizer
    lr_scaling: LRScaling
    base_learning_rate: float | None
    base_batch_size: int | None
    num_train_epochs: float | None
    seed: int | None
    device_count: int | None
    preprocessing: Preprocessing
    precision: Precision | None
    gradient_checkpointing: bool | None
    every_n_layers: int | None
    offload_checkpoints: bool | None
    length_handling: LengthHandling | None
    max_length_s: float | None
    distributed: Distributed | None
    lora_rank: int
    loader_rate: float | None
    price_usd_hour: float | None
    gpu_profile: str | os.PathLike[str] | None
    rule: WeightRule | Callable[[Any], Any] | None


@dataclass(frozen=True)
class PlanOptions(EvaluationOptions):
    """What the user asked for; ranges are checked when the plan is made.

    ``policy`` ``"fastest"`` (a search for the least predicted time) or ``"published"`` (a formula, for comparison);
    ``preset`` ``"balanced"``, ``"speed"`` or ``"reproducible"``; ``optimizer`` by the Trainer's name; ``lr_scaling``
    ``"sqrt"``, ``"linear"`` or ``"none"`` from ``base_learning_rate`` at ``base_batch_size``; ``preprocessing``
    ``"light"`` or ``"heavy"`` decides on workers; ``rule`` (``"mean"``, ``"token_mean"``, ``"shifted_token_mean"``,
    ``"sum"``, or a function from a batch to a number) is what the loss divides by, for the guard: without it only
    steps of models whose loss is known are split by predicted memory. A function is not saved with the plan: pass it to
    ``manager.attach`` of a plan that was loaded. Of policy ``"fastest"`` alone: ``precision`` (``"fp32"``, ``"fp16"``,
    ``"bf16"``), ``gradient_checkpointing``, ``every_n_layers`` (of which checkpointing computes one again; above 1
    with transformers from 5.23 on), ``offload_checkpoints`` (what checkpointing saves lies in pinned host memory; with
    transformers from 5.23 on), ``length_handling`` (``"random"``, ``"grouped"``, ``"stratified"`` or ``"bucketed"``),
    ``max_length_s`` (longer clips are left out), ``distributed`` (how several GPUs share the model: ``"ddp"``,
    ``"zero1"``, ``"zero2"``, ``"zero3"``, ``"fsdp"``), ``lora_rank`` (above 0 trains adapters of that rank beside
    queries and values, as ``add_lora`` makes them, in place of the model), ``loader_rate`` (seconds of audio that a
    worker prepares per second), ``price_usd_hour`` (of one GPU), ``gpu_profile`` (the table of kernels that ``asrconfig
    profile-gpu`` measured on this card; None takes the one in the cache folder). Those of ``EvaluationOptions``, too.
    None leaves it to the policy.

    >>> PlanOptions(target_batch_size=64, preset="reproducible").optimizer
    'adamw_torch_fused'
    >>> PlanOptions(preset="fast")
    Traceback (most recent call last):
    InvalidArgumentError: preset = 'fast' is not one of 'balanced', 'speed', 'reproducible'
    """

    target_batch_size: int = TARGET_BATCH_SIZE
    safety_margin: float = SAFETY_MARGIN
    policy: Policy = "fastest"
    preset: Preset = "balanced"
    optimizer: PlannedOptimizer = OPTIMIZER
    lr_scaling: LRScaling = "sqrt"
    base_learning_rate: float | None = None
    base_batch_size: int | None = None
    num_train_epochs: float | None = None
    seed: int | None = None
    device_count: int | None = None
    preprocessing: Preprocessing = "light"
    precision: Precision | None = None
    gradient_checkpointing: bool | None = None
    every_n_layers: int | None = None
    offload_checkpoints: bool | None = None
    length_handling: LengthHandling | None = None
    max_length_s: float | None = None
    distributed: Distributed | None = None
    lora_rank: int = 0
    loader_rate: float | None = None
    price_usd_hour: float | None = None
    gpu_profile: str | os.PathLike[str] | None = None
    rule: WeightRule | Callable[[Any], Any] | None = None

    def __new__(cls, *_: Any, **settings: Any) -> PlanOptions:
        """Refuse unknown names with the likely one."""
        check_keywords(settings, [f.name for f in fields(cls)], cls.__name__, json_fields(PlanRecord))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if name not in ("gpu_profile", "rule"):  # the former is checked when it is read
                checked(name, getattr(self, name), hint)
        if not callable(self.rule):
            checked("rule", self.rule, WeightRule | None)
        check_margin(self.safety_margin)

    def check(self) -> None:
        """Raise ``InvalidArgumentError`` for a value that no plan can be made with."""
        native.call("plan.check", self.given())

    def given(self) -> dict[str, Any]:
        """What is not left to the policy, as the library takes it."""
        settings = {name: value for name, value in vars(self).items() if value is not None and name != "gpu_profile"}
        settings |= {"rule": "given"} if callable(self.rule) else {}
        settings |= {"any_depth": has_any_depth(), "can_offload": can_offload_checkpoints()}
        if self.gpu_profile is not None:
            settings["kernel_profile"] = read_kernel_profile(self.gpu_profile)
        return settings
