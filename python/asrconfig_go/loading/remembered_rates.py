"""Loader rates of the last day: the same files are read as fast as before on the same machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from array import array
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .._base.errors import AsrConfigError
from .._base.files import cache_folder, user_path, write_whole
from .._base.json_files import read_object
from .._base.records import from_json, to_json
from .loader_rate import LoaderRate

_KEPT_S = 24 * 3600
_READERS = ("numpy", "soundfile", "soxr", "scipy", "datasets", "torchcodec", "transformers")


@dataclass(frozen=True)
class Measured:
    """Everything that a rate depends on, and that can be compared: files by their path, lengths and sizes."""

    dataset: Any
    profile: Any
    durations: array[float]
    machine: Any
    processor: Any
    options: dict[str, Any]

    def find(self) -> LoaderRate | None:
        """What was measured in the last day; None where nothing was, or can be compared."""
        path = self._file
        try:
            if path is None or time.time() - path.stat().st_mtime > _KEPT_S:
                return None
            return from_json(LoaderRate, read_object(path, "loader rate", ""))
        except (OSError, AsrConfigError):
            return None

    def store(self, rate: LoaderRate) -> None:
        """Keep a rate, and remove those that are too old. A folder that cannot be written changes nothing."""
        path = self._file
        if path is None:
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(to_json(rate)).encode(), durable=False)
            for other in path.parent.iterdir():
                if time.time() - other.stat().st_mtime > _KEPT_S:
                    other.unlink()

    @cached_property
    def _file(self) -> Path | None:
        """Only of a path, whose clips are read by this package: another dataset may run code of its own."""
        made = _identity(self.processor)
        if not isinstance(self.dataset, str | os.PathLike) or made is None or not self.durations:
            return None
        where = str(user_path(self.dataset, "dataset").absolute())
        parts = [where, to_json(self.profile), to_json(self.machine), made, self.options, _versions()]
        text = json.dumps(parts, sort_keys=True, default=str).encode()
        digest = hashlib.sha256(text + self.durations.tobytes()).hexdigest()[:32]
        return cache_folder("loader") / f"{digest}.json"


def _identity(processor: Any) -> Any:
    """What tells processors apart; None for one that does not say what it does."""
    if processor is None:
        return "none"
    made = getattr(processor, "feature_extractor", processor)
    told = getattr(made, "to_json_string", None)
    return None if told is None else [type(made).__qualname__, told()]


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in _READERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
