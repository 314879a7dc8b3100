"""The files of a run, and their export for other programs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

from .._core import native
from .._core.files import read_object, save_whole, user_path
from .._core.records import to_json
from .._core.render import Record
from ..errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError
from ..guard.training_report import PREFIX, MemoryFailure, read_failure
from ..train.checkpoints import checkpoints
from ..train.run_record import RunFolder, RunRecord
from .memory_summary import RankPeaks, rank_peaks
from .telemetry import RunLog

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor

T = TypeVar("T")


Logged = dict[str, float | None]
"""An entry of the Trainer's ``log_history``; None: no finite number."""

Run: TypeAlias = "MemoryMonitor | RunLog | str | os.PathLike[str]"
"""What a report takes: a monitor, its run log, the folder of a training, or a monitor's file."""
ExportFormat = Literal["csv", "jsonl", "chrome"]
"""The formats of an exported run log; ``"chrome"`` is the trace format of Chrome and Perfetto."""
FILE_NAME = "asrconfig_monitor"
_ASIDE = "remove it, or report without it"
_WANTED = "name the output_dir of a training, or its asrconfig_monitor.json"


@dataclass(frozen=True)
class Source:
    """What one monitor of a run recorded; ``name`` is the suffix of its file's name, "" for the first."""

    name: str
    run_log: RunLog

    def to_json(self) -> Record:
        """The source in the library's format."""
        return {"name": self.name, "run_log": to_json(self.run_log)}


@dataclass(frozen=True)
class TrainerState:
    """The Trainer's own figures, from ``trainer_state.json``. None for those it lacks."""

    global_step: int
    max_steps: int | None
    epoch: float | None
    last_loss: float | None
    best_metric: float | None


@dataclass(frozen=True)
class Gathered:
    """A run's parts; ``notes`` list files beside the run logs that cannot be read."""

    sources: tuple[Source, ...]
    record: RunRecord | None = None
    trainer: TrainerState | None = None
    ranks: tuple[RankPeaks, ...] = ()
    failures: tuple[MemoryFailure, ...] = ()
    plan: Record | None = None  # training_config.json and trainer_state.json, as JSON
    state: Record | None = None
    history: tuple[Logged, ...] = ()
    notes: tuple[str, ...] = ()


def gather(run: Run) -> Gathered:
    """The parts of ``run``: a run log, something that has one (a monitor), a run's folder, or a monitor's file."""
    if isinstance(run, RunLog):
        return Gathered((Source("", run),))
    if not isinstance(run, str | os.PathLike):
        if callable(read := getattr(run, "run_log", None)):
            return Gathered((Source("", read()),))
        raise InvalidArgumentError(
            f"{type(run).__name__} is not a run", f"pass a MemoryMonitor or a RunLog, or {_WANTED}"
        )
    path = user_path(run, "run")
    if not path.exists():
        raise NotFoundError(f"there is no run at {str(path)!r}", _WANTED)
    files = _run_logs_in(path) if path.is_dir() else [path]
    notes: list[str] = []
    folder = path if path.is_dir() else path.parent
    record = _aside(notes, RunFolder(folder).read)
    state = _aside(notes, lambda: _trainer_state(folder))
    path = folder / "training_config.json"
    plan = _aside(notes, lambda: read_object(path, "plan", _ASIDE)) if path.is_file() else None
    ranks = _aside(notes, lambda: rank_peaks(RunFolder(folder).path)) or ()
    sources = _loaded(files, notes)
    trainer, state_json, history = state or (None, None, ())
    read = [_aside(notes, partial(read_failure, path)) for path in sorted(folder.glob(f"{PREFIX}*.json"))]
    since = min(source.run_log.start_unix_nanos for source in sources) / 1e9  # others are of an earlier training
    failures = tuple(failure for failure in read if failure is not None and failure.at_unix_s >= since)
    return Gathered(sources, record, trainer, ranks, failures, plan, state_json, history, tuple(notes))


def guard_events(record: RunRecord | None) -> list[Record] | None:
    """What the guard did, in the library's format; None if it kept no record."""
    if record is None:
        return None
    events = [{"step": e.global_step, "kind": "guard", "text": str(e)} for e in record.events]
    events += [{"step": b.global_step, "kind": "bad clips", "text": str(b)} for b in record.bad_batches]
    return events + [{"step": r.step, "kind": "restart", "text": str(r)} for r in record.restarts]


def _run_logs_in(folder: Path) -> list[Path]:
    files = sorted(folder.glob(f"{FILE_NAME}*.json"), key=lambda file: file.stem)
    if not files:
        raise NotFoundError(
            f"{str(folder)!r} holds no {FILE_NAME}.json",
            f"{_WANTED}; AdaptiveMemoryCallback writes it, and MemoryMonitor.save",
        )
    return files


def _loaded(files: list[Path], notes: list[str]) -> tuple[Source, ...]:
    """Load the readable files; raises the first file's error if none is readable."""
    sources, errors = [], []
    for file in files:
        try:
            sources.append(Source(_added(file), RunLog.load(file)))
        except AsrConfigError as error:
            errors.append(error)
    if not sources:
        raise errors[0]
    notes += [error.message for error in errors]
    return tuple(sources)


def _added(file: Path) -> str:
    """``node1`` of ``asrconfig_monitor-node1.json``."""
    return file.stem.removeprefix(FILE_NAME).lstrip("-_.") if file.stem.startswith(FILE_NAME) else ""


def _aside(notes: list[str], read: Callable[[], T]) -> T | None:
    """Read a file beside the run logs; a problem with it becomes a note instead of an error."""
    try:
        return read()
    except AsrConfigError as error:
        notes.append(f"{error.message}; {error.hint}" if error.hint else error.message)
        return None


def _trainer_state(folder: Path) -> tuple[TrainerState, Record, tuple[Logged, ...]] | None:
    places = (path / "trainer_state.json" for path in (folder, *reversed(checkpoints(folder))))
    if (path := next((place for place in places if place.is_file()), None)) is None:
        return None
    content = read_object(path, "Trainer's state", _ASIDE)
    try:
        history = tuple(
            {name: _number(value) for name, value in entry.items()} for entry in content.get("log_history") or ()
        )
        losses = [entry["loss"] for entry in history if "loss" in entry]
        state = TrainerState(
            global_step=int(content["global_step"]),
            max_steps=int(content["max_steps"]) if content.get("max_steps") else None,
            epoch=_number(content.get("epoch")),
            last_loss=losses[-1] if losses else None,
            best_metric=_number(content.get("best_metric")),
        )
        return state, content, history
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptFileError(f"{path} cannot be read: {error!r}", _ASIDE) from error


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


_SUFFIXES: dict[str, ExportFormat] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "chrome"}


def export(run_log: Run, path: str | os.PathLike[str], format: ExportFormat | None = None) -> None:
    """Write what a monitor recorded to a file for other programs, completely or not at all.

    Args:
        run_log: The run, as ``report`` takes it: a monitor, its run log, the folder of a training or a monitor's file.
        path: The file to write. Names of a monitor's own files (``asrconfig_monitor*.json``) are refused.
        format: ``"csv"`` (a table with a row for each point, step, event and alert), ``"jsonl"`` (the same as one
            object a line, after one about the run) or ``"chrome"`` (for chrome://tracing and
            https://ui.perfetto.dev). None for the one of the suffix: .csv, .jsonl or .ndjson, .json.

    Raises:
        InvalidArgumentError: The format is unknown, the name is refused, or ``run_log`` is not a run.
        NotFoundError: There is no run, or the file cannot be written.
        CorruptFileError: A file of the run cannot be read: see ``report``.
        VersionMismatchError: A file of the run has another version.

    Example:
        >>> with MemoryMonitor(interval_ms=20) as monitor:
        ...     monitor.step(1, audio_s=4.0)
        >>> export(monitor, "run.csv")
    """
    file = Path(path)
    written = format or _SUFFIXES.get(file.suffix.lower())
    if written not in get_args(ExportFormat):
        problem = f"unknown format {format!r}" if format else f"cannot tell from {file.name!r} what to write"
        hint = 'name a file .csv, .jsonl or .json, or pass format="csv", "jsonl" or "chrome"'
        raise InvalidArgumentError(problem, hint)
    if file.suffix == ".json" and file.name.startswith(FILE_NAME):
        raise InvalidArgumentError(f"{file.name} is reserved for a monitor's own files", "choose another name")
    sources = [source.to_json() for source in gather(run_log).sources]
    save_whole(file, bytes(native.exchange("report.export", {"sources": sources, "format": written})[1]))


# The name in TrainingArguments and in a configuration, and the type, of each setting of a report.
_NAMES: dict[str, tuple[str, type]] = {
    "per_device_batch": ("per_device_train_batch_size", int),
    "accumulation": ("gradient_accumulation_steps", int),
    "workers": ("dataloader_num_workers", int),
    "prefetch": ("dataloader_prefetch_factor", int),
    "persistent_workers": ("dataloader_persistent_workers", bool),
    "pin_memory": ("dataloader_pin_memory", bool),
    "logging_steps": ("logging_steps", int),
    "eval_steps": ("eval_steps", int),
    "save_steps": ("save_steps", int),
}


def settings_of(sources: Iterable[object], record: RunRecord | None) -> dict[str, object]:
    """The settings of ``sources`` (objects or mappings, those that win first) and of the guard's ``record``."""
    settings: dict[str, object] = {}
    for one in sources:
        settings = _of(one) | settings
    if record is not None:
        size, accumulation, devices = record.batch
        settings |= {"per_device_batch": size, "accumulation": accumulation, "devices": devices}
    return settings


def _of(source: object) -> dict[str, object]:
    def value(name: str) -> object:
        return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)

    # Some may be a fraction of all steps instead of a number; those are left out.
    settings: dict[str, object] = {
        key: value(name) for key, (name, kind) in _NAMES.items() if type(value(name)) is kind
    }
    devices = value("world_size") or value("device_count")
    if type(devices) is int:
        settings["devices"] = devices
    if type(value("bf16")) is bool and type(value("fp16")) is bool:
        settings["precision"] = "bf16" if value("bf16") else "fp16" if value("fp16") else "fp32"
    return settings
