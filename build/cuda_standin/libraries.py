"""Compiles one library per SONAME that torch needs, once for each version of torch and of these sources."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .answers import NVML
from .imports import Imported, cuda_version, imports, torch_folder

HERE = Path(__file__).parent
SOURCES = HERE / "src"
CACHE = HERE.parent / "out" / "cuda_standin"
MANIFEST = "manifest.json"
_NEEDED_HEADERS = ("cuda_runtime_api.h", "cublas_v2.h", "cudnn.h", "nccl.h")


class StandinError(RuntimeError):
    """Why there is no stand-in runtime here."""


def _headers(torch: Path) -> list[Path]:
    """The folders of headers that NVIDIA's wheels bring beside torch, whose declarations are those that torch saw."""
    return sorted(folder for folder in (torch.parent / "nvidia").glob("**/include") if folder.is_dir())


def why_not() -> str | None:
    """Why the stand-in cannot be built here, None where it can."""
    torch = torch_folder()
    if torch is None:
        return "torch is not installed"
    if cuda_version(torch) is None:
        return "the installed torch has no CUDA build"
    if os.uname().sysname != "Linux":
        return f"the stand-in CUDA runtime needs Linux, this is {os.uname().sysname}"
    for tool, purpose in (("cc", "a C compiler"), ("readelf", "binutils")):
        if shutil.which(tool) is None:
            return f"{tool} was not found: the stand-in CUDA runtime needs {purpose}"
    folders = _headers(torch)
    absent = [name for name in _NEEDED_HEADERS if not any((folder / name).is_file() for folder in folders)]
    if absent:
        return f"{', '.join(absent)} not found beside torch: install torch with NVIDIA's wheels (pip install torch)"
    return None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise StandinError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")


class _Build:
    """One folder of libraries."""

    def __init__(self, torch: Path, folder: Path) -> None:
        self.folder = folder
        version = cuda_version(torch) or "0.0"
        major, minor = map(int, version.split("."))
        self.compile = [
            *("cc", "-std=gnu11", "-O1", "-fPIC", "-Wall", "-Wno-unused-parameter"),
            f"-DSTANDIN_CUDA_VERSION={major * 1000 + minor * 10}",
            f"-I{HERE / 'include'}",
            *(flag for found in _headers(torch) for flag in ("-isystem", str(found))),
        ]
        self.core: list[str] = []  # what the other libraries are linked with

    def object(self, source: str) -> str:
        made = self.folder / f"{source}.o"
        _run([*self.compile, "-c", str(SOURCES / f"{source}.c"), "-o", str(made)])
        return str(made)

    def link(self, soname: str, parts: list[str], flags: list[str]) -> str:
        # Not libcudart.so…: torch looks for that in /proc/self/maps, and would then load the wheels' own libraries.
        made = self.folder / f"standin_{soname.removeprefix('lib').split('.so')[0]}.so"
        _run(
            [
                "cc",
                "-shared",
                *parts,
                "-o",
                str(made),
                f"-Wl,-soname,{soname}",
                "-Wl,--no-as-needed",
                *flags,
                *self.core,
            ]
        )
        return str(made)

    def library(self, found: Imported, meanings: list[str], defined: set[str]) -> tuple[str, list[str]]:
        """The library's file, and the names in it without a meaning."""
        stem = found.answer.library
        generated, lacking = _generated(found, defined)
        source, versions = self.folder / f"{stem}.c", self.folder / f"{stem}.map"
        source.write_text(generated, encoding="utf-8")
        stubs = str(self.folder / f"{stem}.o")
        _run([*self.compile, "-c", str(source), "-o", stubs])
        versions.write_text(_version_script(found), encoding="utf-8")
        script = [f"-Wl,--version-script={versions}"] if any(found.versions.values()) else []
        return self.link(found.soname, [*meanings, stubs], script), lacking


def _generated(found: Imported, defined: set[str]) -> tuple[str, list[str]]:
    lines, lacking = ["void standin_note(const char *name);"], []
    for name in sorted(set(found.versions) - defined):
        if found.answer.done.match(name):
            lines.append(f"long {name}(void) {{ return 0; }}")
        else:
            lines.append(f'long {name}(void) {{ standin_note("{name}"); return {found.answer.not_supported}; }}')
            lacking.append(name)
    return "\n".join(lines) + "\n", lacking


def _version_script(found: Imported) -> str:
    """The tags of names that have one; of the others, NVIDIA's and those for Python and the other libraries are seen.

    The rest would be seen by every library of the process, as these are loaded for all.
    """
    tags: dict[str, list[str]] = {"STANDIN": ["cu*;", "__cuda*;", "standin_*;"]}
    for name, tag in sorted(found.versions.items()):
        if tag:
            tags.setdefault(tag, []).append(f"{name};")
    lines = [f"{tag} {{ global: {' '.join(names)} }};" for tag, names in tags.items()]
    lines[0] = lines[0].replace(" };", " local: *; };")
    return "\n".join(lines) + "\n"


def _defined(objects: list[str]) -> set[str]:
    if not objects:
        return set()
    listed = subprocess.run(["nm", "-g", "--defined-only", *objects], check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in listed.stdout.splitlines() if len(line.split()) == 3}


def _compile_all(torch: Path, folder: Path) -> None:
    build = _Build(torch, folder)
    libraries = imports(torch)
    sources = {source for found in libraries for source in found.answer.sources} | {"nvml"}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(zip(sorted(sources), pool.map(build.object, sorted(sources)), strict=True))
    manifest: dict[str, list[str]] = {"libraries": [], "lacking": []}
    runtime = _defined([objects[source] for source in libraries[0].answer.sources])
    for found in libraries:
        meanings = [objects[source] for source in found.answer.sources]
        file, lacking = build.library(found, meanings, _defined(meanings) | runtime)
        build.core = build.core or [file]
        manifest["libraries"].append(Path(file).name)
        manifest["lacking"] += lacking
    manifest["libraries"].append(Path(build.link(NVML, [objects["nvml"]], [])).name)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _key(torch: Path) -> str:
    digest = hashlib.sha256(str(torch).encode())
    own = (file for file in HERE.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    for file in (torch / "version.py", *sorted(own)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def built() -> Path:
    """The folder of the libraries for the installed torch, compiled if that was not done yet (some seconds).

    Raises ``StandinError`` where they cannot be compiled.
    """
    if reason := why_not():
        raise StandinError(reason)
    torch = torch_folder()
    assert torch is not None  # why_not
    ready = CACHE / _key(torch)
    if (ready / MANIFEST).is_file():
        return ready
    CACHE.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=CACHE))
    _compile_all(torch, making)
    try:
        making.rename(ready)
    except OSError:  # another process was faster
        if not (ready / MANIFEST).is_file():
            raise
        shutil.rmtree(making)
    return ready
