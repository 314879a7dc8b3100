"""Clips whose loss or gradient is not finite or that raise in forward: found, named, saved and left out."""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"bad_clip_record": ("BadBatch", "BadClip"), "detection": ("BadClipError",)}
)
