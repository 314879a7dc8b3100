"""A scan's clips: a sequence over columns."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

import asrconfig_go as ac
from asrconfig_go.data import ScanResult
from asrconfig_go.data.scan_result import COLUMNS, Clip, Clips


@pytest.fixture
def result(make_wav: WavMaker, tmp_path: Path) -> ScanResult:
    make_wav("data/größe.wav", 1.0)
    make_wav("data/z.wav", 3.0, 8_000)
    (tmp_path / "data/bad.wav").write_text("no audio")
    (tmp_path / "data" / "latin-\udcf6.wav").write_bytes((tmp_path / "data/z.wav").read_bytes()[:-16_000])
    return ac.scan_audio(tmp_path / "data", progress=False)


def test_clips_are_a_sequence(result: ScanResult) -> None:
    clips = result.clips
    names = [Path(clip.path).name for clip in clips]
    assert names == ["bad.wav", "größe.wav", "latin-\\xf6.wav", "z.wav"]
    assert len(clips) == len(result) == 4
    assert clips[-1] == clips[3] == list(clips)[3]
    assert clips[1:3] == [clips[1], clips[2]]
    assert clips[::-1] == list(reversed(clips))
    assert clips[2] in clips
    assert clips == list(clips)
    assert clips != list(clips)[:3]
    for index in (4, -5):
        with pytest.raises(IndexError, match=f"clip {index} of 4"):
            clips[index]
    assert "4 clips" in repr(clips)


def test_a_clip_has_every_field(result: ScanResult) -> None:
    bad, one, cut, last = result.clips
    assert (last.sample_rate, last.channels, last.bits, last.codec, last.method) == (8000, 1, 16, "pcm_s16le", "header")
    assert (last.duration_s, last.claimed_duration_s, last.size_bytes, last.error) == (3.0, None, 48_044, "")
    assert (one.duration_s, one.sample_rate) == (1.0, 16_000)
    assert (cut.duration_s, cut.claimed_duration_s) == (2.0, 3.0)
    assert (bad.duration_s, bad.sample_rate, bad.codec, bad.size_bytes) == (None, 0, "", 8)
    assert "is not audio" in bad.error
    with pytest.raises(AttributeError):
        bad.error = ""  # type: ignore[misc]


def test_columns(result: ScanResult) -> None:
    table = result.to_dict()
    assert tuple(table) == COLUMNS
    for name, column in table.items():
        assert column == [getattr(clip, name) for clip in result.clips], name
    assert isinstance(result.durations, array)
    assert math.isnan(result.durations[0])
    assert list(result.durations)[1:] == [1.0, 2.0, 3.0]


def test_result_is_shown_as_its_profile(result: ScanResult) -> None:
    assert repr(result) == repr(result.profile)
    assert result._repr_html_() == result.profile._repr_html_()


def page_of(first: int, count: int) -> tuple[dict[str, Any], memoryview]:
    """A page as the library sends it: clip n is named n and lasts n + 0.5 seconds; every 1000th is bad."""
    numbers = range(first, first + count)

    def packed(kind: str, values: list[Any]) -> bytes:
        return struct.pack(f"<{count}{kind}", *values)

    columns = packed("d", [n + 0.5 if n % 1000 else math.nan for n in numbers])
    columns += (
        packed("q", [n << 40 for n in numbers])
        + packed("Q", list(numbers))
        + packed("I", [int(n % 1000 > 0) for n in numbers])
    )
    columns += packed("I", [len(str(n)) for n in numbers]) + "".join(map(str, numbers)).encode()
    sent = {
        "count": count,
        "kind_list": [
            {"sample_rate": 0, "channels": 0, "bits": 0, "codec": "", "method": ""},
            {"sample_rate": 16000, "channels": 2, "bits": 16, "codec": "flac", "method": "header"},
        ],
        "claims": [{"index": n - first, "seconds": 1.0} for n in numbers if n % 1000 == 7],
        "errors": [{"index": n - first, "error": "bad"} for n in numbers if n % 1000 == 0],
    }
    return sent, memoryview(columns)


def fetcher(total: int) -> Callable[[int, int], tuple[dict[str, Any], memoryview]]:
    return lambda offset, limit: page_of(offset, min(limit, total - offset))


@pytest.mark.parametrize("total", [0, 1, 65_535, 65_536, 65_537, 140_000])
def test_pages_join(total: int) -> None:
    clips = Clips(fetcher(total))
    assert len(clips) == total
    for n in {0, 1, 7, 65_535, 65_536, 131_007, total - 1} & set(range(total)):
        good = n % 1000 > 0
        claimed = 1.0 if n % 1000 == 7 else None
        kind = (16000, 2, 16, "flac", "header") if good else (0, 0, 0, "", "")
        expected = Clip(str(n), n + 0.5 if good else None, claimed, *kind, n << 40, "" if good else "bad")
        assert clips[n] == expected
    assert sum(1 for _ in clips) == total
    assert len(clips.column("path")) == len(clips.durations) == total
