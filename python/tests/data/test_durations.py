"""Length columns: right for every row, nothing copied or decoded, and picked up by the Trainer."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

import asrconfig_go as ac
from asrconfig_go.data import BadAudioWarning
from asrconfig_go.errors import InvalidArgumentError

datasets = pytest.importorskip("datasets")

SECONDS = [0.1, 0.3, 0.2, 0.5, 0.4]
LENGTHS = [1600, 4800, 3200, 8000, 6400]


@pytest.fixture
def dataset(make_wav: WavMaker) -> Any:
    paths = [str(make_wav(f"{i}.wav", seconds, 8_000)) for i, seconds in enumerate(SECONDS)]
    plain = datasets.Dataset.from_dict({"audio": paths, "text": list("abcde")})
    return plain.cast_column("audio", datasets.Audio(decode=False)).cast_column("audio", datasets.Audio())


def measured(dataset: Any, *args: Any, **options: Any) -> Any:
    return ac.add_durations(dataset, *args, progress=False, **options)


def test_samples_and_seconds(dataset: Any) -> None:
    with_samples = measured(dataset)
    assert with_samples["length"] == LENGTHS
    assert with_samples.features["length"].dtype == "int64"
    assert list(with_samples.features) == ["audio", "text", "length"]
    assert type(with_samples.features["audio"]).__name__ == "Audio"
    assert measured(dataset, sampling_rate=8_000)["length"] == [n // 2 for n in LENGTHS]
    both = measured(with_samples, "seconds", "seconds")
    assert both["seconds"] == pytest.approx(SECONDS)
    assert list(both["length"]) == LENGTHS
    assert both.features["seconds"].dtype == "float64"


def test_selected_and_shuffled_rows_are_not_moved(dataset: Any) -> None:
    rows = [3, 0, 3]
    chosen = measured(dataset.select(rows))
    assert chosen["length"] == [LENGTHS[row] for row in rows]
    assert chosen.data.table.column("audio").chunk(0).field("path").buffers()[2].address == (
        dataset.data.table.column("audio").chunk(0).field("path").buffers()[2].address
    ), "the table is the same memory"
    later = chosen.select([2, 1])
    assert list(later["length"]) == [8000, 1600]
    assert list(later["text"]) == ["d", "a"]
    shuffled = measured(dataset.shuffle(seed=3))
    assert shuffled["length"] == [LENGTHS["abcde".index(text)] for text in shuffled["text"]]
    assert list(measured(dataset).shuffle(seed=3)["length"]) == shuffled["length"]


def test_splits_and_the_manager(dataset: Any) -> None:
    parts = datasets.DatasetDict({"train": dataset, "test": dataset.select([1])})
    result = ac.ASRConfigManager(gpu="T4").add_durations(parts, progress=False)
    assert isinstance(result, datasets.DatasetDict)
    assert [result["train"]["length"], result["test"]["length"]] == [LENGTHS, [4800]]


def test_bad_rows_get_zero_and_are_counted(dataset: Any, tmp_path: Path) -> None:
    (tmp_path / "0.wav").write_text("no audio")
    with pytest.warns(BadAudioWarning, match=r"1 of 5 clips .* the length 0; the first: .*0\.wav"):
        assert measured(dataset)["length"] == [0, *LENGTHS[1:]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured(dataset.select([1, 2]))


def test_refused(dataset: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="streamed"):
        measured(dataset.to_iterable_dataset())
    with pytest.raises(InvalidArgumentError, match="column 'text' already"):
        measured(dataset, "text")
    with pytest.raises(InvalidArgumentError, match="unit = 'hours'"):
        measured(dataset, unit="hours")
    with pytest.raises(InvalidArgumentError, match="a str"):
        measured("folder")


def test_formats_and_transforms_stay(dataset: Any) -> None:
    ran = []

    def transform(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        ran.append(batch)
        return {"x": [len(text) for text in batch["text"]]}

    moving = measured(dataset.cast_column("audio", datasets.Audio(decode=False)).with_transform(transform))
    assert moving["length"] == LENGTHS
    assert not ran, "lengths are looked at without the transform"
    assert moving[0] == {"x": 1}
    chosen = measured(dataset.with_format(columns=["text"]))
    assert (chosen[0], chosen["length"]) == ({"text": "a", "length": 1600}, LENGTHS)
    assert measured(dataset.with_format("numpy")).format["type"] == "numpy"


def test_it_stays_a_dataset(dataset: Any, tmp_path: Path) -> None:
    first = measured(dataset)
    assert isinstance(first, datasets.Dataset)
    assert pickle.loads(pickle.dumps(first))["length"] == LENGTHS
    assert first._fingerprint == measured(dataset)._fingerprint != dataset._fingerprint
    first.save_to_disk(str(tmp_path / "saved"))
    assert list(datasets.load_from_disk(str(tmp_path / "saved"))["length"]) == LENGTHS
    assert "length" not in first.remove_columns("length").column_names
    assert first.filter(lambda n: n > 4000, input_columns="length").num_rows == 3


@pytest.mark.parametrize("hidden", [False, True])
def test_the_trainer_groups_by_it(dataset: Any, tmp_path: Path, hidden: bool) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if hidden:  # a transform that would decode
        dataset = dataset.with_transform(lambda batch: pytest.fail("the audio was looked at"))
    names = {field.name for field in transformers.TrainingArguments.__dataclass_fields__.values()}
    grouping = {"group_by_length": True}
    if "train_sampling_strategy" in names:
        grouping = {"train_sampling_strategy": "group_by_length"}  # type: ignore[dict-item]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=2, report_to=[], use_cpu=True, **grouping
    )
    trainer = transformers.Trainer(torch.nn.Linear(1, 1), arguments, train_dataset=measured(dataset))
    try:
        sampler = trainer._get_train_sampler()
    except TypeError:  # transformers that ask for the dataset
        sampler = trainer._get_train_sampler(trainer.train_dataset)
    assert type(sampler).__name__ == "LengthGroupedSampler"
    assert sampler.lengths == LENGTHS
    assert next(iter(sampler)) == LENGTHS.index(max(LENGTHS)), "the longest first"
    assert sorted(sampler) == list(range(5))
