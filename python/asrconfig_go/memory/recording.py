"""Recording a training step for the memory model, once for each model and setting."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .._base.checks import checked
from .._base.defaults import SAMPLING_RATE
from .._base.errors import AsrConfigError, InvalidArgumentError, UnsupportedError
from .._base.fingerprint import fingerprint
from .._base.progress import ProgressBar
from ..machine.model_source import ModelSource, can_trace, is_module
from .memory_settings import MemorySettings
from .trace_cache import TraceCache, code_versions

if TYPE_CHECKING:
    from .._base.choices import Optimizer
    from ..trace import SpeechBatches, Trace

_WINDOW = 3  # micro-batches of a window that the recorder runs; further ones repeat the third


@dataclass(frozen=True)
class Recording:
    """Everything that decides what the recorder sees."""

    source: ModelSource
    settings: MemorySettings
    capability: tuple[int, int]
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None
    points: Sequence[tuple[int, int, int]] | None = None
    length_per_second: float = SAMPLING_RATE
    loss: Callable[[Any, dict[str, Any]], Any] | None = None

    def __post_init__(self) -> None:
        if self.batch_fn is not None and not callable(self.batch_fn):
            raise InvalidArgumentError(
                f"batch_fn is a {type(self.batch_fn).__name__}, not a function",
                "pass batch_fn(batch, length, labels) -> the model's keyword arguments as tensors",
            )
        if checked("length_per_second", self.length_per_second, float) <= 0:
            raise InvalidArgumentError("length_per_second is not positive", "16000 for samples, 100 for mel frames")

    def key(self, model_key: str) -> str:
        """The key of the trace in the cache."""
        s = self.settings
        checkpointing = "non_reentrant" if s.gradient_checkpointing is True else s.gradient_checkpointing
        depth = (checkpointing, s.every_n_layers, s.offload_checkpoints)
        settings = [s.precision, depth, s.optimizer, min(s.accumulation, _WINDOW), kernel_class(self.capability)]
        settings += [s.lora_rank] if s.lora_rank else []
        return fingerprint(model_key, settings, self._input(), code_versions())

    def _input(self) -> Any:
        """What identifies own batches and own shapes; None for those that follow from the model."""
        if self.batch_fn is None or not can_trace():
            return self.points
        from ..trace.made_up_batches import batch_identity

        batches = self._batches(self.batch_fn)
        points = batches.points() if self.points is None else self.points
        try:
            return [self.points, batches.facts(), batch_identity(self.batch_fn, points)]
        except Exception as error:  # of the user's function: recording raises it, too, with a clearer message
            return named(error)

    def make(self, key: str | None, progress: bool) -> dict[str, Any]:
        """Record, keep the trace under ``key``, and return the request that opens it."""
        data = self.trace(progress).to_bytes()
        if key is not None:
            TraceCache().store(key, data)
        return {"trace": base64.b64encode(data).decode()}

    def trace(self, progress: bool = False) -> Trace:
        """Record."""
        if not can_trace():
            raise UnsupportedError(
                "a training step is traced with torch and transformers, which are not installed here",
                'pip install torch transformers, or ask with estimator="published"',
            )
        source, configs = self.source.model, list[Any]()

        def build() -> Any:
            model = source()
            configs.append(getattr(model, "config", None))
            return model

        title = f"Tracing {self.source.label}, {self.settings.step_words()}"
        with ProgressBar(title, "step", None, progress) as advance:
            trace = self._run(source if is_module(source) else build, advance)
        facts = generation_facts(configs[0] if configs else getattr(source, "config", None))
        if self.batch_fn is not None:
            facts |= self._batches(self.batch_fn).facts()
        return dataclasses.replace(trace, about={**trace.about, **facts})

    def _run(self, model: Any, advance: Callable[[int, int | None], None]) -> Trace:
        from ..trace import TraceError, trace_training

        s, points = self.settings, self.points
        optimizer = cast("Optimizer", s.optimizer)  # others are refused
        if points is None and self.batch_fn is not None:
            points = self._batches(self.batch_fn).points()
        try:
            return trace_training(
                model, self.batch_fn, points=points, optimizer=optimizer, precision=s.precision,
                gradient_checkpointing=s.gradient_checkpointing, every_n_layers=s.every_n_layers,
                offload_checkpoints=s.offload_checkpoints, accumulation=s.accumulation, loss=self.loss,
                compute_capability=self.capability, progress=advance, lora_rank=s.lora_rank,
                covering=self.points is None,
            )  # fmt: skip
        except AsrConfigError:
            raise
        except Exception as error:
            hint = "check that batch_fn gives the model's keyword arguments" if self.batch_fn else "train it for a step"
            raise TraceError(f"{self.source.label} failed in its training step: {named(error)}", hint) from error

    def _batches(self, batch_fn: Callable[[int, int, int], dict[str, Any]]) -> SpeechBatches:
        from ..trace import SpeechBatches

        return batch_fn if isinstance(batch_fn, SpeechBatches) else SpeechBatches(batch_fn, self.length_per_second)


def kernel_class(capability: tuple[int, int]) -> int:
    """The oldest major compute capability with the same traces: attention, workspaces and TF32 differ between them."""
    return next((oldest for oldest in (9, 8, 7) if capability[0] >= oldest), 0)


def generation_facts(config: Any) -> dict[str, Any]:
    """Sizes of a decoder's key-value cache, for encoder-decoder models with a fixed source length."""
    layers, width = getattr(config, "decoder_layers", None), getattr(config, "d_model", None)
    source = getattr(config, "max_source_positions", None)
    if not (getattr(config, "is_encoder_decoder", False) and layers and width and source):
        return {}
    encoder = int(getattr(config, "encoder_layers", None) or layers)
    sizes = {"decoder_layers": int(layers), "decoder_width": int(width), "source_frames": int(source)}
    return {**sizes, "encoder_layers": encoder}


def named(error: Exception) -> str:
    """An exception in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
