"""How much GPU memory a training needs, without a GPU, and what would make it fit: ``estimate_memory``."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .._core.checks import checked, one_of
from .._core.declared import Optimizer, Precision, RowKind
from .._core.records import to_json
from .._core.render import Record, Shown, gib
from .._core.settings import ACCUMULATION, ALLOCATOR, OPTIMIZER, PRECISION, SAMPLING_RATE, Checkpointing, Estimator
from ..errors import AsrConfigError, UnsupportedError
from .estimate import MemoryEstimate
from .memory_model import MemoryModel, open_model
from .memory_settings import MemorySettings, Shape, Target
from .model_profile import profile_model
from .predict_records import PeakMoment, PhasePeak

_SAMPLE_BYTES = SAMPLING_RATE * 4  # one second of audio
_SHARE_PER_SAMPLE = 0.1
_LENGTHS_S = (5.0, 10.0, 20.0, 30.0)  # of a table's rows
_LARGEST_SHOWN = 64  # batch of a table: seven columns are as many as 80 characters take
_STATES = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
_Change = tuple[str, Any]  # a setting and its value
_Ask = Callable[[MemorySettings], MemoryEstimate]

# The changes to try, with the current values that need more memory.
_CHANGES: dict[_Change, tuple[Any, ...]] = {
    ("optimizer", "adamw_torch_fused"): ("adamw_torch",),
    ("gradient_checkpointing", True): (False,),
    ("precision", "fp16"): ("fp32",),
    ("freeze_feature_encoder", True): (False,),
    ("optimizer", "adafactor"): ("adamw_torch", "adamw_torch_fused"),
}


class EstimatorWarning(UserWarning):
    """The training step could not be traced, so a formula answered instead."""


def estimate_memory(
    model: object,
    *,
    batch: int,
    seconds: float,
    labels: int | None = None,
    precision: Precision = PRECISION,
    gradient_checkpointing: bool | Checkpointing = False,
    optimizer: Optimizer = OPTIMIZER,
    accumulation: int = ACCUMULATION,
    every_n_layers: int = 1,
    offload_checkpoints: bool = False,
    freeze_feature_encoder: bool = False,
    lora_rank: int = 0,
    gpu: str | None = None,
    evaluation_batch: int | None = None,
    estimator: Estimator = "auto",
    allocator: str = ALLOCATOR,
    cache: bool = True,
    progress: bool = True,
) -> MemoryEstimate:
    """Estimate the GPU memory of training a model: peaks, what holds them, and whether it fits.

    By default the training step is recorded with imaginary tensors, without a GPU, and replayed through a simulation of
    PyTorch's allocator. This takes seconds the first time; later the recording comes from the cache. Recordings of
    known models come with the package, and need no torch.

    Args:
        model: A ``torch.nn.Module``, a function that builds one, a transformers config (object or dictionary), a folder
            with ``config.json``, or a name: one of ``known_models``, or of the Hugging Face Hub.
        batch: The clips of a micro-batch, at least 1.
        seconds: The seconds of its longest clip, above 0; of a model of texts, its tokens / 50.
        labels: The tokens of its longest text; None for the usual number of that duration.
        precision: ``"fp32"``, or ``"fp16"`` or ``"bf16"`` for mixed precision.
        gradient_checkpointing: False, True, ``"reentrant"`` or ``"non_reentrant"``.
        optimizer: The Trainer's name of an optimizer.
        accumulation: The micro-batches of an optimizer step.
        every_n_layers: Above 1, each n-th layer alone is checkpointed, as by transformers 5.23.
        offload_checkpoints: Whether checkpoints are saved in pinned host memory (``.pinned_bytes``), as by transformers
            5.23.
        freeze_feature_encoder: Whether the convolutional front end is frozen, as by ``model.freeze_feature_encoder()``.
            Call that first for a live module.
        lora_rank: Above 0, adapters of this rank are trained, as ``add_lora`` makes them.
        gpu: A GPU of the catalogue, ``"T4"``; with several, ``"2xT4"``, NCCL's memory is included. None for this
            machine's GPU, if there is one.
        evaluation_batch: The clips of an evaluation batch, for ``.evaluation``; None for no evaluation. Only traces
            answer it.
        estimator: ``"trace"`` for the simulation, ``"published"`` for the formula of the policy of that name, or
            ``"auto"`` for the first of them that works, with an ``EstimatorWarning`` where tracing failed.
        allocator: The value of PYTORCH_CUDA_ALLOC_CONF. The default is that of a plan; ``""`` for PyTorch's own
            settings.
        cache: Whether recordings are read from the cache and written to it.
        progress: Whether tracing shows a progress bar.

    Returns:
        The plain prediction, without a safety margin. Where it does not fit, its ``remedies`` name changes with which
        it would.

    Raises:
        InvalidArgumentError: A value is out of its range, or the model cannot be read or built.
        NotFoundError: The name of the model or of the GPU is unknown.
        UnsupportedError: With ``estimator="trace"``, the step cannot be traced (``TraceError``), or torch is not
            installed; with the formula, ``lora_rank`` is above 0.

    Example:
        >>> memory = estimate_memory("wav2vec2-base", batch=4, seconds=10, gpu="T4", progress=False)
        >>> memory.fits, round(memory.peak_reserved / 2**30, 1)
        (True, 3.5)
    """
    checked("estimator", estimator, Estimator)
    settings = MemorySettings(
        precision, gradient_checkpointing, optimizer, accumulation, freeze_feature_encoder, allocator,
        every_n_layers, offload_checkpoints, lora_rank,
    )  # fmt: skip
    shape, notes = Shape(batch, seconds, labels), list[str]()

    def changed(settings: MemorySettings) -> MemoryEstimate:
        with open_model(model, settings, gpu, cache=cache, progress=progress) as memory:
            return memory.estimate(batch, seconds, labels, timeline=0)

    if estimator != "published":
        try:
            # The trace stays open as long as the estimate, which can save a snapshot.
            memory = open_model(model, settings, gpu, cache=cache, progress=progress)
            estimate = memory.estimate(batch, seconds, labels, evaluation_batch=evaluation_batch)
            if estimate.fits is not False:
                return estimate
            return dataclasses.replace(estimate, remedies=estimate.remedies + changes_that_fit(settings, changed))
        except UnsupportedError as error:
            if estimator == "trace":
                raise
            notes.append(f"the trace estimator could not answer: {error.message}")
            warnings.warn(notes[0], EstimatorWarning, stacklevel=2)
    if evaluation_batch is not None:
        notes.append("evaluation is estimated from traces only, not by 'published'")
    return dataclasses.replace(_published(model, shape, settings, Target.find(gpu)), warnings=tuple(notes))


@dataclass(frozen=True)
class BatchRow:
    """Micro-batches whose longest clip has these ``seconds``: the largest that fits, and the peak of each batch."""

    seconds: float
    largest_batch: int | None  # None without a GPU in mind
    # Bytes on the device, with the driver's context where a GPU is in mind. None where the trace does not tell, and
    # beyond the first batch that does not fit.
    peaks: tuple[int | None, ...]


@dataclass(frozen=True, repr=False)
class BatchTable(Shown, kind="batch table"):
    """The memory of micro-batches of several lengths and sizes, as ``asrconfig memory`` shows without ``--batch``."""

    model: str
    settings: MemorySettings
    target: Target
    row_kind: RowKind
    batches: tuple[int, ...]
    rows: tuple[BatchRow, ...]

    def _shown(self) -> Record:
        target = {**vars(self.target), "limit_bytes": self.target.limit_bytes}
        return {**to_json(self), "settings_words": self.settings.words(), "target": target}


def batch_table(
    model: object,
    *,
    seconds: float | None = None,
    labels: int | None = None,
    gpu: str | None = None,
    cache: bool = True,
    progress: bool = True,
    **settings: Any,
) -> BatchTable:
    """Compute peaks and the largest micro-batch for clips of 5, 10, 20 and 30 s, or up to another length.

    Arguments and errors are those of ``estimate_memory``. ``seconds`` is the length of the longest row; None for 30 s,
    or for what the model takes at most. A model whose input has one length has one row.
    """
    with open_model(model, MemorySettings(**settings), gpu, cache=cache, progress=progress) as memory:
        lengths = _table_lengths(memory, seconds)
        shapes = [Shape(1, length, labels) for length in lengths]
        has_gpu = memory.target.limit_bytes is not None
        fits: Sequence[int | None] = memory.largest_batches(shapes) if has_gpu else [None] * len(shapes)
        largest_of_all = max((max(1, size) for size in fits if size is not None), default=_LARGEST_SHOWN)
        highest = min(_LARGEST_SHOWN, 2 * largest_of_all)
        batches = tuple(2**power for power in range(highest.bit_length()))
        with memory.by_formulas():
            rows = [
                BatchRow(shape.seconds, largest, tuple(_peaks(memory, shape, batches, largest)))
                for shape, largest in zip(shapes, fits, strict=True)
            ]
        return BatchTable(memory.name, memory.settings, memory.target, memory.row_kind, batches, tuple(rows))


def _table_lengths(memory: MemoryModel, seconds: float | None) -> list[float]:
    if memory.fixed_length:
        return [memory.fixed_length / memory.length_per_second]
    longest = min(_LENGTHS_S[-1], memory.longest_s) if seconds is None else seconds
    return [length for length in _LENGTHS_S if length < longest] + [longest]


def _peaks(memory: MemoryModel, shape: Shape, batches: Sequence[int], largest: int | None) -> Iterator[int | None]:
    """The peak of each batch up to the first that does not fit; simulating the others would tell nothing more."""
    unfit = False
    for batch in batches:
        peak = None
        if not unfit:
            with contextlib.suppress(UnsupportedError):
                estimate = memory.estimate(batch, shape.seconds, shape.labels, timeline=0)
                peak = estimate.peak_reserved if estimate.peak_device is None else estimate.peak_device
        unfit = largest is not None and batch > largest
        yield peak


def _published(model: object, shape: Shape, settings: MemorySettings, target: Target) -> MemoryEstimate:
    """Parameters, gradients and optimizer state, and per sample its audio and a tenth of the model's memory."""
    one_of("optimizer", settings.optimizer, tuple(_STATES))
    if settings.lora_rank:
        raise UnsupportedError("the published formula does not know lora_rank", 'ask with estimator="trace"')
    profile = profile_model(model, freeze_feature_encoder=settings.freeze_feature_encoder)
    states = {
        "parameters": profile.parameter_bytes or 0,
        "gradients": profile.gradient_bytes or 0,
        "optimizer": profile.optimizer_bytes[_STATES[settings.optimizer]],
    }
    activations = round(shape.batch * _SHARE_PER_SAMPLE * sum(states.values()))
    inputs = round(shape.batch * shape.seconds * _SAMPLE_BYTES)
    peak = sum(states.values()) + activations + inputs
    components = {**states, "activations": activations, "inputs": inputs}
    return MemoryEstimate(
        estimator="published", peak_allocated=peak, peak_requested=peak, peak_reserved=peak,
        peak_device=None if target.context_bytes is None else peak + target.context_bytes,
        pinned_bytes=None if settings.offload_checkpoints else 0,
        fits=None if target.limit_bytes is None else peak <= target.limit_bytes,
        retries=0, out_of_memory=None, fragmentation=0.0,
        at_peak=PeakMoment("micro", "backward", "", "", components, ()),
        phases=(PhasePeak("micro", "backward", peak, peak),), timeline=None, approximate=0,
        notes=("the published formula ignores how activations grow with the length, and the allocator's rounding",),
        model=f"{profile.name} ({profile.class_name})" if profile.name else profile.class_name,
        shape=shape, settings=settings, target=target,
    )  # fmt: skip


def changes_that_fit(settings: MemorySettings, ask: _Ask) -> tuple[str, ...]:
    """Single settings with which it would fit; if there is none, as many together as it takes.

    ``ask`` returns the estimate for settings; changes that the model cannot train with are left out.
    """
    changes, fitting = [], []
    for change, larger in _CHANGES.items():
        if getattr(settings, change[0]) not in larger:
            continue
        with contextlib.suppress(AsrConfigError):
            words, fits = _tried(settings, [change], ask)
            changes.append(change)
            fitting += [words] if fits else []
    if fitting:
        return tuple(fitting)
    for count in range(2, len(changes) + 1):
        words, fits = _tried(settings, changes[:count], ask)  # of two optimizers the later one counts
        if fits or count == len(changes):
            return (words if fits else f"not even {words} would fit",)
    return ()


def _tried(settings: MemorySettings, changes: list[_Change], ask: _Ask) -> tuple[str, bool]:
    """The changes in words with the memory that they need, and whether it fits."""
    estimate = ask(dataclasses.replace(settings, **dict(changes)))
    words = " and ".join(f"{name}={value!r}" for name, value in dict(changes).items())
    return f"{words}: {gib(estimate.peak_device or 0)}", bool(estimate.fits)
