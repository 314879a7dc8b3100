"""The published formula as a memory estimate: a tenth of the model's memory per sample, whatever its length."""

from __future__ import annotations

from typing import Any

from .._base.checks import one_of
from .._base.defaults import SAMPLING_RATE
from .._base.errors import UnsupportedError
from ..machine.model import profile_model
from .estimate import MemoryEstimate, PeakMoment, PhasePeak
from .memory_settings import MemorySettings, Shape, Target

_SAMPLE_BYTES = SAMPLING_RATE * 4  # one second of audio
_SHARE_PER_SAMPLE = 0.1
_STATES = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}


def published_estimate(model: Any, shape: Shape, settings: MemorySettings, target: Target) -> MemoryEstimate:
    """Parameters, gradients and optimizer state, and for each sample its audio and a tenth of the model's memory."""
    one_of("optimizer", settings.optimizer, tuple(_STATES))
    if settings.lora_rank:
        raise UnsupportedError("the published formula does not know lora_rank", 'ask with estimator="trace"')
    profile = profile_model(model, freeze_feature_encoder=settings.freeze_feature_encoder)
    kept = {
        "parameters": profile.parameter_bytes or 0,
        "gradients": profile.gradient_bytes or 0,
        "optimizer": profile.optimizer_bytes[_STATES[settings.optimizer]],
    }
    activations = round(shape.batch * _SHARE_PER_SAMPLE * sum(kept.values()))
    inputs = round(shape.batch * shape.seconds * _SAMPLE_BYTES)
    peak = sum(kept.values()) + activations + inputs
    device = None if target.context_bytes is None else peak + target.context_bytes
    components = {**kept, "activations": activations, "inputs": inputs}
    return MemoryEstimate(
        estimator="published",
        peak_allocated=peak,
        peak_requested=peak,
        peak_reserved=peak,
        peak_device=device,
        pinned_bytes=None if settings.offload_checkpoints else 0,
        fits=None if target.limit_bytes is None else peak <= target.limit_bytes,
        retries=0,
        out_of_memory=None,
        fragmentation=0.0,
        at_peak=PeakMoment("micro", "backward", "", "", components, ()),
        phases=(PhasePeak("micro", "backward", peak, peak),),
        timeline=None,
        approximate=0,
        notes=("the published formula ignores how activations grow with the length, and the allocator's rounding",),
    )
