"""Whether a Trainer's loss is a mean or a sum over its micro-batch, from its configuration and source.

The Trainer divides a loss by the accumulation steps unless the model's forward takes ``**kwargs``, which it reads as
"divides by ``num_items_in_batch`` itself". Most speech models take ``**kwargs`` and ignore that number, so their
gradient is multiplied by the accumulation steps (transformers issue 47688). The guard weights losses instead.
"""

from __future__ import annotations

import inspect
from typing import Any

# Losses that a forward computes by itself, as a mean, when it mentions neither of the two names below.
_OWN_MEANS = ("CrossEntropyLoss(", "cross_entropy(", "BCEWithLogitsLoss(", "MSELoss(")
_HONOURS = ("loss_function(", "num_items_in_batch")


def loss_kind(trainer: Any) -> str | None:
    """``"mean"`` or ``"sum"`` over the micro-batch, or None where the Trainer's own treatment is to be trusted.

    CTC: ``config.ctc_loss_reduction`` of ``*ForCTC`` models. Others: a forward without ``**kwargs`` must give a
    mean (the Trainer's rule); with them it is a mean when the forward's source computes one without
    ``num_items_in_batch``, as Whisper's does.
    """
    if getattr(trainer, "compute_loss_func", None) or getattr(trainer, "loss_is_scaled_for_ga", None):
        return None
    if not trainer.model_accepts_loss_kwargs:
        return ctc_reduction(trainer.model) or "mean"
    if _overrides_compute_loss(trainer):
        return None
    if trainer.label_smoother is not None:
        honoured = "num_items_in_batch" in inspect.signature(trainer.label_smoother.__call__).parameters
        return None if honoured else "mean"
    return ctc_reduction(trainer.model) or ("mean" if _computes_own_mean(_base_model(trainer.model)) else None)


def multiplied_by_accumulation(model: Any) -> bool:
    """Whether the Trainer alone multiplies the gradient of ``model`` by the accumulation steps.

    So it does with a mean that it takes for a loss divided by ``num_items_in_batch``; a Trainer that computes its own
    loss may know better.
    """
    base = _base_model(model)
    parameters = inspect.signature(base.forward).parameters.values()
    taken = getattr(base, "accepts_loss_kwargs", any(p.kind is p.VAR_KEYWORD for p in parameters))
    mean = ctc_reduction(base) == "mean" or (not ctc_reduction(base) and _computes_own_mean(base))
    return mean and (bool(taken) or not _trainer_divides())


def _trainer_divides() -> bool:
    """Whether this version divides losses by the accumulation steps at all: transformers 4.46 does not."""
    from transformers import Trainer

    return "loss = loss / self." in inspect.getsource(Trainer.training_step)


def _base_model(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def ctc_reduction(model: Any) -> str | None:
    """``config.ctc_loss_reduction`` of a model for CTC, ``"mean"`` or ``"sum"``; None of any other."""
    model = _base_model(model)
    reduction = getattr(getattr(model, "config", None), "ctc_loss_reduction", None)
    known = type(model).__name__.endswith("ForCTC") or any(c.__name__.endswith("ForCTC") for c in type(model).__mro__)
    return reduction if known and reduction in ("mean", "sum") else None


def _overrides_compute_loss(trainer: Any) -> bool:
    from transformers import Trainer

    return type(trainer).compute_loss is not Trainer.compute_loss


def _computes_own_mean(model: Any) -> bool:
    try:
        source = inspect.getsource(inspect.unwrap(type(model).forward))
    except (OSError, TypeError):  # no source at hand
        return False
    return any(name in source for name in _OWN_MEANS) and not any(name in source for name in _HONOURS)
