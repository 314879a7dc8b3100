"""The stand-in CUDA runtime under the real torch.cuda: figures of the cards, memory, its limit, devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_standin import StandinError, load, why_not
from cuda_standin.cards import card

from cuda_tests.forked import run_on_cuda
from cuda_tests.process import stand_in, torch_version  # noqa: F401

MIB = 2**20
BUILD = Path(__file__).parents[3] / "build"
LIMIT = 512 * MIB


@pytest.mark.parametrize(
    ("gpu", "name", "memory_mib", "multiprocessors", "capability", "l2_mib", "bf16"),
    [
        ("T4", "Tesla T4", 15360, 40, [7, 5], 4, False),
        ("L4", "NVIDIA L4", 23034, 58, [8, 9], 48, True),
    ],
)
def test_device_has_the_catalogues_figures(
    gpu: str, name: str, memory_mib: int, multiprocessors: int, capability: list[int], l2_mib: int, bf16: bool
) -> None:
    context = 300 * MIB
    assert run_on_cuda("device", gpu=gpu, context_bytes=context) == {
        "name": name,
        "memory": memory_mib * MIB,
        "multiprocessors": multiprocessors,
        "capability": capability,
        "l2": l2_mib * MIB if torch_version() >= (2, 5) else None,
        "free": memory_mib * MIB - context,
        "count": 1,
        "bf16": bf16,
    }


@pytest.mark.parametrize(
    ("gpu", "memory", "message"),
    [
        ("T5", None, "unknown GPU 'T5': expected one of the catalogue's \\(K80, "),
        ("T4", 0, "invalid memory_bytes 0: expected more than 0"),
    ],
)
def test_unknown_card(gpu: str, memory: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        card(gpu, memory)


def test_card_of_a_capability_without_known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda_standin.cards._LIMITS", {})
    with pytest.raises(ValueError, match=r"cannot stand in for T4: the catalogue lacks limits of capability 7\.5"):
        card("T4")


@pytest.mark.parametrize(("devices", "memory"), [(0, None), (17, None), (2, [LIMIT])])
def test_invalid_number_of_devices(devices: int, memory: list[int] | None) -> None:
    with pytest.raises(ValueError, match=r"expected (1 to 16|one, or one for each device)"):
        load(memory_bytes=memory, devices=devices)


def test_reason_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_not() == "cc was not found: the stand-in CUDA runtime needs a C compiler"


@pytest.mark.parametrize(
    ("folder", "reason"),
    [(None, "torch is not installed"), ("cpu", "the installed torch has no CUDA build")],
)
def test_reason_without_torchs_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str | None, reason: str
) -> None:
    (tmp_path / "version.py").write_text("__version__ = '2.15.0+cpu'\ncuda: Optional[str] = None\n")
    monkeypatch.setattr("cuda_standin.libraries.torch_folder", lambda: folder and tmp_path)
    assert why_not() == reason


def test_too_late_after_torch() -> None:
    pytest.importorskip("torch")
    with pytest.raises(StandinError, match="torch is already imported"):
        load()


def test_statistics_are_the_allocators() -> None:
    found = run_on_cuda("statistics")
    small, large = 2 * MIB, 20 * MIB  # segments of the caching allocator
    assert found["segments"] == [small, large]
    assert found["readings"] == [
        [512, small],
        [512 + 1024, small],
        [512 + 1024 + MIB, small],
        [512 + 1024 + 4 * MIB, small + large],
        [512 + 1024 + 16 * MIB, small + large],
        [0, small + large],
        [0, 0],
    ]


def test_out_of_memory_at_the_limit_and_after_it() -> None:
    found = run_on_cuda("out_of_memory", memory_bytes=LIMIT)
    assert "CUDA out of memory. Tried to allocate 64.00 MiB" in found.pop("message")
    assert found == {"fitted": 8, "free": 0, "whole": LIMIT, "ooms": 1, "retries": 1}


def test_memory_is_taken_and_given_back_while_the_process_runs() -> None:
    found = run_on_cuda("memory_taken", memory_bytes=LIMIT)
    assert (found["left"], found["half"], found["fits"]) == (4 * MIB, 8 * MIB, True)
    assert "Tried to allocate 20.00 MiB" in found["message"]  # the segment for 8 MiB
    assert "4.00 MiB is free" in found["message"]
    assert "this process has 0 bytes memory in use" in found["message"]  # what was taken is something else's
    assert [text.split(":")[0] for text in found["refusals"]] == [
        f"cannot take {LIMIT} bytes of device 0",
        "cannot take 1 bytes of device 1",
        f"cannot give {LIMIT} bytes of device 0 back",
    ]


def test_two_devices_with_limits_of_their_own() -> None:
    found = run_on_cuda("two_devices", gpu=["T4", "A100"], memory_bytes=[256 * MIB, LIMIT], devices=2)
    assert found == {
        "names": ["Tesla T4", "NVIDIA A100-SXM4-40GB"],
        "equal": True,
        "peer": True,
        "taken": [0, 8192],
        "refused": [0],
    }


def test_data_parallel() -> None:
    assert run_on_cuda("data_parallel", devices=2) == {
        "seen": [["cuda:0", True], ["cuda:1", True]],
        "gradient": "cuda:0",
        "unsupported": [],
    }


def test_own_library_reads_the_same_memory() -> None:
    found = run_on_cuda("own_hardware", gpu=["T4", "A100"], memory_bytes=LIMIT, devices=2)
    assert found["names"] == ["Tesla T4", "NVIDIA A100-SXM4-40GB"]
    assert found["identifiers"] or torch_version() < (2, 5), "CUDA and NVML name the same devices"
    assert found["free"] == found["torch"] == [LIMIT, LIMIT - found["held"]]


@pytest.mark.parametrize(("allocator", "segments"), [("expandable_segments:True", [1, 1]), ("", [1, 2])])
def test_segments(allocator: str, segments: list[int]) -> None:
    found = run_on_cuda("expandable_segments", allocator=allocator, memory_bytes=LIMIT)
    assert found == {
        "segments": segments,
        "expandable": [bool(allocator)] * segments[-1],
        "kept": True,
        "refused": True,
        "given_back": 40 * MIB,
    }


def test_pinned_memory_streams_and_events() -> None:
    found = run_on_cuda("pinned_memory")
    assert found.pop("milliseconds") >= 0
    assert found == {"pinned": True, "ordinary": False, "values": list(range(64))}


def test_micro_batches_of_batches_that_are_copied_without_blocking() -> None:
    assert run_on_cuda("planned_copies") == {
        "loader": [True, True],
        "devices": ["cuda"],
        "clips": list(range(32)),
        "sizes": [2],
    }


def test_names_without_a_meaning_are_errors_and_listed() -> None:
    found = run_on_cuda("without_a_meaning")
    assert found["errors"] == found["known"]
    assert "cudaStreamBeginCapture" in found["unsupported"]
    assert set(found["unsupported"]) <= set(found["lacking"])


@pytest.mark.slow
def test_script_and_the_processes_it_starts(tmp_path: Path) -> None:
    """Run by ``python -m cuda_standin``, with a process of its own that was spawned."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport torch, torch.multiprocessing as mp\n"
        "def child(rank):\n"
        "    assert torch.arange(4, device=f'cuda:{rank}').sum().item() == 6\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(child, nprocs=2)\n"
        "    print(sys.argv[1], torch.cuda.device_count(), torch.cuda.get_device_name(1))\n"
    )
    command = [sys.executable, "-m", "cuda_standin", "--gpu", "L4", "--devices", "2", str(script), "given"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(BUILD)}
    )
    assert done.stdout == "given 2 NVIDIA L4\n", done.stderr


def test_script_on_an_unknown_card() -> None:
    command = [sys.executable, "-m", "cuda_standin", "--gpu", "T5", "script.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(BUILD)}
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cuda_standin: unknown GPU 'T5'")
