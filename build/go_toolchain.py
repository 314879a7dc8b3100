"""Go for a build from source where the machine has none, or one that is too old: the module golang.org/toolchain.

Go's own releases are modules, too. The version and the checksums of its zip files, as Go's checksum database
(sum.golang.org) publishes them, are pinned in go_toolchain.sum, which has the format of a go.sum.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

FLOOR = (1, 24)
SUMS = Path(__file__).with_name("go_toolchain.sum")
MODULE = "golang.org/toolchain"
INSTALL_GO = "install Go {}.{} or newer (https://go.dev/dl)".format(*FLOOR)
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_COMPILERS = ("gcc", "clang", "cc")


def go_or_fetched(folder: Path) -> str:
    """The go command: the one on PATH where it is new enough, else one fetched into ``folder``."""
    program = shutil.which("go")
    return program if program and _version(program) >= FLOOR else str(fetch(folder))


def compiler() -> str:
    """The C compiler: $CC, or the first that is there. Raises ``SystemExit`` without one."""
    wanted = os.environ.get("CC", "")
    for name in [wanted] if wanted else _COMPILERS:
        if shutil.which(name.split()[0]):
            return name
    raise SystemExit(
        f"asrconfig-go: a build from source needs a C compiler: there is no {wanted or ', '.join(_COMPILERS)} on PATH."
        " Install one (Debian, Ubuntu: apt-get install gcc libc6-dev; macOS: xcode-select --install), and try again."
    )


def fetch(folder: Path) -> Path:
    """Download the pinned Go into ``folder``; its go command. Raises ``SystemExit`` with what to do."""
    version, checksum = pinned()
    address = f"{_proxy()}/{MODULE}/@v/{version}.zip"
    print(f"asrconfig-go: no Go {FLOOR[0]}.{FLOOR[1]} on PATH, fetching {address}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "go.zip"
    try:
        with urllib.request.urlopen(address, timeout=60) as answer, archive.open("wb") as file:
            shutil.copyfileobj(answer, file, 1 << 20)
        actual = module_hash(archive)
    except (OSError, zipfile.BadZipFile) as error:
        raise SystemExit(
            f"asrconfig-go: cannot fetch Go from {address}: {error}. Try again, or {INSTALL_GO}."
        ) from error
    if actual != checksum:
        raise SystemExit(
            f"asrconfig-go: {address} has the checksum {actual}, and {checksum} was expected: it is not used."
            f" Take another proxy (GOPROXY=https://proxy.golang.org), or {INSTALL_GO}."
        )
    return _unpacked(archive, folder / f"{MODULE}@{version}")


def pinned() -> tuple[str, str]:
    """Version and checksum of the toolchain for this system."""
    system = f"{platform.system().lower()}-{_MACHINES.get(platform.machine().lower(), platform.machine())}"
    for line in SUMS.read_text(encoding="ascii").splitlines():
        _, version, checksum = line.split()
        if version.endswith(f".{system}"):
            return version, checksum
    raise SystemExit(f"asrconfig-go: there is no Go on PATH, and none is fetched for {system}: {INSTALL_GO}.")


def module_hash(archive: Path) -> str:
    """Go's checksum "h1" of a module's zip file: SHA-256 of the sorted list of its files with their SHA-256."""
    listed = hashlib.sha256()
    with zipfile.ZipFile(archive) as file:
        for name in sorted(file.namelist()):
            listed.update(f"{hashlib.sha256(file.read(name)).hexdigest()}  {name}\n".encode())
    return f"h1:{base64.b64encode(listed.digest()).decode()}"


def _unpacked(archive: Path, root: Path) -> Path:
    """The go command of the module that is ``root`` in the archive. Modules have no file modes: Go sets them, too."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(root.parents[1])
    archive.unlink()
    for program in [*(root / "bin").iterdir(), *(root / "pkg" / "tool").rglob("*")]:
        program.chmod(0o755)
    return root / "bin" / "go"


def _proxy() -> str:
    """The first address of GOPROXY, by default Go's own."""
    setting = os.environ.get("GOPROXY") or "https://proxy.golang.org"
    addresses = [address for address in re.split("[,|]", setting) if "://" in address]
    if not addresses:
        raise SystemExit(f"asrconfig-go: GOPROXY={setting} names no address to fetch Go from: {INSTALL_GO}.")
    return addresses[0].rstrip("/")


def _version(go: str) -> tuple[int, ...]:
    """That of a go command, (0,) where it does not tell."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, env=environment, cwd=Path(go).parent
        )
    except OSError:
        return (0,)
    match = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else (0,)
