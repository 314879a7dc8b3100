"""The rules for the labels of a model, by its loss, its vocabulary and its frames or positions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .._core.modules import bare
from .._core.settings import SAMPLING_RATE
from ..errors import AsrConfigError, InvalidArgumentError
from ..trace.model import Model

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

IGNORED = -100  # label value that the losses of transformers leave out
_HINT = "pass a model, its config, a known name, or a function from seconds to frames"
# Defaults that transformers' saved configurations omit, by model_type.
_CONV: dict[str, Any] = {"conv_kernel": (10, 3, 3, 3, 3, 2, 2), "conv_stride": (5, 2, 2, 2, 2, 2, 2)}
_DEFAULTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "data2vec-audio"), _CONV),
    "whisper": {"max_target_positions": 448},
    "speech_to_text": {"max_target_positions": 1024},
}
_FAMILIES = {"wav2vec2": "wav2vec2", "w2v-bert": "wav2vec2-bert", "whisper": "whisper"}
_CLASSIFIERS = ("ForSequenceClassification", "ForAudioClassification", "ForXVector")
_SHIFTED_BY = ("pad_token_id", "decoder_start_token_id")  # labels, to be a decoder's input


@dataclass(frozen=True)
class Limits:
    """The limit of the model ``name``: ``frames`` as a function of samples (CTC), or the ``positions`` of a decoder.

    Labels that begin with ``start`` lose it in the collator, as the decoder prepends it again.
    """

    name: str
    frames: Callable[[int], int] = lambda samples: 0
    positions: int | None = None
    start: int | None = None

    def available(self, seconds: float) -> int:
        """The frames or positions of a clip."""
        return max(0, self.frames(round(seconds * SAMPLING_RATE))) if self.positions is None else self.positions

    def needed(self, labels: Sequence[Any]) -> int:
        """The frames or positions that labels take: CTC needs one more between two equal ones."""
        if self.positions is None:
            return len(labels) + repeats(labels)
        return len(labels) - (len(labels) > 0 and self.start is not None and labels[0] == self.start)


def repeats(labels: Sequence[Any]) -> int:
    """How many labels are equal to the one before."""
    return sum(map(lambda a, b: bool(a == b), labels, labels[1:]))


def limits_of(model: object) -> Limits:
    """Read the limits from a name, a folder, a config, or a model; or take a function from seconds to frames."""
    if isinstance(model, str) and model.lower() in _FAMILIES:
        return _of_config({"model_type": _FAMILIES[model.lower()]}, model)
    recognised = Model.of(getattr(model, "config", model))
    if recognised.kind == "function":
        frames: Callable[[float], float] = recognised.passed
        return Limits("model", lambda samples: int(frames(samples / SAMPLING_RATE)))
    return _of_config(recognised.config_json, recognised.label)


def _of_config(config: dict[str, Any], name: str) -> Limits:
    config = {**_DEFAULTS.get(str(config.get("model_type")), {}), **config}
    decoder = config.get("decoder") or {}
    positions = config.get("max_target_positions") or decoder.get("max_position_embeddings")
    if not positions and config.get("is_encoder_decoder"):  # as in Moonshine and Canary: the decoder's own, at the top
        inner = config.get("decoder_config") or {}
        positions = inner.get("max_position_embeddings") or config.get("max_position_embeddings")
    if positions:
        return Limits(name, positions=int(positions), start=config.get("decoder_start_token_id"))
    if config.get("model_type") == "wav2vec2-bert":
        return Limits(name, lambda samples: _mel_frames(samples, config))
    if config.get("conv_kernel") and config.get("conv_stride"):
        return Limits(name, lambda samples: _conv_frames(samples, config))
    raise InvalidArgumentError(f"cannot determine how many frames {name} makes of a clip", _HINT)


def _conv_frames(samples: int, config: dict[str, Any]) -> int:
    """``_get_feat_extract_output_lengths`` of Wav2Vec2, HuBERT, WavLM and similar models."""
    for kernel, stride in zip(config["conv_kernel"], config["conv_stride"], strict=True):
        samples = (samples - kernel) // stride + 1
    if config.get("add_adapter"):
        for _ in range(config.get("num_adapter_layers", 3)):
            samples = (samples - 1) // config.get("adapter_stride", 2) + 1
    return samples


def _mel_frames(samples: int, config: dict[str, Any]) -> int:
    """SeamlessM4TFeatureExtractor: windows of 25 ms every 10 ms, two of them a frame; then Wav2Vec2Bert's adapter."""
    frames = (1 + (samples - 400) // 160) // 2
    if config.get("add_adapter"):
        kernel = config.get("adapter_kernel_size", 3)
        for _ in range(config.get("num_adapter_layers", 1)):
            frames = (frames + 2 * (kernel // 2) - kernel) // config.get("adapter_stride", 2) + 1
    return frames


Kind = Literal["ctc", "decoder", "classes", ""]


@dataclass(frozen=True)
class LabelRules:
    """The rules for a model's labels; None where they are not known.

    Attributes:
        kind: How its loss reads them; "" where that is not known, and only their number is checked.
        limits: The frames or positions that they have to fit in.
        vocabulary: Labels are 0 to one less.
        blank: CTC's label for "nothing is said".
        skips_blank: Whether the loss skips blanks among labels, as padding, and no negative ones but -100. In older
            versions of transformers it skips all negative ones, and no blanks.
        zero_infinity: Whether CTC counts a pair that does not fit as zero.
        pad: The tokenizer's padding.
        end: The tokenizer's end of a text.
        tokens: The size of the tokenizer.
        beyond: Its tokens that can be in a label and the model does not have.
        unset: Entries of the config that a decoder needs to read labels, and that are None.
        padding_said: The padding of generated texts where the tokenizer does not skip it: its number and text.
    """

    kind: Kind = ""
    limits: Limits | None = None
    vocabulary: int | None = None
    blank: int | None = None
    skips_blank: bool = False
    zero_infinity: bool = False
    pad: int | None = None
    end: int | None = None
    tokens: int | None = None
    beyond: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    padding_said: tuple[int, str] | None = None


def processor_of(trainer: object, needed: str) -> object:
    """The processor or tokenizer of a Trainer or its collator whose tokenizer has what is ``needed``, if there is one.

    A loop of one's own has none.
    """
    owners = (trainer, getattr(trainer, "data_collator", None))
    names = ("processing_class", "tokenizer", "processor")
    parts = (vars(owner).get(name) for owner in owners if hasattr(owner, "__dict__") for name in names)
    return next((part for part in parts if hasattr(getattr(part, "tokenizer", part), needed)), None)


def rules_of(model: object, tokenizer: object = None) -> LabelRules:
    """The rules of a live model with its head, and of its tokenizer, or a processor that has one.

    Of a name, a folder or a config only the frames or positions are known: it may be loaded with another head.
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    tokenizer = tokenizer if hasattr(tokenizer, "pad_token_id") else None
    inside, limits = bare(model), None
    with contextlib.suppress(AsrConfigError):  # another kind of model
        limits = limits_of(inside)
    config = getattr(inside, "config", None)
    if not callable(getattr(inside, "parameters", None)):
        return LabelRules(limits=limits)
    kind = _kind(inside, config)
    vocabulary = _vocabulary(inside, config, kind)
    if kind in ("", "classes"):
        return LabelRules(kind, None if kind else limits, vocabulary)
    # Newer versions of transformers have a function for CTC's loss, which takes blanks for padding.
    loss = getattr(getattr(inside, "loss_function", None), "__name__", "")
    return LabelRules(
        kind,
        limits,
        vocabulary,
        blank=_integer(getattr(config, "pad_token_id", None)) if kind == "ctc" else None,
        skips_blank=kind == "ctc" and loss == "ForCTCLoss",
        zero_infinity=bool(getattr(config, "ctc_zero_infinity", False)),
        pad=_integer(getattr(tokenizer, "pad_token_id", None)),
        end=_integer(getattr(tokenizer, "eos_token_id", None)),
        tokens=len(tokenizer) if hasattr(tokenizer, "__len__") else None,
        beyond=tuple(_beyond(tokenizer, vocabulary, kind)),
        padding_said=_padding_said(inside, tokenizer) if kind == "decoder" else None,
        unset=tuple(name for name in _SHIFTED_BY if kind == "decoder" and getattr(config, name, 0) is None),
    )


def _kind(model: object, config: object) -> Kind:
    names = [kind.__name__ for kind in type(model).__mro__]
    if any(name.endswith("ForCTC") for name in names):
        return "ctc"
    if any(name.endswith(_CLASSIFIERS) for name in names):
        classes = getattr(config, "num_labels", 0)
        one_each = getattr(config, "problem_type", None) in (None, "single_label_classification")
        return "classes" if one_each and classes > 1 else ""
    return "decoder" if getattr(config, "is_encoder_decoder", False) else ""


def _vocabulary(model: PreTrainedModel, config: PretrainedConfig, kind: Kind) -> int | None:
    """The smaller of the sizes in the config and of the head itself."""
    if kind == "classes":
        return _integer(config.num_labels)
    text = getattr(config, "decoder", None) if kind == "decoder" else None
    head = getattr(model, "lm_head", None)
    if head is None and callable(getattr(model, "get_output_embeddings", None)):
        head = model.get_output_embeddings()
    sizes = [getattr(text or config, "vocab_size", None), getattr(head, "out_features", None)]
    return min((size for size in map(_integer, sizes) if size), default=None)


def _beyond(tokenizer: PreTrainedTokenizerBase, vocabulary: int | None, kind: Kind) -> Iterator[str]:
    """Tokens without a label in the model; of CTC without special tokens that no text has, such as ``</s>``."""
    if vocabulary is None or not hasattr(tokenizer, "get_vocab") or len(tokenizer) <= vocabulary:
        return
    marks = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id} if kind == "ctc" else set()
    numbers = {number: token for token, number in tokenizer.get_vocab().items()}
    yield from (str(numbers[n]) for n in sorted(numbers) if n >= vocabulary and n not in marks)


def _padding_said(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, str] | None:
    parts = getattr(model, "generation_config", None), model.config
    pad = next((n for part in parts if (n := _integer(getattr(part, "pad_token_id", None))) is not None), None)
    if pad is None or not hasattr(tokenizer, "decode") or pad in (tokenizer.pad_token_id, *tokenizer.all_special_ids):
        return None
    text = str(tokenizer.decode([pad]))
    return (pad, text) if text else None


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
