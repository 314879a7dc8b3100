"""Measures what README and guides quote, one script after another, and writes the figures and the pages again.

    python benchmarks/bench.py [--full] [--only NAME ...]

The scripts, what they are run with and how figures are rounded are in ``claims.py``. Figures go to ``figures.json``
after each script, with its command and date, and ``docs/make_tables.py`` fills them into the pages at the end. What
counts is what a script wrote: the new figures of one that misses an aim are kept; one that fails or lacks a peer leaves
the old ones with their date. Both are named, and end this with status 1. ``make bench`` and ``make bench-full`` make
the environments that it needs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from claims import CLAIMS, FULL_TIMES, Claim

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "docs"))

import figures  # noqa: E402

SHOWN = 12  # lines of the output of a script that failed


def command_of(claim: Claim, written: str) -> list[str]:
    """The command with the interpreter that it asks for."""
    program, *arguments = written.split()
    if claim.environment:
        program = str(Path(sys.prefix).with_name(claim.environment) / "bin" / program)
    return [sys.executable if program == "python" else program, *arguments]


def run(command: list[str], limit_s: float) -> tuple[int, str]:
    """Exit status and output; a script that takes too long is killed with all that it started."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            output += f"\nkilled after {limit_s:.0f} s"
    return process.returncode, output


def measured(claim: Claim, written: str, limit_s: float) -> tuple[dict[str, figures.Figure], list[str]]:
    """What a script says of its figures, and what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures.json")
        wants = ["--json", str(file)] if claim.figures else []
        try:
            status, output = run([*command_of(claim, written), *wants], limit_s)
        except OSError as error:
            return {}, [f"{written} cannot be started: {error}"]
        recorded = json.loads(file.read_text("utf-8")) if file.exists() else {}
    today, measurements, wrong = datetime.date.today().isoformat(), dict[str, figures.Figure](), list[str]()
    if status:
        wrong.append(f"{written} ended with {status}:\n{last_lines(output)}")
    for name, figure in claim.figures.items():
        try:
            value = figure.of(recorded)
        except (LookupError, TypeError, StopIteration):
            wrong.append(f"{name} was not measured by {written}")
        else:
            measurements[name] = figures.Figure(value=value, unit=figure.unit, command=written, date=today)
    return measurements, wrong


def last_lines(output: str) -> str:
    return "\n".join(f"    {line}" for line in output.strip().splitlines()[-SHOWN:])


def bench(claims: Iterable[Claim], file: Path, full: bool = False) -> list[str]:
    """Measure claims one after another, keep their figures in a file, and return what is wrong."""
    problems = list[str]()
    chosen = [(claim, claim.command(full)) for claim in claims]
    for number, (claim, written) in enumerate(chosen, start=1):
        print(f"{number}/{len(chosen)} {written}", flush=True)
        began = time.monotonic()
        limit_s = 60 * claim.minutes * (FULL_TIMES if full else 1)
        measurements, wrong = measured(claim, written, limit_s)
        figures.write({**figures.read(file), **measurements}, file)
        line = ", ".join(f"{name} {figures.shown(figure)}" for name, figure in measurements.items())
        print(f"    {time.monotonic() - began:.0f} s: {line or 'no figures'}", *wrong, sep="\n", flush=True)
        problems += wrong
    return problems


def refill() -> bool:
    """Write the figures into the pages; whether that went well."""
    return subprocess.run([sys.executable, "docs/make_tables.py"], cwd=REPOSITORY).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all at full size, for hours")
    parser.add_argument(
        "--only", nargs="+", default=["benchmarks"], metavar="NAME", help="scripts whose command contains one of these"
    )
    options = parser.parse_args()
    claims = [claim for claim in CLAIMS if any(name in claim.command(options.full) for name in options.only)]
    if not claims:
        mode = "" if options.full else " without --full"
        parser.error(f"no script called {' or '.join(options.only)} is run{mode}; benchmarks/claims.py has all")
    began = time.monotonic()
    problems = bench(claims, figures.FILE, options.full)
    written = refill()
    print(f"{time.monotonic() - began:.0f} s", *(f"WRONG: {problem}" for problem in problems), sep="\n")
    return int(bool(problems) or not written)


if __name__ == "__main__":
    sys.exit(main())
