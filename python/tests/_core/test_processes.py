"""Whole processes: a driver played by a fake library, and DataLoader workers forked beside a running monitor."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from locations import REPOSITORY
from own_process import run

SOURCE = REPOSITORY / "core" / "hardware" / "testdata" / "fake_nvml.c"


def detected(machine: str, folder: Path) -> dict[str, Any]:
    """What the library finds on a recorded machine, by a driver library compiled for it, in a process of its own."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the fake driver needs a C compiler")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", f"-DMACHINE_{machine}", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    done = run(f"""
        import json
        from asrconfig_go import MemoryMonitor
        from asrconfig_go._core import native
        found = native.call("hardware.detect", {{"library_path": {str(library)!r}}})
        with MemoryMonitor(10, library_path={str(library)!r}) as monitor:
            found["shares"] = [gpu.fraction for gpu in monitor.read().gpus]
        print(json.dumps(found))
    """)
    assert done.returncode == 0, done.stderr
    hardware: dict[str, Any] = json.loads(done.stdout)
    return hardware


@pytest.mark.parametrize(
    ("machine", "names", "mib", "bf16"),
    [
        ("T4", ["Tesla T4"], 15360, False),
        ("L4", ["NVIDIA L4"], 23034, True),
        ("A100", ["NVIDIA A100-SXM4-40GB"], 40960, True),
        ("TWO_T4", ["Tesla T4", "Tesla T4"], 15360, False),
        ("H100_MIG", ["NVIDIA H100 80GB HBM3 MIG 3g.40gb"], 40448, True),
    ],
)
def test_recorded_machines(tmp_path: Path, machine: str, names: list[str], mib: int, bf16: bool) -> None:
    hardware = detected(machine, tmp_path)
    assert [gpu["name"] for gpu in hardware["gpus"]] == names
    assert [gpu["memory_total_bytes"] for gpu in hardware["gpus"]] == [mib << 20] * len(names)
    assert [gpu["bf16"] for gpu in hardware["gpus"]] == [bf16] * len(names)
    assert hardware["no_gpu_reason"] == ""
    assert all(0 <= share < 0.2 for share in hardware["shares"])


@pytest.mark.slow
def test_data_loader_workers_beside_a_monitor() -> None:
    """Fifty epochs with forked workers while the sampler runs, and none hangs; a worker that calls in is refused."""
    pytest.importorskip("torch")
    done = run(
        """
        import torch
        from torch.utils.data import DataLoader, Dataset
        import asrconfig_go as ac
        from asrconfig_go.errors import ForkedProcessError
        from asrconfig_go.predict import HardwareProfile

        class Clips(Dataset):
            def __init__(self, calls): self.calls = calls
            def __len__(self): return 8
            def __getitem__(self, i):
                if self.calls:
                    try:
                        ac.scan_audio([[0.0]])
                    except ForkedProcessError:
                        return -1
                return i

        HardwareProfile.detect()
        with ac.MemoryMonitor(10) as monitor:
            for epoch in range(50):
                loader = DataLoader(Clips(False), batch_size=2, num_workers=2, multiprocessing_context="fork")
                assert sum(int(b.sum()) for b in loader) == 28
                assert monitor.read().samples > 0
            loader = DataLoader(Clips(True), batch_size=2, num_workers=2, multiprocessing_context="fork")
            refused = sum(int((b == -1).sum()) for b in loader)
            print("samples grew", monitor.read().samples > 1, "refused", refused)
        """,
    )
    assert done.stdout.strip() == "samples grew True refused 8", done.stderr
