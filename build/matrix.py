"""Tests with the oldest, Colab's and the newest libraries, each set in its own environment: python build/matrix.py.

Environments and results stay in .matrix (6 GB a row, most of it torch's CUDA libraries; --remove deletes each row's
after its tests). The table of every row that was run goes to benchmarks/matrix.md. The exit status is 1 when a test
failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".matrix"
TABLE = ROOT / "benchmarks" / "matrix.md"
SHOWN = ("torch", "transformers", "accelerate", "datasets", "numpy", "pyarrow")


class Row(NamedTuple):
    """One set of versions; the first of ``pythons`` that the machine has is used."""

    name: str
    pythons: tuple[str, ...]
    pins: tuple[str, ...]


ROWS = (
    # The floors of pyproject.toml.
    Row(
        "oldest",
        ("3.10", "3.11", "3.12"),
        (
            *("torch==2.4.0", "transformers==4.46.1", "accelerate==1.1.0", "datasets==3.0.0", "numpy==1.24.4"),
            *("pyarrow==17.0.0", "soundfile==0.12.1", "soxr==0.4.0", "scipy==1.10.1"),
            *("tensorboard==2.17.0", "matplotlib==3.8.0"),
        ),
    ),
    # Google Colab's image, as of August 2026.
    Row(
        "colab",
        ("3.13", "3.12"),
        (
            *("torch==2.11.0", "transformers==5.15.0", "accelerate==1.14.0", "datasets==4.0.0", "numpy~=2.1.0"),
            *("pyarrow==18.1.0", "pandas~=2.2.0", "matplotlib~=3.10.0", "tensorboard==2.20.0"),
        ),
    ),
    Row("newest", ("3.14", "3.13", "3.12", "3.11"), ()),
)

# The tests that meet those libraries: the Trainer and its arguments, models, datasets, the recorder, the loaders.
TESTS = (
    *("memory_callback", "callback_reporters", "dataset_profile", "environment", "guard_padding", "collated_batch"),
    *("labels", "durations", "loading_audio", "loading_collators", "loss_kind", "loss_table", "model_config"),
    *("model_preparation", "recipe_data", "settings", "sources", "trace_kernels", "training_arguments"),
)


def python_of(row: Row) -> str:
    """The first interpreter of the row that runs here."""
    for version in row.pythons:
        program = shutil.which(f"python{version}")
        if program and subprocess.run([program, "-c", "import ensurepip"], capture_output=True).returncode == 0:
            return program
    sys.exit(f"{row.name}: none of Python {', '.join(row.pythons)} is here")


def install(row: Row) -> Path:
    """The row's environment with this checkout in it; gives its Python."""
    python = FOLDER / row.name / "bin" / "python"
    if not python.exists():
        subprocess.run([python_of(row), "-m", "venv", FOLDER / row.name], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--upgrade", "pip"], check=True)
    wanted = ["-e", f"{ROOT}[train,plot]", "pytest>=8", "pytest-xdist>=3.5", *row.pins]
    upgrade = [] if row.pins else ["--upgrade", "--upgrade-strategy", "eager"]
    subprocess.run([python, "-m", "pip", "install", "-q", *upgrade, *wanted], check=True, cwd=ROOT)
    return python


def test(row: Row, python: Path) -> dict[str, Any]:
    """Run the tests and count."""
    report = FOLDER / f"{row.name}.xml"
    report.unlink(missing_ok=True)
    files = [next((ROOT / "python" / "tests").glob(f"*/test_{name}.py")) for name in TESTS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    start = time.monotonic()
    # Other versions warn of other things.
    command = [python, "-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider"]
    command += ["-n", os.environ.get("PROCESSES", "auto")]
    subprocess.run([*command, "--dist", "loadfile", f"--junitxml={report}", *files], cwd=ROOT, env=environment)
    seconds = time.monotonic() - start
    if not report.exists():
        sys.exit(f"{row.name}: pytest ended without a report")
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    count = {key: int(suite.get(key, 0)) for key in ("tests", "skipped", "failures", "errors")}
    failed = count["failures"] + count["errors"]
    if count["tests"] == 0:
        sys.exit(f"{row.name}: no test ran")
    passed = count["tests"] - failed - count["skipped"]
    return {"passed": passed, "skipped": count["skipped"], "failed": failed, "seconds": round(seconds)}


def versions(python: Path) -> dict[str, str]:
    """What is installed there."""
    listing = subprocess.run([python, "-m", "pip", "list", "--format", "json"], check=True, stdout=subprocess.PIPE)
    installed = {package["name"]: package["version"] for package in json.loads(listing.stdout)}
    about = subprocess.run([python, "-V"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]
    return {"Python": about, **{name: installed[name] for name in SHOWN}}


def table() -> str:
    """Every row that was run on this machine."""
    results = [json.loads(path.read_text()) for row in ROWS if (path := FOLDER / f"{row.name}.json").exists()]
    names = list(results[0])
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(str(row[name]) for name in names) + " |" for row in results)]) + "\n"


HEAD = """\
# Versions that are tested

`make matrix` installs each set into an environment of its own and runs the tests that meet these libraries
({count} files of `python/tests`). Made on {date}, {cores} cores, no GPU.

"""


def _known(name: str) -> str:
    if name not in {row.name for row in ROWS}:
        raise argparse.ArgumentTypeError(f"there is no row {name!r}")
    return name


def main() -> None:
    """Run the rows asked for, all without any."""
    parser = argparse.ArgumentParser(description=__doc__)
    # Not by choices: without any row, argparse of Python 3.11 and older refuses the empty list.
    parser.add_argument("rows", nargs="*", type=_known, help=f"of {', '.join(row.name for row in ROWS)}; default: all")
    parser.add_argument("--remove", action="store_true", help="delete each environment after its tests")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    failed = 0
    for row in ROWS:
        if arguments.rows and row.name not in arguments.rows:
            continue
        print(f"== {row.name}", flush=True)
        python = install(row)
        result = {"set": row.name, **versions(python), **test(row, python), "date": today}
        (FOLDER / f"{row.name}.json").write_text(json.dumps(result))
        failed += result["failed"]
        if arguments.remove:
            shutil.rmtree(FOLDER / row.name)
    print(table())
    TABLE.write_text(HEAD.format(count=len(TESTS), date=today, cores=os.cpu_count()) + table())
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
