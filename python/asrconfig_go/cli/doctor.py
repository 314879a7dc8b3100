"""``asrconfig doctor``: checks the installation and says how to repair it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from .._core import native
from .._core.modules import installed_version
from .._core.render import exact, gib
from ..errors import LibraryError, VersionMismatchError
from ..predict.hardware import HardwareProfile, free_shared_memory

_OLDEST_DRIVER = (12, 0)  # the CUDA version that a driver must support for builds of any CUDA 12
_FIRST_OF_CUDA_12_8 = (10, 0)  # GPUs of this compute capability or a newer one require CUDA 12.8
_FIRST_AFTER_CUDA_12_6 = (7, 5)  # only builds of CUDA 12.6 support GPUs of older compute capabilities
_REINSTALL_TORCH = "pip install --force-reinstall torch"
_ENOUGH_SHARED_MEMORY = 1 << 30  # bytes of /dev/shm; Docker's default is 64 MiB, which batches fill soon
_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tensorboard", "tqdm", "matplotlib")
_NEEDED_TO_TRAIN = ("torch", "transformers", "accelerate")
_AUDIO_PACKAGES = {
    "soundfile": "decodes audio",
    "soxr": "brings clips to 16 kHz; scipy does so, slower",
    "torchcodec": "decodes for datasets; here soundfile does that without it",
}
_REPAIR_TORCHCODEC = (
    "pip uninstall -y torchcodec (soundfile decodes then), or give it FFmpeg: apt-get install -y ffmpeg"
)
_TIMEOUT_S = 120  # importing torch from a cold disk takes half a minute
_PROBE = """
import importlib.util, json, sys
probes = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        probes[name] = {"error": ""}
        if name == "torchcodec" and importlib.util.find_spec("datasets"):  # it loads FFmpeg when it decodes
            from asrconfig_go.audio.collators import cannot_decode
            probes[name]["error"] = cannot_decode()
    except BaseException as error:
        probes[name] = {"error": (str(error).strip() or type(error).__name__).partition("\\n")[0]}
torch = sys.modules.get("torch")
if not probes.get("torch", {}).get("error", "not asked"):
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")
    probes["torch"] |= {"cuda": torch.version.cuda, "hip": torch.version.hip, "architectures": (flags() or "").split()}
if not probes.get("soundfile", {}).get("error", "not asked"):
    probes["soundfile"]["library"] = sys.modules["soundfile"].__libsndfile_version__
print(json.dumps(probes))
"""


@dataclass(frozen=True)
class Finding:
    """A line of the report: ``status`` is ``"ok"``, ``"note"`` or ``"broken"``, ``advice`` what to do next."""

    status: str
    subject: str
    detail: str
    advice: str = ""


def probe_packages(*packages: str) -> dict[str, dict[str, Any]]:
    """Import installed ``packages`` in another process, as an import may end it; those not installed are left out.

    Returns by package its ``error``, "" where it can be imported; for torch also ``cuda``, ``hip`` and
    ``architectures``, for soundfile the version of its ``library``.
    """
    installed = [package for package in packages if installed_version(package)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, *installed],
            capture_output=True, text=True, timeout=_TIMEOUT_S, check=True, env=environment,
        )  # fmt: skip
        probes: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, LookupError) as error:
        return {package: {"error": f"its import ends the process: {error}"} for package in installed}
    return probes


def torch_finding(version: str, probe: dict[str, Any], hardware: HardwareProfile | None) -> Finding:
    """Check torch by ``probe``, the answer of ``probe_packages`` about it."""
    if probe["error"]:
        return Finding("broken", "torch", f"{version} cannot be imported: {probe['error']}", _REINSTALL_TORCH)
    cuda = probe["cuda"]
    build = f"{version}, {f'CUDA {cuda}' if cuda else 'ROCm' if probe['hip'] else 'built without CUDA'}"
    gpus = hardware.gpus if hardware and not probe["hip"] else ()
    for gpu in gpus:
        capability = _version(gpu.compute_capability)
        advice = _command_for(capability, hardware)
        if cuda is None:
            return Finding("broken", "torch", f"{build}: it does not use {gpu.name}", advice)
        if capability and probe["architectures"] and not _runs_on(capability, probe["architectures"]):
            supported = " ".join(probe["architectures"])
            detail = f"{build}: it does not support {gpu.name}, sm_{capability[0]}{capability[1]} (it has {supported})"
            return Finding("broken", "torch", detail, advice)
    return Finding("ok", "torch", build)


def _runs_on(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Whether a build runs on a GPU: machine code (sm) on later ones of a generation, PTX (compute) on all later ones.

    Code with the suffix "a" or "f" runs on exactly the GPU that it names.
    """
    for name in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if match is None:
            continue
        built = (int(match[2]), int(match[3]))
        later = built <= capability and (match[1] == "compute" or built[0] == capability[0])
        if built == capability or (later and not match[4]):
            return True
    return False


def _command_for(capability: tuple[int, int] | None, hardware: HardwareProfile | None) -> str:
    """The command that installs the newest build which both a GPU and its driver support."""
    driver = _version(hardware.cuda_version or "") if hardware else None
    if driver is not None and driver < _OLDEST_DRIVER:
        return f"update the driver, which knows CUDA up to {driver[0]}.{driver[1]}: sudo apt-get install nvidia-driver"
    if capability is not None and capability < _FIRST_AFTER_CUDA_12_6:
        return _install("cu126")
    if driver is not None and driver >= (13, 0):
        return _install("cu130")
    needs_12_8 = capability is not None and capability >= _FIRST_OF_CUDA_12_8
    return _install("cu128" if needs_12_8 or (driver is not None and driver >= (12, 8)) else "cu126")


def _install(build: str) -> str:
    return f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{build}"


def _version(text: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def examine() -> list[Finding]:
    """Check the library, the machine and the installed packages, without importing or changing anything here."""
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
    if free >= _ENOUGH_SHARED_MEMORY:
        return [Finding("ok", "/dev/shm", detail)]
    advice = "give the container more (docker run --shm-size=8g), or lower dataloader_num_workers"
    return [Finding("note", "/dev/shm", f"{detail}: soon full of batches", advice)]


def _packages(hardware: HardwareProfile | None) -> list[Finding]:
    probes = probe_packages("torch", *_AUDIO_PACKAGES)
    findings = [_package(name) for name in _PACKAGES]
    if "torch" in probes:
        findings[_PACKAGES.index("torch")] = torch_finding(installed_version("torch"), probes["torch"], hardware)
    findings += [_audio_package(name, probes.get(name)) for name in _AUDIO_PACKAGES]
    ffmpeg = shutil.which("ffmpeg")
    missing = "not installed: it converts audio of rare formats, and torchcodec needs its libraries"
    missing_finding = Finding("note", "FFmpeg", missing, "apt-get install -y ffmpeg")
    findings.append(Finding("ok", "FFmpeg", ffmpeg) if ffmpeg else missing_finding)
    if torchaudio := installed_version("torchaudio"):
        advice = "if transformers cannot import its speech models: pip uninstall -y torchaudio (nothing here needs it)"
        findings.append(Finding("note", "torchaudio", f"{torchaudio}; it must match torch exactly", advice))
    return findings


def _package(name: str) -> Finding:
    if installed := installed_version(name):
        return Finding("ok", name, installed)
    use = "training" if name in _NEEDED_TO_TRAIN else "some features"
    return Finding("note", name, f"not installed (needed for {use})", f"pip install {name}")


def _audio_package(name: str, probe: dict[str, Any] | None) -> Finding:
    if probe is None:
        advice = "" if name == "torchcodec" else f"pip install {name}"
        return Finding("note" if advice else "ok", name, f"not installed: it {_AUDIO_PACKAGES[name]}", advice)
    if probe["error"]:
        advice = _REPAIR_TORCHCODEC if name == "torchcodec" else f"pip install --force-reinstall {name}"
        return Finding("note", name, f"{installed_version(name)} does not work: {probe['error']}", advice)
    library = f", libsndfile {probe['library']}" if "library" in probe else ""
    return Finding("ok", name, f"{installed_version(name)}{library}")


def report(findings: list[Finding]) -> str:
    """The findings as text, each with its advice below it."""
    marks = {"ok": "✓", "note": "·", "broken": "✗"}
    lines = []
    for f in findings:
        lines.append(f"{marks[f.status]} {f.subject:<13} {f.detail}")
        if f.advice:
            lines.append(f"  {'':<13} → {f.advice}")
    return "\n".join(lines)
