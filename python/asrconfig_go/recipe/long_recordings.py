"""Clips over what the model hears at once, in pieces with their texts."""

from __future__ import annotations

from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.hub_downloads import OFFLINE, from_hub
from ..segmentation import CTCAligner
from ..segmentation.cut_rules import CutSettings
from ..segmentation.cutting import cut_long_clips
from ..segmentation.segments import SEGMENTS
from .speech_data import column, keep_rows

USUAL_S = 30.0  # of a piece for models that hear any length: attention over longer clips takes memory and time


def in_pieces(
    part: Any, settings: CutSettings, *, keep_whole: bool, where: str, progress: bool
) -> tuple[Any, list[str]]:
    """``part`` with clips over the limit in pieces, and notes. Those that cannot be cut stay only if ``keep_whole``.

    The column of segments is not there any more then.
    """
    seconds = [length / SAMPLING_RATE for length in column(part, "length")]
    every = range(len(seconds))
    cut, record, not_cut = cut_long_clips(part, seconds, every, settings, keep_whole=keep_whole, progress=progress)
    if cut is None:
        dropped = set() if keep_whole else set(not_cut)
        cut = keep_rows(part, [row for row in every if row not in dropped])
    if SEGMENTS in cut.column_names:
        cut = cut.remove_columns([SEGMENTS])
    return cut, [f"{line}{where}" for line in record.lines()]


def load_aligner(model: str) -> CTCAligner:
    """The aligner of a fine-tuned CTC model by its name or folder, with its processor, on the CPU.

    A GPU must not be used before the plan is applied.
    """
    from transformers import AutoModelForCTC, AutoProcessor

    def load() -> tuple[Any, Any]:
        return AutoModelForCTC.from_pretrained(model), AutoProcessor.from_pretrained(model)

    return CTCAligner(*from_hub("the model to align with,", model, load, OFFLINE))
