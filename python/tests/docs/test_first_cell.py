"""The first cell: the same everywhere, never a package of PyPI, and it installs before and after a release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from doc_pages import name_of
from first_cell import HOME, NOTEBOOKS, cell, first_cells, wheel
from locations import REPOSITORY

_PIP_INSTALL = re.compile(r"pip['\" ,]+install[^\n]*asrconfig[-_]go[^\n]*")
_OURS = re.compile(rf"@ ?(\{{source\}}|{re.escape(HOME)})|git\+{re.escape(HOME)}|--no-index|-e ")


def test_every_first_cell_is_the_same() -> None:
    cells = first_cells()
    assert {"README.md", "docs/colab.md", "docs/installing.md", *map(name_of, NOTEBOOKS)} <= set(cells)
    assert {each for found in cells.values() for each in found} == {cell()}


def test_no_line_installs_a_package_of_this_name_from_pypi() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--", "*.md", "*.py", "*.ipynb", "*.go", "*.sh", "Makefile", "*.toml"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    lines = {name: _PIP_INSTALL.findall((REPOSITORY / name).read_text("utf-8")) for name in tracked if name}
    assert lines["README.md"], "the pattern finds the cell"
    foreign = {name: [line for line in found if not _OURS.search(line)] for name, found in lines.items()}
    assert {name: found for name, found in foreign.items() if found} == {}


def test_the_wheel_is_named_as_a_release_names_it() -> None:
    tag, name = wheel()
    assert name == f"asrconfig_go-{tag.removeprefix('v')}-py3-none-manylinux_2_17_x86_64.whl"
    release = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert "releases/download/$GITHUB_REF_NAME/asrconfig_go-${GITHUB_REF_NAME#v}-py3" in release
    assert "gh release create" in release


def run_cell(python: Path, home: str, path: str) -> subprocess.CompletedProcess[str]:
    """Run the cell with ``home`` in place of the repository's address; dependencies would come from the network."""
    source = cell()
    assert source.count(HOME) == 1
    environment = {**os.environ, "PATH": path, "PIP_NO_DEPS": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, "-c", f"{source.replace(HOME, home)}\nimport asrconfig_go\nprint(asrconfig_go.__version__)"],
        capture_output=True, text=True, env=environment, cwd=python.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """That of a new environment."""
    venv.create(tmp_path / "venv", with_pip=True)
    return tmp_path / "venv" / "bin" / "python"


@pytest.mark.slow
def test_after_a_release_the_cell_installs_its_wheel(python: Path, tmp_path: Path) -> None:
    tag, name = wheel()
    folder = tmp_path / "home" / "releases" / "download" / tag
    folder.mkdir(parents=True)
    version = tag.removeprefix("v")
    make_wheel(folder / name, version)
    done = run_cell(python, f"file://{tmp_path / 'home'}", os.environ["PATH"])
    assert done.stdout.splitlines()[1:] == [version]
    again = run_cell(python, "file:///nowhere", os.environ["PATH"])
    assert again.stdout.splitlines() == [version], "an installed package is left alone"


def make_wheel(path: Path, version: str) -> None:
    """A package of one module, in place of the real one."""
    import zipfile

    info = f"asrconfig_go-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("asrconfig_go/__init__.py", f'__version__ = "{version}"\n')
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: asrconfig-go\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_before_a_release_the_cell_builds_from_the_repository_without_go(python: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", REPOSITORY, tmp_path / "home"], check=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "gcc", "as", "ld", "sh"):
        (tools / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not installed"))
    assert shutil.which("go", path=str(tools)) is None
    done = run_cell(python, f"file://{tmp_path / 'home'}", str(tools))
    first, second, version = done.stdout.splitlines()
    assert first.startswith("Installing file://") and second.startswith("Installing git+file://")
    assert version
    assert sys.executable != str(python)
