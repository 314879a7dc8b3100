"""Whether the installed build of torch uses the GPUs that are there."""

from __future__ import annotations

import re
from typing import Any

from ..machine.hardware import HardwareProfile
from .findings import Finding

_OLDEST_DRIVER = (12, 0)  # CUDA that a driver must know for builds of any CUDA 12
_NEED_128 = (10, 0)  # compute capability from which on CUDA 12.8 is needed
_LEFT_OUT = (7, 5)  # older ones are in builds of CUDA 12.6 alone
_AGAIN = "pip install --force-reinstall torch"


def torch_finding(version: str, probe: dict[str, Any], hardware: HardwareProfile | None) -> Finding:
    """Check torch by ``probe``, the answer of ``imported`` about it."""
    if probe["error"]:
        return Finding("broken", "torch", f"{version} cannot be imported: {probe['error']}", _AGAIN)
    cuda = probe["cuda"]
    build = f"{version}, {f'CUDA {cuda}' if cuda else 'ROCm' if probe['hip'] else 'built without CUDA'}"
    gpus = hardware.gpus if hardware and not probe["hip"] else ()
    for gpu in gpus:
        capability = _pair(gpu.compute_capability)
        if cuda is None:
            return Finding("broken", "torch", f"{build}: it does not use {gpu.name}", _for(capability, hardware))
        if capability and probe["architectures"] and not _supported(capability, probe["architectures"]):
            supported = " ".join(probe["architectures"])
            detail = f"{build}: it does not support {gpu.name}, sm_{capability[0]}{capability[1]} (it has {supported})"
            return Finding("broken", "torch", detail, _for(capability, hardware))
    return Finding("ok", "torch", build)


def _supported(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Machine code runs on later cards of its generation, PTX on all later ones, "a" and "f" on exactly one."""
    for name in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if match is None:
            continue
        built = (int(match[2]), int(match[3]))
        later = built <= capability and (match[1] == "compute" or built[0] == capability[0])
        if built == capability or (later and not match[4]):
            return True
    return False


def _for(capability: tuple[int, int] | None, hardware: HardwareProfile | None) -> str:
    """The command that installs a build for a card: the newest that both the card and its driver know."""
    driver = _pair(hardware.cuda_version or "") if hardware else None
    if driver is not None and driver < _OLDEST_DRIVER:
        return f"update the driver, which knows CUDA up to {driver[0]}.{driver[1]}: sudo apt-get install nvidia-driver"
    if capability is not None and capability < _LEFT_OUT:
        return _install("cu126")
    if driver is not None and driver >= (13, 0):
        return _install("cu130")
    new = capability is not None and capability >= _NEED_128
    return _install("cu128" if new or (driver is not None and driver >= (12, 8)) else "cu126")


def _install(build: str) -> str:
    return f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{build}"


def _pair(text: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None
