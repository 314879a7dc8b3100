"""Errors and verdicts of predictions against measured peaks. Bytes in, shares out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """One estimator's word on one run: None where it said nothing. ``high`` is the top of its range."""

    truth: int
    truth_oom: bool
    peak: int | None
    says_oom: bool | None
    high: int | None = None

    @property
    def error(self) -> float | None:
        """Signed share of the truth; None where the run ran out of memory, so that its peak is only a lower bound."""
        return None if self.peak is None or self.truth_oom else self.peak / self.truth - 1


@dataclass(frozen=True)
class Summary:
    """Shares of the truth, 0.01 for 1 %; counts of runs."""

    runs: int
    median: float
    mean: float
    worst: float
    under: float  # share of runs below the truth with the margin added
    under_high: float  # the same for the top of the range
    wrong_verdicts: int
    verdicts: int


def summarize(outcomes: Sequence[Outcome], margin: float = 0.02) -> Summary | None:
    """Absolute errors over the runs that did not run out of memory, verdicts over all; None without any error."""
    said = [o for o in outcomes if o.peak is not None]
    errors = [o.error for o in said if o.error is not None]
    if not errors:
        return None
    verdicts = [o for o in said if o.says_oom is not None]
    fitting = [o for o in said if o.error is not None]
    under = sum((o.peak or 0) * (1 + margin) < o.truth for o in fitting)
    under_high = sum((o.high or o.peak or 0) * (1 + margin) < o.truth for o in fitting)
    return Summary(
        runs=len(errors),
        median=statistics.median(map(abs, errors)),
        mean=statistics.fmean(map(abs, errors)),
        worst=max(errors, key=abs),
        under=under / len(errors),
        under_high=under_high / len(errors),
        wrong_verdicts=sum(o.says_oom != o.truth_oom for o in verdicts),
        verdicts=len(verdicts),
    )
