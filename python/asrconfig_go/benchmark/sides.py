"""The sides of a benchmark: a plan, your settings, the Trainer's defaults; and single changes to the plan.

Blocks of the sides take turns, and what was measured of each is kept with it.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import fmean
from typing import TYPE_CHECKING, Any

from .._core.checks import at_least
from ..config import TrainingConfig
from ..plan.argument_names import named
from ..plan.training_arguments import arguments_of
from .measurements import Block, Spread, Turn

if TYPE_CHECKING:
    from transformers import TrainingArguments

    Kind = type[TrainingArguments]
    from torch.nn import Module

# Both sides neither log nor save, so that none of it differs between them.
_OWN: dict[str, Any] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "auto_find_batch_size": False,  # it would change the batch
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "dataloader_drop_last": False,
}
SHOWN = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "fp16", "bf16", "tf32", "gradient_checkpointing",
    "optim", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers",
    "dataloader_pin_memory", "torch_compile", "train_sampling_strategy", "group_by_length",
)  # fmt: skip


PLAN, YOURS, DEFAULTS = "plan", "your settings", "the Trainer's defaults"


@dataclass(frozen=True)
class Side:
    """One way to train. ``settings`` are the Trainer's names; with a ``plan`` those that win over it.

    ``adapted`` is why its batch is another than the one that was meant.
    """

    name: str
    settings: Mapping[str, Any]
    plan: TrainingConfig | None = None
    arguments_class: Kind | None = None
    adapted: str = ""

    @property
    def batch(self) -> tuple[int, int]:
        """Clips of a micro-batch, and how many are accumulated; the Trainer's defaults where they are not set."""
        usual = defaults(self.arguments_class) if self.plan is None else self.plan.to_dict()
        settings = {**usual, **self.settings}
        return _size("per_device_train_batch_size", settings), _size("gradient_accumulation_steps", settings)

    @property
    def effective_batch(self) -> int:
        """Clips of an optimizer step."""
        return math.prod(self.batch) if self.plan is None else self.plan.effective_batch_size

    def shown(self, arguments: TrainingArguments | None = None) -> dict[str, object]:
        """The settings to report of its ``arguments``, which are made here where it could not be trained."""
        if arguments is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arguments = self.arguments("out", 1, 0, None)
        values = {name: getattr(arguments, name) for name in SHOWN if hasattr(arguments, name)}
        values = {name: getattr(value, "value", value) for name, value in values.items()}
        if self.plan is not None:
            values |= {"micro_batching": self.plan.micro_batching, "length_handling": self.plan.length_handling}
        return values

    def halved(self) -> Side | None:
        """Half the micro-batch for the same step, of the Trainer's defaults; None where that leaves one clip alone."""
        batch, accumulated = self.batch
        if self.name != DEFAULTS or batch % 2 or batch < 4:
            return None
        reason = f"{batch} × {accumulated} ran out of memory on this device"
        settings = batch_settings(batch // 2, 2 * accumulated)
        return dataclasses.replace(
            self,
            settings={**self.settings, **settings},
            adapted=f"{self.adapted}; {reason}" if self.adapted else reason,
        )

    def arguments(self, folder: str, steps: int, seed: int, model: Module | None) -> TrainingArguments:
        """New TrainingArguments with this number of steps: newer ones leave accelerate's state as they found it."""
        own = named({**_OWN, "max_steps": steps, "seed": seed}, self.arguments_class)
        settings = {**self.settings, **own}
        if self.plan is None:
            return arguments_of(settings, folder, self.arguments_class)
        return self.plan.to_training_arguments(folder, arguments_class=self.arguments_class, model=model, **settings)


def most_workers(plan: TrainingConfig, original: Side | None, sweep: Sequence[str] | None, cores: float) -> int:
    """The most loader workers of any side, counted per batch of a step."""
    counts = [plan.dataloader_num_workers]
    if original is not None and original.plan is None:
        _, batches = original.batch
        counts.append(-(-int(original.settings.get("dataloader_num_workers", 0)) // batches))
    if sweep is None or "workers" in sweep:  # they may be tried
        counts.append(int(min(cores, 8)))
    return max(counts)


def _size(name: str, settings: Mapping[str, Any]) -> int:
    return int(at_least(name, settings[name], 1, "correct the settings"))


def batch_settings(size: int, accumulated: int) -> dict[str, int]:
    """The batch settings under the Trainer's names."""
    return {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}


def defaults(arguments_class: Kind | None = None) -> dict[str, Any]:
    """The defaults of the installed TrainingArguments, or of ``arguments_class``."""
    from transformers import TrainingArguments

    return {field.name: field.default for field in dataclasses.fields(arguments_class or TrainingArguments)}


_WORKERS = (0, 1, 2, 4, 8)
_PREFETCH = (1, 2, 4, 8)
OPTIONS = (
    "precision", "workers", "prefetch", "persistent", "pin", "compile", "cudnn_benchmark", "tf32", "checkpointing",
    "attention", "order",
)  # fmt: skip
"""Names of what can be swept."""


@dataclass(frozen=True)
class Place:
    """The device of the training: a GPU with its compute capability, (8, 0) for an A100, or a CPU."""

    gpu: bool
    capability: tuple[int, int]
    bf16: bool
    cores: float

    @classmethod
    def here(cls, cores: float) -> Place:
        """This machine."""
        import torch

        if not torch.cuda.is_available():
            return cls(False, (0, 0), True, cores)
        return cls(True, torch.cuda.get_device_capability(), torch.cuda.is_bf16_supported(), cores)


@dataclass(frozen=True)
class Change:
    """``value`` of ``option`` by ``fields`` of the plan, unless ``why_not`` has a reason not to try it."""

    option: str
    value: str
    fields: dict[str, Any]
    why_not: str = ""

    @property
    def words(self) -> str:
        """The fields as keyword arguments."""
        return ", ".join(f"{name}={value!r}" for name, value in self.fields.items())

    def of(self, plan: TrainingConfig) -> TrainingConfig:
        """The plan with it."""
        return TrainingConfig.from_dict({**plan.to_dict(), **self.fields})


def changes(names: Iterable[str], plan: TrainingConfig, place: Place, attention: str) -> list[Change]:
    """The changes to try; ``attention`` is the model's now."""
    options = tuple(dict.fromkeys(names))
    candidates = list(_changes(plan, place, attention))
    if options == OPTIONS and not place.gpu:
        skipped = Change("compile", "", {}, "on a CPU it compiles for minutes; name it in sweep to try it")
        candidates = [skipped if change.option == "compile" else change for change in candidates]
    return [change for name in options for change in candidates if change.option == name]


def _changes(plan: TrainingConfig, place: Place, attention: str) -> Iterator[Change]:
    refused = {
        "fp16": "" if place.gpu else "the Trainer refuses it on a CPU",
        "bf16": "" if place.bf16 else "the GPU does not support it",
        "fp32": "",
    }
    for value, reason in refused.items():
        if value != plan.precision:
            precision = {"fp16": value == "fp16", "bf16": value == "bf16"}
            yield _change("precision", value, precision, reason)

    workers = plan.dataloader_num_workers
    for count in _WORKERS:
        if count != workers and count <= max(1, place.cores):
            prefetch = None if count == 0 else plan.dataloader_prefetch_factor or 2
            loader = {"dataloader_num_workers": count, "dataloader_prefetch_factor": prefetch}
            yield Change("workers", f"{count}", loader)
    if workers == 0:
        yield Change("prefetch", "", {}, "the plan has no workers, and nobody else prefetches")
        yield Change("persistent", "", {}, "the plan has no workers")
    else:
        for count in _PREFETCH:
            if count != plan.dataloader_prefetch_factor:
                yield Change("prefetch", f"{count}", {"dataloader_prefetch_factor": count})
        once = "counts once an epoch, not in a step: see the loader's time to start workers"
        yield Change("persistent", "", {}, once)

    yield _toggled("pin", "dataloader_pin_memory", plan, "" if place.gpu else "there is no GPU to copy to")
    yield _toggled("compile", "torch_compile", plan)
    reason = "the plan is deterministic" if plan.deterministic else ""
    yield _toggled("cudnn_benchmark", "cudnn_benchmark", plan, reason if place.gpu else "cuDNN is for NVIDIA GPUs")
    ampere = place.gpu and place.capability >= (8, 0)
    yield _toggled("tf32", "tf32", plan, "" if ampere else "requires compute capability 8.0 or newer")
    yield _toggled("checkpointing", "gradient_checkpointing", plan)

    reason = "" if place.gpu and find_spec("flash_attn") else "needs a GPU and the package flash-attn"
    reason = reason or ("" if plan.precision != "fp32" else "needs 16-bit arithmetic")
    for value, problem in (("eager", ""), ("sdpa", ""), ("flash_attention_2", reason)):
        if value != (plan.attn_implementation or attention):
            yield _change("attention", value, {"attn_implementation": value}, problem)

    if plan.micro_batching != "memory":
        yield Change("order", "", {}, "the Trainer makes the plan's batches")
        return
    for value in ("random", "bucketed"):
        if value != plan.length_handling:
            yield Change("order", value, {"length_handling": value, "group_by_length": False})


def _change(option: str, value: str, fields: dict[str, Any], why_not: str) -> Change:
    return Change(option, value, {} if why_not else fields, why_not)


def _toggled(option: str, field: str, plan: TrainingConfig, why_not: str = "") -> Change:
    value = not getattr(plan, field)
    return Change(option, "", {}, why_not) if why_not else Change(option, "on" if value else "off", {field: value})


@dataclass
class BenchmarkRun:
    """What was measured of one side.

    Attributes:
        side: The side, with smaller micro-batches if its own ran out of memory.
        blocks: Its measured blocks.
        rounds: The times of its rounds; empty for the plan's side.
        beside: The times of the plan in the same rounds, each from the blocks before and after it.
        settings: The arguments that it trained with.
        notes: Warnings of its trainings.
        problem: Why it could not be trained; empty if it could.
    """

    side: Side
    blocks: list[Block] = field(default_factory=list)
    rounds: list[Turn] = field(default_factory=list)
    beside: list[Turn] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def gain(self) -> Spread | None:
        """How many times faster than the plan it is; None without rounds."""
        return Spread.ratio([turn.seconds for turn in self.beside], [turn.seconds for turn in self.rounds])

    @property
    def cpu_gain(self) -> Spread | None:
        """The same by processor time; None on a GPU."""
        return Spread.ratio([turn.cpu_s for turn in self.beside], [turn.cpu_s for turn in self.rounds])


def interleave(
    plan: BenchmarkRun, others: Sequence[BenchmarkRun], rounds: int, run: Callable[[BenchmarkRun], Block | None]
) -> None:
    """Run a block of the plan, of the first other side, of the plan, of the second other side, and so on.

    Each block of another side is compared with the mean of the plan's blocks before and after it, so that a machine
    that gets evenly slower changes no ratio. ``run`` runs one block. It returns None for a side that fails, and sets
    the side's ``problem``; the side is then not run again.
    """
    last: Block | None = None
    for _ in range(rounds):
        for other in others:
            if other.problem:
                continue
            last = last or _measured_block(plan, run)
            block = _measured_block(other, run)
            if block is None or last is None:
                continue
            following = _measured_block(plan, run)
            if following is None:
                return
            other.rounds.append(mean_turn(block))
            other.beside.append(mean_turn(last, following))
            last = following
        if not others:
            _measured_block(plan, run)


def mean_turn(*blocks: Block) -> Turn:
    """The mean times of blocks; without processor time on a GPU, where it means little."""
    cpu_s = [block.cpu_s for block in blocks if block.peak_allocated_bytes is None]  # a GPU's blocks have a peak
    return Turn(fmean(block.seconds for block in blocks), fmean(cpu_s) if cpu_s else None)


def _measured_block(side_run: BenchmarkRun, run: Callable[[BenchmarkRun], Block | None]) -> Block | None:
    block = run(side_run)
    if block is not None:
        side_run.blocks.append(block)
    return block
