"""How fast a worker prepares the user's audio."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import pytest

np = pytest.importorskip("numpy")
soundfile = pytest.importorskip("soundfile")

import asrconfig_go as ac
from asrconfig_go._core import requirements
from asrconfig_go.audio import loader_rate, loader_sources
from asrconfig_go.errors import EmptyDatasetError, InvalidArgumentError, UnsupportedError

RATE = 16_000


def noise(seconds: float, rate: int = RATE) -> Any:
    return np.random.default_rng(1).standard_normal(int(seconds * rate)).astype("float32") * 0.1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three WAV of 1 s, two FLAC of 2 s at 44.1 kHz in stereo, one MP3 of 3 s."""
    for n in range(3):
        soundfile.write(tmp_path / f"{n}.wav", noise(1.0), RATE)
    for n in range(2):
        soundfile.write(tmp_path / f"{n}.flac", np.stack([noise(2.0, 44_100)] * 2, 1), 44_100)
    soundfile.write(tmp_path / "0.mp3", noise(3.0), RATE)
    return tmp_path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a hundredth of a second: so does each clip."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(loader_rate, "_now", lambda: next(ticks) / 100)


def test_files_of_several_codecs(folder: Path, clock: None) -> None:
    rate = ac.measure_loader(folder, seconds=10.0)
    assert rate is not None
    assert (rate.clips, rate.bad, rate.resampled, rate.how) == (6, 0, 2, "soundfile")
    assert rate.audio_s == pytest.approx(10.0, abs=0.2)
    assert rate.rate == pytest.approx(rate.audio_s / 0.06) and rate.took_s == pytest.approx(0.06)
    assert (rate.low, rate.high) == pytest.approx((100.0, 300.0), rel=0.05), "clips of 1 to 3 s, one at a time"
    assert rate.warm_rate == pytest.approx(rate.rate, rel=0.05)
    assert rate.size_bytes == sum(file.stat().st_size for file in folder.iterdir())
    codecs = {codec.codec: (codec.clips, round(codec.rate, -1)) for codec in rate.codecs}
    assert codecs == {"pcm_s16le": (3, 100.0), "flac": (2, 200.0), "mp3": (1, 300.0)}
    assert json.loads(json.dumps(dataclasses.asdict(rate)))["rate"] == rate.rate
    assert "one worker prepares 16" in repr(rate) and "pcm_s16le 100 (3)" in repr(rate)


def test_time_is_kept(folder: Path, clock: None) -> None:
    rate = ac.measure_loader(folder, seconds=0.05)
    assert rate is not None and rate.clips == 1
    assert rate.warm_rate is None or rate.warm_rate > 0


def test_the_sample_is_drawn_with_its_own_generator(folder: Path) -> None:
    torch = pytest.importorskip("torch")

    class Own:
        drawn: ClassVar[list[int]] = []

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, row: int) -> Any:
            self.drawn.append(row)
            random.random()
            np.random.rand()
            return torch.rand(1600), RATE

    state, torch_state, threads = random.getstate(), torch.get_rng_state(), torch.get_num_threads()
    first = ac.measure_loader(Own(), seconds=0.05, seed=5)
    rows, Own.drawn = Own.drawn, []
    ac.measure_loader(Own(), seconds=0.05, seed=5)
    assert rows[:3] == Own.drawn[:3] and rows[:3] != sorted(rows[:3])
    assert random.getstate() == state and torch.equal(torch.get_rng_state(), torch_state)
    assert torch.get_num_threads() == threads
    assert first is not None and first.how == "the dataset's own __getitem__"
    assert first.audio_s == pytest.approx(0.1 * first.clips)


def test_a_processor_is_part_of_it(folder: Path) -> None:
    calls: list[tuple[int, int]] = []

    class Extractor:
        def __call__(self, audio: Any, sampling_rate: int) -> None:
            calls.append((len(audio), sampling_rate))

    class Processor:
        feature_extractor = Extractor()

    arrays = [noise(1.0), noise(0.5)]
    assert ac.measure_loader(arrays) is None, "nothing to do for arrays"
    rate = ac.measure_loader(arrays, seconds=0.05, processor=Processor())
    assert rate is not None and rate.clips == 2 and {(8_000, RATE), (16_000, RATE)} == set(calls)
    prepared = [{"input_values": noise(1.0)}]
    assert ac.measure_loader(prepared) is None
    calls.clear()
    again = ac.measure_loader(prepared, seconds=0.05, processor=Processor())
    assert again is not None and not calls, "the input is there already"

    def fails(audio: Any, sampling_rate: int) -> None:
        raise RuntimeError("no such rate")

    with pytest.raises(InvalidArgumentError, match=r"processor function failed: RuntimeError: no such rate"):
        ac.measure_loader(arrays, processor=fails)


def test_bad_files_are_counted(folder: Path, clock: None) -> None:
    for n in range(4):
        (folder / f"bad{n}.wav").write_bytes(b"RIFF" + bytes(40))
    rate = ac.measure_loader(folder, seconds=10.0)
    assert rate is not None and (rate.clips, rate.bad) == (6, 4)
    assert "4 clips could not be read" in repr(rate) and "first error: " in rate.notes[-1]


def test_nothing_that_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(EmptyDatasetError):
        ac.measure_loader([])
    with pytest.raises(EmptyDatasetError):
        ac.measure_loader(tmp_path)
    for n in range(3):
        (tmp_path / f"{n}.wav").write_bytes(b"not audio")
    with pytest.raises(EmptyDatasetError, match=r"none of 3 clips could be read: "):
        ac.measure_loader(tmp_path)
    with pytest.raises(EmptyDatasetError, match="is not audio"):
        ac.measure_loader(_Words())


class _Words:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> Any:
        return {"audio": 5, "text": "a"} if row else {"x": "y"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0}, "seconds = 0"),
        ({"seconds": float("nan")}, "not finite"),
        ({"seconds": "1"}, "seconds = '1'"),
        ({"sampling_rate": 16}, "sampling_rate = 16"),
        ({"sampling_rate": None}, "sampling_rate = None"),
    ],
)
def test_wrong_questions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ac.measure_loader([noise(1.0)], **options)


@pytest.mark.parametrize("dataset", [None, 5, b"x", iter([1]), {"a": 1}])
def test_what_is_no_data_set(dataset: Any) -> None:
    with pytest.raises(UnsupportedError, match="cannot be measured"):
        ac.measure_loader(dataset)


def test_shards_and_manifests(folder: Path) -> None:
    shard = folder / "train.tar"
    with tarfile.open(shard, "w") as tar:
        for file in sorted(folder.glob("*.wav")):
            tar.add(file, file.name)
    for source in (shard, [str(shard)]):
        rate = ac.measure_loader(source, seconds=0.05)
        assert rate is not None and rate.clips == 3 and rate.how.endswith("from the beginning of train.tar")
    manifest = folder / "train.jsonl"
    manifest.write_text(json.dumps({"audio_filepath": str(folder / "0.wav"), "offset": 0.1, "duration": 0.5}) + "\n")
    piece = ac.measure_loader(manifest, seconds=0.05)
    assert piece is not None and piece.audio_s == pytest.approx(0.5, abs=0.01)


def test_hugging_face_data_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    files = [str(file) for file in sorted(folder.iterdir())]
    plain = datasets.Dataset.from_dict({"audio": files})
    marked = plain.cast_column("audio", datasets.Audio(decode=False))
    rate = ac.measure_loader(marked, seconds=0.3)
    assert rate is not None and (rate.clips, rate.resampled) == (6, 2)
    assert rate.audio_s == pytest.approx(10.0, abs=0.2)
    assert {codec.codec for codec in rate.codecs} == {"pcm_s16le", "flac", "mp3"}
    assert ac.measure_loader(datasets.DatasetDict(train=marked), seconds=0.05) is not None

    calls: list[int] = []

    def transform(rows: Any) -> Any:
        calls.append(1)
        return {"input_values": [[0.0] * 10 for _ in rows["audio"]]}

    own = ac.measure_loader(plain.with_transform(transform), seconds=0.05)
    assert own is not None and own.how == "the dataset's own __getitem__" and calls
    with pytest.raises(UnsupportedError, match="streamed"):
        ac.measure_loader(marked.to_iterable_dataset())
    with pytest.raises(EmptyDatasetError, match="no rows"):
        ac.measure_loader(marked.select([]))

    monkeypatch.setattr(loader_sources, "cannot_decode", lambda: "no torchcodec")
    decoding = ac.measure_loader(plain.cast_column("audio", datasets.Audio()), seconds=0.05)
    assert decoding is not None and "no torchcodec" in decoding.notes[0] and decoding.how == "soundfile"


def test_tables(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    soundfile.write(buffer, noise(1.0), RATE, format="FLAC")
    table = pa.table({"audio": [{"bytes": buffer.getvalue(), "path": "a.flac"}] * 5})
    pq.write_table(table, folder / "rows.parquet")
    for source in (table, folder / "rows.parquet", str(folder / "*.parquet")):
        rate = ac.measure_loader(source, seconds=0.05)
        assert rate is not None and rate.clips == 5 and rate.size_bytes == 5 * len(buffer.getvalue())
        assert [codec.codec for codec in rate.codecs] == ["flac"]


def test_resampling_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Soxr:
        @staticmethod
        def resample(audio: Any, old: int, new: int) -> Any:
            return audio[:: old // new]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "soxr")
    monkeypatch.setattr(importlib, "import_module", lambda name: Soxr)
    lengths: list[int] = []
    audio = [{"array": noise(1.0, 32_000), "sampling_rate": 32_000}]
    rate = ac.measure_loader(audio, seconds=0.05, processor=lambda a, sampling_rate: lengths.append(len(a)))
    assert rate is not None and rate.notes == ("resampled by soxr",) and rate.resampled == 1
    assert set(lengths) == {16_000} and rate.audio_s == 1.0
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    without = ac.measure_loader(audio, seconds=0.05, processor=lambda a, sampling_rate: None)
    assert without is not None and "resampling is not included" in without.notes[0]
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="pip install soundfile"):
        ac.measure_loader([str(Path("a.wav"))])


def test_ctrl_c_ends_it() -> None:
    class Stops:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, row: int) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ac.measure_loader(Stops())
