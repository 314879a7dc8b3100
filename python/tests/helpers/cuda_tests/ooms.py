"""Trainings planned for a T4 whose memory really runs out at a chosen place, beside the same in which nothing happens.

Each is a Trainer on ``cuda:0`` of the stand-in runtime with a guard. Kernels compute nothing there, so that losses and
weights mean nothing; shapes, steps, the order of samples, learning rates and the entries of the log do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import logging
import tempfile
from collections.abc import Iterator
from typing import Any

import cuda_standin
import numpy as np
import torch
from cuda_standin.values import Values
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from asrconfig_go import create_optimal_config
from asrconfig_go._core.out_of_memory import clear_frames
from cuda_tests.models import CLIPS, MODELS, SpeechModel
from cuda_tests.shortage import Shortage, out_of_memory_errors

EFFECTIVE, EPOCHS = 8, 2


@dataclasses.dataclass(frozen=True)
class Place:
    """Where memory runs out: in a module (the first, middle or last of the model's) of an optimizer step from 0."""

    title: str
    event: str = ""
    """``begin`` of the training, ``forward``, ``backward``, ``optimizer``, ``evaluation``, ``generation``,
    ``callback``; "" for none."""
    module: int = 0
    step: int = 1
    share: float = 0.0
    """Of what a step of the whole batch needs, what there is from then on; 0 gives all back behind the error."""
    failures: int = 1
    """How often memory runs out before it comes back."""
    train: bool = False
    """By ``manager.train``, which restarts from a checkpoint where no step can be computed again."""

    def is_possible(self, model: SpeechModel) -> bool:
        return model.generates or self.event != "generation"


PLACES = (
    Place("forward, first layers, step 0, twice", "forward", 0, 0, failures=2),
    Place("forward, middle, step 2, 75 % stay", "forward", 1, 2, 0.75),
    Place("forward, head, step 5", "forward", 2, 5),
    Place("backward, head, step 1", "backward", 2, 1),
    Place("backward, middle, step 4, 75 % stay", "backward", 1, 4, 0.75),
    Place("optimizer, step 0", "optimizer", step=0),
    Place("optimizer, step 0, twice", "optimizer", step=0, failures=2),
    Place("evaluation behind step 3", "evaluation", 1, 3),
    Place("generation behind step 3", "generation", 1, 3),
    Place("75 % from the begin", "begin", share=0.75),
    Place("60 % from the begin", "begin", share=0.6),
    Place("callback, step 2, restarted", "callback", step=2, train=True),
)
NOTHING = Place("nothing")


@dataclasses.dataclass
class Run:
    """What a training came to."""

    shapes: list[tuple[str, list[int], str, str]]
    steps: int
    optimizer_steps: int
    order: list[list[int]]
    log: list[dict[str, Any]]
    needed: int
    """Bytes that the first step of the whole batch reserves beside what there was before it."""
    ooms: int
    events: list[tuple[str, int, int, int]]
    restarts: int
    left: int
    """Bytes that are allocated on the GPU when nothing refers to the training any more."""
    error: str
    messages: list[str]


class _Watch(TrainerCallback):  # type: ignore[misc]
    """Lets memory run out at a place, and notes which samples each step has, and what it needs."""

    __module__ = "asrconfig_go.tests"  # out of a guard's sight, which puts back what a user's callbacks count

    def __init__(self, place: Place, model: SpeechModel, needed: int) -> None:
        self.place, self.model = place, model
        self.room = round(needed * place.share)
        self.shortage, self.armed, self.generating = Shortage(), True, False
        self.order: dict[int, list[int]] = {}
        self.base = self.needed = self.step = 0

    def reached(self, event: str) -> None:
        """``event`` is about to happen: memory runs out in it, if that is the place."""
        if self.armed and event == self.place.event and self.step == self.place.step:
            self.armed = False
            self.shortage.begin()

    def freed(self) -> None:
        """What failed was freed: memory comes back, as much as stays."""
        if self.shortage.failures >= self.place.failures:
            self.shortage.end()
            self._limit()

    def _limit(self) -> None:
        if self.room:
            room = max(0, self.base + self.room - torch.cuda.memory_reserved())
            cuda_standin.take(0, torch.cuda.mem_get_info(0)[0] - room)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.base = torch.cuda.memory_reserved()
        if self.place.event == "begin":
            self._limit()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.step = state.global_step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.needed = self.needed or torch.cuda.max_memory_reserved() - self.base
        if self.place.event == "callback":
            self.reached("callback")
            gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
            assert torch.cat(gradients).numel()  # as a logger of gradients makes it

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.step = state.global_step

    def watch(self, model: Any) -> None:
        """Put hooks on the modules."""
        module = model.get_submodule(self.model.modules[self.place.module])
        module.register_forward_pre_hook(lambda *_: self._forward(model))
        module.register_forward_hook(lambda _, __, output: self._backward(output))

    def _forward(self, model: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self.reached("forward")
        elif not model.training:
            self.reached("generation" if self.generating else "evaluation")

    def _backward(self, output: Any) -> None:
        tensor = output if isinstance(output, torch.Tensor) else output[0]
        if self.place.event == "backward" and tensor.requires_grad:
            tensor.register_hook(lambda _: self.reached("backward"))


@contextlib.contextmanager
def _watched(watch: _Watch, model: Any) -> Iterator[None]:
    """Lets ``watch`` know when cached memory is freed, and when the model generates."""
    empty_cache, generates = torch.cuda.empty_cache, watch.model.generates
    generate: Any = model.generate if generates else None

    def emptied() -> None:
        empty_cache()
        watch.freed()

    def generated(*args: Any, **kwargs: Any) -> Any:
        watch.generating = True
        try:
            return generate(*args, **kwargs)
        finally:
            watch.generating = False

    torch.cuda.empty_cache = emptied
    if generates:
        model.generate = generated
    try:
        yield
    finally:
        torch.cuda.empty_cache = empty_cache


class _Ordered(Trainer):  # type: ignore[misc]
    """Notes the samples of each optimizer step as they are fetched; of a step made again those of the last time."""

    watch: _Watch

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        found = super().get_batch_samples(*args, **kwargs)
        self.watch.order[self.state.global_step] = [i for b in found[0] for i in self.watch.model.samples(b)]
        return found

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        optimizer = super().create_optimizer(*args, **kwargs)
        optimizer.register_step_pre_hook(lambda *_: self.watch.reached("optimizer"))
        return optimizer


class _OrderedSeq2Seq(_Ordered, Seq2SeqTrainer):  # type: ignore[misc]
    """The same with generation in evaluation."""


@functools.cache
def planned(name: str) -> tuple[Any, Any]:
    """The plan of a model for the T4, with its manager, made once in a process."""
    model = MODELS[name]()
    clips: list[Any] = [np.zeros(48_000, np.float32)] * CLIPS
    return create_optimal_config(
        clips, model.build(), model_name=name, target_batch_size=EFFECTIVE, loader_rate=1e3, verbose=False
    )


def _trainer(name: str, model: SpeechModel, watch: _Watch, folder: str) -> Any:
    settings: dict[str, Any] = {
        "num_train_epochs": EPOCHS, "learning_rate": 1e-4, "lr_scheduler_type": "linear", "logging_steps": 1,
        "eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": EFFECTIVE, "save_strategy": "steps",
        "save_steps": 2, "report_to": "none", "disable_tqdm": True, "remove_unused_columns": False,
        "dataloader_num_workers": 0, "fp16": model.precision == "fp16",
    }  # fmt: skip
    if not watch.place.train:
        settings["save_strategy"] = "no"
    arguments: type = TrainingArguments
    if model.generates:
        arguments = Seq2SeqTrainingArguments
        settings |= {"predict_with_generate": True, "generation_max_length": 6}
    config, _ = planned(name)
    args = config.to_training_arguments(folder, arguments_class=arguments, **settings)
    built = model.build()
    watch.watch(built)
    rows = model.rows()
    trainer = (_OrderedSeq2Seq if model.generates else _Ordered)(
        model=built,
        args=args,
        train_dataset=rows,
        eval_dataset=rows[:EFFECTIVE],
        data_collator=model.collate,
        compute_metrics=lambda predicted: {"examples": len(predicted.label_ids)},
        callbacks=[watch],
    )
    trainer.watch = watch
    trainer.remove_callback(PrinterCallback)
    return trainer


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Keep this package's warnings to the handler."""
        log = logging.getLogger("asrconfig_go")
        log.addHandler(self)
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(self)
            log.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def trained(name: str, place: Place, needed: int = 0) -> Run:
    """Train a model whose memory runs out at ``place``; what ends the training is in ``error``.

    ``needed`` is what a step of the whole batch needs beside what there is before it, in bytes.
    """
    model, manager = MODELS[name](), planned(name)[1]
    watch, messages, before, error = _Watch(place, model, needed), _Messages(), out_of_memory_errors(), ""
    with tempfile.TemporaryDirectory() as folder, Values(), messages.heard():
        trainer = _trainer(name, model, watch, folder)
        guard = manager.attach(trainer, rule=model.rule)
        with _watched(watch, trainer.model):
            try:
                manager.train(trainer, verbose=False) if place.train else trainer.train()
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
                clear_frames(raised)
        watch.shortage.end()
        cuda_standin.give_back(0)
        run = Run(
            shapes=[(n, list(p.shape), str(p.dtype), str(p.device)) for n, p in trainer.model.named_parameters()],
            steps=trainer.state.global_step,
            optimizer_steps=_optimizer_steps(trainer),
            order=[watch.order[step] for step in sorted(watch.order)],
            log=[dict(entry) for entry in trainer.state.log_history],
            needed=watch.needed,
            ooms=out_of_memory_errors() - before,
            events=[(e.place, e.global_step, e.micro_batch_before, e.micro_batch_after) for e in guard.events],
            restarts=len(manager.report.restarts) if place.train else 0,
            left=0,
            error=error,
            messages=messages.texts,
        )
        guard.detach()
        del trainer, guard, watch
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # torch before 2.15 keeps them
    torch.cuda.empty_cache()
    run.left = torch.cuda.memory_allocated()
    return run


def _optimizer_steps(trainer: Any) -> int:
    """How often all weights were changed, by the optimizer's own counts; -1 where they differ, or without any."""
    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    counts = {int(state["step"]) for state in inner.state.values()}
    return counts.pop() if len(counts) == 1 else -1


def differences(run: Run, reference: Run, place: Place) -> list[str]:
    """What is not as in the undisturbed run, in words; none where all is."""
    found = [run.error] if run.error else []
    for name in ("shapes", "steps", "optimizer_steps", "order"):
        if getattr(run, name) != getattr(reference, name):
            found.append(f"{name}: {getattr(run, name)!r} of {getattr(reference, name)!r}"[:300])
    if [_known(entry) for entry in run.log] != [_known(entry) for entry in reference.log]:
        found.append("entries of the log")
    if place.event:
        if not run.ooms:
            found.append("memory never ran out")
        elif not run.events and not run.restarts:
            found.append("not reported")
    elif run.ooms or run.events:
        found.append("memory ran out")
    if run.left:
        found.append(f"{run.left} bytes are still allocated")
    return found


def _known(entry: dict[str, Any]) -> dict[str, Any]:
    """The names of an entry, with the values that kernels do not make."""
    exact = ("step", "epoch", "learning_rate", "eval_examples")
    return {name: value if name in exact else None for name, value in entry.items()}


class Reference:
    """The undisturbed run of a model, made once."""

    def __init__(self, name: str) -> None:
        self.name, self.run = name, trained(name, NOTHING)

    def disturbed(self, place: Place) -> tuple[Run, list[str]]:
        """The run at ``place``, and what differs."""
        run = trained(self.name, place, self.run.needed)
        return run, differences(run, self.run, place)


def disturbed_trainings(wanted: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Of each model the places of these titles: what differs, and what was met, by ``model: place``."""
    found = {}
    for name, titles in wanted.items():
        reference = Reference(name)
        found[name] = {"differences": differences(reference.run, reference.run, NOTHING)}
        for place in PLACES:
            if place.title in titles:
                run, off = reference.disturbed(place)
                found[f"{name}: {place.title}"] = {"differences": off, **dataclasses.asdict(run)}
    return found
