"""Audio with transcripts for training and evaluation, and notes on what was changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from .._base.defaults import SAMPLING_RATE
from .._base.errors import EmptyDatasetError
from ..view.render import box
from ..view.units import plural
from .transcripts import CleaningReport, clean_text


class Notes(tuple[str, ...]):
    """Sentences, a line each."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(self)


@dataclass(frozen=True, repr=False)
class SpeechData:
    """Clips to train on and to evaluate with.

    Both are a ``datasets.Dataset`` with the columns ``audio`` (not decoded: ``load_audio`` reads it), ``text``,
    ``length`` (samples at 16 kHz), ``segments`` (JSON) where transcripts have timestamps, until ``prepare``, and after
    it ``labels`` (token ids). ``evaluation`` is None where there
    is nothing to evaluate with. ``notes`` list in order what was found, changed and left out.
    """

    train: Any
    evaluation: Any | None
    notes: tuple[str, ...] = ()
    language: str | None = None
    """The spoken language, where it is known: it decides how letters become lower case."""

    def clean(self, *, lowercase: bool = True, keep: str = "'", language: str | None = None) -> SpeechData:
        """With transcripts cleaned by ``clean_text``, and without clips whose transcript is empty then.

        ``language`` is by default the one that the data was loaded with. Raises ``EmptyDatasetError`` when no clips are
        left to train on.
        """
        data = self if language is None else replace(self, language=language)
        return data.with_texts(lambda text: clean_text(text, lowercase=lowercase, keep=keep, language=data.language))

    def with_texts(self, change: Callable[[str], str]) -> SpeechData:
        """With ``change`` applied to every transcript, and without those that are empty then; both are noted."""
        report = CleaningReport(language=self.language)
        parts = [part and _with_texts(part, change, report) for part in (self.train, self.evaluation)]
        return self.of(*parts).noted(*report.notes())

    def of(self, train: Any, evaluation: Any | None) -> SpeechData:
        """The same with other rows. Raises ``EmptyDatasetError`` when there is nothing to train on."""
        if not len(train):
            notes = "".join(f"; {note}" for note in self.notes)
            raise EmptyDatasetError(f"no clips are left to train on{notes}", "check the audio and the transcripts")
        return replace(self, train=train, evaluation=evaluation if evaluation is not None and len(evaluation) else None)

    def evaluated_with(self, limit: int | None, seed: int) -> SpeechData:
        """With at most ``most`` clips to evaluate with, drawn with ``seed``; None keeps all."""
        clips = 0 if self.evaluation is None else len(self.evaluation)
        if self.evaluation is None or limit is None or limit >= clips:
            return self
        return replace(self, evaluation=self.evaluation.select(sorted(Random(seed).sample(range(clips), limit))))

    def noted(self, *notes: str) -> SpeechData:
        """With ``notes`` behind those that there are."""
        return replace(self, notes=(*self.notes, *notes))

    def since(self, earlier: SpeechData) -> Notes:
        """What changed since ``earlier``: its clips, where they are others, and the new notes."""
        amounts = () if self._amounts() == earlier._amounts() else (self._amounts(),)
        return Notes((*amounts, *self.notes[len(earlier.notes) :]))

    def _amounts(self) -> str:
        evaluation = f", {_amount(self.evaluation)} to evaluate with" if self.evaluation is not None else ""
        return f"{_amount(self.train)} to train on{evaluation}"

    def __repr__(self) -> str:
        return "\n".join([self._amounts(), *(f"  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return box("Speech", repr(self))


def _amount(dataset: Any) -> str:
    seconds = sum(column(dataset, "length")) / SAMPLING_RATE
    amount = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
    return f"{plural(len(dataset), 'clip')} ({amount})"


def column(dataset: Any, name: str) -> list[Any]:
    """A column in the rows' order, without looking at the audio."""
    values: list[Any] = dataset.select_columns([name]).with_format("arrow")[:].column(name).to_pylist()
    return values


def with_column(dataset: Any, name: str, values: Sequence[Any]) -> Any:
    """The dataset with a column in place of the one that has its name. Audio is not copied."""
    from ..data.hf_durations import with_column

    return with_column(dataset.remove_columns([n for n in (name,) if n in dataset.column_names]), name, list(values))


def keep_rows(dataset: Any, rows: Sequence[int]) -> Any:
    """The dataset with these rows alone, lengths ready to sort by."""
    if not rows:
        return dataset.select([])
    lengths = column(dataset, "length")
    selected = dataset if len(rows) == len(dataset) else dataset.select(rows)
    return with_column(selected, "length", [lengths[row] for row in rows])


def _with_texts(dataset: Any, change: Callable[[str], str], report: CleaningReport) -> Any:
    texts = []
    for before in column(dataset, "text"):
        texts.append(change(before or ""))
        report.add(before or "", texts[-1])
    return keep_rows(with_column(dataset, "text", texts), [row for row, text in enumerate(texts) if text])
