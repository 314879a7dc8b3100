"""Small speech models that are trained while memory runs out, for ``guard_exactness.py``: no benchmark by itself.

Clips of unequal length with attention masks and unequal numbers of labels, on the CPU, dropout off. Memory is faked:
see ``Memory``. ``trained`` runs one training in one of the ways of ``WAYS`` and tells everything that two runs may
differ in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import find_executable_batch_size
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests" / "helpers"))
from asrconfig_go._core.batches import extent, split
from asrconfig_go.guard import attach
from speech_models import MODELS

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"
RATES = {"ctc mean": 1e-2, "ctc sum": 1e-4, "whisper": 1e-2, "w2v-bert": 1e-2}
WAYS = ("guard", "auto_find_batch_size", "naive halving", "accelerate's decorator")
EFFECTIVE, CLIPS, EPOCHS = 16, 64, 6  # 24 optimizer steps, room for 20 of them to fail
STEPS = CLIPS // EFFECTIVE * EPOCHS


@dataclasses.dataclass(frozen=True)
class Case:
    """One training. ``place`` None: nothing happens."""

    kind: str
    accumulation: int = 1
    place: str | None = None
    ooms: int = 0
    way: str = "guard"
    optimizer: str = "sgd"
    double: bool = False
    evaluates: bool = False
    seed: int = 0


@dataclasses.dataclass
class Outcome:
    """What a training came to."""

    start: torch.Tensor
    end: torch.Tensor
    applied: list[list[int]]
    """The clips behind each optimizer step of these weights, sorted."""
    computed_steps: int = 0
    """All optimizer steps, those of weights that were thrown away too."""
    global_step: int = 0
    order: list[list[int]] = dataclasses.field(default_factory=list)
    """The clips of each batch as they were collated."""
    log: list[dict[str, float]] = dataclasses.field(default_factory=list)
    raised: int = 0
    died: str = ""

    def twice_and_lost(self) -> tuple[int, int]:
        """How many times clips counted too often or not at all in these weights, over all epochs."""
        counted = Counter(clip for step in self.applied for clip in step)
        return sum(max(0, counted[i] - EPOCHS) for i in range(CLIPS)), sum(
            max(0, EPOCHS - counted[i]) for i in range(CLIPS)
        )


class Clips(torch.utils.data.Dataset):  # type: ignore[misc]
    """Clips of unequal length, each with one to four labels; the first value of each is like no other's."""

    def __init__(self, kind: str, count: int, seed: int) -> None:
        source = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(count):
            share = float(torch.rand((), generator=source)) * 0.7 + 0.3
            shape: tuple[int, ...] = (round(800 * share),)
            if kind == "whisper":
                shape = (4, 32)
            elif kind == "w2v-bert":
                shape = (round(40 * share), 8)
            labels = int(torch.randint(1, 5, (), generator=source))
            item = {"input": torch.randn(shape, generator=source)}
            item["labels"] = torch.randint(3, 8, (labels,), generator=source)
            self.items.append(item)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {**self.items[i], "id": i}


class Collate:
    """Pads clips and labels, and notes the clips of training."""

    def __init__(self, kind: str, double: bool, memory: Memory | None = None) -> None:
        self.memory = memory
        self.name = "input_values" if kind.startswith("ctc") else "input_features"
        self.masked, self.kind = kind != "whisper", torch.float64 if double else torch.float32
        self.order: list[list[int]] = []

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        if not (self.memory and self.memory.evaluating):
            self.order.append([row["id"] for row in rows])
        batch = {
            self.name: pad_sequence([row["input"] for row in rows], batch_first=True).to(self.kind),
            "labels": pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100),
        }
        if self.masked:
            lengths = torch.tensor([len(row["input"]) for row in rows])
            batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        return batch


class Memory:
    """Memory that runs out ``ooms`` times in one place of a training, and a note of what the training did.

    At optimizer steps chosen by the seed something is in the way: one micro-batch of that step fails, whatever its
    size. From every third such event on another process keeps memory for three steps, so that only micro-batches with
    40 % of the samples × length of the one that failed fit (one clip always does). The optimizer's step fails before it
    has written anything, the first one half way. Evaluation fails as training does, in its forward.
    """

    __module__ = "asrconfig_go"  # out of a guard's sight, which puts back what a user's objects count
    depth = 0.5
    """Where backward fails: at the gradient of the weight behind this share of them."""

    def __init__(self, case: Case, data: Clips) -> None:
        self.place, self.left, self.raised = case.place, case.ooms, 0
        chance = random.Random(f"{case.kind} {case.place} {case.ooms} {case.accumulation} {case.seed}")
        when = sorted(chance.sample(range(STEPS), min(case.ooms, STEPS)))
        if case.place == "optimizer" and case.ooms > 1:
            when[0] = 0
        limit = 2 if case.place == "evaluation" else case.accumulation
        self.moments = [(step, chance.randrange(limit)) for step in when]
        self.limit, self.until, self.events = 0, -1, 0
        self.longest = max(row["input"].numel() for row in data.items)
        self.clock = self.forwards = 0
        self.evaluating = False
        self.applied: list[list[int]] = []
        self.pending: list[list[int]] = []
        self.weight: Any = None
        self.measures = False
        self.values = 0
        self.ids = {float(row["input"].flatten()[0]): i for i, row in enumerate(data.items)}

    def watch(self, model: Any) -> None:
        """Follow a model's forwards and gradients."""
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        model.register_forward_hook(lambda *_: self._maybe("evaluation" if self.evaluating else "forward", model))
        parameters = [p for p in model.parameters() if p.requires_grad]
        weight = parameters[int(len(parameters) * self.depth)]
        # Where its gradient arrives, as DDP does it: the guard would look at hooks of weights, which change gradients.
        weight.arrival = weight.expand_as(weight).grad_fn.next_functions[0][0]
        weight.arrival.register_prehook(lambda _: self._maybe("backward", model))
        self.weight = weight

    def _begin(self, model: Any, args: Any, kwargs: Any) -> None:
        self.training = model.training and torch.is_grad_enabled()  # what is measured without gradients does not count
        self.forwards += self.evaluating or self.training
        inputs = kwargs["input_values" if "input_values" in kwargs else "input_features"]
        self.values = len(inputs) * extent(kwargs).values
        self.measures = self.training and _measures()
        if self.training and not self.measures:
            if self.weight.grad is None:  # gradients were cleared, by the Trainer or by who computes the window again
                self.pending = []
            self.pending.append([self.ids[float(row.flatten()[0])] for row in inputs])

    def _maybe(self, place: str, model: Any) -> None:
        if place == self.place and (self.evaluating or self.training) and self._fails():
            if self.training and not self.measures:
                self.pending.pop()
            self._raise()

    def _fails(self) -> bool:
        if not self.left:
            return False
        if self.clock <= self.until and self.values > max(self.limit, self.longest):
            return True
        if self.moments and (self.clock, self.forwards) > self.moments[0]:
            self.moments.pop(0)
            self.events += 1
            if self.events % 3 == 0:
                self.limit, self.until = int(self.values * 0.4), self.clock + 3
            return True
        return False

    def _raise(self) -> None:
        self.left -= 1
        self.raised += 1
        raise torch.cuda.OutOfMemoryError(OOM)

    def stepped(self) -> None:
        """An optimizer step is about to be taken."""
        self.applied.append(sorted(i for piece in self.pending for i in piece))
        self.pending = []

    def step(self, optimizer: Any, original: Any) -> Any:
        """``optimizer.step()``, which may fail."""
        if self.place == "optimizer" and self.left and self.moments and self.clock >= self.moments[0][0]:
            self.moments.pop(0)
            if self.clock == 0:
                self._half(optimizer, original)
            self._raise()
        return original()

    def _half(self, optimizer: Any, original: Any) -> None:
        groups = [group["params"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["params"] = group["params"][: len(group["params"]) // 2]
        original()
        for group, parameters in zip(optimizer.param_groups, groups, strict=True):
            group["params"] = parameters


def _measures() -> bool:
    """Whether the guard is measuring what the loss divides by: its gradients are none of the step's."""
    frame = sys._getframe()
    while frame.f_back is not None and not frame.f_code.co_filename.endswith("rule_measurement.py"):
        frame = frame.f_back
    return frame.f_back is not None


@contextlib.contextmanager
def listening(hear: Callable[[str], None]) -> Iterator[None]:
    """Call ``hear`` with each warning that the package logs, and print none."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: hear(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("asrconfig_go")
    before = log.propagate, log.level
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before[0]
        log.setLevel(before[1])


class Follow(TrainerCallback):  # type: ignore[misc]
    """Tells the memory when optimizer steps are taken."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.memory.stepped()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.memory.clock += 1
        self.memory.forwards = 0


class Watched(Trainer):  # type: ignore[misc]
    """Tells the memory when it evaluates."""

    memory: Memory

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self.memory.evaluating, self.memory.forwards = True, 0
        try:
            return super().evaluation_loop(*args, **kwargs)
        finally:
            self.memory.evaluating, self.memory.forwards = False, 0


class NaiveHalving(Watched):
    """Halves the batch that failed and tries it again, as loops found in the wild do."""

    micro: int | None = None

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        while True:
            size = self.micro or len(inputs["labels"])
            try:
                parts = split(inputs, size)
                return sum(Trainer.training_step(self, model, part, *args, **kwargs) for part in parts)
            except torch.cuda.OutOfMemoryError:
                self.micro = max(1, size // 2)


def _optimizer(case: Case, model: Any, memory: Memory) -> Any:
    rate = RATES[case.kind]
    kind: Any = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[case.optimizer]

    optimizer = kind(model.parameters(), lr=rate)
    failing = lambda self, closure=None: memory.step(self, lambda: kind.step(self, closure))  # noqa: E731
    optimizer.step = types.MethodType(failing, optimizer)
    return optimizer


def _trainer(case: Case, batch: int, memory: Memory, data: Clips, collate: Collate, folder: str) -> Any:
    torch.manual_seed(case.seed)
    model = MODELS[case.kind]().to(collate.kind)
    memory.watch(model)
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=case.accumulation,
        num_train_epochs=EPOCHS,
        learning_rate=RATES[case.kind],
        lr_scheduler_type="linear",
        max_grad_norm=0.0,
        logging_steps=1,
        eval_strategy="steps" if case.evaluates else "no",
        eval_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        auto_find_batch_size=case.way == "auto_find_batch_size",
        seed=case.seed,
    )
    kind = NaiveHalving if case.way == "naive halving" else Watched
    trainer = type(kind.__name__, (kind,), {"memory": memory})(
        model,
        arguments,
        train_dataset=data,
        eval_dataset=Clips(case.kind, 12, seed=2) if case.evaluates else None,
        data_collator=collate,
        callbacks=[Follow(memory)],
        optimizers=(_optimizer(case, model, memory), None),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def trained(case: Case) -> Outcome:
    """Run it. What ends the run is told in ``died``."""
    data = Clips(case.kind, CLIPS, seed=1)
    memory = Memory(case, data)
    collate = Collate(case.kind, case.double, memory)
    trainers: list[Any] = []
    starts: list[torch.Tensor] = []

    def train(batch: int) -> None:
        memory.applied = []
        collate.order = []
        trainers[:] = [_trainer(case, batch, memory, data, collate, folder)]
        starts[:] = [flat(trainers[0].model)]
        if case.way == "guard":
            attach(trainers[0])
        trainers[0].train()

    died = ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            batch = EFFECTIVE // case.accumulation
            if case.way == "accelerate's decorator":
                find_executable_batch_size(train, starting_batch_size=batch)()
            else:
                train(batch)
        except Exception as error:
            died = f"{type(error).__name__}: {error}"
    trainer = trainers[0]
    return Outcome(
        start=starts[0],
        end=flat(trainer.model),
        applied=memory.applied,
        computed_steps=memory.clock,
        global_step=trainer.state.global_step,
        order=[batch for batch in collate.order if len(batch) <= EFFECTIVE // case.accumulation],  # not measured ones
        log=[dict(_numbers(entry)) for entry in trainer.state.log_history],
        raised=memory.raised,
        died=died,
    )


def flat(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten().double() for p in model.parameters()])


def _numbers(entry: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name in ("loss", "learning_rate", "epoch", "step", "eval_loss", "train_loss"):
        if name in entry:
            yield name, float(entry[name])
