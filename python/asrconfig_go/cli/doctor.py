"""``asrconfig doctor``: checks the installation, and says how to fix what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass

from .._base import native
from .._base.errors import LibraryError, VersionMismatchError
from ..machine.hardware import HardwareProfile
from ..view.units import gib

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "soundfile", "tensorboard", "tqdm", "matplotlib")
_NEEDED_TO_TRAIN = ("torch", "transformers", "accelerate")


@dataclass(frozen=True)
class Finding:
    """One line of the report; ``status`` is ``"ok"``, ``"note"`` or ``"broken"``."""

    status: str
    what: str
    detail: str
    advice: str = ""


def examine() -> list[Finding]:
    """Check the library, the machine and the installed packages; nothing is imported or changed."""
    findings = [Finding("ok", "Python", f"{platform.python_version()} on {platform.platform()} ({sys.executable})")]
    try:
        findings.append(Finding("ok", "library", f"{native.build_info()} at {native.library_path()}"))
        findings += _machine(HardwareProfile.detect())
    except (LibraryError, VersionMismatchError) as error:
        findings.append(Finding("broken", "library", error.message, error.hint))
    return findings + _packages()


def _machine(hardware: HardwareProfile) -> list[Finding]:
    findings = [
        Finding("ok", f"GPU {g.index}", f"{g.name}, {gib(g.memory_total_bytes)}, {gib(g.memory_free_bytes)} free")
        for g in hardware.gpus
    ]
    if hardware.gpus:
        findings.append(Finding("ok", "driver", f"{hardware.driver_version}, CUDA up to {hardware.cuda_version}"))
    else:
        advice = 'plan for another machine with gpu="T4"; in Colab: Runtime → Change runtime type → GPU'
        findings.append(Finding("note", "GPU", hardware.no_gpu_reason, advice))
    cpu, memory = hardware.cpu, hardware.memory
    cores = f"{cpu.usable_cores:g} of {cpu.logical_cores} cores" + (
        f", limited by {cpu.limit_source}" if cpu.limit_source else ""
    )
    ram = f"{gib(memory.available_bytes)} available of {gib(memory.total_bytes)}"
    limit = f", limited by {memory.limit_source}" if memory.limit_source else ", no container limit"
    return [*findings, Finding("ok", "CPU", f"{cores} ({cpu.model})"), Finding("ok", "RAM", ram + limit)]


def _packages() -> list[Finding]:
    findings = []
    for name in _PACKAGES:
        version = _version(name)
        if version:
            findings.append(Finding("ok", name, version))
        else:
            use = "training" if name in _NEEDED_TO_TRAIN else "some features"
            findings.append(Finding("note", name, f"not installed (needed for {use})", f"pip install {name}"))
    if _version("torchaudio"):
        advice = "if transformers fails to import its speech models: pip uninstall torchaudio (nothing here needs it)"
        findings.append(Finding("note", "torchaudio", f"{_version('torchaudio')}; it must match torch exactly", advice))
    return findings


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def report(findings: list[Finding]) -> str:
    """The findings as text, advice under what it is for."""
    marks = {"ok": "✓", "note": "·", "broken": "✗"}
    lines = []
    for f in findings:
        lines.append(f"{marks[f.status]} {f.what:<13} {f.detail}")
        if f.advice:
            lines.append(f"  {'':<13} → {f.advice}")
    return "\n".join(lines)
