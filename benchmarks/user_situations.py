"""What people's data, settings and disks do to a training: prevented, survived, or named before or when it happens.

    python benchmarks/user_situations.py [--beside CHECKOUT] [--only WORDS] [--json FILE] [--markdown FILE]

Each function of ``situations/`` plays one situation that people reported in public, as they would meet it, on small
models and clips, and says how it ended: ``prevented`` or ``survived`` with the right result, ``named``, with a message
that says what is wrong and what to do, ``unnamed`` (a crash or a message that says neither) or ``silent``, a wrong
result without a word. Each runs in a process of its own. With ``--beside``, another checkout with its library built is
asked the same, and stands before ours. Exit status 1 when one of ours is silent or unnamed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "situations"
GOOD = ("prevented", "survived", "named")
_LIMIT_S = 300


def play(room: str, name: str, checkout: Path) -> dict[str, str]:
    """How one situation ends with the package of ``checkout``."""
    paths = f"{checkout.resolve() / 'python'}{os.pathsep}{FOLDER}"
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(FOLDER / "outcome.py"), room, name, folder]
        try:
            done = subprocess.run(
                command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return {"ending": "unnamed", "text": f"nothing after {_LIMIT_S} s"}
    if done.returncode:
        errors = done.stderr.strip().splitlines()
        return {"ending": "unnamed", "text": errors[-1] if errors else f"exit status {done.returncode}"}
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    text = answer["text"].replace(f"{checkout.resolve()}/", "").replace(folder, "folder")
    return {**answer, "text": text}


def situations(only: str) -> list[tuple[str, str, str]]:
    """Room, name and title of each whose title has these words."""
    listed = subprocess.run(
        [sys.executable, str(FOLDER / "outcome.py")], capture_output=True, text=True, check=True, cwd=FOLDER
    )
    rows = [(room, name, title) for room, name, title in json.loads(listed.stdout.splitlines()[-1])]
    return [row for row in rows if only.lower() in f"{row[0]} {row[2]}".lower()]


def table(rows: list[dict[str, Any]]) -> str:
    """The outcomes as a page, what is said in the first 200 characters."""
    lines = ["| situation | before | now | what is said, or what shows it |", "| --- | --- | --- | --- |"]
    for row in rows:
        text = " ".join(row["after"]["text"].split())[:200].replace("|", "\\|").replace("<", "&lt;")
        before = row["before"].get("ending", "")
        lines.append(f"| {row['room']}: {row['situation']} | {before} | {row['after']['ending']} | {text} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--only", default="", metavar="WORDS", help="those whose title, or room, has these words")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there, too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a table of them there, too")
    options = parser.parse_args()
    ours = Path(__file__).resolve().parents[1]
    rows: list[dict[str, Any]] = []
    for room, name, title in situations(options.only):
        before = play(room, name, options.beside) if options.beside else {}
        after = play(room, name, ours)
        rows.append({"room": room, "situation": title, "before": before, "after": after})
        earlier = f"{before['ending']:>9} → " if before else ""
        print(f"{room:<10}{title:<78}{earlier}{after['ending']:<9}  {after['text'][:160]}", flush=True)
    bad = [row for row in rows if row["after"]["ending"] not in GOOD]
    was_bad = [row for row in rows if row["before"] and row["before"]["ending"] not in GOOD]
    print(f"{len(rows)} situations: {len(bad)} silent or unnamed" + (f", {len(was_bad)} before" if was_bad else ""))
    if options.json:
        options.json.write_text(json.dumps({"situations": rows}, indent=2, ensure_ascii=False) + "\n")
    if options.markdown:
        options.markdown.write_text(table(rows))
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
