"""Streams in windows: every step has its clips, memory stays constant, and a run goes on where it was."""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import pytest

from asrconfig_go import create_optimal_config
from asrconfig_go.errors import CorruptFileError, EmptyDatasetError, InvalidArgumentError
from asrconfig_go.train import StreamBatches
from asrconfig_go.train.stream_batches import StreamPosition
from streamed_training import make_shards, open_shards

SHARDS, EACH = 6, 40


class Made:
    """A stream of shards of made-up rows, 0.1 to 2 s of silence, that counts what is read of it."""

    def __init__(self, shards: int = SHARDS, rows_of_shard: int = EACH) -> None:
        self.shards, self.each, self.read, self.opened = shards, rows_of_shard, 0, list[int]()

    def rows(self, shards: list[int]) -> Iterator[dict[str, Any]]:
        for shard in shards:
            self.opened.append(shard)
            for number in range(shard * self.each, (shard + 1) * self.each):
                self.read += 1
                yield {"number": number, "input_values": [0.0] * (160 * (1 + 7 * number % 20))}

    def stream(self) -> Any:
        return datasets.IterableDataset.from_generator(self.rows, gen_kwargs={"shards": list(range(self.shards))})


def numbers(steps: Iterator[list[dict[str, Any]]]) -> list[list[int]]:
    return [[row["number"] for row in step] for step in steps]


def of(made: Made, **options: Any) -> StreamBatches:
    return StreamBatches(made.stream(), **{"window_clips": 64, **options})


def test_every_clip_comes_once_an_epoch_in_whole_steps() -> None:
    steps = numbers(of(Made(), window_clips=80).steps(8, count=60))  # three windows an epoch
    assert {len(step) for step in steps} == {8}
    assert sorted(chain.from_iterable(steps[:30])) == sorted(chain.from_iterable(steps[30:])) == list(range(240))
    assert steps[:30] != steps[30:], "each epoch has an order of its own"


def test_the_order_follows_the_seed() -> None:
    first, again, other = (numbers(of(Made(), seed=seed).steps(8, count=20)) for seed in (1, 1, 2))
    assert first == again != other


def test_buckets_have_less_padding_than_random_steps() -> None:
    def padding(mode: Any) -> float:
        lengths = [[len(row["input_values"]) for row in step] for step in of(Made(), mode=mode).steps(8, count=30)]
        assert all(step == sorted(step, reverse=True) for step in lengths), "micro-batches of neighbours in length"
        return 1 - sum(map(sum, lengths)) / sum(8 * max(step) for step in lengths)

    assert padding("bucketed") < 0.1 < 0.3 < padding("random")


def test_two_windows_are_held_at_most() -> None:
    made = Made(rows_of_shard=4000)
    count = 0
    for step in of(made).steps(8, count=400):
        count += len(step)
        assert made.read <= count + 2 * 64, "a window, and the next one"
    assert count == 3200


def test_a_window_of_few_bytes_has_few_steps() -> None:
    begun: list[StreamPosition] = []
    list(of(Made(), window_bytes=1).steps(8, count=5, begun=begun.append))
    assert [position.step for position in begun] == [0, 1, 2, 3, 4], "at least one"
    begun.clear()
    # 1680 numbers a clip on average, 32 bytes each.
    list(of(Made(), window_bytes=3 * 8 * 1680 * 32 - 1).steps(8, count=12, begun=begun.append))
    assert 3 <= len(begun) <= 5


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 31, 45])
def test_a_run_goes_on_with_the_same_clips(steps: int) -> None:
    undisturbed, begun = numbers(of(Made()).steps(8, count=60)), list[StreamPosition]()
    numbers(of(Made()).steps(8, count=steps, begun=begun.append))
    start, made = begun[-1], Made()
    assert numbers(of(made).steps(8, count=60 - start.step, start=start)) == undisturbed[start.step :]
    assert steps - 8 <= start.step < steps


def test_shards_that_were_read_are_not_read_again() -> None:
    begun, made = list[StreamPosition](), Made(rows_of_shard=100)
    list(of(made).steps(8, count=70, begun=begun.append))
    before, start = made.opened[1:], begun[-1]  # the first one was opened for the columns
    made.opened.clear()
    made.read = 0
    list(of(made).steps(8, count=4, start=start))
    assert made.opened[1] == before[start.rows // 100] and made.read < 100 + 2 * 64 + 5


def test_a_shuffle_buffer_s_clips_are_found_again(caplog: pytest.LogCaptureFixture) -> None:
    """The state of such a stream leaves out what its buffer holds."""

    def shuffled() -> StreamBatches:
        return StreamBatches(Made().stream().shuffle(seed=1, buffer_size=50), window_clips=64)

    begun: list[StreamPosition] = []
    undisturbed = numbers(shuffled().steps(8, count=50, begun=begun.append))
    for start in begun[1:]:
        caplog.clear()
        assert numbers(shuffled().steps(8, count=50 - start.step, start=start)) == undisturbed[start.step :]
        assert start.rows == 0 or "its epoch is read again" in caplog.text


def test_another_stream_is_refused() -> None:
    begun: list[StreamPosition] = []
    list(of(Made()).steps(8, count=20, begun=begun.append))
    with pytest.raises(CorruptFileError, match="other clips than the run had after 16 steps"):
        next(of(Made(rows_of_shard=39)).steps(8, start=begun[-1]))
    unknown = StreamPosition(**{**vars(begun[-1]), "state": {"of": "another version"}})
    assert numbers(islice(of(Made()).steps(8, start=unknown), 4)) == numbers(of(Made()).steps(8, count=20))[16:]


@pytest.mark.parametrize("shards", [6, 5])
def test_processes_divide_the_stream(shards: int) -> None:
    parts = [
        numbers(of(Made(shards), window_clips=40).steps(4, count=shards * 5, rank=rank, ranks=2)) for rank in (0, 1)
    ]
    assert sorted(chain(*parts[0], *parts[1])) == list(range(shards * EACH))


def test_long_and_unreadable_clips_are_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[StreamPosition] = []
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        steps = list(of(Made(), max_length_s=0.15).steps(8, count=40, begun=begun.append))
    assert max(len(row["input_values"]) for step in steps for row in step) == 2400
    assert begun[-1].too_long > 0 and "longer than 0.15 s, 0 that cannot be read" in caplog.text
    assert len(caplog.records) <= 10, "told again when there are twice as many"
    with pytest.raises(EmptyDatasetError, match=r"are over 0\.001 s, 0 cannot be read"):
        next(of(Made(), max_length_s=0.001).steps(8))
    with pytest.raises(EmptyDatasetError, match="no rows"):
        next(of(Made(rows_of_shard=0)).steps(8))


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_shards_of_audio(tmp_path: Path, kind: str) -> None:
    files = make_shards(tmp_path, kind, 24, 3)
    broken = datasets.IterableDataset.from_generator(lambda: iter([{"audio": {"bytes": b"no audio", "path": "x.wav"}}]))
    stream = StreamBatches(open_shards(files, kind), window_clips=8)
    column = stream.column
    steps = list(stream.steps(4, count=6))
    numbers_read = [row["json"]["number"] if kind == "tar" else row["number"] for step in steps for row in step]
    assert sorted(numbers_read) == list(range(24))
    assert all(row[column]["bytes"][:2] == b"\xff\xf3" for step in steps for row in step), "not decoded"
    with pytest.raises(EmptyDatasetError, match="can be used: 3 cannot be read"):
        next(StreamBatches(broken).steps(1))


@pytest.mark.filterwarnings("ignore:the loader was not measured")
def test_files_of_a_remote_store(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for file in make_shards(tmp_path, "parquet", 24, 3):
        memory.put(file, f"/bucket/{Path(file).name}")
    for address in ("memory://bucket/train-*.parquet", [f"memory://bucket/train-0{i}.parquet" for i in range(3)]):
        config, manager = create_optimal_config(address, "wav2vec2-base", gpu="T4", trace=False, verbose=False)
        assert manager.dataset is not None and (manager.dataset.measured_count, config.streaming) == (24, True)
    stream = config.stream("memory://bucket/train-*.parquet", window_clips=8)
    assert sorted(chain.from_iterable(numbers(stream.steps(4, count=6)))) == list(range(24))
    [[clip]] = stream.steps(1, count=1)
    memory.pipe("/bucket/a.mp3", clip["audio"]["bytes"])
    rows = datasets.IterableDataset.from_generator(
        lambda: iter([{"audio": {"bytes": None, "path": "memory://bucket/a.mp3"}}])
    )
    [[row]] = StreamBatches(rows).steps(1, count=1)
    assert row["audio"]["bytes"] == clip["audio"]["bytes"]


def test_frames_last_as_long_as_the_model_tells() -> None:
    rows = [{"input_features": [[0.0] * 8] * frames} for frames in (100, 200, 300)]
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows))
    assert StreamBatches(stream, model="whisper-small").seconds(rows) == array("d", [30.0] * 3)


def test_what_is_refused() -> None:
    stream = Made().stream()
    for wrong, hint in (
        ({"dataset": [1, 2]}, "addresses"),
        ({"dataset": datasets.Dataset.from_dict({"input_values": [[0.0]]})}, "streaming=True"),
        ({"dataset": "clips.zip"}, ""),
        ({"window_clips": 0}, "window_clips"),
        ({"window_bytes": 0}, "window_clips"),
        ({"mode": "stratified"}, ""),
        ({"seed": -1}, ""),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            StreamBatches(**{"dataset": stream, **wrong})
        assert hint in f"{caught.value} {caught.value.hint}"
    with pytest.raises(InvalidArgumentError, match="without a batch size"):
        iter(StreamBatches(stream))
    assert repr(StreamBatches(stream, max_length_s=9.0)) == (
        "StreamBatches(random steps of column 'input_values', clips up to 9 s, seed 0)"
    )
    assert Counter(map(len, StreamBatches(stream).steps(5, count=3))) == {5: 3}
