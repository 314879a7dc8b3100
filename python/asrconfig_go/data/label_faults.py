"""Rows of labels that are not what a model's labels have to be.

In Arrow columns numpy selects the rows that may be faulty, and only those are checked one by one: a million rows take
seconds.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .._core.output import shortened
from .._core.render import plural
from .._core.settings import SAMPLING_RATE
from .label_rules import IGNORED, LabelRules, Limits
from .source import open_source
from .table_sources import stored_column

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from datasets import Dataset

    Array = np.ndarray[Any, Any]

FaultName = Literal["missing", "outside", "negative", "blank", "padded", "empty", "too_long", "too_short"]
_SHOWN = 60  # characters of a row's text in a finding
_AT_ONCE = 10_000  # rows
_ENOUGH = 10_000  # faulty rows, after which the others are not checked


@dataclass(frozen=True)
class Mismatch:
    """What is wrong with labels or settings, what follows and what to do. ``certain``: every step is affected."""

    what: str
    remedy: str
    certain: bool = False

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


def faults(labels: Sequence[int] | None, seconds: float | None, rules: LabelRules) -> Iterator[tuple[FaultName, str]]:
    """The faults of one clip's labels, each with the numbers that show it."""
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
        yield "too_long" if rules.limits.available(seconds or 0.0) else "too_short", unfit


def spoken(labels: Sequence[int], rules: LabelRules) -> Sequence[int]:
    """Labels without negative ones and padding, whose first may be the end of the text."""
    used = [label for label in labels if label >= 0]
    end = len(used)
    while end and rules.pad is not None and used[end - 1] == rules.pad:
        end -= 1
    return used[: end + 1] if rules.pad == rules.end else used[:end]


def too_long(labels: Sequence[int], own: Sequence[int], seconds: float | None, limits: Limits) -> str:
    """Why the labels of a clip, of which ``own`` are no padding, do not fit; "" if they fit."""
    decoder = limits.positions is not None
    if not decoder and (seconds is None or math.isnan(seconds)):
        return ""
    needed, available = limits.needed(labels if decoder else own), limits.available(seconds or 0.0)
    if needed <= available:
        return ""
    return f"its labels need {needed} {'decoder positions' if decoder else 'frames'}, of which there are {available}"


class LabelTally:
    """Counts the faults of rows of labels, and keeps the first row of each with the numbers that show it."""

    def __init__(self, rules: LabelRules) -> None:
        self.rules, self.rows, self.faulty = rules, 0, 0
        self.counts: dict[FaultName, int] = {}
        self.first: dict[FaultName, tuple[int, str, Sequence[int]]] = {}
        self.complete = True
        """Whether all rows were looked at."""

    def add(self, row: int, labels: Sequence[int] | None, seconds: float | None = None) -> None:
        """Check one row. ``rows`` is counted by the caller, who may leave out rows without faults."""
        before = sum(self.counts.values())
        for name, detail in faults(labels, seconds, self.rules):
            self.counts[name] = self.counts.get(name, 0) + 1
            if row <= self.first.get(name, (row,))[0]:
                self.first[name] = row, detail, labels or ()
        self.faulty += sum(self.counts.values()) > before

    def findings(self, name_of: Callable[[int, Sequence[int]], str], where: str = "rows") -> list[Mismatch]:
        """The faults in words. ``name_of`` returns a row's path and text; ``where`` is the noun for rows."""
        return [self._finding(name, name_of, where) for name in self.counts]

    def _finding(self, name: FaultName, name_of: Callable[[int, Sequence[int]], str], where: str) -> Mismatch:
        count, rules = self.counts[name], self.rules
        row, detail, labels = self.first[name]
        clip = ", ".join(filter(None, (name_of(row, labels), detail)))
        many = f"{'' if self.complete else 'at least '}{count} of {self.rows} {where}"
        first = f"{'the first is ' if count > 1 else ''}row {row}{f' ({clip})' if clip else ''}"
        problem, follows, remedy = _words(name, rules, count > 1)
        # The blank is then the wrong one: texts are made of it.
        certain = name == "blank" and rules.pad not in (None, rules.blank)
        certain = certain or (name in ("outside", "negative") and count == self.rows)
        return Mismatch(f"{many} {problem}: {first}. {follows}", remedy, certain)


def _words(fault: FaultName, rules: LabelRules, many: bool) -> tuple[str, str, str]:
    """What is wrong with rows with a fault, what follows from it, and what to do."""
    have, leave = "have" if many else "has", "leave such rows out"
    match fault:
        case "missing":
            return f"{have} None for labels", "No loss can be computed.", f"Give them labels, or {leave}."
        case "empty":
            follows = "The model raises an error" if rules.kind == "ctc" else "The loss is not a number"
            return f"{have} no label", f"{follows} in a batch of only such rows.", f"{leave.capitalize()}."
        case "outside":
            size = rules.vocabulary
            of_all = "" if size is None else f", of which there are {size} (0 to {size - 1})"
            other = "the classes" if rules.kind == "classes" else "the tokenizer"
            remedy = f"Make labels by {other} that the model is for, or {leave}."
            if rules.tokens is not None and size is not None and rules.tokens > size:
                remedy = _larger_head(rules)
            follows = "The model raises an error; on a GPU the process may be lost."
            return f"{have} labels that the model does not have{of_all}", follows, remedy
        case "negative":
            follows = f"The loss ignores only {IGNORED}: it fails on others, or reads memory that is not its own."
            remedy = f"Pad labels with {IGNORED}."
            if rules.kind == "classes":
                remedy = f"Leave out rows whose class is not known, as datasets marks by -1, or set {IGNORED}."
            return f"{have} negative labels that are not {IGNORED}", follows, remedy
        case "blank":
            problem = f"{have} the label {rules.blank}, which is CTC's blank (config.pad_token_id = {rules.blank})"
            left_out = ": the loss leaves it out" if rules.skips_blank else ""
            follows = (
                f"The blank stands for frames in which nothing is said, and cannot be learned as a label{left_out}."
            )
            return problem, follows, f"{_same_pad(rules)}; where it is padding, pad with {IGNORED}."
        case "padded":
            follows = f"Unless the collator puts {IGNORED} in their place, the model learns to say them."
            if rules.skips_blank and rules.pad == rules.blank:
                follows = "This version of transformers leaves them out of the loss; others count them as labels."
            remedy = f"Store labels without padding (padding=False): the collator pads them with {IGNORED}."
            problem = f"{'end' if many else 'ends'} with the tokenizer's padding {rules.pad} instead of {IGNORED}"
            return problem, follows, remedy
        case "too_short":
            follows = "The model raises an error in a batch of only such clips, and of the shortest in any batch."
            return f"{have} {'clips' if many else 'a clip'} too short for one frame", follows, f"{leave.capitalize()}."
        case "too_long":
            follows = "CTC has no path: the loss is infinite."
            if rules.kind == "decoder":
                follows = "The model raises an error."
            elif rules.zero_infinity:
                follows = "CTC has no path: the loss counts zero (ctc_zero_infinity), and nothing is learned."
            return f"{have} labels that do not fit", follows, f"Shorten or correct the texts, or {leave}."


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
    """The mismatches between a model's config and the tokenizer, whatever the labels are."""
    findings = [_of_blank(rules)] if rules.kind == "ctc" and rules.vocabulary is not None else []
    if rules.unset:
        names = " and ".join(f"config.{name}" for name in rules.unset)
        problem = f"{names} {'is' if len(rules.unset) == 1 else 'are'} None: the model raises an error when it makes"
        problem += " its decoder's input from labels, unless the collator gives decoder_input_ids."
        findings.append(Mismatch(problem, "Set them from the tokenizer before the training."))
    if rules.padding_said:
        number, text = rules.padding_said
        problem = f"the model pads generated texts with pad_token_id = {number}, the tokenizer's {text!r}, whose"
        problem += f" pad_token_id is {rules.pad}: shorter texts of a batch end with it, and error rates count it."
        remedy = f"Set pad_token_id = {rules.pad} in model.config and model.generation_config."
        findings.append(Mismatch(problem, remedy))
    if rules.beyond:
        named = ", ".join(map(repr, rules.beyond[:3])) + (" and others" if len(rules.beyond) > 3 else "")
        problem = f"the tokenizer has {rules.tokens} tokens and the model {rules.vocabulary}: it cannot learn {named}."
        findings.append(Mismatch(problem, _larger_head(rules)))
    return [finding for finding in findings if finding is not None]


def _of_blank(rules: LabelRules) -> Mismatch | None:
    entry = f"config.pad_token_id = {rules.blank}"
    if rules.blank is None or not 0 <= rules.blank < (rules.vocabulary or 0):
        problem = f"{entry} is not among the {rules.vocabulary} labels of the model: CTC takes it as the blank,"
        problem += " and fails."
        return Mismatch(problem, f"{_same_pad(rules)}.", certain=True)
    if rules.pad in (None, rules.blank):
        return None
    problem = f"{entry} is CTC's blank, and the tokenizer's pad_token_id is {rules.pad}: the model learns {rules.blank}"
    problem += " for frames in which nothing is said, which is decoded as a token."
    return Mismatch(problem, f"{_same_pad(rules)}.")


def shown(path: str, text: str) -> str:
    """A row's path and text, shortened, for ``LabelTally.findings``."""
    path = path if len(path) <= _SHOWN else f"…{path[1 - _SHOWN :]}"
    return ", ".join(filter(None, (path, repr(shortened(text, _SHOWN)) if text else "")))


def label_column(dataset: object, names: Sequence[str]) -> str | None:
    """The first of ``names`` that ``dataset`` stores; None where labels are made when a row is read, and of streams."""
    source = open_source(dataset)
    if source.kind not in ("dataset", "list"):
        return None
    if source.kind == "dataset" and source.data.format["type"] == "custom":  # set_transform, which may change labels
        return None
    return next((name for name in names if name in source.columns), None)


def tally_labels(
    dataset: Dataset | Sequence[Mapping[str, object]],
    name: str,
    rules: LabelRules,
    seconds: Sequence[float] | None = None,
) -> LabelTally | None:
    """Check the column ``name``; ``seconds`` are the clips' durations, if known. None for labels of another kind."""
    tally, checked = LabelTally(rules), 0
    for column, rows in _columns(dataset, name):
        if not _has_labels(column.type, rules):
            return None
        durations = None if seconds is None else [seconds[row] if row >= 0 else math.nan for row in rows.tolist()]
        for place, labels in _suspects(column, durations, rules):
            if (row := int(rows[place])) >= 0:
                tally.add(row, labels, None if durations is None else durations[place])
        checked += int((rows >= 0).sum())
        if tally.faulty >= _ENOUGH:
            tally.complete = checked >= len(dataset)
            break
    tally.rows = len(dataset)
    return tally


def _columns(dataset: Dataset | Sequence[Mapping[str, object]], name: str) -> Iterator[tuple[pa.Array, Array]]:
    """The column in parts, as Arrow arrays, and their rows of the dataset, -1 for none.

    Yields nothing for rows that Arrow has no type for.
    """
    import numpy as np
    import pyarrow as pa

    if open_source(dataset).kind == "list":
        with contextlib.suppress(pa.ArrowException, AttributeError):  # rows of several types
            labels = (row.get(name) for row in dataset)
            plain = [value.tolist() if hasattr(value, "tolist") else value for value in labels]
            yield pa.array(plain), np.arange(len(dataset))
        return
    column, indices = stored_column(dataset, name)
    rows = np.arange(len(column))
    if indices is not None:  # rows are read in their stored order, which takes a tenth of the time
        numbers = indices.to_numpy()
        rows = np.full(len(column), -1)
        rows[numbers[::-1]] = np.arange(len(numbers))[::-1]  # of a row that is taken twice the first
    start = 0
    for chunk in column.chunks:
        for part in (chunk[at : at + _AT_ONCE] for at in range(0, len(chunk), _AT_ONCE)):
            own, start = rows[start : start + len(part)], start + len(part)
            if (own >= 0).any():
                yield part.storage if isinstance(part, pa.ExtensionArray) else part, own


def _has_labels(kind: pa.DataType, rules: LabelRules) -> bool:
    """Whether these are a number for each row of a classifier, or else lists of numbers."""
    from pyarrow import types

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if rules.kind == "classes":
        return bool(types.is_integer(kind))
    return lists and bool(types.is_integer(kind.value_type) or types.is_null(kind.value_type))


def _suspects(
    column: pa.Array, seconds: Sequence[float] | None, rules: LabelRules
) -> Iterator[tuple[int, Sequence[int] | None]]:
    """The rows that may have a fault, with their labels."""
    import numpy as np
    import pyarrow.compute as pc

    if rules.kind == "classes":
        values, lengths = column.drop_null(), pc.if_else(pc.is_valid(column), 1, -1)
    else:
        values, lengths = pc.list_flatten(column), pc.fill_null(pc.list_value_length(column), -1)
    ids = pc.fill_null(values, IGNORED).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(np.maximum(sizes, 0))
    starts = ends - np.maximum(sizes, 0)

    def count(wanted: Array) -> Array:
        until = np.concatenate([[0], np.cumsum(wanted)])
        within: Array = until[ends] - until[starts]
        return within

    odd = (ids < 0) & (ids != IGNORED)
    if rules.vocabulary is not None:
        odd |= ids >= rules.vocabulary
    if rules.blank is not None:
        odd |= ids == rules.blank
    suspect = (sizes < 0) | (count(odd) > 0) | (count(ids >= 0) == 0)
    if rules.pad is not None:
        suspect |= count(ids == rules.pad) > (rules.pad == rules.end)
    suspect |= _may_not_fit(sizes, seconds, rules)
    for row in np.flatnonzero(suspect).tolist():
        yield row, None if sizes[row] < 0 else ids[starts[row] : ends[row]].tolist()


def _may_not_fit(sizes: Array, seconds: Sequence[float] | None, rules: LabelRules) -> Any:
    """For CTC, the rows with labels for more than half of the frames, as each label may equal the one before."""
    import numpy as np

    limits = rules.limits
    if limits is not None and limits.positions is not None and rules.kind != "classes":
        return sizes > limits.positions
    if limits is None or seconds is None or rules.kind == "classes":
        return np.zeros(len(sizes), bool)
    lengths = np.nan_to_num(np.asarray(seconds, float), nan=1e6, posinf=1e6) * SAMPLING_RATE
    frames: Any = limits.frames
    return 2 * sizes > frames(lengths.round().astype(np.int64))
