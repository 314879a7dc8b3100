"""Hugging Face datasets, Arrow tables, Parquet and shards: which rows are measured, and that nothing is decoded."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

from asrconfig_go.data.scan import scan_audio
from asrconfig_go.errors import (
    AsrConfigError,
    CorruptFileError,
    EmptyDatasetError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SECONDS = [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.fixture
def files(make_wav: WavMaker) -> list[Path]:
    return [make_wav(f"{i}.wav", seconds) for i, seconds in enumerate(SECONDS)]


def durations(source: Any, **options: Any) -> list[float | None]:
    clips = scan_audio(source, progress=False, allow_empty=True, **options).clips
    return [None if s is None else round(s, 6) for s in clips.column("duration_s")]


def structs(files: list[Path], **types: Any) -> Any:
    """Embedded bytes, but a path alone in row 3."""
    kind = pa.struct([("bytes", types.get("data", pa.binary())), ("path", types.get("path", pa.string()))])
    rows: list[dict[str, Any]] = [{"bytes": file.read_bytes(), "path": None} for file in files]
    rows[3] = {"bytes": None, "path": str(files[3])}
    return pa.array(rows, kind)


def hf_dataset(files: list[Path]) -> Any:
    datasets = pytest.importorskip("datasets")
    table = pa.table({"audio": structs(files), "text": ["a", "bb", "ccc", "dddd", "eeeee"]})
    dataset = datasets.Dataset(datasets.table.InMemoryTable(table))
    return dataset.cast_column("audio", datasets.Audio(sampling_rate=16_000))


COLUMNS: dict[str, Callable[[list[Path]], Any]] = {
    "structs": structs,
    "large": lambda files: structs(files, data=pa.large_binary(), path=pa.large_string()),
    "binary": lambda files: pa.array([file.read_bytes() for file in files]),
    "large binary": lambda files: pa.array([file.read_bytes() for file in files], pa.large_binary()),
    "paths": lambda files: pa.array([str(file) for file in files]),
    "few paths": lambda files: pa.array([str(file) for file in files]).dictionary_encode(),
    "views": lambda files: pa.array([str(file) for file in files], pa.string_view()),
    "no paths": lambda files: pa.array([{"bytes": f.read_bytes(), "path": None} for f in files]),
    "samples": lambda files: pa.array([[0.0] * round(16_000 * s) for s in SECONDS]),
    "decoded": lambda files: pa.array([{"array": [0.0] * round(8_000 * s), "sampling_rate": 8_000} for s in SECONDS]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_arrow_columns(files: list[Path], name: str) -> None:
    column = COLUMNS[name](files)
    assert durations(pa.table({"audio": column})) == SECONDS
    assert durations(pa.table({"audio": column}).slice(1, 3)) == SECONDS[1:4]
    chunked = pa.chunked_array([column.slice(3), column.slice(0, 0), column.slice(1, 2)])
    assert durations(pa.table({"audio": chunked})) == [0.4, 0.5, 0.2, 0.3]
    values = column.to_pylist()
    holes = pa.array([values[0], None, values[4]], column.type)
    assert durations(pa.table({"audio": holes}).slice(1)) == [None, 0.5]


def test_arrow_columns_that_cannot_be_read(files: list[Path]) -> None:
    with pytest.raises(InvalidArgumentError, match="type int64"):
        durations(pa.table({"audio": [1, 2]}))
    with pytest.raises(InvalidArgumentError, match=r"no Audio column \(columns: sound\)"):
        durations(pa.table({"sound": ["a.wav"]}))
    mixed = pa.array([{"array": [0.0], "sampling_rate": 8_000}, {"array": [0.0], "sampling_rate": 16_000}])
    with pytest.raises(InvalidArgumentError, match="8000, 16000"):
        durations(pa.table({"audio": mixed}))
    with pytest.raises(EmptyDatasetError, match="no rows"):
        durations(pa.table({"audio": pa.array([], pa.string())}))


def test_rows_of_a_dataset(files: list[Path], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = hf_dataset(files)
    assert durations(dataset) == SECONDS
    assert durations(dataset.select([4, 0, 3, 4])) == [0.5, 0.1, 0.4, 0.5]
    assert durations(dataset.select(range(1, 3))) == [0.2, 0.3]
    shuffled = dataset.shuffle(seed=1)
    assert durations(shuffled) == [len(text) / 10 for text in shuffled["text"]]
    assert durations(shuffled.select(range(2, 5))) == durations(shuffled)[2:]
    both = datasets.concatenate_datasets([dataset.select([2, 1]), dataset])
    assert durations(both) == [0.3, 0.2, *SECONDS]
    dataset.save_to_disk(str(tmp_path / "saved"))
    assert durations(datasets.load_from_disk(str(tmp_path / "saved")).shard(2, 1)) == [0.4, 0.5]
    assert durations(tmp_path / "saved") == SECONDS
    assert durations(next((tmp_path / "saved").glob("*.arrow"))) == SECONDS
    sampled = scan_audio(shuffled, sample_size=2, progress=False)
    assert (sampled.profile.sample_count, sampled.profile.sampled, len(sampled.clips)) == (5, True, 2)
    assert "5 rows, column 'audio'" in sampled.profile.source


def test_splits(files: list[Path], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = hf_dataset(files)
    parts = datasets.DatasetDict({"train": dataset.select([1, 0]), "test": dataset.select([4])})
    result = scan_audio(parts, progress=False)
    assert [clip.duration_s for clip in result.clips] == [0.2, 0.1]
    assert result.profile.source.startswith("split 'train' of 2 rows")
    others = datasets.DatasetDict({"validation": dataset, "test": dataset.select([4, 2])})
    assert durations(others) == [*SECONDS, 0.5, 0.3]
    assert "validation 5, test 2" in scan_audio(others, progress=False).profile.source
    parts.save_to_disk(str(tmp_path / "saved"))
    assert durations(tmp_path / "saved") == [0.2, 0.1]
    with pytest.raises(InvalidArgumentError, match="streamed") as caught:
        durations({"a": dataset.to_iterable_dataset()})
    assert "dataset['a']" in caught.value.hint
    assert durations({"train": dataset.to_iterable_dataset()}) == SECONDS


def test_streams(files: list[Path]) -> None:
    datasets = pytest.importorskip("datasets")
    paths = datasets.IterableDataset.from_generator(lambda: ({"path": str(file)} for file in files))
    assert durations(paths) == SECONDS, "the features are not known before the first row"
    first = scan_audio(hf_dataset(files).to_iterable_dataset(), sample_size=2, progress=False)
    assert (len(first.clips), first.profile.sampled) == (2, True)


def test_parquet(files: list[Path], tmp_path: Path) -> None:
    table = pa.table({"text": list("abcde"), "audio": structs(files)})
    folder = tmp_path / "repo" / "data"
    folder.mkdir(parents=True)
    pq.write_table(table.slice(0, 3), folder / "train-00000-of-00002.parquet", row_group_size=2)
    pq.write_table(table.slice(3), folder / "train-00001-of-00002.parquet", use_dictionary=False)
    (tmp_path / "repo" / "README.md").write_text("x")
    assert durations(tmp_path / "repo") == SECONDS
    assert durations(str(folder / "*.parquet")) == SECONDS
    assert durations(list(folder.iterdir())[:1] * 2) in (SECONDS[:3] * 2, SECONDS[3:] * 2)
    names = [clip.path for clip in scan_audio(tmp_path / "repo", progress=False).clips]
    assert names == ["[0]", "[1]", "[2]", str(files[3]), "[4]"]
    sampled = scan_audio(tmp_path / "repo", sample_size=3, seed=5, progress=False)
    assert (sampled.profile.sample_count, sampled.profile.sampled) == (5, True)
    for clip in sampled.clips:
        row = 3 if clip.path == str(files[3]) else int(clip.path[1:-1])
        assert clip.duration_s == SECONDS[row]


def test_parquet_of_datasets(files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    path = tmp_path / "d.parquet"
    hf_dataset(files).rename_column("audio", "sound").to_parquet(path)
    assert durations(path) == SECONDS, "the column is found by what datasets notes in the file"


def test_broken_parquet(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "b.parquet"
    path.write_bytes(b"PAR1 this is none")
    with pytest.raises(CorruptFileError, match=r"b\.parquet cannot be read as Parquet"):
        durations(path)
    pq.write_table(pa.table({"audio": pa.array([], pa.string())}), path)
    with pytest.raises(EmptyDatasetError, match=r"no rows in .*b\.parquet"):
        durations(path)
    (tmp_path / "b.arrow").write_bytes(b"not Arrow")
    with pytest.raises(CorruptFileError, match="as Arrow"):
        durations(tmp_path / "b.arrow")


@pytest.mark.parametrize(
    "damage", [b"\xff" * 40, b"\x15" * 40, bytes(40), b"\x1c" * 40, b"\x18\xff\xff\xff\xff\x0f" * 6]
)
def test_damaged_pages_are_one_error(damage: bytes, make_wav: WavMaker, tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"audio": [make_wav("a.wav", 1.0).read_bytes()] * 3}), path)
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + damage + raw[4 + len(damage) :])
    with pytest.raises(AsrConfigError, match=r"damaged\.parquet"):
        scan_audio(path, progress=False)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_compression_of_parquet(compression: str, version: str, make_wav: WavMaker, tmp_path: Path) -> None:
    clips = [make_wav(f"{i}.wav", 0.5 + i / 10).read_bytes() for i in range(8)] * 100
    path = tmp_path / "clips.parquet"
    table = pa.table({"audio": pa.array([{"bytes": clip, "path": "x.wav"} for clip in clips]), "text": ["said"] * 800})
    pq.write_table(table, path, compression=compression, data_page_version=version, row_group_size=300)
    seconds = scan_audio(path, progress=False).clips.column("duration_s")
    assert [round(s, 3) for s in seconds] == [0.5 + i / 10 for i in range(8)] * 100


def test_audio_goes_before_parquet_in_a_folder(files: list[Path], tmp_path: Path) -> None:
    pq.write_table(pa.table({"features": [1]}), tmp_path / "z.parquet")
    assert durations(tmp_path) == SECONDS


def shard(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_shards(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    first = shard(
        folder / "s-00.tar", {"0.wav": files[0].read_bytes(), "0.txt": b"zero", "1.wav": files[1].read_bytes()}
    )
    second = shard(folder / "s-01.tar", {"x" * 150 + "/2.wav": files[2].read_bytes()})
    for source in (folder, f"{folder}/s-{{00..01}}.tar", f"{folder}/*.tar", [first, second]):
        assert durations(source) == SECONDS[:3]
    assert scan_audio(first, progress=False).clips[0].path == f"{first}/0.wav"
    with pytest.raises(UnsupportedError, match="pipe:"):
        durations("pipe:curl https://example.org/a.tar")


def test_frames(files: list[Path]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": range(5), "path": [str(file) for file in files]})
    assert durations(frame) == SECONDS
    assert durations(frame.iloc[[4, 1]]) == [0.5, 0.2]


def test_without_pyarrow(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match="needs pyarrow"):
        durations(tmp_path / "a.parquet")
    assert durations(files) == SECONDS


def test_patterns_of_files(files: list[Path], tmp_path: Path) -> None:
    assert durations(str(tmp_path / "[0-2].wav")) == SECONDS[:3]
    with pytest.raises(NotFoundError, match=r"\*\.flac"):
        durations(str(tmp_path / "*.flac"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wav.scp", "u0 {0}\nu1 {1}\n"),
        ("train.txt", "{0}\n{1}\n"),
        ("nemo.json", '{{"audio_filepath": "{0}", "duration": 0.1}}\n{{"audio_filepath": "1.wav"}}\n'),
        ("utt2dur", "u0 0.1\nu1 0.2\n"),
    ],
)
def test_manifests_of_toolkits(files: list[Path], tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text.format(*files))
    assert durations(tmp_path / name) == SECONDS[:2]
