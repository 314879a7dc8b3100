"""Builds the Go core into the package. Everything else is in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

LIBRARY_SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
HERE = Path(__file__).resolve().parent

sys.path.insert(0, str(HERE / "build"))  # pip runs this file from elsewhere
from go_toolchain import compiler, go_or_fetched  # noqa: E402


def go_command(go: str, output: Path, version: str, tags: str) -> list[str]:
    """The command that builds the shared library.

    go-nvml leaves the driver's functions undefined, to be bound when they are first called: the linker must not ask
    for immediate binding, or the library would not load on a machine without a driver. Only the functions of
    capi/asrconfig.h are exported. Without a build ID, which would hash the paths in these flags, the same sources give
    the same bytes wherever they lie.
    """
    ldflags = f"-s -w -buildid= -X github.com/asrconfig/asrconfig-go/core/api.Version={version}"
    if sys.platform.startswith("linux"):
        ldflags += f""" '-extldflags=-s -Wl,-z,lazy "-Wl,--version-script={HERE / "capi" / "exports.map"}"'"""
    command = [
        go,
        "build",
        "-buildmode=c-shared",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        ldflags,
        "-o",
        str(output),
    ]
    return [*command, *(["-tags", tags] if tags else []), "./capi"]


def on_musl() -> bool:
    """Whether this Python runs on musl instead of glibc: the loader's name stands at the start of its executable."""
    with Path(sys.executable).open("rb") as file:
        return b"/ld-musl-" in file.read(4096)


def refuse_where_it_cannot_work() -> None:
    """Stop with the reason before anything is built that would not load."""
    if on_musl():
        raise SystemExit(
            "asrconfig-go: this Python runs on musl (Alpine Linux), where a program cannot load a Go library after it"
            " started (golang/go#13492): neither a wheel nor a build from source would work. Use an image with glibc,"
            " python:3.13-slim instead of python:3.13-alpine for example."
        )


class BuildGo(build_ext):
    """Runs ``go build`` where setuptools expects a C compiler."""

    def get_ext_filename(self, fullname: str) -> str:
        """No Python ABI in the name: the library is loaded by ctypes and fits every Python 3."""
        return str(Path(*fullname.split("."))) + LIBRARY_SUFFIX

    def build_extension(self, ext: Extension) -> None:
        """Build ./capi into the package."""
        refuse_where_it_cannot_work()
        output = Path(self.get_ext_fullpath(ext.name)).resolve()
        output.parent.mkdir(parents=True, exist_ok=True)
        version = self.distribution.get_version()
        tags = os.environ.get("ASRCONFIG_BUILD_TAGS", "")
        # go-nvml's generated wrappers call functions that newer NVML headers mark as deprecated.
        cflags = os.environ.get("CGO_CFLAGS", "-O2 -g") + " -Wno-deprecated-declarations"
        environment = {**os.environ, "CC": compiler(), "CGO_ENABLED": "1", "CGO_CFLAGS": cflags}
        with tempfile.TemporaryDirectory(prefix="asrconfig-go-") as folder:
            go = go_or_fetched(Path(folder))
            if go.startswith(folder):  # leaves nothing behind where there was no Go
                own = {"GOPATH": f"{folder}/path", "GOCACHE": f"{folder}/cache", "GOTOOLCHAIN": "local"}
                environment |= {**own, "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip()}
            subprocess.run(go_command(go, output, version, tags), check=True, cwd=HERE, env=environment)
        output.with_suffix(".h").unlink(missing_ok=True)  # cgo's own header; the contract is capi/asrconfig.h


class AnyPythonWheel(bdist_wheel):
    """One wheel per platform for every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Only the platform matters."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("asrconfig_go._core", [])],
    cmdclass={"build_ext": BuildGo, "bdist_wheel": AnyPythonWheel},
    # build/ holds the wheel scripts, which are tracked: setuptools works elsewhere.
    options={"build": {"build_base": ".setuptools-build"}, "bdist_wheel": {"bdist_dir": ".setuptools-build/wheel"}},
)
