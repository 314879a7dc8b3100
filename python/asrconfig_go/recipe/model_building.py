"""Models to fine-tune, with a head for the processor's vocabulary; and small ones with random weights."""

from __future__ import annotations

from typing import Any

from .._base.checks import check_seed
from .._base.errors import InvalidArgumentError
from .._base.hub_downloads import OFFLINE, from_hub
from .._base.speech_kinds import class_for
from .._base.wrapped_model import bare
from ..demo.tiny_models import TINY
from .model_kinds import TINY_CTC, by_characters, config_of, family
from .quantization import quantized
from .tiny_processors import tiny_model


def load_model(model: str, processor: Any, *, seed: int = 0, bits: int | None = None) -> Any:
    """The model called ``model``, ready to be trained with ``processor``.

    Of a checkpoint for CTC (a folder or a name on the Hub: wav2vec2, wav2vec2-bert, HuBERT, WavLM and their like) the
    head gets a row for each token, made again where the checkpoint's does not fit; the loss is a mean, impossible pairs
    count zero, and the convolutional feature encoder is frozen, as is usual. Transducers, encoders with a decoder,
    audio LLMs, and CTC models with a vocabulary of their own are used unchanged, Whisper with the processor's language.
    ``"tiny-wav2vec2"``, ``"tiny-whisper"``, ``"tiny-moonshine"``, ``"tiny-parakeet-tdt"`` and ``"tiny-qwen3-asr"`` are
    small, need no network, and have random weights that depend on ``seed`` alone. Weights are in float32, however a
    checkpoint stores them. ``bits``, 8 or 4, has bitsandbytes load those of all layers but the head, for ``add_lora``.

    Raises ``NotFoundError`` for what cannot be loaded, ``UnsupportedError`` for models of another kind, and
    ``InvalidArgumentError`` for a processor of the other kind.

    >>> processor = build_processor(["one two", "three"], "tiny-wav2vec2")
    >>> type(load_model("tiny-wav2vec2", processor)).__name__
    'Wav2Vec2ForCTC'
    """
    check_seed(seed)
    kind = family(model)
    characters = kind == "ctc" and by_characters(model)
    if characters != (getattr(processor.tokenizer, "word_delimiter_token", None) is not None):
        raise InvalidArgumentError(
            f"{type(processor).__name__} does not belong to {model!r}",
            f"build_processor(texts, {model!r}) makes its own",
        )
    if model == TINY_CTC:
        from ..demo.digit_model import small_model

        return small_model(len(processor.tokenizer), seed)
    if model in TINY:
        return tiny_model(model, processor, seed)
    return _ctc(model, processor, seed, bits) if characters else _own(model, processor, bits)


def is_whisper(thing: Any) -> bool:
    """Whether a processor or a model is Whisper's."""
    return type(bare(thing)).__name__.startswith("Whisper")


def _ctc(model: str, processor: Any, seed: int, bits: int | None) -> Any:
    import torch
    from transformers import AutoModelForCTC

    def load() -> Any:
        with torch.random.fork_rng(devices=[]):  # of a new head
            torch.manual_seed(seed)
            return AutoModelForCTC.from_pretrained(
                model,
                vocab_size=len(processor.tokenizer),
                pad_token_id=processor.tokenizer.pad_token_id,
                ctc_loss_reduction="mean",  # the default, "sum", makes the gradient grow with the batch
                ctc_zero_infinity=True,
                ignore_mismatched_sizes=True,
                **quantized(bits),
            )

    loaded = from_hub("the model", model, load, OFFLINE)
    loaded = loaded if bits else loaded.float()  # of a checkpoint in 16 bits: they are for inference
    freeze = getattr(loaded, "freeze_feature_encoder", None)
    if freeze is not None:
        freeze()
    return loaded


def _own(model: str, processor: Any, bits: int | None) -> Any:
    import transformers

    kind = getattr(transformers, class_for(config_of(model)))
    loaded = from_hub("the model", model, lambda: kind.from_pretrained(model, **quantized(bits)), OFFLINE)
    loaded = loaded if bits else loaded.float()
    if is_whisper(loaded):
        generation = loaded.generation_config
        if getattr(generation, "is_multilingual", False):
            generation.language, generation.task = processor.tokenizer.language, "transcribe"
        generation.forced_decoder_ids = None  # as older checkpoints have it, in place of language and task
    return loaded
