"""Checks that transcripts fit the audio: CTC needs a frame for every label, a decoder a position for every token."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .._core.output import first_of, kind_of, shortened
from ..errors import InvalidArgumentError
from .label_faults import LabelTally, Mismatch, model_findings, shown, spoken
from .label_rules import LabelRules, Limits, limits_of, rules_of
from .scan import scan_audio, scan_with_texts
from .scan_result import ScanResult
from .scan_rows import Text
from .source import open_source

_SHOWN = 20  # pairs that a report lists
_BATCH = 1_000  # texts tokenized at once


@dataclass(frozen=True)
class InfeasiblePair:
    """A clip whose labels do not fit.

    Attributes:
        row: The number of its row.
        path: The path or the name of the clip.
        duration_s: Its duration in seconds.
        labels: The number of its labels.
        needed: The frames (CTC) or positions (decoder) that they need.
        available: The frames or positions that the model has for the clip.
        text: Its transcript; labels without one are written as JSON.
    """

    row: int
    path: str
    duration_s: float
    labels: int
    needed: int
    available: int
    text: str

    def __str__(self) -> str:
        return (
            f"[{self.row}] {self.path}: {self.duration_s:.2f} s, {self.labels} labels need {self.needed}, "
            f"there are {self.available}: {shortened(self.text, 40)!r}"
        )


@dataclass(frozen=True, repr=False)
class LabelReport:
    """The result of ``check_labels``.

    Attributes:
        model: The model whose limits were checked.
        unit: What a label is: ``"characters"`` or ``"tokens"``.
        limit: What labels have to fit in: ``"frames"`` of a CTC model or ``"positions"`` of a decoder.
        checked: The number of pairs that were checked.
        infeasible: The first 20 pairs that do not fit.
        infeasible_rows: The rows of all pairs that do not fit.
        unreadable: Clips that cannot be read, which were not checked.
        missing: Clips without a text, which were not checked.
        empty: Clips with an empty text, which fits.
        longest_labels: The most labels of a clip.
        mean_labels: The mean number of labels of a clip.
        tightest: The highest share of its frames or positions that a pair needs; above 1 it does not fit.
        findings: Sentences on other problems of the labels of a live model and its tokenizer: ids that the model does
            not have, CTC's blank, padding.
    """

    model: str
    unit: str
    limit: str
    checked: int
    infeasible: tuple[InfeasiblePair, ...]
    infeasible_rows: tuple[int, ...]
    unreadable: int
    missing: int
    empty: int
    longest_labels: int
    mean_labels: float
    tightest: float
    findings: tuple[str, ...] = ()

    @property
    def infeasible_count(self) -> int:
        """How many pairs do not fit."""
        return len(self.infeasible_rows)

    def __repr__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        from .._core.render import box

        return box("Labels", repr(self))


def check_labels(
    source: object,
    texts: Iterable[str | None] | None = None,
    *,
    text: str | None = None,
    tokenizer: object = None,
    model: object = "wav2vec2",
    workers: int = 0,
    progress: bool = True,
) -> LabelReport:
    """Find the clips whose labels do not fit a model: their CTC loss is infinite, or they break a decoder.

    CTC needs as many frames as labels, and one more between any two labels that are the same (Graves et al. 2006). For
    a live model the check also finds labels that its head does not have, CTC's blank among them, padding other than
    -100, and a tokenizer that is not the model's.

    Args:
        source: What ``scan_audio`` takes, or its result.
        texts: The transcripts in the order of the clips, bad ones included, None for a missing one; needed for a scan's
            result. None reads them from ``source``.
        text: The column of transcripts; None for the first of text, sentence, transcription, transcript and other usual
            names (of tar shards: .txt or .json members; of Kaldi: the file ``text``). A column of whole numbers, such
            as ``labels`` of a prepared dataset, counts as tokens already.
        tokenizer: A tokenizer or processor of transformers, or a function from a text to its labels; None counts every
            character as a label.
        model: A name ("wav2vec2", "w2v-bert", "whisper", or one of ``known_models()``), a model, its config or folder,
            or a function from seconds to frames.
        workers: How many files are read at once; 0 for four for each usable core.
        progress: Whether to show a progress bar.

    Returns:
        The pairs that do not fit, and statistics of the labels.

    Raises:
        InvalidArgumentError: There are no texts, or not one for each clip; a decoder is checked without a tokenizer; or
            the frames of ``model`` cannot be determined.

    Example:
        >>> print(check_labels(CLIPS / "manifest.jsonl", progress=False))
        all 310 pairs fit wav2vec2
        labels are characters: 12.4 on average, 22 at most; the fullest pair needs 43% of its frames
    """
    limits = limits_of(model)
    rules = rules_of(model, tokenizer)
    if texts is not None or open_source(source).scan is not None:
        result, transcripts = _with_texts(source, texts, workers, progress)
    else:
        result, transcripts = scan_with_texts(source, text, workers=workers, progress=progress)
    return _report(result, transcripts, limits, rules, tokenizer)


def _with_texts(
    source: object, texts: Iterable[Text] | None, workers: int, progress: bool
) -> tuple[ScanResult, list[Text]]:
    if texts is None:
        raise InvalidArgumentError("a scan's result has no transcripts", "pass texts=… as well")
    result = scan_audio(source, workers=workers, progress=progress, allow_empty=True)
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        raise InvalidArgumentError(f"texts are {kind_of(texts)}", "pass a list with one text for each clip")
    transcripts = list(texts)
    if len(transcripts) != len(result):
        raise InvalidArgumentError(
            f"{len(transcripts)} texts for {len(result)} clips", "pass one text for each clip, bad ones included"
        )
    return result, transcripts


def _report(
    result: ScanResult, transcripts: Sequence[Text], limits: Limits, rules: LabelRules, tokenizer: object
) -> LabelReport:
    durations = result.durations
    if limits.positions is not None and tokenizer is None and any(isinstance(one, str) for one in transcripts):
        raise InvalidArgumentError(
            "a decoder's positions hold tokens, which cannot be counted without a tokenizer", "pass tokenizer=…"
        )
    counted = [row for row, one in enumerate(transcripts) if one is not None and not math.isnan(durations[row])]
    tally = _Tally(rules)
    for row, labels in zip(counted, _labelled((transcripts[row] for row in counted), tokenizer), strict=True):
        tally.add(row, labels, durations[row], limits)
    unreadable = sum(map(math.isnan, durations))
    pairs = [_pair(result, transcripts, row, *numbers) for row, numbers in tally.infeasible[:_SHOWN]]
    tokens = tokenizer is not None or any(not isinstance(transcripts[row], str) for row in counted[:1])
    return LabelReport(
        model=limits.name,
        unit="tokens" if tokens else "characters",
        limit="frames" if limits.positions is None else "positions",
        checked=len(counted),
        infeasible=tuple(pairs),
        infeasible_rows=tuple(row for row, _ in tally.infeasible),
        unreadable=unreadable,
        missing=len(transcripts) - len(counted) - unreadable,
        empty=tally.empty,
        longest_labels=tally.longest,
        mean_labels=tally.sum / max(1, len(counted)),
        tightest=tally.tightest,
        findings=tuple(map(str, [*model_findings(rules), *_of_rows(tally.faults, result, transcripts)])),
    )


def _of_rows(faults: LabelTally, result: ScanResult, transcripts: Sequence[Text]) -> list[Mismatch]:
    """The findings about labels besides those that the report counts itself."""
    for name in ("empty", "too_long"):
        faults.counts.pop(name, None)

    def name_of(row: int, labels: Sequence[int]) -> str:
        text = transcripts[row]
        return shown(result.clips[row].path, text if isinstance(text, str) else "")

    return faults.findings(name_of)


def _lines(r: LabelReport) -> Iterator[str]:
    consequence = "their CTC loss is infinite" if r.limit == "frames" else "the decoder has no positions for the rest"
    if r.infeasible_count:
        yield f"{r.infeasible_count} of {r.checked} pairs do not fit {r.model}: {consequence}"
    elif r.findings:
        yield f"all {r.checked} texts are short enough for {r.model}, but the labels are not right"
    elif not r.checked:
        yield "no pairs were checked"
    else:
        yield f"all {r.checked} pairs fit {r.model}"
    yield from first_of(f"! {finding}" for finding in r.findings)
    if r.checked:
        yield (
            f"labels are {r.unit}: {r.mean_labels:.1f} on average, {r.longest_labels} at most; "
            f"the fullest pair needs {r.tightest:.0%} of its {r.limit}"
        )
    yield from (f"  {pair}" for pair in r.infeasible)
    if r.infeasible_count > len(r.infeasible):
        yield f"  … and {r.infeasible_count - len(r.infeasible)} more, see infeasible_rows"
    others = ((r.unreadable, "cannot be read"), (r.missing, "have no text"), (r.empty, "have an empty text"))
    if any(count for count, _ in others):
        yield "of the clips " + ", ".join(f"{count} {problem}" for count, problem in others if count)


class _Tally:
    """Counts over the pairs."""

    def __init__(self, rules: LabelRules) -> None:
        self.faults = LabelTally(rules)
        self.infeasible: list[tuple[int, tuple[int, int, int]]] = []
        self.empty = self.longest = self.sum = 0
        self.tightest = 0.0

    def add(self, row: int, labels: Sequence[Any], seconds: float, limits: Limits) -> None:
        self.faults.rows += 1
        if len(labels) and not isinstance(labels[0], str):
            if self.faults.rules.kind:
                self.faults.add(row, labels, seconds)
            if limits.positions is None:
                labels = spoken(labels, self.faults.rules)
        count = len(labels)
        self.empty += not count
        self.sum += count
        self.longest = max(self.longest, count)
        needed, available = count, limits.available(seconds)
        if limits.positions is not None or 2 * count > available:  # else repeats cannot matter
            needed = limits.needed(labels)
        self.tightest = max(self.tightest, needed / available if available else math.inf if needed else 0.0)
        if needed > available:
            self.infeasible.append((row, (count, needed, available)))


def _pair(
    result: ScanResult, transcripts: Sequence[Text], row: int, count: int, needed: int, available: int
) -> InfeasiblePair:
    clip, text = result.clips[row], transcripts[row]
    label_text = text if isinstance(text, str) else json.dumps(list(text or ()))
    return InfeasiblePair(row, clip.path, clip.duration_s or 0.0, count, needed, available, label_text)


def _labelled(texts: Iterator[Any], tokenizer: object) -> Iterator[Sequence[Any]]:
    """The labels of each text; lists of numbers are labels already."""
    tokenize = _tokenizing(tokenizer)
    while batch := list(islice(texts, _BATCH)):
        if tokenize is None or not isinstance(batch[0], str):
            yield from batch
        else:
            yield from tokenize(batch)


def _tokenizing(tokenizer: Any) -> Callable[[list[str]], Iterable[Sequence[Any]]] | None:
    if tokenizer is None:
        return None
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    if not callable(tokenizer):
        raise InvalidArgumentError(
            f"{kind_of(tokenizer)} as tokenizer cannot be called", "pass a function from a text to its labels"
        )
    if hasattr(tokenizer, "batch_decode"):  # transformers' own take many texts at once
        return lambda batch: tokenizer(batch).input_ids
    return lambda batch: map(_sequence, map(tokenizer, batch))


def _sequence(labels: object) -> Sequence[Any]:
    """The labels that a tokenizing function returned, alone or in an encoding."""
    for name in ("input_ids", "ids"):
        if isinstance(labels, dict) and name in labels:
            labels = labels[name]
        elif hasattr(labels, name):
            labels = getattr(labels, name)
    nested = hasattr(labels, "__iter__") and any(isinstance(label, list | tuple) for label in labels)
    if not hasattr(labels, "__iter__") or nested:
        returned = "a list of lists" if nested else kind_of(labels)
        raise InvalidArgumentError(f"the tokenizer returns {returned} for a text", "it must return a text's labels")
    return labels if isinstance(labels, str | list | tuple | array) else list(labels)
