"""What it means that a metric of an evaluation is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_NAMED = 5  # metrics that are named


def not_finite(metrics: Mapping[str, Any], args: Any, step: int) -> str:
    """The metrics of an evaluation that are infinite or not a number, and what goes by them; "" for none.

    >>> from transformers import TrainingArguments
    >>> not_finite({"eval_loss": float("nan"), "epoch": 1.0}, TrainingArguments("out", use_cpu=True), 20)
    'evaluation at step 20: eval_loss is nan'
    """
    bad = {name: v for name, v in metrics.items() if isinstance(v, float) and not math.isfinite(v)}
    if not bad:
        return ""
    text = f"evaluation at step {step}: {', '.join(f'{name} is {value}' for name, value in [*bad.items()][:_NAMED])}"
    metric = str(getattr(args, "metric_for_best_model", None) or "")
    metric = metric if metric.startswith("eval_") else f"eval_{metric}"
    if metric not in bad:
        return text
    option = "load_best_model_at_end" if args.load_best_model_at_end else "metric_for_best_model"
    return (
        f"{text}; {option} goes by {metric}, which cannot be compared so: the checkpoint that it finds, if any, is not "
        'the best; choose by another metric until it is finite, as metric_for_best_model="wer"'
    )
