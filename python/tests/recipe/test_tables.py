"""Tables as people write them: the same clips with the same texts for the scan, the plan, check_labels and recipes."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

import asrconfig_go as ac
from asrconfig_go.data.scan import scan_with_texts
from asrconfig_go.errors import AsrConfigError, CorruptFileError, InvalidArgumentError, UnsupportedError
from asrconfig_go.predict import ModelProfile
from asrconfig_go.recipe import load_speech

datasets = pytest.importorskip("datasets")
pytest.importorskip("soundfile")
pa = pytest.importorskip("pyarrow")

Clip = tuple[float, Any]
THREE: list[Clip] = [(0.5, "one"), (1.0, "two"), (1.5, "three")]


@pytest.fixture
def folder(tmp_path: Path, make_wav: WavMaker) -> Path:
    """With clips of 0.5 s, 1 s, 1.5 s and 3 s: c0.wav to c3.wav."""
    for number, seconds in enumerate((0.5, 1.0, 1.5, 3.0)):
        make_wav(f"clips/c{number}.wav", seconds)
    return tmp_path


def scanned(source: Any) -> list[float]:
    return [round(s, 3) for s in ac.scan_audio(source, progress=False).durations if not math.isnan(s)]


def checked(source: Any) -> list[Clip]:
    result, texts = scan_with_texts(source, None, workers=0, progress=False)
    pairs = zip(result.durations, texts, strict=True)
    return [(round(s, 3), text) for s, text in pairs if not math.isnan(s)]


def loaded(source: Any) -> list[Clip]:
    train = load_speech(source, evaluation_share=0, progress=False).train
    return [(round(n / 16_000, 3), text) for n, text in zip(train["length"], train["text"], strict=True)]


def planned(source: Any) -> int:
    _, manager = ac.create_optimal_config(source, ModelProfile(total_parameters=10**8), gpu="T4", verbose=False)
    assert manager.dataset is not None
    return int(manager.dataset.measured_count)


def same(source: Any) -> list[Clip]:
    """What all four make of a source."""
    clips = loaded(source)
    assert checked(source) == clips
    assert scanned(source) == [seconds for seconds, _ in clips]
    assert planned(source) == len(clips)
    return clips


TABLES: dict[str, tuple[str, str, list[Clip]]] = {
    "commas": ("m.csv", "path,text\nc0.wav,one\nc1.wav,two\nc2.wav,three\n", THREE),
    "semicolons": ("m.csv", "path;text\nc0.wav;one\nc1.wav;two\nc2.wav;three\n", THREE),
    "bars, without endings": ("m.csv", "file|text\nc0|one\nc1|two\nc2|three\n", THREE),
    "tabs in .csv": ("m.csv", "path\ttext\nc0.wav\tone\nc1.wav\ttwo\nc2.wav\tthree\n", THREE),
    "capitals": ("M.CSV", "Path,TEXT\nc0.wav,one\nc1.wav,two\nc2.wav,three\n", THREE),
    "a mark and CRLF": ("m.csv", "\ufeffpath,text\r\n\r\nc0.wav,one\r\nc1.wav,two\r\nc2.wav,three", THREE),
    "audiofolder": ("m.csv", "file_name,transcription\nclips/c0.wav,one\nclips/c1.wav,two\n", THREE[:2]),
    "audiofolder in JSON": (
        "m.jsonl",
        '{"file_name":"clips/c0.wav","transcription":"one"}\n{"file_name":"clips/c1.wav","transcription":"two"}\n',
        THREE[:2],
    ),
    "DeepSpeech": ("m.csv", "wav_filename,wav_filesize,transcript\nc0.wav,16044,one\n", THREE[:1]),
    "an open quotation mark": (
        "m.csv",
        'path,text\nc0.wav,"one\nc1.wav,two\nc2.wav,three\n',
        [(0.5, '"one'), *THREE[1:]],
    ),
    "one over two rows": (
        "m.csv",
        'path,text\nc0.wav,"one\nc1.wav,two"\nc2.wav,three\n',
        [(0.5, '"one'), (1.0, 'two"'), THREE[2]],
    ),
    "a text of two lines": ("m.csv", 'path,text\nc0.wav,"one\nuno"\nc1.wav,two\n', [(0.5, "one\nuno"), THREE[1]]),
    "quoted speech": ("m.csv", 'path,text\nc0.wav,"No," he said\nc1.wav,two\n', [(0.5, '"No," he said'), THREE[1]]),
    "Common Voice": ("m.tsv", 'path\tsentence\nc0.wav\t"One.\nc1.wav\t"Two."\n', [(0.5, '"One.'), (1.0, '"Two."')]),
    "a text with a comma": ("m.csv", "path,text\nc0.wav,one, uno\n", [(0.5, "one, uno")]),
    "numbers": (
        "m.jsonl",
        '{"path":"c0.wav","text":1984}\n{"path":"c1.wav","text":2.50}\n',
        [(0.5, "1984"), (1.0, "2.50")],
    ),
    "an array": ("m.json", '[{"path":"c0.wav","text":"one"},\n{"path":"c1.wav","text":null}]', [THREE[0], (1.0, None)]),
    "missing texts": ("m.csv", "path,text\nc0.wav,one\nc1.wav\nc2.wav,\n", [THREE[0], (1.0, None), (1.5, "")]),
    "packed": ("m.csv.gz", "path,text\nc0.wav,one\n", THREE[:1]),
    "pieces": (
        "m.jsonl",
        '{"audio_filepath":"c3.wav","text":"one","offset":0.5,"duration":1}\n'
        '{"audio_filepath":"c3.wav","text":"two","duration":1.25}\n'
        '{"audio_filepath":"c2.wav","text":"three","duration":1.5}\n'
        '{"audio_filepath":"c3.wav","text":"four","offset":2,"duration":null}\n'
        '{"audio_filepath":"c3.wav","text":"five","start":1,"end":1.75}\n',
        [(1.0, "one"), (1.25, "two"), (1.5, "three"), (1.0, "four"), (0.75, "five")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_every_reader_gives_the_same(folder: Path, name: str) -> None:
    file, content, clips = TABLES[name]
    written = content.encode("utf-8")
    (folder / file).write_bytes(gzip.compress(written) if file.endswith(".gz") else written)
    assert same(folder / file) == clips


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("m.csv", "path,text,who\nc0.wav,one,me\nc1.wav,two, due,me\n", r"m.csv:3: has 4 fields in 3 columns"),
        ("m.csv", "path,text\nc0.wav,one\n,two\n", r"m.csv:3: has no path in column 1 of 2"),
        ("m.jsonl", '{"path":"c0.wav","text":"one"}\nnope\n', r"m.jsonl:2: not a JSON object"),
    ],
)
def test_bad_rows_are_named_and_left_out(folder: Path, file: str, content: str, message: str) -> None:
    (folder / file).write_text(content)
    assert same(folder / file) == [(0.5, "one")]
    notes = load_speech(folder / file, evaluation_share=0, progress=False).notes
    assert notes[0].startswith(f"1 of 2 rows of {file} cannot be read and is left out: {message}")
    bad = ac.scan_audio(folder / file, progress=False).profile.bad_files[0]
    assert f"{Path(bad.path).name}: {bad.error}".startswith(message)


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("path,text\nc0.wav,one\nc1.wav,café\n".encode("cp1252"), CorruptFileError, r"line 3: .* not UTF-8 .*0xe9"),
        ("path,text\nc0.wav,one\n".encode("utf-16"), UnsupportedError, "m.csv is UTF-16"),
        (b"path,text\rc0.wav,one\r", UnsupportedError, "m.csv ends its lines with CR alone"),
    ],
    ids=["Windows-1252", "UTF-16", "old Macintosh"],
)
def test_every_reader_names_the_same_fault(
    folder: Path, content: bytes, kind: type[AsrConfigError], message: str
) -> None:
    (folder / "m.csv").write_bytes(content)
    readers: list[Callable[[Any], Any]] = [scanned, checked, loaded, planned]
    for reader in readers:
        with pytest.raises(kind, match=message) as caught:
            reader(folder / "m.csv")
        assert "save it" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata.csv", "file_name,transcription\nc1.wav,two\nc0.wav,one\n"),
        ("metadata.jsonl", '{"file_name":"c1.wav","text":"two"}\n{"file_name":"c0.wav","text":"one"}\n'),
    ],
)
def test_the_table_of_an_audio_folder(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    assert same(folder) == [THREE[1], THREE[0]]


def large(paths: list[str]) -> Any:
    strings = pa.large_string()  # as pandas and datasets' reader of CSV make them
    return pa.table({"audio": pa.array(paths, strings), "text": pa.array(["one", "two", "three"], strings)})


def class_labels(paths: list[str]) -> Any:
    names = datasets.ClassLabel(names=["three", "one", "two"])
    return datasets.Dataset.from_dict({"path": paths, "label": [1, 2, 0]}).cast_column("label", names)


IN_MEMORY: dict[str, Callable[[list[str]], Any]] = {
    "large strings": large,
    "a dataset of large strings": lambda paths: datasets.Dataset(large(paths)),
    "audiofolder's names": lambda paths: large(paths).rename_columns(["file_name", "Transcription"]),
    "class labels": class_labels,
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_tables_in_memory(folder: Path, name: str) -> None:
    assert same(IN_MEMORY[name]([str(folder / f"clips/c{i}.wav") for i in range(3)])) == THREE


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1984, 7, 0], ["1984", "7", "0"]),
        ([1984, None, 2.5], ["1984", None, "2.5"]),
        (["one", 2, None], ["one", "2", None]),
    ],
    ids=["whole numbers", "numbers with a gap", "texts and numbers"],
)
def test_numbers_as_transcripts(folder: Path, values: list[Any], texts: list[str | None]) -> None:
    pandas = pytest.importorskip("pandas")
    paths = [str(folder / f"clips/c{i}.wav") for i in range(3)]
    clips = list(zip((0.5, 1.0, 1.5), texts, strict=True))
    frame = pandas.DataFrame({"path": paths, "text": values})
    assert same(frame) == clips
    if not any(isinstance(value, str) for value in values):
        assert same(datasets.Dataset.from_pandas(frame)) == clips
        frame.to_parquet(folder / "t.parquet")
        assert same(folder / "t.parquet") == clips


def test_a_csv_read_by_datasets(folder: Path) -> None:
    rows = "".join(f"{folder}/clips/c{i}.wav,{text}\n" for i, (_, text) in enumerate(THREE))
    (folder / "t.csv").write_text(f"audio,text\n{rows}")
    read = datasets.load_dataset(
        "csv", data_files=str(folder / "t.csv"), split="train", cache_dir=str(folder / "cache")
    )
    assert same(read) == THREE


def test_a_column_of_labels_is_no_transcript(folder: Path) -> None:
    rows = datasets.Dataset.from_dict({"path": [str(folder / "clips/c0.wav")], "ids": [[1, 2]]})
    with pytest.raises(InvalidArgumentError, match="the column 'ids' holds no transcripts"):
        load_speech(rows, text_column="ids", progress=False)
