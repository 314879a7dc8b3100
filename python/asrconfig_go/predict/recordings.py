"""Recordings of training steps: made once for each model and setting, kept in a cache, or shipped.

The key of a trace is everything that determines it: the model's structure, the settings, and the versions of the code.
A folder that cannot be written, or a missing or broken file, only costs the time to record again.

A file holds the traces of one model with several settings. Frees are written as distances, and modules as differences,
so that equal layers compress well; ``build/record_models.py`` writes them.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import json
import lzma
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .._core import native
from .._core.checks import checked
from .._core.files import cache_folder, fingerprint, write_whole
from .._core.modules import VERSIONED, versions
from .._core.output import ProgressBar, kind_of
from .._core.settings import OPTIMIZER, SAMPLING_RATE
from ..errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError
from ..trace.model import Model, can_trace
from .memory_settings import MemorySettings

if TYPE_CHECKING:
    from .._core.declared import Optimizer, Precision
    from ..trace.event_log import Trace
    from ..trace.made_up_batches import SpeechBatches


MAX_BYTES = 512 * 2**20


@functools.cache
def code_versions() -> dict[str, str]:
    """Versions of the installed packages whose code decides what a training step allocates, and of the recorder."""
    return {**versions((*VERSIONED, "bitsandbytes")), "recorder": code_digest("trace")}


@functools.cache
def code_digest(*folders: str) -> str:
    """A digest of this package's code in these folders, which changes with an upgrade or an edit."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted((Path(__file__).parent.parent / folder).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class TraceCache:
    """The trace files of one folder, at most ``max_bytes`` in total; the least recently used are removed first."""

    def __init__(self, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.folder = cache_folder("traces") if folder is None else folder
        self.max_bytes = max_bytes

    def find(self, key: str) -> Path | None:
        """The file of a trace, marked as used now; None if there is none."""
        path = self._path(key)
        with contextlib.suppress(OSError):  # a folder that may be read but not written
            os.utime(path)
        return path if path.is_file() else None

    def store(self, key: str, data: bytes) -> None:
        """Keep a trace, as far as the folder can be written."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(key), data, durable=False)  # a torn file is found out when it is opened
            self._shrink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.trace"

    def _shrink(self) -> None:
        """Remove the least recently used files until the others fit, at least the newest."""
        files = sorted(self.folder.glob("*.trace"), key=lambda path: path.stat().st_mtime_ns)
        sizes = [path.stat().st_size for path in files]
        excess = sum(sizes) - self.max_bytes
        for path, size in zip(files[:-1], sizes, strict=False):
            if excess > 0:
                path.unlink(missing_ok=True)
                excess -= size


_WINDOW = 3  # micro-batches of a window that the recorder runs; further ones repeat the third


@dataclass(frozen=True)
class Recording:
    """Everything that decides what the recorder sees."""

    source: Model
    settings: MemorySettings
    capability: tuple[int, int]
    batch_fn: Callable[[int, int, int], dict[str, Any]] | None = None
    points: Sequence[tuple[int, int, int]] | None = None
    length_per_second: float = SAMPLING_RATE
    loss: Callable[[Any, dict[str, Any]], Any] | None = None

    def __post_init__(self) -> None:
        if self.batch_fn is not None and not callable(self.batch_fn):
            raise InvalidArgumentError(
                f"batch_fn is {kind_of(self.batch_fn)}, not a function",
                "pass batch_fn(batch, length, labels) -> the model's keyword arguments as tensors",
            )
        if checked("length_per_second", self.length_per_second, float) <= 0:
            raise InvalidArgumentError("length_per_second is not positive", "16000 for samples, 100 for mel frames")

    def key(self, model_key: str) -> str:
        """The key of the trace in the cache."""
        s = self.settings
        checkpointing = "non_reentrant" if s.gradient_checkpointing is True else s.gradient_checkpointing
        depth = (checkpointing, s.every_n_layers, s.offload_checkpoints)
        settings = [s.precision, depth, s.optimizer, min(s.accumulation, _WINDOW), kernel_class(self.capability)]
        settings += [s.lora_rank] if s.lora_rank else []
        return fingerprint(model_key, settings, self._input(), code_versions())

    def _input(self) -> Any:
        """What identifies own batches and own shapes; None for those that follow from the model."""
        if self.batch_fn is None or not can_trace():
            return self.points
        from ..trace.made_up_batches import batch_identity

        batches = self._batches(self.batch_fn)
        points = batches.points() if self.points is None else self.points
        try:
            return [self.points, batches.facts(), batch_identity(self.batch_fn, points)]
        except Exception as error:  # of the user's function: recording raises it, too, with a clearer message
            return named(error)

    def opened(self, key: str | None, progress: bool) -> dict[str, Any]:
        """Open the trace that the cache has under ``key``, else record it."""
        path = None if key is None else TraceCache().find(key)
        if path is not None:
            # Another process may have removed it; a torn file is written again.
            with contextlib.suppress(NotFoundError, CorruptFileError):
                return dict(native.call("memory.open", {"path": str(path)}))
        return self.make(key, progress)

    def make(self, key: str | None, progress: bool) -> dict[str, Any]:
        """Record, keep the trace under ``key``, and open it."""
        data = self.trace(progress).to_bytes()
        if key is not None:
            TraceCache().store(key, data)
        return open_trace(data)

    def trace(self, progress: bool = False) -> Trace:
        """Record."""
        if not can_trace():
            raise UnsupportedError(
                "a training step is traced with torch and transformers, which are not installed here",
                'pip install torch transformers, or ask with estimator="published"',
            )
        title = f"Tracing {self.source.label}, {self.settings.step_words()}"
        with ProgressBar(title, "step", None, progress) as advance:
            return self._run(advance)

    def _run(self, advance: Callable[[int, int | None], None]) -> Trace:
        from ..trace.event_log import TraceError
        from ..trace.step_tracing import trace_training

        s, source = self.settings, self.source
        optimizer = cast("Optimizer", s.optimizer)  # others are refused
        try:
            return trace_training(
                source.passed if source.is_module else source.build, self.batch_fn and self._batches(self.batch_fn),
                points=self.points, optimizer=optimizer, precision=s.precision,
                gradient_checkpointing=s.gradient_checkpointing, every_n_layers=s.every_n_layers,
                offload_checkpoints=s.offload_checkpoints, accumulation=s.accumulation, loss=self.loss,
                compute_capability=self.capability, progress=advance, lora_rank=s.lora_rank,
            )  # fmt: skip
        except AsrConfigError:
            raise
        except Exception as error:
            hint = (
                "check that batch_fn returns the model's keyword arguments" if self.batch_fn else "train it for a step"
            )
            raise TraceError(f"{source.label} failed in its training step: {named(error)}", hint) from error

    def _batches(self, batch_fn: Callable[[int, int, int], dict[str, Any]]) -> SpeechBatches:
        from ..trace.made_up_batches import SpeechBatches

        return batch_fn if isinstance(batch_fn, SpeechBatches) else SpeechBatches(batch_fn, self.length_per_second)


def open_trace(data: bytes) -> dict[str, Any]:
    """Open the content of a trace's file."""
    return dict(native.call("memory.open", {"trace": base64.b64encode(data).decode()}))


def kernel_class(capability: tuple[int, int]) -> int:
    """The oldest major compute capability with the same traces: attention, workspaces and TF32 differ between them."""
    return next((oldest for oldest in (9, 8, 7) if capability[0] >= oldest), 0)


def named(error: Exception) -> str:
    """An exception in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


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


def open_recording(name: str, settings: MemorySettings, kernels: int) -> dict[str, Any] | None:
    """Open the recording of a known model; None where there is none with these settings."""
    file, wanted = _index()["files"].get(name), RecordedSettings.of(settings, kernels)
    if file is None or wanted is None:
        return None
    header, content = _content(file)
    for document in header:
        if RecordedSettings(*document["settings"]) == wanted:
            body = _absolute(json.loads(content[document["begin"] : document["end"]]))
            return open_trace(gzip.compress(json.dumps(body, separators=(",", ":")).encode(), compresslevel=1))
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
