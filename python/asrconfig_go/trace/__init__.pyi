"""Types of the public names in __init__.py; written by build/stubs.py."""

from .event_log import Trace as Trace, TraceError as TraceError
from .made_up_batches import SpeechBatches as SpeechBatches, speech_batches as speech_batches
from .recorder import MemoryRecorder as MemoryRecorder
from .step_tracing import trace_training as trace_training
