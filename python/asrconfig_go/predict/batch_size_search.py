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
from .._core.output import ProgressBar
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
    """One trial: the batch size, whether it fits, the peak of reserved bytes (None on a CPU), and seconds taken."""

    batch: int
    fits: bool
    peak_reserved: int | None
    seconds: float


@dataclass(frozen=True, repr=False)
class BatchSizeSearch:
    """The result of a search: ``micro_batch`` is the largest from ``low`` to ``high`` that fits, 0 if none does.

    ``start`` is the size that the search began with, and ``start_source`` says why; ``inputs`` is what the trials ran
    on. The optimizer's states took ``optimizer_bytes``.
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
    """Find the largest micro-batch from ``low`` to ``high`` samples that trains on this device, by trying.

    A trainer runs its own step on its longest clips, or on its first ones stretched to ``seconds``; for a stream pass a
    collated ``batch``. A model runs ``model(**batch_fn(samples))``, or made-up clips of ``seconds`` seconds, or, with a
    tokenizer as ``batch_fn``, texts of ``max_length`` tokens; in ``precision`` (``"fp32"``, ``"fp16"``, ``"bf16"``), on
    top of accumulated gradients where ``accumulation`` is above 1. ``optimizer`` is a torch optimizer or the Trainer's
    name of one; the default is the trainer's own, or AdamW for a model.

    A model on the CPU beside a GPU is moved there for the search, and back.

    ``start`` is a first guess: a number of samples, or a ``MemoryModel``. Without one, a search on a GPU traces the
    model, or starts from ``low``. A right guess takes two trials, one within a factor of two about four. ``progress``
    shows a bar.

    Afterwards weights, gradients, buffers, modes, random numbers and the trainer are as before, even if a trial raises.
    Errors other than running out of GPU memory propagate. Raises ``InfeasiblePlanError`` when the states of the
    optimizer alone do not fit, ``InvalidArgumentError`` for bad ranges, no loss, nothing to train or several processes.

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
            f"cannot search with a {type(model_or_trainer).__name__}",
            "pass a torch.nn.Module or a transformers.Trainer",
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise InvalidArgumentError(
            f"{type(model).__name__} has no trainable parameters", "set requires_grad on the parameters to train"
        )
    if batch_fn is not None and (not callable(batch_fn) or hasattr(batch_fn, "feature_extractor")):
        raise InvalidArgumentError(
            f"batch_fn is a {type(batch_fn).__name__}, not a function",
            "pass batch_fn(samples) -> the model's keyword arguments as tensors, a tokenizer, or seconds= alone",
        )
    if model is not model_or_trainer and (precision is not None or accumulation is not None):
        raise InvalidArgumentError(
            "a trainer has its own precision and accumulation", "change its TrainingArguments instead"
        )
    return model
