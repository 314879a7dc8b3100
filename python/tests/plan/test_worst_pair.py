"""The worst row of a dataset by audio and text, and batches up to a length."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from asrconfig_go.plan.traced_answers import Pairs

PER_SECOND = 100


class Memory:
    """A transducer: memory rises with the product of audio and labels."""

    length_per_second = float(PER_SECOND)

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []

    def estimate(self, batch: int, seconds: float, labels: int, timeline: int) -> Any:
        self.asked.append((seconds, labels))
        return SimpleNamespace(peak_reserved=round(batch * seconds * (labels + 1)))

    def labels(self, seconds: float) -> int:
        return round(15 * seconds)


def worst(
    rows: list[tuple[float, int]], longest_s: float, *, exact: bool = True, limited: bool = False
) -> tuple[Pairs, Memory]:
    memory = Memory()
    pairs = [(round(seconds * PER_SECOND), labels) for seconds, labels in rows]
    return Pairs.of(memory, pairs, longest_s, exact=exact, limited=limited), memory  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(20.0, 30), (15.0, 200), (3.0, 220)], (15.0, 200)),  # neither the longest clip nor the longest text
        ([(20.0, 300), (15.0, 200)], (20.0, 300)),
        ([(20.0, 50), (19.0, 40), (2.0, 400)], (20.0, 50)),
    ],
)
def test_the_pair_with_the_highest_peak_is_the_worst(
    rows: list[tuple[float, int]], expected: tuple[float, int]
) -> None:
    pairs, memory = worst(rows, 20.0)
    assert (pairs.seconds, pairs.labels) == expected
    peaks = {row: memory.estimate(2, *row, timeline=0).peak_reserved for row in rows}
    assert max(peaks, key=lambda row: peaks[row]) == expected


def test_rows_that_others_exceed_are_not_asked_about() -> None:
    _, memory = worst([(20.0, 30), (15.0, 200), (14.0, 190), (15.0, 10), (3.0, 220)], 20.0)
    assert sorted(memory.asked) == [(3.0, 220), (15.0, 200), (20.0, 30)]
    _, memory = worst([(20.0, 199), (19.9, 200)], 20.0, exact=False)
    assert memory.asked == []  # each would have to be traced, and they are about the same


def test_rows_over_the_limit_do_not_count() -> None:
    pairs, _ = worst([(40.0, 500), (18.0, 100)], 18.0, limited=True)
    assert (pairs.seconds, pairs.labels) == (18.0, 100)


def test_lengths_are_as_long_as_seconds_on_average_alone() -> None:
    pairs, _ = worst([(20.1, 110), (18.0, 100)], 20.0, limited=True)
    assert (pairs.seconds, pairs.labels) == (20.1, 110)
    pairs, _ = worst([(30.0, 110), (18.0, 100)], 20.0)  # padded to a whole chunk
    assert (pairs.seconds, pairs.labels) == (30.0, 110)


def test_a_longest_clip_that_is_no_known_row_has_a_usual_text() -> None:
    pairs, _ = worst([(10.0, 30)], 20.0)
    assert (pairs.seconds, pairs.labels) == (20.0, 300)


def test_batches_up_to_a_length_have_the_longest_text_of_such_rows() -> None:
    pairs, _ = worst([(20.0, 30), (15.0, 200), (3.0, 220), (1.0, 5)], 20.0)
    assert pairs.at(20.0) == (15.0, 200)
    assert pairs.at(16.0) == (16.0, 220)
    assert pairs.at(2.0) == (2.0, 5)
    assert pairs.at(0.5) == (0.5, None)


def test_without_rows_texts_are_usual() -> None:
    pairs, memory = worst([], 20.0)
    assert (pairs.seconds, pairs.labels, pairs.at(5.0)) == (20.0, None, (5.0, None))
    assert memory.asked == []
