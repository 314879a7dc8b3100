"""Cuts at silences: where there is one, never in loud speech."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from asrconfig_go.audio import cut_rules
from asrconfig_go.audio.cut_rules import levels_of, quietest, silent_cuts

RATE = 16_000


def speech(source: Any, seconds: float, noise: float) -> tuple[Any, list[tuple[float, float]]]:
    """Loud parts of up to three seconds with pauses of a third of a second and more, and where the pauses are."""
    parts: list[Any] = []
    pauses: list[tuple[float, float]] = []
    samples = 0
    while samples < seconds * RATE:
        loud, pause = int(source.uniform(0.3, 3) * RATE), int(source.uniform(0.3, 0.8) * RATE)
        parts += [0.3 * source.standard_normal(loud), noise * source.standard_normal(pause)]
        pauses.append(((samples + loud) / RATE, (samples + loud + pause) / RATE))
        samples += loud + pause
    return np.concatenate(parts).astype(np.float32), pauses


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.02])
def test_cuts_lie_in_pauses_and_keep_to_the_limit(noise: float) -> None:
    source = np.random.default_rng(6)
    for seconds in (31.0, 65.0, 400.0):
        audio, pauses = speech(source, seconds, noise)
        duration = len(audio) / RATE
        cuts, loud = silent_cuts(levels_of(audio, duration), duration, 30.0)
        assert loud == 0
        assert all(any(a < cut < b for a, b in pauses) for cut in cuts)
        lengths = [b - a for a, b in itertools.pairwise([0.0, *cuts, duration])]
        assert max(lengths) <= 30.0
        assert min(lengths) > 3.0, "none is a short rest"
        assert len(lengths) <= -(-duration // 20)


def test_without_silence_the_quietest_place_is_cut_and_counted() -> None:
    source = np.random.default_rng(7)
    audio = 0.3 * source.standard_normal(50 * RATE)
    audio[20 * RATE : 21 * RATE] *= 0.6
    cuts, loud = silent_cuts(levels_of(audio, 50.0), 50.0, 30.0)
    assert loud == 1
    assert 20.0 < cuts[0] < 21.0


def test_no_cut_up_to_the_limit_and_sound_of_one_level() -> None:
    levels = levels_of(np.zeros(RATE, np.float32), 1.0)
    assert silent_cuts(levels, 1.0, 1.0) == ([], 0)
    cuts, _ = silent_cuts(levels_of(np.zeros(100 * RATE, np.float32), 100.0), 100.0, 30.0)
    assert max(b - a for a, b in itertools.pairwise([0.0, *cuts, 100.0])) <= 30.0


def test_recordings_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    audio, _ = speech(np.random.default_rng(8), 20.0, 1e-3)
    levels = levels_of(audio, len(audio) / RATE)
    monkeypatch.setattr(cut_rules, "_BLOCK_S", 3.0)
    assert np.allclose(levels_of(audio, len(audio) / RATE), levels)


def test_the_quietest_frame_between_two_times() -> None:
    levels: Any = np.ones(100, np.float32)
    levels[40] = 0.1
    assert quietest(levels, 0.5, 1.5) == pytest.approx(0.81)
    assert quietest(levels, 1.0, 1.01) == pytest.approx(1.005), "no frame lies between"
