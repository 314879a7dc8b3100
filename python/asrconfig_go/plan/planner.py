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
from .._core.defaults import SAMPLING_RATE, TRACED_MICRO_BATCHES
from .._core.files import cache_folder, fingerprint
from .._core.records import to_json
from ..errors import AsrConfigError, UnsupportedError
from ..predict.hardware import HardwareProfile, catalogue, free_shared_memory, known_kernel_profiles
from ..predict.memory_model import MemoryModel
from ..predict.memory_settings import MemorySettings, Target, find_calibration
from ..predict.model_profile import ModelProfile
from ..predict.predict_records import GPU
from ..predict.recordings import Recording, TraceCache, code_digest, kernel_class
from ..trace.model import Model, can_trace
from .time_estimates import known_calibrations
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
    """Why a model is not traced.

    Attributes:
        why: The reason, as the middle of a sentence.
        fix: What to do so that it is traced, as a sentence.
    """

    why: str
    fix: str


class Tracer:
    """Traces a model with the settings that plans choose; GPUs with the same kernels share a recording.

    Args:
        model: What ``MemoryModel.trace`` takes.
        trace: Whether a training step is recorded. With None that is done where no recording of the package matches the
            installed packages. With False, and without torch, only recordings of the package are used.
        batch_fn: Makes the batches of a recorded step, as ``MemoryModel.trace`` takes it.
        freeze: Whether the convolutional feature encoder does not train.
        lora_rank: The rank of adapters that the model does not have yet; 0 for none.
        progress: Whether a progress bar is shown while a step is recorded.
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
        """Answer a question of the planner about clips on a GPU.

        Args:
            question: The question, a ``TraceRequestRecord`` as a JSON object.
            gpu: A GPU of the catalogue; None for this machine's.
            durations: The seconds of the clips.
            required: Whether settings that the model cannot train with are an error; otherwise no clip fits with them.

        Returns:
            What fits, and the peaks of the longest clips.

        Raises:
            AsrConfigError: The model cannot train with the settings, and an answer is ``required``.
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
        if key is not None and (cached := _cached(cache, key)) is not None:
            return cached
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


def _cached(cache: TraceCache, key: str) -> Answer | None:
    """An earlier answer; None if there is none, or it is damaged."""
    path = cache.find(key)
    if path is None:
        return None
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


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
    """Return what makes the batches of a trace.

    Args:
        batch_fn: The function that the user passed, which comes first; None for none.
        examples: Rows that the user's collator has collated; None for none.
        unit: The unit of rows that hold a model's input; None for audio.
        durations: The seconds of every clip; empty where they are unknown.

    Returns:
        The function; None for made-up batches.
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
    """Answer the planner's questions until it has none left.

    A model that cannot be traced is reported by one ``NotTracedWarning``, and planned by the published formula.

    Args:
        request: The profiles and options, as ``plan.make`` takes them.
        durations: The seconds of every clip; empty where they are unknown.
        tracer: Traces the model, or the reason why it is not traced.
        gpu: A GPU of the catalogue; None for this machine's.

    Returns:
        The plan as a JSON object.
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
    for entry in catalogue():
        sizes = (entry["memory_total_bytes"], *(entry["other_memory_bytes"] or ()))
        if gpu.name in entry["driver_names"] and gpu.memory_total_bytes in sizes:
            return next(
                (row["usd_per_hour"] for row in native.call("timing.prices") if row["gpu"] == entry["key"]), None
            )
    return None


def measured_values(
    hardware: HardwareProfile, model: ModelProfile, precision: Precision | None, lora_rank: int, own_kernels: bool
) -> dict[str, Any]:
    """Return the planner's options that no user sets: free space, kernels, earlier step times, and the GPU's price.

    Args:
        hardware: The profile of the machine.
        model: The profile of the model.
        precision: The precision that the user asks for; None for any.
        lora_rank: The rank of the adapters; 0 for none.
        own_kernels: Whether the user names a table of kernels; other measurements of the GPU then do not count.

    Returns:
        The options by name.
    """
    values: dict[str, Any] = {
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free, "shm_free_bytes": free_shared_memory()
    }  # fmt: skip
    if not hardware.gpus:
        return values
    values["kernel_profiles"] = known_kernel_profiles()
    if not own_kernels:
        calibration = known_calibrations(model, precision, lora_rank).get(hardware.gpus[0].name)
        values |= {} if calibration is None else {"calibration": to_json(calibration)}
    price = _price_of(hardware.gpus[0])
    return values if price is None else {**values, "price_usd_hour": price}
