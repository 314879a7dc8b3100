"""A stand-in for NVIDIA's driver library whose figures change while it is in use (core/hardware/testdata/fake_nvml.c).

Peers find it by ``LD_LIBRARY_PATH``, this package by ``library_path``; both read what ``Control`` writes.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "core" / "hardware" / "testdata" / "fake_nvml.c"
FIELDS = (
    *("set", "result", "used", "utilization", "memory_busy", "power_mw", "temperature", "clock"),
    *("throttle", "pcie_in", "pcie_out", "nvlink_kib", "ecc", "xid", "sm", "tensor"),
)
AT_WORK = {"set": 1, "utilization": 87, "memory_busy": 40, "power_mw": 250_000, "temperature": 61, "clock": 1410}
MAX_GPUS = 16


class Control:
    """The figures of every GPU, in memory that the driver reads at each call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(MAX_GPUS * len(FIELDS) * 8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def put(self, gpu: int, **figures: int) -> None:
        """Let one GPU have these figures from now on; what is not named stays."""
        for name, value in figures.items():
            struct.pack_into("Q", self._map, (gpu * len(FIELDS) + FIELDS.index(name)) * 8, value)


def build(folder: Path, machine: str = "EIGHT_A100") -> tuple[Path, Control]:
    """Compile the driver of a machine into ``folder``; its figures are all those of a card at work with 2 GiB used."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the stand-in for the driver needs a C compiler")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-O2", "-shared", "-fPIC", f"-DMACHINE_{machine}", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    control = Control(folder / "control")
    for gpu in range(MAX_GPUS):
        control.put(gpu, used=2 << 30, **AT_WORK)
    return library, control


def environment(library: Path, control: Control) -> dict[str, str]:
    """The environment of a process in which everyone finds the driver."""
    path = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        **os.environ,
        "FAKE_NVML_CONTROL": str(control.path),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(library.parent), path])),
    }
