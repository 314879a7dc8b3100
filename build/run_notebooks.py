"""Run the notebooks and keep their outputs: what is committed is what they really gave.

    python build/run_notebooks.py [NAME…]

runs notebooks/NAME.ipynb (all of them without a name), each in a kernel of its own and an empty folder, without a
network, and writes it back with its outputs and the hash of the code that ran. Nothing is written when a cell fails, or
when an output tells of this machine's folders.
"""

from __future__ import annotations

import argparse
import getpass
import hashlib
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
MAX_BYTES = 1_500_000
TIMEOUT_S = 900  # of a cell
PARAMETERS = "parameters"  # tag of the cell whose settings can be replaced
_NOWHERE = "http://127.0.0.1:9"  # nothing listens there
_PRIVATE = re.compile(r"/(?:root|home|tmp|work|Users|opt|var|usr)/[\w.-]|site-packages|\bhf_[A-Za-z0-9]{20,}")


def run(path: Path, settings: Mapping[str, object], folder: Path) -> Any:
    """Run a copy of a notebook in ``folder`` and give it with its outputs.

    ``settings`` replace those of the notebook's parameters cell. Raises
    ``nbclient.exceptions.CellExecutionError`` when a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    cells = notebook.cells
    if settings:
        place = next(i for i, cell in enumerate(cells) if PARAMETERS in cell.metadata.get("tags", ()))
        unknown = [name for name in settings if not re.search(rf"(?m)^{name} = ", cells[place].source)]
        if unknown:
            raise ValueError(f"{path.name} has no settings {', '.join(unknown)}")
        lines = "\n".join(f"{name} = {value!r}" for name, value in settings.items())
        cells.insert(place + 1, nbformat.v4.new_code_cell(lines))
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
    )
    client.execute(env=environment(folder))
    return notebook


def environment(folder: Path) -> dict[str, str]:
    """That of the kernel: this tree's package, no network, no token, and caches that begin empty.

    Bars of finished work say nothing, and that there are no widgets here is no matter of the notebook's. Models as
    small as these are fastest on one thread.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE_"))}
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _NOWHERE)
    return {
        **variables,
        **proxies,
        "PYTHONPATH": str(ROOT / "python"),
        "HF_HOME": str(folder / ".hf"),
        "XDG_CACHE_HOME": str(folder / ".cache"),
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
        "PYTHONWARNINGS": "ignore:IProgress not found",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


def fingerprint(notebook: Any) -> str:
    """The hash of the code, in order: outputs with another one are of other code."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]


def private(notebook: Any) -> list[str]:
    """What outputs tell of the machine that they were made on: folders, users, tokens."""
    text = "\n".join(str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code")
    user = getpass.getuser()
    matches = [match.group() for match in _PRIVATE.finditer(text)]
    return matches + ([user] if user != "root" and user in text else [])


def cleaned(notebook: Any, seconds: float) -> Any:
    """With the metadata that every run gives alike, and what this run was."""
    metadata = {name: notebook.metadata[name] for name in ("accelerator", "colab") if name in notebook.metadata}
    notebook.metadata = nbformat.from_dict(
        {
            **metadata,
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "asrconfig_go": {"code": fingerprint(notebook), "run_s": round(seconds)},
        }
    )
    return notebook


def renew(path: Path) -> None:
    """Run a notebook as it stands and write it back."""
    with tempfile.TemporaryDirectory() as folder:
        begin, used = time.monotonic(), processor_s()
        notebook = cleaned(run(path, {}, Path(folder)), time.monotonic() - begin)
        used = processor_s() - used
    leaks = private(notebook)
    text = nbformat.writes(notebook) + "\n"
    size, seconds = len(text.encode()), notebook.metadata.asrconfig_go.run_s
    if leaks or size > MAX_BYTES:
        sys.exit(f"{path.name} is not written: {size} bytes; it tells of {leaks or 'nothing'}")
    nbformat.validate(notebook)
    path.write_text(text, encoding="utf-8")
    print(f"{path.stem:<20} {seconds:4d} s, {used:.0f} s of a processor, {size / 1000:.1f} kB", flush=True)


def processor_s() -> float:
    """Processor seconds of the kernels that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Renew those that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="without .ipynb; all if none is given")
    names = parser.parse_args().names
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        renew(path)


if __name__ == "__main__":
    main()
