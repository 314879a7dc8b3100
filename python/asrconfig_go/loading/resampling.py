"""Resampling by soxr, or by scipy where soxr is not installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from .._base.errors import UnsupportedError

Resample = Callable[[Any, int, int], Any]  # (audio, from, to)


def resampled(audio: Any, rate: int, wanted: int, name: str) -> Any:
    """``audio``, mono float32 at ``rate`` hertz, at the ``wanted`` rate; ``name`` is for the message."""
    if rate == wanted:
        return audio
    _, resample = find_resampler()
    if resample is None:
        raise UnsupportedError(
            f"{name} has {rate} Hz, the model takes {wanted} Hz, and there is nothing to resample it with",
            "pip install soxr (or scipy)",
        )
    return resample(audio, rate, wanted)


def find_resampler() -> tuple[str, Resample | None]:
    """The name of what is installed, and a function; "" and None when nothing is.

    Both keep float32. soxr takes a third of scipy's time at rates with small common divisors.
    """
    if importlib.util.find_spec("soxr"):
        soxr: Any = importlib.import_module("soxr")
        return "soxr", lambda audio, old, new: soxr.resample(audio, old, new)
    if importlib.util.find_spec("scipy"):
        signal: Any = importlib.import_module("scipy.signal")
        return "scipy", lambda audio, old, new: signal.resample_poly(audio, new, old).astype("float32", copy=False)
    return "", None
