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
from .._core.modules import can_offload_checkpoints, has_any_depth
from .._core.records import json_fields
from .._core.settings import OPTIMIZER, SAFETY_MARGIN, TARGET_BATCH_SIZE
from ..predict.hardware import check_margin, read_kernel_profile
from .plan_record import PlanRecord


class EvaluationSettings(TypedDict, total=False):
    """The fields of ``EvaluationOptions`` as keywords of plans and comparisons."""

    eval_samples: int | None
    max_eval_share: float | None
    predict_with_generate: bool | None
    generation_max_length: int | None
    num_beams: int | None


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """How a run is evaluated.

    Attributes:
        eval_samples: The clips of the evaluation set; 0 for no evaluation, None for a tenth of those trained on.
        max_eval_share: The share of the training's time that evaluations may take, above 0 to 1; None for 0.1.
        predict_with_generate: Whether evaluations generate texts, of models that can; None for True.
        generation_max_length: The most tokens of a generated text; None for 225.
        num_beams: The beams of a generation, 1 to 1024; None for 1.
    """

    eval_samples: int | None = None
    max_eval_share: float | None = None
    predict_with_generate: bool | None = None
    generation_max_length: int | None = None
    num_beams: int | None = None


class PlanSettings(EvaluationSettings, total=False):
    """The fields of ``PlanOptions`` as keywords of ``create_optimal_config``."""

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
    """What is asked of a plan. None leaves a setting to the planner.

    Types are checked here, ranges when the plan is made. The fields from ``precision`` on, and those of
    ``EvaluationOptions``, are for policy ``"fastest"`` alone.

    Attributes:
        target_batch_size: The clips of an optimizer step, 1 to 65536.
        safety_margin: The share of GPU memory that the plan may use, 0.70 to 0.95.
        policy: ``"fastest"``, a search for the least predicted time, or ``"published"``, a formula, for comparison.
        preset: ``"balanced"``, ``"speed"`` or ``"reproducible"`` (docs/plans.md).
        optimizer: The optimizer, by the Trainer's name.
        lr_scaling: How the learning rate follows the batch size: ``"sqrt"``, ``"linear"`` or ``"none"``.
        base_learning_rate: The learning rate at ``base_batch_size``, above 0 and at most 1; None for 2e-5.
        base_batch_size: The batch size that ``base_learning_rate`` is for, 1 to 65536; None for 8.
        num_train_epochs: The passes over the data, above 0 and at most 10000; None for 3.
        seed: The seed of the training, 0 to 2³² - 1; None for 42.
        device_count: The GPUs that share an optimizer step, 1 to 1024; None for those present.
        preprocessing: ``"heavy"`` where the loader has much to do with a clip: it then gets more workers than with
            ``"light"``.
        rule: What the loss divides by, for the guard: ``"mean"`` (clips), ``"token_mean"``, ``"shifted_token_mean"``,
            ``"sum"``, or a function from a batch to a number. With None only steps of models whose loss is known are
            split by predicted memory. A function is not saved with the plan: pass it to ``manager.attach`` of a plan
            that was loaded.
        precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``.
        gradient_checkpointing: Whether layers are computed again in the backward pass.
        every_n_layers: With checkpointing, one of so many layers is computed again, 1 to 65536; above 1 requires
            transformers 5.23.
        offload_checkpoints: Whether what checkpointing saves is kept in pinned host memory; requires transformers 5.23.
        length_handling: The order of clips: ``"random"``, ``"grouped"``, ``"stratified"`` or ``"bucketed"``
            (docs/batching.md).
        max_length_s: The seconds of the longest clip to train on; longer ones are left out.
        distributed: How several GPUs share the model: ``"ddp"``, ``"zero1"``, ``"zero2"``, ``"zero3"`` or ``"fsdp"``.
        lora_rank: The rank of adapters beside queries and values that train in place of the model, as ``add_lora``
            makes them, at most 65536; 0 for none.
        loader_rate: The seconds of audio that a loader worker prepares per second; None for the measured or an assumed
            rate.
        price_usd_hour: The dollars per hour of one GPU; None for the price of ``gpu_prices``.
        gpu_profile: The file of ``asrconfig profile-gpu`` with the measured kernels of this GPU; None for the one in
            the cache folder.

    Example:
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
        """Check all ranges, and options that exclude each other.

        Raises:
            InvalidArgumentError: No plan can be made with a value.
        """
        native.call("plan.check", self.given())

    def given(self) -> dict[str, Any]:
        """Return the options that are not left to the policy, as the library takes them."""
        settings = {name: value for name, value in vars(self).items() if value is not None and name != "gpu_profile"}
        settings |= {"rule": "given"} if callable(self.rule) else {}
        settings |= {"any_depth": has_any_depth(), "can_offload": can_offload_checkpoints()}
        if self.gpu_profile is not None:
            settings["kernel_profile"] = read_kernel_profile(self.gpu_profile)
        return settings
