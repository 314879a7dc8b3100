"""Figures of a GPU for the stand-in runtime: the catalogue's, and limits that its compute capability decides."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).parents[2] / "core" / "gpus" / "gpus.json"
MIB = 2**20
KIB = 2**10

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": threads and blocks of a multiprocessor,
# its shared memory in KiB, and what of it one block can have.
_LIMITS = {
    "3.7": (2048, 16, 112, 48),
    "5.2": (2048, 32, 96, 48),
    "6.0": (2048, 32, 64, 48),
    "6.1": (2048, 32, 96, 48),
    "7.0": (2048, 32, 96, 96),
    "7.5": (1024, 16, 64, 64),
    "8.0": (2048, 32, 164, 163),
    "8.6": (1536, 16, 100, 99),
    "8.9": (1536, 24, 100, 99),
    "9.0": (2048, 32, 228, 227),
    "10.0": (2048, 32, 228, 227),
    "10.3": (2048, 32, 228, 227),
    "12.0": (1536, 24, 100, 99),
}


class Card(ctypes.Structure):
    """``struct card`` of src/standin.h."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("memory_bytes", ctypes.c_uint64),
        ("context_bytes", ctypes.c_uint64),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("l2_bytes", ctypes.c_int),
        ("threads_per_multiprocessor", ctypes.c_int),
        ("blocks_per_multiprocessor", ctypes.c_int),
        ("shared_per_multiprocessor", ctypes.c_int),
        ("shared_per_block_optin", ctypes.c_int),
    )


def _entry(gpu: str) -> dict[str, Any]:
    catalogue = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    for entry in catalogue:
        if gpu.lower() in (name.lower() for name in (entry["key"], *entry["aliases"], *entry["driver_names"])):
            return dict(entry)
    names = ", ".join(entry["key"] for entry in catalogue)
    raise ValueError(f"unknown GPU {gpu!r}: expected one of the catalogue's ({names})")


def card(gpu: str, memory_bytes: int | None = None, context_bytes: int = 0) -> Card:
    """The card that the catalogue calls ``gpu``, with ``memory_bytes`` instead of its own memory.

    Raises ``ValueError`` for a name that the catalogue has not and for a card whose figures are not known.
    """
    entry = _entry(gpu)
    if memory_bytes is not None and memory_bytes <= 0:
        raise ValueError(f"invalid memory_bytes {memory_bytes}: expected more than 0")
    capability = entry["compute_capability"]
    absent = [name for name in ("memory_total_mib", "multiprocessors", "l2_mib") if not entry.get(name)]
    if capability not in _LIMITS or absent:
        absent += [] if capability in _LIMITS else [f"limits of capability {capability}"]
        raise ValueError(f"cannot stand in for {entry['key']}: the catalogue lacks {', '.join(absent)}")
    major, minor = map(int, capability.split("."))
    threads, blocks, shared, optin = _LIMITS[capability]
    return Card(
        name=entry["driver_names"][0].encode(),
        memory_bytes=memory_bytes or entry["memory_total_mib"] * MIB,
        context_bytes=context_bytes,
        major=major,
        minor=minor,
        multiprocessors=entry["multiprocessors"],
        l2_bytes=round(entry["l2_mib"] * MIB),
        threads_per_multiprocessor=threads,
        blocks_per_multiprocessor=blocks,
        shared_per_multiprocessor=shared * KIB,
        shared_per_block_optin=optin * KIB,
    )
