"""The demo's data: spoken digits and their manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets


CLIPS = Path(__file__).parent / "clips"
SAMPLE_RATE = 16_000  # Hz, of every clip


def read_manifest() -> list[dict[str, Any]]:
    """Return the rows of the manifest in file order, audio_filepath made absolute."""
    lines = (CLIPS / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for row in rows:
        row["audio_filepath"] = str((CLIPS / row["audio_filepath"]).resolve())
    return rows


def load_split(split: str) -> datasets.Dataset:
    """Return one split ("train" or "test") with the columns audio (not decoded), text and length (samples)."""
    import datasets

    rows = [row for row in read_manifest() if row["split"] == split]
    columns = {
        "audio": [row["audio_filepath"] for row in rows],
        "text": [row["text"] for row in rows],
        "length": [round(row["duration"] * SAMPLE_RATE) for row in rows],
    }
    return datasets.Dataset.from_dict(columns).cast_column("audio", datasets.Audio(decode=False))
