"""Streams of clips in a Trainer: see docs/streams.md."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"stream_batches": ("StreamBatches",)})
