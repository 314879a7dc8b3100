"""Segments from columns, tokens and subtitles, transcripts in slices, groups; pieces of recordings by their name."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asrconfig_go import scan_audio
from asrconfig_go.audio import DecodedCache, ResampledCache, load_audio
from asrconfig_go.data import Segment
from asrconfig_go.data.segments import (
    checked_segments,
    grouped,
    joined,
    middles,
    named_range,
    part_of,
    plain_text,
    read_segments,
    read_subtitles,
    split_range,
    subtitles_beside,
    text_slices,
    whisper_segments,
)
from asrconfig_go.errors import CorruptFileError, InvalidArgumentError, NotFoundError

TWO = [Segment(0.0, 1.5, "Hello."), Segment(2.0, 3.0, "You")]
FORMS: list[Any] = [
    [{"start": 0, "end": 1.5, "text": "Hello."}, {"start": 2.0, "end": 3.0, "text": "You"}],
    [{"start": 0.0, "end": 1.5, "word": "Hello."}, {"start": 2.0, "end": 3.0, "word": "You", "score": 1}],
    [{"timestamp": (0.0, 1.5), "text": "Hello."}, {"timestamp": [2.0, None], "text": "You"}],
    {"start": [0.0, 2.0], "end": [1.5, 3.0], "text": ["Hello.", "You"]},
]


@pytest.mark.parametrize("value", [*FORMS, *map(json.dumps, FORMS)])
def test_the_usual_forms_of_segments(value: Any) -> None:
    assert read_segments(value, 3.0) == TWO


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (2.0, math.nan, "not finite"), (-0.5, 1.0, "starts before 0 s"), (2.0, 1.9, "ends before it starts"),
        (1.0, 2.0, "starts before the one in front of it ends"), (2.0, 9.0, "ends behind the recording"),
        ("2", 3.0, "not numbers"), (None, 3.0, "not numbers"), (True, 3.0, "not numbers"),
        (math.inf, math.inf, "not finite"),
    ],
)  # fmt: skip
def test_malformed_times(start: Any, end: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"segment 1 .*{message}"):
        read_segments([FORMS[0][0], {"start": start, "end": end, "text": "x"}], 5.0)


@pytest.mark.parametrize("value", ["no JSON", "7", [1, 2], [{"start": 0}], [{"timestamp": 3, "text": "x"}]])
def test_what_is_no_segment(value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_segments(value, 5.0)
    assert caught.value.hint


def test_rounded_times_and_silent_segments_pass() -> None:
    segments = [Segment(0.0, 1.02, "a"), Segment(1.0, 2.0, "♪"), Segment(2.0, 5.3, "b")]
    assert checked_segments(segments, 5.0) == [segments[0], Segment(2.0, 5.0, "b")]


def test_whisper_s_tokens() -> None:
    text = "<|startoftranscript|><|en|><|transcribe|><|0.00|> Hello.<|1.50|><|2.00|> You<|3.00|><|endoftext|>"
    assert whisper_segments(text) == TWO
    assert plain_text(text) == "Hello. You"
    assert whisper_segments("a < b |> c <|en|>") is None


def test_subtitles(tmp_path: Path) -> None:
    srt = "1\r\n00:00:00,000 --> 00:00:01,500\r\n<i>Hello.</i>\r\n\r\n2\r\n00:00:02,000 --> 00:00:03,000\r\nYou\r\n"
    vtt = "WEBVTT\n\nNOTE no\n\n00:00.000 --> 00:01.500 line:0\nHello.\n\nname\n00:02.000 --> 00:03.000\n<v Ann>You\n"
    for name, text in (("talk.srt", srt), ("talk.vtt", vtt)):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert subtitles_beside(tmp_path / "talk.flac") == tmp_path / name
        assert read_subtitles(tmp_path / name) == TWO
        (tmp_path / name).unlink()
    assert subtitles_beside(tmp_path / "talk.flac") is None
    (tmp_path / "talk.flac.srt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptFileError, match="cannot be read as subtitles"):
        read_subtitles(subtitles_beside(tmp_path / "talk.flac") or tmp_path)


def test_transcripts_are_sliced_whatever_their_form() -> None:
    parts = ["«Straße», he said:", "“It’s 3.5…”", "Café ol\u0301e!"]
    for text in (" ".join(parts), "strasse he said its 35 cafe ole", "STRASSE HE SAID ITS 3 5   CAFÉ OLÉ"):
        slices = text_slices(text, parts)
        assert slices is not None
        assert len(slices) == 3
        assert " ".join(" ".join(slices).split()) == " ".join(text.split()), "nothing is lost"
        assert slices[1].lower().startswith(("its", "“it"))
    assert text_slices("something else", parts) is None
    assert text_slices("你好世界", ["你好", "世界"]) == ["你好", "世界"]
    assert joined([" He", "llo", " you"]) == "Hello you"
    assert joined(["He", "you"]) == "He you"


def random_segments(source: random.Random, count: int) -> tuple[list[Segment], float]:
    segments, time = list[Segment](), 0.0
    for i in range(count):
        time += source.choice([0.0, source.uniform(0, 3), source.uniform(0, 60) * (source.random() < 0.1)])
        end = time + source.uniform(0.1, 8) + 40 * (source.random() < 0.03)
        segments.append(Segment(round(time, 3), round(end, 3), f"w{i}"))
        time = end
    return segments, time + source.uniform(0, 5)


def test_groups_keep_to_the_limits_and_lose_nothing() -> None:
    source = random.Random(5)
    largest = 0
    for _ in range(200):
        segments, duration = random_segments(source, source.randint(1, 60))
        groups, too_long = grouped(segments, middles(segments, duration), 30.0, lambda a, b: b - a <= 6)
        grouped_indices = [i for group in groups for i in range(group.first, group.last)]
        assert sorted([*grouped_indices, *too_long]) == list(range(len(segments))), "each segment is in one place"
        assert all(segments[i].end - segments[i].start > 30.0 for i in too_long)
        for group in groups:
            largest = max(largest, group.last - group.first)
            assert group.end - group.start <= 30.0 + 1e-6
            assert group.last - group.first <= 6
            assert group.start <= segments[group.first].start + 1e-6
            assert group.end >= segments[group.last - 1].end - 1e-6
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(groups))
    assert largest == 6, "the limit of labels was reached"


def test_the_widest_pause_behind_half_of_the_limit_is_cut() -> None:
    times = [(0, 9), (9.2, 18), (19, 24), (24.1, 28), (28.1, 36)]
    segments = [Segment(float(a), float(b), "x") for a, b in times]
    groups, _ = grouped(segments, middles(segments, 36.0), 30.0)
    assert [(group.start, group.end) for group in groups] == [(0.0, 18.5), (18.5, 36.0)]


def test_a_pause_that_does_not_fit_is_left_out_but_for_half_a_second() -> None:
    segments = [Segment(100.0, 110.0, "a"), Segment(200.0, 229.5, "b")]
    groups, _ = grouped(segments, middles(segments, 300.0), 30.0)
    assert [(group.start, group.end) for group in groups] == [(99.5, 110.5), (199.75, 229.75)]


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
