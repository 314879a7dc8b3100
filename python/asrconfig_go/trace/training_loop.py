"""The Trainer's loop as a recorder sees it: its windows of micro-batches, and its evaluations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._core.checks import checked
from .._core.declared import Optimizer, Precision
from .._core.modules import (
    bare,
    checkpoint_options,
    checkpointing_method,
    switch_off_checkpointing,
    trainer_stops_caching,
)
from .._core.output import kind_of
from .._core.settings import Checkpointing
from ..errors import InvalidArgumentError, UnsupportedError
from ..trace import optimizers
from ._autograd import refused
from .event_log import NoLossError, RefusedBatchError, Segment
from .made_up_batches import BatchFunction, LossFunction, MadeUp, Point
from .model import generation_facts
from .recorder import MemoryRecorder

_PRECISIONS: dict[Precision, torch.dtype | None] = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}
_WINDOW = 3  # micro-batches of a window that are run: further ones repeat the third
_UNLIKE = 3  # shapes with different operations at each, after which no formula of the shape covers the step


@dataclass
class TrainingLoop:
    """What ``Trainer.train`` does to memory: transformers.Trainer.training_step and _inner_training_loop.

    With ``exact_shapes`` the caller needs the shapes themselves, and not formulas of all others.
    """

    batch_fn: BatchFunction | None
    optimizer: Optimizer | Callable[[Any], torch.optim.Optimizer]
    precision: Precision
    checkpointing: bool | Checkpointing
    every_n_layers: int
    offload_checkpoints: bool
    accumulation: int
    steps: int
    loss: Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor] | None
    max_grad_norm: float
    evaluation: bool
    exact_shapes: bool
    evaluates: bool = field(default=False, init=False)  # now
    # The window's inputs: the Trainer keeps them until it has fetched the next window's.
    inputs: list[Any] = field(default_factory=list, init=False)
    last_loss: torch.Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        checked("precision", self.precision, Precision)
        checked("offload_checkpoints", self.offload_checkpoints, bool)
        for name in ("accumulation", "steps", "every_n_layers"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidArgumentError(f"{name} is {value!r}", "pass a whole number from 1 on")
        self.recomputes = _checkpointing(self.checkpointing)
        self.dtype = _PRECISIONS[self.precision]
        self.loss_of: LossFunction = _loss_of

    def about(self) -> dict[str, Any]:
        """The settings that a trace keeps."""
        optimizer = self.optimizer
        return {
            "precision": self.precision,
            "optimizer": optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", "own"),
            "checkpointing": self.recomputes or "none",
            "every_n_layers": self.every_n_layers,
            "offload_checkpoints": self.offload_checkpoints,
            "accumulation": self.accumulation,
            "max_grad_norm": self.max_grad_norm,
            "loop": "trainer",
        }

    def run(
        self,
        recorder: MemoryRecorder,
        model: nn.Module,
        points: Sequence[Point] | None,
        progress: Callable[[int, int], None] | None,
        made_up: MadeUp | None,
    ) -> None:
        """Record every window of the trace, and the evaluations."""
        recorder.about |= {"model": type(model).__name__, **generation_facts(getattr(bare(model), "config", None))}
        if made_up is not None:
            batches = made_up.batches
            self.batch_fn, points = batches.batch, points or batches.points()
            self.loss_of = made_up.loss or _loss_of
            recorder.about.update(batches.facts())
            if made_up.words:
                recorder.about["batches"] = made_up.words
                recorder.notes.append(f"batches were made up: {made_up.words}")
        if not points:
            raise InvalidArgumentError("no points to trace", "pass (batch, length, labels) of at least one batch")
        points = [checked_point(point) for point in points]
        windows = [points[0]] * (self.steps - 1) + points
        trained = [p for p in model.parameters() if p.requires_grad]
        recorder.about |= {"trained_parameters": sum(p.numel() for p in trained), "trained_tensors": len(trained)}
        model.train()
        self._switch_checkpointing(model)
        if hasattr(model, "config") and (self.recomputes or trainer_stops_caching()):
            model.config.use_cache = False  # a decoder's keys and values are not collected
        recorder.load(model)
        recorder.load_again(model)  # the Trainer puts the model on the device, and then accelerate's prepare_model
        optimizer = optimizers.build(self.optimizer, model)
        scaler = torch.amp.GradScaler("cpu") if self.dtype is torch.float16 else None
        for number, point in enumerate(windows):
            self._window(recorder, model, optimizer, scaler, point)
            if progress is not None:
                progress(number + 1, len(windows))
            if not self.exact_shapes and number + 2 == self.steps + _UNLIKE and _unlike(recorder.log.segments):
                points = points[:_UNLIKE]
                break
        if self.evaluation:
            self.evaluates = True
            model.eval()
            self.inputs.clear()
            for point in points:
                self._evaluate_batch(recorder, model, point)
            self.evaluates = False

    def _window(
        self,
        recorder: MemoryRecorder,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        point: Point,
    ) -> None:
        """One optimizer step."""
        before, self.inputs = self.inputs, []
        for number in range(min(self.accumulation, _WINDOW)):
            recorder.segment("accumulate" if number else "micro", **_shape(point))
            self.inputs.append(recorder.place(self._batch(point)))
            before.clear()
            with recorder.working(), _failing_clearly(point, self.recomputes):
                self.last_loss = self._micro_batch(model, self.inputs[-1], scaler)
        recorder.segment("step", phase="optimizer", **_shape(point))
        with recorder.working():
            self._step(model, optimizer, scaler)

    def _micro_batch(
        self, model: nn.Module, batch: dict[str, torch.Tensor], scaler: torch.amp.GradScaler | None
    ) -> torch.Tensor:
        loss = self._forward(model, batch)
        if self.accumulation > 1:
            loss = loss / self.accumulation
        (loss if scaler is None else scaler.scale(loss)).backward()
        return loss.detach()

    def _forward(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss; the other outputs are dropped here, as ``compute_loss`` does."""
        if self.loss is not None:
            with self._autocast():
                return self.loss(model, batch)
        # No local may refer to the outputs: those in half precision are freed when those in float32 are made.
        return self.loss_of(self._as_float32(self._outputs(model, batch)))

    def _outputs(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> Any:
        with self._autocast():
            return model(**batch)

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> None:
        if scaler is not None:
            scaler.unscale_(optimizer)
        if self.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.max_grad_norm)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        model.zero_grad()

    def _evaluate_batch(self, recorder: MemoryRecorder, model: nn.Module, point: Point) -> None:
        """``prediction_step``: no gradients, loss and logits kept."""
        recorder.segment("evaluate", phase="evaluation", **_shape(point))
        batch = recorder.place(self._batch(point))
        with recorder.working(), torch.no_grad(), self._autocast():
            if self.loss is not None:
                outputs: object = self.loss(model, batch)
            else:
                outputs = self._as_float32(model(**batch))
        recorder.outputs(outputs)

    def _batch(self, point: Point) -> dict[str, torch.Tensor]:
        assert self.batch_fn is not None
        batch = self.batch_fn(*point)
        if not isinstance(batch, dict) or not any(isinstance(t, torch.Tensor) for t in pytree.tree_leaves(batch)):
            raise InvalidArgumentError(
                f"batch_fn returned {kind_of(batch)} without tensors",
                "return the model's keyword arguments: a dict of tensors",
            )
        return batch

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype is None else torch.autocast("cpu", dtype=self.dtype)

    def _as_float32(self, outputs: object) -> Any:
        """accelerate's convert_outputs_to_fp32, which wraps the forward pass in mixed precision."""
        if self.dtype is None:
            return outputs
        low = (torch.float16, torch.bfloat16)
        return {k: _cast(v, low) for k, v in outputs.items()} if hasattr(outputs, "items") else _cast(outputs, low)

    def _switch_checkpointing(self, model: nn.Module) -> None:
        if self.recomputes is None:
            switch_off_checkpointing(model)  # which its user may have switched on
            return
        enable = checkpointing_method(model, "enable")
        if enable is None:
            raise InvalidArgumentError(
                f"{type(model).__name__} has no gradient_checkpointing_enable",
                "trace it with gradient_checkpointing=False",
            )
        options = checkpoint_options(self.every_n_layers, self.offload_checkpoints)
        if lacking := options.keys() - inspect.signature(enable).parameters.keys():
            raise UnsupportedError(
                f"the installed transformers has no {' and '.join(sorted(lacking))} of checkpoints",
                'pip install "transformers>=5.23", or leave every_n_layers and offload_checkpoints out',
            )
        kind = {"use_reentrant": self.recomputes == "reentrant"}
        enable(**{enable.__name__.replace("enable", "kwargs"): kind}, **options)


@contextmanager
def _failing_clearly(point: Point, checkpointing: str | None) -> Iterator[None]:
    """Raises errors of the model's own code with the shape of the batch."""
    try:
        yield
    except (InvalidArgumentError, UnsupportedError):
        raise
    except Exception as error:
        if checkpointing == "reentrant" and (explained := refused(error)) is not None:
            raise explained from error
        raise RefusedBatchError(
            f"the model fails on a batch of {point[0]}, input length {point[1]}, {point[2]} labels: "
            f"{type(error).__name__}: {error}",
            "it would fail in training too, or batch_fn returns what it does not expect",
        ) from error


def _unlike(segments: Sequence[Segment]) -> bool:
    """Whether the first micro-batches of the newest windows all have other operations."""
    operations = [(s.op, s.module) for s in segments if s.kind == "micro"][-_UNLIKE:]
    return all(one not in operations[:place] for place, one in enumerate(operations))


def _cast(value: object, low: tuple[torch.dtype, ...]) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.float() if t.dtype in low else t, value)


def _checkpointing(kind: bool | str | None) -> str | None:
    kinds = {False: None, None: None, True: "non_reentrant", "non_reentrant": "non_reentrant", "reentrant": "reentrant"}
    if kind not in kinds:
        raise InvalidArgumentError(
            f"gradient_checkpointing is {kind!r}", 'choose False, True, "non_reentrant" or "reentrant"'
        )
    return kinds[kind]


def checked_point(point: Sequence[int]) -> Point:
    """A shape to trace. Raises ``InvalidArgumentError`` for anything else."""
    ok = isinstance(point, tuple | list) and len(point) == 3 and all(isinstance(n, int) for n in point)
    if not ok or point[0] < 1 or point[1] < 1 or point[2] < 0:
        raise InvalidArgumentError(
            f"{point!r} is not a shape", "pass (batch, length, labels): whole numbers, batch and length from 1 on"
        )
    return (point[0], point[1], point[2])


def _shape(point: Point) -> dict[str, Any]:
    return dict(zip(("batch", "length", "labels"), point, strict=True))


def _loss_of(outputs: Any) -> torch.Tensor:
    loss = outputs.get("loss") if hasattr(outputs, "get") else outputs[0]
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise NoLossError(
            f"the model returned no loss ({kind_of(outputs)})",
            "put labels into the batch, or pass loss=function(model, batch)",
        )
    return loss
