"""Trace a training step's memory without a GPU. Needs torch; see docs/memory-model.md."""

from ._errors import TraceError
from .batches import SpeechBatches, speech_batches
from .file import Trace
from .recorder import MemoryRecorder
from .training import trace_training

__all__ = ["MemoryRecorder", "SpeechBatches", "Trace", "TraceError", "speech_batches", "trace_training"]
