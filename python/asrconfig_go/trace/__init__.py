"""Trace a training step's memory without a GPU. Needs torch; see docs/memory-model.md."""

from .._core import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "made_up_batches": ("SpeechBatches", "speech_batches"),
        "recorder": ("MemoryRecorder",),
        "step_tracing": ("trace_training",),
        "event_log": ("Trace", "TraceError"),
    },
)
