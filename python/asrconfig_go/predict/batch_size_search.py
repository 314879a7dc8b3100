"""Finds the largest micro-batch by trials: forward and backward on the device, with optimizer states allocated."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .._core import native
from .._core.checks import check_seconds, checked
from .._core.declared import Precision
from .._core.out_of_memory import classify, clear_frames, free_memory
from .._core.output import ProgressBar, kind_of
from .._core.render import box, exact
from ..errors import AsrConfigError, InvalidArgumentError
from ..trace.model import is_module
from .memory_model import MemoryModel
from .memory_settings import MAX_BATCH, allocator_in_force, positive
from .probe import on_gpu, optimizer_states, untouched
from .trial_batch import BatchFunction, TrialBatch, is_tokenizer, model_trial, trainer_trial

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedTokenizerBase, Trainer


@dataclass(frozen=True)
class BatchSizeProbe:
    """One trial of a search.

    Attributes:
        batch: The samples of the micro-batch.
        fits: Whether forward and backward ran without running out of memory.
        peak_reserved: The peak of reserved memory in bytes; None on a CPU.
        seconds: The time that the trial took, with a repetition if there was one.
    """

    batch: int
    fits: bool
    peak_reserved: int | None
    seconds: float


@dataclass(frozen=True, repr=False)
class BatchSizeSearch:
    """The result of a search for the largest micro-batch.

    Attributes:
        micro_batch: The largest size from ``low`` to ``high`` that fits; 0 if none does.
        probes: The trials, in order.
        start: The size that the search began with.
        start_source: Why it began with that size, in words.
        low: The smallest size allowed.
        high: The largest size allowed.
        seconds: The duration of the clips; None for texts and other inputs whose duration is not known.
        inputs: What the trials ran on, in words.
        optimizer_bytes: The bytes of the optimizer's states; 0 if none were allocated.
        notes: What was assumed, moved or skipped, in words.
    """

    micro_batch: int
    probes: tuple[BatchSizeProbe, ...]
    start: int
    start_source: str
    low: int
    high: int
    seconds: float | None
    inputs: str
    optimizer_bytes: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        states = f", {exact(self.optimizer_bytes)} of optimizer states" if self.optimizer_bytes else ""
        lines = [self._verdict(), *(f"  {_probe_text(p)}" for p in self.probes), f"  with {self.inputs}{states}"]
        return "\n".join([*lines, *(f"  ! {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return box("Largest micro-batch", repr(self))

    def _verdict(self) -> str:
        tried = f"{len(self.probes)} trial{'s' * (len(self.probes) != 1)} from {self.start}, {self.start_source}"
        duration = "" if self.seconds is None else f" of {self.seconds:g} s"
        if not self.micro_batch:
            return f"not even a micro-batch of {self.low}{duration} fits: {tried}"
        end = ", the largest size allowed" if self.micro_batch == self.high else ""
        return f"largest micro-batch {self.micro_batch}{duration}{end}: {tried}"


def _probe_text(p: BatchSizeProbe) -> str:
    peak = "" if p.peak_reserved is None else f", {exact(p.peak_reserved)} reserved"
    return f"{p.batch:>5} {'fits' if p.fits else 'does not fit'}{peak}, {p.seconds:.2f} s"


def find_max_batch_size(
    model_or_trainer: nn.Module | Trainer,
    batch_fn: BatchFunction | PreTrainedTokenizerBase | None = None,
    *,
    seconds: float | None = None,
    max_length: int | None = None,
    low: int = 1,
    high: int = 4096,
    start: int | MemoryModel | None = None,
    optimizer: torch.optim.Optimizer | str | None = None,
    precision: Precision | None = None,
    accumulation: int | None = None,
    batch: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> BatchSizeSearch:
    """Find the largest micro-batch that trains on this device, by trying.

    Each trial runs forward and backward with the optimizer's states allocated. Afterwards weights, gradients, buffers,
    modes, random numbers and the trainer are as before, even if a trial raises. A model on the CPU beside a GPU is
    moved there for the search, and back. Errors of a trial other than running out of GPU memory propagate.

    Args:
        model_or_trainer: A model, which runs ``model(**batch)``, or a ``Trainer``, which runs its own step on its
            longest clips by its column of lengths, or without one on its first clips.
        batch_fn: A function that returns the inputs for a number of samples; for a model also a tokenizer, for texts of
            ``max_length`` tokens. None for made-up clips of ``seconds`` seconds with a model, and for the trainer's own
            clips.
        seconds: The seconds to which a trainer's clips are stretched or cut, or of a model's made-up clips; None for a
            trainer's clips as they are. Required for a model without ``batch_fn`` and ``max_length``.
        max_length: The tokens of made-up texts, for a model of texts; required with a tokenizer.
        low: The smallest size to try, in samples.
        high: The largest size to try, up to 65536.
        start: A first guess: a number of samples, or a ``MemoryModel`` for clips whose ``seconds`` are known. None, on
            a GPU, for what a trace of the model predicts, where it can be traced; otherwise for ``low``. A right guess
            takes two trials, one within a factor of two about four.
        optimizer: A torch optimizer or, for a model, the Trainer's name of one; None for the trainer's own, or AdamW
            for a model.
        precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``, for a model; None for fp32. A trainer has its own.
        accumulation: Above 1, a model's trial runs on top of accumulated gradients; None for 1. A trainer has its own.
        batch: A collated batch for a trainer whose dataset has no column of lengths; required where the dataset is a
            stream.
        progress: Whether to show a progress bar.

    Returns:
        The largest size that fits, with every trial.

    Raises:
        InvalidArgumentError: The range is empty, there is no loss or nothing to train, an argument does not apply, or
            several processes or GPUs train.
        InfeasiblePlanError: The weights, or the states of the optimizer alone, do not fit.
        UnsupportedError: The optimizer steps within backward, or a trial changed weights, which cannot be restored.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> find_max_batch_size(small_model(tokens=12, seed=0), seconds=1.0, high=2).micro_batch
        2
    """
    _check(low, high, seconds, start)
    with contextlib.ExitStack() as stack:
        model = _model(model_or_trainer, batch_fn, precision, accumulation)
        is_model = model is model_or_trainer
        _check_max_length(is_model, batch_fn, seconds, max_length)
        _check_optimizer(optimizer, named=is_model)
        stack.enter_context(untouched(model))
        notes = [stack.enter_context(on_gpu(model, optimizer, movable=is_model))]
        if is_model:
            settings = ("fp32" if precision is None else precision, 1 if accumulation is None else accumulation)
            trial, optimizer = model_trial(model, batch_fn, seconds, max_length, *settings, optimizer)
        else:
            trial, optimizer = stack.enter_context(trainer_trial(model_or_trainer, batch_fn, seconds, batch, optimizer))
        meter = Meter(next(model.parameters()).device)
        first, source = _start(start, low, trial, meter)
        first = min(max(first, low), high)
        states = stack.enter_context(optimizer_states(optimizer))
        probes = tuple(_search(trial, meter, low, high, first, progress))
        notes += [f"{states.optimizer}: {states.note}"] if states.note else []
        largest = max((probe.batch for probe in probes if probe.fits), default=0)
        return BatchSizeSearch(
            largest, probes, first, source, low, high, trial.seconds, trial.inputs, states.bytes,
            tuple(filter(None, notes)),
        )  # fmt: skip


class Meter:
    """Measures the memory of a GPU; every figure of another device is None."""

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None

    def limit(self) -> int | None:
        """The bytes that the allocator may reserve in total."""
        if self._device is None:
            return None
        free, total = torch.cuda.mem_get_info(self._device)
        limit = int(free + torch.cuda.memory_reserved(self._device))
        share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(self._device)
        return min(limit, int(share * total))

    def begin(self) -> None:
        """Reset the peaks."""
        if self._device is not None:
            torch.cuda.reset_peak_memory_stats(self._device)

    def end(self) -> tuple[int, int] | None:
        """The peak of reserved bytes, and what remains allocated: weights, states and gradients."""
        if self._device is None:
            return None
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.max_memory_reserved(self._device)), int(torch.cuda.memory_allocated(self._device))


def _search(
    trial: TrialBatch, meter: Meter, low: int, high: int, start: int, progress: bool
) -> Iterator[BatchSizeProbe]:
    """Try the sizes that the library chooses, until the largest that fits is known."""
    free_memory()
    trials = list[dict[str, Any]]()
    search = {"low": low, "high": high, "start": start, "limit_bytes": meter.limit(), "trials": trials}
    answer, size = native.call("recovery.trial", search), start

    def note() -> str:
        fits = f"; {answer['fits']} fits" if answer["fits"] >= low else ""
        return f"{size} now{fits}" + (f", {answer['fails']} does not" if answer["fails"] <= high else "")

    with ProgressBar("Trying micro-batches", "trial", None, progress, note) as advance:
        while answer["size"] is not None:
            size = answer["size"]
            advance(len(trials), None)
            began = time.perf_counter()
            error, measured = _try(trial, meter, size)
            if _may_be_oom(error):
                error, measured = _try(trial, meter, size)
                if error is not None and _may_be_oom(error) and size == low:
                    raise error  # nothing is smaller, so memory is not the cause
            peak, base = measured or (None, None)
            trials.append({"size": size, "fits": error is None, "peak_bytes": peak, "base_bytes": base})
            answer = native.call("recovery.trial", search)
            advance(len(trials), None)
            yield BatchSizeProbe(size, error is None, peak, time.perf_counter() - began)


def _may_be_oom(error: Exception | None) -> bool:
    return error is not None and classify(error)["class"] == "maybe"


def _try(trial: TrialBatch, meter: Meter, size: int) -> tuple[Exception | None, tuple[int, int] | None]:
    """Run ``size`` samples; returns the error if memory ran out, else the measurement."""
    failed, measured = None, None
    meter.begin()
    try:
        trial.run(size)
        measured = meter.end()
    except Exception as error:
        if classify(error)["class"] not in ("gpu_oom", "maybe"):
            raise
        clear_frames(error)
        failed = error
    finally:
        trial.model.zero_grad(set_to_none=True)
    # Outside of the except block, where nothing refers to the failed attempt any more.
    free_memory()
    return failed, measured


def _start(start: int | MemoryModel | None, low: int, trial: TrialBatch, meter: Meter) -> tuple[int, str]:
    limit = meter.limit()
    if isinstance(start, int):
        return start, "as passed"
    if start is not None:
        if trial.seconds is None:
            raise InvalidArgumentError("a memory model needs the duration of the clips", "pass seconds=")
        return start.largest_batch(trial.seconds, limit), "which the memory model predicts"
    if limit is None or trial.seconds is None:
        return low, "the lowest"
    try:
        with MemoryModel.trace(trial.model, progress=False, allocator=allocator_in_force(), **trial.settings) as traced:
            return traced.largest_batch(trial.seconds, limit), "which its trace predicts"
    except AsrConfigError as error:
        return low, f"the lowest, as the model cannot be traced ({error.message})"


def _check(low: int, high: int, seconds: float | None, start: int | MemoryModel | None) -> None:
    for name, value in (("low", low), ("high", high)):
        positive(name, value, MAX_BATCH)
    if low > high:
        raise InvalidArgumentError(f"low = {low} is above high = {high}", "pass the range of sizes to try")
    if seconds is not None:
        check_seconds("seconds", seconds)
    if start is not None and not isinstance(start, MemoryModel):
        positive("start", checked("start", start, int), MAX_BATCH)


def _check_max_length(is_model: bool, batch_fn: object, seconds: float | None, max_length: int | None) -> None:
    tokenizer = is_tokenizer(batch_fn)
    if not tokenizer and max_length is None:
        return
    if not is_model or seconds is not None or (batch_fn is not None and not tokenizer):
        raise InvalidArgumentError(
            "a tokenizer and max_length are for a model, without seconds= and batch_fn",
            "find_max_batch_size(model, tokenizer, max_length=128), or find_max_batch_size(trainer)",
        )


def _check_optimizer(optimizer: object, *, named: bool) -> None:
    if optimizer is None or hasattr(optimizer, "param_groups") or (named and isinstance(optimizer, str)):
        return
    raise InvalidArgumentError(
        f"optimizer = {optimizer!r} is not an optimizer",
        "pass a torch.optim.Optimizer, or for a model the Trainer's name",
    )


def _model(
    model_or_trainer: nn.Module | Trainer, batch_fn: object, precision: object, accumulation: object
) -> nn.Module:
    model: nn.Module = model_or_trainer if is_module(model_or_trainer) else getattr(model_or_trainer, "model", None)
    if not is_module(model):
        raise InvalidArgumentError(
            f"cannot search with {kind_of(model_or_trainer)}",
            "pass a torch.nn.Module or a transformers.Trainer",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise InvalidArgumentError(
            f"{type(model).__name__} has no trainable parameters", "set requires_grad on the parameters to train"
        )
    if batch_fn is not None and (not callable(batch_fn) or hasattr(batch_fn, "feature_extractor")):
        raise InvalidArgumentError(
            f"batch_fn is {kind_of(batch_fn)}, not a function",
            "pass batch_fn(samples) -> the model's keyword arguments as tensors, a tokenizer, or seconds= alone",
        )
    if model is not model_or_trainer and (precision is not None or accumulation is not None):
        raise InvalidArgumentError(
            "a trainer has its own precision and accumulation", "change its TrainingArguments instead"
        )
    return model
