"""Augmentations of padded batches, compared with the same done clip by clip in the plainest way."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from asrconfig_go.audio import AddNoise, ChangeSpeed, Reverberation
from asrconfig_go.audio.augmentation import augmented, padded, room
from asrconfig_go.audio.decoding import find_resampler
from asrconfig_go.errors import InvalidArgumentError

RATE = 16_000
LENGTHS = (16_000, 4001, 9000, 1, 12_345)


def clips() -> list[Any]:
    generator = np.random.default_rng(0)
    return [(generator.standard_normal(length) * 0.1).astype(np.float32) for length in LENGTHS]


def seeded(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


ALL: dict[str, Any] = {
    "reverberation": Reverberation.made(count=4),
    "recorded": Reverberation([np.r_[np.zeros(50), 0.5, 0.2, -0.1]]),
    "white noise": AddNoise(),
    "noises": AddNoise((0, 10), [np.sin(np.arange(3000)), np.cos(np.arange(90_000) / 9)]),
    "speed": ChangeSpeed(),
    "never": Reverberation.made(count=2, probability=0.0),
    "half": AddNoise(probability=0.5),
}


@pytest.mark.parametrize("name", ALL)
def test_what_all_keep(name: str) -> None:
    change = ALL[name]
    batch, lengths = padded(clips())
    before = batch.copy()
    made, new = change(batch, lengths, seeded())
    np.testing.assert_array_equal(batch, before)
    assert lengths.tolist() == list(LENGTHS)
    assert made.dtype == np.float32 and made.shape == (len(batch), max(new)) and np.isfinite(made).all()
    assert all(not row[length:].any() for row, length in zip(made, new, strict=True)), "padding is zero"
    again, _ = pickle.loads(pickle.dumps(change))(batch, lengths, seeded())
    np.testing.assert_array_equal(made, again)
    other, _ = change(batch, lengths, seeded(8))
    assert np.array_equal(made, other) == (name in ("never", "recorded"))
    if name != "speed":
        assert new.tolist() == list(LENGTHS)
    silent = change(np.zeros_like(batch), lengths, seeded())[0]
    assert not silent.any(), "silence stays silent"
    empty = change(np.zeros((0, 5), np.float32), np.zeros(0, np.int64), seeded())
    assert len(empty[0]) == len(empty[1]) == 0


def power(clip: Any) -> float:
    return float(np.mean(np.square(clip, dtype=np.float64)))


def test_reverberation_is_convolution() -> None:
    impulses = [room(rt60, RATE, seeded(1)) for rt60 in (0.2, 0.6, 1.0)]
    batch, lengths = padded(clips())
    made, _ = Reverberation(impulses)(batch, lengths, seeded())
    which = seeded()
    which.random(len(batch))  # which rows
    for row, clip, i in zip(made, clips(), which.integers(3, size=len(batch)), strict=True):
        wet = np.convolve(clip.astype(np.float64), impulses[i])[: len(clip)]
        wet *= math.sqrt(power(clip) / power(wet))
        np.testing.assert_allclose(row[: len(clip)], wet, atol=2e-6)


def test_the_direct_path_stays_where_it_was() -> None:
    click: Any = np.zeros((1, 4000), np.float32)
    click[0, 1000] = 1
    late = np.r_[np.zeros(300), -0.8, np.zeros(20), 0.3].astype(np.float32)
    made, _ = Reverberation([late])(click, np.array([4000]), seeded())
    assert np.argmax(np.abs(made[0])) == 1000 and made[0, 1000] > 0
    assert made[0, 1021] / made[0, 1000] == pytest.approx(-0.375, rel=1e-4)
    assert np.abs(made[0, :1000]).max() < 1e-6
    assert power(made) == pytest.approx(power(click), rel=1e-4)


@pytest.mark.parametrize("rt60", [0.2, 0.5, 1.0])
def test_made_rooms_decay_as_wanted(rt60: float) -> None:
    """Schroeder's integral from -5 to -35 dB, as rooms are measured."""
    impulse = room(rt60, RATE, seeded())
    tail: Any = impulse[40:].astype(np.float64) ** 2
    decay_db = 10 * np.log10(np.cumsum(tail[::-1])[::-1] / tail.sum())
    start, end = int(np.argmax(decay_db < -5)), int(np.argmax(decay_db < -35))
    assert 2 * (end - start) / RATE == pytest.approx(rt60, rel=0.12)
    assert impulse[0] == 1 and power(impulse[1:]) * (len(impulse) - 1) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("noises", [None, [np.sin(np.arange(2000.0)), np.sign(np.sin(np.arange(50_000) / 7))]])
def test_noise_is_as_loud_as_asked_over_the_clip_s_own_samples(noises: Any) -> None:
    batch, lengths = padded(clips())
    made, _ = AddNoise((5, 30), noises)(batch, lengths, seeded())
    draws = seeded()
    draws.random(len(batch))
    for before, after, length, wanted in zip(batch, made, lengths, draws.uniform(5, 30, len(batch)), strict=True):
        noise = (after - before)[:length]
        assert 10 * math.log10(power(before[:length]) / power(noise)) == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.1, 1.37, 2.0])
def test_speed_is_resampling(factor: float) -> None:
    made, new = ChangeSpeed((factor,))(*padded(clips()), seeded())
    ratio = Fraction(factor).limit_denominator(100)
    resample: Any = find_resampler()[1]
    for row, length, clip in zip(made, new, clips(), strict=True):
        alone = resample(clip, ratio.numerator, ratio.denominator) if ratio != 1 else clip
        np.testing.assert_array_equal(row[:length], alone)
        assert abs(length - len(clip) / factor) <= 1


def test_speed_changes_pitch_too() -> None:
    tone = np.sin(2 * np.pi * 400 * np.arange(RATE) / RATE).astype(np.float32)
    (made,) = augmented([tone], [ChangeSpeed((1.1,))], seeded())
    assert abs(len(made) - RATE / 1.1) <= 1
    assert np.argmax(np.abs(np.fft.rfft(made))) / len(made) * RATE == pytest.approx(440, abs=1.5)


def test_how_often() -> None:
    batch: Any = np.ones((2000, 8), np.float32)
    lengths: Any = np.full(2000, 8)
    made, _ = AddNoise(probability=0.3)(batch, lengths, seeded())
    assert (made != batch).any(1).mean() == pytest.approx(0.3, abs=0.04)
    _, new = ChangeSpeed((0.5, 2.0), probability=0.5)(batch, lengths, seeded())
    assert {int(n): float((new == n).mean()) for n in set(new.tolist())} == pytest.approx(
        {4: 0.25, 8: 0.5, 16: 0.25}, abs=0.04
    )


def test_one_after_the_other() -> None:
    inputs = clips()
    made = augmented(inputs, [ChangeSpeed((0.5,)), Reverberation.made(count=2), AddNoise()], seeded())
    assert [len(clip) for clip in made] == [2 * length for length in LENGTHS]
    assert [len(clip) for clip in inputs] == list(LENGTHS)
    for one, two in zip(augmented(inputs, [], seeded()), inputs, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Reverberation([]), "no impulses"),
        (lambda: Reverberation([np.zeros(10)]), "silent"),
        (lambda: Reverberation([np.ones(3)], probability=1.1), "probability = 1.1"),
        (lambda: Reverberation.made((0.5, 0.2)), r"rt60_s = \(0.5, 0.2\)"),
        (lambda: Reverberation.made(count=0), "count = 0"),
        (lambda: AddNoise((30, 5)), r"snr_db = \(30, 5\)"),
        (lambda: AddNoise(noises=[]), "no noises"),
        (lambda: AddNoise(noises=[np.zeros(9)]), "silent"),
        (lambda: AddNoise(probability="often"), "probability"),  # type: ignore[arg-type]
        (lambda: ChangeSpeed((0.1,)), r"factors = \(0.1,\)"),
        (lambda: ChangeSpeed(()), "factors"),
    ],
)
def test_settings_that_make_no_augmentation(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_files_as_impulses_and_noises() -> None:
    from asrconfig_go.data.source import CLIPS

    path = min(CLIPS.glob("*.mp3"))
    for change in (Reverberation([path]), AddNoise(noises=[{"path": str(path), "bytes": None}])):
        assert not np.array_equal(change(*padded(clips()), seeded())[0], padded(clips())[0])


def test_a_repr_holds_no_samples() -> None:
    assert repr(Reverberation.made(probability=0.5)) == "Reverberation(probability=0.5)"
    assert "array" not in repr(AddNoise(noises=[np.ones(9)]))
