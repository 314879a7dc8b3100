"""The demo's data: clips and manifest, characters, padded batches and greedy decoding.

Audio is read with soundfile, never through the `datasets` audio decoder: from version 4 on that needs torchcodec.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets
    import numpy
    import torch


CLIPS = Path(__file__).parent / "clips"
SAMPLE_RATE = 16_000  # Hz, of every clip
IGNORED = -100  # label value that the loss of transformers' CTC models skips


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


def read_audio(path: str | Path) -> numpy.ndarray[Any, Any]:
    """Return a bundled clip as float32 with zero mean and unit variance, as wav2vec2 expects it."""
    import soundfile

    samples, _ = soundfile.read(path, dtype="float32")
    return (samples - samples.mean()) / (samples.std() + 1e-7)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Vocabulary:
    """Characters of the transcripts. Token 0 is the CTC blank, character k has token k + 1."""

    characters: str

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Vocabulary:
        """Collect the characters of all texts, sorted, so that the tokens do not depend on the order of the texts."""
        return cls("".join(sorted(set("".join(texts)))))

    def __len__(self) -> int:
        """Number of tokens, the blank included."""
        return len(self.characters) + 1

    def encode(self, text: str) -> list[int]:
        """Return the text's tokens. Raises ValueError for a character outside the vocabulary."""
        return [self.characters.index(character) + 1 for character in text]


@dataclass(frozen=True)
class Collator:
    """Turn dataset rows into a padded batch. Plain data, so DataLoader workers can pickle it."""

    vocabulary: Vocabulary

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return input_values (float32, clips × samples, padded with 0), attention_mask and labels (padded -100)."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        clips = [torch.from_numpy(read_audio(row["audio"]["path"])) for row in rows]
        masks = [torch.ones(len(clip), dtype=torch.long) for clip in clips]
        labels = [torch.tensor(self.vocabulary.encode(row["text"])) for row in rows]
        return {
            "input_values": pad_sequence(clips, batch_first=True),
            "attention_mask": pad_sequence(masks, batch_first=True),
            "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        }
