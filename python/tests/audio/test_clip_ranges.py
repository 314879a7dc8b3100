"""Pieces of recordings by their name: loaded, measured, cached."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asrconfig_go import scan_audio
from asrconfig_go.audio import DecodedCache, ResampledCache, load_audio
from asrconfig_go.data.segments import named_range, part_of, split_range
from asrconfig_go.errors import CorruptFileError, InvalidArgumentError, NotFoundError

CUTS = [0.0, 1.2345678, 7.5, 7.9, 12.0]
FORMATS = [("wav", "PCM_16", 16_000, 0), ("flac", "PCM_16", 44_100, 0), ("ogg", "VORBIS", 16_000, 0),
           ("opus", "OPUS", 16_000, 0), ("mp3", "MPEG_LAYER_III", 16_000, 2e-7)]  # fmt: skip


def recording(path: Path, subtype: str, rate: int) -> Path:
    times = np.arange(12 * rate) / rate
    noise = np.random.default_rng(0).standard_normal((len(times), 2)) * 0.05
    sound = 0.3 * np.sin(2 * np.pi * 300 * times * (1 + times / 20))[:, None] + noise
    soundfile.write(path, sound, rate, subtype=subtype, format={"opus": "OGG"}.get(path.suffix[1:]))
    return path


@pytest.mark.parametrize(("ending", "subtype", "rate", "tolerance"), FORMATS)
def test_pieces_are_the_whole_sample_by_sample(
    tmp_path: Path, ending: str, subtype: str, rate: int, tolerance: float
) -> None:
    file = str(recording(tmp_path / f"talk.{ending}", subtype, rate))
    clip = load_audio(file, sample_rate=rate)
    names = [named_range(file, a, b) for a, b in itertools.pairwise(CUTS)]
    data = Path(file).read_bytes()
    for sources in (names, [{"path": name} for name in names], [{"bytes": data, "path": name} for name in names]):
        pieces: Any = np.concatenate([load_audio(source, sample_rate=rate) for source in sources])
        assert len(pieces) == len(clip)
        assert abs(pieces - clip).max() <= tolerance
    scan = scan_audio(names, progress=False)
    assert list(scan.durations) == pytest.approx([b - a for a, b in itertools.pairwise(CUTS)], abs=1e-5)


def test_parts_of_whatever_is_audio(tmp_path: Path) -> None:
    file = recording(tmp_path / "talk.wav", "PCM_16", 16_000)
    wanted = load_audio(file)[16_000:24_000]
    mono = load_audio(file)
    for source in (file, str(file), file.read_bytes(), {"path": str(file), "bytes": None}, {"array": mono}, mono):
        assert (load_audio(part_of(source, 1.0, 1.5)) == wanted).all()
    assert (load_audio(part_of(part_of(str(file), 0.5, 4.0), 0.5, 1.0)) == wanted).all(), "a piece of a piece"
    assert part_of(np.zeros((2, 32_000)), 0.5, 1.0).shape == (2, 8000)


def test_a_file_that_is_called_like_a_piece(tmp_path: Path) -> None:
    file = recording(tmp_path / "talk.wav", "PCM_16", 16_000)
    named = tmp_path / "talk.wav#t=0,1"
    shutil.copy(file, named)
    assert split_range(str(named)) == (str(named), None)
    assert len(load_audio(named)) == 12 * 16_000
    named.unlink()
    assert len(load_audio(named)) == 16_000


def test_what_is_no_piece(tmp_path: Path) -> None:
    file = recording(tmp_path / "talk.wav", "PCM_16", 16_000)
    with pytest.raises(NotFoundError, match=r"none\.wav does not exist"):
        load_audio(tmp_path / "none.wav#t=0,1")
    with pytest.raises(CorruptFileError, match=r"#t=20,21 holds no audio"):
        load_audio(f"{file}#t=20,21")
    for start, end in ((2.0, 1.0), (-1.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0)):
        with pytest.raises(InvalidArgumentError, match="has no piece"):
            part_of(str(file), start, end)


def test_caches_know_pieces(tmp_path: Path) -> None:
    file = recording(tmp_path / "talk.wav", "PCM_16", 16_000)
    data = file.read_bytes()
    pieces = [f"{file}#t=0,1", f"{file}#t=1,2", str(file)]
    embedded = [{"bytes": data, "path": name} for name in ("#t=0,1", "#t=1,2", "")]
    for cache in (DecodedCache(1 << 26), ResampledCache(tmp_path / "cache", keep_free_bytes=0)):
        for sources in (pieces, embedded):
            os.utime(file, (1e9, 1e9))  # long ago: what was just written is not kept
            before = cache.misses
            for _ in range(2):
                assert [len(cache(source)) for source in sources] == [16_000, 16_000, 12 * 16_000]
            assert cache.misses - before == 3
