"""The rows that a comparison of GPUs trains on: of a dataset, or as many as are assumed."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._core.batches import TOKENS_PER_SECOND
from .._core.checks import checked
from .._core.declared import RowKind
from .._core.records import to_json
from .._core.settings import MEAN_S, TOKENS
from ..data.scan_rows import examples_of
from ..data.source import open_source
from ..errors import InvalidArgumentError
from ..trace.model import Model

if TYPE_CHECKING:
    from ..trace.made_up_batches import BatchFunction


def read_rows(
    dataset: object,
    model: object,
    collator: Callable[[list[Any]], Any] | None,
    *,
    hours: float | None,
    mean_s: float | None,
    max_s: float | None,
    texts: int | None,
    mean_tokens: int | None,
    max_tokens: int | None,
) -> tuple[dict[str, Any], BatchFunction | None]:
    """The rows as ``timing.compare`` takes them, and the batches of a collator, if there is one.

    Raises ``InvalidArgumentError`` where neither a dataset nor an amount is given, and for an amount that is not used.
    """
    of_clips = {"hours": hours, "mean_s": mean_s, "max_s": max_s}
    of_texts = {"texts": texts, "mean_tokens": mean_tokens, "max_tokens": max_tokens}
    unused = of_clips | of_texts if dataset is not None else of_texts if texts is None else of_clips
    used = "a dataset, which is measured" if dataset is not None else "hours" if texts is None else "texts"
    for name, value in unused.items():
        if value is not None:
            raise InvalidArgumentError(f"{name} = {value!r} with {used}", "leave out either of them")
    if open_source(dataset).kind == "profile":
        return {"profile": to_json(dataset)}, None
    if dataset is not None:
        return _measured_rows(dataset, model, collator)
    if texts is not None:
        return _assumed_texts(texts, mean_tokens, max_tokens), None
    if hours is not None:
        return _assumed_clips(hours, mean_s, max_s, Model.of(model).row_kind), None
    raise InvalidArgumentError("neither a dataset nor hours", "pass a dataset, hours of audio, or a number of texts")


def _measured_rows(
    dataset: object, model: object, collator: Callable[[list[Any]], Any] | None
) -> tuple[dict[str, Any], BatchFunction | None]:
    from ..data.scan import scan_audio
    from ..data.splits import trained_part

    source = trained_part(dataset)
    examples = examples_of(source.data, collator, model)
    scanned = scan_audio(source, clips=examples is not None, model=model, collator=examples)
    durations = scanned.durations if scanned.unit is None and not scanned.profile.sampled else array("d")
    return {"profile": to_json(scanned.profile)}, None if examples is None else examples.batches(durations)


def _assumed_clips(hours: float, mean_s: float | None, max_s: float | None, kind: RowKind) -> dict[str, Any]:
    mean_s = MEAN_S if mean_s is None else checked("mean_s", mean_s, float)
    max_s = 3 * mean_s if max_s is None else max_s
    for name, value in {"hours": hours, "mean_s": mean_s, "max_s": max_s}.items():
        if not checked(name, value, float) > 0:
            raise InvalidArgumentError(f"{name} = {value!r} is not above 0", "pass hours of audio, and seconds")
    return _made_up(max(1, round(hours * 3600 / mean_s)), mean_s, max_s, kind)


def _assumed_texts(texts: int, mean_tokens: int | None, max_tokens: int | None) -> dict[str, Any]:
    longest = TOKENS if max_tokens is None else max_tokens
    mean = longest if mean_tokens is None else mean_tokens
    for name, value in {"texts": texts, "mean_tokens": mean, "max_tokens": longest}.items():
        if checked(name, value, int) < 1:
            raise InvalidArgumentError(f"{name} = {value!r} is not above 0", "pass how many texts, and tokens of each")
    return _made_up(texts, mean / TOKENS_PER_SECOND, longest / TOKENS_PER_SECOND, "texts")


def _made_up(rows: int, mean_s: float, max_s: float, kind: RowKind) -> dict[str, Any]:
    return {"clips": rows, "mean_s": float(mean_s), "max_s": float(max_s), "row_kind": kind}
