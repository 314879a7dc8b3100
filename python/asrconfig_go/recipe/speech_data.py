"""Audio with clean transcripts for training and evaluation, and notes on what was changed."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from .._core.declared import WORDS
from .._core.render import box, plural, visible
from .._core.settings import SAMPLING_RATE
from ..errors import EmptyDatasetError

if TYPE_CHECKING:
    from datasets import Dataset

_CODES = {"turkish": "tr", "tur": "tr", "azerbaijani": "az", "aze": "az", "azj": "az"}
_DOTLESS = ("tr", "az")
_DOT = "\u0307"  # combining dot above, which Unicode's lower case of \u0130 has behind its i
_UPPER = str.maketrans({"\u0130": "i", "I": "\u0131"})


def lower_case(text: str, language: str | None = None) -> str:
    """``text``, in Unicode's form NFC or NFKC, in the lower case of ``language``: its name in English or its code.

    A mark that casing makes beside a letter is dropped: the lower case of \u0130 is i, also where the language is not
    known.
    """
    if language_code(language) in _DOTLESS:
        text = text.translate(_UPPER)
    made = {ord(c): c.lower()[0] for c in set(text) if len(c.lower()) > 1}
    return unicodedata.normalize("NFC", text.translate(made).lower().replace(f"i{_DOT}", "i"))


def language_code(language: str | None) -> str:
    """The code of a language: \"tr\" for \"Turkish\" and for \"tr-TR\"."""
    name = (language or "").lower().replace("_", "-").split("-")[0].strip()
    return _CODES.get(name, name)


def may_be_turkish(before: str, after: str) -> bool:
    """Whether a text had \u0130 and has not any more, or still has what Unicode's lower case leaves of it."""
    had = "\u0130" in before or f"i{_DOT}" in before or f"I{_DOT}" in before
    return f"i{_DOT}" in after or (had and "\u0130" not in after)


_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\uff07`\u00b4", "'"))
_JOINERS = "\u200c\u200d"  # they change how letters of Persian and of Indian languages are written
_WITHIN_NUMBERS = re.compile(r"(?<=\d)[.,:](?=\d)")
_PARTING = ("Pd", "Pc", "Zs", "Zl", "Zp", "Cc")  # dashes, underscores, spaces, controls: words end there
_SLASHES = "/\\|\u2044"
_SHOWN = 12  # kinds of characters that a report lists


def clean_text(text: str, *, lowercase: bool = True, keep: str = "'", language: str | None = None) -> str:
    """Return a transcript in lower case, without punctuation, symbols and repeated spaces.

    The result is in Unicode's form NFKC. Letters and marks of every script stay. Typographic apostrophes become ``'``.
    Dashes, slashes and underscores end a word. Numbers stay as they are written, with the points between their digits:
    their spoken form is ambiguous.

    Args:
        text: The transcript.
        lowercase: Whether letters become lower case.
        keep: Characters to keep besides letters, marks and numbers.
        language: The language of the lower case, by its English name or code. In Turkish (``"tr"``) and Azerbaijani I
            becomes ı, and İ becomes i; in other languages, and for None, both become i, without a combining dot.

    Returns:
        The cleaned transcript; it may be empty.

    Example:
        >>> clean_text("Hello,  WORLD!")
        'hello world'
    """
    text = unicodedata.normalize("NFKC", text.replace("\u2044", " ").translate(_APOSTROPHES)).translate(_APOSTROPHES)
    if lowercase:
        text = lower_case(text, language)
    within = {match.start() for match in _WITHIN_NUMBERS.finditer(text)}
    characters = (c if i in within or c in keep else _cleaned(c) for i, c in enumerate(text))
    return " ".join("".join(characters).split())


def _cleaned(character: str) -> str:
    kind = unicodedata.category(character)
    if kind[0] in "LMN" or character in _JOINERS:
        return character
    return " " if kind in _PARTING or character in _SLASHES else ""


@dataclass
class CleaningReport:
    """What cleaning did to the transcripts it was shown."""

    texts: int = 0
    changed: int = 0
    empty: int = 0
    """Without any letter or number afterwards."""
    with_digits: int = 0
    dotted: int = 0
    """With İ, or an i that has a combining dot, where ``language`` is not known."""
    removed: Counter[str] = field(default_factory=Counter)
    """How often each character was removed or replaced by a space."""
    language: str | None = None

    def add(self, before: str, after: str) -> None:
        """Count one transcript."""
        self.texts += 1
        self.changed += before != after
        self.empty += not after
        self.with_digits += any(c.isdigit() for c in after)
        self.dotted += self.language is None and may_be_turkish(before, after)
        written = unicodedata.normalize("NFC", before)
        self.removed += Counter(c for c in written if not c.isalnum() and not c.isspace()) - Counter(after)

    def notes(self) -> Iterable[str]:
        """Yields a sentence for each thing that happened."""
        if self.changed:
            yield f"cleaning changed {self.changed} of {plural(self.texts, 'transcript')}{self._marks()}"
        if self.dotted:
            yield (
                f"{plural(self.dotted, 'transcript')} with \u0130 or i with a combining dot, as in Turkish: clean with "
                'language="tr" (--language), so that I becomes \u0131 and \u0130 becomes i'
            )
        if self.empty:
            yield f"{plural(self.empty, 'clip')} without a transcript left out"
        if self.with_digits:
            yield (
                f"{plural(self.with_digits, 'transcript')} with digits, left as written: write numbers out in words "
                "for better results"
            )

    def _marks(self) -> str:
        if not self.removed:
            return ""
        marks = ", ".join(f"{visible(c)} {count}\u00d7" for c, count in self.removed.most_common(_SHOWN))
        others = len(self.removed) - _SHOWN
        return f"; removed {marks}" + (f" and {others} other characters" if others > 0 else "")


class Notes(tuple[str, ...]):
    """Sentences, a line each."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(self)


@dataclass(frozen=True, repr=False)
class SpeechData:
    """Clips to train on and to evaluate with.

    Both datasets have the columns ``audio`` (not decoded: ``load_audio`` reads it), ``text`` and ``length`` (samples at
    16 kHz); where transcripts have timestamps, until ``prepare``, also ``segments`` (JSON); and after ``prepare``
    ``labels`` (token ids).

    Attributes:
        train: The clips to train on.
        evaluation: The clips to evaluate with; None where there are none.
        notes: Sentences on what was found, changed and left out, in order.
    """

    train: Dataset
    evaluation: Dataset | None
    notes: tuple[str, ...] = ()
    language: str | None = None
    """The spoken language, where it is known: it decides how letters become lower case."""

    def clean(self, *, lowercase: bool = True, keep: str = "'", language: str | None = None) -> SpeechData:
        """Clean the transcripts by ``clean_text``, and leave out clips whose transcript is empty then.

        Args:
            lowercase: Whether letters become lower case.
            keep: Characters to keep besides letters, marks and numbers.
            language: The language of the lower case; None for the one that the data was loaded with.

        Returns:
            The data with the cleaned transcripts, and notes on what changed.

        Raises:
            EmptyDatasetError: No clips are left to train on.
        """
        data = self if language is None else replace(self, language=language)
        return data.with_texts(lambda text: clean_text(text, lowercase=lowercase, keep=keep, language=data.language))

    def with_texts(self, change: Callable[[str], str]) -> SpeechData:
        """Apply a function to every transcript, and leave out clips whose transcript is empty then.

        Args:
            change: A function from a transcript to its replacement.

        Returns:
            The data with the new transcripts, and notes on what changed.

        Raises:
            EmptyDatasetError: No clips are left to train on.
        """
        report = CleaningReport(language=self.language)
        parts = [part and _with_texts(part, change, report) for part in (self.train, self.evaluation)]
        return self.of(*parts).noted(*report.notes())

    def of(self, train: Dataset, evaluation: Dataset | None) -> SpeechData:
        """Replace the clips, and keep the notes and the language.

        Args:
            train: The clips to train on.
            evaluation: The clips to evaluate with; None or an empty dataset for none.

        Returns:
            The data with these clips.

        Raises:
            EmptyDatasetError: There are no clips to train on.
        """
        if not len(train):
            notes = "".join(f"; {note}" for note in self.notes)
            raise EmptyDatasetError(f"no clips are left to train on{notes}", "check the audio and the transcripts")
        return replace(self, train=train, evaluation=evaluation if evaluation is not None and len(evaluation) else None)

    def evaluated_with(self, limit: int | None, seed: int) -> SpeechData:
        """Limit the clips to evaluate with.

        Args:
            limit: How many clips to draw at most, which stay in their order; None keeps all.
            seed: Draws them.

        Returns:
            The data with the drawn clips to evaluate with.
        """
        clips = 0 if self.evaluation is None else len(self.evaluation)
        if self.evaluation is None or limit is None or limit >= clips:
            return self
        return replace(self, evaluation=self.evaluation.select(sorted(Random(seed).sample(range(clips), limit))))

    def noted(self, *notes: str) -> SpeechData:
        """Append notes.

        Args:
            *notes: Sentences on what was found, changed or left out.

        Returns:
            The data with these notes after its own.
        """
        return replace(self, notes=(*self.notes, *notes))

    def since(self, earlier: SpeechData) -> Notes:
        """Return what changed since an earlier state of the data.

        Args:
            earlier: The data before some stages.

        Returns:
            The amounts of audio, where they changed, and the new notes.
        """
        amounts = () if self._amounts() == earlier._amounts() else (self._amounts(),)
        return Notes((*amounts, *self.notes[len(earlier.notes) :]))

    def _amounts(self) -> str:
        evaluation = f", {_amount(self.evaluation)} to evaluate with" if self.evaluation is not None else ""
        return f"{_amount(self.train)} to train on{evaluation}"

    def __repr__(self) -> str:
        return "\n".join([self._amounts(), *(f"  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return box("Speech", repr(self))


def _amount(dataset: Dataset) -> str:
    hours = sum(column(dataset, "length")) / SAMPLING_RATE / 3600
    return f"{plural(len(dataset), 'clip')} ({WORDS['clips'].amount(hours)})"


def column(dataset: Dataset, name: str) -> list[Any]:
    """A column in the rows' order, without looking at the audio."""
    values: list[Any] = dataset.select_columns([name]).with_format("arrow")[:].column(name).to_pylist()
    return values


def with_column(dataset: Dataset, name: str, values: Sequence[object]) -> Dataset:
    """The dataset with a column in place of the one that has its name. Audio is not copied."""
    from ..data.hf_datasets import with_column

    return with_column(dataset.remove_columns([n for n in (name,) if n in dataset.column_names]), name, list(values))


def keep_rows(dataset: Dataset, rows: Sequence[int]) -> Dataset:
    """The dataset with these rows alone, lengths ready to sort by."""
    if not rows:
        return dataset.select([])
    lengths = column(dataset, "length")
    selected = dataset if len(rows) == len(dataset) else dataset.select(rows)
    return with_column(selected, "length", [lengths[row] for row in rows])


def _with_texts(dataset: Dataset, change: Callable[[str], str], report: CleaningReport) -> Dataset:
    texts = []
    for before in column(dataset, "text"):
        texts.append(change(before or ""))
        report.add(before or "", texts[-1])
    return keep_rows(with_column(dataset, "text", texts), [row for row, text in enumerate(texts) if text])
