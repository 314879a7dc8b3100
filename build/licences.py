"""Keeps THIRD_PARTY_LICENSES.txt: the licences of everything that is linked into the native library, on any system.

python build/licences.py            writes it from the module cache
python build/licences.py --check    fails when it is not what would be written
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "THIRD_PARTY_LICENSES.txt"
SYSTEMS = ("linux/amd64", "linux/arm64", "darwin/arm64", "darwin/amd64", "windows/amd64")
TEXTS = re.compile(r"(?i)(un)?licen[cs]e|copying|notice|patents")
RULE = "=" * 80

HEAD = """\
asrconfig-go is under the Apache License 2.0 (LICENSE). Its native library also contains the Go standard library and
runtime, and the Go modules below. Made by build/licences.py.
"""


def linked(system: str) -> dict[str, set[Path]]:
    """Module and version -> the folders of its packages that are linked on one system, and of the module itself."""
    goos, goarch = system.split("/")
    environment = {**os.environ, "GOOS": goos, "GOARCH": goarch, "CGO_ENABLED": "1"}
    command = ["go", "list", "-deps", "-json=Dir,Module", "./capi"]
    out = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    modules: dict[str, set[Path]] = {}
    decoder, at = json.JSONDecoder(), 0
    while at < len(out):
        package, at = decoder.raw_decode(out, at)
        at += len(out[at:]) - len(out[at:].lstrip())
        module = package.get("Module")
        if module and not module.get("Main"):
            folders = modules.setdefault(f"{module['Path']} {module['Version']}", set())
            folders |= between(Path(package["Dir"]), Path(module["Dir"]))
    return modules


def between(package: Path, module: Path) -> set[Path]:
    """The folders from a package up to its module: a licence in any of them is about the package."""
    return {folder for folder in (package, *package.parents) if folder.is_relative_to(module)}


def texts(folders: set[Path]) -> list[str]:
    """The licence texts in some folders."""
    files = sorted(file for folder in folders for file in folder.iterdir() if TEXTS.fullmatch(file.stem))
    return [file.read_text().strip("\n") for file in files if file.suffix != ".go"]


def content() -> str:
    """What the file should hold."""
    modules: dict[str, set[Path]] = {}
    for system in SYSTEMS:
        for name, folders in linked(system).items():
            modules.setdefault(name, set()).update(folders)
    goroot = Path(subprocess.run(["go", "env", "GOROOT"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    parts = [section("The Go standard library and runtime", texts({goroot}))]
    parts += [section(name, texts(folders)) for name, folders in sorted(modules.items())]
    return "\n".join([HEAD, *parts])


def section(name: str, texts: list[str]) -> str:
    """One part of the file."""
    if not texts:
        sys.exit(f"no licence found for {name}: look into its folder in the module cache")
    return f"{RULE}\n{name}\n{RULE}\n\n" + "\n\n".join(texts) + "\n"


def listed(text: str) -> list[str]:
    """The names that have a section in the file's text."""
    return re.findall(rf"^{RULE}\n(.+)\n{RULE}$", text, re.MULTILINE)


def main() -> None:
    """Write the file, or compare it."""
    wanted = content()
    if sys.argv[1:] != ["--check"]:
        FILE.write_text(wanted)
        print(f"{FILE.name}: {len(listed(wanted)) - 1} modules, and Go itself")
    elif not FILE.exists() or FILE.read_text() != wanted:
        sys.exit(f"{FILE.name} is not what is linked: python build/licences.py writes it again; read the diff")


if __name__ == "__main__":
    main()
