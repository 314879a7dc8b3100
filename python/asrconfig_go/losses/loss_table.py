"""What the losses of transformers' own models divide by: they are in a table or unknown.

A row of ``loss_rows`` lists the statements with which forwards compute their loss, and the models for which they were
read and measured. ``loss_of`` reads the forward of the installed version again: where its statements are others, the
loss is unknown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .._base.choices import WeightRule
from .loss_code import LossCode, forward_is_own, is_own, loss_code, losses_are_own, package_of
from .loss_rows import IGNORE_NUM_ITEMS, REDUCTIONS, TABLE, TRIMMED, UNTIL_PROBLEM_TYPE, Row

_PADDING = -100
_PASSES_NUM_ITEMS = re.compile(r"label_smoother\([^()]*num_items_in_batch")
_NORMS_OVER_TIME = re.compile("GroupNorm|InstanceNorm|BatchNorm")
_ROTARY_BY_LENGTH = re.compile("dynamic|longrope")


@dataclass(frozen=True)
class Loss:
    """What a loss divides by."""

    rule: WeightRule
    """The divisor without ``num_items_in_batch``: clips (``mean``), labels other than ``padding`` (``token_mean``),
    those of ``labels[:, 1:]`` (``shifted_token_mean``), or none (``sum``)."""
    takes_num_items: bool
    """Whether it is a sum divided by ``num_items_in_batch`` where that is passed; the rule is then ``sum``."""
    padding: int
    """The label that is not counted."""
    masked: bool
    """Whether labels are counted only where the attention mask, in the same columns, is not 0."""
    trims: bool
    """Whether each clip's loss and gradient stay the same without the padding behind a micro-batch's longest clip:
    columns of inputs, attention mask and labels. The batch needs an attention mask. Where SpecAugment masks time,
    inputs shorter than ``config.mask_time_length`` frames raise ``ValueError``."""
    source: str
    """The function that computes it."""


def loss_of(model: Any) -> Loss | None:
    """What the loss in a model's output divides by.

    Args:
        model: A module, also inside PEFT's, torch.compile's or DDP's wrappers.

    Returns:
        None unless the model is in the table, computes its loss as there, and nothing in it is a user's: its class, a
        submodule, a forward, ``loss_function``, or functions that they call. A batch with ``shift_labels`` has another
        divisor. For answers to questions, positions behind the input are not counted.
    """
    *wrappers, base = _chain(model)
    kind = type(base)
    if package_of(kind) != "transformers" or not all(_keeps_loss(wrapper) for wrapper in wrappers):
        return None
    code = loss_code(kind)
    row = _row(base, code) if code else None
    if code is None or row is None or not is_own(base) or not losses_are_own(kind.forward):
        return None
    rule, takes = _rule(base.config, row, code)
    if rule is None:
        return None
    padding = getattr(base.config, row.padding) if row.padding else _PADDING
    computed = base.loss_function if row.function else inspect.unwrap(kind.forward)
    return Loss(rule, takes, padding, row.masked, _trims(base), f"{computed.__module__}.{computed.__qualname__}")


def known_architecture(name: str) -> bool:
    """Whether ``loss_of`` knows a plain model of a class of transformers, by the name of the class."""
    return any(name in row.models for row in TABLE) and name not in UNTIL_PROBLEM_TYPE


def label_smoother_loss(model: Any, smoother: Any) -> Loss | None:
    """What ``trainer.label_smoother`` divides by; None of one that is not transformers' own.

    Args:
        model: The model that the Trainer passes to ``compute_loss``, which decides whether labels are shifted.
        smoother: ``trainer.label_smoother``.

    Returns:
        None, too, of a compiled causal model: versions of accelerate differ in whether the Trainer sees its name.
    """
    from transformers import Trainer
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.trainer_pt_utils import LabelSmoother

    *wrappers, base = _chain(model)
    shifts = type(base).__name__ in CAUSAL.values()
    if type(smoother) is not LabelSmoother or package_of(LabelSmoother.__call__) != "transformers":
        return None
    if shifts and any(type(wrapper).__name__ == "OptimizedModule" for wrapper in wrappers):
        return None
    loss = loss_of(model)
    return Loss(
        rule="shifted_token_mean" if shifts else "token_mean",
        takes_num_items=bool(_PASSES_NUM_ITEMS.search(inspect.getsource(Trainer.compute_loss))),
        padding=smoother.ignore_index,
        masked=False,
        trims=loss is not None and loss.trims,
        source="transformers.trainer_pt_utils.LabelSmoother.__call__",
    )


def _chain(model: Any) -> Iterator[Any]:
    """A model and those inside it, through DDP's, torch.compile's and PEFT's wrappers."""
    while True:
        yield model
        kind = type(model)
        if package_of(kind) == "torch" and kind.__name__ == "DistributedDataParallel":
            model = model.module
        elif package_of(kind) == "torch" and kind.__name__ == "OptimizedModule":
            model = model._orig_mod
        elif package_of(kind) == "peft" and hasattr(model, "get_base_model"):
            model = model.get_base_model()
        else:
            return


def _keeps_loss(wrapper: Any) -> bool:
    """Whether a wrapper returns its model's loss: AdaLoRA adds to it, and prompt tuning changes the labels."""
    if package_of(type(wrapper)) != "peft":
        return True
    tuner = type(wrapper.base_model).forward
    return forward_is_own(wrapper) and tuner.__globals__["__name__"] == "peft.tuners.tuners_utils"


def _row(model: Any, code: LossCode) -> Row | None:
    rows = (row for row in TABLE if type(model).__name__ in row.models and code.statements == row.statements)
    return next((row for row in rows if not row.function or _is_function(model.loss_function, row.function)), None)


def _is_function(function: Any, name: str) -> bool:
    if getattr(function, "__name__", "") != name or package_of(function) != "transformers":
        return False
    parameters = inspect.signature(function).parameters
    return losses_are_own(function) and (name not in REDUCTIONS or parameters["reduction"].default == REDUCTIONS[name])


def _rule(config: Any, row: Row, code: LossCode) -> tuple[WeightRule | None, bool]:
    """The rule, None where the config leaves it open, and whether the loss uses ``num_items_in_batch``."""
    parts = config, config.get_text_config()
    if code.adds_router_loss and any(getattr(part, "output_router_logits", False) for part in parts):
        return None, False
    if getattr(config, "sparse_pred_ignore_index", _PADDING) != _PADDING:
        return None, False
    takes = code.passes_num_items and row.function not in IGNORE_NUM_ITEMS
    if row.rule == "ctc_loss_reduction":
        reduction = config.ctc_loss_reduction
        return (reduction if reduction in ("mean", "sum") else None), takes
    if row.rule != "problem_type":
        return row.rule, takes
    problem = config.problem_type or ("regression" if config.num_labels == 1 else "")
    if problem in ("regression", "multi_label_classification"):
        return "mean", False
    # The first batch decides whether a clip has one label or several, which are as many of each clip: all count alike.
    return (None if takes and not problem else "token_mean"), takes


def _trims(model: Any) -> bool:
    if type(model).__name__ not in TRIMMED:
        return False
    config = model.config  # convolutions behind the encoder; and in DeBERTa
    if getattr(config, "add_adapter", False) or getattr(config, "conv_kernel_size", 0):
        return False
    return not any(
        _NORMS_OVER_TIME.search(type(module).__name__)
        or _ROTARY_BY_LENGTH.search(str(getattr(module, "rope_type", "")))
        for module in model.modules()
    )
