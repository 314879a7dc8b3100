"""Few clips with texts, as files, for tests of the recipe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from asrconfig_go.audio import load_audio
from asrconfig_go.data.source import CLIPS

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


def further_models() -> list[str]:
    """The tiny models beside those of CTC and Whisper whose classes the installed transformers has."""
    import transformers

    classes = {
        "tiny-moonshine": "MoonshineForConditionalGeneration",
        "tiny-parakeet-tdt": "ParakeetForTDT",
        "tiny-qwen3-asr": "Qwen3ASRForConditionalGeneration",
    }
    return [name for name, kind in classes.items() if hasattr(transformers, kind)]


def weights(folder: Path) -> dict[str, Any]:
    """Those of the model or of the adapters that are saved there."""
    from safetensors.torch import load_file

    (file,) = folder.glob("*model.safetensors")
    tensors: dict[str, Any] = load_file(file)
    return tensors


def assert_same_weights(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert not [name for name, tensor in one.items() if not tensor.equal(other[name])]


RATE = 16_000


def talk(path: Path, count: int, *, seed: int = 0, gaps: tuple[float, float] = (0.15, 0.5)) -> dict[str, Any]:
    """Writes ``count`` clips with pauses of ``gaps`` seconds to ``path``, and gives the row of its manifest."""
    source, known = np.random.default_rng(seed), clips(40)
    parts: list[Any] = []
    segments = []
    samples = 0
    for file, text in (known[i] for i in source.integers(0, len(known), count)):
        clip = load_audio(file)
        times = [round(place / RATE, 3) for place in (samples, samples + len(clip))]
        segments.append({"start": times[0], "end": times[1], "text": text})
        pause: Any = np.zeros(round(source.uniform(*gaps) * RATE), np.float32)
        parts += [clip, pause]
        samples += len(clip) + len(pause)
    soundfile.write(path, np.concatenate(parts), RATE)
    return {"audio": str(path), "text": " ".join(str(s["text"]) for s in segments), "segments": segments}
