"""Cuts the long clips of a dataset into pieces, and reports what became of them."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from .._core.declared import WORDS
from .._core.files import cache_folder, write_whole
from .._core.output import ProgressBar, first_of, kind_of, shortened, with_article
from .._core.render import plural
from .._core.stored_clip import StoredClip
from ..data.columns import audio_column, audio_key, text_columns, usual_columns
from ..data.label_rules import Limits
from ..data.segments import SEGMENT_COLUMNS, Segment, named_range, part_of
from ..data.source import open_source
from ..data.table_sources import schema_of
from .ctc_aligner import CTCAligner
from .cut_rules import CutClip, CutSettings, cut_clip

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import ProcessorMixin

_RULES = {"timestamps": "by timestamps", "alignment": "by an alignment", "silence": "at silences, without text"}
_SHOWN = 120  # characters of a reason
_LENGTHS = ("length", "duration", "duration_s", "seconds", "num_samples", "n_samples", "input_length")
_PREPARED = ("labels", "input_values", "input_features")


@dataclass(frozen=True, repr=False)
class LongClips:
    """What became of the clips over a limit.

    Attributes:
        limit_s: The limit in seconds.
        not_cut_hours: Hours of the clips that no rule could cut.
        kept_whole: Whether those clips are kept; otherwise they are left out.
    """

    limit_s: float
    clips: Mapping[str, int] = field(default_factory=dict)
    """Clips that were cut, by rule: ``"timestamps"``, ``"alignment"``, ``"silence"``."""
    pieces: Mapping[str, int] = field(default_factory=dict)
    """Pieces that they were cut into, by rule."""
    not_cut: Mapping[str, int] = field(default_factory=dict)
    """Clips that no rule could cut, by reason."""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Hours of cut clips that are in no piece, by reason."""
    cut_hours: float = 0.0
    """Hours of the pieces."""
    not_cut_hours: float = 0.0
    loud: int = 0
    """Cuts within speech, where no silence was near enough."""
    kept_whole: bool = False

    @property
    def lost_hours(self) -> float:
        """Hours that are not trained on: parts of cut clips, and clips that are left out."""
        return sum(self.lost.values()) + (0.0 if self.kept_whole else self.not_cut_hours)

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each rule that cut clips, and for each reason why audio was left out."""
        limit = f"over {self.limit_s:g} s"
        for rule, count in self.clips.items():
            loud = f", {self.loud} of the cuts at no silence" if rule == "silence" and self.loud else ""
            pieces = plural(self.pieces[rule], "piece")
            yield f"{plural(count, 'clip')} {limit} cut into {pieces} {_RULES[rule]}{loud}"
        amounts = ((WORDS["clips"].amount(hours), reason) for reason, hours in self.lost.items())
        yield from first_of(f"{amount} of cut clips left out: {reason}" for amount, reason in amounts)
        fate = "kept whole" if self.kept_whole else "left out"
        skipped = ((plural(count, "clip"), reason) for reason, count in self.not_cut.items())
        yield from first_of(f"{clips} {limit} not cut and {fate}: {reason}" for clips, reason in skipped)

    def __repr__(self) -> str:
        return "\n".join(self.lines()) or f"no clip is over {self.limit_s:g} s"


def _counted(
    cuts: Mapping[int, CutClip], problems: Mapping[int, str], seconds: Sequence[float], limit_s: float, kept_whole: bool
) -> LongClips:
    """Count the clips that were cut and those that were not, by their rows."""
    clips, pieces, lost = Counter[str](), Counter[str](), dict[str, float]()
    for clip in cuts.values():
        clips[clip.rule] += 1
        pieces[clip.rule] += len(clip.pieces)
        for reason, amount in clip.lost.items():
            lost[reason] = lost.get(reason, 0.0) + amount / 3600
    seconds_cut = sum(piece.end - piece.start for clip in cuts.values() for piece in clip.pieces)
    return LongClips(
        limit_s, dict(clips), dict(pieces), _by_kind(problems.values()), lost, seconds_cut / 3600,
        sum(seconds[row] for row in problems) / 3600, sum(clip.loud for clip in cuts.values()), kept_whole,
    )  # fmt: skip


def _by_kind(reasons: Iterable[str]) -> dict[str, int]:
    """Count reasons, merging those that differ only in their numbers under the first of them."""
    kinds: dict[str, list[str]] = {}
    for reason in reasons:
        kinds.setdefault("".join(c for c in reason if not c.isdigit() and c not in ".-"), []).append(reason)
    firsts = ((group, shortened(group[0], _SHOWN)) for group in kinds.values())
    return {first if len(set(group)) == 1 else f"{first}, and similar": len(group) for group, first in firsts}


def table_problem(dataset: Dataset) -> str:
    """Why the clips of a table cannot be cut, or ""."""
    import pyarrow as pa

    if any(name in dataset.column_names for name in _PREPARED):
        return "their labels or inputs were already computed: select before that"
    kind = dataset.data.table.schema.field(audio_column(schema_of(dataset))).type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_struct(kind) and "path" in [field.name for field in kind] and "array" not in str(kind):
        return ""
    return f"the column of the audio is {with_article(str(kind))}, which cannot name a piece of a file"


def table_with_pieces(
    dataset: Dataset, seconds: Sequence[float], rows: Sequence[int], cuts: Mapping[int, list[Segment]]
) -> Dataset:
    """These ``rows`` in order, those in ``cuts`` as their pieces, with the format that ``dataset`` has."""
    from datasets import concatenate_datasets

    from ..data.hf_datasets import formatted_like

    uncut = [row for row in rows if row not in cuts]
    pieces = _pieces(dataset, seconds, [(row, piece) for row in rows for piece in cuts.get(row, ())])
    combined = concatenate_datasets([dataset.with_format(None).select(uncut), pieces])
    wholes, numbers = iter(range(len(uncut))), itertools.count(len(uncut))
    order = [n for row in rows for n in (itertools.islice(numbers, len(cuts[row])) if row in cuts else [next(wholes)])]
    return formatted_like(combined.select(order), dataset)


def _scaled(values: Sequence[Any], shares: Sequence[float]) -> list[Any]:
    """Scale the lengths of clips, in any unit, to those of pieces that are ``shares`` of them."""
    new = [None if value is None else value * share for value, share in zip(values, shares, strict=True)]
    integers = all(isinstance(value, int | None) for value in values)
    return [None if value is None else round(value) for value in new] if integers else new


def _pieces(dataset: Dataset, seconds: Sequence[float], rows: list[tuple[int, Segment]]) -> Dataset:
    import pyarrow as pa
    from datasets import Dataset
    from datasets.table import InMemoryTable

    schema, audio = dataset.data.table.schema, audio_column(schema_of(dataset))
    text = next(iter(usual_columns(schema.names, text_columns())), None)
    shares = [(piece.end - piece.start) / seconds[row] for row, piece in rows]
    columns = []
    for entry in schema:
        if entry.name == audio:
            column = pa.array(_audio(dataset, audio, rows, pa.types.is_struct(entry.type)), entry.type)
        elif entry.name == text:
            column = pa.array([piece.text for _, piece in rows], entry.type)
        elif entry.name in SEGMENT_COLUMNS:
            column = pa.nulls(len(rows), entry.type)
        else:
            values = dataset.select_columns([entry.name]).select([row for row, _ in rows]).with_format("arrow")[:]
            column = values.column(entry.name).combine_chunks()
            if entry.name in _LENGTHS:
                column = pa.array(_scaled(column.to_pylist(), shares), entry.type)
        columns.append(column)
    table = pa.Table.from_arrays(columns, schema=schema.remove_metadata())
    return Dataset(InMemoryTable(table), info=dataset.info.copy(), split=dataset.split)


def _audio(dataset: Dataset, column: str, rows: list[tuple[int, Segment]], struct: bool) -> Sequence[object]:
    names: dict[int, str] = {}
    undecoded = open_source(dataset).stored([column])
    for row, _ in rows:
        if row not in names:
            names[row] = _file_of(undecoded[row][column])
    paths = [named_range(names[row], piece.start, piece.end) for row, piece in rows]
    return [{"bytes": None, "path": path} for path in paths] if struct else paths


def _file_of(audio: object) -> str:
    """The path of a recording; one that is embedded is written to the cache, once."""
    clip = StoredClip.of(audio)
    if clip.kind != "bytes":
        return clip.path
    name = hashlib.blake2b(clip.value, digest_size=16).hexdigest()
    file = cache_folder("recordings") / f"{name}{PurePath(clip.path).suffix}"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, clip.value)
    return str(file)


class _Clips:
    """The long clips of a dataset; ``problem`` is the reason why they cannot be cut, or ""."""

    def __init__(self, dataset: Any) -> None:
        source = open_source(dataset)
        self._rows, self.problem, self._audio = dataset, "", ""
        if source.kind == "dataset":
            self.problem = table_problem(dataset)
            self._rows = source.undecoded().with_format(None)
            self._audio = audio_column(schema_of(dataset))
        elif source.kind not in ("list", "paths"):
            self.problem = f"the rows of {kind_of(dataset)} cannot be replaced: pass a datasets.Dataset or a list"

    def clip(self, row: int, duration: float) -> tuple[Any, float, str, Any]:
        item = self._rows[row]
        audio = self._audio or audio_key(item)
        if audio is None:
            return item, duration, "", None
        text, segments = _first(item, text_columns()), _first(item, SEGMENT_COLUMNS)
        return item[audio], duration, str((item[text] if text else None) or ""), item[segments] if segments else None


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next(iter(usual_columns(row, names)), None)


def _piece(item: Any, piece: Segment) -> Any:
    audio = audio_key(item)
    if audio is None:
        return part_of(item, piece.start, piece.end)
    row = {name: value for name, value in item.items() if name not in SEGMENT_COLUMNS}
    row[audio] = part_of(row[audio], piece.start, piece.end)
    text = _first(row, text_columns())
    return row if text is None else {**row, text: piece.text}


def cut_settings(
    limit_s: float, align: CTCAligner | None, processor: ProcessorMixin, limits: Limits | None
) -> CutSettings:
    """Settings for pieces of at most ``limit_s`` seconds, with no more labels than a decoder has positions."""
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
    """Select ``rows`` of ``dataset``, and cut those over the limit into pieces where a rule allows it.

    ``seconds`` are the durations of all rows. Returns the new dataset (None where no clip is cut), the counts, and the
    rows that cannot be cut, which are left out unless ``keep_whole``.
    """
    long = [row for row in rows if seconds[row] > settings.limit_s]
    clips, cuts, problems = _Clips(dataset), dict[int, CutClip](), dict[int, str]()
    with ProgressBar("Cutting long clips", "clip", len(long), progress and bool(long)) as advance:
        for done, row in enumerate(long, start=1):
            outcome = clips.problem or cut_clip(*clips.clip(row, seconds[row]), settings)
            if isinstance(outcome, CutClip):
                cuts[row] = outcome
            else:
                problems[row] = outcome
            advance(done, len(long))
    record = _counted(cuts, problems, seconds, settings.limit_s, keep_whole)
    if not cuts:
        return None, record, list(problems)
    remaining = [row for row in rows if keep_whole or row not in problems]
    pieces = {row: clip.pieces for row, clip in cuts.items()}
    if open_source(dataset).kind == "dataset":
        return table_with_pieces(dataset, seconds, remaining, pieces), record, list(problems)
    parts = [[_piece(dataset[row], piece) for piece in pieces.get(row, ())] or [dataset[row]] for row in remaining]
    return type(dataset)(itertools.chain.from_iterable(parts)), record, list(problems)
