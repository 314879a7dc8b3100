"""The first cell: the same everywhere, never a package of PyPI, and it installs before and after a release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from doc_pages import HOME, NOTEBOOKS, cell, first_cells, name_of, wheel
from locations import REPOSITORY

_PIP_INSTALL = re.compile(r"pip['\" ,]+install[^\n]*asrconfig[-_]go[^\n]*")
_OURS = re.compile(rf"@ ?(\{{source\}}|{re.escape(HOME)})|git\+{re.escape(HOME)}|--no-index|-e ")


def test_every_first_cell_is_the_same() -> None:
    cells = first_cells()
    assert {"README.md", "docs/installing.md", *map(name_of, NOTEBOOKS)} <= set(cells)
    assert {each for found in cells.values() for each in found} == {cell()}


def test_no_line_installs_a_package_of_this_name_from_pypi() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--", "*.md", "*.py", "*.ipynb", "*.go", "*.sh", "Makefile", "*.toml"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    files = {name: REPOSITORY / name for name in tracked}
    lines = {name: _PIP_INSTALL.findall(file.read_text("utf-8")) for name, file in files.items() if file.is_file()}
    assert lines["README.md"], "the pattern finds the cell"
    foreign = {name: [line for line in found if not _OURS.search(line)] for name, found in lines.items()}
    assert {name: found for name, found in foreign.items() if found} == {}


def test_the_wheel_is_named_as_a_release_names_it() -> None:
    tag, name = wheel()
    assert name == f"asrconfig_go-{tag.removeprefix('v')}-py3-none-manylinux_2_17_x86_64.whl"
    release = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert "releases/download/$GITHUB_REF_NAME/asrconfig_go-${GITHUB_REF_NAME#v}-py3" in release
    assert "gh release create" in release


class Home:
    """A server on this machine in place of the repository's address: its releases, and its clone by git."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address

    def run_cell(self, python: Path, **environment: str) -> list[str]:
        """Run the cell without the extras, which are gigabytes of other packages, and print the package's version."""
        source = cell().replace(HOME, self.address).replace("[train,plot]", "")
        source += "\nimport asrconfig_go\nprint(asrconfig_go.__version__)"
        given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.file://{self.folder}.insteadOf",
            "GIT_CONFIG_VALUE_0": self.address,
            **environment,
        }
        done = subprocess.run([python, "-c", source], capture_output=True, text=True, env=given, cwd=python.parent)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    folder = tmp_path / "home"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield Home(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """That of a new environment."""
    venv.create(tmp_path / "venv", with_pip=True)
    return tmp_path / "venv" / "bin" / "python"


@pytest.mark.slow
def test_after_a_release_the_cell_installs_its_wheel(python: Path, home: Home) -> None:
    tag, name = wheel()
    version = tag.removeprefix("v")
    folder = home.folder / "releases" / "download" / tag
    folder.mkdir(parents=True)
    make_wheel(folder / name, version)
    assert home.run_cell(python) == [f"Installing {home.address}/releases/download/{tag}/{name}", version]
    assert home.run_cell(python) == [version], "what is installed stays"


def make_wheel(path: Path, version: str) -> None:
    """A package of one module, in place of the real one."""
    info = f"asrconfig_go-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("asrconfig_go/__init__.py", f'__version__ = "{version}"\n')
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: asrconfig-go\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_before_a_release_the_cell_builds_from_the_repository_without_go(
    python: Path, home: Home, tmp_path: Path
) -> None:
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", REPOSITORY, home.folder], check=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "gcc", "as", "ld", "sh"):
        (tools / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not installed"))
    assert shutil.which("go", path=str(tools)) is None
    first, second, version = home.run_cell(python, PATH=str(tools))
    assert first.endswith(".whl") and second == f"Installing git+{home.address}"
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert f"+g{commit.stdout[:7]}" in version
