"""One training of a kind, disturbed in one place, for ``guard_kinds.py``: no benchmark by itself."""

from __future__ import annotations

import dataclasses
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from guard_runs import Follow, Memory, Outcome, Watched, flat, listening
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from asrconfig_go.guard import attach

EFFECTIVE, EPOCHS = 8, 2
Moment = tuple[int, int]  # an optimizer step, and a forward or a backward in it, both from 0


@dataclasses.dataclass(frozen=True)
class Place:
    """A shape of training, and where memory runs out in it."""

    title: str
    micro: int = EFFECTIVE
    accumulation: int = 1
    forward: tuple[Moment, ...] = ()
    backward: tuple[Moment, ...] = ()
    fits: int | None = None
    """In the second optimizer step no more samples than this fit."""
    optimizer: bool = False
    """The first and the third step fail at their first operation."""
    half_done: bool = False
    """The optimizer's first step fails half way, with some of the weights changed: nothing can repeat it."""
    evaluation: bool = False
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """Of ``attach``."""

    @property
    def fails_in_training(self) -> bool:
        return bool(self.forward or self.backward or self.fits)

    @property
    def calm(self) -> Place:
        """The same shape, where nothing happens."""
        return Place("", self.micro, self.accumulation)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a training is made of; everything that a run may change is made again for it."""

    model: Callable[[], Any]
    rows: Sequence[dict[str, Any]]
    collate: Callable[[list[dict[str, Any]]], Any] | None = None
    trainer: type = Trainer
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    made: Callable[[], dict[str, Any]] = dict
    """More arguments of the Trainer: callbacks, ``compute_loss_func``."""
    optimizer: Callable[[Any], Any] | None = None
    dataset: Callable[[Sequence[dict[str, Any]]], Any] = list
    prepare: Callable[[Any], None] = lambda trainer: None
    attach: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rate: float = 1e-2
    names: tuple[str, ...] = ()
    """What a refusal may call it, beside the Trainer's and the model's class."""
    random: bool = False
    """Draws random numbers: other micro-batches draw others."""
    own_shape: bool = False
    """The size of a micro-batch counts by intention: the reference has the same one."""
    aim: float = 1e-5
    depth: float = 0.5
    """Where backward fails, see ``Memory``."""
    metrics: bool = True


@dataclasses.dataclass
class Run(Outcome):
    """What a training came to, and what was said of it."""

    told: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    """Warnings of the package, each with the optimizer steps that were taken before."""
    error: Exception | None = None
    is_certain: bool = False
    """Whether the guard knew what the loss divides by before anything failed."""
    model: str = ""
    path: list[torch.Tensor] = dataclasses.field(default_factory=list)
    """The weights behind each optimizer step."""
    buffers: torch.Tensor = dataclasses.field(default_factory=lambda: torch.zeros(0))


class Script(Memory):
    """Memory that runs out where a place says so."""

    __module__ = "asrconfig_go"  # as of Memory

    def __init__(self, place: Place, depth: float) -> None:
        self.script, self.depth = place, depth
        self.moments = {"forward": [*place.forward], "backward": [*place.backward]}
        self.clock = self.forwards = self.raised = self.samples = self.evaluations = 0
        self.evaluating, self.backwards = False, Counter[int]()
        self.optimizer = [0, 2] if place.optimizer else [0] if place.half_done else []
        self.order: list[list[Any]] = []

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        self.forwards += bool(self.evaluating or model.training)
        self.evaluations += self.evaluating and self.forwards == 1
        labels = kwargs.get("labels")
        tensors = [v for v in (labels, *args, *kwargs.values()) if isinstance(v, torch.Tensor) and v.dim()]
        self.samples = len(tensors[0]) if tensors else 1

    def _maybe(self, place: str, model: Any) -> None:
        if place == "evaluation":
            # The first evaluation fits in pieces of two samples, the second fails once.
            if self.script.evaluation and (self.samples > 2 if self.evaluations == 1 else self.forwards == 1):
                self._raise()
        elif model.training and not self.evaluating:
            nth = self.forwards - 1 if place == "forward" else self.backwards[self.clock]
            self.backwards[self.clock] += place == "backward"
            # Whoever tries something out first may have taken the forward that was meant.
            due = [moment for moment in self.moments[place] if moment[0] == self.clock and moment[1] <= nth]
            if due:
                self.moments[place].remove(due[0])
                self._raise()
            fits = self.script.fits
            if place == "backward" and self.clock == 1 and fits is not None and self.samples > fits:
                self._raise()

    def _raise(self) -> None:
        self.left = 1
        super()._raise()

    def stepped(self) -> None:
        """Orders are noted as batches are fetched."""

    def step(self, optimizer: Any, original: Any) -> Any:
        """``optimizer.step()``, which fails before it has written, or half way."""
        if self.clock not in self.optimizer:
            return original()
        self.optimizer.remove(self.clock)
        if self.script.half_done:
            self._half(optimizer, original)
            self._raise()
        with _Failing(self._raise):
            return original()


class _Failing(TorchDispatchMode):  # type: ignore[misc]
    """The first operation fails; marks for a profiler are none."""

    def __init__(self, fail: Callable[[], None]) -> None:
        super().__init__()
        self._fail = fail

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace != "profiler":
            self._fail()
        return function(*args, **kwargs or {})


class Pad:
    """Pads entries to the longest of the batch: labels with -100, others with 0.

    ``mask`` names the entry that an attention mask is made of; with ``to`` that entry and those of ``sides`` are all
    padded to one length. Entries of one value are stacked, texts stay lists. ``more`` comes with each batch.
    """

    def __init__(
        self, mask: str | None = None, to: int = 0, sides: Sequence[str] = (), more: Mapping[str, Any] | None = None
    ) -> None:
        self.mask, self.to, self.sides, self.more = mask, to, sides, more or {}

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = {name: self._padded(name, [row[name] for row in rows]) for name in rows[0]}
        if self.mask:
            lengths = torch.tensor([len(row[self.mask]) for row in rows])
            batch["attention_mask"] = (torch.arange(batch[self.mask].shape[1]) < lengths[:, None]).long()
        return {**batch, **self.more}

    def _padded(self, name: str, values: list[Any]) -> Any:
        if isinstance(values[0], str):
            return values
        tensors = [torch.as_tensor(value) for value in values]
        if not tensors[0].dim():
            return torch.stack(tensors)
        fill = -100 if name in ("labels", "targets") else 0
        if self.to and name in (self.mask, *self.sides):
            behind = [(0, 0) * (v.dim() - 1) + (0, self.to - len(v)) for v in tensors]
            return torch.stack([pad(v, width, value=fill) for v, width in zip(tensors, behind, strict=True)])
        return pad_sequence(tensors, batch_first=True, padding_value=fill)


class Ordered(Watched):
    """Notes the samples of each optimizer step as the Trainer fetches them."""

    memory: Script

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        result = super().get_batch_samples(*args, **kwargs)
        self.memory.order.append(sorted(fingerprint for batch in result[0] for fingerprint in _fingerprints(batch)))
        return result


def _fingerprints(batch: Any) -> list[tuple[float, ...]]:
    """The numbers of the samples, or the first values of each in the first tensor."""
    if "index" in batch:
        return [(float(i),) for i in batch["index"]]
    values = next((v for v in batch.values() if isinstance(v, torch.Tensor) and v.dim()), None)
    if values is None:
        return []
    labels = batch.get("labels")
    if isinstance(labels, torch.Tensor) and len(labels) != len(values):  # frames come first
        values = values.transpose(0, 1)
    return [tuple(row.flatten()[:4].tolist()) for row in values]


class WeightPath(TrainerCallback):  # type: ignore[misc]
    """The weights as training begins, and behind each step."""

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []

    def on_train_begin(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights = [flat(model)]

    def on_step_end(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights.append(flat(model))


def _arguments(kind: Kind) -> Any:
    return Seq2SeqTrainingArguments if issubclass(kind.trainer, Seq2SeqTrainer) else TrainingArguments


def _checksums(predicted: Any) -> dict[str, float]:
    """Sums of all predictions and labels."""

    def total(value: Any) -> float:
        if isinstance(value, tuple | list):
            return sum(total(item) for item in value)
        return 0.0 if value is None else float(torch.as_tensor(value).double().abs().sum())

    return {"predictions": total(predicted.predictions), "labels": total(predicted.label_ids)}


def prepared_trainer(kind: Kind, place: Place, memory: Script, path: WeightPath, folder: str) -> Any:
    """The Trainer of ``kind``, whose memory runs out at ``place``."""

    def watched() -> Any:
        torch.manual_seed(0)
        model = kind.model()
        memory.watch(model)
        return model

    arguments = {
        "per_device_train_batch_size": place.micro,
        "gradient_accumulation_steps": place.accumulation,
        "per_device_eval_batch_size": EFFECTIVE,
        "num_train_epochs": EPOCHS,
        "learning_rate": kind.rate,
        "lr_scheduler_type": "linear",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        **kind.settings,
    }
    made = kind.made()
    callbacks = [Follow(memory), path, *made.pop("callbacks", [])]
    model = {"model_init": watched} if made.pop("by_model_init", False) else {"model": watched()}
    if kind.optimizer is not None:
        made["optimizers"] = (kind.optimizer(model["model"]), None)
    data, evaluated = kind.dataset(kind.rows), kind.dataset(kind.rows[:6])
    trainer = type(kind.trainer.__name__, (Ordered, kind.trainer), {"memory": memory})(
        **model,
        args=_arguments(kind)(folder, **arguments),
        train_dataset=data,
        eval_dataset=evaluated if hasattr(evaluated, "__len__") else [dict(row) for row in kind.rows[:6]],
        data_collator=kind.collate,
        compute_metrics=_checksums if kind.metrics else None,
        callbacks=callbacks,
        **made,
    )
    trainer.remove_callback(PrinterCallback)
    kind.prepare(trainer)
    create = trainer.create_optimizer

    def create_optimizer(*args: Any, **kwargs: Any) -> Any:
        optimizer = create(*args, **kwargs)
        step = type(optimizer).step
        failing = lambda self, *args, **kwargs: memory.step(self, lambda: step(self, *args, **kwargs))  # noqa: E731
        if "step" not in optimizer.__dict__:
            optimizer.step = types.MethodType(failing, optimizer)
        return optimizer

    trainer.create_optimizer = create_optimizer
    return trainer


def trained(kind: Kind, place: Place, guarded: bool) -> Run:
    """Run it. What ends the run is in ``error``."""
    memory, path, error, trainer, notes = Script(place, kind.depth), WeightPath(), None, None, list[tuple[int, str]]()
    guard, warned = None, list[tuple[int, str]]()
    with tempfile.TemporaryDirectory() as folder, listening(lambda text: warned.append((memory.clock, text))):
        trainer = prepared_trainer(kind, place, memory, path, folder)
        before = flat(trainer.model)
        try:
            if guarded:
                guard = attach(trainer, **{**kind.attach, **place.options})
                notes = [(0, note) for note in guard.notes]
            trainer.train()
        except Exception as raised:
            error = raised
    buffers = [b.detach().flatten().double() for b in trainer.model.buffers()]
    return Run(
        start=path.weights[0] if path.weights else before,
        end=flat(trainer.model),
        applied=[],
        computed_steps=memory.clock,
        global_step=trainer.state.global_step,
        order=memory.order,
        log=[{k: float(v) for k, v in entry.items() if _told(k, v)} for entry in trainer.state.log_history],
        raised=memory.raised,
        died=" ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]) if error else "",
        told=[*notes, *warned],
        error=error,
        is_certain=guard is not None and guard.knows_rule,
        model=type(trainer.model).__name__,
        path=path.weights[1:],
        buffers=torch.cat(buffers) if buffers else torch.zeros(0),
    )


def _told(name: str, value: Any) -> bool:
    quick = ("runtime", "per_second", "flos")
    return isinstance(value, int | float) and not any(word in name for word in quick)
