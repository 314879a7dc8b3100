"""Plans from measured profiles: plan, trace the chosen settings, and plan again until the choice is a traced one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shutil
import warnings
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.batches import InputUnit
from .._core.declared import Precision
from .._core.files import cache_folder, fingerprint
from .._core.records import to_json
from .._core.settings import SAMPLING_RATE, TRACED_MICRO_BATCHES
from ..errors import AsrConfigError, UnsupportedError
from ..predict.hardware import HardwareProfile, free_shared_memory, known_kernel_profiles
from ..predict.memory_model import MemoryModel
from ..predict.memory_settings import MemorySettings, Target, find_calibration
from ..predict.model_profile import ModelProfile
from ..predict.predict_records import GPU
from ..predict.recordings import Recording, TraceCache, code_digest, kernel_class
from ..trace.model import Model, can_trace
from .step_calibrations import known_calibrations
from .traced_answers import Answer, TracedAnswers, Wanted

if TYPE_CHECKING:
    from ..trace.collated_batches import CollatedExamples
    from ..trace.made_up_batches import BatchFunction

# At most this many settings are traced: without, with, with some and offloaded checkpointing, and a reserve.
_ROUNDS = 8
_MAX_BYTES = 16 * 2**20  # of all cached answers


class NotTracedWarning(UserWarning):
    """The model could not be traced: its memory is estimated by the published formula."""


@dataclass(frozen=True)
class NotTraced:
    """Why a model is not traced, as the middle of a sentence, and what to do so that it is, as a sentence."""

    why: str
    fix: str


class Tracer:
    """Traces a model with the settings that plans choose; GPUs with the same kernels share a recording.

    ``model`` and ``batch_fn`` are what ``MemoryModel.trace`` takes. With ``trace=None`` a step is recorded where no
    recording of the package matches the installed packages; with False, and without torch, only recordings of the
    package are used. ``freeze`` is about the convolutional feature encoder, ``lora_rank`` the rank of adapters that the
    model does not have yet.
    """

    def __init__(
        self,
        model: object,
        trace: bool | None = True,
        batch_fn: BatchFunction | None = None,
        *,
        freeze: bool = False,
        lora_rank: int = 0,
        progress: bool = False,
    ) -> None:
        self.records = records_steps(trace)
        """Whether a step is recorded where no recording is known."""
        self._model, self._freeze, self._lora_rank, self._progress = model, freeze, lora_rank, progress
        self._record = trace if self.records else False
        self._batch_fn = batch_fn if self.records else None
        self._models: dict[object, MemoryModel] = {}
        self.last_settings: dict[str, Any] | None = None
        """Those of the newest trace, for ``MemoryModel.trace``; in a plan that does not fit, with the least memory."""

    def check(self) -> None:
        """Raise ``InvalidArgumentError`` for a model that is invalid with any settings."""
        with contextlib.suppress(UnsupportedError):  # then it is not traced
            _ = self._source.identity

    def ask(
        self, question: Mapping[str, Any], gpu: str | None, durations: Sequence[float], *, required: bool
    ) -> Answer:
        """Answer a question of the planner, a ``TraceRequestRecord`` as a JSON object, about clips of ``durations``.

        With settings that the model cannot train with no clip fits; where an answer is ``required``, their error is
        raised.
        """
        wanted = Wanted(**question)
        limit = math.inf if wanted.max_length_s is None else wanted.max_length_s
        clips = [min(s, limit) for s in durations]
        try:
            return self.trace(wanted, clips if wanted.longest_s <= max(clips) else [*clips, wanted.longest_s], gpu)
        except AsrConfigError as error:
            if required:
                raise
            return wanted.refused(error, max(durations))

    def trace(self, wanted: Wanted, durations: Sequence[float], gpu: str | None) -> Answer:
        """Return what fits for each length, and the peaks of the longest clips; answers are cached between sessions."""
        cache, key = TraceCache(cache_folder("tables"), _MAX_BYTES), self._cache_key(wanted, durations, gpu)
        if key is not None and (path := cache.find(key)) is not None:
            with contextlib.suppress(OSError, ValueError, TypeError):  # it is damaged
                return dict(json.loads(path.read_bytes()))
        answer = TracedAnswers(self._opened(wanted, gpu), wanted, durations, self._batch_fn).answer()
        if key is not None:
            cache.store(key, json.dumps(answer).encode())
        return answer

    def _cache_key(self, wanted: Wanted, durations: Sequence[float], gpu: str | None) -> str | None:
        source = self._source
        if self._batch_fn is not None or source.identity is None:
            return None
        model, library = fingerprint(source.identity), native.library_path().stat()
        target = Target.find(gpu, wanted.devices)
        trace = Recording(source, MemorySettings(**self._settings(wanted)), target.capability).key(model)
        clips = hashlib.sha256(array("d", durations)).hexdigest()
        calibration = find_calibration(model, target.name)
        code = [library.st_mtime_ns, library.st_size, code_digest("predict", "plan")]
        return fingerprint(
            trace,
            source.label,
            [*astuple(wanted), self._record],
            clips,
            asdict(target),
            calibration and asdict(calibration),
            code,
        )

    @cached_property
    def _source(self) -> Model:
        return Model.of(self._model, self._freeze)

    def _settings(self, wanted: Wanted) -> dict[str, Any]:
        return {
            **wanted.settings,
            "accumulation": TRACED_MICRO_BATCHES,
            "freeze_feature_encoder": self._freeze,
            "lora_rank": self._lora_rank,
            "allocator": wanted.allocator,
        }

    def _opened(self, wanted: Wanted, gpu: str | None) -> MemoryModel:
        target = Target.find(gpu, wanted.devices)
        key = (kernel_class(target.capability), *wanted.settings.values(), wanted.allocator)
        if key not in self._models:
            self._models[key] = self._traced(wanted, gpu)
            self.last_settings = {**self._settings(wanted), "gpu": gpu, "devices": wanted.devices}
        self._models[key].aim(target)
        return self._models[key]

    def _traced(self, wanted: Wanted, gpu: str | None) -> MemoryModel:
        settings, source = self._settings(wanted), self._source
        if self._batch_fn is None:
            shipped = MemoryModel.of_known(source.label, gpu=gpu, record=self._record, **settings)
            if shipped is not None:
                return shipped
        if self._record is False:
            raise UnsupportedError(
                f"no recording of {source.label} with these settings comes with the package",
                "leave trace=False out (--no-trace) where torch and transformers are installed, to record a step",
            )
        return MemoryModel.trace(source, self._batch_fn, **settings, gpu=gpu, progress=self._progress)


def records_steps(trace: bool | None) -> bool:
    """Whether a training step is recorded where no recording is known."""
    return trace is not False and can_trace()


def tracer_for(
    model: object, trace: bool | None, batch_fn: BatchFunction | None, *, freeze: bool, lora_rank: int, progress: bool
) -> Tracer | NotTraced:
    """Return the tracer of a model with these settings of ``Tracer``, or the reason why it is not traced."""
    kind = Model.of(model).kind
    if kind == "counts":
        return NotTraced("only its counts are known", "Pass the model instead of its profile.")
    if trace is False and kind == "module":
        return NotTraced("trace=False was asked for", "Leave trace out.")
    return Tracer(model, trace, batch_fn, freeze=freeze, lora_rank=lora_rank, progress=progress)


def traced_batches(
    batch_fn: BatchFunction | None,
    examples: CollatedExamples | None,
    unit: InputUnit | None,
    durations: Sequence[float],
) -> BatchFunction | None:
    """What makes the batches of a trace: the user's function, else rows of the user's collator; None for made-up ones.

    ``unit`` is that of rows that hold a model's input, None for audio; ``durations`` are empty where they are unknown.
    """
    if batch_fn is None and examples is not None:
        return examples.batches(() if unit else durations)
    if batch_fn is None or unit is None or unit.per_second == SAMPLING_RATE or not callable(batch_fn):
        return batch_fn
    from ..trace.made_up_batches import SpeechBatches

    return SpeechBatches(batch_fn, unit.per_second, unit.fixed)


def plan(
    request: Mapping[str, Any], durations: array[float], tracer: Tracer | NotTraced, gpu: str | None
) -> dict[str, Any]:
    """Answer the planner's questions until it has none left, and return the plan as a JSON object.

    ``request`` is what ``plan.make`` takes; ``durations`` are empty where they are unknown. A model that cannot be
    traced is reported by one ``NotTracedWarning``, and planned by the published formula.
    """
    traced, missing = ([], tracer) if isinstance(tracer, NotTraced) else _traced(request, durations, tracer, gpu)
    last = {**request, "traced": traced, "not_traced": None if missing is None else asdict(missing)}
    return dict(native.call("plan.make", last, durations.tobytes()))


def _traced(
    request: Mapping[str, Any], durations: array[float], tracer: Tracer, gpu: str | None
) -> tuple[list[Answer], NotTraced | None]:
    tracer.check()
    traced: list[Answer] = []
    lengths = durations or array("d", (request["dataset"]["min_s"], request["dataset"]["max_s"]))
    for _ in range(_ROUNDS):
        question = native.call("plan.next", {**request, "traced": traced}, durations.tobytes())
        if question is None:
            break
        try:
            traced.append(tracer.ask(question, gpu, lengths, required=not traced))
        except AsrConfigError as error:
            why = error.message
            if tracer.records:
                why = f"tracing it failed: {why}"
                words = f"the model could not be traced ({error.message}): its memory is estimated without a trace"
                warnings.warn(words, NotTracedWarning, stacklevel=5)
            return traced, NotTraced(why, f"{error.hint[:1].upper()}{error.hint[1:]}.")
    return traced, None


def _price_of(gpu: GPU) -> float | None:
    """Dollars per hour of a GPU, by the built-in table; None where it has none."""
    for entry in native.call("hardware.catalogue"):
        sizes = (entry["memory_total_bytes"], *(entry["other_memory_bytes"] or ()))
        if gpu.name in entry["driver_names"] and gpu.memory_total_bytes in sizes:
            return next(
                (row["usd_per_hour"] for row in native.call("timing.prices") if row["gpu"] == entry["key"]), None
            )
    return None


def measured_values(
    hardware: HardwareProfile,
    model: ModelProfile,
    precision: Precision | None,
    lora_rank: int,
    own_kernels: bool,
    published: bool,
) -> dict[str, Any]:
    """The planner's options that no user sets: free space, kernels, earlier step times, and the GPU's price.

    Earlier step times do not count with a table of ``own_kernels``, which the user names. The ``published`` formula
    predicts no times.
    """
    values: dict[str, Any] = {
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free, "shm_free_bytes": free_shared_memory()
    }  # fmt: skip
    if published or not hardware.gpus:
        return values
    values["kernel_profiles"] = known_kernel_profiles()
    if not own_kernels:
        calibration = known_calibrations(model, precision, lora_rank).get(hardware.gpus[0].name)
        values |= {} if calibration is None else {"calibration": to_json(calibration)}
    price = _price_of(hardware.gpus[0])
    return values if price is None else {**values, "price_usd_hour": price}
