"""Lengths of padded batches of wikitext-2 lines, drawn without the text.

Quantiles of words per line, of the validation and test parts of wikitext-2 (8118 lines; a third of them is empty, and
headings are short). The training part, which the runs used, is of the same kind.
"""

from __future__ import annotations

import itertools
import random

LONGEST = 128  # tokens; lines are cut there
_WORDS = [
    *((0.0, 0), (0.34, 0), (0.36, 3), (0.40, 5), (0.45, 7), (0.50, 9), (0.55, 12), (0.60, 37), (0.65, 63)),
    *((0.70, 83), (0.75, 102), (0.80, 121), (0.85, 145), (0.90, 171), (0.95, 212), (1.0, 480)),
]
# A word of that text, with the space after it, has 5.2 characters; a token has about 4.3 in GPT-2's vocabulary.
TOKENS_PER_WORD = {"gpt": 1.2, "t5": 1.35}


def _words(share: float) -> float:
    for (low, fewer), (high, more) in itertools.pairwise(_WORDS):
        if share <= high:
            return fewer + (more - fewer) * (share - low) / (high - low)
    raise ValueError(f"{share} is no share")


def draw(batch: int, iterations: int, tokens_per_word: float, rng: random.Random) -> tuple[int, ...]:
    """The padded length of each iteration's batch: its longest line, cut at 128 tokens, and 1 at least."""

    def line() -> int:
        return min(LONGEST, int(_words(rng.random()) * tokens_per_word))

    return tuple(max(1, *(line() for _ in range(batch))) for _ in range(iterations))
