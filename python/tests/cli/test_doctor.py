"""The doctor: what is broken or missing, and a command for it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.__main__ import main
from asrconfig_go.cli import doctor
from asrconfig_go.cli.doctor import Finding, examine, probe_packages, torch_finding
from asrconfig_go.predict.hardware import HardwareProfile

TURING_ON = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
CUDA_126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


def machine(capability: str, driver: str) -> HardwareProfile:
    hardware = HardwareProfile.detect("T4")
    gpu = replace(hardware.gpus[0], name="A card", compute_capability=capability)
    return replace(hardware, gpus=(gpu,), cuda_version=driver)


def build(cuda: str | None, architectures: list[str], **others: Any) -> dict[str, Any]:
    return {"error": "", "cuda": cuda, "hip": None, "architectures": architectures, **others}


@pytest.mark.parametrize(
    ("capability", "driver", "probe", "message", "index"),
    [
        ("7.5", "12.4", build(None, []), "built without CUDA: it does not use A card", "cu126"),
        ("8.9", "13.0", build(None, []), "built without CUDA", "cu130"),
        ("6.1", "13.0", build("13.0", TURING_ON), "does not support A card, sm_61 (it has sm_75", "cu126"),
        ("12.0", "12.8", build("12.6", CUDA_126), "does not support A card, sm_120", "cu128"),
        ("9.0", "12.4", build("12.4", ["sm_90a", "sm_80"]), "", ""),
        ("8.6", "12.4", build("12.4", ["sm_90a", "sm_90"]), "does not support A card, sm_86", "cu126"),
        ("12.1", "13.0", build("13.0", ["sm_90", "compute_90"]), "", ""),
        ("7.5", "13.0", build("13.0", TURING_ON), "", ""),
        ("9.0", "12.4", build(None, [], hip="6.0"), "", ""),
    ],
)
def test_a_torch_that_does_not_use_the_card(
    capability: str, driver: str, probe: dict[str, Any], message: str, index: str
) -> None:
    finding = torch_finding("2.11.0", probe, machine(capability, driver))
    assert finding.status == ("broken" if message else "ok")
    assert message in finding.detail
    wanted = f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{index}"
    assert finding.advice == (wanted if index else "")


def test_an_old_driver_is_updated_first() -> None:
    finding = torch_finding("2.11.0", build(None, []), machine("7.5", "11.4"))
    assert finding.advice == "update the driver, which knows CUDA up to 11.4: sudo apt-get install nvidia-driver"


def test_without_a_card_any_build_will_do() -> None:
    assert torch_finding("2.11.0", build(None, []), None) == Finding("ok", "torch", "2.11.0, built without CUDA")


def test_a_torch_that_cannot_be_imported() -> None:
    finding = torch_finding("2.11.0", {"error": "libcudart.so.13: cannot open"}, None)
    assert (finding.status, finding.advice) == ("broken", "pip install --force-reinstall torch")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Finding]]:
    """The findings by what they are about, where the packages say what a test makes them say."""

    def findings(ffmpeg: str | None = None, **packages: str) -> dict[str, Finding]:
        answers = {name: {"error": error} for name, error in packages.items()}
        monkeypatch.setattr(doctor, "probe_packages", lambda *_: answers)
        monkeypatch.setattr(doctor, "installed_version", lambda name: "1.0" if name in answers else "")
        monkeypatch.setattr(shutil, "which", lambda _: ffmpeg)
        return {finding.subject: finding for finding in examine()}

    return findings


def test_what_decodes_audio_is_named_with_what_to_do(told: Callable[..., dict[str, Finding]]) -> None:
    findings = told(torchcodec="Could not load libtorchcodec. Likely causes:", soundfile="")
    assert (findings["soundfile"].status, findings["soundfile"].detail) == ("ok", "1.0")
    assert findings["soxr"].advice == "pip install soxr"
    assert "does not work: Could not load libtorchcodec" in findings["torchcodec"].detail
    assert findings["torchcodec"].advice.startswith("pip uninstall -y torchcodec (soundfile decodes then), or")
    assert findings["FFmpeg"].advice == "apt-get install -y ffmpeg"
    assert told(ffmpeg="/usr/bin/ffmpeg")["FFmpeg"] == Finding("ok", "FFmpeg", "/usr/bin/ffmpeg")


@pytest.mark.parametrize(("free", "status"), [(64 << 20, "note"), (8 << 30, "ok"), (None, "")])
def test_little_shared_memory_is_said(free: int | None, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_shared_memory", lambda: free)
    monkeypatch.setattr(doctor, "probe_packages", lambda *_: {})
    findings = [finding for finding in examine() if finding.subject == "/dev/shm"]
    assert [finding.status for finding in findings] == [status] * bool(status)
    assert all(("--shm-size=8g" in finding.advice) == (status == "note") for finding in findings)
    assert all("64.0 MiB free" in finding.detail for finding in findings if status == "note")


def test_torchcodec_is_not_needed(told: Callable[..., dict[str, Finding]]) -> None:
    finding = told(soundfile="")["torchcodec"]
    assert (finding.status, finding.advice) == ("ok", "") and "soundfile does that without it" in finding.detail


def test_packages_are_imported_in_a_process_that_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks.py").write_text("raise OSError('libbreaks.so is missing\\nand more')")
    (tmp_path / "works.py").write_text("")
    (tmp_path / "ends.py").write_text("import os; os._exit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor, "installed_version", lambda name: "" if name == "absent" else "1.0")
    probes = probe_packages("breaks", "works", "absent")
    assert probes == {"breaks": {"error": "libbreaks.so is missing"}, "works": {"error": ""}}
    assert "its import ends the process" in probe_packages("ends")["ends"]["error"]


def test_a_torchcodec_that_fails_when_it_decodes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets", minversion="4")
    pytest.importorskip("torch")
    (tmp_path / "torchcodec").mkdir()
    (tmp_path / "torchcodec" / "__init__.py").touch()
    (tmp_path / "torchcodec" / "decoders.py").write_text(
        "class AudioDecoder:\n"
        "    def __init__(self, *_, **__):\n"
        "        raise RuntimeError('Could not load libtorchcodec. Likely causes:\\n FFmpeg')\n"
    )
    (tmp_path / "torchcodec-0.9.0.dist-info").mkdir()
    (tmp_path / "torchcodec-0.9.0.dist-info" / "METADATA").write_text("Name: torchcodec\nVersion: 0.9.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert probe_packages("torchcodec")["torchcodec"]["error"] == "Could not load libtorchcodec."


def test_the_installed_torch_tells_its_build() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("soundfile")
    probes = probe_packages("torch", "soundfile")
    assert probes["torch"]["cuda"] == torch.version.cuda and isinstance(probes["torch"]["architectures"], list)
    assert probes["soundfile"]["library"]


def test_what_the_doctor_says_without_a_gpu_plans_for_another_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["doctor"]) == 0
    match = re.search(r"plan for another machine: asrconfig (plan [^;]+);", " ".join(capsys.readouterr().out.split()))
    assert match is not None
    assert main(match[1].split()) == 0
    assert "Tesla T4" in capsys.readouterr().out
