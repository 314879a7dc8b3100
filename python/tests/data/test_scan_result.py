"""A scan's result: its clips, a sequence over columns; its profile: batches, copies, warnings, and how it is shown."""

from __future__ import annotations

import math
import random
import re
import statistics
import struct
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import WavMaker

import asrconfig_go as ac
from asrconfig_go import scan_audio
from asrconfig_go.data import DatasetProfile, ScanResult
from asrconfig_go.data.scan_result import COLUMNS, Clip, Clips
from asrconfig_go.errors import EmptyDatasetError, InvalidArgumentError, UnsupportedError

RATE = 100


def profile_of(seconds: list[float], **options: Any) -> DatasetProfile:
    np = pytest.importorskip("numpy")
    arrays = [np.zeros(round(s * RATE), dtype=np.int8) for s in seconds]
    return scan_audio(arrays, sampling_rate=RATE, progress=False, **options).profile


def lengths(count: int) -> list[float]:
    drawn = random.Random(4)
    return [round(min(60.0, drawn.lognormvariate(1.8, 0.6)), 2) for _ in range(count)]


def padded(order: list[float], batch: int) -> float:
    batches = (order[i : i + batch] for i in range(0, len(order), batch))
    return sum(max(one) * len(one) for one in batches)


def test_padding_by_hand() -> None:
    profile = profile_of([1.0, 2.0, 3.0, 4.0], batch_size=2)
    costs = {p.order: p for p in profile.padding}
    assert costs["sorted"].padded_s == 2 * 4 + 2 * 2
    assert costs["sorted"].waste == pytest.approx(2 / 12)
    assert costs["random"].padded_s == pytest.approx(4 * (4 * 3 + 3 * 2 + 2 * 1) / 6)
    assert profile.batch_size == 2


def test_grouped_padding_is_that_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("transformers.trainer_pt_utils")
    seconds = lengths(3_000)
    theirs = []
    for seed in range(5):
        order = utils.get_length_grouped_indices(seconds, 8, generator=torch.Generator().manual_seed(seed))
        theirs.append(padded([seconds[i] for i in order], 8))
    ours = [{p.order: p.padded_s for p in profile_of(seconds, seed=seed).padding}["grouped"] for seed in range(5)]
    assert len(set(ours)) == 5
    assert statistics.mean(ours) == pytest.approx(statistics.mean(theirs), rel=0.01)


def test_random_padding_is_the_mean_of_shuffles() -> None:
    seconds, drawn, costs = lengths(500), random.Random(1), []
    for _ in range(300):
        drawn.shuffle(seconds)
        costs.append(padded(seconds, 16))
    expected = {p.order: p.padded_s for p in profile_of(seconds, batch_size=16).padding}["random"]
    assert expected == pytest.approx(statistics.mean(costs), rel=0.01)


def test_few_long_clips_are_named() -> None:
    profile = profile_of([5.0] * 400 + [50.0] * 4)
    assert profile.outliers is not None
    assert (profile.outliers.over_s, profile.outliers.count) == (30.0, 4)
    assert 0.35 < profile.outliers.padded_share < 0.45
    assert re.search(r"4 clips over 30 s hold \d\d% of the padded time", repr(profile))
    assert profile_of([5.0] * 400).outliers is None


@pytest.mark.parametrize("size", [-1, 0, 1 << 17])
def test_batch_size_has_bounds(size: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"batch_size (is|=) {size}"):
        profile_of([1.0], batch_size=size)


def test_copies_and_warnings(make_wav: WavMaker, tmp_path: Path) -> None:
    first = make_wav("data/<first>.wav", 2.0)
    (tmp_path / "data/second.wav").write_bytes(first.read_bytes())
    make_wav("data/slow.wav", 3.0, 8_000)
    (tmp_path / "data/bad & broken.wav").write_text("no audio")
    profile = scan_audio(tmp_path / "data", progress=False).profile
    assert profile.duplicates.count == 1
    assert profile.duplicates.groups == ((str(first), str(tmp_path / "data/second.wav")),)
    assert profile.methods == {"header": 3}
    assert [warning.split(",")[0] for warning in profile.warnings] == [
        "1 clip not at 16 kHz",
        "1 clip very likely copied (2 s): the size",
    ]
    assert all(f"! {warning}" in repr(profile) for warning in profile.warnings)


def test_html_is_well_formed_and_escaped(make_wav: WavMaker, tmp_path: Path) -> None:
    for i in range(30):
        make_wav(f"data/<b>{i}.wav", 0.1 + i / 10)
    (tmp_path / "data/bad & broken.wav").write_text("no audio")
    html = scan_audio(tmp_path / "data", progress=False)._repr_html_()
    tree = ElementTree.fromstring(html)
    bars = tree.findall(".//{http://www.w3.org/2000/svg}rect")
    assert len(bars) >= 10
    titles = "".join(title.text or "" for title in tree.iter("{http://www.w3.org/2000/svg}title"))
    counted = sum(int(n) for n in re.findall(r": (\d+) clips?", titles))
    assert counted == 30
    text = "".join(tree.itertext())
    for part in ("30 clips", "padding in batches of 8", "grouped by length", "1 bad file left out", "bad & broken.wav"):
        assert part in text
    assert "<b>0" not in html


def test_profile_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_text("no audio")
    profile = scan_audio(tmp_path, allow_empty=True, progress=False).profile
    assert "no usable clip" in repr(profile)
    assert "no usable clip" in profile._repr_html_()
    assert (profile.padding, profile.warnings, profile.outliers) == ((), (), None)
    with pytest.raises(EmptyDatasetError, match="no usable clip to draw"):
        profile.plot()


def test_plot() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    profile = profile_of(lengths(200))
    axes = profile.plot()
    assert sum(bar.get_height() for bar in axes.patches) == 200
    assert "padding in batches of 8" in axes.get_title(loc="left")
    assert profile.plot(axes) is axes


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(UnsupportedError, match="needs matplotlib"):
        profile_of([1.0, 2.0]).plot()


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
