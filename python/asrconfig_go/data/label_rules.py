"""The rules for a model's labels, asked of the model itself and of its tokenizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from .._base.errors import AsrConfigError
from .._base.wrapped_model import bare
from .label_limits import Limits, limits_of

Kind = Literal["ctc", "decoder", "classes", ""]
_CLASSIFIERS = ("ForSequenceClassification", "ForAudioClassification", "ForXVector")
_SHIFTED_BY = ("pad_token_id", "decoder_start_token_id")  # labels, to be a decoder's input


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


def rules_of(model: Any, tokenizer: Any = None) -> LabelRules:
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


def _kind(model: Any, config: Any) -> Kind:
    names = [kind.__name__ for kind in type(model).__mro__]
    if any(name.endswith("ForCTC") for name in names):
        return "ctc"
    if any(name.endswith(_CLASSIFIERS) for name in names):
        classes = getattr(config, "num_labels", 0)
        one_each = getattr(config, "problem_type", None) in (None, "single_label_classification")
        return "classes" if one_each and classes > 1 else ""
    return "decoder" if getattr(config, "is_encoder_decoder", False) else ""


def _vocabulary(model: Any, config: Any, kind: Kind) -> int | None:
    """The smaller of the sizes in the config and of the head itself."""
    if kind == "classes":
        return _integer(config.num_labels)
    text = getattr(config, "decoder", None) if kind == "decoder" else None
    head = getattr(model, "lm_head", None)
    if head is None and callable(getattr(model, "get_output_embeddings", None)):
        head = model.get_output_embeddings()
    sizes = [getattr(text or config, "vocab_size", None), getattr(head, "out_features", None)]
    return min((size for size in map(_integer, sizes) if size), default=None)


def _beyond(tokenizer: Any, vocabulary: int | None, kind: Kind) -> Iterator[str]:
    """Tokens without a label in the model; of CTC without special tokens that no text has, such as ``</s>``."""
    if vocabulary is None or not hasattr(tokenizer, "get_vocab") or len(tokenizer) <= vocabulary:
        return
    marks = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id} if kind == "ctc" else set()
    numbers = {number: token for token, number in tokenizer.get_vocab().items()}
    yield from (str(numbers[n]) for n in sorted(numbers) if n >= vocabulary and n not in marks)


def _padding_said(model: Any, tokenizer: Any) -> tuple[int, str] | None:
    parts = getattr(model, "generation_config", None), model.config
    pad = next((n for part in parts if (n := _integer(getattr(part, "pad_token_id", None))) is not None), None)
    if pad is None or not hasattr(tokenizer, "decode") or pad in (tokenizer.pad_token_id, *tokenizer.all_special_ids):
        return None
    text = str(tokenizer.decode([pad]))
    return (pad, text) if text else None


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
