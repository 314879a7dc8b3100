"""Long clips in pieces, with their texts: by timestamps, by a CTC alignment, or at silences.

>>> from asrconfig_go.segmentation import CTCAligner
>>> dataset, selection = config.select(dataset, align=CTCAligner(model, processor))
"""

from .._base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"ctc_aligner": ("CTCAligner",), "long_clips": ("LongClips",), "segments": ("Segment",)}
)
