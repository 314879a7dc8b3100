"""Cutting clips over a limit into pieces, for ``config.select`` and the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._base.progress import ProgressBar
from ..data.label_limits import Limits
from .ctc_aligner import CTCAligner
from .cut_rows import cut_rows, with_pieces
from .cut_rules import CutClip, CutSettings
from .long_clips import LongClips, counted


def cut_settings(limit_s: float, align: CTCAligner | None, processor: Any, limits: Limits | None) -> CutSettings:
    """For pieces of at most ``limit_s`` seconds, with no more labels of ``processor`` than a decoder has positions."""
    if limits is None or limits.positions is None:
        return CutSettings(limit_s, align)
    tokenizer = processor.tokenizer
    return CutSettings(limit_s, align, lambda text: len(tokenizer(text).input_ids), limits.positions)


def cut_long_clips(
    dataset: Any,
    seconds: Sequence[float],
    rows: Sequence[int],
    settings: CutSettings,
    *,
    keep_whole: bool = False,
    progress: bool = False,
) -> tuple[Any | None, LongClips, list[int]]:
    """The rows ``kept`` of ``dataset``, those over the limit in pieces where a rule allows it.

    ``seconds`` are those of all rows. Those that cannot be cut, which the list names, are left out unless
    ``keep_whole``. None in place of a dataset where no clip is cut.
    """
    long = [row for row in rows if seconds[row] > settings.limit_s]
    with ProgressBar("Cutting long clips", "clip", len(long), progress and bool(long)) as advance:
        outcomes = cut_rows(dataset, seconds, long, settings, lambda done: advance(done, len(long)))
    record = counted(outcomes, seconds, settings.limit_s, kept_whole=keep_whole)
    not_cut = [row for row, outcome in outcomes.items() if not isinstance(outcome, CutClip)]
    if len(not_cut) == len(long):
        return None, record, not_cut
    gone = set() if keep_whole else set(not_cut)
    return with_pieces(dataset, seconds, [row for row in rows if row not in gone], outcomes), record, not_cut
