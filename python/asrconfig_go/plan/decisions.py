"""The decisions of a plan with what it was made from: settings, loss, memory."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._core.render import exact
from ..data.label_rules import Limits, limits_of
from ..data.labels import LabelReport
from ..data.profile import DatasetProfile
from ..errors import AsrConfigError, InvalidArgumentError
from ..predict.hardware import HardwareProfile
from ..predict.model_profile import ModelProfile
from ..trace.model import Model
from .plan_parts import Decision, MemoryPart
from .plan_record import PREDICTED_FOR, PlanRecord

if TYPE_CHECKING:
    from ..predict.predict_records import GPU


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


_KINDS: dict[str, tuple[type, str]] = {
    "config": (PlanRecord, "TrainingConfig"),  # what people know it as
    "hardware": (HardwareProfile, "HardwareProfile"),
    "dataset": (DatasetProfile, "DatasetProfile"),
    "model": (ModelProfile, "ModelProfile"),
    "labels": (LabelReport, "LabelReport"),
}


@dataclass(frozen=True, repr=False)
class ExplainedPlan:
    """A plan with its inputs; all but ``config`` may be unknown.

    ``config`` is copied: later overrides do not change it. ``labels`` is what ``check_labels`` found, and
    ``model_config`` the model's ``config.json`` as a dictionary; cautions about labels, losses and evaluation rest on
    them. ``guarded``: whether the training will have the guard, which ``manager.train`` and ``asrconfig train`` attach.
    """

    config: PlanRecord
    hardware: HardwareProfile | None = None
    dataset: DatasetProfile | None = None
    model: ModelProfile | None = None
    labels: LabelReport | None = None
    model_config: Mapping[str, Any] | None = None
    guarded: bool = True

    def __post_init__(self) -> None:
        for name, (kind, called) in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and (name == "config" or value is not None):
                raise InvalidArgumentError(
                    f"{name} = {type(value).__name__} is not a {called}", "pass what the function of that name gave"
                )
        object.__setattr__(self, "config", copy.copy(self.config))


@dataclass(frozen=True)
class PlannedMemory:
    """Bytes of one device. ``parts`` add up to the peak; ``others_bytes`` were in use before the training.

    ``total_bytes`` and ``budget_bytes`` are None where a plan does not have them; ``high_bytes`` where no orders were
    simulated.
    """

    parts: tuple[MemoryPart, ...]
    peak_bytes: int
    high_bytes: int | None
    budget_bytes: int | None
    total_bytes: int | None
    others_bytes: int


def memory_of(e: ExplainedPlan) -> PlannedMemory:
    """Read it from the plan and, for what others hold and for a CPU's RAM, from the hardware."""
    c = e.config
    total, others = c.gpu_memory_bytes, 0
    if e.hardware is not None:
        if c.gpu_name:
            others = max((_others(gpu) for gpu in _planned_for(c, e.hardware)), default=0)
        else:
            total = e.hardware.memory.total_bytes
            others = total - e.hardware.memory.available_bytes
    parts = _parts(c)
    peak = max(c.predicted_bytes, sum(part.bytes for part in parts))
    return PlannedMemory(parts, peak, c.predicted_high_bytes, c.budget_bytes or None, total, others)


def _parts(c: PlanRecord) -> tuple[MemoryPart, ...]:
    """The plan's, completed to its peak; where a policy has none, the model and the rest."""
    if not c.memory_parts:
        if not 0 < c.model_memory_bytes < c.predicted_bytes:
            return (MemoryPart("training", c.predicted_bytes),) if c.predicted_bytes else ()
        clips = c.predicted_bytes - c.model_memory_bytes
        return MemoryPart("model and optimizer", c.model_memory_bytes), MemoryPart("activations", clips)
    parts = tuple(part for part in c.memory_parts if part.bytes > 0)
    other = c.predicted_bytes - sum(part.bytes for part in parts)
    return (*parts, MemoryPart("other", other)) if other > 0 else parts


def _planned_for(c: PlanRecord, h: HardwareProfile) -> list[GPU]:
    return [gpu for gpu in h.gpus if gpu.name == c.gpu_name and gpu.memory_total_bytes == c.gpu_memory_bytes]


def _others(gpu: GPU) -> int:
    """What is taken, without what this process holds; 0 of a GPU from the catalogue."""
    if gpu.memory_free_bytes is None:
        return 0
    own = sum(p.memory_bytes or 0 for p in gpu.processes if p.pid == os.getpid())
    return max(0, gpu.memory_total_bytes - gpu.memory_free_bytes - own)


_TOKENS = 40  # of a text in an evaluation whose labels were not counted: about ten seconds of speech


def config_of(model: Any) -> dict[str, Any] | None:
    """The ``config.json`` of a model, as ``profile_model`` takes it; None of one without."""
    try:
        return Model.of(model).config_json
    except AsrConfigError:  # counts, and modules of one's own
        return None


def accumulation_multiplies(e: ExplainedPlan) -> bool | None:
    """Whether the Trainer alone multiplies gradients by the accumulation steps; None where the config leaves it open.

    Models for CTC by ``ctc_loss_reduction``, Whisper always. Of a model known by name alone, the reduction is what the
    user will load it with.
    """
    name = _class_name(e)
    if name.startswith("Whisper"):
        return True
    if not name.endswith("ForCTC"):
        return False
    reduction = (e.model_config or {}).get("ctc_loss_reduction")
    return None if reduction is None else bool(reduction == "mean")


def clip_frames(e: ExplainedPlan, seconds: float) -> int | None:
    """Frames that CTC has of so long a clip; None for other models, and unknown ones."""
    limits = _limits(e)
    if limits is None or limits.positions is not None or not _class_name(e).endswith("ForCTC"):
        return None
    return limits.available(seconds)


def evaluation_bytes(e: ExplainedPlan) -> tuple[int, str]:
    """Bytes of the predictions that the Trainer keeps of a clip, 0 where they are not known, and what that assumes.

    They are float32 logits: frames or tokens times the size of the vocabulary, padded to the longest.
    """
    limits, vocabulary = _limits(e), (e.model_config or {}).get("vocab_size")
    if limits is None or not isinstance(vocabulary, int):
        return 0, ""
    if limits.positions is None:
        longest = e.dataset.max_s if e.dataset and e.dataset.measured_count else 0.0
        frames = limits.available(longest)
        return frames * vocabulary * 4, f"counted with {frames} frames × {vocabulary} labels × 4 B for the longest clip"
    counted = e.labels is not None and e.labels.unit == "tokens"
    tokens = e.labels.longest_labels if e.labels is not None and counted else _TOKENS
    return tokens * vocabulary * 4, f"counted with {tokens} tokens × {vocabulary} × 4 B a clip"


def _class_name(e: ExplainedPlan) -> str:
    named = (e.model_config or {}).get("architectures") or [""]
    return e.model.class_name if e.model is not None and e.model.class_name else str(named[0])


def _limits(e: ExplainedPlan) -> Limits | None:
    config: Any = e.model_config
    if config is None and e.model is not None and e.model.architecture:
        config = {"model_type": e.model.architecture}
    if config is None:
        return None
    try:
        return limits_of(dict(config))
    except AsrConfigError:  # another kind of model
        return None
