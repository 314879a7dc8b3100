"""Checks the wheels of build/wheel.sh and prints one table: python build/check_wheels.py FOLDER [SECOND_BUILD].

Each check says what it found; the first that fails ends the program with the reason. SECOND_BUILD is another folder
that build/wheel.sh wrote, for the comparison of bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from licences import listed

ROOT = Path(__file__).resolve().parents[1]
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
MAX_BYTES = 8_500_000
GLIBC = (2, 17)
LIBRARY = "asrconfig_go/_core.so"


class Wheel(NamedTuple):
    """One wheel, read."""

    path: Path
    machine: str
    files: dict[str, bytes]

    @property
    def library(self) -> ELFFile:
        """The native library."""
        return ELFFile(io.BytesIO(self.files[LIBRARY]))

    @property
    def version(self) -> str:
        """As its name says."""
        return self.path.name.split("-")[1]


def require(fine: bool, message: str) -> None:
    """End the program unless it is fine."""
    if not fine:
        sys.exit(f"failed: {message}")


def read(folder: Path, machine: str) -> Wheel:
    """The one wheel of a machine."""
    wheels = list(folder.glob(f"*-py3-none-manylinux_2_17_{machine}.whl"))
    require(
        len(wheels) == 1, f"{folder} should hold one manylinux_2_17 wheel for {machine}: {[p.name for p in wheels]}"
    )
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
        return Wheel(wheels[0], machine, {name: archive.read(name) for name in names})


def size(wheel: Wheel) -> str:
    """Of the file that people download."""
    packed = wheel.path.stat().st_size
    require(packed <= MAX_BYTES, f"{wheel.path.name} has {packed} bytes, more than {MAX_BYTES}")
    return f"{packed / 1e6:.2f} MB, unpacked {sum(map(len, wheel.files.values())) / 1e6:.1f} MB"


def policy(wheel: Wheel) -> str:
    """The oldest policy that auditwheel finds it to fulfil: that of its name, or an older and stricter one."""
    done = subprocess.run([sys.executable, "-m", "auditwheel", "show", str(wheel.path)], capture_output=True, text=True)
    words = " ".join(done.stdout.split())
    tag = re.search(r'is consistent with the following platform tag: "manylinux_2_(\d+)_', words)
    if tag is None or int(tag[1]) > GLIBC[1]:
        sys.exit(f"failed: auditwheel: {words} {done.stderr}")
    return f"auditwheel: fulfils manylinux_2_{tag[1]}"


def machine(wheel: Wheel) -> str:
    """What the library was built for, and which shared libraries it needs."""
    library = wheel.library
    require(library.header["e_machine"] == MACHINES[wheel.machine], f"built for {library.header['e_machine']}")
    dynamic = library.get_section_by_name(".dynamic")
    needed = sorted(tag.needed for tag in dynamic.iter_tags("DT_NEEDED"))
    require(all(name.startswith(("libc.", "libdl.", "libpthread.", "ld-linux")) for name in needed), f"needs {needed}")
    return ", ".join(needed)


def exports(wheel: Wheel) -> str:
    """The symbols that others can see: those of the header, no more and no fewer."""
    symbols = wheel.library.get_section_by_name(".dynsym").iter_symbols()
    names = {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL"}
    header = (ROOT / "capi" / "asrconfig.h").read_text()
    declared = set(re.findall(r"^\w[\w ]*[ *](ac_\w+)\(", header, re.MULTILINE))
    require(names == declared, f"exported {sorted(names)}, declared {sorted(declared)}")
    return f"{len(names)}, those of asrconfig.h"


def glibc(wheel: Wheel) -> str:
    """The newest version of glibc's symbols that is asked for."""
    versions = set()
    for section in wheel.library.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            versions |= {entry.name for _, entries in section.iter_versions() for entry in entries}
    require(all(v.startswith("GLIBC_2.") for v in versions) and versions, f"symbol versions {sorted(versions)}")
    newest = max(tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in versions)
    require(newest <= GLIBC, f"needs GLIBC_{'.'.join(map(str, newest))}")
    return "GLIBC_" + ".".join(map(str, newest))


def licences(wheel: Wheel) -> str:
    """Every module that the library says it was linked from has its licence inside."""
    folder = f"asrconfig_go-{wheel.version}.dist-info/licenses"
    texts = {
        name: wheel.files.get(f"{folder}/{name}", b"").decode() for name in ("LICENSE", "THIRD_PARTY_LICENSES.txt")
    }
    require(all(texts.values()), f"licences missing in {folder}: {[n for n, text in texts.items() if not text]}")
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(wheel.files[LIBRARY])
        file.flush()
        out = subprocess.run(["go", "version", "-m", file.name], check=True, stdout=subprocess.PIPE, text=True).stdout
    linked = [" ".join(line.split()[1:3]) for line in out.splitlines() if line.split()[0] == "dep"]
    missing = set(linked) - set(listed(texts["THIRD_PARTY_LICENSES.txt"]))
    require(bool(linked) and not missing, f"no licence in the wheel for {sorted(missing)}, linked: {linked}")
    return f"of {len(linked)} modules and of Go"


def version(wheel: Wheel) -> str:
    """The same in the metadata, in Python and in the library."""
    metadata = wheel.files[f"asrconfig_go-{wheel.version}.dist-info/METADATA"].decode()
    require(f"\nVersion: {wheel.version}\n" in metadata, "the metadata has another version")
    require(
        f'"{wheel.version}"' in wheel.files["asrconfig_go/_core/_version.py"].decode(),
        "_version.py has another version",
    )
    require(wheel.version.encode() in wheel.files[LIBRARY], "the library has another version")
    return wheel.version


def paths(wheel: Wheel) -> str:
    """Nothing of the machine that built it: not the checkout, the home, nor Go's and temporary folders."""
    go = subprocess.run(["go", "env", "GOROOT", "GOMODCACHE", "GOCACHE"], check=True, stdout=subprocess.PIPE, text=True)
    telling = {path for path in (str(ROOT), str(Path.home()), *go.stdout.split(), sys.prefix) if len(path) > 2}
    temporary = re.escape(tempfile.gettempdir()) + r"/tmp[.\w]{8,}"  # of mktemp, where the wheels are built
    pattern = re.compile("|".join([temporary, *map(re.escape, sorted(telling))]).encode())
    matches = {f"{m[0].decode()} in {name}" for name, data in wheel.files.items() for m in pattern.finditer(data)}
    require(not matches, f"paths of this machine: {sorted(matches)[:5]}")
    return f"none of {len(telling) + 1}"


def contents(wheel: Wheel) -> str:
    """The package's own files, as git has them, and what the build adds: nothing is missing or left over."""
    names = [name for name in wheel.files if not name.split("/")[0].endswith(".dist-info")]
    tracked = subprocess.run(
        ["git", "ls-files", "asrconfig_go"], cwd=ROOT / "python", check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split("\n")
    wanted = {name for name in tracked if name} | {LIBRARY, "asrconfig_go/_core/_version.py"}
    require(set(names) == wanted, f"in one but not the other: {sorted(set(names) ^ wanted)}")
    return f"{len(names)} files, those of the package"


def same(wheel: Wheel, other: Path) -> str:
    """Whether the second build gave the same bytes."""
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel.path, other / wheel.path.name)}
    require(len(digests) == 1, f"{wheel.path.name} built twice: {sorted(digests)}")
    return "sha256 " + digests.pop()[:16] + "…, twice"


def main() -> None:
    """Run every check on every wheel."""
    folder, again = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    checks = [size, policy, machine, exports, glibc, licences, version, paths, contents]
    for name in MACHINES:
        wheel = read(folder, name)
        print(f"{wheel.path.name}")
        for check in checks:
            print(f"  {check.__name__:<10} {check(wheel)}")
        if again is not None:
            print(f"  {'same':<10} {same(wheel, again)}")


if __name__ == "__main__":
    os.environ.setdefault("GOFLAGS", "-mod=readonly")
    main()
