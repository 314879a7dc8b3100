"""Labels for transcripts; drops clips whose labels do not fit the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .._base.defaults import SAMPLING_RATE
from ..data.label_limits import Limits, limits_of
from ..data.labels import repeats
from ..view.units import plural
from .model_building import is_whisper
from .speech_data import SpeechData, column, keep_rows, with_column

_AT_ONCE = 1000  # texts


def prepare(data: SpeechData, processor: Any, *, model: Any = None) -> SpeechData:
    """``data`` with the column ``labels``, the token ids of each transcript, and without what cannot be trained on.

    Left out and noted are clips without a transcript; pairs with more labels than the model makes frames of the clip
    (CTC), or than the decoder has positions; and for Whisper, which hears a fixed time at once, longer clips.
    ``model`` determines frames and positions: a model, its configuration or name, by default the usual one of its kind.
    Raises ``EmptyDatasetError`` when no clips are left to train on.

    >>> data = load_speech("demo", progress=False)
    >>> processor = build_processor(data.train["text"], "tiny-wav2vec2")
    >>> sorted(prepare(data, processor).train.column_names)
    ['audio', 'labels', 'length', 'text']
    """
    data = data.with_texts(str.strip)
    whisper = is_whisper(processor)
    spectrogram = "input_features" in processor.feature_extractor.model_input_names
    limits = limits_of(model or ("whisper" if whisper else "w2v-bert" if spectrogram else "wav2vec2"))
    longest = processor.feature_extractor.n_samples if whisper else None
    parts: list[Any] = []
    for part, where in ((data.train, ""), (data.evaluation, " to evaluate with")):
        parts.append(part)
        if part is not None:
            parts[-1], notes = _prepared(part, processor.tokenizer, limits, longest, where)
            data = data.noted(*notes)
    return data.of(*parts)


def _prepared(part: Any, tokenizer: Any, limits: Limits, longest: int | None, where: str) -> tuple[Any, list[str]]:
    labels, lengths = list(_labels(column(part, "text"), tokenizer)), column(part, "length")
    long = {row for row, length in enumerate(lengths) if longest is not None and length > longest}
    tight = {row for row, ids in enumerate(labels) if row not in long and not _fits(ids, lengths[row], limits)}
    notes = []
    if long and longest:
        seconds = longest / SAMPLING_RATE
        notes.append(f"{plural(len(long), 'clip')}{where} left out: longer than the {seconds:g} s that the model hears")
    if tight:
        room = "frames of their clips" if limits.positions is None else f"{limits.positions} positions of the decoder"
        notes.append(f"{plural(len(tight), 'clip')}{where} left out: transcripts of more labels than {room}")
    unknown = tokenizer.unk_token_id
    if limits.positions is None and any(unknown in ids for ids in labels):
        count = sum(unknown in ids for ids in labels)
        notes.append(f"{plural(count, 'transcript')}{where} with characters that the vocabulary does not have")
    kept = [row for row in range(len(labels)) if row not in long and row not in tight]
    return keep_rows(with_column(part, "labels", labels), kept), notes


def _labels(texts: Sequence[str], tokenizer: Any) -> Iterable[list[int]]:
    for start in range(0, len(texts), _AT_ONCE):
        yield from tokenizer(list(texts[start : start + _AT_ONCE])).input_ids


def _fits(labels: Sequence[int], length: int, limits: Limits) -> bool:
    needed = len(labels) + (repeats(labels) if limits.positions is None else 0)
    return needed <= limits.available(length / SAMPLING_RATE)
