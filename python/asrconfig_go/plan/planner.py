"""Plans from measured profiles: plan, trace the chosen settings, and plan again until the choice is a traced one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import warnings
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._core import native
from .._core.defaults import SAMPLING_RATE, TRACED_MICRO_BATCHES
from .._core.files import cache_folder, fingerprint
from .._core.input_units import InputUnit
from ..errors import AsrConfigError, UnsupportedError
from ..predict.memory_model import MemoryModel
from ..predict.memory_settings import MemorySettings, Target, find_calibration
from ..predict.recordings import Recording, TraceCache, code_digest, kernel_class
from ..trace.model import Model, can_trace
from .traced_answers import TracedAnswers, Wanted

# At most this many settings are traced: without, with, with some and offloaded checkpointing, and a reserve.
_ROUNDS = 8
_MAX_BYTES = 16 * 2**20  # of all answers
_LARGEST = 2**20  # of one; most have a few thousand bytes
_DIGEST = 64  # hexadecimal digits before the answer


class NotTracedWarning(UserWarning):
    """The model could not be traced: its memory is estimated by the published formula."""


@dataclass(frozen=True)
class NotTraced:
    """Why a model is not traced, as the middle of a sentence, and what to do so that it is, as a sentence."""

    why: str
    fix: str


class Tracer:
    """Traces a model with the settings that a plan chooses, for one GPU.

    ``model`` and ``batch_fn`` are what ``MemoryModel.trace`` takes; ``gpu`` names a card of the catalogue.
    ``lora_rank`` is the rank of adapters that the model does not have yet. ``opened`` shares traces between GPUs with
    the same kernels. With ``record=False`` only recordings that come with the package are used, with None those that
    show what the installed packages do are preferred.
    """

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
        self._source = Model.of(model, freeze)
        self._gpu, self._freeze, self._progress = gpu, freeze, progress
        self._batch_fn, self._lora_rank = batch_fn, lora_rank
        self._models: dict[Any, MemoryModel] = {} if opened is None else opened
        self._record = record

    @property
    def records(self) -> bool:
        """Whether a step is recorded where no recording is known."""
        return self._record is not False

    @property
    def last_settings(self) -> MemorySettings | None:
        """The settings of the newest trace; in a plan that does not fit, those with the least memory."""
        return next((memory.settings for memory in reversed(self._models.values())), None)

    def check(self) -> None:
        """Raise ``InvalidArgumentError`` for a model that is invalid with any settings."""
        with contextlib.suppress(UnsupportedError):  # then it is not traced
            _ = self._source.identity

    def trace(self, wanted: Wanted, durations: Sequence[float]) -> dict[str, Any]:
        """Answer the planner: what fits for each length, and the peaks of the longest clips.

        ``durations`` must include the shortest and the longest. Answers are cached between sessions.
        """
        table = self._cached_table(wanted, durations)
        answer = None if table is None else table.find()
        if answer is None:
            answer = TracedAnswers(self._opened(wanted), wanted, durations, self._batch_fn).answer()
            if table is not None:
                table.store(answer)
        return answer

    def _cached_table(self, wanted: Wanted, durations: Sequence[float]) -> KeptTable | None:
        source = self._source
        if self._batch_fn is not None or source.identity is None:
            return None
        model, target = fingerprint(source.identity), Target.find(self._gpu)
        trace = Recording(source, MemorySettings(**self._settings(wanted)), target.capability).key(model)
        clips = hashlib.sha256(array("d", durations)).hexdigest()
        calibration = find_calibration(model, target.name)
        return KeptTable.of(
            trace, source.label, [*wanted, self._record], clips, asdict(target), calibration and asdict(calibration)
        )

    def _settings(self, wanted: Wanted) -> dict[str, Any]:
        return {
            **wanted.settings._asdict(),
            "accumulation": TRACED_MICRO_BATCHES,
            "freeze_feature_encoder": self._freeze,
            "lora_rank": self._lora_rank,
            "allocator": wanted.allocator,
        }

    def _opened(self, wanted: Wanted) -> MemoryModel:
        target = Target.find(self._gpu)
        key = (kernel_class(target.capability), wanted.settings, wanted.allocator)
        if key not in self._models:
            self._models[key] = self._traced(wanted)
        self._models[key].aim(target)
        return self._models[key]

    def _traced(self, wanted: Wanted) -> MemoryModel:
        settings, source = self._settings(wanted), self._source
        if self._batch_fn is None:
            shipped = MemoryModel.of_known(source.label, gpu=self._gpu, record=self._record, **settings)
            if shipped is not None:
                return shipped
        if self._record is False:
            raise UnsupportedError(
                f"no recording of {source.label} with these settings comes with the package",
                "leave trace=False out where torch and transformers are installed: its training step is recorded",
            )
        return MemoryModel.trace(source, self._batch_fn, **settings, gpu=self._gpu, progress=self._progress)


def records_steps(trace: bool | None) -> bool:
    """Whether a training step is recorded where no recording is known."""
    return trace is not False and can_trace()


def tracer_for(
    model: Any, trace: bool | None, batch_fn: Callable[[int, int, int], dict[str, Any]] | None, **settings: Any
) -> Tracer | NotTraced:
    """The tracer of ``model`` with these settings of ``Tracer``, or the reason why it is not traced."""
    kind = Model.of(model).kind
    if kind == "counts":
        return NotTraced("only its counts are known", "Pass the model instead of its profile.")
    if trace is False and kind == "module":
        return NotTraced("trace=False was asked for", "Leave trace out.")
    recorded = records_steps(trace)
    return Tracer(model, record=trace if recorded else False, batch_fn=batch_fn if recorded else None, **settings)


def traced_batches(
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None, examples: Any, unit: InputUnit | None, durations: Any
) -> Any:
    """What makes the batches of a trace: ``batch_fn``, else the collator's ``examples``; None for made-up batches."""
    if batch_fn is None and examples is not None:
        return examples.batches(() if unit else durations)
    if batch_fn is None or unit is None or unit.per_second == SAMPLING_RATE or not callable(batch_fn):
        return batch_fn
    from ..trace.made_up_batches import SpeechBatches

    return SpeechBatches(batch_fn, unit.per_second, unit.fixed)


@dataclass(frozen=True)
class KeptTable:
    """One answer of a trace, cached between sessions: simulating it again takes half a second."""

    key: str

    @classmethod
    def of(cls, *decided: Any) -> KeptTable:
        """The answer for these JSON values, this version of the library and of this package's code."""
        library = native.library_path().stat()
        code = [library.st_mtime_ns, library.st_size, code_digest("predict", "plan")]
        return cls(fingerprint(*decided, code))

    def find(self) -> dict[str, Any] | None:
        """The answer; None if there is none. A damaged file is removed."""
        path = self._cache().find(self.key)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                data = file.read(_LARGEST + 1)
        except OSError:
            return None
        if len(data) > _LARGEST or data[:_DIGEST] != _digest(data[_DIGEST:]):
            self._cache().discard(self.key)
            return None
        return dict(json.loads(data[_DIGEST:]))

    def store(self, answer: dict[str, Any]) -> None:
        """Cache an answer, where the cache can be written."""
        body = json.dumps(answer, separators=(",", ":")).encode()
        if len(body) <= _LARGEST - _DIGEST:
            self._cache().store(self.key, _digest(body) + body)

    @staticmethod
    def _cache() -> TraceCache:
        return TraceCache(cache_folder("tables"), _MAX_BYTES)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def plan(request: dict[str, Any], durations: array[float], tracer: Tracer | NotTraced) -> dict[str, Any]:
    """Answer the planner's questions with ``tracer`` until it has none left; returns its plan as a JSON object.

    ``durations`` are the seconds of every clip, empty where they are unknown. A model that cannot be traced is reported
    by one ``NotTracedWarning``, and planned by the published formula.
    """
    traced, missing = ([], tracer) if isinstance(tracer, NotTraced) else _traced(request, durations, tracer)
    last = {**request, "traced": traced, "not_traced": None if missing is None else asdict(missing)}
    return dict(native.call("plan.make", last, durations.tobytes()))


def _traced(
    request: dict[str, Any], durations: array[float], tracer: Tracer
) -> tuple[list[dict[str, Any]], NotTraced | None]:
    tracer.check()
    traced: list[dict[str, Any]] = []
    lengths = durations or array("d", (request["dataset"]["min_s"], request["dataset"]["max_s"]))
    for _ in range(_ROUNDS):
        question = native.call("plan.next", {**request, "traced": traced}, durations.tobytes())
        if question is None:
            break
        wanted = Wanted(**question)
        limit = math.inf if wanted.max_length_s is None else wanted.max_length_s
        try:
            clips = [min(s, limit) for s in lengths]
            traced.append(tracer.trace(wanted, clips if wanted.longest_s <= max(clips) else [*clips, wanted.longest_s]))
        except AsrConfigError as error:
            if not traced:
                return traced, _failed(error, tracer.records)
            traced.append(wanted.refused(error, max(lengths)))
    return traced, None


def _failed(error: AsrConfigError, warn: bool) -> NotTraced:
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
