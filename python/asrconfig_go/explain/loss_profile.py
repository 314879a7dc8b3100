"""A model's loss, frames and predictions, from its profile and its config."""

from __future__ import annotations

from typing import Any

from .._base.errors import AsrConfigError
from .._base.wrapped_model import bare
from ..data.label_limits import Limits, limits_of
from ..machine.model_source import config_values_of, is_module
from .explained_plan import ExplainedPlan

_TOKENS = 40  # of a text in an evaluation whose labels were not counted: about ten seconds of speech


def config_of(model: Any) -> dict[str, Any] | None:
    """The ``config.json`` of a model, as ``profile_model`` takes it; None of one without."""
    config = getattr(bare(model), "config", None) if is_module(model) else model
    try:
        values = None if config is None else config_values_of(config)[1]
    except AsrConfigError:  # counts, and modules of one's own
        return None
    if values is not None and is_module(model):
        values = {**values, "architectures": [type(bare(model)).__name__]}
    return values


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
