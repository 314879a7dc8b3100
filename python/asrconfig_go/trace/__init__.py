"""Trace a training step's memory without a GPU. Needs torch; see docs/memory-model.md."""

from ._trace_errors import TraceError
from .made_up_batches import SpeechBatches, speech_batches
from .recorder import MemoryRecorder
from .trace_file import Trace
from .trace_training import trace_training

__all__ = ["MemoryRecorder", "SpeechBatches", "Trace", "TraceError", "speech_batches", "trace_training"]
