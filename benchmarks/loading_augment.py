"""Augmentation of padded batches against what is done clip by clip: reverberation first of all.

    python benchmarks/loading_augment.py [--batch 16] [--repeats 5]

A batch of clips of 4 to 12 s at 16 kHz, impulse responses of a tenth of a second to two seconds. Direct convolution by
numpy and by torch is measured on one clip of the batch and counted for all by their samples: it takes so long. Sides
take turns; medians in milliseconds for the batch, on one thread. The aim is ten times the speed of the quicker direct
convolution at an impulse of one second; exits with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.signal
import soxr
import torch

from asrconfig_go.audio import AddNoise, ChangeSpeed, Reverberation
from asrconfig_go.audio.augmentation import padded, room

RATE, AIM, AIM_S = 16_000, 10.0, 1.0
Clips = list[Any]


def direct_numpy(clip: Any, impulse: Any) -> Any:
    return np.convolve(clip, impulse)[: len(clip)]


def direct_torch(clip: Any, impulse: Any) -> Any:
    signal = torch.nn.functional.pad(torch.from_numpy(clip)[None, None], (len(impulse) - 1, 0))
    return torch.nn.functional.conv1d(signal, torch.from_numpy(impulse[::-1].copy())[None, None])[0, 0].numpy()


def by_clip(clips: Clips, impulses: Clips) -> Clips:
    """What careful recipes do: scipy's FFT for one clip after the other, and the power kept."""
    made = []
    for clip, impulse in zip(clips, impulses, strict=True):
        wet = scipy.signal.fftconvolve(clip, impulse)[: len(clip)]
        made.append(wet * np.sqrt(np.mean(clip**2) / np.mean(wet**2)))
    return made


def noise_by_clip(clips: Clips, chance: np.random.Generator) -> Clips:
    made = []
    for clip in clips:
        noise = chance.standard_normal(len(clip), dtype=np.float32)
        made.append(clip + noise * np.sqrt(np.mean(clip**2) / np.mean(noise**2) / 100))
    return made


def speed_by_clip(clips: Clips, factor: float, library: str) -> Clips:
    ratio = Fraction(factor).limit_denominator(100)
    if library == "soxr":
        return [soxr.resample(clip, RATE * ratio.numerator, RATE * ratio.denominator) for clip in clips]
    return [scipy.signal.resample_poly(clip, ratio.denominator, ratio.numerator) for clip in clips]


def in_turns(sides: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            if turn:  # the first is for imports and plans
                times[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(runs_ms) for name, runs_ms in times.items()}


def row(label: str, medians: dict[str, float]) -> None:
    """All sides, and how many times as long as ours they take."""
    ours = medians["batch"]
    cells = [f"{name} {ms:.0f} ms ({ms / ours:.1f}×)" for name, ms in medians.items() if name != "batch"]
    print(f"| {label} | {ours:.0f} ms | {'; '.join(cells)} |", flush=True)


def reverberation(clips: Clips, seconds: float, repeats: int) -> float:
    """How many times as fast as the quicker direct convolution."""
    impulse = room(max(0.05, seconds), RATE, np.random.default_rng(1))[: int(seconds * RATE)]
    batch, lengths = padded(clips)
    reverberate, chance = Reverberation([impulse]), np.random.default_rng(0)
    sides = {
        "batch": lambda: reverberate(batch, lengths, chance),
        "fftconvolve clip by clip": lambda: by_clip(clips, [impulse] * len(clips)),
    }
    medians = in_turns(sides, repeats)
    one, share = clips[0], sum(map(len, clips)) / len(clips[0])
    direct = {
        "numpy.convolve": lambda: direct_numpy(one, impulse),
        "torch conv1d": lambda: direct_torch(one, impulse),
    }
    medians |= {name: ms * share for name, ms in in_turns(direct, max(1, repeats // 2)).items()}
    row(f"reverberation, {seconds:g} s", medians)
    wet, truth = reverberate(batch, lengths, chance)[0][0, : len(one)], direct_numpy(one.astype(float), impulse)
    truth *= np.sqrt(np.mean(one**2) / np.mean(truth**2))
    if np.abs(wet - truth).max() > 1e-4 * np.abs(truth).max():
        sys.exit("the batch is not what direct convolution gives")
    return min(medians[name] for name in direct) / medians["batch"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chance = np.random.default_rng(0)
    lengths = chance.uniform(4, 12, arguments.batch) * RATE
    clips = [(chance.standard_normal(int(n)) * 0.1).astype(np.float32) for n in lengths]
    seconds = sum(map(len, clips)) / RATE
    print(f"{len(clips)} clips, {seconds:.0f} s\n\n| what | the batch at once | others |\n| --- | --- | --- |")
    ratios = {s: reverberation(clips, s, arguments.repeats) for s in (0.1, 0.3, AIM_S, 2.0)}
    batch, own = padded(clips)
    noise, speed = AddNoise((20, 20)), ChangeSpeed((0.9,))
    row(
        "white noise",
        in_turns(
            {"batch": lambda: noise(batch, own, chance), "clip by clip": lambda: noise_by_clip(clips, chance)},
            arguments.repeats,
        ),
    )
    sides: dict[str, Callable[[], Any]] = {"batch": lambda: speed(batch, own, chance)}
    for library in ("soxr", "scipy"):
        sides[f"{library} clip by clip"] = lambda library=library: speed_by_clip(clips, 0.9, library)
    row("speed 0.9", in_turns(sides, arguments.repeats))
    if ratios[AIM_S] < AIM:
        sys.exit(f"{ratios[AIM_S]:.1f} times as fast as direct convolution at {AIM_S:g} s; the aim is {AIM:g}")


if __name__ == "__main__":
    main()
