"""A newcomer's first cells, copied from the pages as they are and run in a new environment; output: ``newcomer.md``.

    python benchmarks/newcomer.py > benchmarks/newcomer.md

Makes a virtual environment in a temporary folder, without Go on the PATH, and installs the package there by README's
first cell; a server on this machine stands in for the repository's address, where there is no release. Then each cell
runs in a process of its own, in an empty folder and without the Hub. What a page calls "your" model or dataset is what
its tests use (``python/tests/helpers/docs_setup``). ``--here`` leaves the installation out and uses this environment.

Exit status 1 when a cell fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

REPOSITORY = Path(__file__).resolve().parents[1]
HELPERS = REPOSITORY / "python" / "tests" / "helpers"
sys.path.insert(0, str(HELPERS))

from doc_pages import (  # noqa: E402
    HOME,
    blocks,
    cell,
)

_LINES = 16  # of a cell's output
_TOOLS = ("git", "gcc", "as", "ld", "sh")  # what a build needs of a machine without Go


@dataclass(frozen=True)
class Step:
    """A page's Python blocks below a heading; ``yours`` makes what the page calls "your" model and dataset."""

    title: str
    page: str
    heading: str
    yours: str = ""

    def code(self) -> str:
        """All that runs: where the helpers lie, what is yours, and the blocks as they are."""
        page = REPOSITORY / self.page
        lines = page.read_text("utf-8").splitlines()
        begin = lines.index(self.heading) + 1
        end = next((n for n, line in enumerate(lines[begin:], begin) if line.startswith("#")), len(lines))
        texts = [b.text for b in blocks(page) if b.language == "python" and begin < b.line <= end]
        return "\n".join((f"import sys; sys.path.insert(0, {str(HELPERS)!r})", self.yours, *texts))


def kind(name: str) -> str:
    """A dataset, a model and a collator of the tests."""
    return (
        f"from transformers import Trainer\nfrom data_kinds import KNOWN\ndataset, model, collator = KNOWN[{name!r}]()"
    )


STEPS = (
    Step("CTC", "README.md", "### CTC"),
    Step("Whisper", "README.md", "### Whisper"),
    Step("Callback only", "docs/callback.md", "# Only the callback", "from docs_setup.callback import *"),
    Step("A classifier", "docs/quick-integration.md", "## Two steps", kind("classes of clips")),
    Step("A dataset of features only", "docs/quick-integration.md", "## Two steps", kind("w2v-BERT features")),
)


@dataclass(frozen=True)
class Done:
    """What running some code came to."""

    code: int
    seconds: float
    output: str


def run(python: Path, code: str, folder: Path, **environment: str) -> Done:
    """Run code in a process of its own in an empty folder."""
    folder.mkdir()
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore", **environment}
    began = time.perf_counter()
    done = subprocess.run(
        [python, "-c", code], cwd=folder, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return Done(done.returncode, time.perf_counter() - began, done.stdout)


def installed(folder: Path) -> tuple[Path, Done]:
    """A new environment with the package, and what the first cell printed."""
    home, tools = folder / "home", folder / "tools"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", REPOSITORY, home], check=True)
    tools.mkdir()
    for name in _TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    handler = partial(SimpleHTTPRequestHandler, directory=str(home))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        git = {
            "PYTHONPATH": "",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.file://{home}.insteadOf",
            "GIT_CONFIG_VALUE_0": address,
        }
        done = run(python, cell().replace(HOME, address), folder / "install", PATH=str(tools), **git)
        server.shutdown()
    return python, Done(done.code, done.seconds, done.output.replace(address, HOME))


def last_lines(output: str, folder: Path) -> list[str]:
    """The end of an output as a terminal shows it, without the temporary folder's name."""
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in output.replace(str(folder), "").splitlines()]
    lines = [line for line in lines if line and "%|" not in line]
    return lines[-_LINES:]


def transcript(here: bool) -> Iterator[tuple[str, Done | None, list[str]]]:
    """Each step's title, how it ended and the end of its output."""
    with tempfile.TemporaryDirectory() as name:
        folder, python = Path(name), Path(sys.executable)
        if not here:
            python, done = installed(folder)
            yield "Install", done, last_lines(done.output, folder)
        for number, step in enumerate(STEPS):
            done = run(python, step.code(), folder / f"cell{number}", **({} if here else {"PYTHONPATH": ""}))
            yield step.title, done, last_lines(done.output, folder)


def main() -> int:
    """Print the transcript."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="use this environment instead of a new one")
    failed = 0
    print("# A newcomer's first cells\n\nWritten by `python benchmarks/newcomer.py`.")
    for title, done, lines in transcript(parser.parse_args().here):
        failed += done.code != 0
        ended = "done" if done.code == 0 else f"FAILED with status {done.code}"
        print("\n".join([f"\n## {title}\n", f"{ended} in {done.seconds:.0f} s\n", "```", *lines, "```"]), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
