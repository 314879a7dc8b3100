"""Clips of a Trainer's evaluation whose loss is not finite: named at the first evaluation that meets some."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .._core.random_state import cpu_state
from .._core.render import plural
from .bad_clips import BadClips
from .clip_findings import ClipRows
from .loop import Batch, Before, Call

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments


logger: logging.Logger = logging.getLogger("asrconfig_go")

_MAX_BATCHES = 8  # batches whose clips are computed alone and named
_MAX_METRICS = 5  # metrics that are named


class EvaluatedClips:
    """Looks at the loss of each evaluation batch; what stands out is among the ``batches`` of the training's."""

    def __init__(self, trainer: Trainer, bad: BadClips) -> None:
        self._trainer, self._bad = trainer, bad
        self._rows = ClipRows(trainer, lambda: self._batches)
        self._batches = self._bad_batches = 0
        self._prefix = ""  # of the running evaluation's metrics
        self._reported: set[str] = set()

    def begin(self) -> None:
        """A training begins."""
        self._reported.clear()

    def around(self, evaluation_loop: Callable[..., Any]) -> Callable[..., Any]:
        """``evaluation_loop`` whose batches are looked at."""

        def loop(dataloader: torch.utils.data.DataLoader, *args: object, **kwargs: object) -> Any:
            self._batches, self._bad_batches, self._prefix = 0, 0, str(kwargs.get("metric_key_prefix", "eval"))
            self._rows.follow(dataloader, _dataset(self._trainer, dataloader))
            try:
                output = evaluation_loop(dataloader, *args, **kwargs)
                self._over(output.metrics or {})
            finally:
                self._prefix = ""
                self._rows.remove()
            return output

        return loop

    def look(self, model: torch.nn.Module, inputs: Batch, loss: torch.Tensor | None) -> None:
        """A batch was evaluated with this ``loss``, None where there is none."""
        if not self._prefix:  # of a rehearsal
            return
        self._batches += 1
        if loss is None or bool(torch.as_tensor(loss).isfinite().all()):
            return
        self._bad_batches += 1
        if self._prefix in self._reported or self._bad_batches > _MAX_BATCHES:
            return
        call = Call(inputs, Before(cpu_state(), [], False), [], fit=lambda batch: batch, arguments=(model, (), {}))
        values: list[float] = torch.as_tensor(loss).detach().float().flatten().tolist()
        value = next(value for value in values if not math.isfinite(value))
        text = f"the loss of batch {self._batches} of the evaluation is {value}"
        self._bad.in_evaluation(call, text, self._rows, saved=self._bad_batches == 1)

    def _over(self, metrics: dict[str, Any]) -> None:

        trainer, step = self._trainer, int(self._trainer.state.global_step)
        text = not_finite(metrics, trainer.args, step) if trainer.is_world_process_zero() else ""
        if self._prefix in self._reported or not (text or self._bad_batches):
            return
        self._reported.add(self._prefix)
        logger.warning("%s", "; ".join([text or f"evaluation at step {step}", *self._of_batches(metrics)]))

    def _of_batches(self, metrics: dict[str, Any]) -> Iterator[str]:
        if not self._bad_batches:
            return
        count = f"the loss of {self._bad_batches} of {plural(self._batches, 'batch', 'batches')} is not finite"
        loss = f"{self._prefix}_loss"
        # So the Trainer's logging_nan_inf_filter has it.
        yield f"{count}, and {loss} is the mean of the others" if math.isfinite(metrics.get(loss, math.nan)) else count
        if self._bad_batches > _MAX_BATCHES:
            yield f"clips of the first {_MAX_BATCHES} are named"
        if any(batch.what == "evaluation" and batch.clips for batch in self._bad.batches):
            yield "leave the named clips out of the evaluation dataset"


def _dataset(trainer: Trainer, loader: torch.utils.data.DataLoader) -> Any:
    """The Trainer's dataset, with all its columns, where it has as many clips as the loader's; else that."""
    own: object = getattr(trainer, "eval_dataset", None)
    read: object = getattr(loader, "dataset", None)
    if isinstance(own, dict) or not (hasattr(own, "__len__") and hasattr(read, "__len__")):
        return read
    return own if len(own) == len(read) else read


def not_finite(metrics: Mapping[str, Any], args: TrainingArguments, step: int) -> str:
    """The metrics of an evaluation that are infinite or not a number, and what goes by them; "" for none.

    >>> from transformers import TrainingArguments
    >>> not_finite({"eval_loss": float("nan"), "epoch": 1.0}, TrainingArguments("out", use_cpu=True), 20)
    'evaluation at step 20: eval_loss is nan'
    """
    bad = {name: v for name, v in metrics.items() if isinstance(v, float) and not math.isfinite(v)}
    if not bad:
        return ""
    text = (
        f"evaluation at step {step}: {', '.join(f'{name} is {value}' for name, value in [*bad.items()][:_MAX_METRICS])}"
    )
    metric = str(getattr(args, "metric_for_best_model", None) or "")
    metric = metric if metric.startswith("eval_") else f"eval_{metric}"
    if metric not in bad:
        return text
    option = "load_best_model_at_end" if args.load_best_model_at_end else "metric_for_best_model"
    return (
        f"{text}; {option} goes by {metric}, which cannot be compared so: the checkpoint that it finds, if any, is not "
        'the best; choose by another metric until it is finite, as metric_for_best_model="wer"'
    )
