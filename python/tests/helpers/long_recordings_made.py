"""Long recordings of bundled clips one behind the other, with their times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from asrconfig_go.loading import load_audio
from recipe_data import clips

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
