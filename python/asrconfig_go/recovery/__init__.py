"""The engine that computes an accumulation window again when memory runs out, for any training loop."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"guard_event": ("GuardEvent",)})
