"""A stand-in CUDA runtime: the real ``torch.cuda`` on a machine without a GPU. See README.md beside this file."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Sequence

from .cards import Card
from .libraries import MANIFEST, StandinError, built, why_not
from .settings import VARIABLE, Settings

__all__ = ["StandinError", "give_back", "lacking", "load", "prepare", "take", "unsupported", "why_not"]

_loaded: dict[str, ctypes.CDLL] = {}
_lacking: list[str] = []
_cards: list[Card] = []


def load(
    gpu: str | Sequence[str] = "T4",
    memory_bytes: int | Sequence[int] | None = None,
    devices: int = 1,
    *,
    context_bytes: int = 0,
    copy_limit_bytes: int | None = None,
) -> None:
    """Let this process see GPUs. To be called before torch is imported; it cannot be undone.

    ``gpu`` and ``memory_bytes`` are for all devices, or one for each; without ``memory_bytes`` a card has the
    catalogue's. ``context_bytes`` of each are in use from the start. Copies of more than ``copy_limit_bytes`` are left
    out, which makes trainings of large models fast.

    Raises ``ValueError`` for an unknown card or a count that is not 1 to 16, ``StandinError`` (with the reason) where
    the libraries cannot be compiled or it is too late.
    """
    settings = Settings(gpu, memory_bytes, devices, context_bytes, copy_limit_bytes)
    cards = settings.cards()
    if _cards:
        raise StandinError("the stand-in CUDA runtime is already loaded in this process")
    prepare()
    _add(cards, settings)
    os.environ[VARIABLE] = settings.to_json()


def load_inherited() -> None:
    """Load what the process that started this one had loaded."""
    if not _loaded and (settings := os.environ.get(VARIABLE)):
        load(**json.loads(settings))


def prepare() -> None:
    """Open the libraries and see no GPU yet: torch can then be imported once for several processes.

    Each of them is forked from this one, and calls ``load`` before anything asks torch for a GPU. Raises
    ``StandinError`` as ``load`` does; a second call does nothing.
    """
    if _loaded:
        return
    if "torch" in sys.modules:
        raise StandinError("torch is already imported: call cuda_standin.load() first, in a process of its own")
    # torch's libraries carry a path to NVIDIA's wheels, which comes before LD_LIBRARY_PATH; a library whose SONAME is
    # loaded already comes before both.
    folder = built()
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    for name in manifest["libraries"]:
        _loaded[name] = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    _lacking.extend(manifest["lacking"])


def _add(cards: list[Card], settings: Settings) -> None:
    runtime = _runtime()
    _cards.extend(cards)
    for one in cards:
        runtime.standin_add_card(ctypes.byref(one))
    if settings.copy_limit_bytes is not None:
        runtime.standin_set_copy_limit(ctypes.c_uint64(settings.copy_limit_bytes))


def _runtime() -> ctypes.CDLL:
    if not _loaded:
        raise StandinError("the stand-in CUDA runtime is not loaded: call cuda_standin.load() first")
    return next(iter(_loaded.values()))


def take(device: int, size: int) -> None:
    """Let something outside of this process hold ``size`` bytes of a device from now on, as another process may.

    Raises ``ValueError`` when that much is not free there.
    """
    if not 0 <= size < 1 << 64 or not _runtime().standin_take(device, ctypes.c_uint64(size)):
        raise ValueError(f"cannot take {size} bytes of device {device}: expected a device that has them free")


def give_back(device: int, size: int | None = None) -> None:
    """Give back what ``take`` took of a device, all of it or ``size`` bytes.

    Raises ``ValueError`` when that much was not taken.
    """
    runtime = _runtime()
    runtime.standin_taken_bytes.restype = ctypes.c_uint64
    size = runtime.standin_taken_bytes(device) if size is None else size
    if not 0 <= size < 1 << 64 or not runtime.standin_give_back(device, ctypes.c_uint64(size)):
        raise ValueError(f"cannot give {size} bytes of device {device} back: expected what was taken of it")


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
