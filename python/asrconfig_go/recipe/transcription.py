"""Transcripts of a model, and their error rates."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from .._core.modules import bare, ends_with_frames, speech_kind
from .._core.output import ProgressBar
from ..audio.processor_batches import (
    asked_language,
    make_collator as make_collator,  # a public name of this package
)
from ..data.label_rules import IGNORED
from ..data.source import open_source

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import Tensor
    from transformers import EvalPrediction, PreTrainedModel, ProcessorMixin


_FRAMES = ("_get_feat_extract_output_lengths", "_get_subsampling_output_length")


def generates(model: PreTrainedModel) -> bool:
    """Whether transcripts come from ``generate``, and not from the logits of a forward pass."""
    return speech_kind(bare(model).config) != "ctc"


def generated(model: PreTrainedModel, inputs: dict[str, Tensor], limit: int | None) -> Tensor:
    """The tokens behind the prompts of ``inputs``, at most ``limit`` (None: the model's own limit).

    Transducers stop with the clip, and take no limit.
    """
    prompt = next((inputs[name] for name in ("input_ids", "decoder_input_ids") if name in inputs), None)
    start = 0 if prompt is None else prompt.shape[1]
    limits = {} if limit is None or ends_with_frames(bare(model).config) else {"max_length": start + limit}
    with warnings.catch_warnings():
        # A transducer's own limit is of its frames; transformers recommends another anyway.
        warnings.filterwarnings("ignore", message="Using the model-agnostic default `max_length`")
        output = model.generate(**inputs, **limits)
    if getattr(output, "durations", None) is not None:
        return _within_clips(model, inputs, output)
    return getattr(output, "sequences", output)[:, start:]


def _within_clips(model: PreTrainedModel, inputs: dict[str, Tensor], output: Tensor) -> Tensor:
    """Drop a transducer's tokens behind the end of each clip: a batch runs until its longest clip ends."""
    tokens, starts = output.sequences, output.durations.cumsum(dim=1) - output.durations
    frames = frames_of(bare(model), inputs)
    if frames is not None:
        tokens[starts >= frames[:, None]] = IGNORED
    return tokens


def frames_of(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor | None:
    """How many frames the model makes of each clip, by its own function; None without a mask or such a function."""
    mask, name = inputs.get("attention_mask"), next((name for name in _FRAMES if hasattr(model, name)), None)
    return None if mask is None or name is None else getattr(model, name)(mask.sum(dim=-1))


def edit_distance(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> int:
    """Levenshtein distance: the fewest insertions, deletions and substitutions from one sequence to the other.

    A column of the table of distances is kept as the signs of its steps, in the bits of two whole numbers (Myers 1999,
    Hyyrö 2003): a clip's characters take microseconds each instead of a row of the table.
    """
    if not reference:
        return len(hypothesis)
    places: dict[Hashable, int] = {}
    for place, token in enumerate(reference):
        places[token] = places.get(token, 0) | 1 << place
    ones, last = (1 << len(reference)) - 1, 1 << (len(reference) - 1)
    up, down, distance = ones, 0, len(reference)
    for token in hypothesis:
        same = places.get(token, 0)
        diagonal = (((same & up) + up) ^ up) | same | down
        plus, minus = down | ~(diagonal | up) & ones, up & diagonal
        distance += bool(plus & last) - bool(minus & last)
        plus, minus = plus << 1 | 1, minus << 1
        up = (minus | ~(diagonal | plus)) & ones
        down = plus & diagonal & ones
    return distance


def word_error_rate(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Word errors of all texts over the words of all references: 0.0 is perfect, more than 1.0 is possible.

    Raises ValueError when the two lists differ in length or the references hold no word.
    """
    return _rate(references, hypotheses, str.split, "word")


def character_error_rate(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Like ``word_error_rate``, for characters; single spaces between words count."""
    return _rate(references, hypotheses, lambda text: " ".join(text.split()), "character")


def _rate(
    references: Sequence[str], hypotheses: Sequence[str], units: Callable[[str], Sequence[Hashable]], unit: str
) -> float:
    count = sum(len(units(reference)) for reference in references)
    if count == 0:
        raise ValueError(f"{unit} error rate needs at least one reference {unit}")
    pairs = zip(references, hypotheses, strict=True)
    return sum(edit_distance(units(reference), units(hypothesis)) for reference, hypothesis in pairs) / count


_BATCH = 8  # clips transcribed at once


def word_error_rates(processor: ProcessorMixin) -> Callable[..., dict[str, float]]:
    """Make a ``compute_metrics`` function for a Trainer that returns word and character error rates.

    The function takes token ids, as the evaluation of ``make_trainer`` and generation return them, logits, and tuples
    of outputs that begin with either; with ``eval_do_concat_batches=False`` lists of them. What a Trainer pads with
    -100 is no token. Texts are compared as the labels spell them. With ``batch_eval_metrics=True`` the texts of each
    batch are kept until the last one, and no predictions.

    Args:
        processor: The processor whose tokenizer made the labels.

    Returns:
        A function from an ``EvalPrediction`` to ``{"wer": …, "cer": …}``, the errors as shares of the words and of the
        characters of all references.

    Example:
        >>> import numpy
        >>> from transformers import EvalPrediction
        >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
        >>> said, heard = (numpy.array([processor.tokenizer(text).input_ids]) for text in ("one two", "one net"))
        >>> word_error_rates(processor)(EvalPrediction(predictions=heard, label_ids=said))["wer"]
        0.5
    """

    references: list[str] = []
    hypotheses: list[str] = []

    def rates(prediction: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        in_batches = isinstance(prediction.label_ids, list)  # eval_do_concat_batches=False
        references.extend(texts_of(processor, _token_rows(prediction.label_ids, in_batches), merged=False))
        hypotheses.extend(texts_of(processor, _token_rows(prediction.predictions, in_batches)))
        if not compute_result:
            return {}
        try:
            return {"wer": word_error_rate(references, hypotheses), "cer": character_error_rate(references, hypotheses)}
        finally:
            references.clear()
            hypotheses.clear()

    return rates


def _token_rows(outputs: Any, in_batches: bool) -> Iterator[Any]:
    """The token ids of each clip in the predictions or labels of an evaluation."""
    if in_batches:
        for batch in outputs:
            yield from _token_rows(batch, False)
        return
    outputs = outputs[0] if isinstance(outputs, tuple | list) else outputs
    if outputs.ndim != 3:
        yield from outputs.tolist()
        return
    for logits in outputs:  # frames of which even the largest is what pads are of no clip
        tokens = logits.argmax(-1).tolist()
        largest = logits.max(-1)
        padded = (getattr(largest, "values", largest) == IGNORED).tolist()
        yield [IGNORED if pad else token for token, pad in zip(tokens, padded, strict=True)]


def texts_of(processor: ProcessorMixin, rows: Iterable[Any], *, merged: bool = True) -> list[str]:
    """The texts of rows of token ids; -100 is padding. ``merged``: of CTC, a repeated token counts once.

    A text ends with its first end token, where there is one: the likeliest tokens of logits go on behind it.
    """
    tokenizer = processor.tokenizer
    if getattr(tokenizer, "word_delimiter_token", None) is None:
        return _decoded(processor, rows, merged)
    dropped = {tokenizer.pad_token_id, IGNORED} | set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    letters = {number: token for token, number in tokenizer.get_vocab().items() if number not in dropped}
    letters[tokenizer.word_delimiter_token_id] = " "
    texts = []
    for row in rows:
        tokens = [int(token) for token in row]
        tokens = [token for token, _ in groupby(tokens)] if merged else tokens
        texts.append(" ".join("".join(letters.get(token, "") for token in tokens).split()))
    return texts


def _decoded(processor: ProcessorMixin, rows: Iterable[Any], merged: bool) -> list[str]:
    """Decode by the processor's own functions; its tokenizer may merge repeated tokens by default."""
    tokenizer = processor.tokenizer
    end = getattr(tokenizer, "eos_token_id", None)
    ids = [list(takewhile(lambda token: token != end, (int(t) for t in row if t != IGNORED))) for row in rows]
    merges = "group_tokens" in inspect.signature(tokenizer._decode).parameters
    part, options = (processor, {}) if merged or not merges else (tokenizer, {"group_tokens": False})
    texts = [str(text) for text in part.batch_decode(ids, skip_special_tokens=True, **options)]
    extract = getattr(processor, "extract_transcription", None)  # drops other output, such as the language
    return [text.strip() for text in (texts if extract is None else extract(texts))]


def best_tokens(model: PreTrainedModel, inputs: dict[str, Tensor], logits: Tensor) -> Tensor:
    """The most likely token of each frame (clips, frames), -100 for frames that come from padding alone."""
    tokens = logits.argmax(dim=-1)
    frames = frames_of(model, inputs)
    if frames is not None:
        places = frames.new_tensor(range(tokens.shape[1]))
        tokens[places[None, :] >= frames[:, None]] = IGNORED
    return tokens


def transcribe(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    dataset: Dataset,
    *,
    n: int | None = None,
    batch_size: int = _BATCH,
    max_length: int | None = None,
    progress: bool = False,
    language: str | None = None,
) -> list[str]:
    """Transcribe clips by the most likely token each time (greedy decoding).

    The model stays in the mode, training or evaluation, in which it was.

    Args:
        model: The model, on any device.
        processor: Its processor.
        dataset: Rows with ``audio``, in any form that ``load_audio`` accepts.
        n: How many rows, from the first one on; None for all.
        batch_size: The clips of a batch.
        max_length: The most tokens of a transcript, for models that generate; None for the model's own limit.
        progress: Whether to show a progress bar.
        language: The language that a prompt asks for; models without a prompt ignore it.

    Returns:
        The transcripts in the order of the rows.

    Example:
        >>> data = load_speech("demo", progress=False)
        >>> processor = build_processor(data.train["text"], "tiny-wav2vec2")
        >>> model = load_model("tiny-wav2vec2", processor)
        >>> len(transcribe(model, processor, data.evaluation, n=2))
        2
    """
    dataset = open_source(dataset).undecoded()
    collator = make_collator(processor, model, **asked_language(processor, language))
    rows = range(len(dataset) if n is None else min(n, len(dataset)))
    training, texts = model.training, list[str]()
    model.eval()
    try:
        with ProgressBar("Transcribing", "clip", len(rows), progress) as advance:
            for start in rows[::batch_size]:
                batch = [{"audio": dataset[row]["audio"]} for row in rows[start : start + batch_size]]
                texts += texts_of(processor, _tokens(model, collator(batch), max_length))
                advance(len(texts), len(rows))
    finally:
        model.train(training)
    return texts


def _tokens(model: PreTrainedModel, batch: dict[str, Tensor], max_length: int | None) -> Tensor:
    import torch

    floats = {"dtype": next(p.dtype for p in model.parameters() if p.is_floating_point())}  # weights may be in 16 bits
    inputs = {n: v.to(model.device, **(floats if v.is_floating_point() else {})) for n, v in batch.items()}
    with torch.no_grad():  # a Conformer keeps positions of its longest batch, and cannot train with inference tensors
        if generates(model):
            return generated(model, inputs, max_length).tolist()
        return best_tokens(model, inputs, model(**inputs).logits).tolist()
