"""``MemoryModel``: the memory of a traced training step for any batch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._core import native
from .._core.declared import Optimizer, Precision
from .._core.files import fingerprint, user_path
from .._core.records import from_json
from .._core.settings import ACCUMULATION, ALLOCATOR, OPTIMIZER, PRECISION, SAMPLING_RATE, Checkpointing
from ..errors import InvalidArgumentError
from ..trace.model import Model, can_trace
from . import run_memory
from .estimate import EvaluationMemory, MemoryEstimate, smaller_batch
from .memory_settings import MAX_ACCUMULATION, MemorySettings, Shape, Target, positive
from .opened_trace import STEPS, OpenedTrace
from .recordings import Recording, is_current, kernel_class, open_recording, open_trace
from .shape_traces import Point, ShapeTraces
from .snapshot import PredictedRun

if TYPE_CHECKING:
    from ..trace.event_log import Trace


_POINTS = 400  # of a timeline, at most
_EVERY_EVENT = 100_000  # points that are enough for a timeline with each event of an evaluation
_MODULES = 12  # listed with what they hold at the peak
_USUAL_TOKENS = 448  # what Whisper generates at most


class MemoryModel(OpenedTrace):
    """A traced model with its training settings, which answers memory questions in milliseconds.

    Create it by ``MemoryModel.trace`` or ``MemoryModel.load``. It is a context manager; otherwise it is closed when it
    is garbage-collected.

    Example:
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> with MemoryModel.trace(small_model(tokens=12, seed=0), gpu="T4", progress=False) as memory:
        ...     memory.estimate(batch=8, seconds=10.0).fits
        True
    """

    @classmethod
    def trace(
        cls,
        model: object,
        batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None,
        *,
        precision: Precision = PRECISION,
        gradient_checkpointing: bool | Checkpointing = False,
        optimizer: Optimizer = OPTIMIZER,
        accumulation: int = ACCUMULATION,
        every_n_layers: int = 1,
        offload_checkpoints: bool = False,
        freeze_feature_encoder: bool = False,
        lora_rank: int = 0,
        gpu: str | None = None,
        devices: int | None = None,
        allocator: str = ALLOCATOR,
        points: Sequence[tuple[int, int, int]] | None = None,
        length_per_second: float = SAMPLING_RATE,
        loss: Callable[[Any, dict[str, Any]], Any] | None = None,
        cache: bool = True,
        progress: bool = True,
    ) -> MemoryModel:
        """Record a training step of a model at a few shapes, or load an earlier recording from the cache.

        Args:
            model: The model, as for ``estimate_memory``.
            batch_fn: A function of ``(batch, length, labels)`` that returns the model's keyword arguments as tensors,
                for a model whose input is not known here; None where it follows from the model.
            precision: ``"fp32"``, or ``"fp16"`` or ``"bf16"`` for mixed precision.
            gradient_checkpointing: False, True, ``"reentrant"`` or ``"non_reentrant"``.
            optimizer: The Trainer's name of an optimizer.
            accumulation: The micro-batches of an optimizer step.
            every_n_layers: Above 1, each n-th layer alone is checkpointed, as by transformers 5.23.
            offload_checkpoints: Whether checkpoints are saved in pinned host memory, as by transformers 5.23.
            freeze_feature_encoder: Whether the convolutional front end is frozen, as by
                ``model.freeze_feature_encoder()``. Call that first for a live module.
            lora_rank: Above 0, adapters of this rank are trained, as ``add_lora`` makes them.
            gpu: A GPU of the catalogue; None for this machine's, if there is one.
            devices: The GPUs that share a step; with several, NCCL's memory is included. None for as many as ``gpu``
                names, or one of this machine's.
            allocator: The value of PYTORCH_CUDA_ALLOC_CONF, whatever the environment of this process holds. The default
                is that of a plan; ``""`` for PyTorch's own settings.
            points: The shapes to record, each (batch, input length, label length); None for shapes that let all others
                be computed.
            length_per_second: The units of input length in a second of audio, with ``batch_fn``: samples, or frames of
                features.
            loss: A function of ``(model, batch)`` that returns the loss; None for ``model(**batch).loss``.
            cache: Whether recordings are read from the cache and written to it. With ``loss``, or with a function as
                ``model``, none is.
            progress: Whether tracing shows a progress bar.

        Returns:
            The opened memory model.

        Raises:
            InvalidArgumentError: A value is out of its range, or the model cannot be read or built.
            NotFoundError: The name of the model or of the GPU is unknown.
            UnsupportedError: torch is not installed, or the step cannot be recorded: a ``TraceError`` with the
                operation and the module.
        """
        settings = MemorySettings(
            precision, gradient_checkpointing, optimizer, accumulation, freeze_feature_encoder, allocator,
            every_n_layers, offload_checkpoints, lora_rank,
        )  # fmt: skip
        target = Target.find(gpu, devices)
        source = Model.of(model, freeze_feature_encoder)
        is_custom = batch_fn is not None or loss is not None or points is not None
        model_key = None if source.identity is None else fingerprint(source.identity)
        recording = Recording(source, settings, target.capability, batch_fn, points, length_per_second, loss)
        cache_key = recording.key(model_key) if cache and model_key and loss is None else None
        opened = recording.opened(cache_key, progress)

        def record(shapes: tuple[Point, ...]) -> dict[str, Any]:
            further = dataclasses.replace(recording, points=shapes)
            return further.opened(cache_key and further.key(str(model_key)), progress)

        shapes = ShapeTraces(record, getattr(batch_fn, "real", lambda point: point))
        return cls(opened, settings, target, None if is_custom else model_key, source.label, shapes)

    @classmethod
    def of_known(cls, name: str, *, gpu: str | None, record: bool | None, **settings: Any) -> MemoryModel | None:
        """Open the recording of a known model that comes with the package.

        Args:
            name: The full name of the model, such as ``"facebook/wav2vec2-base"``.
            gpu: A GPU of the catalogue; None for this machine's, if there is one.
            record: Whether the model is to be recorded anew rather than a recording of the package opened: True for
                always; None for where a recording can be made and those of the package are from other versions of the
                packages that are installed; False for never.
            **settings: The fields of ``MemorySettings``.

        Returns:
            The memory model; None where the package has no recording for these settings.

        Raises:
            InvalidArgumentError: A setting is out of its range.
            NotFoundError: The name of the GPU is unknown.
        """
        if record or (record is None and can_trace() and not is_current()):
            return None
        wanted, target = MemorySettings(**settings), Target.find(gpu)
        opened = open_recording(name, wanted, kernel_class(target.capability))
        return None if opened is None else cls(opened, wanted, target, None, name)

    @classmethod
    def load(
        cls, trace: str | os.PathLike[str] | Trace, *, gpu: str | None = None, allocator: str = ALLOCATOR
    ) -> MemoryModel:
        """Open a recorded trace.

        Args:
            trace: A ``Trace``, or the path of a file that ``Trace.save`` wrote.
            gpu: A GPU of the catalogue; None for this machine's, if there is one.
            allocator: The value of PYTORCH_CUDA_ALLOC_CONF; ``""`` for PyTorch's own settings.

        Returns:
            The memory model. Its other settings are those of the trace.

        Raises:
            InvalidArgumentError: ``trace`` is neither a trace nor a path.
            NotFoundError: There is no such file, or the name of the GPU is unknown.
            CorruptFileError: The file is not a trace.
            VersionMismatchError: The trace was recorded by another version of the package.
        """
        if isinstance(trace, str | os.PathLike):
            opened = native.call("memory.open", {"path": str(user_path(trace, "trace").absolute())})
        elif not hasattr(trace, "segments"):
            raise InvalidArgumentError(f"{trace!r} is not a trace", "pass a Trace, or the file that Trace.save wrote")
        else:
            opened = open_trace(trace.to_bytes())
        return cls(opened, _settings_of(opened["about"], allocator), Target.find(gpu))

    def estimate(
        self,
        batch: int,
        seconds: float,
        labels: int | None = None,
        *,
        accumulation: int | None = None,
        evaluation_batch: int | None = None,
        timeline: int = _POINTS,
    ) -> MemoryEstimate:
        """Estimate the memory of steps with micro-batches of one shape.

        Args:
            batch: The clips of a micro-batch, at least 1.
            seconds: The seconds of its longest clip, above 0.
            labels: The tokens of its longest text; None for the usual number of that duration.
            accumulation: The micro-batches of a step; None for as many as were traced.
            evaluation_batch: The clips of an evaluation batch, for ``.evaluation``; None for no evaluation.
            timeline: The most points of ``.timeline``; 0 for none.

        Returns:
            The plain prediction, without a safety margin.

        Raises:
            InvalidArgumentError: A value is out of its range, a clip or text is longer than the model takes, the trace
                has no shapes, or the memory model is closed.
            UnsupportedError: No formula answers for this shape, and it cannot be traced.
        """
        shape = Shape(batch, seconds, labels)
        request = self.step_request(shape)
        if accumulation is not None:
            request["accumulation"] = positive("accumulation", accumulation, MAX_ACCUMULATION)
        estimate = self._simulated(request, timeline)
        evaluation = None if evaluation_batch is None else self.evaluation(evaluation_batch, seconds, labels)
        notes = estimate.notes
        if labels is None:
            texts = "labels" if self.row_kind == "texts" else "transcripts"
            notes = (f"{texts} of {self.labels(seconds)} tokens assumed", *notes)
        estimate = dataclasses.replace(estimate, shape=shape, evaluation=evaluation, notes=notes)
        if estimate.fits is not False:
            return estimate
        return dataclasses.replace(estimate, remedies=(smaller_batch(self, shape),))

    def as_recorded(self, steps: int = STEPS, *, timeline: int = _POINTS) -> MemoryEstimate:
        """Estimate the memory of a loop that was recorded without shapes, as by ``MemoryRecorder``.

        Args:
            steps: The iterations of the loop to replay, 1 to 1000.
            timeline: The most points of ``.timeline``; 0 for none.

        Returns:
            The plain prediction, without a safety margin.

        Raises:
            InvalidArgumentError: ``steps`` is out of its range, the trace has shapes, or the memory model is closed.
        """
        request = {**self.common_request(self.target.limit_bytes), "steps": positive("steps", steps, 1000)}
        return self._simulated(request, timeline)

    def _simulated(self, question: dict[str, Any], timeline: int) -> MemoryEstimate:
        request = {**question, "timeline": timeline, "modules": _MODULES}
        answer = _to_the_end(request)
        estimate = from_json(MemoryEstimate, _scaled(answer, self.factor, self.target.context_bytes))
        played = question if answer["out_of_memory"] is None else {**question, "limit_bytes": None}
        return dataclasses.replace(
            estimate, model=self.name, settings=self.settings, target=self.target, calibration=self.calibration,
            row_kind=self.row_kind, _run=PredictedRun(self, played),
        )  # fmt: skip

    def evaluation(self, batch: int, seconds: float, labels: int | None = None) -> EvaluationMemory:
        """Estimate the memory of an evaluation with batches of one shape.

        Args:
            batch: The clips of a batch, at least 1.
            seconds: The seconds of its longest clip, above 0.
            labels: The tokens of its longest text; None for the usual number of that duration.

        Returns:
            The memory on the GPU and on the host, without a limit.

        Raises:
            InvalidArgumentError: A value is out of its range, a clip or text is longer than the model takes, the trace
                has no shapes, or the memory model is closed.
            UnsupportedError: The trace has no evaluation, or none of this shape.
        """
        shape = Shape(batch, seconds, labels)
        # This simulation is for the bytes of single components: expandable segments do not round them up, and outputs
        # often exist at the end only, which a timeline with fewer points may miss.
        exact = {"limit_bytes": None, "settings": "expandable_segments:True", "steps": 1, "timeline": _EVERY_EVENT}
        request = {**self.step_request(shape, "evaluate"), **exact}
        components = native.call("memory.simulate", request)["timeline"]["components"]
        outputs, evaluated = max(components.get("outputs", [0])), self.evaluated(shape)
        cache_in_float16 = self.cache_bytes(self.max_labels or _USUAL_TOKENS)
        return EvaluationMemory(
            batch=batch,
            seconds=seconds,
            peak_allocated=evaluated["peak_allocated"],
            peak_reserved=evaluated["peak_reserved"],
            resident_bytes=sum(max(components.get(name, [0])) for name in ("parameters", "buffers", "optimizer")),
            outputs_bytes_per_sample=round(outputs / batch),
            generation_cache_bytes=batch * cache_in_float16 * (2 if self.settings.precision == "fp32" else 1) or None,
        )

    simulate_steps = run_memory.simulate_steps

    def __enter__(self) -> MemoryModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self.is_open else ", closed"
        return f"MemoryModel({self.name}, {self.settings.words()}, for {self.target.name or 'any GPU'}{state})"


def open_model(
    model: object, settings: MemorySettings, gpu: str | None, *, cache: bool = True, progress: bool = False
) -> MemoryModel:
    """Open the recording that comes with the package, an earlier one, or else a new one of a training step."""
    source = Model.of(model, settings.freeze_feature_encoder)
    shipped = MemoryModel.of_known(source.label, gpu=gpu, record=None, **vars(settings))
    return shipped or MemoryModel.trace(source, **vars(settings), gpu=gpu, cache=cache, progress=progress)


def _to_the_end(request: dict[str, Any]) -> dict[str, Any]:
    """Simulate. Where memory runs out, return where that is, with the peaks on a GPU that is large enough."""
    answer: dict[str, Any] = native.call("memory.simulate", request)
    if answer["out_of_memory"] is None:
        return answer
    unlimited = native.call("memory.simulate", {**request, "limit_bytes": None})
    return {**unlimited, "fits": False, "out_of_memory": answer["out_of_memory"]}


def _scaled(answer: dict[str, Any], factor: float, context_bytes: int | None) -> dict[str, Any]:
    """A simulation's answer with reserved memory multiplied by a calibration's factor.

    ``context_bytes`` is what the GPU holds beside PyTorch's memory; None where there is no GPU.
    """
    if factor == 1.0:
        return answer
    reserved = round(answer["peak_reserved"] * factor)
    timeline = answer["timeline"]
    return {
        **answer,
        "peak_reserved": reserved,
        "peak_device": None if context_bytes is None else reserved + context_bytes,
        "phases": [{**p, "peak_reserved": round(p["peak_reserved"] * factor)} for p in answer["phases"]],
        "timeline": timeline and {**timeline, "reserved": [round(r * factor) for r in timeline["reserved"]]},
    }


def _settings_of(about: dict[str, Any], allocator: str) -> MemorySettings:
    recorded: Any = about.get("checkpointing") or "none"
    return MemorySettings(
        precision=about.get("precision") or "fp32",
        gradient_checkpointing=False if recorded == "none" else recorded,
        optimizer=str(about.get("optimizer") or "own"),
        accumulation=int(about.get("accumulation") or 1),
        every_n_layers=int(about.get("every_n_layers") or 1),
        offload_checkpoints=bool(about.get("offload_checkpoints")),
        allocator=allocator,
    )
