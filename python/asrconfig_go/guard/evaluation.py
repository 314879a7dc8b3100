"""Evaluation and saving under the guard: memory that runs out, and clips whose loss is not finite.

A batch of an evaluation is computed in pieces, with the results of the whole one. The loop around it and saving are
repeated as they are, but not with several processes: both use collectives. There the error is raised. Clips whose loss
is not finite are named at the first evaluation that meets some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .._core.batches import UnsplittableBatchError, batch_size, check_rows, copied, extent, split, tensors_of
from .._core.files import from_storage
from .._core.out_of_memory import clear_frames, first_line, free_memory, is_gpu_oom
from .._core.output import logger
from .._core.random_state import cpu_state
from .._core.render import plural
from .bad_clips import BadClips
from .engine import Engine
from .loading import ClipRows, fewer_workers, ran_out
from .loop import Batch, Before, Call
from .loss_rule import weighted
from .micro_batches import Attempts, Budget, CannotRetryError, Piece, Step
from .process_group import ProcessGroup
from .rule_measurement import trial

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

_SINGLE, _COARSE = 1e-5, 3e-2  # relative, of losses of 32 and 16 bits
_CLIPS = 4  # of which the loss is measured, at most
_GIVE_RULE = "call attach(trainer, rule=…) before it, or pass per_device_eval_batch_size=1"
_MAX_BATCHES = 8  # batches whose clips are computed alone and named
_MAX_METRICS = 5  # metrics that are named


class Evaluation:
    """The evaluations of one Trainer, in pieces where a batch does not fit.

    The loss of each batch is looked at; what stands out is among the ``batches`` of the training's ``bad`` clips.
    """

    def __init__(self, trainer: Trainer, engine: Engine, ranks: ProcessGroup, bad: BadClips) -> None:
        self._trainer, self._engine, self._ranks, self._bad = trainer, engine, ranks, bad
        self._rule, self._attempts, self._split = engine.rule, engine.attempts, engine.splitting.split
        self.budget = Budget()
        self._fitting: tuple[str, ...] = ()  # the rules that fitted a loss of an evaluation
        self._predict, self._evaluate = trainer.prediction_step, trainer.evaluation_loop
        self._accumulation_steps: int | None = trainer.args.eval_accumulation_steps
        self._rows = ClipRows(trainer, lambda: self._batches)
        self._batches = self._bad_batches = 0
        self._prefix = ""  # of the running evaluation's metrics
        self._reported: set[str] = set()

    def begin(self) -> None:
        """A training begins."""
        self._reported.clear()

    def remove(self) -> None:
        """Let the Trainer keep predictions where it did."""
        self._trainer.args.eval_accumulation_steps = self._accumulation_steps

    def prediction_step(self, model: torch.nn.Module, inputs: Batch, *args: object, **kwargs: object) -> Any:
        """Loss, predictions and labels of a batch."""
        if self._engine.splitting.is_shared:
            return self._predict(model, inputs, *args, **kwargs)
        model, budget = self._ranks.inner(model), self.budget
        versions = [(tensor, tensor._version) for tensor in tensors_of(inputs)]

        def predict(part: Batch) -> Any:
            with self._ranks.apart():
                return self._predict(model, part, *args, **kwargs)

        def first() -> Any:
            self._attempts.running = lambda: self._piece(inputs)
            return again() if budget.is_limited else predict(inputs)

        def again() -> Any:
            piece = self._attempts.running = self._piece(inputs)
            if piece is None or piece.cannot_split or piece.samples >= batch_size(inputs):
                return predict(inputs)
            return self._in_parts(inputs, predict, (self._split or split)(inputs, piece.samples))

        def retry() -> Any:
            if any(tensor._version != version for tensor, version in versions):
                raise CannotRetryError("the prediction step has changed its batch in place")
            self._move_predictions_off()
            return again()

        predicted = self._attempts.run(Step(place="evaluation", budget=budget, first=first, again=retry))
        self._look(model, inputs, predicted[0])
        return predicted

    def _piece(self, inputs: Batch) -> Piece | None:
        """What a batch is computed as; None where its number of clips is unknown."""
        try:
            count, clip_extent = batch_size(inputs), extent(inputs)
        except UnsplittableBatchError:
            return None
        try:
            if self._split is None:
                check_rows(inputs)
        except UnsplittableBatchError as error:
            return Piece(count, clip_extent, cannot_split=str(error.message), hint="pass attach(split=…)")
        return Piece(self.budget.size(clip_extent, count), clip_extent)

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
        if not fitting or not (len(fitting) == 1 or self._rule.are_alike(fitting, inputs, parts)):
            fitting = self._measured(inputs, predict)
        shares = self._rule.shares(inputs, parts, fitting[0])
        return sum(weighted(loss, share) for loss, share in zip(losses, shares, strict=True)), logits, labels

    def _measured(self, inputs: Batch, predict: Callable[[Any], Any]) -> tuple[str, ...]:
        """The rules that fit a few clips, the best one first."""
        count = min(_CLIPS, batch_size(inputs), max(2, self.budget.size(extent(inputs), _CLIPS)))
        clips, parts = trial(inputs, count, self._engine.loop.labels, self._split)
        try:
            together, *losses = (predict(copied(part))[0].double() for part in (clips, *parts))
        except Exception as error:
            if not is_gpu_oom(error, maybe=True):
                raise
            clear_frames(error)
            rule = self._rule.in_evaluation
            if rule is None or not self._predict.__module__.startswith("transformers."):
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
            raise CannotRetryError(
                f"the loss of an evaluation batch does not follow from the losses of its parts; {_GIVE_RULE}"
            )
        self._fitting = fitting
        return fitting

    def evaluation_loop(self, dataloader: torch.utils.data.DataLoader, *args: object, **kwargs: object) -> Any:
        """The Trainer's loop, which moves predictions off the GPU once they do not fit there.

        That is after each batch. Where host memory runs out in loading, half the workers load. The loop is then
        repeated from its first batch; with ``batch_eval_metrics`` the metric has seen some of them, and the error is
        raised.
        """
        while True:
            try:
                return self._evaluated(dataloader, *args, **kwargs)
            except Exception as error:
                training = self._trainer.args
                loading = getattr(dataloader, "num_workers", 0) > 0 and ran_out(error, dataloader)
                moved = training.eval_accumulation_steps == 1
                again = (loading and training.world_size == 1) or (not moved and _can_repeat(self._trainer, error))
                if not again or getattr(training, "batch_eval_metrics", False):
                    raise
                saved = self._attempts.snapshot("evaluation", error)
                clear_frames(error)
                text = first_line(error)
            if loading:
                before, after = fewer_workers(dataloader)
                text += f" (loader workers {before} → {after})"
            else:
                self._move_predictions_off()
            free_memory()
            self._attempts.note("evaluation", text, saved)

    def _move_predictions_off(self) -> None:
        """Let evaluation keep predictions in host memory, batch by batch; the Trainer looks at this after each."""
        self._trainer.args.eval_accumulation_steps = 1

    def _evaluated(self, dataloader: torch.utils.data.DataLoader, *args: object, **kwargs: object) -> Any:
        """Evaluate, and look at the batches."""
        self._batches, self._bad_batches, self._prefix = 0, 0, str(kwargs.get("metric_key_prefix", "eval"))
        self._rows.follow(dataloader, _dataset(self._trainer, dataloader))
        try:
            output = self._evaluate(dataloader, *args, **kwargs)
            self._over(output.metrics or {})
        finally:
            self._prefix = ""
            self._rows.remove()
        return output

    def _look(self, model: torch.nn.Module, inputs: Batch, loss: torch.Tensor | None) -> None:
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


def saved(trainer: Trainer, attempts: Attempts, save: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """What ``save`` returns, repeated once when memory ran out: it writes the same files again.

    It is repeated a few times where the storage that it writes to does not answer.
    """

    def once() -> Any:
        if trainer.args.world_size > 1:
            return save(*args, **kwargs)
        return from_storage(trainer.args.output_dir, partial(save, *args, **kwargs), files_alone=False)

    try:
        return once()
    except Exception as error:
        if not _can_repeat(trainer, error):
            raise
        snapshot = attempts.snapshot("saving", error)
        clear_frames(error)
        text = first_line(error)
    free_memory()
    attempts.note("saving", text, snapshot)
    return once()


def _can_repeat(trainer: Trainer, error: Exception) -> bool:
    return bool(trainer.args.world_size == 1 and is_gpu_oom(error))


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
