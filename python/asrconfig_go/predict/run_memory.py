"""The memory of a whole run, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.checks import check_seconds
from .._core.declared import OVERHEAD_S
from .._core.render import exact
from ..errors import InvalidArgumentError
from .length_table import Table, fits_in, memory_table
from .memory_settings import MemorySettings, Target, check_labels, positive
from .predict_records import BatchPeak
from .step_sampler import cheapest

if TYPE_CHECKING:
    from .opened_trace import OpenedTrace
    from .step_sampler import StepSampler


Step = Sequence[int] | Sequence[Sequence[int]]
MAX_STEPS = 100_000


@dataclass(frozen=True, repr=False)
class StepsEstimate:
    """The memory of a run of optimizer steps, from its first step to its last in one simulated allocator.

    Sizes are bytes. A step that ran out of memory was given up, and the run continued with an emptied cache; a run
    whose first step ran out of memory ended there.
    """

    model: str
    settings: MemorySettings
    target: Target
    limit_bytes: int | None
    """Bytes that the allocator could reserve; None: unlimited."""
    steps: int
    micro_batches: int
    """Micro-batches of all steps."""
    peak_allocated: int
    peak_reserved: int
    retries: int
    """How often the whole cache was given back for one more attempt. Each costs milliseconds of training."""
    failed_steps: int
    """Steps in which a micro-batch was out of memory, although the cache was given back."""
    first_failed_step: int | None
    """Counted from 0."""
    use: float | None
    """The most allocated in a micro-batch as a share of ``limit_bytes``, mean of the micro-batches that were played to
    their ends; None without a limit, and when there is none of them."""
    use_by_time: float | None
    """Likewise, weighted by what a micro-batch costs: its padded seconds and ``overhead_s``."""
    padding: float
    """Share of the padded seconds that is padding, 0 to 1."""
    largest_alone: BatchPeak
    """Steps of the micro-batch with the most padded seconds alone, without a limit."""

    @property
    def fits(self) -> bool:
        """Whether no micro-batch of any step was out of memory."""
        return self.failed_steps == 0

    def __repr__(self) -> str:
        limit = "" if self.limit_bytes is None else f" of {exact(self.limit_bytes)}"
        verdict = "no micro-batch is out of memory" if self.fits else f"{self.failed_steps} steps are out of memory"
        if self.first_failed_step is not None:
            verdict += f", step {self.first_failed_step} first"
        lines = [
            f"{self.model}, {self.steps} steps, {self.micro_batches} micro-batches, {self.settings.words()}",
            f"  {verdict}; {self.retries} times the cache was given back; padding {self.padding:.1%}",
            f"  peak: allocated {exact(self.peak_allocated)}, reserved {exact(self.peak_reserved)}{limit}",
        ]
        if self.use is not None and self.use_by_time is not None:
            lines.append(f"  a micro-batch allocates {self.use:.1%} of it, by time {self.use_by_time:.1%}")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Micro:
    """A micro-batch of the run."""

    clips: list[int]
    shape: list[int]
    """Batch, length and labels."""


def simulate_steps(
    memory: OpenedTrace,
    durations: Iterable[float],
    steps: StepSampler | Iterable[Step],
    *,
    table: Table | None = None,
    labels: Sequence[int] | None = None,
    count: int = 1000,
    limit_bytes: int | None = None,
    overhead_s: float = OVERHEAD_S,
    host_s: float = 0.0,
    trim: bool = True,
) -> StepsEstimate:
    """Simulate the memory of a run of optimizer steps with micro-batches of varying size.

    Trace with ``accumulation=3`` for this: gradients stay from the first micro-batch of a step on, which a trace of
    steps of one micro-batch has not recorded. The simulation takes about a millisecond for each micro-batch of a model
    of 300 million parameters. The simulated allocator frees cached memory before it fails, as PyTorch's does.

    Args:
        durations: The seconds of every clip of the dataset.
        steps: A ``StepSampler`` of these clips, epoch after epoch; or steps as lists of clip numbers, which are split
            into micro-batches as the guard does, or as lists of lists of clip numbers, which are split already.
        table: Rows of seconds and the largest micro-batch, for the split; None for that of ``memory_table`` for
            ``limit_bytes``.
        labels: The tokens of every clip's text; None for the usual number of each duration.
        count: The most steps to simulate, 1 to 100 000.
        limit_bytes: The bytes that the allocator may reserve in all; None for what the GPU of the memory model leaves,
            or for no limit without one.
        overhead_s: What a micro-batch costs besides its padded seconds, in seconds of audio.
        host_s: The least that a micro-batch costs, in seconds of audio.
        trim: Whether each micro-batch is padded to its own longest clip. False keeps the padding of the whole step, as
            the guard does for models that normalise over time (wav2vec2-base).

    Returns:
        The peaks, the steps that ran out of memory, and how much of the memory was used.

    Raises:
        InvalidArgumentError: A value is out of its range, the sampler has other clips, there are no steps, the trace
            has no shapes, or the memory model is closed.
        UnsupportedError: No formula answers for a shape.
    """
    positive("count", count, MAX_STEPS)
    limit = memory.target.limit_bytes if limit_bytes is None else positive("limit_bytes", limit_bytes, 1 << 50)
    clips = _Clips(memory, durations, labels)
    if getattr(steps, "clips", len(clips.seconds)) != len(clips.seconds):
        raise InvalidArgumentError(
            f"{len(clips.seconds)} durations, and {steps!r}", "pass the durations that the sampler was made of"
        )
    if table is None and limit is not None and clips.seconds:
        table = memory_table(memory, max(clips.seconds), limit)
    by = None if table is None else _Cut(table, overhead_s, host_s, trim)
    windows = [clips.cut(number, step, by, trim) for number, step in enumerate(islice(_endless(steps), count))]
    if not windows:
        raise InvalidArgumentError("there are no steps to simulate", "pass a StepSampler, or lists of clip numbers")
    request = {
        **memory.common_request(limit),
        "windows": [[micro.shape for micro in window] for window in windows],
        "overhead": overhead_s * memory.length_per_second,
    }
    answer = native.call("memory.run", request)
    return _read(memory, answer, windows, clips.seconds, limit)


def _read(
    memory: OpenedTrace, answer: dict[str, Any], windows: list[list[_Micro]], seconds: list[float], limit: int | None
) -> StepsEstimate:
    factor = memory.factor

    def used(mean: float | None) -> float | None:
        return None if mean is None or limit is None else mean * factor / limit

    micros = [micro for window in windows for micro in window]
    padded = sum(micro.shape[0] * micro.shape[1] for micro in micros) / memory.length_per_second
    audio = sum(seconds[clip] for micro in micros for clip in micro.clips)
    alone = BatchPeak(**answer["largest_batch_only"])
    return StepsEstimate(
        model=memory.name,
        settings=memory.settings,
        target=memory.target,
        limit_bytes=limit,
        steps=len(windows),
        micro_batches=len(micros),
        peak_allocated=answer["peak_allocated"],
        peak_reserved=round(answer["peak_reserved"] * factor),
        retries=answer["retries"],
        failed_steps=answer["failed_steps"],
        first_failed_step=answer["first_failed_step"],
        use=used(answer["mean_peak"]),
        use_by_time=used(answer["mean_peak_by_time"]),
        padding=max(0.0, 1 - audio / padded) if padded else 0.0,
        largest_alone=dataclasses.replace(alone, peak_reserved=round(alone.peak_reserved * factor)),
    )


def _endless(steps: Any) -> Iterator[Step]:
    """The steps; of a sampler, its epochs in order from the current one."""
    if not hasattr(steps, "set_epoch"):
        yield from steps
        return
    first = steps.epoch
    try:
        epoch = first
        while True:
            steps.set_epoch(epoch)
            yield from steps
            epoch += 1
    finally:
        steps.set_epoch(first)


@dataclass(frozen=True)
class _Cut:
    """How the guard splits a step."""

    table: Table
    overhead_s: float
    host_s: float
    trim: bool

    def __call__(self, clips: list[int], seconds: list[float]) -> list[list[int]]:
        lengths = [seconds[clip] for clip in clips]
        if self.trim:
            groups = cheapest(lengths, self._fits, self.overhead_s, self.host_s)
            return [[clips[row] for row in rows] for rows in groups]
        size = self._fits(max(lengths), len(clips))
        return [clips[at : at + size] for at in range(0, len(clips), size)]

    def _fits(self, longest: float, remaining: int) -> int:
        return min(remaining, max(1, fits_in(self.table, longest)))


class _Clips:
    """The clips of a dataset, of which micro-batches are made."""

    def __init__(self, memory: OpenedTrace, durations: Iterable[float], labels: Sequence[int] | None) -> None:
        self._memory = memory
        self.seconds = [check_seconds(f"durations[{i}]", s) for i, s in enumerate(durations)]
        self._labels = [memory.labels(s) for s in self.seconds] if labels is None else self._passed(labels)

    def _passed(self, labels: Sequence[int]) -> list[int]:
        if len(labels) != len(self.seconds):
            raise InvalidArgumentError(
                f"{len(labels)} labels for {len(self.seconds)} clips", "pass one label length for each clip"
            )
        return [self._memory.allowed_labels(check_labels(f"labels[{i}]", n)) for i, n in enumerate(labels)]

    def cut(self, number: int, step: Any, by: _Cut | None, trim: bool) -> list[_Micro]:
        """The micro-batches of a step: as passed, else as the guard splits it."""
        try:
            micro_batches = [list(micro) for micro in step] if hasattr(step[0], "__len__") else None
            clips = [int(clip) for clip in (step if micro_batches is None else chain.from_iterable(micro_batches))]
            if min(clips) < 0 or max(clips) >= len(self.seconds):
                raise IndexError
        except (TypeError, ValueError, IndexError):
            raise InvalidArgumentError(
                f"step {number} = {step!r:.100} is not a list of clip numbers from 0 to {len(self.seconds) - 1}",
                "pass a StepSampler of these durations, or lists of numbers of clips, or of micro-batches of them",
            ) from None
        if micro_batches is None:
            micro_batches = [clips] if by is None else by(clips, self.seconds)
        padded_to = None if trim else max(self.seconds[clip] for clip in clips)
        return [self._micro(micro, padded_to) for micro in micro_batches if micro]

    def _micro(self, clips: list[int], padded_to: float | None) -> _Micro:
        longest = max(self.seconds[clip] for clip in clips) if padded_to is None else padded_to
        return _Micro(clips, [len(clips), self._memory.length(longest), max(self._labels[clip] for clip in clips)])
