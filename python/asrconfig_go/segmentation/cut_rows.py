"""A dataset or a list of rows whose long clips are in pieces: rows that name a recording, a start and an end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.listing import listed
from ..data.column_names import audio_columns, text_columns, usual_columns
from ..data.hf_sources import audio_column, undecoded_columns
from ..loading.clip_ranges import part_of
from .cut_rules import CutClip, CutSettings, Piece, cut_clip
from .cut_tables import table_problem, table_with_pieces
from .segments import SEGMENT_COLUMNS

Outcomes = dict[int, CutClip | str]


def cut_rows(
    dataset: Any, seconds: Sequence[float], rows: Sequence[int], settings: CutSettings, advance: Callable[[int], None]
) -> Outcomes:
    """Cut each of ``rows`` into pieces, or return the reason why it is not cut. Other rows are not read."""
    source = _Source(dataset)
    outcomes: Outcomes = {}
    for done, row in enumerate(rows, start=1):
        outcomes[row] = source.problem or cut_clip(*source.clip(row, seconds[row]), settings)
        advance(done)
    return outcomes


def with_pieces(dataset: Any, seconds: Sequence[float], rows: Sequence[int], outcomes: Outcomes) -> Any:
    """The rows ``kept`` of ``dataset`` in order, each that is cut as its pieces."""
    cuts = {row: outcome.pieces for row, outcome in outcomes.items() if isinstance(outcome, CutClip)}
    if hasattr(dataset, "features"):
        return table_with_pieces(dataset, seconds, rows, cuts)
    new_rows: list[Any] = []
    for row in rows:
        new_rows += [_piece(dataset[row], piece) for piece in cuts[row]] if row in cuts else [dataset[row]]
    return type(dataset)(new_rows)


class _Source:
    def __init__(self, dataset: Any) -> None:
        self._rows = dataset
        self.problem = ""
        if hasattr(dataset, "features"):
            self.problem = table_problem(dataset)
            self._rows = undecoded_columns(dataset.with_format(None))
            self._audio = audio_column(self._rows)
        elif not isinstance(dataset, list | tuple):
            self.problem = f"the rows of a {type(dataset).__name__} are its own: pass a datasets.Dataset or a list"

    def clip(self, row: int, duration: float) -> tuple[Any, float, str, Any]:
        item = self._rows[row]
        if not isinstance(item, Mapping) or "array" in item or "bytes" in item:
            return item, duration, "", None
        audio = item[getattr(self, "_audio", None) or _first(item, ("audio", *audio_columns())) or _no_audio(item)]
        text, segments = _first(item, text_columns()), _first(item, SEGMENT_COLUMNS)
        return audio, duration, str((item[text] if text else None) or ""), item[segments] if segments else None


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next(iter(usual_columns(row, names)), None)


def _no_audio(row: Mapping[str, Any]) -> str:
    raise InvalidArgumentError(f"a row of {listed(row)} has no audio", 'rows need "audio"')


def _piece(item: Any, piece: Piece) -> Any:
    if not isinstance(item, Mapping) or "array" in item or "bytes" in item:
        return part_of(item, piece.start, piece.end)
    row = {name: value for name, value in item.items() if name not in SEGMENT_COLUMNS}
    audio = _first(row, ("audio", *audio_columns())) or _no_audio(row)
    row[audio] = part_of(row[audio], piece.start, piece.end)
    text = _first(row, text_columns())
    return row if text is None else {**row, text: piece.text}
