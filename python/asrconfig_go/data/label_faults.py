"""Which rows of labels are not what a model's labels have to be, and what does not fit between model and tokenizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..view.units import plural
from .label_limits import IGNORED, Limits
from .label_rules import LabelRules

FaultName = Literal["missing", "outside", "negative", "blank", "padded", "empty", "too_long"]
_SHOWN = 60  # characters of a row's text in a finding


@dataclass(frozen=True)
class Mismatch:
    """What is wrong with labels or settings, what follows and what to do.

    ``certain``: no step would be as it is meant to be.
    """

    what: str
    remedy: str
    certain: bool = False

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


def faults(labels: Sequence[int] | None, seconds: float | None, rules: LabelRules) -> Iterator[tuple[FaultName, str]]:
    """What is wrong with one clip's labels, each with the numbers that show it."""
    if labels is None:
        yield "missing", "None"
        return
    own, ignores = spoken(labels, rules), rules.kind == "ctc" and not rules.skips_blank
    if (label := next((n for n in labels if n < 0 and n != IGNORED), 0)) and not ignores:
        yield "negative", f"label {label}"
    if rules.vocabulary is not None and (label := max(labels, default=0)) >= rules.vocabulary:
        yield "outside", f"label {label}"
    if rules.kind == "classes":
        return
    if padding := sum(label >= 0 for label in labels) - len(own):
        yield "padded", f"{plural(padding, 'label')} {rules.pad} at the end"
    if rules.blank is not None and rules.blank in own:
        yield "blank", f"label {rules.blank}"
        own = [label for label in own if label != rules.blank] if rules.skips_blank else own
    if not own:
        yield "empty", ""
    if rules.limits is not None and (unfit := too_long(labels, own, seconds, rules.limits)):
        yield "too_long", unfit


def spoken(labels: Sequence[int], rules: LabelRules) -> Sequence[int]:
    """Labels without negative ones, and without padding; the first of it may be what ends a text."""
    used = [label for label in labels if label >= 0]
    end = len(used)
    while end and rules.pad is not None and used[end - 1] == rules.pad:
        end -= 1
    return used[: end + 1] if rules.pad == rules.end else used[:end]


def too_long(labels: Sequence[int], own: Sequence[int], seconds: float | None, limits: Limits) -> str:
    """Why the labels of a clip, of which ``own`` are no padding, do not fit; "" where that is not so."""
    decoder = limits.positions is not None
    if not decoder and (seconds is None or math.isnan(seconds)):
        return ""
    needed, available = limits.needed(labels if decoder else own), limits.available(seconds or 0.0)
    if needed <= available:
        return ""
    return f"its labels need {needed} {'decoder positions' if decoder else 'frames'}, of which there are {available}"


class LabelTally:
    """Rows of labels that are not what a model's have to be: of each fault how many, the first, and what shows it."""

    def __init__(self, rules: LabelRules) -> None:
        self.rules, self.rows, self.faulty = rules, 0, 0
        self.counts: dict[FaultName, int] = {}
        self.first: dict[FaultName, tuple[int, str, Sequence[int]]] = {}
        self.complete = True
        """Whether all rows were looked at."""

    def add(self, row: int, labels: Sequence[int] | None, seconds: float | None = None) -> None:
        """Look at one row. ``rows`` is counted by the caller, who may leave out rows that are fine."""
        before = sum(self.counts.values())
        for name, detail in faults(labels, seconds, self.rules):
            self.counts[name] = self.counts.get(name, 0) + 1
            if row <= self.first.get(name, (row,))[0]:
                self.first[name] = row, detail, labels or ()
        self.faulty += sum(self.counts.values()) > before

    def findings(self, name_of: Callable[[int, Sequence[int]], str], where: str = "rows") -> list[Mismatch]:
        """In words. ``name_of`` returns a row's path and text from its number and labels; ``where`` names the rows."""
        return [self._finding(name, name_of, where) for name in self.counts]

    def _finding(self, name: FaultName, name_of: Callable[[int, Sequence[int]], str], where: str) -> Mismatch:
        count, rules = self.counts[name], self.rules
        row, detail, labels = self.first[name]
        clip = ", ".join(filter(None, (name_of(row, labels), detail)))
        many = f"{'' if self.complete else 'at least '}{count} of {self.rows} {where}"
        first = f"{'the first is ' if count > 1 else ''}row {row}{f' ({clip})' if clip else ''}"
        what, follows, remedy = _WORDS[name](rules, count > 1)
        # The blank is then the wrong one: texts are made of it.
        certain = name == "blank" and rules.pad not in (None, rules.blank)
        certain = certain or (name in ("outside", "negative") and count == self.rows)
        return Mismatch(f"{many} {what}: {first}. {follows}", remedy, certain)


_LEAVE = "leave such rows out"


def _missing(rules: LabelRules, many: bool) -> tuple[str, str, str]:
    return f"{_have(many)} None for labels", "No loss can be computed.", f"Give them labels, or {_LEAVE}."


def _empty(rules: LabelRules, many: bool) -> tuple[str, str, str]:
    follows = "The model raises an error" if rules.kind == "ctc" else "The loss is not a number"
    return f"{_have(many)} no label", f"{follows} in a batch of only such rows.", f"{_LEAVE.capitalize()}."


def _outside(rules: LabelRules, many: bool) -> tuple[str, str, str]:
    size = "" if rules.vocabulary is None else f", of which there are {rules.vocabulary} (0 to {rules.vocabulary - 1})"
    follows = "The model raises an error; on a GPU the process may be lost."
    same = rules.tokens is None or rules.vocabulary is None or rules.tokens <= rules.vocabulary
    other = "the classes" if rules.kind == "classes" else "the tokenizer"
    remedy = f"Make labels by {other} that the model is for, or {_LEAVE}." if same else _larger_head(rules)
    return f"{_have(many)} labels that the model does not have{size}", follows, remedy


def _negative(rules: LabelRules, many: bool) -> tuple[str, str, str]:
    what = f"{_have(many)} negative labels that are not {IGNORED}"
    follows = f"The loss ignores only {IGNORED}: it fails on others, or reads memory that is not its own."
    if rules.kind == "classes":
        return what, follows, f"Leave out rows whose class is not known, as datasets marks by -1, or set {IGNORED}."
    return what, follows, f"Pad labels with {IGNORED}."


def _blank(rules: LabelRules, many: bool) -> tuple[str, str, str]:
    what = f"{_have(many)} the label {rules.blank}, which is CTC's blank (config.pad_token_id = {rules.blank})"
    left_out = ": the loss leaves it out" if rules.skips_blank else ""
    follows = f"The blank stands for frames in which nothing is said, and cannot be learned as a label{left_out}."
    return what, follows, f"{_same_pad(rules)}; where it is padding, pad with {IGNORED}."


def _padded(rules: LabelRules, many: bool) -> tuple[str, str, str]:
    follows = f"Unless the collator puts {IGNORED} in their place, the model learns to say them."
    if rules.skips_blank and rules.pad == rules.blank:
        follows = "This version of transformers leaves them out of the loss; others count them as labels."
    what = f"{'end' if many else 'ends'} with the tokenizer's padding {rules.pad} instead of {IGNORED}"
    return what, follows, f"Store labels without padding (padding=False): the collator pads them with {IGNORED}."


def _too_long(rules: LabelRules, many: bool) -> tuple[str, str, str]:
    what = "have labels that do not fit" if many else "has labels that do not fit"
    follows = "CTC has no path: the loss is infinite."
    if rules.kind == "decoder":
        follows = "The model raises an error."
    elif rules.zero_infinity:
        follows = "CTC has no path: the loss counts zero (ctc_zero_infinity), and nothing is learned."
    return what, follows, f"Shorten or correct the texts, or {_LEAVE}."


_WORDS: dict[FaultName, Callable[[LabelRules, bool], tuple[str, str, str]]] = {
    "missing": _missing,
    "outside": _outside,
    "negative": _negative,
    "blank": _blank,
    "padded": _padded,
    "empty": _empty,
    "too_long": _too_long,
}
"""What rows with a fault do, what follows from it, and what to do."""


def _have(many: bool) -> str:
    return "have" if many else "has"


def _larger_head(rules: LabelRules) -> str:
    if rules.kind == "ctc":
        return (
            f"Load the model with vocab_size={rules.tokens}, the tokenizer's length, and ignore_mismatched_sizes=True."
        )
    return f"Call model.resize_token_embeddings({rules.tokens}), the tokenizer's length."


def _same_pad(rules: LabelRules) -> str:
    own = "processor.tokenizer.pad_token_id" if rules.pad is None else f"{rules.pad}, the tokenizer's pad_token_id"
    return f"Set model.config.pad_token_id = {own}"


def model_findings(rules: LabelRules) -> list[Mismatch]:
    """What does not fit between a model's config and the tokenizer, whatever the labels are."""
    found = [_of_blank(rules)] if rules.kind == "ctc" and rules.vocabulary is not None else []
    if rules.unset:
        names = " and ".join(f"config.{name}" for name in rules.unset)
        what = f"{names} {'is' if len(rules.unset) == 1 else 'are'} None: the model raises an error when it makes its"
        what += " decoder's input from labels, unless the collator gives decoder_input_ids."
        found.append(Mismatch(what, "Set them from the tokenizer before the training."))
    if rules.padding_said:
        number, text = rules.padding_said
        what = f"the model pads generated texts with pad_token_id = {number}, the tokenizer's {text!r}, whose"
        what += f" pad_token_id is {rules.pad}: shorter texts of a batch end with it, and error rates count it."
        remedy = f"Set pad_token_id = {rules.pad} in model.config and model.generation_config."
        found.append(Mismatch(what, remedy))
    if rules.beyond:
        named = ", ".join(map(repr, rules.beyond[:3])) + (" and others" if len(rules.beyond) > 3 else "")
        what = f"the tokenizer has {rules.tokens} tokens and the model {rules.vocabulary}: it cannot learn {named}."
        found.append(Mismatch(what, _larger_head(rules)))
    return [finding for finding in found if finding is not None]


def _of_blank(rules: LabelRules) -> Mismatch | None:
    entry = f"config.pad_token_id = {rules.blank}"
    if rules.blank is None or not 0 <= rules.blank < (rules.vocabulary or 0):
        what = f"{entry} is not among the {rules.vocabulary} labels of the model: CTC takes it as the blank, and fails."
        return Mismatch(what, f"{_same_pad(rules)}.", certain=True)
    if rules.pad in (None, rules.blank):
        return None
    what = (
        f"{entry} is CTC's blank, and the tokenizer's pad_token_id is {rules.pad}: the model learns {rules.blank} for"
    )
    return Mismatch(f"{what} frames in which nothing is said, which is decoded as a token.", f"{_same_pad(rules)}.")


def shown(path: str, text: str) -> str:
    """A row's path and text, shortened, for ``LabelTally.findings``."""
    path = path if len(path) <= _SHOWN else f"…{path[1 - _SHOWN :]}"
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return ", ".join(filter(None, (path, repr(text) if text else "")))
