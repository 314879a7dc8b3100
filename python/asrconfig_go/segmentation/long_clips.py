"""Statistics of clips over a limit: pieces by rule, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._base.listing import first_of
from ..view.units import plural
from .cut_rules import CutClip

_RULES = {"timestamps": "by timestamps", "alignment": "by an alignment", "silence": "at silences, without text"}
_SHOWN = 120  # characters of a reason


@dataclass(frozen=True, repr=False)
class LongClips:
    """Of clips over ``limit_s`` seconds; hours are of audio. Those that are not cut are ``kept_whole`` or left out."""

    limit_s: float
    clips: Mapping[str, int] = field(default_factory=dict)
    """Clips that were cut, by rule: ``"timestamps"``, ``"alignment"``, ``"silence"``."""
    pieces: Mapping[str, int] = field(default_factory=dict)
    """By rule, too."""
    not_cut: Mapping[str, int] = field(default_factory=dict)
    """Clips that no rule could cut, by why."""
    lost: Mapping[str, float] = field(default_factory=dict)
    """Hours of cut clips that are in no piece, by why."""
    cut_hours: float = 0.0
    """Of the pieces."""
    not_cut_hours: float = 0.0
    loud: int = 0
    """Cuts at no silence, where there was none near enough."""
    kept_whole: bool = False

    @property
    def lost_hours(self) -> float:
        """Of cut clips and of those that are left out."""
        return sum(self.lost.values()) + (0.0 if self.kept_whole else self.not_cut_hours)

    def lines(self) -> Iterator[str]:
        """In sentences; none of what did not happen."""
        limit = f"over {self.limit_s:g} s"
        for rule, count in self.clips.items():
            loud = f", {self.loud} of the cuts at no silence" if rule == "silence" and self.loud else ""
            pieces = plural(self.pieces[rule], "piece")
            yield f"{plural(count, 'clip')} {limit} cut into {pieces} {_RULES[rule]}{loud}"
        yield from first_of(f"{_amount(hours)} of cut clips left out: {reason}" for reason, hours in self.lost.items())
        fate = "kept whole" if self.kept_whole else "left out"
        skipped = ((plural(count, "clip"), reason) for reason, count in self.not_cut.items())
        yield from first_of(f"{clips} {limit} not cut and {fate}: {reason}" for clips, reason in skipped)

    def __repr__(self) -> str:
        return "\n".join(self.lines()) or f"no clip is over {self.limit_s:g} s"


def counted(
    outcomes: Mapping[int, CutClip | str], seconds: Sequence[float], limit_s: float, *, kept_whole: bool
) -> LongClips:
    """Count the outcomes of clips, by their index."""
    cut = [clip for clip in outcomes.values() if isinstance(clip, CutClip)]
    clips, pieces, lost = Counter[str](), Counter[str](), Counter[str]()
    seconds_cut = 0.0
    for clip in cut:
        clips[clip.rule] += 1
        pieces[clip.rule] += len(clip.pieces)
        seconds_cut += sum(piece.end - piece.start for piece in clip.pieces)
        for reason, amount in clip.lost.items():
            lost[reason] += amount / 3600  # type: ignore[assignment]
    problems = {i: clip for i, clip in outcomes.items() if isinstance(clip, str)}
    return LongClips(
        limit_s, dict(clips), dict(pieces), _by_kind(problems.values()), dict(lost), seconds_cut / 3600,
        sum(seconds[i] for i in problems) / 3600, sum(clip.loud for clip in cut), kept_whole,
    )  # fmt: skip


def _by_kind(reasons: Any) -> dict[str, int]:
    """Count reasons that differ only in their numbers as one, by the first of them."""
    kinds: dict[str, list[str]] = {}
    for reason in reasons:
        kinds.setdefault("".join(c for c in reason if not c.isdigit() and c not in ".-"), []).append(reason)
    return {_named(group): len(group) for group in kinds.values()}


def _named(group: list[str]) -> str:
    first = group[0] if len(group[0]) <= _SHOWN else f"{group[0][: _SHOWN - 1]}…"
    return first if len(set(group)) == 1 else f"{first}, and the like"


def _amount(hours: float) -> str:
    return f"{hours:.2f} h" if hours >= 0.1 else f"{3600 * hours:.1f} s"
