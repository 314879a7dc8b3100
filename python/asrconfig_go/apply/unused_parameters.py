"""Parameters without a gradient in some steps, for DistributedDataParallel's ``find_unused_parameters``."""

from __future__ import annotations

from typing import Any

from .._base.transformers_features import LAYER_DROPS
from .._base.wrapped_model import bare

# Families of which tests know that a training step with neither of the two causes below reaches every parameter.
_WHOLE = ("wav2vec2", "wav2vec2-bert", "hubert", "wavlm", "whisper")
_HEADS = ("ForCTC", "ForConditionalGeneration")


def find_unused_parameters(model: Any = None) -> bool:
    """``ddp_find_unused_parameters``: False where it is certain that there are none, and True without a model.

    Looking for them walks the graph once more in every step. Not looking ends a training with layer drop by an error in
    its second step, and that is the Trainer's own choice with gradient checkpointing (made for the reentrant kind).
    """
    return model is None or leaves_parameters_unused(model) is not False


def leaves_parameters_unused(model: Any) -> bool | None:
    """Whether steps of ``model`` leave trained parameters without a gradient; None where that is not certain.

    So does layer drop, which skips whole layers, and SpecAugment's ``masked_spec_embed`` where nothing is masked over
    time.
    """
    inside = bare(model)
    if _drops_layers(inside) or _has_idle_mask(inside):
        return True
    cls, kind = type(inside), getattr(getattr(inside, "config", None), "model_type", None)
    tested = cls.__module__.startswith("transformers.") and kind in _WHOLE and cls.__name__.endswith(_HEADS)
    return False if tested else None


def _drops_layers(model: Any) -> bool:
    config = getattr(model, "config", None)
    rates = [getattr(config, name, None) for name in LAYER_DROPS]
    rates += [getattr(module, "layerdrop", None) for module in model.modules()]
    return any(isinstance(value, int | float) and value > 0 for value in rates)


def _has_idle_mask(model: Any) -> bool:
    config = getattr(model, "config", None)
    masks = getattr(config, "apply_spec_augment", True) and getattr(config, "mask_time_prob", 0) > 0
    return not masks and any(
        p.requires_grad for name, p in model.named_parameters() if name.endswith("masked_spec_embed")
    )
