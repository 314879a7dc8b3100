"""Loading speech by name, and making it fit a model: every clip is trained on or said to be left out."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import WavMaker

from asrconfig_go import create_optimal_config, measure_loader
from asrconfig_go.data.scan import scan_audio
from asrconfig_go.data.splits import trained_part
from asrconfig_go.errors import (
    AsrConfigError,
    CorruptFileError,
    EmptyDatasetError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from asrconfig_go.recipe import load_speech
from asrconfig_go.recipe.speech_data import column
from recipe_data import digits, folder_of_clips

datasets = pytest.importorskip("datasets")
soundfile = pytest.importorskip("soundfile")


def loaded(source: Any, **options: Any) -> Any:
    return load_speech(source, progress=False, **options)


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ";")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_the_demo_has_its_own_clips_to_evaluate_with() -> None:
    data = loaded("demo")
    assert (len(data.train), len(data.evaluation)) == (250, 60)
    assert data.train.column_names == ["audio", "text", "length"]
    assert data.train.features["audio"].decode is False
    row = data.train[0]
    assert row["length"] == soundfile.info(row["audio"]["path"]).frames
    assert str(data).startswith("250 clips (3.97 min) to train on, 60 clips (64.33 s) to evaluate with")
    assert "250 clips" in data._repr_html_()
    assert load_speech(data) is data


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "train.tsv", "data.csv"])
def test_a_folder_with_a_manifest(tmp_path: Path, name: str) -> None:
    clips = folder_of_clips(tmp_path / "clips")
    columns = ("file_name", "sentence") if name == "metadata.csv" else ("path", "transcript")
    write_table(tmp_path / name, [dict(zip(columns, (path.stem, text), strict=True)) for path, text in clips][::-1])
    with_endings = [dict(zip(columns, (path.name, text), strict=True)) for path, text in clips]
    unsplit = loaded(tmp_path, evaluation_share=0)
    assert column(unsplit.train, "text") == [text for _, text in clips][::-1], "in the manifest's order"
    write_table(tmp_path / name, with_endings)
    parted = loaded(str(tmp_path), evaluation_share=0.34)
    assert (len(parted.train), len(parted.evaluation)) == (4, 2)
    assert sorted(column(parted.train, "text") + column(parted.evaluation, "text")) == sorted(t for _, t in clips)
    assert "2 of 6 clips, drawn at random, are kept for evaluation" in parted.notes
    again = loaded(tmp_path, evaluation_share=0.34)
    assert column(again.evaluation, "text") == column(parted.evaluation, "text")


def test_fewer_clips_to_evaluate_with_are_drawn_by_the_seed() -> None:
    data = load_speech(digits(4, evaluated=12), progress=False)

    def texts(limit: int | None, seed: int = 0) -> list[str]:
        drawn = data.evaluated_with(limit, seed)
        assert drawn.train is data.train
        return list(drawn.evaluation["text"]) if drawn.evaluation is not None else []

    every = texts(None)
    assert data.evaluated_with(12, 0) is data.evaluated_with(50, 0) is data
    assert texts(5) == texts(5) and len(texts(5)) == 5
    assert len({tuple(texts(5, seed)) for seed in range(6)}) > 1
    assert all(text in every for text in texts(5))
    assert data.of(data.train, None).evaluated_with(5, 0).evaluation is None


def test_nothing_is_written_beside_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may lie where nothing can be written; and the clips are those that train_test_split draws."""
    import datasets

    clips = digits(12)["train"]
    clips.save_to_disk(str(tmp_path / "saved"))
    before = sorted(tmp_path.rglob("*"))
    writes = getattr(datasets.Dataset, "_get_cache_file_path")  # noqa: B009
    monkeypatch.setattr(datasets.Dataset, "_get_cache_file_path", lambda *_: pytest.fail("a file beside the data"))
    data = load_speech(tmp_path / "saved", evaluation_share=0.25, seed=3, progress=False)
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr(datasets.Dataset, "_get_cache_file_path", writes)
    drawn = clips.train_test_split(test_size=3, seed=3)
    assert column(data.train, "text") == drawn["train"]["text"][:]
    assert column(data.evaluation, "text") == drawn["test"]["text"][:]


def test_text_files_beside_clips(tmp_path: Path) -> None:
    clips = folder_of_clips(tmp_path / "a" / "b")
    for path, text in clips[1:]:
        path.with_suffix(".txt").write_text(f"\ufeff{text}\n", encoding="utf-8")
    data = loaded(tmp_path, evaluation_share=0).clean()
    assert sorted(column(data.train, "text")) == sorted(text for _, text in clips[1:])
    assert "1 clip without a transcript left out" in data.notes


def test_texts_of_libritts(tmp_path: Path) -> None:
    """Which has x.original.txt and x.normalized.txt beside x.wav."""
    clips = folder_of_clips(tmp_path / "train-clean-100" / "19" / "198", 2)
    for path, text in clips:
        path.with_suffix(".original.txt").write_text(f"{text.upper()}!", encoding="utf-8")
        path.with_suffix(".normalized.txt").write_text(text, encoding="utf-8")
    assert sorted(column(loaded(tmp_path, evaluation_share=0).train, "text")) == sorted(text for _, text in clips)


def test_texts_of_librispeech_and_kaldi(tmp_path: Path) -> None:
    clips = folder_of_clips(tmp_path / "speaker" / "chapter")
    lines = [f"{path.stem} {text}\n" for path, text in clips]
    (tmp_path / "speaker" / "chapter" / "1-2.trans.txt").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "kaldi").mkdir()
    lines_of_files = [f"{path.stem} {path}\n" for path, _ in clips[1:]] + [f"{clips[0][0].stem} cat {clips[0][0]} |\n"]
    (tmp_path / "kaldi" / "wav.scp").write_text("".join(lines_of_files) + "z sox z.wav -t wav - |\n")
    (tmp_path / "kaldi" / "text").write_text("".join(lines))
    texts = sorted(text for _, text in clips)
    for source in ("speaker", "kaldi", "kaldi/wav.scp"):
        data = loaded(tmp_path / source, evaluation_share=0)
        assert sorted(column(data.train, "text")) == texts
        assert ("wav.scp:7: z: is a command, which is not run" in str(data.notes)) == ("kaldi" in source)
    (tmp_path / "kaldi" / "segments").write_text(f"a {clips[0][0].stem} 0.1 0.3\nb {clips[1][0].stem} 0 0.2\n")
    (tmp_path / "kaldi" / "text").write_text("a one\nb two\n")
    pieces = loaded(tmp_path / "kaldi", evaluation_share=0).train
    assert (column(pieces, "text"), column(pieces, "length")) == (["one", "two"], [3200, 3200])


def test_splits_of_librispeech(tmp_path: Path) -> None:
    clips = folder_of_clips(tmp_path / "new")
    for part, pair in {"dev-clean": clips[:1], "test-other": clips[1:2], "train-clean-100": clips[2:4]}.items():
        chapter = tmp_path / "data" / "LibriSpeech" / part / "1" / "2"
        chapter.mkdir(parents=True)
        (chapter / "1-2.trans.txt").write_text("".join(f"{path.stem} {text}\n" for path, text in pair))
        for path, _ in pair:
            path.rename(chapter / path.name)
    data = loaded(tmp_path / "data")
    assert sorted(column(data.train, "text")) == sorted(text for _, text in clips[2:4])
    assert column(data.evaluation, "text") == [clips[0][1]]
    assert data.notes == ("trains on the split train, evaluates with dev; not used: test",)
    assert len(scan_audio(trained_part(tmp_path / "data"), progress=False)) == 2
    for part in ("train-clean-100", "test-other"):
        (tmp_path / "data" / "LibriSpeech" / part).rename(tmp_path / part)
    assert loaded(tmp_path / "data").notes[0] == "trains on dev, the only split"
    notes = loaded(tmp_path / "data", evaluation_split="dev").notes
    assert notes[0] == "trains on the split dev, evaluates with dev"


@pytest.mark.parametrize(("audio", "microphone"), [("wav48_silence_trimmed", "_mic1"), ("wav48", "")])
def test_texts_of_vctk(tmp_path: Path, audio: str, microphone: str) -> None:
    clips = folder_of_clips(tmp_path / audio / "p225", 2)
    (tmp_path / "txt" / "p225").mkdir(parents=True)
    for path, text in clips:
        (tmp_path / "txt" / "p225" / f"{path.stem}.txt").write_text(f"{text}\n", encoding="utf-8")
        path.rename(path.with_stem(f"{path.stem}{microphone}"))
    assert sorted(column(loaded(tmp_path, evaluation_share=0).train, "text")) == sorted(text for _, text in clips)


def test_one_microphone_of_vctk(tmp_path: Path) -> None:
    """Or clips that are drawn to evaluate with would say what others, which are trained on, say."""
    clips = folder_of_clips(tmp_path / "wav48_silence_trimmed" / "p225", 3)
    (tmp_path / "txt" / "p225").mkdir(parents=True)
    for path, text in clips:
        (tmp_path / "txt" / "p225" / f"{path.stem}.txt").write_text(text, encoding="utf-8")
        if path != clips[2][0]:  # which the first microphone missed
            shutil.copy(path, path.with_stem(f"{path.stem}_mic1"))
        path.rename(path.with_stem(f"{path.stem}_mic2"))
    data = loaded(tmp_path, evaluation_share=0)
    assert sorted(column(data.train, "text")) == sorted(text for _, text in clips)
    assert data.notes[0] == "trains on the split train; not used: mic2"
    assert len(scan_audio(trained_part(tmp_path), progress=False)) == 3
    assert len(loaded(tmp_path, split="mic2", evaluation_share=0).train) == 2


def test_a_plan_is_for_the_clips_that_are_trained_on(tmp_path: Path) -> None:
    clips = folder_of_clips(tmp_path / "clips")
    write_table(tmp_path / "train.tsv", [{"path": path.name, "sentence": text} for path, text in clips[:4]])
    write_table(tmp_path / "test.tsv", [{"path": path.name, "sentence": text} for path, text in clips[4:5]])
    _, manager = create_optimal_config(tmp_path, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
    assert manager.dataset is not None
    speech = loaded(tmp_path)
    assert manager.dataset.sample_count == len(speech.train) == 4
    assert trained_part(speech).data is speech.train
    folder = tmp_path / "folders"
    for split, part in (("train", clips[:2]), ("dev", clips[2:])):
        (folder / split).mkdir(parents=True)
        for path, _ in part:
            path.rename(folder / split / path.name)
    assert len(scan_audio(trained_part(folder))) == 2


def test_a_column_of_splits_is_planned_as_it_is_trained_on(tmp_path: Path) -> None:
    clips, splits = folder_of_clips(tmp_path), ["train", "test", None, "train", "dev", "train"]
    assert len(clips) == len(splits)
    rows = [
        {"path": str(path), "text": text, "split": split} for (path, text), split in zip(clips, splits, strict=True)
    ]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "table.parquet")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_table(tmp_path / "metadata.csv", [{**row, "split": row["split"] or ""} for row in rows])
    for source in (tmp_path / "table.parquet", tmp_path / "rows.jsonl", tmp_path / "metadata.csv", tmp_path):
        planned = scan_audio(trained_part(source), progress=False)
        assert len(planned) == len(loaded(source).train) == 4
        assert len(scan_audio(source, progress=False)) == 6
    for name in ("test-0.parquet", "train-0.parquet", "train-1.parquet"):
        (tmp_path / "files").mkdir(exist_ok=True)
        datasets.Dataset.from_list([rows[0]] * (2 if "train" in name else 1)).to_parquet(tmp_path / "files" / name)
    assert len(scan_audio(trained_part(tmp_path / "files"), progress=False)) == 4


def test_a_table_without_a_header_is_that_of_ljspeech(tmp_path: Path) -> None:
    clips = folder_of_clips(tmp_path / "wavs")
    lines = (f"{path.stem}|Dr. {text}|Doctor {text}\n" for path, text in clips)
    (tmp_path / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    for source in (tmp_path, tmp_path / "metadata.csv"):
        data = loaded(source, evaluation_share=0)
        assert column(data.train, "text") == [f"Doctor {text}" for _, text in clips]


def test_splits_by_files_and_by_folders(tmp_path: Path) -> None:
    clips = folder_of_clips(tmp_path)
    rows = [{"path": path.name, "text": text} for path, text in clips]
    write_table(tmp_path / "train.csv", rows[:4])
    write_table(tmp_path / "dev.csv", rows[4:])
    write_table(tmp_path / "test.csv", rows[5:])
    data = loaded(tmp_path)
    assert (len(data.train), len(data.evaluation)) == (4, 2)
    assert data.notes == ("trains on the split train, evaluates with dev; not used: test",)
    chosen = loaded(tmp_path, split="dev", evaluation_split="test")
    assert (len(chosen.train), len(chosen.evaluation)) == (2, 1)
    for name, part in (("train", rows[:4]), ("test", rows[4:])):
        folder_of_clips(tmp_path / "parts" / name)
        write_table(tmp_path / "parts" / name / "metadata.csv", part)
    parts = loaded(tmp_path / "parts")
    assert (len(parts.train), len(parts.evaluation)) == (4, 2)


def test_saved_and_parquet_datasets(tmp_path: Path) -> None:
    digits(6, 2).save_to_disk(tmp_path / "saved")
    assert len(loaded(tmp_path / "saved").evaluation) == 2
    for name, part in digits(6, 2).items():
        part.to_parquet(tmp_path / "parquet" / f"{name}-00000-of-00001.parquet")
    data = loaded(tmp_path / "parquet")
    assert (len(data.train), len(data.evaluation)) == (6, 2)


def test_parquet_files_without_rows_or_that_do_not_fit_together(tmp_path: Path) -> None:
    rows, test = digits(6, 2)["train"], tmp_path / "test.parquet"
    rows.select([]).to_parquet(tmp_path / "a.parquet")  # datasets fails on a file without rows
    rows.to_parquet(tmp_path / "b.parquet")
    assert len(loaded(tmp_path, evaluation_share=0).train) == len(scan_audio(tmp_path, progress=False)) == 6
    assert measure_loader(tmp_path, seconds=0.05) is not None
    test.write_bytes((tmp_path / "b.parquet").read_bytes()[:-200])
    with pytest.raises(CorruptFileError, match=r"test\.parquet cannot be read as Parquet"):
        loaded(tmp_path)
    rows.add_column("speaker", [1] * 6).to_parquet(test.rename(tmp_path / "c.parquet"))
    with pytest.raises(CorruptFileError, match=r"cannot be read as one dataset: .*column names don't match"):
        loaded(tmp_path)


def test_notes_on_clips_of_the_evaluation_set(make_wav: WavMaker) -> None:
    clips = [str(make_wav(f"{i}.wav", 1.0, 8000)) for i in range(2)]
    rows = datasets.Dataset.from_dict({"audio": clips, "text": ["a", "b"]})
    data = loaded(datasets.DatasetDict({"train": rows, "test": rows}))
    assert data.notes[-1] == "resampled to 16000 Hz when read: 2 evaluation clips of 8000 Hz"


def test_a_dataset_with_other_names_and_bytes(make_wav: WavMaker) -> None:
    content = [{"bytes": make_wav(f"{i}.wav", 1.0 + i).read_bytes(), "path": None} for i in range(3)]
    plain = datasets.Dataset.from_dict({"clip": content, "speech_text": ["a", "b", "c"], "id": [1, 2, 3]})
    plain = plain.cast_column("clip", datasets.Audio()).select([2, 0])
    data = loaded(plain, text_column="speech_text", evaluation_share=0)
    assert column(data.train, "length") == [48_000, 16_000]
    assert column(data.train, "text") == ["c", "a"]
    with pytest.raises(InvalidArgumentError) as caught:
        loaded(plain, text_column="speach_text")
    assert "columns: speech_text, id" in caught.value.message
    assert "did you mean 'speech_text'? Pass text_column='speech_text' (--text-column speech_text)" in caught.value.hint
    with pytest.raises(InvalidArgumentError, match="did you mean 'clip'"):
        loaded(plain, audio_column="clips", text_column="speech_text")


def test_rows_in_a_list(make_wav: WavMaker) -> None:
    paths = [{"audio": make_wav(f"{i}.wav", 1.0 + i), "text": str(i)} for i in range(2)]
    arrays = [{"audio": np.full(16_000 * (i + 1), 0.1), "text": str(i)} for i in range(2)]
    for rows in (paths, arrays):
        data = loaded(rows, evaluation_share=0)
        assert (column(data.train, "text"), column(data.train, "length")) == (["0", "1"], [16_000, 32_000])


def test_arrays_are_audio_too() -> None:
    audio = [{"array": [0.1, -0.1] * n, "sampling_rate": 8_000} for n in (400, 600)]
    data = loaded(datasets.Dataset.from_dict({"audio": audio, "text": ["a", "b"]}), evaluation_share=0)
    assert column(data.train, "length") == [1600, 2400]
    assert data.notes == ("resampled to 16000 Hz when read: 2 clips of 8000 Hz", "no clips to evaluate with")


def test_bad_clips_and_other_rates_are_said(tmp_path: Path, make_wav: WavMaker) -> None:
    good = [make_wav("a.wav", 1.0), make_wav("b.wav", 1.0, rate=8_000), make_wav("c.wav", 1.0, rate=44_100)]
    broken = tmp_path / "broken.wav"
    broken.write_text("no audio")
    flac = tmp_path / "cut.flac"
    tones = [0.3 * ((i * 7919) % 1000 / 1000 - 0.5) for i in range(32_000)]
    soundfile.write(flac, tones, 16_000)
    content = bytearray(flac.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 400] = b"\xff" * 400
    flac.write_bytes(content)
    good[0].write_bytes(make_wav("cut.wav", 2.0).read_bytes()[: 44 + 32_000])
    files = [*good, broken, flac, tmp_path / "missing.wav"]
    rows = [{"path": str(path), "text": path.stem} for path in files]
    manifest = write_table(tmp_path / "m.jsonl", [*rows, {"path": None, "text": "no path"}])
    data = loaded(manifest, evaluation_share=0)
    assert column(data.train, "text") == ["a", "b", "c"]
    assert column(data.train, "length") == [16_000] * 3, "in samples at 16 kHz"
    line, bad, shorter, rates = data.notes[:4]
    assert shorter.startswith("1 clip with less audio than the header claims") and shorter.endswith("a.wav")
    assert line.startswith("1 of 7 rows of m.jsonl cannot be read and is left out: m.jsonl:7: has no field with a path")
    assert bad.startswith("3 of 6 clips cannot be read and are left out: ")
    for name in ("broken.wav", "cut.flac", "missing.wav"):
        assert name in bad
    assert rates == "resampled to 16000 Hz when read: 1 clip of 8000 Hz, 1 clip of 44100 Hz"
    unchecked = loaded(manifest, evaluation_share=0, check_audio=False)
    assert column(unchecked.train, "text") == ["a", "b", "c", "cut"]
    with pytest.raises(EmptyDatasetError, match=r"no clips are left to train on; 2 of 2 clips cannot be read"):
        loaded(write_table(tmp_path / "bad.jsonl", rows[3:5]))


def test_cleaning_leaves_out_what_says_nothing() -> None:
    rows = digits(4)["train"]
    texts = ["One, two!", "?!", None, "it costs 3.50"]
    data = loaded(datasets.Dataset.from_dict({"audio": rows["audio"], "text": texts}), evaluation_share=0)
    cleaned = data.clean()
    assert column(cleaned.train, "text") == ["one two", "it costs 3.50"]
    assert len(cleaned.train["length"]) == 2
    assert column(data.train, "text") == texts, "the data given stays as it was"
    notes = "\n".join(cleaned.notes)
    assert "cleaning changed 2 of 4 transcripts" in notes
    assert "2 clips without a transcript left out" in notes
    assert "1 transcript with digits" in notes


@pytest.mark.parametrize(
    ("name", "text", "kind", "message"),
    [
        ("m.jsonl", '{"path": "a.wav"\n', EmptyDatasetError, "1 of 1 row of m.jsonl .* m.jsonl:1: not a JSON object"),
        ("m.jsonl", "[1]\n", EmptyDatasetError, "m.jsonl:1: not a JSON object"),
        ("m.json", '[{"path": "a.wav", "text": "x"}', CorruptFileError, "cannot be read after row 1"),
        ("m.csv", "path,text\na.wav,caf\udce9\n", CorruptFileError, r"line 2: the text is not UTF-8 \(byte 0xe9\)"),
        ("m.csv", "", EmptyDatasetError, "has no rows"),
        ("m.csv", "path,text\n", EmptyDatasetError, "has no rows"),
        ("m.csv", "id,words\n1,x\n", InvalidArgumentError, "no column of a usual name with the audio"),
        ("m.csv", "path,words\na.wav,x\n", InvalidArgumentError, "no column of a usual name with the transcripts"),
        ("m.jsonl", '{"path": "a.wav", "text": "x", "start": 2, "end": 1}\n', EmptyDatasetError, "selects 2 s to 1 s"),
        (
            "m.jsonl",
            '{"path": "a.wav", "text": "x", "offset": "1", "duration": "nan"}\n',
            EmptyDatasetError,
            'm.jsonl:1: a.wav: "nan" is not a number of seconds',
        ),
        ("m.xml", "<a/>", InvalidArgumentError, "is not a manifest"),
    ],
)
def test_manifests_that_cannot_be_used(
    tmp_path: Path, name: str, text: str, kind: type[AsrConfigError], message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(kind, match=message) as caught:
        loaded(tmp_path / name)
    assert caught.value.hint


def test_sources_that_are_none(tmp_path: Path) -> None:
    splits = datasets.DatasetDict(a=digits(2)["train"], b=digits(2)["train"])
    (tmp_path / "cuts.jsonl.gz").touch()
    cases: list[tuple[Any, dict[str, Any], type[AsrConfigError], str]] = [
        (tmp_path, {}, NotFoundError, "holds no clips with transcripts(?s:.*)pass the manifest .*/cuts.jsonl.gz"),
        ("./nowhere", {}, NotFoundError, r"'\./nowhere' does not exist"),
        (3, {}, InvalidArgumentError, "cannot read speech from an int"),
        (splits, {}, InvalidArgumentError, r"no split train \(splits: a, b\)"),
        (digits(2), {"evaluation_split": "validation"}, InvalidArgumentError, "no split 'validation'"),
        ("demo", {"evaluation_share": 0.9}, InvalidArgumentError, r"evaluation_share = 0\.9"),
        (digits(2)["train"].to_iterable_dataset(), {}, UnsupportedError, "streamed"),
        (digits(2)["train"].select([]), {}, EmptyDatasetError, "no rows"),
    ]
    for source, options, kind, message in cases:
        with pytest.raises(kind, match=message):
            loaded(source, **options)


def test_the_hub_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def load_dataset(*names: Any, split: Any = None, token: Any = None) -> Any:
        calls.append((*names, split, token))
        return digits(4, 2) if split is None else digits(4, 2)[split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert len(loaded("someone/speech", name="de", token="t").evaluation) == 2
    assert calls == [("someone/speech", "de", None, "t")]
    assert len(loaded("speech", split="test", evaluation_split="train").evaluation) == 4
    assert calls[1:] == [("speech", None, "test", None), ("speech", None, "train", None)]


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (ConnectionError("Couldn't reach the Hub"), "the Hub cannot be reached", "needs no network"),
        (OSError("401 Client Error: gated repo"), "needs a token that may read it", "set HF_TOKEN"),
        (ValueError("Config name is missing. Please pick one among ['de']"), "among \\['de'\\]", "--name"),
        (FileNotFoundError("Dataset 'x/y' doesn't exist"), "cannot be found on the Hub", "check its name"),
        (RuntimeError("scripts are no longer supported"), "cannot be loaded", "a folder or a manifest"),
    ],
)
def test_what_keeps_the_hub_from_giving(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str, hint: str
) -> None:
    def load_dataset(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("asrconfig_go._core.requirements.offline", lambda: False)
    with pytest.raises(AsrConfigError, match=f"'x/y'.*{message}") as caught:
        loaded("x/y")
    assert hint in caught.value.hint
