"""The recipe cuts long recordings in place of leaving them out, and reads manifests of pieces and subtitles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import recipe
from asrconfig_go.recipe.speech_data import column
from recipe_data import clips, talk


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings of over 30 s with segments, one without, and some short clips, with a manifest."""
    root: Path = tmp_path_factory.mktemp("recordings")
    rows = [talk(root / f"talk{i}.flac", 26, seed=i) for i in range(3)]
    rows[0]["text"] = rows[0]["text"].replace(" ", ", ").capitalize() + "!"
    del rows[2]["segments"]
    rows += [{"audio": shutil.copy(path, root), "text": text} for path, text in clips(6)]
    (root / "metadata.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return root


def prepared(source: Any, model: str, **options: Any) -> tuple[recipe.SpeechData, recipe.SpeechData]:
    data = recipe.load_speech(source, progress=False, evaluation_share=0).clean()
    processor = recipe.build_processor(column(data.train, "text"), model)
    net = recipe.load_model(model, processor)
    return data, recipe.prepare(data, processor, model=net, progress=False, **options)


def test_whisper_gets_pieces_of_its_length_and_no_longer_clips(folder: Path) -> None:
    data, cut = prepared(folder, "tiny-whisper")
    texts, pieces = column(data.train, "text"), column(cut.train, "text")
    assert max(column(cut.train, "length")) <= 5 * 16_000
    assert " ".join(pieces) == " ".join([*texts[:2], *texts[3:]]), "cleaned, and without the one that cannot be cut"
    assert sorted(cut.train.column_names) == ["audio", "labels", "length", "text"]
    assert f"2 clips over 5 s cut into {len(pieces) - 6} pieces by timestamps" in cut.notes
    assert any(note.startswith("1 clip over 5 s not cut and left out: no timestamps") for note in cut.notes)


def test_ctc_keeps_what_cannot_be_cut(folder: Path) -> None:
    data, cut = prepared(folder, "tiny-wav2vec2", chunk_length_s=8.0)
    assert " ".join(column(cut.train, "text")) == " ".join(column(data.train, "text"))
    assert sum(length > 8 * 16_000 for length in column(cut.train, "length")) == 1
    assert any(note.startswith("1 clip over 8 s not cut and kept whole") for note in cut.notes)


def test_timestamp_tokens_and_subtitles_are_read(tmp_path: Path) -> None:
    row = talk(tmp_path / "talk.flac", 12)
    clock = "{:02.0f}:{:06.3f}".format
    cues = [f"{clock(0, s['start'])} --> {clock(0, s['end'])}\n{s['text']}\n" for s in row["segments"]]
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n" + "\n".join(cues))
    _, by_subtitles = prepared(tmp_path, "tiny-whisper")
    (tmp_path / "talk.vtt").unlink()
    tokens = "".join(f"<|{s['start']:.3f}|>{s['text']}<|{s['end']:.3f}|>" for s in row["segments"])
    (tmp_path / "m.jsonl").write_text(json.dumps({"audio": "talk.flac", "text": tokens}))
    _, by_tokens = prepared(tmp_path / "m.jsonl", "tiny-whisper")
    assert len(by_tokens.train) > 1
    for data in (by_subtitles, by_tokens):
        assert " ".join(column(data.train, "text")) == row["text"]
    assert column(by_tokens.train, "audio") == column(by_subtitles.train, "audio")
    assert by_tokens.notes[0] == "timestamp tokens were taken out of 1 transcript"


@pytest.mark.parametrize(("first", "second"), [("offset", "duration"), ("start", "end")])
def test_manifests_of_pieces(tmp_path: Path, first: str, second: str) -> None:
    row = talk(tmp_path / "talk.flac", 5)
    rows = [
        {"audio_filepath": "talk.flac", "text": s["text"], first: s["start"],
         second: s["end"] - (s["start"] if second == "duration" else 0)}
        for s in row["segments"]
    ]  # fmt: skip
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = recipe.load_speech(tmp_path / "m.jsonl", progress=False, evaluation_share=0)
    wanted = [16_000 * (s["end"] - s["start"]) for s in row["segments"]]
    assert column(data.train, "length") == pytest.approx(wanted, abs=1)
    assert column(data.train, "text") == [s["text"] for s in row["segments"]]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tiny-wav2vec2", "tiny-whisper"])
def test_training_on_long_recordings(folder: Path, tmp_path: Path, model: str) -> None:
    result = recipe.fine_tune(folder, model, tmp_path / "out", max_steps=2, verbose=False)
    assert result.training.steps == 2
    assert any("pieces by timestamps" in note for note in result.notes)
    assert "pieces by timestamps" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow
def test_a_model_of_one_s_own_aligns_what_has_no_timestamps(folder: Path, tmp_path: Path) -> None:
    result = recipe.fine_tune("demo", "tiny-wav2vec2", tmp_path / "first", max_steps=1, verbose=False)
    again = recipe.fine_tune(
        folder, "tiny-whisper", tmp_path / "second", max_steps=1, align=str(result.output_dir), verbose=False
    )
    notes = [note for note in again.notes if "not cut" in note or "by an alignment" in note]
    assert notes, "an untrained model is not sure of anything"
    assert "nothing left: " in notes[0]
