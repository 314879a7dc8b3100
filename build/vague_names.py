"""Fails when over one in a hundred names assigned in folders of Python code says nothing of what it holds.

`python build/vague_names.py FOLDER…` lists every such name; build/names does the same for Go.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

VAGUE = re.compile(
    "asked|each|found|given|held|how|kept|known|least|left|met|most|rest|said|seen|shown|some|taken|told|what|whole|why"
)
LIMIT = 0.01


def assigned(file: Path) -> list[ast.Name]:
    """The names that a file assigns anywhere."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def main(folders: list[str]) -> int:
    """List the vague names of all files, and return 1 where their share is too large."""
    names = [
        (file, name) for folder in folders for file in sorted(Path(folder).rglob("*.py")) for name in assigned(file)
    ]
    vague = [(file, name) for file, name in names if VAGUE.fullmatch(name.id)]
    if len(vague) <= LIMIT * len(names):
        return 0
    for file, name in vague:
        print(f"{file}:{name.lineno}: {name.id} does not say what it holds")
    print(f"{len(vague)} of {len(names)} names are vague, at most {LIMIT:.0%} may be")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
