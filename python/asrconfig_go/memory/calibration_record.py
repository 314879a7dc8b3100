"""Measured over predicted memory: one factor for each model, GPU and torch version."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._base.errors import AsrConfigError
from .._base.files import cache_folder, write_whole
from .._base.fingerprint import fingerprint
from .._base.json_files import read_object
from .._base.records import from_json


@dataclass(frozen=True)
class Calibration:
    """One measurement; sizes in bytes.

    ``factor`` is measured over predicted peak reserved memory. ``context_bytes`` is what the process had on the GPU
    besides the allocator's memory; None where the driver does not report it.
    """

    model: str
    gpu: str
    torch: str
    day: str
    batch: int
    seconds: float
    factor: float
    measured_allocated: int
    measured_reserved: int
    predicted_allocated: int
    predicted_reserved: int
    context_bytes: int | None

    def words(self) -> str:
        """One line for people."""
        return f"calibrated on {self.gpu}, torch {self.torch}, {self.day}: factor {self.factor:.3f}"


def find_calibration(model_key: str | None, gpu: str) -> Calibration | None:
    """The calibration of this model on this GPU with the installed torch; None if there is none, or it is broken."""
    if model_key is None or not gpu:
        return None
    try:
        content = read_object(calibration_file(model_key, gpu, torch_version()), "calibration", "")
        calibration = from_json(Calibration, content)
    except AsrConfigError:
        return None
    return calibration if 0.1 < calibration.factor < 10 else None


def store_calibration(model_key: str, calibration: Calibration) -> Path:
    """Keep a measurement for later estimates, in place of an earlier one."""
    path = calibration_file(model_key, calibration.gpu, calibration.torch)
    write_calibration(path, asdict(calibration))
    return path


def write_calibration(path: Path, content: Any) -> None:
    """Replace the file's content. Raises ``OSError`` where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=2).encode())


def torch_version() -> str:
    """The installed torch, "" without one; torch is not imported for the answer."""
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def calibration_file(*key: str) -> Path:
    """The file of a calibration, of memory or of time, with this key."""
    return cache_folder("calibrations") / f"{fingerprint(*key)}.json"
