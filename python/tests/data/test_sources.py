"""What can be passed as a dataset, and what is said when it cannot be read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

from asrconfig_go.data import ScanResult
from asrconfig_go.data.scan import scan_audio
from asrconfig_go.errors import AsrConfigError, EmptyDatasetError, InvalidArgumentError, NotFoundError, UnsupportedError


@pytest.fixture
def folder(make_wav: WavMaker, tmp_path: Path) -> Path:
    """Two good clips of 1 s and 3 s, one in a subfolder, and four bad ones."""
    make_wav("data/a.wav", 1.0)
    make_wav("data/deep/b.wav", 3.0)
    make_wav("data/silent.wav", 0.0)
    (tmp_path / "data/empty.wav").touch()
    (tmp_path / "data/text.wav").write_text("this is not audio at all, only text")
    (tmp_path / "data/corrupt.flac").write_bytes(b"fLaC" + bytes(range(20)))
    (tmp_path / "data/notes.txt").write_text("not looked at")
    return tmp_path / "data"


def scan(source: Any, **options: Any) -> ScanResult:
    return scan_audio(source, progress=False, **options)


def test_folder_counts_bad_files_and_uses_the_rest(folder: Path) -> None:
    profile = scan(folder).profile
    assert (profile.sample_count, profile.min_s, profile.max_s, profile.mean_s) == (2, 1.0, 3.0, 2.0)
    assert {Path(bad.path).name for bad in profile.bad_files} == {"silent.wav", "empty.wav", "text.wav", "corrupt.flac"}
    assert all(bad.error for bad in profile.bad_files)
    assert profile.total_hours == pytest.approx(4 / 3600)
    assert profile.decoded_bytes == 4 * 16_000 * 4
    assert "4 bad files left out" in repr(profile)
    assert "text.wav" in profile._repr_html_()


def test_list_of_paths_keeps_order(folder: Path) -> None:
    clips = scan([folder / "deep/b.wav", str(folder / "a.wav"), folder / "missing.wav"]).clips
    assert [clip.duration_s for clip in clips] == [3.0, 1.0, None]
    assert clips[0].codec == "pcm_s16le"
    assert clips[0].method == "header"
    assert "missing.wav" in clips[2].path
    assert clips[2].error


def test_names_that_are_no_utf_8_can_be_listed(make_wav: WavMaker, tmp_path: Path) -> None:
    """As ``os.listdir`` gives them."""
    good = make_wav("größe.wav", 1.0)
    latin = tmp_path / "latin-\udcf6.wav"
    latin.write_bytes(Path(good).read_bytes())
    scanned = scan_audio([str(latin), str(good)], progress=False)
    assert [clip.duration_s for clip in scanned.clips] == [1.0, 1.0]
    assert [Path(clip.path).name for clip in scanned.clips] == ["latin-\\xf6.wav", "größe.wav"]


def test_folders_whose_names_are_no_utf_8(make_wav: WavMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    clip = folder / "a.wav"
    clip.write_bytes(Path(make_wav("a.wav", 1.0)).read_bytes())
    with pytest.raises(UnsupportedError, match=r"caf\\udce9' is not UTF-8"):
        scan_audio(folder, cache=False, progress=False)
    assert scan_audio(clip, cache=False, progress=False).profile.mean_s == 1
    monkeypatch.chdir(folder)
    assert scan_audio(".", cache=False, progress=False).profile.mean_s == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.jsonl", '{{"audio_filepath": "a.wav"}}\n{{"audio_filepath": "deep/b.wav"}}\n'),
        ("m.csv", "path,text\na.wav,hello\ndeep/b.wav,you\n"),
        ("m.tsv", "path\ttext\r\na.wav\thello\r\ndeep/b.wav\tyou\r\n"),
    ],
)
def test_manifests_are_relative_to_themselves(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text.replace("{{", "{").replace("}}", "}"))
    assert [clip.duration_s for clip in scan(folder / name).clips] == [1.0, 3.0]


def test_arrays() -> None:
    np = pytest.importorskip("numpy")
    assert scan([np.zeros(8_000), np.zeros(16_000)]).profile.mean_s == 0.75
    assert scan([np.zeros(8_000)], sampling_rate=8_000).profile.mean_s == 1.0
    mixed = scan([{"array": np.zeros(8_000), "sampling_rate": 8_000}, np.zeros(0), np.zeros((2, 2)), "text", None])
    assert mixed.profile.sample_count == 1
    assert [bad.path for bad in mixed.profile.bad_files] == ["[1]", "[2]", "[3]", "[4]"]


class Indexed:
    """As a torch dataset: a length, items by index, and no end by IndexError."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> list[float]:
        return [0.0] * (1000 * (i + 1))


def test_items_by_index_end_at_the_length() -> None:
    assert list(scan(Indexed(), sampling_rate=1000).durations) == [1.0, 2.0, 3.0]
    with pytest.raises(InvalidArgumentError, match="cannot read a dataset from an object"):
        scan(object())


def test_sample_is_seeded_and_scaled(make_wav: WavMaker, tmp_path: Path) -> None:
    for i in range(30):
        make_wav(f"many/{i:02d}.wav", 0.1 + i / 100)
    full = scan(tmp_path / "many").profile
    first, again, other = (scan(tmp_path / "many", sample_size=10, seed=s) for s in (1, 1, 2))
    assert [c.path for c in first.clips] == [c.path for c in again.clips]
    assert [c.path for c in first.clips] != [c.path for c in other.clips]
    assert first.profile.sampled
    assert (first.profile.measured_count, first.profile.sample_count) == (10, 30)
    assert first.profile.total_hours == pytest.approx(30 * first.profile.mean_s / 3600)
    assert not full.sampled


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("/no/such/folder", NotFoundError, "/no/such/folder"),
        ([], EmptyDatasetError, "empty list"),
        (None, InvalidArgumentError, "from None"),
        (5, InvalidArgumentError, "from an int"),
        (b"bytes", InvalidArgumentError, "from a bytes"),
        (["a.csv", "b.csv.gz"], InvalidArgumentError, "cannot read 2 manifests at once: a.csv, b.csv.gz"),
        ({"train": [], "test": []}, InvalidArgumentError, "dataset\\['train'\\]"),
    ],
)
def test_unreadable_sources_say_what_to_pass(source: Any, kind: type[AsrConfigError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        scan(source)
    assert caught.value.hint


def test_nothing_usable(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("not audio")
    with pytest.raises(EmptyDatasetError, match=r"text\.wav"):
        scan(tmp_path)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(EmptyDatasetError):
        scan(tmp_path / "nothing")
    assert scan(tmp_path, allow_empty=True).profile.sample_count == 0


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "10"])
def test_sample_size_must_be_a_positive_whole_number(size: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="sample_size"):
        scan([[0.0]], sample_size=size)


def dataset_of(folder: Path, embedded: bool) -> Any:
    datasets = pytest.importorskip("datasets")
    rows = []
    for name in ("a.wav", "deep/b.wav", "text.wav"):
        data = (folder / name).read_bytes() if embedded else None
        rows.append({"bytes": data, "path": name if embedded else str(folder / name)})
    rows.append({"bytes": None, "path": None})
    # A plain struct first: encoding through Audio would need torchcodec, casting does not.
    struct = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = datasets.Features({"audio": struct, "text": datasets.Value("string")})
    plain = datasets.Dataset.from_dict({"audio": rows, "text": list("abcd")}, features=features)
    return plain.cast_column("audio", datasets.Audio())


@pytest.mark.parametrize("embedded", [True, False])
def test_hugging_face_dataset_is_not_decoded(folder: Path, embedded: bool) -> None:
    result = scan(dataset_of(folder, embedded))
    assert [clip.duration_s for clip in result.clips] == [1.0, 3.0, None, None]
    assert "neither a path nor bytes" in result.clips[3].error
    assert result.profile.sample_count == 2
    assert result.profile.total_hours == pytest.approx(4 / 3600)
    assert not result.profile.sampled
    shuffled = scan(dataset_of(folder, embedded).select([1, 0]))
    assert [clip.duration_s for clip in shuffled.clips] == [3.0, 1.0]


def test_hugging_face_sample_and_stream(folder: Path) -> None:
    one = scan(dataset_of(folder, True).select([0, 1]), sample_size=1, seed=3)
    assert (one.profile.measured_count, one.profile.sample_count, one.profile.sampled) == (1, 2, True)
    streamed = scan(dataset_of(folder, True).select([0, 1]).to_iterable_dataset())
    assert [clip.duration_s for clip in streamed.clips] == [1.0, 3.0]


def test_hugging_face_prepared_values_and_wrong_columns(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    prepared = datasets.Dataset.from_dict({"input_values": [[0.0] * 1600, [0.0] * 800, []]})
    assert [clip.duration_s for clip in scan(prepared).clips] == [0.1, 0.05, None]
    with pytest.raises(InvalidArgumentError, match="no Audio column \\(columns: text\\)"):
        scan(datasets.Dataset.from_dict({"text": ["a"]}))
    with pytest.raises(InvalidArgumentError) as unusual:
        scan(datasets.Dataset.from_dict({"text": ["a"], "recording": ["a.wav"]}))
    assert 'dataset.cast_column("recording", ' in unusual.value.hint
    with pytest.raises(EmptyDatasetError, match="no rows"):
        scan(datasets.Dataset.from_dict({"input_values": []}))


def test_clips_serialise(folder: Path) -> None:
    clip = scan(folder / "a.wav").clips[0]
    assert json.loads(json.dumps(vars(clip)))["sample_rate"] == 16_000
