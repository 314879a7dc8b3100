"""Few clips with texts, as files, for tests of the recipe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from asrconfig_go.demo.digits import CLIPS

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (CLIPS / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
]


def clips(count: int, split: str = "train") -> list[tuple[Path, str]]:
    """Some of the demo's clips with what they say, evenly spread."""
    rows = [row for row in ROWS if row["split"] == split]
    return [(CLIPS / row["audio_filepath"], row["text"]) for row in rows[:: len(rows) // count][:count]]


def digits(count: int = 16, evaluated: int = 3) -> Any:
    """The demo's clips as a ``DatasetDict``."""
    import datasets

    parts = {"train": clips(count), "test": clips(evaluated, "test")}
    return datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict({"audio": [str(path) for path, _ in pairs], "text": [t for _, t in pairs]})
            for name, pairs in parts.items()
        }
    )


def folder_of_clips(folder: Path, count: int = 6) -> list[tuple[Path, str]]:
    """Copies of some clips in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return [(Path(shutil.copy(path, folder)), text) for path, text in clips(count)]
