"""``config.select`` cuts long clips with their texts, and counts what it does; cuts at silences, never in speech."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import soundfile

from asrconfig_go import add_durations, scan_audio
from asrconfig_go.audio import CTCCollator, ResampledCache, cut_rules, load_audio
from asrconfig_go.audio.cut_rules import levels_of, quietest, silent_cuts
from asrconfig_go.errors import EmptyDatasetError
from asrconfig_go.recipe import build_processor
from asrconfig_go.recipe.speech_data import column
from recipe_data import talk
from tone_speech import aligner, spoken
from training_fixtures import make_plan

LIMIT = 6.0
RATE = 16_000


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("talks")
    long = [talk(folder / f"talk{i}.flac", 24, seed=i) for i in range(2)]
    return [long[0], talk(folder / "short.flac", 2, seed=9), long[1]]


def table(rows: list[dict[str, Any]], **more: Any) -> Any:
    dataset = datasets.Dataset.from_list([{**row, "speaker": i} for i, row in enumerate(rows)])
    return dataset.cast_column("audio", datasets.Audio(decode=False))


def said(rows: Any) -> str:
    return " ".join(" ".join(column(rows, "text") if hasattr(rows, "features") else [r["text"] for r in rows]).split())


def heard(rows: Any) -> Any:
    return np.concatenate([load_audio(row["audio"]) for row in rows])


def test_a_dataset_in_pieces_is_the_whole_dataset(talks: list[dict[str, Any]]) -> None:
    dataset = add_durations(table(talks), progress=False)
    pieces, chosen = make_plan(chunk_length_s=LIMIT).select(dataset)
    assert said(pieces) == said(dataset)
    assert (heard(pieces) == heard(dataset)).all()
    assert pieces.features["audio"] == dataset.features["audio"]
    scan = scan_audio(pieces, progress=False)
    assert max(scan.durations) <= LIMIT
    assert column(pieces, "length") == pytest.approx([16_000 * s for s in scan.durations], abs=1)
    assert column(pieces, "speaker") == sorted(column(pieces, "speaker")), "in order, with their other columns"
    assert column(pieces, "speaker").count(1) == 1
    record = chosen.long_clips
    assert record is not None
    assert (record.clips, record.pieces) == ({"timestamps": 2}, {"timestamps": len(pieces) - 1})
    assert (list(chosen.to_cut), list(chosen.not_cut)) == ([0, 2], [])
    assert chosen.kept_hours == pytest.approx(sum(scan.durations) / 3600, abs=1e-6)
    assert repr(chosen).splitlines() == [
        "3 of 3 clips kept (64 s)",
        f"2 clips over 6 s cut into {len(pieces) - 1} pieces by timestamps",
    ]


def test_a_list_gives_the_same_pieces(talks: list[dict[str, Any]]) -> None:
    seconds = list(scan_audio([row["audio"] for row in talks], progress=False).durations)
    plan = make_plan(chunk_length_s=LIMIT)
    rows, _ = plan.select(talks, seconds)
    dataset, _ = plan.select(table(talks), seconds)
    assert [row["audio"] for row in rows] == [audio["path"] for audio in column(dataset, "audio")]
    assert [row["text"] for row in rows] == column(dataset, "text")


def test_embedded_audio_is_written_once(
    talks: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path))
    rows = [{**row, "audio": {"bytes": Path(row["audio"]).read_bytes(), "path": "x.flac"}} for row in talks]
    dataset = table(rows)
    pieces, _ = make_plan(chunk_length_s=LIMIT).select(dataset)
    assert (heard(pieces) == heard(dataset)).all()
    assert len(list((tmp_path / "recordings").glob("*.flac"))) == 2
    in_list, _ = make_plan(chunk_length_s=LIMIT).select(rows, [30.0, 1.0, 30.0])
    assert in_list[0]["audio"]["bytes"] is rows[0]["audio"]["bytes"], "not copied"
    assert len(load_audio(in_list[0]["audio"])) <= LIMIT * 16_000


def test_pieces_are_collated_and_cached(talks: list[dict[str, Any]], tmp_path: Path) -> None:
    pieces, _ = make_plan(chunk_length_s=LIMIT).select(table(talks))
    processor = build_processor(column(pieces, "text"), "tiny-wav2vec2")
    cache = ResampledCache(tmp_path, keep_free_bytes=0)
    rows = [pieces[i] for i in range(4)]
    plain, cached = (CTCCollator(processor, load=load)(rows) for load in (load_audio, cache))
    assert (plain["input_values"] == cached["input_values"]).all()
    assert plain["attention_mask"].sum(1).tolist() == [len(load_audio(row["audio"])) for row in rows]


def test_whisper_s_tokens_subtitles_and_json_cut_alike(talks: list[dict[str, Any]], tmp_path: Path) -> None:
    row = talks[0]
    file = tmp_path / "talk.flac"
    file.write_bytes(Path(row["audio"]).read_bytes())
    plan = make_plan(chunk_length_s=LIMIT)
    seconds = [scan_audio([str(file)], progress=False).durations[0]]
    wanted, _ = plan.select([{**row, "audio": str(file)}], seconds)
    tokens = "".join(f"<|{s['start']:.3f}|> {s['text']}<|{s['end']:.3f}|>" for s in row["segments"])
    by_tokens, _ = plan.select([{"audio": str(file), "text": tokens}], seconds)
    cues = [f"{_clock(s['start'])} --> {_clock(s['end'])}\n{s['text']}\n" for s in row["segments"]]
    file.with_suffix(".srt").write_text("\n".join(cues))
    by_subtitles, _ = plan.select([{"audio": str(file), "text": row["text"].upper()}], seconds)
    assert [p["audio"] for p in by_tokens] == [p["audio"] for p in by_subtitles] == [p["audio"] for p in wanted]
    assert [p["text"] for p in by_tokens] == [p["text"] for p in wanted]
    assert [p["text"] for p in by_subtitles] == [p["text"].upper() for p in wanted]


def _clock(seconds: float) -> str:
    return f"00:00:{seconds:06.3f}".replace(".", ",")


def test_what_is_not_cut_is_left_out_and_named(talks: list[dict[str, Any]]) -> None:
    row = talks[0]
    other = {**row, "text": "something else"}
    bad = {**row, "segments": [{**row["segments"][0], "end": 0.0, "start": 3.0}]}
    rows = [row, {**row, "segments": None}, {**row, "segments": None}, other, bad]
    selected, chosen = make_plan(chunk_length_s=LIMIT).select(rows, [30.0] * 5)
    assert list(chosen.not_cut) == [1, 2, 3, 4]
    assert said(selected) == row["text"]
    assert repr(chosen).splitlines()[2:] == [
        "2 clips over 6 s not cut and left out: no timestamps for its text, and no model to align it with (align=)",
        "1 clip over 6 s not cut and left out: its segments spell another text than its transcript",
        "1 clip over 6 s not cut and left out: segment 0 (3 s to 0 s) ends before it starts",
    ]
    assert chosen.long_clips is not None
    assert chosen.long_clips.lost_hours * 3600 == pytest.approx(120)
    with pytest.raises(EmptyDatasetError, match="no clip is left: 1 clip over 6 s not cut"):
        make_plan(chunk_length_s=LIMIT).select(rows[1:2], [30.0])


def test_a_segment_over_the_limit_is_left_out_and_counted(talks: list[dict[str, Any]]) -> None:
    row = talks[0]
    first, later = row["segments"][:12], row["segments"][12:]
    joined = {"start": first[0]["start"], "end": first[-1]["end"], "text": " ".join(s["text"] for s in first)}
    pieces, chosen = make_plan(chunk_length_s=LIMIT).select([{**row, "segments": [joined, *later]}], [30.0])
    assert said(pieces) == " ".join(s["text"] for s in later)
    assert "s of cut clips left out: a single segment over the limit" in repr(chosen)


def test_without_a_text_silences_are_cut(talks: list[dict[str, Any]]) -> None:
    paths = [row["audio"] for row in talks]
    pieces, chosen = make_plan(chunk_length_s=LIMIT).select(paths)
    assert (np.concatenate([load_audio(p) for p in pieces]) == np.concatenate([load_audio(p) for p in paths])).all()
    assert f"cut into {len(pieces) - 1} pieces at silences, without text" in repr(chosen)
    ends = [float(piece.split(",")[-1]) for piece in pieces if "talk0.flac" in piece][:-1]
    words = [(s["start"], s["end"]) for s in talks[0]["segments"]]
    assert not [end for end in ends if any(a + 0.05 < end < b - 0.05 for a, b in words)], "never within a word"
    empty, _ = make_plan(chunk_length_s=LIMIT).select(table([{"audio": p, "text": ""} for p in paths]))
    assert [audio["path"] for audio in column(empty, "audio")] == pieces


def test_with_a_model_texts_are_aligned(tmp_path: Path) -> None:
    words = ["ab", "cde", "fg", "hij", "kl", "mn"] * 8
    audio, _ = spoken(words)
    soundfile.write(tmp_path / "tones.wav", audio, 16_000, subtype="FLOAT")
    rows = [{"audio": str(tmp_path / "tones.wav"), "text": " ".join(words)}]
    pieces, chosen = make_plan(chunk_length_s=LIMIT).select(rows, [len(audio) / 16_000], align=aligner())
    assert said(pieces) == " ".join(words)
    assert (heard(pieces) == audio).all()
    assert f"1 clip over 6 s cut into {len(pieces)} pieces by an alignment" in repr(chosen)


def test_pieces_keep_to_the_positions_of_whisper_s_decoder(talks: list[dict[str, Any]]) -> None:
    processor = build_processor([talks[0]["text"]], "tiny-whisper")
    segments = [{**s, "text": f"{s['text']} " * 60} for s in talks[0]["segments"]]
    rows = [{"audio": talks[0]["audio"], "text": None, "segments": segments}]
    plan = make_plan(chunk_length_s=LIMIT)
    free, _ = plan.select(rows, [30.0])
    bound, _ = plan.select(rows, [30.0], processor=processor)
    tokens = [len(processor.tokenizer(row["text"]).input_ids) for row in bound]
    assert max(tokens) <= 448 < max(len(processor.tokenizer(row["text"]).input_ids) for row in free)
    assert len(bound) > len(free)
    assert said(bound) == said(free)


def test_rows_that_are_read_by_code_or_have_labels_are_not_cut(talks: list[dict[str, Any]]) -> None:
    class Rows:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> dict[str, Any]:
            return talks[i]

    selected, chosen = make_plan(chunk_length_s=LIMIT).select(Rows(), [30.0, 1.0])
    assert [selected[i]["text"] for i in range(len(selected))] == [talks[1]["text"]]
    assert "the rows of a Rows cannot be replaced" in repr(chosen)
    labelled = table([{**row, "labels": [1]} for row in talks])
    _, chosen = make_plan(chunk_length_s=LIMIT).select(labelled)
    assert "2 clips over 6 s not cut and left out: their labels or inputs were already computed" in repr(chosen)


def speech(source: Any, seconds: float, noise: float) -> tuple[Any, list[tuple[float, float]]]:
    """Loud parts of up to three seconds with pauses of a third of a second and more, and where the pauses are."""
    parts: list[Any] = []
    pauses: list[tuple[float, float]] = []
    samples = 0
    while samples < seconds * RATE:
        loud, pause = int(source.uniform(0.3, 3) * RATE), int(source.uniform(0.3, 0.8) * RATE)
        parts += [0.3 * source.standard_normal(loud), noise * source.standard_normal(pause)]
        pauses.append(((samples + loud) / RATE, (samples + loud + pause) / RATE))
        samples += loud + pause
    return np.concatenate(parts).astype(np.float32), pauses


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.02])
def test_cuts_lie_in_pauses_and_keep_to_the_limit(noise: float) -> None:
    source = np.random.default_rng(6)
    for seconds in (31.0, 65.0, 400.0):
        audio, pauses = speech(source, seconds, noise)
        duration = len(audio) / RATE
        cuts, loud = silent_cuts(levels_of(audio, duration), duration, 30.0)
        assert loud == 0
        assert all(any(a < cut < b for a, b in pauses) for cut in cuts)
        lengths = [b - a for a, b in itertools.pairwise([0.0, *cuts, duration])]
        assert max(lengths) <= 30.0
        assert min(lengths) > 3.0, "none is a short rest"
        assert len(lengths) <= -(-duration // 20)


def test_without_silence_the_quietest_place_is_cut_and_counted() -> None:
    source = np.random.default_rng(7)
    audio = 0.3 * source.standard_normal(50 * RATE)
    audio[20 * RATE : 21 * RATE] *= 0.6
    cuts, loud = silent_cuts(levels_of(audio, 50.0), 50.0, 30.0)
    assert loud == 1
    assert 20.0 < cuts[0] < 21.0


def test_no_cut_up_to_the_limit_and_sound_of_one_level() -> None:
    levels = levels_of(np.zeros(RATE, np.float32), 1.0)
    assert silent_cuts(levels, 1.0, 1.0) == ([], 0)
    cuts, _ = silent_cuts(levels_of(np.zeros(100 * RATE, np.float32), 100.0), 100.0, 30.0)
    assert max(b - a for a, b in itertools.pairwise([0.0, *cuts, 100.0])) <= 30.0


def test_recordings_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    audio, _ = speech(np.random.default_rng(8), 20.0, 1e-3)
    levels = levels_of(audio, len(audio) / RATE)
    monkeypatch.setattr(cut_rules, "_BLOCK_S", 3.0)
    assert np.allclose(levels_of(audio, len(audio) / RATE), levels)


def test_the_quietest_frame_between_two_times() -> None:
    levels: Any = np.ones(100, np.float32)
    levels[40] = 0.1
    assert quietest(levels, 0.5, 1.5) == pytest.approx(0.81)
    assert quietest(levels, 1.0, 1.01) == pytest.approx(1.005), "no frame lies between"
