"""Labels for transcripts; clips whose labels do not fit are dropped, clips that are too long are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.modules import bare, speech_kind
from .._core.render import plural
from .._core.requirements import OFFLINE, from_hub
from .._core.settings import SAMPLING_RATE
from ..audio.collators import text_ids
from ..audio.ctc_aligner import CTCAligner
from ..audio.cut_rules import CutSettings
from ..audio.long_clips import cut_long_clips, cut_settings
from ..data.label_rules import Limits, limits_of
from ..data.segments import SEGMENTS
from .model_building import is_whisper
from .speech_data import SpeechData, column, keep_rows, with_column

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

USUAL_S = 30.0  # of a piece for models that hear any length: attention over longer clips takes memory and time


def in_pieces(
    part: Dataset, settings: CutSettings, *, keep_whole: bool, where: str, progress: bool
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


def prepare(
    data: SpeechData,
    processor: ProcessorMixin,
    *,
    model: PreTrainedModel | None = None,
    align: CTCAligner | None = None,
    chunk_length_s: float | None = None,
    progress: bool = True,
) -> SpeechData:
    """Add labels to speech, cut its long clips, and leave out what cannot be trained on.

    Clips over the limit become pieces with their part of the transcript, where timestamps locate it or ``align`` finds
    it (docs/long-clips.md). Left out and noted are clips without a transcript; pairs with more labels than the model
    makes frames of the clip (CTC), or than the decoder has positions; and for Whisper, which hears a fixed time at
    once, longer clips that could not be cut.

    Args:
        data: The speech that ``load_speech`` returned, cleaned if the model needs it.
        processor: The model's processor, whose tokenizer makes the labels.
        model: What determines frames and positions: a model, its configuration or name; None for the usual one of the
            processor's kind.
        align: What finds the words of long clips without timestamps; None leaves them uncut.
        chunk_length_s: The longest clip in seconds; None for 30 s, or what Whisper's processor hears at once, which is
            also the most it may be for Whisper.
        progress: Whether to show progress bars.

    Returns:
        The data with the column ``labels``, the token ids of each transcript, and notes on what was cut and left out.

    Raises:
        EmptyDatasetError: No clips are left to train on.
        InvalidArgumentError: The frames of ``model`` cannot be determined.

    Example:
        >>> data = load_speech("demo", progress=False)
        >>> processor = build_processor(data.train["text"], "tiny-wav2vec2")
        >>> sorted(prepare(data, processor).train.column_names)
        ['audio', 'labels', 'length', 'text']
    """
    data = data.with_texts(str.strip)
    whisper = is_whisper(processor)
    limits = _limits(model, processor)
    heard_s = processor.feature_extractor.n_samples / SAMPLING_RATE if whisper else USUAL_S
    limit_s = heard_s if chunk_length_s is None else min(chunk_length_s, heard_s) if whisper else chunk_length_s
    settings = cut_settings(limit_s, align, processor, limits)
    parts: list[Any] = []
    for part, where in ((data.train, ""), (data.evaluation, " to evaluate with")):
        parts.append(part)
        if part is not None:
            cut, cut_notes = in_pieces(part, settings, keep_whole=not whisper, where=where, progress=progress)
            parts[-1], notes = _prepared(cut, processor.tokenizer, limits, where)
            data = data.noted(*cut_notes, *notes)
    return data.of(*parts)


def _limits(model: PreTrainedModel | None, processor: ProcessorMixin) -> Limits | None:
    """None for transducers, audio LLMs, and CTC models with their own vocabulary, which skip pairs that do not fit."""
    if model is None:
        spectrogram = "input_features" in processor.feature_extractor.model_input_names
        return limits_of("whisper" if is_whisper(processor) else "w2v-bert" if spectrogram else "wav2vec2")
    config = getattr(bare(model), "config", None)
    kind = None if config is None else speech_kind(config)
    characters = getattr(processor.tokenizer, "word_delimiter_token", None) is not None
    return limits_of(model) if characters or kind in (None, "seq2seq") else None


def _prepared(
    part: Dataset, tokenizer: PreTrainedTokenizerBase, limits: Limits | None, where: str
) -> tuple[Dataset, list[str]]:
    ended = getattr(tokenizer, "word_delimiter_token", None) is None
    labels, lengths = text_ids(column(part, "text"), tokenizer, ended=ended), column(part, "length")
    if limits is None:
        return with_column(part, "labels", labels), []
    pairs = enumerate(zip(labels, lengths, strict=True))
    tight = {row for row, (ids, n) in pairs if limits.needed(ids) > limits.available(n / SAMPLING_RATE)}
    notes = []
    if tight:
        room = "frames of their clips" if limits.positions is None else f"{limits.positions} positions of the decoder"
        notes.append(f"{plural(len(tight), 'clip')}{where} left out: transcripts of more labels than {room}")
    unknown = tokenizer.unk_token_id
    if limits.positions is None and any(unknown in ids for ids in labels):
        count = sum(unknown in ids for ids in labels)
        notes.append(f"{plural(count, 'transcript')}{where} with characters that the vocabulary does not have")
    fitting = [row for row in range(len(labels)) if row not in tight]
    return keep_rows(with_column(part, "labels", labels), fitting), notes
