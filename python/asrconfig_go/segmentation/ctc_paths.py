"""The most likely CTC path of known labels (Viterbi), exact, in memory of the square root of the frames."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import isqrt
from typing import Any

import numpy as np

from ..loading.padded_clips import Array

MAX_CELLS = 40_000_000_000  # frames × states: an hour and a half of fluent speech, in some minutes
_BETWEEN = -1


def frames_needed(labels: Sequence[int]) -> int:
    """A blank has to lie between two equal labels."""
    return len(labels) + sum(a == b for a, b in itertools.pairwise(labels))


def best_path(log_probs: Array, labels: Sequence[int], blank: int) -> Any | None:
    """Which of ``labels``, by its place, each frame belongs to, -1 for a blank; None where the labels do not fit.

    ``log_probs`` is of shape (frames, vocabulary). Of equally likely paths the one that advances later is taken.
    """
    frames = len(log_probs)
    if not labels or frames_needed(labels) > frames:
        return None
    trellis = _Trellis(log_probs, labels, blank)
    block = max(64, isqrt(8 * frames))  # a checkpoint takes 8 bytes a state, a choice one
    starts = range(0, frames, block)
    checkpoints = []
    scores = trellis.start()
    for start in starts:
        checkpoints.append(scores.copy())
        trellis.advance(scores, start, min(frames, start + block))
    state = trellis.states - 1 if scores[-1] >= scores[-2] else trellis.states - 2
    path: Any = np.empty(frames, np.int64)
    for start in reversed(starts):
        choices = trellis.advance(checkpoints.pop(), start, min(frames, start + block), keep=True)
        for i in range(len(choices) - 1, -1, -1):
            path[start + i] = state
            state -= int(choices[i, state])
    return np.where(path % 2 == 1, path // 2, _BETWEEN)


class _Trellis:
    """Scores of the states: a blank, the first label, a blank, the second label, …, a blank."""

    def __init__(self, log_probs: Array, labels: Sequence[int], blank: int) -> None:
        self.states = 2 * len(labels) + 1
        self._log_probs = log_probs
        self._tokens = np.full(self.states, blank)
        self._tokens[1::2] = labels
        self._no_skip = np.full(self.states, -np.inf)  # added to the score of a step over one state
        different = self._tokens[3::2] != self._tokens[1:-2:2]
        self._no_skip[3::2][different] = 0.0

    def start(self) -> Any:
        """Before the first frame: as if a state in front of the first had been reached."""
        scores = np.full(self.states + 2, -np.inf)
        scores[1] = 0.0
        return scores

    def advance(self, scores: Any, start: int, end: int, *, keep: bool = False) -> Any:
        """Move ``scores`` over the frames; with ``keep``, return how many states back each one came from."""
        choices: Any = np.zeros((end - start, self.states), np.uint8) if keep else None
        for frame in range(start, end):
            stay, step, skip = scores[2:], scores[1:-1], scores[:-2] + self._no_skip
            if frame == 0:
                skip[1] = scores[1]  # the first label, over the first blank
            best = np.maximum(stay, step)
            if choices is not None:
                np.greater(step, stay, out=choices[frame - start].view(bool))
                choices[frame - start][skip > best] = 2
            np.maximum(best, skip, out=best)
            best += self._log_probs[frame].take(self._tokens)
            scores[2:] = best
            scores[1] = -np.inf
        return choices
