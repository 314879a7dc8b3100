"""Evaluation and saving under the guard: memory that runs out, and clips whose loss is not finite.

A batch of an evaluation is computed in pieces, with the results of the whole one. The loop around it and saving are
repeated as they are, but not with several processes: both use collectives. There the error is raised. Clips whose loss
is not finite are named at the first evaluation that meets some.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import UnsplittableBatchError, batch_size, check_rows, copied, extent, piece, split, tensors_of
from .._core.out_of_memory import classify, clear_frames, first_line, free_memory
from .._core.random_state import cpu_state
from .._core.render import plural
from .bad_clips import BadClips
from .loading import ClipRows, fewer_workers, ran_out
from .loop import Batch, Before, Call, Split
from .loss_rule import LossRule, weighted
from .micro_batches import Attempts, Budget, CannotRetryError, Piece, Step
from .optimizer_step import Report
from .process_group import ProcessGroup
from .rule_measurement import informative
from .trainer_loop import labels_name

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

logger: logging.Logger = logging.getLogger("asrconfig_go")

_SINGLE, _COARSE = 1e-5, 3e-2  # relative, of losses of 32 and 16 bits
_CLIPS = 4  # of which the loss is measured, at most
_GIVE_RULE = "pass attach(rule=…), or per_device_eval_batch_size=1"
_MAX_BATCHES = 8  # batches whose clips are computed alone and named
_MAX_METRICS = 5  # metrics that are named


class Predictions:
    """``prediction_step`` of one Trainer, in pieces where a batch does not fit."""

    def __init__(
        self,
        trainer: Trainer,
        rule: LossRule,
        budget: Budget,
        attempts: Attempts,
        ranks: ProcessGroup,
        by: Split | None,
    ) -> None:
        self._trainer, self._rule, self._budget, self._attempts = trainer, rule, budget, attempts
        self._ranks, self._split = ranks, by
        self._fitting: tuple[str, ...] = ()  # the rules that fitted a loss of an evaluation
        self.original: Callable[..., Any] = trainer.prediction_step
        self._labels = labels_name(trainer)

    def step(self, model: torch.nn.Module, inputs: Batch, *args: object, **kwargs: object) -> Any:
        """Loss, predictions and labels of a batch."""
        model, budget = self._ranks.inner(model), self._budget
        versions = [(tensor, tensor._version) for tensor in tensors_of(inputs)]

        def predict(part: Batch) -> Any:
            with self._ranks.apart():
                return self.original(model, part, *args, **kwargs)

        def first() -> Any:
            self._attempts.running = lambda: _piece(inputs, budget, self._split)
            return again() if budget.is_limited else predict(inputs)

        def again() -> Any:
            piece = self._attempts.running = _piece(inputs, budget, self._split)
            if piece is None or piece.cannot_split or piece.samples >= batch_size(inputs):
                return predict(inputs)
            return self._in_parts(inputs, predict, (self._split or split)(inputs, piece.samples))

        def retry() -> Any:
            if any(tensor._version != version for tensor, version in versions):
                raise CannotRetryError("the prediction step has changed its batch in place")
            move_predictions_off(self._trainer)
            return again()

        return self._attempts.run(Step(place="evaluation", budget=budget, first=first, again=retry))

    def _in_parts(self, inputs: Batch, predict: Callable[[Any], Any], parts: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Loss, predictions and labels, combined from those of the ``parts`` as the Trainer combines batches."""
        from transformers.trainer_pt_utils import nested_concat

        losses, logits, labels = [], None, None
        for part in parts:
            loss, part_logits, part_labels = predict(copied(part))
            losses.append(loss)
            logits = part_logits if logits is None else nested_concat(logits, part_logits, padding_index=-100)
            if isinstance(labels, list):  # one of each clip
                labels = labels + part_labels
            else:
                labels = part_labels if labels is None else nested_concat(labels, part_labels, padding_index=-100)
        if any(loss is None for loss in losses):
            return None, logits, labels
        # How losses of parts add up is measured once, and again where rules that fitted weight these parts differently.
        fitting = self._fitting
        if not fitting or not self._are_alike(inputs, parts):
            fitting = self._measured(inputs, predict)
        shares = self._rule.shares(inputs, parts, fitting[0])
        return sum(weighted(loss, share) for loss, share in zip(losses, shares, strict=True)), logits, labels

    def _are_alike(self, inputs: Batch, parts: Sequence[Any]) -> bool:
        if len(self._fitting) == 1:
            return True
        first, *others = ([float(share) for share in self._rule.shares(inputs, parts, rule)] for rule in self._fitting)
        return all(math.isclose(a, b, rel_tol=1e-6) for other in others for a, b in zip(first, other, strict=True))

    def _measured(self, inputs: Batch, predict: Callable[[Any], Any]) -> tuple[str, ...]:
        """The rules that fit a few clips, the best one first."""
        count = min(_CLIPS, batch_size(inputs), max(2, self._budget.size(extent(inputs), _CLIPS)))
        if self._split is not None:
            clips = self._split(inputs, count)[0]
            parts = self._split(clips, (batch_size(clips) + 1) // 2)
        else:
            clips = informative(inputs, count, self._labels)
            parts = [piece(clips, 0, 1), piece(clips, 1, count)]
        try:
            together, *losses = (predict(copied(part))[0].double() for part in (clips, *parts))
        except Exception as error:
            if classify(error)["class"] not in ("gpu_oom", "maybe"):
                raise
            clear_frames(error)
            rule = self._rule.in_evaluation
            if rule is None or not self.original.__module__.startswith("transformers."):
                raise CannotRetryError(
                    f"not even two clips fit, to measure what a loss divides by; {_GIVE_RULE}"
                ) from None
            return (rule,)
        errors = self._rule.errors(clips, together, parts, losses)
        ranked = sorted(errors, key=lambda rule: errors[rule])
        if not bool(together.isfinite()):
            return tuple(ranked)
        args = self._trainer.args
        is_coarse = args.fp16_full_eval or args.bf16_full_eval or args.bf16 or args.fp16
        tolerance = _COARSE if is_coarse else _SINGLE
        fitting: tuple[str, ...] = tuple(rule for rule in ranked if errors[rule] <= tolerance)
        if not fitting and self._rule.is_given:
            fitting = (self._rule.name or "mean",)
        if not fitting:
            raise CannotRetryError(f"the loss of an evaluation batch is not made of those of its parts; {_GIVE_RULE}")
        self._fitting = fitting
        return fitting


def _piece(inputs: Batch, budget: Budget, by: Split | None) -> Piece | None:
    """What a batch is computed as; None where its number of clips is unknown."""
    try:
        count, clip_extent = batch_size(inputs), extent(inputs)
    except UnsplittableBatchError:
        return None
    try:
        if by is None:
            check_rows(inputs)
    except UnsplittableBatchError as error:
        return Piece(count, clip_extent, cannot_split=str(error.message), hint="pass attach(split=…)")
    return Piece(budget.size(clip_extent, count), clip_extent)


def evaluating(
    trainer: Trainer, original: Callable[..., Any], report: Report, snapshot: Callable[[str, Exception], str]
) -> Callable[..., Any]:
    """``original``, an ``evaluation_loop``, that moves predictions off the GPU once they do not fit there.

    That is after each batch. Where host memory runs out in loading, half the workers load. The loop is then repeated
    from its first batch; with ``batch_eval_metrics`` the metric has seen some of them, and the error is raised.
    """

    def evaluation_loop(dataloader: torch.utils.data.DataLoader, *args: object, **kwargs: object) -> Any:
        while True:
            try:
                return original(dataloader, *args, **kwargs)
            except Exception as error:
                loading = getattr(dataloader, "num_workers", 0) > 0 and ran_out(error, dataloader)
                moved = trainer.args.eval_accumulation_steps == 1
                again = (loading and trainer.args.world_size == 1) or (not moved and _can_repeat(trainer, error))
                if not again or getattr(trainer.args, "batch_eval_metrics", False):
                    raise
                saved = snapshot("evaluation", error)
                clear_frames(error)
                text = first_line(error)
            if loading:
                before, after = fewer_workers(dataloader)
                text += f" (loader workers {before} → {after})"
            else:
                move_predictions_off(trainer)
            free_memory()
            report("evaluation", text, saved)

    return evaluation_loop


def move_predictions_off(trainer: Trainer) -> None:
    """Let evaluation keep predictions in host memory, batch by batch; the Trainer looks at this after each."""
    trainer.args.eval_accumulation_steps = 1


def predictions_back(trainer: Trainer) -> Callable[[], None]:
    """The way back from ``move_predictions_off``."""
    before = trainer.args.eval_accumulation_steps
    return lambda: setattr(trainer.args, "eval_accumulation_steps", before)


def saving(trainer: Trainer, report: Report, snapshot: Callable[[str, Exception], str]) -> Callable[..., Any]:
    """``_save_checkpoint``, repeated once when memory ran out: it writes the same files again.

    It is repeated a few times where the storage that it writes to does not answer.
    """
    save = trainer._save_checkpoint

    def original(*args: object, **kwargs: object) -> Any:
        from .._core.files import from_storage

        if trainer.args.world_size > 1:
            return save(*args, **kwargs)
        return from_storage(trainer.args.output_dir, lambda: save(*args, **kwargs), files_alone=False)

    def save_checkpoint(*args: object, **kwargs: object) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            if not _can_repeat(trainer, error):
                raise
            saved = snapshot("saving", error)
            clear_frames(error)
            text = first_line(error)
        free_memory()
        report("saving", text, saved)
        return original(*args, **kwargs)

    return save_checkpoint


def _can_repeat(trainer: Trainer, error: Exception) -> bool:
    return bool(trainer.args.world_size == 1 and classify(error)["class"] == "gpu_oom")


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
        self._bad.report_evaluated(call, text, self._rows, saved=self._bad_batches == 1)

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
    values = ", ".join(f"{name} is {value}" for name, value in [*bad.items()][:_MAX_METRICS])
    text = f"evaluation at step {step}: {values}"
    metric = str(getattr(args, "metric_for_best_model", None) or "")
    metric = metric if metric.startswith("eval_") else f"eval_{metric}"
    if metric not in bad:
        return text
    option = "load_best_model_at_end" if args.load_best_model_at_end else "metric_for_best_model"
    return (
        f"{text}; {option} goes by {metric}, which cannot be compared so: the checkpoint that it finds, if any, is not "
        'the best; choose by another metric until it is finite, as metric_for_best_model="wer"'
    )
