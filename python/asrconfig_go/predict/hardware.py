"""The machine as training sees it: GPUs, CPU and RAM within cgroups, and tables of measured kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._core import native
from .._core.declared import MARGIN_RANGE
from .._core.files import cache_folder, read_object, write_whole
from .._core.records import from_json
from .._core.render import Shown
from .._core.settings import SAFETY_MARGIN
from ..errors import AsrConfigError, InvalidArgumentError
from .predict_records import HardwareRecord


@dataclass(frozen=True, repr=False)
class HardwareProfile(Shown, HardwareRecord, kind="hardware"):
    """The hardware of one machine.

    Attributes:
        gpus: The visible GPUs in CUDA's order; empty without a GPU.
        no_gpu_reason: Why there is no GPU, in words; ``""`` with GPUs.
        order_note: Why CUDA may have selected other GPUs than those listed; ``""`` where it has not.
        safety_margin: The share of memory that a plan may use, 0.70 to 0.95.

    Example:
        >>> HardwareProfile.detect("2xT4").gpus[0].name
        'Tesla T4'
    """

    safety_margin: float = field(default=SAFETY_MARGIN, metadata={"local": True})

    def __post_init__(self) -> None:
        check_margin(self.safety_margin)

    @classmethod
    def detect(cls, gpu: str | None = None, safety_margin: float = SAFETY_MARGIN) -> HardwareProfile:
        """Measure this machine, or describe a GPU of the catalogue.

        ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` are respected.

        Args:
            gpu: A GPU of the catalogue: ``"T4"``, ``"2xT4"``, ``"A100-40GB"``; None for this machine's.
            safety_margin: The share of memory that a plan may use, 0.70 to 0.95.

        Returns:
            The profile. CPU and RAM are this machine's in either case.

        Raises:
            NotFoundError: The name of the GPU is unknown.
            InvalidArgumentError: ``gpu`` is not a name, or ``safety_margin`` is out of its range.
        """
        check_margin(safety_margin)
        if gpu is not None and not (gpu and isinstance(gpu, str)):
            raise InvalidArgumentError(f"gpu = {gpu!r} is not a name", 'write it as text, such as gpu="T4"')
        profile = from_json(cls, native.call("hardware.detect", {"gpu": gpu or "", **driver_arguments()}))
        return dataclasses.replace(profile, safety_margin=safety_margin)

    @property
    def gpu_name(self) -> str:
        """The name of the first GPU; ``""`` without one."""
        return self.gpus[0].name if self.gpus else ""

    @property
    def compute_capability(self) -> str:
        """The compute capability of the first GPU; ``""`` without one."""
        return self.gpus[0].compute_capability if self.gpus else ""

    @property
    def total_gpu_memory_bytes(self) -> int | None:
        """The memory of the smallest GPU, which limits a batch; None without one."""
        return min((g.memory_total_bytes for g in self.gpus), default=None)

    @property
    def usable_memory_bytes(self) -> int:
        """The bytes that a plan may use: GPU memory × safety margin, or available RAM × safety margin without a GPU."""
        total = self.total_gpu_memory_bytes
        return int((self.memory.available_bytes if total is None else total) * self.safety_margin)


def check_margin(margin: float) -> None:
    """Raise ``InvalidArgumentError`` for a safety margin that is not a number between 0.70 and 0.95."""
    low, high = MARGIN_RANGE
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not low <= margin <= high:
        raise InvalidArgumentError(
            f"safety_margin = {margin!r} is not between 0.70 and 0.95",
            f"{SAFETY_MARGIN} keeps 15 % of the memory free for fragmentation and other processes",
        )


def driver_arguments() -> dict[str, Any]:
    """The selection and order of GPUs for the library: Go reads the environment once, before Python changes it."""
    return {
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "device_order": os.environ.get("CUDA_DEVICE_ORDER", ""),
        "cuda_order": cuda_order(),
    }


def cuda_order() -> list[str] | None:
    """The UUIDs of this process's GPUs in CUDA's order; None before CUDA runs, or where it does not answer."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    try:
        uuids = [uuid_of(cuda.get_device_properties(i)) for i in range(cuda.device_count())]
    except RuntimeError:  # as after an illegal memory access
        return None
    return uuids if all(uuids) else None


def uuid_of(properties: object) -> str:
    """The UUID of a device's ``properties``, ``""`` where this version of PyTorch does not report it."""
    uuid = getattr(properties, "uuid", None)
    return "" if uuid is None else f"GPU-{uuid}"


_HINT = "measure the card: asrconfig profile-gpu"
_MAX_CARDS = 64


def read_kernel_profile(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The profile of a card by its table, as plans take it.

    Raises ``NotFoundError`` and ``CorruptFileError`` for a file that is no table, ``InvalidArgumentError`` for one that
    contradicts itself or its card.
    """
    return kernel_profile(read_object(path, "table of kernels", _HINT))


def kernel_profile(table: dict[str, Any]) -> dict[str, Any]:
    """The profile of a card by its table; raises as ``read_kernel_profile``."""
    return dict(native.call("timing.profile", {"table": json.dumps(table)}))


def store_kernel_table(table: dict[str, Any], card: str) -> Path:
    """Keep a table for later plans, in place of an earlier one of its card. Raises ``OSError`` if it cannot."""
    path = cache_folder("kernels") / f"{''.join(c if c.isalnum() else '-' for c in card)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(table).encode())
    return path


def known_kernel_profiles() -> list[dict[str, Any]]:
    """The profiles of every measured card; broken tables are ignored."""
    profiles = []
    for path in _paths():
        with contextlib.suppress(AsrConfigError):
            profiles.append(read_kernel_profile(path))
    return profiles


def stored_kernel_tables() -> list[str]:
    """A line for each table of the cache folder: its path, card, day and versions, or why plans do not use it."""
    lines = []
    for path in _paths():
        try:
            table = read_object(path, "table of kernels", _HINT)
            profile = kernel_profile(table)
        except AsrConfigError as error:
            lines.append(f"{path}: not used, {error.message}")
        else:
            versions = f"torch {table['torch']}, CUDA {table['cuda']}, driver {table['driver']}"
            lines.append(f"{path}: {profile['gpu']}, {profile['date']}, {len(table['kernels'])} kernels, {versions}")
    return lines


def _paths() -> list[Path]:
    try:
        return sorted(cache_folder("kernels").glob("*.json"))[:_MAX_CARDS]
    except OSError:
        return []


FOLDER = "/dev/shm"


def free_shared_memory() -> int | None:
    """Bytes that are free in it; None where the system has no such folder."""
    return shutil.disk_usage(FOLDER).free if Path(FOLDER).is_dir() else None
