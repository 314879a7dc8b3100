"""The recorded step whose times are asked for."""

from __future__ import annotations

from typing import Any

from .._base.choices import Precision
from .._base.defaults import TRACED_MICRO_BATCHES
from ..machine.hardware import HardwareProfile
from ..machine.model_source import model_source
from ..memory.memory_model import MemoryModel


def recorded_step(model: Any, gpu: str, *, freeze_feature_encoder: bool = False, **settings: Any) -> MemoryModel:
    """One opened for questions: one that comes with the package, an earlier one, or a new one."""
    source = model_source(model, freeze_feature_encoder)
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
