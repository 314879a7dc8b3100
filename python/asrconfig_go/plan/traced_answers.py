"""Answers the planner's questions about a traced step: what fits for each length, the peaks of the longest clips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from .._core.declared import SHORTEST_S
from ..errors import AsrConfigError, InvalidArgumentError, UnsupportedError
from ..predict.length_table import Table
from ..predict.memory_model import MemoryModel
from ..predict.memory_settings import Shape
from ..predict.opened_trace import STEPS
from ..predict.step_sampler import StepSampler
from .plan_records import TraceRequestRecord

HOST_BYTES = 1_000_000_000  # of a process with PyTorch loaded, where there is no GPU
_COMPARED_CLIPS = 2  # clips of the batches by which pairs are compared
_LONGER = 1.03  # times a length that still count as that length: seconds give the model's length only on average
_NEARLY = 0.98  # a share that counts as all: rows of which another has as much, in both, are not traced
_DRAWN_STEPS = 40  # in random order, for the highest memory of a run
_DRAWN_CLIPS = 4000
_TRACED_TOGETHER = 3  # micro-batches; enough for larger ones where memory follows from their number
_ROWS = 16  # lengths for which a traced table is computed
_SETTINGS = ("precision", "gradient_checkpointing", "every_n_layers", "offload_checkpoints", "optimizer")

Answer = dict[str, Any]
"""What ``plan.next`` takes as traced."""


@dataclass(frozen=True)
class Pairs:
    """Seconds and labels of the rows that are known, and of the row whose batches take the most memory.

    ``longest_s`` is of the longest clip, whether its row is known or not; ``labels`` is None, for a text of usual
    length, where no row is known.
    """

    rows: tuple[tuple[float, int], ...]
    longest_s: float
    seconds: float
    labels: int | None

    @classmethod
    def of(
        cls, memory: MemoryModel, pairs: Iterable[tuple[int, int]], longest_s: float, *, exact: bool, limited: bool
    ) -> Pairs:
        """Find the row with the highest predicted peak among those that no other row exceeds in both.

        ``pairs`` are lengths, in units of the model, and labels of rows; those longer than ``longest_s`` are left out
        if that is ``limited``. Where formulas are not ``exact`` for all shapes, each must be traced, and rows that
        another nearly equals in both are not compared.
        """
        rows = [(length / memory.length_per_second, labels) for length, labels in pairs]
        rows = [(seconds, labels) for seconds, labels in rows if not limited or seconds <= _LONGER * longest_s]
        if not rows:
            return cls((), longest_s, longest_s, None)
        if max(rows)[0] < _NEARLY * longest_s:
            rows.append((longest_s, memory.labels(longest_s)))
        front = _front(rows, 1.0 if exact else _NEARLY)
        seconds, labels = front[0]
        if len(front) > 1:
            peaks = [memory.estimate(_COMPARED_CLIPS, *row, timeline=0).peak_reserved for row in front]
            seconds, labels = front[peaks.index(max(peaks))]
        return cls(tuple(rows), longest_s, seconds, labels)

    def at(self, seconds: float) -> tuple[float, int | None]:
        """Seconds and labels of the largest batch of rows up to this length, with the longest text of any of them."""
        if self.labels is None:
            return seconds, None
        if seconds >= self.longest_s:
            return self.seconds, self.labels
        label_counts = [labels for length, labels in self.rows if length <= _LONGER * seconds]
        return seconds, max(label_counts, default=None)


def _front(rows: list[tuple[float, int]], share: float) -> list[tuple[float, int]]:
    """The rows of which no other has at least ``share`` of the seconds and of the labels, the longest first."""
    front: list[tuple[float, int]] = []
    for seconds, labels in sorted(rows, reverse=True):
        if not any(longer >= share * seconds and more >= share * labels for longer, more in front):
            front.append((seconds, labels))
    return front


@dataclass(frozen=True)
class Wanted(TraceRequestRecord):
    """A question of the planner about a traced step."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a traced step depends on."""
        return {name: getattr(self, name) for name in _SETTINGS}

    def refused(self, error: AsrConfigError, longest_s: float) -> Answer:
        """The answer where the model cannot train with these settings: no clip fits."""
        words = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return {
            **self.settings,
            "budget_bytes": self.budget_bytes,
            "memory": [{"seconds": longest_s, "batch": 0}],
            "peaks": [],
            "note": f"Not planned with {words}: {error.message}.",
        }


class TracedAnswers:
    """Answers one question about a traced step, for clips of these ``durations`` in batches that ``batch_fn`` makes."""

    def __init__(
        self, memory: MemoryModel, wanted: Wanted, durations: Sequence[float], batch_fn: Callable[..., Any] | None
    ) -> None:
        fixed = memory.fixed_length
        self._fixed_s = fixed / memory.length_per_second if fixed else 0.0
        # Where its input has a fixed length, the model hears only the beginning of longer clips.
        self._durations = [min(s, self._fixed_s) for s in durations] if fixed else durations
        self._memory, self._wanted = memory, wanted
        longest_s = memory.length(max(self._durations)) / memory.length_per_second
        pairs: list[tuple[int, int]] = getattr(batch_fn, "pairs", list)()
        exact = memory.determines(2, longest_s)
        self._worst = Pairs.of(memory, pairs, longest_s, exact=exact, limited=wanted.max_length_s is not None)
        # Otherwise no formula covers the shapes, or the guard does not know how long a batch is: candidates are traced.
        by_length = getattr(batch_fn, "by_length", True) and exact
        self._by_length = by_length and memory.determines(2, self._worst.seconds, self._worst.labels)
        context = memory.target.context_bytes
        # Memory besides the allocator's: CUDA context and NCCL, or the process itself without a GPU.
        self._outside = (HOST_BYTES if context is None else context) + wanted.beside_bytes
        self._limit = wanted.budget_bytes - self._outside

    def answer(self) -> dict[str, Any]:
        """The answer, which ``plan.next`` takes as traced."""
        answer = self._for_each_length() if self._by_length else self._for_longest()
        if self._memory.truncates:  # longer clips are truncated
            answer["memory"][-1]["seconds"] = max(answer["memory"][-1]["seconds"], *self._durations)
        return answer

    def _for_each_length(self) -> dict[str, Any]:
        lengths = _table_lengths(min(self._durations), self._worst.longest_s)
        longest = [Shape(1, *self._worst.at(seconds)) for seconds in lengths]
        # A share of a step is one collated batch on the device, of which the guard makes micro-batches.
        limit = self._memory.beside_inputs(self._limit, self._wanted.share, self._worst.longest_s)
        fits = self._memory.largest_batches(longest, limit, most=self._wanted.share)
        fits[-1] = self._fitting(fits[-1])
        rows = tuple((seconds, max(fit, fits[-1])) for seconds, fit in zip(lengths, fits, strict=True))
        largest = max(1, rows[-1][1])
        with ThreadPoolExecutor(1) as executor:  # the library works outside the GIL
            high = executor.submit(self._highest, rows) if self._wanted.high else None
            eval_batch, decoder = self._evaluation(largest)
            peaks = self._peaks(largest)
            return {
                **self._common_answer(rows, peaks, self._work(self._shapes(rows))),
                "rise_bytes": self._rise(peaks),
                "eval_batch": eval_batch,
                "decoder": decoder,
                "high_bytes": None if high is None else high.result(),
            }

    def _for_longest(self) -> dict[str, Any]:
        peaks, worst, memory = self._candidates(), self._worst, self._memory
        sizes = [peak["batch"] for peak in peaks]
        largest = max((peak["batch"] for peak in peaks if peak["bytes"] <= self._wanted.budget_bytes), default=0)
        rows = ((worst.longest_s, largest),)
        if len(sizes) > 1:  # only traced shapes, as any other would have to be traced, too
            labels = memory.labels(worst.seconds) if worst.labels is None else worst.labels
            work = self._work(Shape(size, worst.seconds, labels) for size in (sizes[0], max(largest, sizes[1])))
        else:
            with memory.by_formulas():  # as precise as predicted times are
                work = self._work(self._shapes(rows))
        return {**self._common_answer(rows, peaks, work), "eval_batch": None, "high_bytes": None, "one_length": True}

    def _common_answer(self, rows: Table, peaks: list[dict[str, Any]], work: list[dict[str, Any]]) -> dict[str, Any]:
        memory = self._memory
        made_up = memory.about.get("batches")
        note = f"The batches of {memory.name} were made up ({made_up}): pass batch_fn where yours differ."
        return {
            **self._wanted.settings,
            "fixed_s": self._fixed_s,
            "over_time": memory.over_time,
            "budget_bytes": self._wanted.budget_bytes,
            "memory": [{"seconds": max(SHORTEST_S, seconds), "batch": batch} for seconds, batch in rows],
            "peaks": peaks,
            "size_peaks": [self._peak(size) for size in self._wanted.sizes],
            "note": note if made_up else "",
            "work": work,
        }

    def _shapes(self, rows: Table) -> Iterator[Shape]:
        mean = max(SHORTEST_S, sum(self._durations) / len(self._durations))
        usual = max(1, next((size for seconds, size in rows if seconds >= mean), rows[-1][1]))
        # A third length for the parabola of a clip's arithmetic; no clip is longer than a fixed length.
        longest_s = self._worst.longest_s if self._fixed_s else max(self._worst.longest_s, 2 * mean)
        sizes = [(1, min(SHORTEST_S, mean / 2)), (usual, mean), (1, longest_s)]
        return (Shape(size, seconds, self._memory.labels(seconds)) for size, seconds in sizes)

    def _work(self, shapes: Iterable[Shape]) -> list[dict[str, Any]]:
        """The operations of micro-batches of these shapes; none where the trace does not have those of all."""
        try:
            return [asdict(s) | self._memory.work(s.batch, s.seconds, s.labels) for s in shapes]
        except (UnsupportedError, InvalidArgumentError):
            return []

    def _candidates(self) -> list[dict[str, Any]]:
        """The peaks of micro-batches that divide a share, by rising size.

        Three are traced together, and larger ones as long as they are extrapolated to fit. A single clip is traced only
        where at most one of the three fits.
        """
        sizes, budget_bytes = _divisors(self._wanted.share), self._wanted.budget_bytes
        first = sizes[1 : 1 + _TRACED_TOGETHER] or sizes
        self._memory.prepare([Shape(size, self._worst.seconds, self._worst.labels) for size in first])
        peaks = [self._peak(size) for size in first]
        if sum(peak["bytes"] <= budget_bytes for peak in peaks) < 2 and first != sizes:
            peaks.insert(0, self._peak(1))
        for size in sizes:
            if size > peaks[-1]["batch"] and _extrapolated(peaks, size) <= budget_bytes:
                peaks.append(self._peak(size))
        return peaks

    def _highest(self, rows: Table) -> int | None:
        """The highest memory of some steps in random order, split into micro-batches that fit.

        The limit is the budget, as PyTorch frees cached memory before it fails; where a step fails in spite of that,
        the memory without a limit is returned. None where a step would have more clips than there are, and where no
        formula covers a step.
        """
        memory, share, durations = self._memory, self._wanted.share, self._durations
        drawn = [max(rows[0][0], s) for s in durations[:: max(1, len(durations) // _DRAWN_CLIPS)]]
        if len(drawn) < share or self._fixed_s:
            return None
        steps = StepSampler(drawn, share, mode="random", seed=0)
        count = max(STEPS, min(_DRAWN_STEPS, _DRAWN_CLIPS // share))
        try:
            run = memory.simulate_steps(drawn, steps, table=rows, count=count, limit_bytes=self._limit)
            if not run.fits:
                run = memory.simulate_steps(drawn, steps, table=rows, count=count)
        except UnsupportedError:  # formulas cover batches of two and more clips, and some step ends with one
            return None
        return run.peak_reserved + self._outside

    def _peaks(self, largest: int) -> list[dict[str, Any]]:
        """The peaks of the largest micro-batch and a share's divisors, down to the second that fits, by rising size."""
        peaks, fit = [self._peak(largest)], 0
        for size in reversed([size for size in _divisors(self._wanted.share) if size <= largest]):
            if size < largest:
                peaks.insert(0, self._peak(size))
            fit += peaks[0]["bytes"] <= self._wanted.budget_bytes
            if fit == 2:
                break
        return peaks

    def _fitting(self, batch: int) -> int:
        """The micro-batch of the worst clips near ``batch`` whose whole step is within the budget; 0 where none is.

        A whole step leaves other gaps between blocks than three micro-batches, and the next step's inputs are placed
        before its own are freed.
        """

        def fits(clips: int) -> bool:
            return bool(self._peak(clips)["bytes"] <= self._wanted.budget_bytes)

        larger, fewer = batch, 1
        while larger < self._wanted.share and fits(larger + 1):
            larger += 1
        if larger > batch:
            return larger
        while batch and not fits(batch):
            batch, fewer = max(batch - fewer, int(batch > 1)), 2 * fewer
        return batch

    def _rise(self, peaks: Sequence[dict[str, Any]]) -> int | None:
        """The bytes of one more clip in the largest micro-batch, in steps of equally many; None of a single peak."""
        if len(peaks) < 2:
            return None
        before, last = peaks[-2], peaks[-1]
        smaller = self._peak(before["batch"], in_steps_of=last["batch"])
        return int(last["bytes"] - smaller["bytes"]) // int(last["batch"] - before["batch"])

    def _peak(self, batch: int, in_steps_of: int | None = None) -> dict[str, Any]:
        """The peak of a micro-batch of the worst clips on the device, and the parts of it.

        The step has as many micro-batches as a share has of this size, or of the size ``in_steps_of``.
        """
        micro_batches = -(-self._wanted.share // (in_steps_of or batch))
        worst = self._worst
        estimate = self._memory.estimate(batch, worst.seconds, worst.labels, accumulation=micro_batches, timeline=0)
        overhead = {"cached": estimate.peak_reserved - estimate.peak_allocated, "context": self._outside}
        parts = [*estimate.at_peak.components.items(), *overhead.items()]
        return {
            "batch": batch,
            "bytes": estimate.peak_reserved + self._outside,
            "pinned_bytes": estimate.pinned_bytes or 0,
            "parts": [{"name": name, "bytes": size} for name, size in parts if size > 0],
        }

    def _evaluation(self, batch: int) -> tuple[int | None, dict[str, Any] | None]:
        """The largest batch of an evaluation that fits, and what its decoder takes.

        The training micro-batch is doubled up to a step's share. A model that generates texts holds keys and values of
        each clip besides. The batch is None where no evaluation could be traced.
        """
        wanted, seconds = self._wanted, self._worst.seconds
        cache = wanted.beams * self._memory.cache_bytes(wanted.tokens) if wanted.generates else 0
        limit = max(wanted.share, batch)
        try:
            while 2 * batch <= limit and self._evaluation_peak(2 * batch) + 2 * batch * cache <= self._limit:
                batch *= 2
            while batch > 1 and cache and self._evaluation_peak(batch) + batch * cache > self._limit:
                batch -= 1
        except UnsupportedError:
            return None, decoder_of(self._memory, seconds, batch * cache)
        return batch, decoder_of(self._memory, seconds, batch * cache)

    def _evaluation_peak(self, batch: int) -> int:
        return int(self._memory.evaluated(Shape(batch, self._worst.seconds, self._worst.labels))["peak_reserved"])


def decoder_of(memory: MemoryModel, seconds: float, cache_bytes: int = 0) -> dict[str, Any] | None:
    """What generating texts takes, for ``plan.make`` and ``timing.run``; None for a model without a decoder."""
    layers = memory.about.get("decoder_layers")
    if not layers:
        return None
    share = layers / (layers + memory.about["encoder_layers"])
    tokens, most = memory.labels(seconds), memory.max_labels or 0
    return {"share": share, "tokens": tokens, "most_tokens": most, "cache_bytes": cache_bytes}


def _divisors(share: int) -> list[int]:
    return [size for size in range(1, share + 1) if share % size == 0]


def _extrapolated(peaks: list[dict[str, Any]], size: int) -> float:
    """The bytes of a larger micro-batch, on the line through the last two peaks."""
    last = peaks[-1]
    before = peaks[-2] if len(peaks) > 1 else {"batch": 0, "bytes": 0}
    rise = (last["bytes"] - before["bytes"]) / (last["batch"] - before["batch"])
    return float(last["bytes"] + rise * (size - last["batch"]))


def _table_lengths(shortest_s: float, longest_s: float) -> list[float]:
    """The lengths for which the table is computed, each longer than the one before by the same factor."""
    shortest_s = min(longest_s, max(0.5, shortest_s))
    if longest_s / shortest_s < 1.001:
        return [longest_s]
    ratio = (longest_s / shortest_s) ** (1 / (_ROWS - 1))
    return [shortest_s * ratio**i for i in range(_ROWS - 1)] + [longest_s]
