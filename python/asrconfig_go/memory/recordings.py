"""Recordings of known models in the package, for plans where nothing can be recorded.

A file holds the traces of one model with several settings. Frees are written as distances, and modules as differences,
so that equal layers compress well; ``build/record_models.py`` writes them.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import lzma
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base.defaults import OPTIMIZER
from .trace_cache import code_versions

if TYPE_CHECKING:
    from .._base.choices import Precision
    from .memory_settings import MemorySettings

FOLDER = Path(__file__).parent.parent / "recordings"
_INDEX = "models.json"


class RecordedSettings(NamedTuple):
    """The settings by which the traces of a file differ."""

    precision: Precision
    gradient_checkpointing: bool
    kernels: int

    @classmethod
    def of(cls, settings: MemorySettings, kernels: int) -> RecordedSettings | None:
        """The settings of a training; None where it requires a recording of its own."""
        usual = settings.optimizer == OPTIMIZER and settings.every_n_layers == 1 and not settings.lora_rank
        usual = usual and not settings.offload_checkpoints and not settings.freeze_feature_encoder
        usual = usual and settings.gradient_checkpointing != "reentrant"
        checkpointing = settings.gradient_checkpointing is not False
        return cls(settings.precision, checkpointing, kernels) if usual else None


def recorded_models() -> dict[str, str]:
    """The file of each model, by the names of the catalogue and of the bundled models."""
    return dict(_index()["files"])


def is_current() -> bool:
    """Whether the recordings were made with the installed versions of the packages."""
    installed = code_versions()
    return all(installed.get(name) == version for name, version in _index()["versions"].items())


def find_recording(name: str, settings: MemorySettings, kernels: int) -> dict[str, Any] | None:
    """The request that opens the recording of a known model; None where there is none with these settings."""
    file, wanted = _index()["files"].get(name), RecordedSettings.of(settings, kernels)
    if file is None or wanted is None:
        return None
    header, content = _content(file)
    for document in header:
        if RecordedSettings(*document["settings"]) == wanted:
            body = _absolute(json.loads(content[document["begin"] : document["end"]]))
            trace = gzip.compress(json.dumps(body, separators=(",", ":")).encode(), compresslevel=1)
            return {"trace": base64.b64encode(trace).decode()}
    return None


@functools.cache
def _index() -> dict[str, Any]:
    index: dict[str, Any] = json.loads((FOLDER / _INDEX).read_bytes())
    return index


@functools.lru_cache(maxsize=1)
def _content(file: str) -> tuple[list[dict[str, Any]], bytes]:
    head, _, content = lzma.decompress((FOLDER / file).read_bytes()).partition(b"\n")
    return json.loads(head), content


def _absolute(body: dict[str, Any]) -> dict[str, Any]:
    born = 0
    for segment in body["segments"]:
        events = segment["events"]
        for place, event in enumerate(events):
            if event >= 0:
                born += 1
            else:
                events[place] = -born - 1 - event
        segment["module"] = list(accumulate(segment["module"]))
    return body
