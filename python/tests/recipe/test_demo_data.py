"""The demo's clips and what surrounds its training: batches, decoding, time limit and settings."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asrconfig_go.data import scan_audio
from asrconfig_go.demo.digit_model import small_model, transcribe
from asrconfig_go.demo.digits import (
    CLIPS,
    IGNORED,
    SAMPLE_RATE,
    Collator,
    Vocabulary,
    load_split,
    read_audio,
    read_manifest,
)
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.recipe.demo_training import DemoResult, one_thread, time_limit, training_settings

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
soundfile = pytest.importorskip("soundfile")
pytest.importorskip("transformers")

DIGITS = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return read_manifest()


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
        assert (info.format, info.samplerate, info.channels) == ("MP3", SAMPLE_RATE, 1)
        assert info.frames == round(row["duration"] * SAMPLE_RATE)


def test_decoding_and_scanning_give_exactly_what_the_manifest_says(rows: list[dict[str, Any]]) -> None:
    """MP3 has whole frames and a delay: the files say what of them is to be left out."""
    scan = scan_audio([row["audio_filepath"] for row in rows], progress=False)
    assert {(clip.sample_rate, clip.codec, clip.method) for clip in scan.clips} == {(SAMPLE_RATE, "mp3", "header")}
    for row, clip in zip(rows, scan.clips, strict=True):
        assert clip.duration_s == row["duration"]
        assert len(read_audio(row["audio_filepath"])) == round(row["duration"] * SAMPLE_RATE)


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


def test_read_manifest_takes_paths_relative_to_the_manifest(tmp_path: Path) -> None:
    row = {"audio_filepath": "a.flac", "text": "one", "split": "train", "duration": 1.0}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert read_manifest(tmp_path) == [{**row, "audio_filepath": str(tmp_path.resolve() / "a.flac")}]


def test_read_audio_normalises() -> None:
    clip = read_audio(next(CLIPS.glob("*.mp3")))
    assert clip.dtype == np.float32
    assert clip.mean() == pytest.approx(0, abs=1e-4)
    assert clip.std() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (SAMPLE_RATE, 2)])
def test_read_audio_refuses_other_formats(tmp_path: Path, rate: int, channels: int) -> None:
    path = tmp_path / "other.flac"
    soundfile.write(path, np.zeros((100, channels)), rate)
    with pytest.raises(ValueError, match=r"other\.flac: expected mono at 16000 Hz"):
        read_audio(path)


def test_vocabulary_is_sorted_and_round_trips() -> None:
    vocabulary = Vocabulary.from_texts(["two one", "zero"])
    assert vocabulary == Vocabulary(" enortwz")
    assert len(vocabulary) == 9
    assert vocabulary.encode("one two") == [4, 3, 2, 1, 6, 7, 4]
    with pytest.raises(ValueError, match="not found"):
        vocabulary.encode("six")


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([], ""),
        ([0, 0, 0], ""),
        ([1, 1, 1], "a"),
        ([0, 1, 1, 0, 1, 2, 2, 0], "aab"),
        ([1, 2, 1], "aba"),
        ([3, 0, 3, 3], "  "),
    ],
)
def test_greedy_decoding(frames: list[int], text: str) -> None:
    assert Vocabulary("ab ").decode(frames) == text


def test_collator_pads_audio_and_labels() -> None:
    train = load_split("train")
    pair = sorted(train.select(range(20)), key=lambda row: int(row["length"]))[:: 20 - 1]
    short, long = pair
    batch = Collator(Vocabulary.from_texts(train["text"]))(pair)
    assert batch["input_values"].dtype == torch.float32
    assert batch["input_values"].shape == batch["attention_mask"].shape == (2, long["length"])
    assert batch["attention_mask"].sum(dim=1).tolist() == [short["length"], long["length"]]
    assert not batch["input_values"][0, short["length"] :].any()
    assert batch["input_values"][0, : short["length"]].std() == pytest.approx(1, abs=1e-3)
    assert batch["labels"].shape == (2, len(long["text"]))
    assert (batch["labels"][0] == IGNORED).sum() == len(long["text"]) - len(short["text"])
    assert (batch["labels"][1] > 0).all()


def test_collator_works_in_loader_workers() -> None:
    train = load_split("train").select(range(4))
    collator = pickle.loads(pickle.dumps(Collator(Vocabulary.from_texts(train["text"]))))
    loader = torch.utils.data.DataLoader(train, batch_size=2, num_workers=2, collate_fn=collator, timeout=60)
    assert [len(batch["labels"]) for batch in loader] == [2, 2]


def test_model_depends_on_its_seed_alone() -> None:
    torch.manual_seed(5)
    first = small_model(8, seed=1).lm_head.weight
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(small_model(8, seed=1).lm_head.weight, first)
    assert torch.equal(torch.rand(1), expected), "building the model must leave torch's random state alone"
    assert not torch.equal(small_model(8, seed=2).lm_head.weight, first)


def test_transcripts_do_not_depend_on_the_batch() -> None:
    test = load_split("test").select(range(5))
    collator = Collator(Vocabulary.from_texts(test["text"]))
    model = small_model(len(collator.vocabulary), seed=0)
    together = transcribe(model, test, collator)
    assert len(together) == 5
    assert any(together), "random weights should emit something, or the comparison is empty"
    assert transcribe(model, test, collator, batch=1) == together


def test_one_thread_restores_the_threads() -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt), one_thread():
        assert torch.get_num_threads() == 1
        raise KeyboardInterrupt
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("max_steps", [1, 7, 1000])
def test_settings_fit_any_number_of_steps(max_steps: int) -> None:
    settings = training_settings(max_steps)
    assert settings["max_steps"] == max_steps
    assert all(1 <= settings[name] <= max_steps for name in ("warmup_steps", "save_steps", "logging_steps"))


@pytest.mark.parametrize("max_steps", [0, -1])
def test_settings_refuse_to_train_nothing(max_steps: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"max_steps = {max_steps} trains nothing"):
        training_settings(max_steps)


@pytest.mark.parametrize(("seconds", "stops"), [(0.0, True), (1000.0, False)])
def test_time_limit_saves_and_stops(seconds: float, stops: bool) -> None:
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    limit = time_limit(seconds)
    limit.on_train_begin(None, None, control)
    limit.on_step_end(None, None, control)
    assert control.should_save is control.should_training_stop is stops


def test_result_reads_as_a_report(tmp_path: Path) -> None:
    result = DemoResult(
        1.0,
        0.081,
        "host 1 of 2 GiB",
        61.7,
        800,
        SimpleNamespace(),  # type: ignore[arg-type]
        tmp_path,
        (("one two", "one too"),),
    )
    assert "100% before, 8.1% after 800 steps (62 s)" in str(result)
    assert "said: one two" in str(result)
    assert "heard: one too" in str(result)
