"""The pure parts of benchmarks/memory_truth: errors, verdicts, and lengths of padded batches."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from locations import REPOSITORY

FOLDER = REPOSITORY / "benchmarks" / "memory_truth"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="a checkout has the benchmarks, an installed package has not"
)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import lengths
    import metrics

    yield metrics, lengths
    for name in ("lengths", "metrics"):
        del sys.modules[name]


def test_errors_leave_out_runs_that_died(parts: Any) -> None:
    metrics, _ = parts
    runs = [
        metrics.Outcome(1000, False, 1010, False),
        metrics.Outcome(1000, False, 900, False, high=990),
        metrics.Outcome(1000, False, 980, True),
        metrics.Outcome(1000, True, 4000, True),
        metrics.Outcome(1000, True, 400, False),
        metrics.Outcome(1000, False, None, None),
    ]
    assert runs[3].error is None
    summary = metrics.summarize(runs)
    assert (summary.runs, summary.median, summary.worst) == (3, pytest.approx(0.02), pytest.approx(-0.1))
    assert summary.mean == pytest.approx(0.13 / 3)
    assert summary.under == pytest.approx(2 / 3)  # 900 and 980, each with 2 % more
    assert summary.under_high == pytest.approx(1 / 3)
    assert (summary.wrong_verdicts, summary.verdicts) == (2, 5)


def test_nothing_to_summarize(parts: Any) -> None:
    metrics, _ = parts
    assert metrics.summarize([metrics.Outcome(1000, False, None, None), metrics.Outcome(1000, True, 1, True)]) is None


def test_large_batches_are_cut_at_the_longest_and_small_ones_vary(parts: Any) -> None:
    _, lengths = parts
    rng = random.Random(0)
    large = lengths.draw(60, 50, 1.2, rng)
    small = [n for _ in range(100) for n in lengths.draw(2, 4, 1.2, rng)]
    assert set(large) == {lengths.LONGEST}
    assert min(small) >= 1 and max(small) == lengths.LONGEST and len(set(small)) > 20
    share = sum(n == lengths.LONGEST for n in small) / len(small)
    assert 0.3 < share < 0.55  # 1 - (1 - 0.24) ** 2 = 0.42
