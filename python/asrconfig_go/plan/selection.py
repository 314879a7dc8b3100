"""Which clips a plan trains on, and where long ones are split: ``max_length_s`` and ``chunk_length_s``."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .._core.checks import checked
from .._core.declared import WORDS, RowKind
from .._core.output import kind_of
from ..data.scan_result import clips_by_use
from ..data.source import Source, open_source
from ..errors import EmptyDatasetError, InvalidArgumentError
from .plan_record import PlanRecord

if TYPE_CHECKING:
    from ..audio.ctc_aligner import CTCAligner
    from ..audio.long_clips import LongClips


@dataclass(frozen=True, repr=False)
class Selection:
    """Which clips a plan trains on.

    Clips are named by their row, in arrays of type ``"q"`` and in ascending order.

    Attributes:
        kept_hours: The hours of audio of ``kept``.
        too_long_hours: The hours of audio of ``too_long``.
        to_cut_hours: The hours of audio of ``to_cut``.
        max_length_s: The plan's limit in seconds, over which clips are left out; None for none.
        chunk_length_s: The plan's limit in seconds, over which clips are cut; None for none.
        row_kind: ``"clips"``, or ``"texts"``: 50 tokens then count as a second.
    """

    kept: array[int]
    """What the plan trains on, clips to be split included."""
    too_long: array[int]
    """Left out: over ``max_length_s``."""
    unreadable: array[int]
    """Left out: their duration is not a number, as ``scan_audio`` has it for bad files."""
    to_cut: array[int]
    """Those of ``kept`` over ``chunk_length_s``. The ones that ``config.select`` did not cut are in ``not_cut``."""
    kept_hours: float
    too_long_hours: float
    to_cut_hours: float
    max_length_s: float | None
    chunk_length_s: float | None
    not_cut: array[int] = field(default_factory=lambda: array("q"))
    """Left out: over ``chunk_length_s``, and no rule could cut them."""
    long_clips: LongClips | None = None
    """What ``config.select`` made of the clips over ``chunk_length_s``; None where there are none."""
    row_kind: RowKind = "clips"

    def __repr__(self) -> str:
        total = len(self.kept) + len(self.too_long) + len(self.unreadable) + len(self.not_cut)
        rows = WORDS[self.row_kind]
        lines = [f"{len(self.kept)} of {rows.count(total)} kept ({rows.amount(self.kept_hours)})"]
        if self.too_long:
            longer = f"longer than {rows.length(self.max_length_s or 0)} left out ({rows.amount(self.too_long_hours)})"
            lines.append(f"{rows.count(len(self.too_long))} {longer}")
        if self.unreadable:
            lines.append(f"{rows.count(len(self.unreadable))} that cannot be read left out")
        if self.long_clips is not None:
            lines += self.long_clips.lines()
        elif self.to_cut:
            pieces = f"to be split into pieces of at most {self.chunk_length_s:g} s ({rows.amount(self.to_cut_hours)})"
            lines.append(f"{rows.count(len(self.to_cut))} {pieces}")
        return "\n".join(lines)


def select_clips(durations: Sequence[float], config: PlanRecord) -> Selection:
    """Select the clips that a plan trains on, by their durations.

    Clips over ``max_length_s`` and those that cannot be read are left out; those over ``chunk_length_s`` are kept and
    listed. ``config.select`` also cuts them.

    Args:
        durations: The seconds of every clip; NaN where it cannot be read, as in ``scan_audio(…).durations``.
        config: The plan.

    Returns:
        The rows of the clips, by what becomes of them.

    Raises:
        InvalidArgumentError: A duration is negative or of the wrong type, or ``config`` is no plan.
        EmptyDatasetError: No clip is left.

    Example:
        >>> config, _ = create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
        >>> config.max_length_s = 9.0
        >>> select_clips([2.0, 10.0, float("nan")], config)
        1 of 3 clips kept (2 s)
        1 clip longer than 9 s left out (10 s)
        1 clip that cannot be read left out
    """
    if not isinstance(config, PlanRecord):
        raise InvalidArgumentError(
            f"config = {config!r:.80} is not a TrainingConfig", "create_optimal_config returns one"
        )
    seconds = _seconds(durations)
    chunk = math.inf if config.chunk_length_s is None else config.chunk_length_s
    usable, too_long, unreadable = clips_by_use(seconds, config.max_length_s)
    to_cut = array("q", (row for row in usable if seconds[row] > chunk))
    rows = WORDS[config.row_kind]
    if not usable:
        longest = f"{len(too_long)} are over {rows.length(config.max_length_s or 0)}, " if too_long else ""
        raise EmptyDatasetError(
            f"no {rows.noun} is left of {len(seconds)}: {longest}{len(unreadable)} unreadable",
            "raise config.max_length_s, or set chunk_length_s and split the clips"
            if too_long
            else "scan_audio(dataset).profile.bad_files says why they cannot be read",
        )

    def hours(clips: array[int]) -> float:
        return sum(seconds[i] for i in clips) / 3600

    return Selection(
        usable, too_long, unreadable, to_cut,
        hours(usable), hours(too_long), hours(to_cut), config.max_length_s, config.chunk_length_s,
        row_kind=config.row_kind,
    )  # fmt: skip


def select(
    dataset: Any,
    durations: Sequence[float] | None,
    config: PlanRecord,
    align: CTCAligner | None = None,
    processor: object = None,
) -> tuple[Any, Selection]:
    """See ``TrainingConfig.select``."""
    rows = WORDS[config.row_kind]
    source = open_source(dataset)
    if source.kind in ("splits", "mapping"):
        raise InvalidArgumentError("a dictionary of splits has no order of rows", "select from each split")
    if not source.has_rows:
        raise InvalidArgumentError(
            f"cannot choose {rows.nouns} of {kind_of(dataset)} by index",
            "load the dataset without streaming, or train on config.stream(dataset), which leaves long ones out",
        )
    if durations is None:
        durations = _measured(source)
    if len(durations) != len(dataset):
        raise InvalidArgumentError(
            f"{len(durations)} durations for a dataset of {rows.count(len(dataset))}", "pass one for each row"
        )
    chosen = select_clips(durations, config)
    if chosen.to_cut:
        return _cut(source, _seconds(durations), chosen, align, processor)
    return _taken(source, chosen.kept), chosen


def _cut(
    source: Source, seconds: list[float], chosen: Selection, align: CTCAligner | None, processor: object
) -> tuple[Any, Selection]:
    from ..audio.long_clips import cut_long_clips, cut_settings
    from ..data.label_rules import limits_of

    decoder = type(processor).__name__.startswith("Whisper")
    settings = cut_settings(
        chosen.chunk_length_s or math.inf, align, processor, limits_of("whisper") if decoder else None
    )
    pieces, record, not_cut = cut_long_clips(source.data, seconds, chosen.kept, settings, progress=True)
    uncut = set(not_cut)
    remaining, cut = (array("q", (i for i in rows if i not in uncut)) for rows in (chosen.kept, chosen.to_cut))
    lost = record.not_cut_hours + sum(record.lost.values())
    chosen = replace(
        chosen, kept=remaining, to_cut=cut, not_cut=array("q", not_cut), kept_hours=chosen.kept_hours - lost,
        to_cut_hours=chosen.to_cut_hours - record.not_cut_hours, long_clips=record,
    )  # fmt: skip
    if not remaining:
        raise EmptyDatasetError(
            f"no clip is left: {'; '.join(record.lines())}",
            "add a column segments with times and texts, or pass align=CTCAligner(model, processor)",
        )
    return (pieces if cut else _taken(source, remaining)), chosen


def _measured(source: Source) -> Sequence[float]:
    if source.kind == "indexed":
        raise InvalidArgumentError(
            f"the durations of {kind_of(source.data)} cannot be measured",
            "pass durations=…, seconds of every clip: of its files, scan_audio(paths).durations",
        )
    from ..data.scan import scan_audio

    return scan_audio(source.data, allow_empty=True, progress=False).durations


def _taken(source: Source, rows: array[int]) -> Any:
    return source.data if len(rows) == source.length else source.select(rows)


def _seconds(durations: Sequence[float]) -> list[float]:
    if isinstance(durations, str | bytes) or not hasattr(durations, "__len__"):
        raise InvalidArgumentError(
            f"durations are {kind_of(durations)}, not a sequence", "pass seconds, as scan_audio(…).durations"
        )
    values = durations.tolist() if hasattr(durations, "tolist") else list(durations)
    for i, value in enumerate(values):
        if not (isinstance(value, float) and math.isnan(value)):
            values[i] = checked(f"durations[{i}]", value, float)
            if values[i] < 0:
                raise InvalidArgumentError(f"durations[{i}] = {value} is negative", "pass seconds")
    return values
