"""A stand-in CUDA runtime: the real ``torch.cuda`` on a machine without a GPU. See README.md beside this file."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Sequence

from .cards import Card, card
from .libraries import MANIFEST, StandinError, built, why_not

__all__ = ["StandinError", "lacking", "load", "unsupported", "why_not"]

_SETTINGS = "CUDA_STANDIN"  # what load() was called with, for processes that this one starts
_loaded: dict[str, ctypes.CDLL] = {}
_lacking: list[str] = []


def _each(value: object, devices: int, what: str) -> list[object]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != devices:
            raise ValueError(
                f"{len(value)} values of {what} for {devices} devices: expected one, or one for each device"
            )
        return list(value)
    return [value] * devices


def load(
    gpu: str | Sequence[str] = "T4",
    memory_bytes: int | Sequence[int] | None = None,
    devices: int = 1,
    *,
    context_bytes: int = 0,
    copy_limit_bytes: int | None = None,
    convolution_workspaces: bool = True,
) -> None:
    """Let this process see GPUs. To be called before torch is imported; it cannot be undone.

    ``gpu`` and ``memory_bytes`` are for all devices, or one for each; without ``memory_bytes`` a card has the
    catalogue's. ``context_bytes`` of each are in use from the start. Copies of more than ``copy_limit_bytes`` are left
    out, which makes trainings of large models fast. ``convolution_workspaces`` are a rule of ours for what only cuDNN
    knows; without them memory is what torch alone decides.

    Raises ``ValueError`` for an unknown card or a count that is not 1 to 16, ``StandinError`` (with the reason) where
    the libraries cannot be compiled or it is too late.
    """
    if not 1 <= devices <= 16:
        raise ValueError(f"invalid devices {devices}: expected 1 to 16")
    cards = [
        card(name, memory, context_bytes)  # type: ignore[arg-type]
        for name, memory in zip(_each(gpu, devices, "gpu"), _each(memory_bytes, devices, "memory_bytes"), strict=True)
    ]
    if "torch" in sys.modules:
        raise StandinError("torch is already imported: call cuda_standin.load() first, in a process of its own")
    if _loaded:
        raise StandinError("the stand-in CUDA runtime is already loaded in this process")
    _open(cards, copy_limit_bytes, convolution_workspaces)
    settings = {
        "gpu": gpu,
        "memory_bytes": memory_bytes,
        "devices": devices,
        "context_bytes": context_bytes,
        "copy_limit_bytes": copy_limit_bytes,
        "convolution_workspaces": convolution_workspaces,
    }
    os.environ[_SETTINGS] = json.dumps(settings)


def load_inherited() -> None:
    """Load what the process that started this one had loaded."""
    if not _loaded and (settings := os.environ.get(_SETTINGS)):
        load(**json.loads(settings))


def _open(cards: list[Card], copy_limit_bytes: int | None, convolution_workspaces: bool) -> None:
    # torch's libraries carry a path to NVIDIA's wheels, which comes before LD_LIBRARY_PATH; a library whose SONAME is
    # loaded already comes before both.
    folder = built()
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    for name in manifest["libraries"]:
        _loaded[name] = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    _lacking.extend(manifest["lacking"])
    runtime = _runtime()
    for one in cards:
        runtime.standin_add_card(ctypes.byref(one))
    if copy_limit_bytes is not None:
        runtime.standin_set_copy_limit(ctypes.c_uint64(copy_limit_bytes))
    _loaded["standin_cudnn.so"].standin_set_convolution_workspaces(convolution_workspaces)


def _runtime() -> ctypes.CDLL:
    if not _loaded:
        raise StandinError("the stand-in CUDA runtime is not loaded: call cuda_standin.load() first")
    return next(iter(_loaded.values()))


def unsupported() -> list[str]:
    """The names without a meaning that were called in this process, each of which answered "not supported"."""
    noted = _runtime().standin_noted
    noted.restype = ctypes.c_char_p
    names: list[str] = []
    while name := noted(len(names)):
        names.append(name.decode())
    return names


def lacking() -> list[str]:
    """All names that the installed torch imports and that have no meaning here."""
    _runtime()
    return sorted(_lacking)
