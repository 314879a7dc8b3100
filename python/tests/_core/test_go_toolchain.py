"""Go for a build from source: the one on PATH, or the pinned one, which is refused with another checksum."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import zipfile
from pathlib import Path

import go_toolchain as toolchain
import pytest

from locations import REPOSITORY


@pytest.fixture
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, and empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A proxy of modules with one that looks like Go's; gives its zip file."""
    version, _ = toolchain.pinned()
    archive = tmp_path / "proxy" / toolchain.MODULE / "@v" / f"{version}.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("bin/go", "pkg/tool/linux_amd64/compile", "VERSION"):
            file.writestr(f"{toolchain.MODULE}@{version}/{name}", "#!/bin/sh\necho go1.99\n")
    monkeypatch.setenv("GOPROXY", f"file://{tmp_path / 'proxy'},direct")
    return archive


def pin(archive: Path, sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums.write_text(f"{toolchain.MODULE} {archive.stem} {toolchain.module_hash(archive)}\n")
    monkeypatch.setattr(toolchain, "SUMS", sums)


@pytest.mark.usefixtures("no_go")
def test_another_checksum_is_refused_and_nothing_unpacked(proxy: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has the checksum h1:.*h1:.* was expected: it is not used\..*go\.dev/dl"):
        toolchain.go_or_fetched(tmp_path / "go")
    assert [path.name for path in (tmp_path / "go").iterdir()] == ["go.zip"]


@pytest.mark.usefixtures("no_go")
def test_the_pinned_go_is_fetched_with_one_line_of_progress(
    proxy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pin(proxy, tmp_path / "sums", monkeypatch)
    go = toolchain.go_or_fetched(tmp_path / "go")
    assert capsys.readouterr().err == f"asrconfig-go: no Go 1.24 on PATH, fetching file://{proxy}\n"
    assert subprocess.run([go], capture_output=True, text=True, check=True).stdout == "go1.99\n"
    assert os.access(Path(go).parents[1] / "pkg" / "tool" / "linux_amd64" / "compile", os.X_OK)


@pytest.mark.parametrize(
    ("version", "used"), [("go1.24.0", True), ("go1.26.8", True), ("go1.19.8", False), ("", False)]
)
def test_a_go_that_is_too_old_is_not_used(
    version: str, used: bool, no_go: Path, proxy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(proxy, tmp_path / "sums", monkeypatch)
    (no_go / "go").write_text(f"#!/bin/sh\necho {version}\n")
    (no_go / "go").chmod(0o755)
    assert (toolchain.go_or_fetched(tmp_path / "go") == str(no_go / "go")) is used


@pytest.mark.usefixtures("no_go")
@pytest.mark.parametrize(
    ("proxies", "message"),
    [
        ("off", "GOPROXY=off names no address"),
        ("direct", "names no address"),
        ("file:///nowhere", "cannot fetch Go from"),
    ],
)
def test_what_cannot_be_fetched_says_to_install_go(
    proxies: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOPROXY", proxies)
    with pytest.raises(SystemExit, match=rf"{message}.*install Go 1\.24 or newer \(https://go\.dev/dl\)"):
        toolchain.go_or_fetched(tmp_path)


def test_a_system_without_a_pinned_go_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SystemExit, match=r"none is fetched for \w+-riscv64: install Go"):
        toolchain.pinned()


@pytest.mark.usefixtures("no_go")
def test_without_a_c_compiler_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        SystemExit, match=r"no gcc, clang, cc on PATH\. Install one \(Debian, Ubuntu: apt-get install gcc"
    ):
        toolchain.compiler()
    monkeypatch.setenv("CC", "tcc -w")
    with pytest.raises(SystemExit, match=r"there is no tcc -w on PATH"):
        toolchain.compiler()


def test_the_floor_is_the_module_s() -> None:
    match = re.search(r"(?m)^go (\d+)\.(\d+)", (REPOSITORY / "go.mod").read_text("utf-8"))
    assert match is not None and (int(match[1]), int(match[2])) == toolchain.FLOOR


def test_the_pinned_version_is_one_for_all_systems() -> None:
    lines = [line.split() for line in toolchain.SUMS.read_text("ascii").splitlines()]
    assert {module for module, _, _ in lines} == {toolchain.MODULE}
    versions = [version.rsplit(".", 1) for _, version, _ in lines]
    assert len({version for version, _ in versions}) == 1
    assert [system for _, system in versions] == ["linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"]
