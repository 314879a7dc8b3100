"""What is kept of a run beside its checkpoints: its batch, its limits, its random numbers, so that it can be resumed.

It is a folder, ``.asrconfig``, in the Trainer's ``output_dir``. Its files are there whole or not at all, whenever the
process is killed:

- ``run.json``: the ``RunRecord``, written by the processes that save checkpoints;
- ``begin.json``, ``epoch-<global step>.json``: the CPU's random number generators before the first step and at the
  begin of each epoch, with ``-rank<n>`` of any process but the first. Orders of samples are drawn from them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ._errors import CorruptFileError, VersionMismatchError
from ._files import write_whole
from .training_report import GuardEvent, Restart

logger = logging.getLogger("asrconfig_go")

_FOLDER = ".asrconfig"
_SCHEMA = 1
_BEGIN = "begin"
_HINT = "remove that folder to go on without the run's record"


@dataclass
class RunRecord:
    """One run, over all its processes.

    ``batch`` is (samples a device and batch, accumulation, devices); ``gpu`` is (name, bytes), None on a CPU;
    ``rule`` is what the guard weights losses by, and what the configuration makes likely; another first batch might
    tell otherwise. ``limits`` are those of the guard by place, (samples, values); ``micro_batch`` is what a device
    should take at most where the guard cannot cut batches; ``foreign`` names checkpoints in the folder that are not of
    this run.
    """

    batch: tuple[int, int, int]
    processes: int
    samples: int | None
    gpu: tuple[str, int] | None
    max_steps: int = 0
    rule: tuple[str, str] | None = None
    limits: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    micro_batch: int | None = None
    events: list[GuardEvent] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def effective_batch(self) -> int:
        """Samples of an optimizer step."""
        size, accumulation, devices = self.batch
        return size * accumulation * devices

    def to_json(self) -> bytes:
        """As ``from_json`` takes it."""
        told = {"schema": _SCHEMA, "effective_batch": self.effective_batch, **asdict(self)}
        return json.dumps(told, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> RunRecord:
        """Raises ``ValueError``, ``LookupError`` or ``TypeError`` for anything but a record."""
        told = json.loads(data)
        if told.pop("schema") != _SCHEMA:
            raise VersionMismatchError("the record of the run was written by another version", _HINT)
        del told["effective_batch"]
        told["batch"] = tuple(int(n) for n in told["batch"])
        for name in ("gpu", "rule"):
            told[name] = told[name] and tuple(told[name])
        told["limits"] = {place: tuple(limits) for place, limits in told["limits"].items()}
        told["events"] = [GuardEvent(**event) for event in told["events"]]
        told["restarts"] = [Restart(**restart) for restart in told["restarts"]]
        return cls(**told)


class RunFolder:
    """The record's files of one process. Those that cannot be written are missed only when the run is resumed."""

    def __init__(self, output: Path, rank: int = 0) -> None:
        self.path, self._suffix = output / _FOLDER, f"-rank{rank}" if rank else ""
        self._told = False

    def read(self) -> RunRecord | None:
        """The record, None where there is none."""
        path = self.path / "run.json"
        try:
            return RunRecord.from_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CorruptFileError(f"{path} cannot be read: {error!r}", _HINT) from error

    def write(self, record: RunRecord) -> None:
        """Put the record in the place of the one that is there."""
        self._write("run.json", record.to_json)

    def read_states(self) -> tuple[dict[str, Any] | None, dict[int, dict[str, Any]]]:
        """The random numbers before the first step, and by the global step at which an epoch begins.

        Those of the first process where this one has none: there were fewer, and orders are common to all.
        """
        begin = self._state(_BEGIN)
        steps = {int(path.stem.split("-")[1]) for path in self.path.glob("epoch-*.json")}
        epochs = {step: self._state(f"epoch-{step}") for step in steps}
        return begin, {step: state for step, state in epochs.items() if state is not None}

    def write_state(self, state: dict[str, Any], step: int | None = None) -> None:
        """Keep the random numbers of an epoch that begins, or those before the first step."""
        name = _BEGIN if step is None else f"epoch-{step}"
        self._write(f"{name}{self._suffix}.json", lambda: _state_to_json(state))

    def drop_epochs(self, kept: Collection[int] = ()) -> None:
        """Remove the random numbers of this process at other epochs than those ``kept``."""
        for path in self.path.glob("epoch-*.json"):
            _, step, *rank = path.stem.split("-")
            if int(step) not in kept and "".join(f"-{part}" for part in rank) == self._suffix:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the record of an earlier run."""
        self.drop_leftovers()
        for path in self.path.glob("*.json"):
            path.unlink(missing_ok=True)

    def drop_leftovers(self) -> None:
        """Remove what killed processes were writing."""
        for path in self.path.glob("*.part"):
            path.unlink(missing_ok=True)

    def _state(self, name: str) -> dict[str, Any] | None:
        for suffix in dict.fromkeys((self._suffix, "")):
            path = self.path / f"{name}{suffix}.json"
            if path.is_file():
                try:
                    return _state_from_json(path.read_bytes())
                except (ValueError, LookupError, TypeError) as error:
                    raise CorruptFileError(f"{path} cannot be read: {error!r}", _HINT) from error
        return None

    def _write(self, name: str, data: Callable[[], bytes]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / name, data())
        except OSError as error:
            if not self._told:
                logger.warning("cannot keep a record of the run (%s): it cannot be resumed exactly", error)
            self._told = True


def folder_of(trainer: Any, output: str | os.PathLike[str] | None = None) -> RunFolder:
    """The record's folder of a Trainer's process, in ``output`` if that is not the Trainer's own."""
    return RunFolder(Path(output or trainer.args.output_dir), trainer.args.process_index)


def _state_to_json(state: dict[str, Any]) -> bytes:
    kind, keys, *rest = state["numpy"]
    told = {
        "python": state["python"],
        "numpy": [kind, [int(key) for key in keys], *rest],
        "torch": bytes(state["torch"].tolist()).hex(),
    }
    return json.dumps(told).encode()


def _state_from_json(data: bytes) -> dict[str, Any]:
    """As ``randomness.set_cpu_state`` takes it."""
    import numpy as np
    import torch

    told = json.loads(data)
    version, internal, gauss = told["python"]
    kind, keys, *rest = told["numpy"]
    return {
        "python": (version, tuple(internal), gauss),
        "numpy": (kind, np.array(keys, dtype=np.uint32), *rest),
        "torch": torch.tensor(list(bytes.fromhex(told["torch"])), dtype=torch.uint8),
    }
