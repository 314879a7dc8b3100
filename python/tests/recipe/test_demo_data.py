"""The demo's clips, batches of them, and its model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go._core.settings import SAMPLING_RATE
from asrconfig_go.data import scan_audio
from asrconfig_go.data.source import CLIPS
from asrconfig_go.data.splits import demo_rows, load_split
from asrconfig_go.recipe.model_building import small_model

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
soundfile = pytest.importorskip("soundfile")
pytest.importorskip("transformers")

DIGITS = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return demo_rows()


def test_manifest_lists_exactly_the_files(rows: list[dict[str, Any]]) -> None:
    listed = [row["audio_filepath"] for row in rows]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {str(path.resolve()) for path in CLIPS.glob("*.mp3")}


def test_enough_clips_in_a_small_folder(rows: list[dict[str, Any]]) -> None:
    splits = Counter(row["split"] for row in rows)
    assert set(splits) == {"train", "test"}
    assert splits["train"] >= 240
    assert splits["test"] >= 50
    assert sum(path.stat().st_size for path in CLIPS.iterdir()) < 900_000


def test_headers_agree_with_the_manifest(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        info = soundfile.info(row["audio_filepath"])
        assert (info.format, info.samplerate, info.channels) == ("MP3", SAMPLING_RATE, 1)
        assert info.frames == round(row["duration"] * SAMPLING_RATE)


def test_decoding_and_scanning_give_exactly_what_the_manifest_says(rows: list[dict[str, Any]]) -> None:
    """MP3 has whole frames and a delay: the files say what of them is to be left out."""
    scan = scan_audio([row["audio_filepath"] for row in rows], progress=False)
    assert {(clip.sample_rate, clip.codec, clip.method) for clip in scan.clips} == {(SAMPLING_RATE, "mp3", "header")}
    for row, clip in zip(rows, scan.clips, strict=True):
        assert clip.duration_s == row["duration"]
        assert len(soundfile.read(row["audio_filepath"])[0]) == round(row["duration"] * SAMPLING_RATE)


def test_transcripts_are_digits_and_the_splits_share_none(rows: list[dict[str, Any]]) -> None:
    texts = {split: {row["text"] for row in rows if row["split"] == split} for split in ("train", "test")}
    assert not texts["train"] & texts["test"]
    words = Counter(word for row in rows for word in row["text"].split())
    assert set(words) == DIGITS
    assert min(words.values()) > 0.8 * max(words.values())


def test_no_two_clips_sound_the_same(rows: list[dict[str, Any]]) -> None:
    contents = [Path(row["audio_filepath"]).read_bytes() for row in rows]
    assert len(set(contents)) == len(contents)


def test_load_split_keeps_audio_undecoded() -> None:
    test = load_split("test")
    assert test.features["audio"] == datasets.Audio(decode=False)
    assert test[0]["audio"]["path"].endswith(".mp3")
    assert test[0]["length"] == soundfile.info(test[0]["audio"]["path"]).frames


def test_model_depends_on_its_seed_alone() -> None:
    torch.manual_seed(5)
    first = small_model(8, seed=1).lm_head.weight
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(small_model(8, seed=1).lm_head.weight, first)
    assert torch.equal(torch.rand(1), expected), "building the model must leave torch's random state alone"
    assert not torch.equal(small_model(8, seed=2).lm_head.weight, first)
