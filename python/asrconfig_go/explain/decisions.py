"""The decisions of a plan, in groups, with the user's overrides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..view.units import exact

if TYPE_CHECKING:
    from ..plan.plan_record import PlanRecord
from ..plan.overrides import PREDICTED_FOR
from ..plan.plan_parts import Decision

_OTHER = "Other"
_GROUPS = {
    "Batch and memory": (
        "per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing",
        "every_n_layers", "offload_checkpoints", "micro_batching", "micro_batch_size", "micro_batch_overhead_s",
        "rule", "target_batch_size", "freeze_feature_encoder", "lora_rank", "per_device_eval_batch_size",
        "eval_accumulation_steps", "device_count", "distributed", "devices", "safety_margin",
        "gpu_memory_bytes", "budget_bytes", "model_memory_bytes", "predicted_bytes", "predicted_high_bytes",
        "memory_parts", "alloc_conf",
    ),
    "Precision and kernels": (
        "fp16", "bf16", "tf32", "attn_implementation", "torch_compile", "cudnn_benchmark", "deterministic",
    ),
    "Data and loader": (
        "length_handling", "length_buckets", "group_by_length", "max_length_s", "chunk_length_s", "streaming",
        "cache_dataset", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
        "dataloader_persistent_workers",
    ),
    "Optimizer": (
        "optimizer", "learning_rate", "lr_scaling", "warmup_ratio", "weight_decay", "max_grad_norm",
        "num_train_epochs",
    ),
    "Evaluation and checkpoints": (
        "eval_steps", "eval_samples", "save_steps",
    ),
}  # fmt: skip
_PLACE = {setting: (group, i) for group, settings in _GROUPS.items() for i, setting in enumerate(settings)}


@dataclass(frozen=True)
class DecisionRow:
    """A decision as it is shown. ``value`` is the setting's now, ``planned`` that of the plan."""

    group: str
    setting: str
    value: str
    planned: str
    reason: str
    alternative: str
    gain: str

    @property
    def overridden(self) -> bool:
        """Whether the user has changed it since it was planned."""
        return self.value != self.planned


def grouped(c: PlanRecord) -> dict[str, list[DecisionRow]]:
    """The rows by group, in the order in which they are read; groups without any are left out."""
    rows = sorted((_row(c, d) for d in c.decisions), key=lambda row: _PLACE.get(row.setting, ("", 0))[1])
    by_group = {group: [row for row in rows if row.group == group] for group in (*_GROUPS, _OTHER)}
    return {group: decisions for group, decisions in by_group.items() if decisions}


def overridden(c: PlanRecord) -> list[DecisionRow]:
    """What the user has changed."""
    return [row for d in c.decisions if (row := _row(c, d)).overridden]


def stale(c: PlanRecord) -> list[str]:
    """Overridden settings that the predictions do not know of."""
    return [row.setting for row in overridden(c) if row.setting in PREDICTED_FOR]


def _row(c: PlanRecord, d: Decision) -> DecisionRow:
    group = _PLACE.get(d.setting, (_OTHER, 0))[0]
    now = getattr(c, d.setting, ())
    # Lists are written by the planner alone, and a plan may decide on what is no setting: both are as planned.
    value = d.value if isinstance(now, tuple) else shown(d.setting, now)
    return DecisionRow(group, d.setting, value, d.value, d.reason, d.alternative, d.gain)


def shown(setting: str, value: Any) -> str:
    """A value as the planner writes it in its decisions."""
    if value is None:
        return "none"
    if setting.endswith("_bytes"):
        return exact(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
