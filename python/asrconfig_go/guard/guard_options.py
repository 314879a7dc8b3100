"""The options of a guard, and checks of the Trainer, or the loop of one's own, that is guarded."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, get_args

import torch
from torch.nn.parallel import DistributedDataParallel

from .._core.checks import check_seconds, checked
from .._core.declared import WeightRule
from .._core.settings import BadClipPolicy, OomSnapshot, TooLong
from .._core.training_session import cannot_retry, sharded
from ..errors import InvalidArgumentError
from .loop import Split
from .loss_rule import GivenRule

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import Trainer

_HALVINGS = 3  # of a step
_MOST_HALVINGS = 20  # down to one clip, where clips may be left out
_MOST_CLIPS = 100_000
_NEEDED = (
    "training_step", "prediction_step", "evaluation_loop", "get_batch_samples", "compute_loss", "_save_checkpoint",
    "accelerator",
)  # fmt: skip


class GuardSettings(TypedDict, total=False):
    """What ``Guard`` takes by keyword."""

    max_halvings: int | None
    micro_batch: int | None
    memory: Any
    memory_limit_bytes: int | None
    overhead_s: float | None
    host_s: float
    rule: GivenRule | None
    split: Split | None
    too_long: TooLong | Callable[[Any], list[Any]]
    preflight: bool | float
    split_batch_statistics: bool
    oom_snapshot: OomSnapshot
    bad_clips: BadClipPolicy


@dataclass(frozen=True)
class GuardOptions:
    """The same with their defaults. Raises ``InvalidArgumentError`` for values that mean nothing."""

    max_halvings: int | None = None
    micro_batch: int | None = None
    memory: Any = None
    memory_limit_bytes: int | None = None
    overhead_s: float | None = None
    host_s: float = 0.0
    rule: GivenRule | None = None
    split: Split | None = None
    too_long: TooLong | Callable[[Any], list[Any]] = "raise"
    preflight: bool | float = False
    split_batch_statistics: bool = False
    oom_snapshot: OomSnapshot = "blocks"
    bad_clips: BadClipPolicy = "report"

    def __post_init__(self) -> None:
        for name, seconds in (("overhead_s", self.overhead_s), ("host_s", self.host_s)):
            if seconds is not None and not 0 <= checked(name, seconds, float) <= 1e6:
                raise InvalidArgumentError(
                    f"{name} = {seconds!r} is out of range", "pass seconds of audio, 4 is usual for overhead_s"
                )
        for name, value, minimum in (("max_halvings", self.max_halvings, 0), ("micro_batch", self.micro_batch, 1)):
            is_int = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (is_int and minimum <= value <= _MOST_CLIPS):
                problem = f"{name} = {value!r} is not a whole number from {minimum}"
                raise InvalidArgumentError(problem, f"leave {name} out, or raise it")
        if not callable(self.rule):
            checked("rule", self.rule, WeightRule | None)
        if self.too_long not in get_args(TooLong) and not callable(self.too_long):
            raise InvalidArgumentError(
                f"too_long = {self.too_long!r} is not known",
                '"raise", "skip", or a function from a batch of one to a list',
            )
        if not isinstance(self.preflight, bool):
            check_seconds("preflight", self.preflight)
        checked("split_batch_statistics", self.split_batch_statistics, bool)
        checked("oom_snapshot", self.oom_snapshot, OomSnapshot)
        checked("bad_clips", self.bad_clips, BadClipPolicy)

    @property
    def halvings(self) -> int:
        """The retries of each step."""
        if self.max_halvings is not None:
            return self.max_halvings
        return _HALVINGS if self.too_long == "raise" else _MOST_HALVINGS


def check_trainer(trainer: Trainer) -> None:
    """Raise ``InvalidArgumentError`` for what cannot be guarded."""
    for name in _NEEDED:
        if not hasattr(trainer, name):
            raise InvalidArgumentError(f"{type(trainer).__name__} has no {name}", "pass a transformers.Trainer")
    if not getattr(trainer, "model_init", None) and not any(p.requires_grad for p in trainer.model.parameters()):
        raise InvalidArgumentError(
            f"{type(trainer.model).__name__} has no parameter that requires a gradient",
            "unfreeze what should be trained before attaching",
        )
    from .._core.modules import IN_32_BIT, half_weights

    if half_weights(trainer.model) == "float16" and trainer.args.fp16 and not sharded(trainer):
        raise InvalidArgumentError(
            f"the trained weights of {type(trainer.model).__name__} are stored in float16, and fp16=True scales their "
            "gradients: PyTorch's scaler takes none of float16",
            f"{IN_32_BIT}; fp16=True then computes in float16, too",
        )
    norms = [name for name, m in trainer.model.named_modules() if type(m).__name__ == "SyncBatchNorm"]
    if norms and trainer.args.world_size > 1:
        raise InvalidArgumentError(
            f"{norms[0]} waits for the other processes in each forward, where one may need more of them than another",
            "use BatchNorm, or normalise over the features",
        )


def check_own_loop(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None, options: GuardOptions, max_grad_norm: float | None,
) -> None:  # fmt: skip
    """Raise ``InvalidArgumentError`` for parts of a loop of one's own that are of the wrong kind."""
    if not isinstance(model, torch.nn.Module) or next(model.parameters(), None) is None:
        problem = f"model is of type {type(model).__name__}, which has no parameters"
        raise InvalidArgumentError(problem, "pass a torch.nn.Module")
    if options.micro_batch is not None and options.rule is None:
        problem = f"micro_batch = {options.micro_batch} requires knowing what the loss divides by"
        raise InvalidArgumentError(problem, 'pass rule="mean", for example')
    _check_step("optimizer", optimizer, "use an optimizer whose step() can be called without arguments")
    if scheduler is not None:
        _check_step("scheduler", scheduler, "leave it out, and call its step() after each evaluation")
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise InvalidArgumentError(f"max_grad_norm = {max_grad_norm!r} is not a number above 0", "1.0 is usual")


def steps_to_accumulate(
    accumulation: int, scaler: torch.amp.GradScaler | None, accelerator: Accelerator | None, model: torch.nn.Module
) -> int:
    """Batches of an optimizer step. Raises ``InvalidArgumentError`` for options that do not go together."""
    if checked("accumulation", accumulation, int) < 1:
        raise InvalidArgumentError(f"accumulation = {accumulation} is below 1", "1 steps after each batch")
    if accelerator is not None and (scaler is not None or accumulation != 1):
        other = "a scaler" if scaler is not None else f"accumulation = {accumulation}"
        raise InvalidArgumentError(
            f"both an accelerator and {other} are passed",
            "leave it out: accelerator = Accelerator(mixed_precision=…, gradient_accumulation_steps=…) has both",
        )
    group = torch.distributed
    is_one = not (group.is_available() and group.is_initialized()) or group.get_world_size() == 1
    several = not is_one or getattr(accelerator, "num_processes", 1) > 1
    if several or isinstance(model, DistributedDataParallel | torch.nn.DataParallel):
        raise InvalidArgumentError(
            "guarded_step is for one process and one GPU: several would wait for each other in a batch that one "
            "computes again",
            "train with a transformers.Trainer and manager.attach(trainer), which handles DDP",
        )
    return accumulation if accelerator is None else int(accelerator.gradient_accumulation_steps)


def _check_step(name: str, part: torch.optim.Optimizer, hint: str) -> None:
    """Raise where ``step()`` requires an argument: a closure, or metrics."""
    parameters = inspect.signature(part.step).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    # A scheduler replaces its optimizer's step() by a function with the signature of the class's.
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in kinds and p.name != "self"]
    if needed:
        raise InvalidArgumentError(f"step() of {name}, of type {type(part).__name__}, requires {needed[0]}", hint)


def check_windows(trainer: Trainer, processes: int) -> str:
    """What is wrong with windows that do not end with an epoch; "" where they do.

    transformers 4.46 counts batches across epochs, and carries the gradients of the last ones into the next. Raises
    ``InvalidArgumentError`` for several processes, whose gradients would then never be averaged.
    """
    from transformers import Trainer
    from transformers.trainer_utils import has_length

    every, loader = trainer.args.gradient_accumulation_steps, trainer.callback_handler.train_dataloader
    ends_windows = "device" in inspect.signature(Trainer.get_batch_samples).parameters
    if ends_windows or not has_length(loader) or len(loader) <= every or (last := len(loader) % every) == 0:
        return ""
    problem = f"this version of the Trainer carries the gradients of the last {last} batches of an epoch on"
    hint = "accumulate a number of batches that divides those of an epoch, or take a newer transformers"
    if processes > 1:
        raise InvalidArgumentError(f"{problem}, where the weights of several processes come apart", hint)
    return f"{problem}, with the weight of a whole window: {hint}"


def caveats(trainer: Trainer) -> tuple[str, ...]:
    """What the guard cannot do for this training, or says of it, in sentences."""
    from .._core.modules import IN_32_BIT, half_weights, half_words

    stored = half_weights(trainer.model)
    sentences = [f"{half_words(trainer.model, stored)} → {IN_32_BIT}"] if stored and not sharded(trainer) else []
    if cannot_retry(trainer):
        sentences.append(
            "processes or GPUs that share each step cannot go back one by one: weights of micro-batches are kept "
            "right, but out of memory ends the run; manager.train says what to restart with"
        )
    from ..audio.collators import CTCCollator, Seq2SeqCollator

    has_processor = isinstance(trainer.data_collator, CTCCollator | Seq2SeqCollator)
    saves_none = trainer.args.save_strategy != "no" and getattr(trainer, "processing_class", None) is None
    if has_processor and saves_none:
        sentences.append(
            "checkpoints will lack the processor, without which pipeline(…) cannot load them: pass "
            "processing_class=processor to the Trainer"
        )
    return tuple(sentences)
