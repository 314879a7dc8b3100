"""The collator that a processor and a model need, and the batches of a processor that writes prompts."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from .._core.checks import check_keywords
from .._core.modules import bare, ends_with_frames, speech_kind
from ..data.columns import audio_columns, find_column, text_columns, usual_columns
from ..data.label_rules import IGNORED
from ..data.source import open_source
from ..data.splits import splits_of
from ..errors import AsrConfigError, InvalidArgumentError, UnsupportedError
from ..trace.model import is_module
from .augmentation import Augmentation
from .collators import (
    CTCCollator,
    Seq2SeqCollator,
    check_prompts,
    extractor_of,
    padded_ids,
    prompted,
    rate_of,
    writes_prompts,
)
from .decoding import load_audio
from .features import clips_of

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, ProcessorMixin
    from typing_extensions import Unpack

    from ..trace.collated_batches import CollatedExamples

_DECODER = "decoder_input_ids"


class ProcessorNotUsedWarning(UserWarning):
    """The processor makes no batches of these rows: their shapes follow from the model alone."""


@dataclass(frozen=True)
class ProcessorRows:
    """Collates rows of a dataset: passes their columns ``audio`` and ``text`` to ``collate`` under these two names.

    ``text`` is None for rows without transcripts.
    """

    collate: Callable[[Sequence[dict[str, Any]]], Any]
    audio: str
    text: str | None

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return the batch of these rows, a dictionary of tensors."""
        names = {"audio": self.audio} | ({} if self.text is None else {"text": self.text})
        return self.collate([{name: row[column] for name, column in names.items()} for row in rows])


def processor_examples(dataset: object, processor: ProcessorMixin, model: object) -> CollatedExamples | None:
    """The rows of ``dataset``, and the collator by which ``processor`` makes batches of them for ``model``.

    ``dataset`` may be the path of a folder or a manifest with transcripts. None where there are no rows with audio,
    where ``model`` is no module, or where ``processor`` is a feature extractor alone, which makes no labels; and, with
    a ``ProcessorNotUsedWarning``, where no batch can be made of the first row.
    """
    if getattr(processor, "tokenizer", None) is None or not is_module(model):
        return None
    from ..trace.collated_batches import CollatedExamples

    try:
        source = open_source(dataset)
        if source.kind == "path" and Path(source.data).expanduser().exists():
            source = open_source(splits_of(source.data, None, None, {}, []))
        rows = source.train.undecoded()
        first = rows[0] if source.train.has_rows and source.train.length else None
        if not isinstance(first, Mapping) or not usual_columns(first, audio_columns()):
            return None
        text = next(iter(usual_columns(first, text_columns())), None)
        collate = ProcessorRows(make_collator(processor, model), find_column(list(first), "audio", None), text)
        collate([first])
    except Exception as error:  # processors, those of a user too, raise errors of any class
        reason = error.message if isinstance(error, AsrConfigError) else f"{type(error).__name__}: {error}"
        warnings.warn(
            f"{type(processor).__name__} makes no batch of the dataset's first row ({reason}): "
            "pass clips with transcripts, or collator=",
            ProcessorNotUsedWarning,
            stacklevel=3,
        )
        return None
    return CollatedExamples(rows, collate, model)


def with_transcripts(batch: dict[str, Any], transcripts: Sequence[list[int]], pad: int | None) -> dict[str, Any]:
    """``batch`` with each prompt continued by the tokens of its transcript, and labels for those alone.

    Padding moves to the end of the rows, where no position of the prompt or the transcript depends on it.
    """
    pad = pad or 0  # any token will do: the mask or the labels mark the padding
    if _DECODER in batch:
        return {**batch, **_decoder_batch(batch[_DECODER].tolist(), transcripts, pad)}
    prompts = _unpadded(batch["input_ids"], batch["attention_mask"])
    sequences = [[*prompt, *ids] for prompt, ids in zip(prompts, transcripts, strict=True)]
    labels = [[IGNORED] * len(prompt) + ids for prompt, ids in zip(prompts, transcripts, strict=True)]
    return {
        **batch,
        **_token_types(batch, transcripts),
        "input_ids": padded_ids(sequences, pad),
        "attention_mask": padded_ids([[1] * len(row) for row in sequences], 0),
        "labels": padded_ids(labels, IGNORED),
    }


def without_transcripts(batch: dict[str, Any], pad: int | None) -> dict[str, Any]:
    """What ``generate`` takes of a batch to train on: its prompts, without the transcripts that follow them.

    Prompts in ``input_ids`` are padded in front, where ``generate`` expects it. Of a decoder's input the columns stay
    that are prompt in every row.
    """
    labels = batch["labels"]
    prompt = {name: value for name, value in batch.items() if name != "labels"}
    if "input_ids" in batch:
        rows = _unpadded(batch["input_ids"], (labels == IGNORED) & batch["attention_mask"].bool())
        width = max(map(len, rows))
        prompt["input_ids"] = padded_ids([[pad or 0] * (width - len(row)) + row for row in rows], 0).to(labels.device)
        mask = padded_ids([[0] * (width - len(row)) + [1] * len(row) for row in rows], 0)
        prompt["attention_mask"] = mask.to(labels.device)
        return {name: value for name, value in prompt.items() if not name.endswith("token_type_ids")}
    if _DECODER in batch:
        start = int((labels == IGNORED).cumprod(dim=1).sum(dim=1).min()) + 1
        prompt[_DECODER] = batch[_DECODER][:, :start]
    return prompt


def _unpadded(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    """The rows of ``ids``, each without what ``mask`` leaves out."""
    return [row[here.bool()].tolist() for row, here in zip(ids, mask, strict=True)]


def _token_types(batch: dict[str, Any], transcripts: Sequence[list[int]]) -> dict[str, Any]:
    """The token types of a batch, continued by that of text, 0, for each token of a transcript."""
    types = {name: value for name, value in batch.items() if name.endswith("token_type_ids")}
    longer = {}
    for name, value in types.items():
        rows = zip(_unpadded(value, batch["attention_mask"]), transcripts, strict=True)
        longer[name] = padded_ids([[*row, *[0] * len(ids)] for row, ids in rows], 0)
    return longer


def _decoder_batch(prompts: Sequence[list[int]], transcripts: Sequence[list[int]], pad: int) -> dict[str, Any]:
    """Input and labels of a decoder, the labels one position ahead: models that get both do not shift them."""
    sequences = [[*prompt, *ids] for prompt, ids in zip(prompts, transcripts, strict=True)]
    labels = [[IGNORED] * (len(prompt) - 1) + ids for prompt, ids in zip(prompts, transcripts, strict=True)]
    return {_DECODER: padded_ids([row[:-1] for row in sequences], pad), "labels": padded_ids(labels, IGNORED)}


class CollatorSettings(TypedDict, total=False):
    """What every collator of a processor takes; ``pad_to_multiple_of`` only those that pad by themselves."""

    pad_to_multiple_of: int | None
    load: Callable[[Any], Any]
    augment: Sequence[Augmentation]
    language: str | None
    prompt: str | None


@dataclass(frozen=True)
class ProcessorCollator:
    """Collates rows by the processor's own call, for models whose input is more than audio: see ``make_collator``.

    A row has ``audio`` and ``text``; rows without ``text`` become the input of ``generate``. Transducers and CTC models
    get the labels that the processor makes of the texts. For others the processor writes the prompt: as a transcription
    request in ``language`` where it supports those, else by its chat template with ``prompt``. The transcript and the
    token ``end`` follow; labels are -100 over the prompt, the audio in it and the padding.

    Args:
        processor: The model's processor.
        takes: The names of the model's inputs; other entries of a batch are left out.
        end: The token that ends a transcript; None for models that end with their frames.
        load: Reads the ``audio`` of a row; its errors, and those of the processor, are raised as they are.
        augment: Augmentations of the audio, as for ``CTCCollator``.
        language: The language that a prompt asks for; None leaves it to the model.
        prompt: The instruction of a prompt; None for the processor's own or a usual one.

    Raises:
        InvalidArgumentError: A batch has rows without audio, or the processor needs a language.
        UnsupportedError: The processor lacks a package or writes no prompt.
    """

    processor: ProcessorMixin
    takes: frozenset[str]
    end: int | None = None
    load: Callable[[Any], Any] = load_audio
    augment: Sequence[Augmentation] = ()
    language: str | None = None
    prompt: str | None = None

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch of these rows, a dictionary of tensors."""
        clips = clips_of(rows, extractor_of(self.processor), self.load, self.augment)
        texts = [str(row["text"]) for row in rows] if "text" in rows[0] else None
        try:
            batch = self._labelled(clips, texts) if self.end is None else self._prompted(clips, texts)
        except ImportError as error:
            name = type(self.processor).__name__
            raise UnsupportedError(f"{name} cannot make a batch: {error}", "install what it names") from error
        return {name: value for name, value in batch.items() if name in self.takes}

    def _labelled(self, clips: list[Any], texts: list[str] | None) -> dict[str, Any]:
        options = {"sampling_rate": rate_of(self.processor), "return_tensors": "pt"}
        if texts is None:
            return dict(self.processor(clips, **options))
        return dict(self.processor(clips, text=texts, text_kwargs={"padding": True}, **options))

    def _prompted(self, clips: list[Any], texts: list[str] | None) -> dict[str, Any]:
        batch = prompted(self.processor, clips, self.language, self.prompt)
        if texts is None:
            return batch
        prompts = next(batch[name] for name in ("decoder_input_ids", "input_ids") if name in batch)
        if len(prompts) != len(texts):
            raise UnsupportedError(
                f"{type(self.processor).__name__} makes {len(prompts)} rows of {len(texts)} clips",
                "cut long clips with their texts (docs/long-clips.md)",
            )
        tokenizer = self.processor.tokenizer
        transcripts = [[*tokenizer(text, add_special_tokens=False).input_ids, self.end] for text in texts]
        return with_transcripts(batch, transcripts, tokenizer.pad_token_id)


def make_collator(processor: ProcessorMixin, model: PreTrainedModel, **options: Unpack[CollatorSettings]) -> Any:
    """Make the collator of rows with ``audio`` and ``text``, or ``labels``, that a model needs.

    It is a ``CTCCollator`` for CTC, unless the processor pads its own batches; a ``Seq2SeqCollator`` for an encoder and
    a decoder that starts from one token, such as Whisper; and otherwise a ``ProcessorCollator``, which has the
    processor itself make batches: for transducers, for audio LLMs, and for decoders with a prompt.

    Args:
        processor: The model's processor.
        model: The model, whatever it is wrapped in.
        **options: Options of the collator: ``load`` reads a clip, ``augment`` are augmentations, ``pad_to_multiple_of``
            is for collators that pad by themselves, and ``language`` and ``prompt`` are what prompts ask for.

    Returns:
        The collator, which maps a list of rows to a dictionary of tensors.

    Raises:
        InvalidArgumentError: The collator has no such option, or the model has no token that the decoder starts from.
        UnsupportedError: The processor cannot write a prompt with audio, or has no token that ends a transcript.

    Example:
        >>> from asrconfig_go.recipe import build_processor, load_model
        >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
        >>> collate = make_collator(processor, load_model("tiny-wav2vec2", processor))
        >>> type(collate).__name__, collate([{"audio": CLIPS / "test-000.mp3"}])["input_values"].shape
        ('CTCCollator', torch.Size([1, 9390]))
    """
    model = bare(model)
    config = model.config
    fixed: dict[str, Any] = {}
    kind: Any = ProcessorCollator
    if speech_kind(config) == "ctc" and hasattr(processor, "pad"):  # others pad their own batches
        kind = CTCCollator
    elif (
        getattr(config, "is_encoder_decoder", False) and not ends_with_frames(config) and not writes_prompts(processor)
    ):
        kind, fixed = Seq2SeqCollator, {"decoder_start_token_id": decoder_start(config)}
    else:
        if speech_kind(config) == "audio-llm":
            check_prompts(processor)
        fixed = {"takes": frozenset(inspect.signature(model.forward).parameters), "end": end_token(processor, model)}
    names = [name for name in inspect.signature(kind).parameters if name not in ("processor", *fixed)]
    keywords = {name: value for name, value in options.items() if value is not None or name in names}
    check_keywords(keywords, names, "make_collator")
    return kind(processor, **fixed, **keywords)


def asked_language(processor: ProcessorMixin, language: str | None) -> CollatorSettings:
    """The collator's option for the language that is spoken; empty where the processor writes no prompts."""
    return {} if language is None or not writes_prompts(processor) else {"language": language}


def end_token(processor: ProcessorMixin, model: PreTrainedModel) -> int | None:
    """The token that ends a transcript; None where none does: in CTC and transducers, which end with their frames."""
    tokenizer, model = getattr(processor, "tokenizer", None), bare(model)
    if ends_with_frames(model.config):
        return None
    of_model = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    model_ends = [of_model] if isinstance(of_model, int) else list(of_model or ())
    tokenizer_end = getattr(tokenizer, "eos_token_id", None)
    end = tokenizer_end if tokenizer_end in model_ends or not model_ends else model_ends[0]
    if end is None:
        raise UnsupportedError(
            f"{type(processor).__name__} has no token that ends a transcript", "set processor.tokenizer.eos_token"
        )
    return int(end)


def decoder_start(config: PretrainedConfig) -> int:
    """The token that the decoder starts from."""
    starts = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id"))
    start = next((token for token in starts if token is not None), None)
    if start is None:
        raise InvalidArgumentError(
            f"{type(config).__name__} has no token that the decoder starts from",
            "set model.config.decoder_start_token_id, such as to processor.tokenizer.bos_token_id",
        )
    return int(start)
