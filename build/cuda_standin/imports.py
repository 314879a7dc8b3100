"""Which names the installed torch imports from NVIDIA's libraries, read from its files without importing it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .answers import ANSWERS, Answer

_NEEDED = re.compile(r"\(NEEDED\).*\[(lib[^\]]+)\]")


@dataclass
class Imported:
    """One shared library that torch is linked with."""

    soname: str
    answer: Answer
    versions: dict[str, str] = field(default_factory=dict)  # name: version tag, "" without one


def torch_folder() -> Path | None:
    """Where torch is installed."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def cuda_version(torch: Path) -> str | None:
    """The CUDA version that torch was built with, None for a build without CUDA."""
    found = re.search(r"^cuda[^\n]*'(\d+\.\d+)", (torch / "version.py").read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else None


def _readelf(*arguments: str) -> str:
    return subprocess.run(["readelf", *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


def _undefined(library: Path) -> Iterator[tuple[str, str]]:
    for line in _readelf("-W", "--dyn-syms", str(library)).splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[6] == "UND":
            name, _, version = columns[7].partition("@")
            yield name, version.strip("@")


def _answer_of(soname: str) -> Answer | None:
    return next((answer for answer in ANSWERS if soname.split(".so")[0] == answer.library), None)


def imports(torch: Path) -> list[Imported]:
    """The libraries that torch needs from NVIDIA, with the names it imports; cudart first: the others depend on it."""
    libraries: dict[str, Imported] = {}
    files = sorted((torch / "lib").glob("*.so"))
    for file in files:
        for soname in _NEEDED.findall(_readelf("-dW", str(file))):
            if answer := _answer_of(soname):
                libraries.setdefault(soname, Imported(soname, answer))
    by_answer = {found.answer.library: found for found in libraries.values()}
    for file in files:
        for name, version in _undefined(file):
            if version in libraries:
                libraries[version].versions[name] = version
            elif found := by_answer.get(next((a.library for a in ANSWERS if a.names.match(name)), "")):
                found.versions.setdefault(name, "")
    return sorted(libraries.values(), key=lambda found: (found.answer.library != "libcudart", found.soname))
