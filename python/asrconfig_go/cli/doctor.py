"""``asrconfig doctor``: checks the installation, and how to fix it."""

from __future__ import annotations

import platform
import shutil
import sys
from typing import Any

from .._base import native
from .._base.errors import LibraryError, VersionMismatchError
from .._base.shared_memory import free_shared_memory
from ..machine.hardware import HardwareProfile
from ..view.units import exact, gib
from .findings import Finding
from .installed_packages import imported, version
from .torch_build import torch_finding

_SHARED = 1 << 30  # bytes of /dev/shm: less is soon full of batches; Docker's default is 64 MiB
_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tensorboard", "tqdm", "matplotlib")
_NEEDED_TO_TRAIN = ("torch", "transformers", "accelerate")
_AUDIO = {
    "soundfile": "decodes audio",
    "soxr": "brings clips to 16 kHz; scipy does so, slower",
    "torchcodec": "decodes for datasets; here soundfile does that without it",
}
_REPAIRS = {
    "soundfile": "pip install --force-reinstall soundfile",
    "soxr": "pip install --force-reinstall soxr",
    "torchcodec": "pip uninstall -y torchcodec (soundfile decodes then), or give it FFmpeg: apt-get install -y ffmpeg",
}


def examine() -> list[Finding]:
    """Check the library, the machine and the installed packages; nothing is imported here, and nothing changed."""
    hardware = None
    findings = [Finding("ok", "Python", f"{platform.python_version()} on {platform.platform()} ({sys.executable})")]
    try:
        findings.append(Finding("ok", "library", f"{native.build_info()} at {native.library_path()}"))
        hardware = HardwareProfile.detect()
        findings += _machine(hardware)
    except (LibraryError, VersionMismatchError) as error:
        findings.append(Finding("broken", "library", error.message, error.hint))
    return findings + _packages(hardware)


def _machine(hardware: HardwareProfile) -> list[Finding]:
    findings = [
        Finding("ok", f"GPU {g.index}", f"{g.name}, {gib(g.memory_total_bytes)}, {gib(g.memory_free_bytes)} free")
        for g in hardware.gpus
    ]
    if hardware.gpus:
        findings.append(Finding("ok", "driver", f"{hardware.driver_version}, CUDA up to {hardware.cuda_version}"))
    else:
        advice = "plan for another machine: asrconfig plan --data demo --model wav2vec2-base --gpu T4; "
        advice += "in Colab choose one: Runtime → Change runtime type"
        findings.append(Finding("note", "GPU", hardware.no_gpu_reason, advice))
    cpu, memory = hardware.cpu, hardware.memory
    cores = f"{cpu.usable_cores:g} of {cpu.logical_cores} cores"
    cores += f", limited by {cpu.limit_source}" if cpu.limit_source else ""
    ram = f"{gib(memory.available_bytes)} available of {gib(memory.total_bytes)}"
    limit = f", limited by {memory.limit_source}" if memory.limit_source else ", no container limit"
    findings += [Finding("ok", "CPU", f"{cores} ({cpu.model})"), Finding("ok", "RAM", ram + limit)]
    return [*findings, *_shared_memory()]


def _shared_memory() -> list[Finding]:
    free = free_shared_memory()
    if free is None:
        return []
    detail = f"{exact(free)} free, where loader workers hand batches over"
    if free >= _SHARED:
        return [Finding("ok", "/dev/shm", detail)]
    advice = "give the container more (docker run --shm-size=8g), or lower dataloader_num_workers"
    return [Finding("note", "/dev/shm", f"{detail}: soon full of batches", advice)]


def _packages(hardware: HardwareProfile | None) -> list[Finding]:
    probes = imported("torch", *_AUDIO)
    findings = [_package(name) for name in _PACKAGES]
    if "torch" in probes:
        findings[_PACKAGES.index("torch")] = torch_finding(version("torch"), probes["torch"], hardware)
    findings += [_audio(name, probes.get(name)) for name in _AUDIO]
    ffmpeg = shutil.which("ffmpeg")
    missing = "not installed: it converts audio of rare formats, and torchcodec needs its libraries"
    missing_finding = Finding("note", "FFmpeg", missing, "apt-get install -y ffmpeg")
    findings.append(Finding("ok", "FFmpeg", ffmpeg) if ffmpeg else missing_finding)
    if torchaudio := version("torchaudio"):
        advice = "if transformers cannot import its speech models: pip uninstall -y torchaudio (nothing here needs it)"
        findings.append(Finding("note", "torchaudio", f"{torchaudio}; it must match torch exactly", advice))
    return findings


def _package(name: str) -> Finding:
    if installed := version(name):
        return Finding("ok", name, installed)
    use = "training" if name in _NEEDED_TO_TRAIN else "some features"
    return Finding("note", name, f"not installed (needed for {use})", f"pip install {name}")


def _audio(name: str, probe: dict[str, Any] | None) -> Finding:
    if probe is None:
        advice = "" if name == "torchcodec" else f"pip install {name}"
        return Finding("note" if advice else "ok", name, f"not installed: it {_AUDIO[name]}", advice)
    if probe["error"]:
        return Finding("note", name, f"{version(name)} does not work: {probe['error']}", _REPAIRS[name])
    library = f", libsndfile {probe['library']}" if "library" in probe else ""
    return Finding("ok", name, f"{version(name)}{library}")


def report(findings: list[Finding]) -> str:
    """The findings as text, advice under what it is for."""
    marks = {"ok": "✓", "note": "·", "broken": "✗"}
    lines = []
    for f in findings:
        lines.append(f"{marks[f.status]} {f.subject:<13} {f.detail}")
        if f.advice:
            lines.append(f"  {'':<13} → {f.advice}")
    return "\n".join(lines)
