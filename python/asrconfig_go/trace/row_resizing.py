"""Rows of a dataset cut or repeated to another length: audio in any form, features, tokens, labels, texts."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
import tempfile
import wave
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._core.stored_clip import StoredClip

Array = np.ndarray[Any, Any]
Place = tuple[Any, ...]  # the keys and indices that lead to a value of a row
_VALUES = 24  # of a row that are tried
_TRIES = 4  # to reach a length, which need not be proportional to a row's values
_NEAR = 0.005
_TRIED = 0.5  # of its size, to find out what a value makes shorter


@dataclass(frozen=True)
class Resized:
    """A value of a row with the axis that is cut or repeated."""

    place: Place
    axis: int = 0

    def of(self, row: object, factor: float, folder: str) -> object:
        """The row with this value ``factor`` times as long; the row itself stays as it is."""
        return _replaced(row, self.place, lambda value: _scaled(value, factor, self.axis, folder))


@dataclass(frozen=True)
class RowResizer:
    """Makes rows with inputs and labels of given lengths, as far as their values can be cut or repeated.

    ``measure(row)`` returns the lengths of a row's input and labels. Which values they depend on is found by trying
    each value of ``row``, not by its name.
    """

    row: object
    measure: Callable[[object], tuple[int, int]]

    def resized(self, row: object, length: int, labels: int) -> object:
        """``row`` with an input of about ``length`` and ``labels`` labels."""
        for number, (target, values) in enumerate(((length, self._values[0]), (labels, self._values[1]))):
            if values:
                row = self._brought(row, values, number, target)
        return row

    def shortened(self, row: object, share: float, *, fixed: bool = False) -> object:
        """``row`` with its input and labels cut to a ``share``; ``row`` itself where nothing can be cut.

        The input stays where much more of it would go, as a whole piece of several. One of a ``fixed`` length stays,
        too: prepared features are as long in every row, and nothing pads them.
        """
        length, labels = self.measure(row)
        made = row
        with contextlib.suppress(Exception):  # the collator refuses such a row
            cut = row
            for value in () if fixed else self._values[0]:
                cut = value.of(cut, share, self._folder)
            if self.measure(cut)[0] >= length - max(1, 2 * (1 - share) * length):
                made = cut
        texts = self._values[1]
        return self._brought(made, texts, 1, max(1, min(round(share * labels), labels - 1))) if texts else made

    def _brought(self, row: object, values: list[Resized], number: int, target: int) -> object:
        """The row nearest to ``target`` of a few tries, each of which follows from the last two."""
        tries = [(1.0, self.measure(row)[number], row)]
        for _ in range(_TRIES):
            size = tries[-1][1]
            if abs(size - target) <= _NEAR * target or size == 0:
                break
            with contextlib.suppress(Exception):  # the collator refuses such a row
                factor = _next_factor([(f, n) for f, n, _ in tries], target)
                made = row
                for value in values:
                    made = value.of(made, factor, self._folder)
                tries.append((factor, self.measure(made)[number], made))
                continue
            break
        return min(tries, key=lambda result: abs(result[1] - target))[2]

    @cached_property
    def _values(self) -> tuple[list[Resized], list[Resized]]:
        """The values that change the length of the input, and one that changes only that of the labels."""
        full = self.measure(self.row)
        audio: list[Resized] = []
        texts: list[Resized] = []
        for value in self._resizable():
            with contextlib.suppress(Exception):  # the collator refuses such a row: the value has another meaning
                length, labels = self.measure(value.of(self.row, _TRIED, self._folder))
                if length != full[0] and not any(other.place == value.place for other in audio):
                    audio.append(value)
                elif labels != full[1]:
                    texts.append(value)
        if audio and (size := _size(_at(self.row, audio[0].place), audio[0].axis)):  # values as long, such as its mask
            others = [v for v in self._resizable() if v.place != audio[0].place and not v.axis]
            audio += [v for v in others if _size(_at(self.row, v.place), 0) == size]
        return audio, texts[:1]

    def _resizable(self) -> list[Resized]:
        values = []
        for place, value in itertools.islice(_leaves(self.row), _VALUES):
            shape = np.shape(value) if _is_numbers(value) else ()
            values += [Resized(place, axis) for axis in range(max(1, len(shape)))]
        return values

    @cached_property
    def _folder(self) -> str:
        """The folder of clips that rows point to; it is removed with this object."""
        folder = tempfile.mkdtemp(prefix="asrconfig-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder


def _next_factor(tries: list[tuple[float, int]], target: int) -> float:
    (before, first), (factor, size) = tries[-2:] if len(tries) > 1 else ((0.0, 0), tries[-1])
    if size == first:
        return factor * target / size
    return max(1e-4, factor + (target - size) * (factor - before) / (size - first))


def _leaves(value: object, place: Place = ()) -> Iterator[tuple[Place, object]]:
    """The values of a row that can be cut or repeated, at any depth: texts, arrays, audio."""
    if isinstance(value, str | bytes) or _is_audio(value) or _is_numbers(value):
        yield place, value
    elif isinstance(value, Mapping):
        for name in value:
            yield from _leaves(value[name], (*place, name))
    elif isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            yield from _leaves(entry, (*place, number))


def _is_numbers(value: object) -> bool:
    if isinstance(value, list | tuple) and value:
        if isinstance(value[0], list | tuple):
            same = all(isinstance(entry, list | tuple) and len(entry) == len(value[0]) for entry in value)
            return same and all(map(_is_numbers, value))
        return all(isinstance(entry, int | float) for entry in value)
    return bool(getattr(value, "shape", None)) and hasattr(value, "dtype")


def _is_audio(value: object) -> bool:
    """A clip of ``datasets``, decoded or not, or a decoder of torchcodec."""
    kind = StoredClip.of(value).kind
    if isinstance(value, Mapping):
        return kind in ("array", "bytes") or _is_file(value.get("path"))
    return kind == "decoder"


def _is_file(value: object) -> bool:
    return isinstance(value, str | os.PathLike) and os.path.isfile(value)  # noqa: PTH113 - a text may be no path


def _size(value: Any, axis: int) -> int:
    if isinstance(value, Mapping):
        value = StoredClip.of(value).value
    return int(np.shape(value)[axis]) if _is_numbers(value) else 0


def _at(row: Any, place: Place) -> Any:
    for key in place:
        row = row[key]
    return row


def _replaced(row: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    """A copy of ``row`` with the value at ``place`` changed."""
    if not place:
        return change(row)
    copied: Any = {name: row[name] for name in row} if isinstance(row, Mapping) else list(row)
    copied[place[0]] = _replaced(copied[place[0]], place[1:], change)
    return tuple(copied) if isinstance(row, tuple) else copied


def _scaled(value: Any, factor: float, axis: int, folder: str) -> Any:
    if _is_file(value):
        number, path = tempfile.mkstemp(".wav", dir=folder)
        with os.fdopen(number, "wb") as file:
            file.write(_longer(os.fspath(value), factor))
        return path
    if isinstance(value, str):
        wanted = max(1, round(len(value) * factor))
        return ((value + " ") * (wanted // (len(value) + 1) + 1))[:wanted]
    if isinstance(value, bytes):
        return _longer(io.BytesIO(value), factor)
    if isinstance(value, Mapping):
        clip = StoredClip.of(value)
        return {**value, clip.kind: _scaled(clip.value, factor, axis, folder)}
    if hasattr(value, "get_all_samples"):
        from datasets import Audio

        clip = value.get_all_samples()
        samples = _repeated(np.asarray(clip.data).mean(0), factor)
        return Audio().decode_example({"bytes": _wav(samples, int(clip.sample_rate)), "path": None})
    made = _repeated(np.asarray(value), factor, axis)
    if isinstance(value, list | tuple):
        return made.tolist()
    if hasattr(value, "new_tensor"):
        import torch

        return torch.as_tensor(made, dtype=value.dtype)
    return made


def _repeated(values: Array, factor: float, axis: int = 0) -> Array:
    size = values.shape[axis]
    return values.take(np.arange(max(1, round(size * factor))) % max(1, size), axis)


def _longer(clip: str | io.BytesIO, factor: float) -> bytes:
    """An audio file in mono, as a WAV file that is ``factor`` times as long."""
    import soundfile

    samples, rate = soundfile.read(clip, dtype="float32", always_2d=True)
    return _wav(_repeated(samples.mean(1), factor), rate)


def _wav(samples: Array, rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as clip:
        clip.setnchannels(1)
        clip.setsampwidth(2)
        clip.setframerate(rate)
        clip.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()
