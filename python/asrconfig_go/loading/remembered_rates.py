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

_MAX_AGE_S = 24 * 3600
_READERS = ("numpy", "soundfile", "soxr", "scipy", "datasets", "torchcodec", "transformers")


@dataclass(frozen=True)
class Measured:
    """The comparable things that a rate depends on: files by their path, lengths and sizes, the machine, settings."""

    dataset: Any
    profile: Any
    durations: array[float]
    machine: Any
    processor: Any
    options: dict[str, Any]

    def find(self) -> LoaderRate | None:
        """The rate that was measured in the last day, or None."""
        path = self._file
        try:
            if path is None or time.time() - path.stat().st_mtime > _MAX_AGE_S:
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
                if time.time() - other.stat().st_mtime > _MAX_AGE_S:
                    other.unlink()

    @cached_property
    def _file(self) -> Path | None:
        """Only for a path, whose clips this package reads: other datasets may run code of their own."""
        identity = _identity(self.processor)
        if not isinstance(self.dataset, str | os.PathLike) or identity is None or not self.durations:
            return None
        where = str(user_path(self.dataset, "dataset").absolute())
        parts = [where, to_json(self.profile), to_json(self.machine), identity, self.options, _versions()]
        text = json.dumps(parts, sort_keys=True, default=str).encode()
        digest = hashlib.sha256(text + self.durations.tobytes()).hexdigest()[:32]
        return cache_folder("loader") / f"{digest}.json"


def _identity(processor: Any) -> Any:
    """Identifies a processor by its settings; None for one without ``to_json_string``."""
    if processor is None:
        return "none"
    extractor = getattr(processor, "feature_extractor", processor)
    to_json_string = getattr(extractor, "to_json_string", None)
    return None if to_json_string is None else [type(extractor).__qualname__, to_json_string()]


def _versions() -> dict[str, str]:
    from importlib import metadata

    versions = {}
    for name in _READERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
