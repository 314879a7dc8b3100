"""Plans from measured profiles: plan, trace the chosen settings, and plan again until the choice is a traced one."""

from __future__ import annotations

import contextlib
import hashlib
import math
import warnings
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base import native
from .._base.choices import Optimizer, Precision
from .._base.defaults import TRACED_MICRO_BATCHES
from .._base.errors import AsrConfigError, InvalidArgumentError, UnsupportedError
from ..batching import StepSampler
from ..batching.memory_limits import Table
from .worst_pair import Pairs

if TYPE_CHECKING:
    from ..machine.model_source import ModelSource
    from ..memory import MemoryModel
    from .kept_tables import KeptTable

HOST_BYTES = 1_000_000_000  # of a process with PyTorch loaded, where there is no GPU; as in core/estimate
_ROUNDS = (
    8  # at most this many settings are traced: without, with, with some and offloaded checkpointing, and a reserve
)
_DRAWN_STEPS = 40  # in random order, for the worst of a run
_DRAWN_CLIPS = 4000
_TOGETHER = 3  # micro-batches that are traced together: enough for the others where memory follows from their number
_ROWS = 16  # lengths at which a traced table is asked
_SHORTEST_S = 0.5  # of a clip, as in core/estimate: the planner takes shorter ones for as long


class TracedSettings(NamedTuple):
    """The settings that a traced step depends on, by the names of `plan.next`."""

    precision: Precision
    gradient_checkpointing: bool
    every_n_layers: int
    offload_checkpoints: bool
    optimizer: Optimizer


class Wanted(NamedTuple):
    """What the planner asks a trace for, by the names of ``plan.next``.

    ``allocator`` is what the plan sets PYTORCH_CUDA_ALLOC_CONF to; ``share`` is the clips of a device in a step;
    ``high`` asks for the worst peak of whole runs; ``beside_bytes`` is what a process holds besides the allocator's
    memory and the context; ``generates``, ``beams`` and ``tokens`` say how evaluations generate texts.
    """

    precision: Precision
    gradient_checkpointing: bool
    every_n_layers: int
    offload_checkpoints: bool
    optimizer: Optimizer
    allocator: str
    share: int
    budget_bytes: int
    max_length_s: float | None
    longest_s: float
    high: bool
    beside_bytes: int
    generates: bool
    beams: int
    tokens: int

    @property
    def settings(self) -> TracedSettings:
        """The settings alone."""
        return TracedSettings(*(getattr(self, name) for name in TracedSettings._fields))

    def refused(self, error: AsrConfigError, longest_s: float) -> dict[str, Any]:
        """What is known of settings that the model cannot train with, such as checkpointing: no clip fits."""
        words = ", ".join(f"{name}={value!r}" for name, value in self.settings._asdict().items())
        return {
            **self.settings._asdict(),
            "budget_bytes": self.budget_bytes,
            "memory": [{"seconds": longest_s, "batch": 0}],
            "peaks": [],
            "note": f"Not planned with {words}: {error.message}.",
        }


class NotTracedWarning(UserWarning):
    """The model could not be traced: its memory is estimated by the published formula."""


@dataclass(frozen=True)
class NotTraced:
    """Why a model is not traced, as the middle of a sentence, and what to do so that it is, as a sentence."""

    why: str
    fix: str


class Tracer:
    """Traces a model with the settings that a plan chooses, for one GPU.

    ``model`` and ``batch_fn`` are what ``MemoryModel.trace`` takes; ``gpu`` plans for a card of the catalogue.
    ``lora_rank`` is that of adapters that the model does not have yet. ``opened`` keeps traces for the tracers of other
    GPUs with the same kernels. ``record`` False answers from the recordings that come with the package alone, None
    from them where they show what the installed packages do.
    """

    _record: bool | None = True

    def __init__(
        self,
        model: Any,
        *,
        gpu: str | None,
        freeze: bool,
        progress: bool,
        record: bool | None = True,
        batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None,
        opened: dict[Any, MemoryModel] | None = None,
        lora_rank: int = 0,
    ) -> None:
        self._model, self._gpu, self._freeze, self._progress = model, gpu, freeze, progress
        self._batch_fn, self._lora_rank = batch_fn, lora_rank
        self._kept: dict[Any, MemoryModel] = {} if opened is None else opened
        self._read: ModelSource | None = None
        self._record = record

    @property
    def records(self) -> bool:
        """Whether a step is recorded where no recording is known."""
        return self._record is not False

    def check(self) -> None:
        """Raises ``InvalidArgumentError`` for what is wrong with the model itself, however it is planned."""
        with contextlib.suppress(UnsupportedError):  # which is no more than a reason not to trace it
            self._source()

    def trace(self, wanted: Wanted, durations: Sequence[float]) -> dict[str, Any]:
        """What the planner wants to know: what fits for each length, the peaks of the longest clips.

        ``durations`` are seconds that hold the shortest and the longest. The answer to the same question is kept.
        """
        kept = self._kept_table(wanted, durations)
        found = None if kept is None else kept.find()
        if found is None:
            found = self._asked(wanted, durations)
            if kept is not None:
                kept.store(found)
        return found

    def _kept_table(self, wanted: Wanted, durations: Sequence[float]) -> KeptTable | None:
        """Where the answer is kept; None for batches of the user's own, and for models that nothing identifies."""
        from .._base.fingerprint import fingerprint
        from ..memory.calibration_record import find_calibration
        from ..memory.memory_settings import MemorySettings, Target
        from ..memory.recording import Recording
        from .kept_tables import KeptTable

        source = self._source()
        if self._batch_fn is not None or source.identity is None:
            return None
        model, target = fingerprint(source.identity), Target.find(self._gpu)
        trace = Recording(source, MemorySettings(**self._settings(wanted)), target.capability).key(model)
        clips = hashlib.sha256(array("d", durations)).hexdigest()
        calibration = find_calibration(model, target.name)
        return KeptTable.of(
            trace, source.label, [*wanted, self._record], clips, asdict(target), calibration and asdict(calibration)
        )

    def _source(self) -> ModelSource:
        from ..machine.model_source import model_source

        if self._read is None:
            self._read = model_source(self._model, self._freeze)
        return self._read

    def _settings(self, wanted: Wanted) -> dict[str, Any]:
        return {
            **wanted.settings._asdict(),
            "accumulation": TRACED_MICRO_BATCHES,
            "freeze_feature_encoder": self._freeze,
            "lora_rank": self._lora_rank,
            "allocator": wanted.allocator,
        }

    def _asked(self, wanted: Wanted, durations: Sequence[float]) -> dict[str, Any]:
        memory = self._opened(wanted)
        if fixed_s := _facts(memory)["fixed_s"]:  # of longer clips the model hears the beginning
            durations = [min(s, fixed_s) for s in durations]
        longest_s = memory.length(max(durations)) / memory.length_per_second
        pairs: list[tuple[int, int]] = getattr(self._batch_fn, "pairs", list)()
        exact = memory.determines(2, longest_s)
        worst = Pairs.of(memory, pairs, longest_s, exact=exact, limited=wanted.max_length_s is not None)
        if getattr(self._batch_fn, "by_length", True) and exact and memory.determines(2, worst.seconds, worst.labels):
            found = self._any_length(memory, wanted, durations, worst)
        else:
            # No formula covers its shapes, or the guard does not know how long a batch is: the candidates are traced.
            found = self._one_length(memory, wanted, durations, worst)
        if memory.about.get("truncates"):  # longer clips are cut
            found["memory"][-1]["seconds"] = max(found["memory"][-1]["seconds"], *durations)
        return found

    def _opened(self, wanted: Wanted) -> MemoryModel:
        from ..memory.memory_settings import Target
        from ..memory.recording import kernel_class

        target = Target.find(self._gpu)
        key = (kernel_class(target.capability), wanted.settings, wanted.allocator)
        if key not in self._kept:
            self._kept[key] = self._traced(wanted)
        self._kept[key].aim(target)
        return self._kept[key]

    def _traced(self, wanted: Wanted) -> MemoryModel:
        from ..memory import MemoryModel

        settings = self._settings(wanted)
        if self._batch_fn is None:
            known = MemoryModel.of_known(self._source().label, gpu=self._gpu, record=self._record, **settings)
            if known is not None:
                return known
        if self._record is False:
            raise UnsupportedError(
                f"no recording of {self._source().label} with these settings comes with the package",
                "leave trace=False out where torch and transformers are installed: its training step is recorded",
            )
        return MemoryModel.trace(self._source(), self._batch_fn, **settings, gpu=self._gpu, progress=self._progress)

    def _any_length(
        self, memory: MemoryModel, wanted: Wanted, durations: Sequence[float], worst: Pairs
    ) -> dict[str, Any]:
        share, limit = wanted.share, wanted.budget_bytes - self._outside(memory, wanted)
        rows = tuple(_table(memory, _lengths(min(durations), worst.longest_s), share, limit, worst))
        largest = max(1, rows[-1][1])
        with ThreadPoolExecutor(1) as beside:  # the library works outside the GIL
            high = beside.submit(self._worst, memory, rows, wanted, durations, limit) if wanted.high else None
            evaluated, decoder = _evaluation(memory, largest, worst, wanted, limit)
            peaks = self._peaks(memory, wanted, largest, worst)
            return {
                **_facts(memory),
                **wanted.settings._asdict(),
                "budget_bytes": wanted.budget_bytes,
                "memory": [{"seconds": max(_SHORTEST_S, seconds), "batch": batch} for seconds, batch in rows],
                "peaks": peaks,
                "rise_bytes": self._rise(memory, wanted, peaks, worst),
                "eval_batch": evaluated,
                "decoder": decoder,
                "note": _assumed(memory),
                "work": _work(memory, rows, durations, worst.longest_s),
                "high_bytes": None if high is None else high.result(),
            }

    def _one_length(
        self, memory: MemoryModel, wanted: Wanted, durations: Sequence[float], worst: Pairs
    ) -> dict[str, Any]:
        peaks = self._candidates(memory, wanted, worst)
        largest = max((peak["batch"] for peak in peaks if peak["bytes"] <= wanted.budget_bytes), default=0)
        with memory.by_formulas():  # times are no better than a few percent
            work = _work(memory, ((worst.longest_s, largest),), durations, worst.longest_s)
        return {
            **_facts(memory),
            **wanted.settings._asdict(),
            "budget_bytes": wanted.budget_bytes,
            "memory": [{"seconds": max(_SHORTEST_S, worst.longest_s), "batch": largest}],
            "peaks": peaks,
            "eval_batch": None,
            "note": _assumed(memory),
            "work": work,
            "high_bytes": None,
            "one_length": True,
        }

    def _candidates(self, memory: MemoryModel, wanted: Wanted, worst: Pairs) -> list[dict[str, Any]]:
        """The peaks of parts of a share by rising size: three are traced together, and larger ones as far as they fit.

        One clip alone only where at most one of the three fits.
        """
        from ..memory.memory_settings import Shape

        sizes = _divisors(wanted.share)
        first = sizes[1 : 1 + _TOGETHER] or sizes
        memory.prepare([Shape(size, worst.seconds, worst.labels) for size in first])
        peaks = [self._peak(memory, wanted, size, worst) for size in first]
        if sum(peak["bytes"] <= wanted.budget_bytes for peak in peaks) < 2 and first != sizes:
            peaks.insert(0, self._peak(memory, wanted, 1, worst))
        for size in sizes:
            if size > peaks[-1]["batch"] and _extended(peaks, size) <= wanted.budget_bytes:
                peaks.append(self._peak(memory, wanted, size, worst))
        return peaks

    def _outside(self, memory: MemoryModel, wanted: Wanted) -> int:
        """What a process takes besides the allocator's memory: context and NCCL, or the process itself on a CPU."""
        context = memory.target.context_bytes
        return (HOST_BYTES if context is None else context) + wanted.beside_bytes

    def _worst(
        self, memory: MemoryModel, rows: Table, wanted: Wanted, durations: Sequence[float], limit: int
    ) -> int | None:
        """The highest memory of some steps in random order, split by what fits.

        None without a clip for each place, and where no formula covers a step. Within the budget, as PyTorch gives
        cached memory back before it fails; what it takes where that does not help.
        """
        share = wanted.share
        drawn = [max(rows[0][0], s) for s in durations[:: max(1, len(durations) // _DRAWN_CLIPS)]]
        if len(drawn) < share or memory.about.get("fixed_length"):
            return None
        steps = StepSampler(drawn, share, mode="random", seed=0)
        try:
            run = memory.simulate_steps(drawn, steps, table=rows, count=_DRAWN_STEPS, limit_bytes=limit)
            if not run.fits:
                run = memory.simulate_steps(drawn, steps, table=rows, count=_DRAWN_STEPS)
        except UnsupportedError:  # formulas answer for batches of two and more, and some step ends with one clip
            return None
        return run.peak_reserved + self._outside(memory, wanted)

    def _peaks(self, memory: MemoryModel, wanted: Wanted, largest: int, worst: Pairs) -> list[dict[str, Any]]:
        """Those of the largest micro-batch, and of parts of a share down to the second that fits, by rising size."""
        found, fit = [self._peak(memory, wanted, largest, worst)], 0
        for size in reversed([size for size in _divisors(wanted.share) if size <= largest]):
            if size < largest:
                found.insert(0, self._peak(memory, wanted, size, worst))
            fit += found[0]["bytes"] <= wanted.budget_bytes
            if fit == 2:
                break
        return found

    def _rise(self, memory: MemoryModel, wanted: Wanted, peaks: Sequence[dict[str, Any]], worst: Pairs) -> int | None:
        """The bytes of one more of the longest clips in the largest micro-batch, in steps of as many; None of one."""
        if len(peaks) < 2:
            return None
        before, last = peaks[-2], peaks[-1]
        same = self._peak(memory, wanted, before["batch"], worst, _micro_batches(wanted, last["batch"]))
        return int(last["bytes"] - same["bytes"]) // int(last["batch"] - before["batch"])

    def _peak(
        self, memory: MemoryModel, wanted: Wanted, batch: int, worst: Pairs, micro_batches: int | None = None
    ) -> dict[str, Any]:
        """One micro-batch of the worst clips, in a step of its share: its peak on the device, and what holds it."""
        micro_batches = micro_batches or _micro_batches(wanted, batch)
        found = memory.estimate(batch, worst.seconds, worst.labels, accumulation=micro_batches, timeline=0)
        outside = self._outside(memory, wanted)
        parts = [{"name": name, "bytes": size} for name, size in found.at_peak.components.items() if size > 0]
        rest = {"cached": found.peak_reserved - found.peak_allocated, "context": outside}
        parts += [{"name": name, "bytes": size} for name, size in rest.items() if size > 0]
        pinned = found.pinned_bytes or 0
        return {"batch": batch, "bytes": found.peak_reserved + outside, "pinned_bytes": pinned, "parts": parts}


def _micro_batches(wanted: Wanted, batch: int) -> int:
    return -(-wanted.share // batch)


def _facts(memory: MemoryModel) -> dict[str, Any]:
    """How the model takes clips."""
    fixed = memory.about.get("fixed_length")
    return {"fixed_s": fixed / memory.length_per_second if fixed else 0.0, "over_time": memory.over_time}


def _work(memory: MemoryModel, rows: Table, durations: Sequence[float], longest_s: float) -> list[dict[str, Any]]:
    """What a short clip alone, a usual micro-batch and the longest clip alone run; none where no shape tells."""
    mean = max(_SHORTEST_S, sum(durations) / len(durations))
    usual = max(1, next((size for seconds, size in rows if seconds >= mean), rows[-1][1]))
    shortest = min(_SHORTEST_S, mean / 2)
    try:
        return [
            {"batch": size, "seconds": seconds, "labels": memory.labels(seconds), **memory.work(size, seconds)}
            for size, seconds in ((1, shortest), (usual, mean), (1, max(longest_s, 2 * mean)))
        ]
    except (UnsupportedError, InvalidArgumentError):
        return []


def _assumed(memory: MemoryModel) -> str:
    """What the batches of a module of unknown kind were taken to be; "" where that is known."""
    made_up = memory.about.get("batches")
    return (
        f"The batches of {memory.name} were made up ({made_up}): pass batch_fn where yours differ." if made_up else ""
    )


def _divisors(share: int) -> list[int]:
    return [size for size in range(1, share + 1) if share % size == 0]


def _lengths(shortest_s: float, longest_s: float) -> list[float]:
    """Lengths in equal ratios from the shortest clip's to the longest's."""
    shortest_s = min(longest_s, max(0.5, shortest_s))
    if longest_s / shortest_s < 1.001:
        return [longest_s]
    ratio = (longest_s / shortest_s) ** (1 / (_ROWS - 1))
    return [shortest_s * ratio**i for i in range(_ROWS - 1)] + [longest_s]


def _table(memory: MemoryModel, lengths: list[float], share: int, limit: int, worst: Pairs) -> list[tuple[float, int]]:
    """Rows of seconds and the largest micro-batch that fits, up to ``share``, from the longest clips on."""
    rows: list[tuple[float, int]] = []
    guess = 1.0
    for seconds in reversed(lengths):
        if rows:
            guess = rows[-1][1] * rows[-1][0] / seconds
        if rows and rows[0][1] == share:  # of the longest clips: shorter ones take no more
            fits = share
        else:
            asked_s, labels = worst.at(seconds)
            fits = memory.largest_batch(asked_s, limit, labels, near=min(share, max(1, round(guess))), most=share)
        rows.append((seconds, fits))
    # What the allocator reserves does not rise evenly: once in a while one more clip fits at a longer length.
    fewest = accumulate((fits for _, fits in rows[::-1]), min)
    return [(seconds, fits) for (seconds, _), fits in zip(rows[::-1], fewest, strict=True)]


def _evaluation(
    memory: MemoryModel, batch: int, worst: Pairs, wanted: Wanted, limit: int
) -> tuple[int | None, dict[str, Any] | None]:
    """The largest doubling of a training micro-batch, up to a step's share, whose evaluation fits, and its decoder.

    None where no evaluation could be traced. A model that generates texts keeps keys and values of each meanwhile,
    beside what stays between batches.
    """
    cache = wanted.beams * memory.cache_bytes(wanted.tokens) if wanted.generates else 0
    most = max(wanted.share, batch)
    try:
        while 2 * batch <= most and _evaluated(memory, 2 * batch, worst) + 2 * batch * cache <= limit:
            batch *= 2
        while batch > 1 and cache and _evaluated(memory, batch, worst) + batch * cache > limit:
            batch -= 1
    except UnsupportedError:
        return None, decoder_of(memory, worst.seconds, batch * cache)
    return batch, decoder_of(memory, worst.seconds, batch * cache)


def decoder_of(memory: MemoryModel, seconds: float, cache_bytes: int = 0) -> dict[str, Any] | None:
    """What generating texts takes, for ``plan.make`` and ``timing.run``; None of a model that does not."""
    layers = memory.about.get("decoder_layers")
    if not layers:
        return None
    share = layers / (layers + memory.about["encoder_layers"])
    most = int(memory.about.get("max_labels") or 0)
    return {"share": share, "tokens": memory.labels(seconds), "most_tokens": most, "cache_bytes": cache_bytes}


def _evaluated(memory: MemoryModel, batch: int, worst: Pairs) -> int:
    from ..memory.memory_settings import Shape

    return int(memory.evaluated(Shape(batch, worst.seconds, worst.labels))["peak_reserved"])


def _extended(peaks: list[dict[str, Any]], size: int) -> float:
    """About the peak of a larger micro-batch, if memory goes on rising as it did."""
    last = peaks[-1]
    before = peaks[-2] if len(peaks) > 1 else {"batch": 0, "bytes": 0}
    rise = (last["bytes"] - before["bytes"]) / (last["batch"] - before["batch"])
    return float(last["bytes"] + rise * (size - last["batch"]))


def plan(request: dict[str, Any], durations: array[float], tracer: Tracer | NotTraced) -> dict[str, Any]:
    """Trace with ``tracer`` what the planner wants to know, until it wants no more; its plan as a JSON object.

    ``durations`` are the seconds of every clip, empty where they are not known. A model that cannot be traced is
    reported once, as a ``NotTracedWarning``, and planned by the published formula.
    """
    traced: list[dict[str, Any]] = []
    missing: NotTraced | None
    if isinstance(tracer, NotTraced):
        missing = tracer
    else:
        tracer.check()
        traced, missing = _traced(request, durations, tracer)
    last = {**request, "traced": traced, "not_traced": None if missing is None else asdict(missing)}
    found: dict[str, Any] = native.call("plan.make", last, durations.tobytes())
    return found


def _traced(
    request: dict[str, Any], durations: array[float], tracer: Tracer
) -> tuple[list[dict[str, Any]], NotTraced | None]:
    """What the planner wanted to know, and why no more was traced, if something failed."""
    traced: list[dict[str, Any]] = []
    known = durations or array("d", (request["dataset"]["min_s"], request["dataset"]["max_s"]))
    for _ in range(_ROUNDS):
        found = native.call("plan.next", {**request, "traced": traced}, durations.tobytes())
        if found is None:
            break
        wanted = Wanted(**found)
        limit = math.inf if wanted.max_length_s is None else wanted.max_length_s
        try:
            clips = [min(s, limit) for s in known]
            traced.append(tracer.trace(wanted, clips if wanted.longest_s <= max(clips) else [*clips, wanted.longest_s]))
        except AsrConfigError as error:
            if not traced:
                return traced, _failed(error, tracer.records)
            traced.append(wanted.refused(error, max(known)))
    return traced, None


def _failed(error: AsrConfigError, warn: bool) -> NotTraced:
    """A trace that fails is a warning instead of an error: the plan names its estimator."""
    if warn:
        warnings.warn(
            f"the model could not be traced ({error.message}): its memory is estimated without a trace",
            NotTracedWarning,
            stacklevel=6,
        )
    return NotTraced(f"tracing it failed: {error.message}", f"{error.hint[:1].upper()}{error.hint[1:]}.")


def usable(durations: array[float]) -> array[float]:
    """The durations of the clips that can be used."""
    return array("d", (s for s in durations if not math.isnan(s)))
