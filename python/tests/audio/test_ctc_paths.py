"""The best CTC path: against all paths, against torch's loss, in blocks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from asrconfig_go.audio import ctc_aligner
from asrconfig_go.audio.ctc_aligner import best_path
from asrconfig_go.data.label_rules import repeats


def cases(count: int, frames: int) -> Any:
    source = np.random.default_rng(3)
    for _ in range(count):
        size, length = int(source.integers(2, 4)), int(source.integers(1, 5))
        blank = int(source.integers(0, size))
        log_probs = np.log(source.dirichlet(np.ones(size) * 0.5, int(source.integers(1, frames + 1))) + 1e-9)
        yield log_probs, [int(x) for x in source.choice([v for v in range(size) if v != blank], length)], blank


def score(log_probs: Any, tokens: Any) -> float:
    return float(sum(log_probs[t, token] for t, token in enumerate(tokens)))


def tokens_of(path: Any, labels: list[int], blank: int) -> list[int]:
    return [labels[place] if place >= 0 else blank for place in path]


def by_all_paths(log_probs: Any, labels: list[int], blank: int) -> float:
    frames, size = log_probs.shape
    spelling = (
        tokens
        for tokens in itertools.product(range(size), repeat=frames)
        if [token for token, _ in itertools.groupby(tokens) if token != blank] == labels
    )
    return max(score(log_probs, tokens) for tokens in spelling)


def test_no_path_is_better() -> None:
    compared = 0
    for log_probs, labels, blank in cases(150, 6):
        path = best_path(log_probs, labels, blank)
        assert (path is None) == (len(labels) + repeats(labels) > len(log_probs))
        if path is not None:
            compared += 1
            assert sorted(set(path[path >= 0])) == list(range(len(labels))), "every label is there"
            best = score(log_probs, tokens_of(path, labels, blank))
            assert best == pytest.approx(by_all_paths(log_probs, labels, blank), abs=1e-9)
    assert compared > 50


def test_the_best_path_is_no_likelier_than_all_together() -> None:
    torch = pytest.importorskip("torch")
    for log_probs, labels, blank in cases(100, 40):
        path = best_path(log_probs, labels, blank)
        if path is None:
            continue
        loss = torch.nn.functional.ctc_loss(
            torch.tensor(log_probs)[:, None], torch.tensor([labels]), torch.tensor([len(log_probs)]),
            torch.tensor([len(labels)]), blank=blank, reduction="sum",
        )  # fmt: skip
        assert score(log_probs, tokens_of(path, labels, blank)) <= -float(loss) + 1e-6


def test_blocks_do_not_change_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    source = np.random.default_rng(4)
    log_probs = np.log(source.dirichlet(np.ones(12), 1000)).astype(np.float32)
    labels = [int(x) for x in source.integers(1, 12, 200)]
    in_blocks = best_path(log_probs, labels, 0)
    monkeypatch.setattr(ctc_aligner, "isqrt", lambda n: n)
    path = best_path(log_probs, labels, 0)
    assert in_blocks is not None
    assert (in_blocks == path).all()
