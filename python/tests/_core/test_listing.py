"""Messages and reports stay short, however many clips, events, files or ranks they are of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from asrconfig_go._core.out_of_memory import first_line
from asrconfig_go._core.output import first_of, listed, shortened
from asrconfig_go.audio.long_clips import LongClips
from asrconfig_go.data import LabelReport
from asrconfig_go.guard import BadBatch, BadClip
from asrconfig_go.guard.training_report import Change, GuardEvent, Restart, TrainingReport
from asrconfig_go.watch.memory_summary import MemorySummary, RankPeaks

MANY = 10_000
CLIP = BadClip(1, "clips/" + "x" * 480, "word " * 100, 1.0, 5, None, None, "its loss is nan " * 50, ("so " * 9,) * 9)
BATCH = BadBatch(1, "loss", "the loss is not finite", tuple(replace(CLIP, row=i) for i in range(MANY)), "raised", "out")
EVENT = GuardEvent("training", 1, 4, 2, "CUDA out of memory", not_restored=("model.buffer",) * MANY)
REPORT = TrainingReport(
    5, 5, "", (Restart(2, 1, "training", 4, 2, "x"),) * MANY, (EVENT,) * MANY, 0, (4, 2, 1), 2, None, 1.0, "",
    changes=(Change("seed", 1, 2, False),), bad_batches=(BATCH,) * MANY,
)  # fmt: skip
SUMMARY = MemorySummary(
    (1,) * MANY, (2,) * MANY, 1, 2, 3, 0, 0, 0, "", tuple(RankPeaks(rank, "", 1, 2, 3) for rank in range(MANY))
)
LABELS = LabelReport("m", "tokens", "frames", MANY, (), (), 0, 0, 0, 5, 1.0, 0.5, ("a finding",) * MANY)
REASONS = {f"why {i}": 1 for i in range(MANY)}


def test_the_first_and_how_many_more() -> None:
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(30), "; ", 2) == "0; 1; … and 28 more"
    assert listed([]) == ""
    assert first_of("abc", 2) == ["a", "b", "… and 1 more"]
    assert shortened("abcd", 3) == "ab…"
    assert shortened("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: str(CLIP), 2_000),
        (lambda: str(BATCH), 5_000),
        (lambda: str(EVENT), 1_000),
        (lambda: repr(REPORT), 60_000),
        (lambda: str(SUMMARY), 6_000),
        (lambda: repr(LongClips(9.0, not_cut=REASONS, lost=REASONS)), 6_000),
        (lambda: repr(LABELS), 6_000),
        (lambda: first_line(ValueError("x" * 2_300_000)), 500),
    ],
)  # fmt: skip
def test_messages_stay_short(make: Callable[[], str], limit: int) -> None:
    message = make()
    assert len(message) <= limit
    assert "more" in message or "…" in message
