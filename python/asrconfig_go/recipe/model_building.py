"""Models to fine-tune, with a head for the processor's vocabulary; quantized, small, or the demo's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.checks import check_seed
from .._core.modules import bare, class_for
from .._core.requirements import OFFLINE, from_hub, need
from ..errors import InvalidArgumentError, UnsupportedError
from ..trace.tiny_models import TINY, TINY_WAV2VEC2
from .processors import TINY_CTC, by_characters, config_of, family, tiny_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin, Wav2Vec2Config, Wav2Vec2ForCTC


# A new head must train. wav2vec2 writes in place to the output of its feature projection, which autograd refuses for
# bitsandbytes' layers on a GPU.
_WHOLE = ["lm_head", "proj_out", "feature_projection.projection"]


def check_bits(bits: int | None, adapters: bool, random: bool) -> None:
    """Raise ``InvalidArgumentError`` where such weights could not be trained, ``UnsupportedError`` without packages."""
    if bits is None:
        return
    if bits not in (4, 8):
        raise InvalidArgumentError(f"bits = {bits} is not 8 or 4", "leave bits (--bits) out for whole weights")
    if not adapters:
        hint = "train adapters beside them: lora_rank=16 (--lora 16)"
        raise InvalidArgumentError(f"weights of {bits} bits do not train", hint)
    if random:
        raise InvalidArgumentError("bits loads a checkpoint, and the tiny models have none", "leave bits (--bits) out")
    need(f"bits={bits}", "bitsandbytes")
    import torch

    if bits == 4 and not torch.cuda.is_available():
        raise UnsupportedError("bits=4 needs a GPU: bitsandbytes fails in training on a CPU", "use bits=8 (--bits 8)")


def quantized(bits: int | None) -> dict[str, Any]:
    """The arguments of ``from_pretrained`` for weights of ``bits``."""
    if bits is None:
        return {}
    import torch
    from transformers import BitsAndBytesConfig

    if bits == 8:
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=_WHOLE)}
    ampere = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8
    config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", llm_int8_skip_modules=_WHOLE,
        bnb_4bit_compute_dtype=torch.bfloat16 if ampere else torch.float16,  # as autocast computes
    )  # fmt: skip
    return {"quantization_config": config}


def small_config(tokens: int) -> Wav2Vec2Config:
    """Return the architecture: four strided convolutions (one frame each 20 ms), then three transformer layers."""
    from transformers import Wav2Vec2Config

    return Wav2Vec2Config(**TINY_WAV2VEC2 | {"vocab_size": tokens})


def small_model(tokens: int, seed: int) -> Wav2Vec2ForCTC:
    """Return the model with random weights that depend on `seed` alone; torch's own random state is left as it was."""
    import torch
    from transformers import Wav2Vec2ForCTC

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Wav2Vec2ForCTC(small_config(tokens))


def load_model(model: str, processor: ProcessorMixin, *, seed: int = 0, bits: int | None = None) -> PreTrainedModel:
    """Load a model, or build a tiny one, ready to be trained with ``processor``.

    Of a checkpoint for CTC (wav2vec2, wav2vec2-bert, HuBERT, WavLM and their like) the head has a row for each token of
    the processor, and is initialised again where the checkpoint's does not fit; the loss is a mean, impossible pairs
    count zero, and the convolutional feature encoder is frozen, as is usual. Transducers, encoders with a decoder,
    audio LLMs, and CTC models with a vocabulary of their own are used unchanged, Whisper with the processor's language.
    Weights are in float32, however a checkpoint stores them.

    Args:
        model: A folder or a name on the Hub; or ``"tiny-wav2vec2"``, ``"tiny-whisper"``, ``"tiny-moonshine"``,
            ``"tiny-parakeet-tdt"`` or ``"tiny-qwen3-asr"``, which are small, need no network, and have random weights.
        processor: The processor that ``build_processor`` made for this model.
        seed: Draws the weights of a tiny model or of a new head; they depend on it alone.
        bits: 8 or 4 has bitsandbytes load the weights of all layers but the head in as many bits, for ``add_lora``;
            None for float32.

    Returns:
        A model of transformers.

    Raises:
        NotFoundError: The model cannot be found or downloaded.
        UnsupportedError: The model does not recognise speech.
        InvalidArgumentError: The processor belongs to a model of another kind.

    Example:
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
        return small_model(len(processor.tokenizer), seed)
    if model in TINY:
        return tiny_model(model, processor, seed)
    return _ctc(model, processor, seed, bits) if characters else _own(model, processor, bits)


def is_whisper(thing: object) -> bool:
    """Whether a processor or a model is Whisper's."""
    return type(bare(thing)).__name__.startswith("Whisper")


def _ctc(model: str, processor: ProcessorMixin, seed: int, bits: int | None) -> PreTrainedModel:
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


def _own(model: str, processor: ProcessorMixin, bits: int | None) -> PreTrainedModel:
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
