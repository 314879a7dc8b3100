"""Batches of a trace are made of a dataset's rows by the user's own collator, whatever they hold."""

from __future__ import annotations

import copy
import functools
import io
import random
import wave
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
np = pytest.importorskip("numpy")

from asrconfig_go.audio import load_audio
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.predict import MemoryModel
from asrconfig_go.trace.collated_batches import CollatedExamples
from asrconfig_go.trace.collated_rows import collator_copy
from speech_models import w2v_bert, wav2vec2

ROWS = 16
OPTIONS: dict[str, Any] = {"gpu": "T4", "accumulation": 3, "cache": False, "progress": False}


def clip(number: int) -> Any:
    return np.random.default_rng(number).standard_normal(6000 + 977 * number).astype("float32") / 8


def text(number: int) -> str:
    return ("ab cd ef " * 9)[: 5 + (7 * number) % 40]


def wav(samples: Any) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


def audio_of(kind: str, number: int, folder: Path) -> Any:
    samples = clip(number)
    if kind == "path":
        path = folder / f"{number}.wav"
        path.write_bytes(wav(samples))
        return str(path)
    return {
        "array": samples, "list": samples.tolist(), "tensor": torch.as_tensor(samples), "encoded": wav(samples),
        "entry": {"array": samples, "sampling_rate": 16_000, "path": None},
        "bytes": {"bytes": wav(samples), "path": None},
    }[kind]  # fmt: skip


def padded(values: list[Any], fill: int = 0) -> Any:
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=fill)


class Collate:
    """As a processor's: audio by ``load_audio``, one label for each character; notes what it was given."""

    def __init__(self, multiple: int = 1) -> None:
        self.multiple, self.calls = multiple, 0
        self.seen: list[str] = []
        self.drawn = random.Random(0)

    def __call__(self, rows: list[Any]) -> dict[str, Any]:
        self.calls += 1
        self.seen += [row["text"] for row in rows]
        self.drawn.random(), random.random(), torch.rand(1), np.random.rand()
        waves = [torch.as_tensor(load_audio(row["audio"])) for row in rows]
        width = -max(map(len, waves)) % self.multiple + max(map(len, waves))
        waves[0] = torch.nn.functional.pad(waves[0], (0, width - len(waves[0])))
        labels = [torch.tensor([1 + ord(c) % 6 for c in row["text"]]) for row in rows]
        mask = [torch.ones(len(w), dtype=torch.int32) for w in waves]
        return {"input_values": padded(waves), "attention_mask": padded(mask), "labels": padded(labels, -100)}


def dataset(kind: str, folder: Path) -> list[dict[str, Any]]:
    return [{"audio": audio_of(kind, i, folder), "text": text(i), "speaker": "none"} for i in range(ROWS)]


def examples(tmp_path: Path, kind: str = "array", collator: Any = None) -> CollatedExamples:
    return CollatedExamples(dataset(kind, tmp_path), collator or Collate(), wav2vec2("mean"))


def shape_of(batch: dict[str, Any]) -> tuple[int, int, int]:
    return (*batch["input_values"].shape, batch["labels"].shape[1])


def test_the_datasets_own_rows_make_the_batches(tmp_path: Path) -> None:
    made = examples(tmp_path)
    batches = made.batches()
    assert batches.pairs() == sorted((len(clip(i)), len(text(i))) for i in range(ROWS))
    for length, labels in batches.pairs():
        for batch in (1, 2, 5):
            assert batches.real((batch, length, labels)) == (batch, length, labels)
            assert shape_of(batches.batch(batch, length, labels)) == (batch, length, labels)
    first = made.rows.row(3)
    assert batches.rows.clips(len(clip(3)), len(text(3))).first is first, "not a copy"


def test_the_longest_and_one_shorter_row_are_repeated_so_that_something_is_padded(tmp_path: Path) -> None:
    batches = examples(tmp_path).batches()
    length, labels = batches.pairs()[-1]
    made = batches.batch(6, length, labels)["attention_mask"].sum(1).tolist()
    assert made[:1] + made[2:] == [length] * 5
    assert made[1] < length


@pytest.mark.parametrize("multiple", [1, 640])
def test_the_shorter_row_is_only_a_little_shorter(multiple: int, tmp_path: Path) -> None:
    batches = examples(tmp_path, collator=Collate(multiple)).batches()
    for length, labels in batches.pairs():
        made = batches.batch(2, length, labels)
        heard, read = made["attention_mask"].sum(1).tolist(), (made["labels"] >= 0).sum(1).tolist()
        assert 0.96 * length - multiple <= heard[1] < heard[0]
        assert 0.9 * labels - 1 <= read[1] <= read[0]


def test_no_batch_is_traced_of_rows_without_labels_alone(tmp_path: Path) -> None:
    rows = dataset("array", tmp_path)
    rows[2]["text"] = rows[9]["text"] = ""
    batches = CollatedExamples(rows, Collate(), wav2vec2("mean")).batches()
    assert min(labels for _, _, labels in batches.points()) == min(len(row["text"]) for row in rows if row["text"])


class Packed(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Leaves out what a mask hides."""

    def __init__(self) -> None:
        super().__init__()
        self.hear, self.out = torch.nn.Linear(1, 64), torch.nn.Linear(64, 8)

    def forward(self, input_values: Any = None, attention_mask: Any = None, labels: Any = None) -> dict[str, Any]:
        heard = self.hear(input_values[attention_mask.bool()][:, None]).relu()
        return {"loss": self.out(heard).square().mean()}


def test_a_batch_of_the_longest_clips_takes_no_more_than_is_predicted_where_padding_is_left_out() -> None:
    """Batches are padded to whole seconds: those of the next shorter length miss one."""

    def collate(rows: list[Any]) -> dict[str, Any]:
        made = Collate()(rows)
        more = -made["input_values"].shape[1] % 16_000
        audio = {name: made[name] for name in ("input_values", "attention_mask")}
        return made | {name: torch.nn.functional.pad(value, (0, more)) for name, value in audio.items()}

    lengths = [130_000 - 40 * i for i in range(4)] + [110_000 - 900 * i for i in range(ROWS - 4)]
    rows = [{"audio": clip(140)[:length], "text": text(8)} for length in lengths]
    made = CollatedExamples(rows, collate, Packed())
    own = made.rows.batch(rows[:4])

    def fresh(*_: int) -> dict[str, Any]:
        return {name: value.clone() for name, value in own.items()}

    peaks = []
    for batches, points in ((made.batches(), [(4, 144_000, len(text(8)))]), (fresh, [(4, 144_000, 1)])):
        with MemoryModel.trace(made.model, batches, points=points, **OPTIONS) as memory:
            peaks.append(memory.estimate(4, 9.0, points[0][2], timeline=0).peak_allocated)
    assert 0.995 * peaks[1] <= peaks[0] <= 1.005 * peaks[1]


@pytest.mark.parametrize(("longest", "heard"), [(1790, 1734), (1610, 1610)])
def test_the_shorter_clip_makes_as_many_pieces(longest: int, heard: int) -> None:
    """It is cut where no piece of it goes; the last one is padded in any case."""

    def collate(rows: list[Any]) -> dict[str, Any]:
        waves = [torch.nn.functional.pad(row["audio"], (0, -len(row["audio"]) % 800)) for row in rows]
        return {"input_features": torch.cat([wave.reshape(-1, 800) for wave in waves])}

    rows = [{"audio": torch.ones(longest if i == 3 else 300 + 80 * i)} for i in range(ROWS)]
    made = CollatedExamples(rows, collate, Chunks())
    batches = made.batches()
    assert batches.pairs()[-1] == (2400, 0)
    assert len(batches.batch(4, 2400, 0)["input_features"]) == 12
    assert len(batches.rows.clips(2400, 0).second["audio"]) == heard


@pytest.mark.parametrize("kind", ["path", "array", "list", "tensor", "entry", "bytes", "encoded"])
def test_where_no_row_is_near_one_is_cut_or_repeated_with_its_text(kind: str, tmp_path: Path) -> None:
    batches = examples(tmp_path, kind).batches()
    for point in ((3, 60_000, 70), (2, 2500, 3), (1, 13_000, 12)):
        real = batches.real(point)
        assert real == pytest.approx(point, rel=0.05)
        assert batches.real(real) == real
        assert shape_of(batches.batch(*point)) == real


def test_values_that_the_dataset_holds_are_not_changed(tmp_path: Path) -> None:
    made = examples(tmp_path, "list")
    before = copy.deepcopy(made.dataset)
    made.batches().batch(3, 60_000, 70)
    assert made.dataset == before


def test_traced_shapes_are_those_that_the_collators_paddings_make(tmp_path: Path) -> None:
    batches = examples(tmp_path, collator=Collate(multiple=640)).batches()
    points = batches.points()
    assert len({length for _, length, _ in points}) >= 4
    assert {batch for batch, _, _ in points} == {1, 2, 3, 4, 5}
    for point in points:
        assert point[1] % 640 == 0
        assert shape_of(batches.batch(*point)) == point


@pytest.mark.parametrize("multiple", [1, 320])
def test_a_trace_predicts_a_fresh_trace_of_the_users_batches_to_the_byte(multiple: int, tmp_path: Path) -> None:
    made = examples(tmp_path, collator=Collate(multiple))
    batches = made.batches()
    with MemoryModel.trace(made.model, batches, **OPTIONS) as memory:
        for batch, pair in ((2, batches.pairs()[-1]), (7, batches.pairs()[4]), (1, batches.pairs()[2])):
            length, labels = pair
            clips = batches.rows.clips(length, labels)
            own = made.rows.batch(clips.rows(batch))

            def fresh(*_: int, own: Any = own) -> dict[str, Any]:
                return {name: value.clone() for name, value in own.items()}

            with MemoryModel.trace(made.model, fresh, points=[(batch, length, labels)], **OPTIONS) as direct:
                seconds = length / 16_000
                predicted = memory.estimate(batch, seconds, labels)
                assert predicted.peak_allocated == direct.estimate(batch, seconds, labels).peak_allocated


def test_the_longest_clips_and_texts_of_a_large_dataset_are_known(tmp_path: Path) -> None:
    rows = [{"audio": clip(i % 5), "text": text(i % 5)} for i in range(400)]
    rows[333] = {"audio": clip(15), "text": "a"}
    rows[17] = {"audio": clip(0), "text": "a" * 200}
    made = CollatedExamples(rows, Collate(), wav2vec2("mean"), seed=5)
    assert not {333, 17} & set(made._few), "another seed"
    pairs = made.batches([len(row["audio"]) / 16_000 for row in rows]).pairs()
    assert (len(clip(15)), 1) in pairs
    assert (len(clip(0)), 200) in pairs


def test_nothing_of_the_training_is_moved(tmp_path: Path) -> None:
    collate = Collate()
    made = examples(tmp_path, collator=collate)
    state = collate.drawn.getstate()
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    made.batches().points()
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    assert collate.drawn.getstate() == state
    assert (collate.calls, collate.seen) == (0, [])


def test_copies_of_collators_share_what_is_large_and_nothing_that_changes() -> None:
    class Own:
        def __init__(self) -> None:
            self.model, self.generator = torch.nn.Linear(2, 2), torch.Generator()
            self.counts, self.rng = {"a": [1]}, np.random.default_rng(0)

        def collate(self, rows: list[Any]) -> int:
            self.counts["a"][0] += 1
            return self.counts["a"][0]

    def counting() -> Any:
        count = 0

        def collate(rows: list[Any]) -> int:
            nonlocal count
            count += 1
            return count

        return collate

    own = Own()
    made = collator_copy(own.collate).__self__
    assert made.model is own.model
    assert made.collate([]) == 2 and own.counts == {"a": [1]}
    assert made.generator is not own.generator and made.rng is not own.rng
    collate = counting()
    other = collator_copy(functools.partial(collate))
    assert (other([]), other([]), collate([])) == (1, 2, 1)
    assert collator_copy(len) is len


class Chunks(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Hears pieces of 800 samples, and reads a text for each clip."""

    def __init__(self) -> None:
        super().__init__()
        self.hear, self.read, self.out = torch.nn.Linear(800, 32), torch.nn.Embedding(40, 32), torch.nn.Linear(32, 8)

    def forward(self, input_features: Any = None, input_ids: Any = None) -> dict[str, Any]:
        heard = self.hear(input_features).relu()
        return {"loss": self.out(heard).square().mean() + self.out(self.read(input_ids)).mean()}


@pytest.mark.parametrize("longer", [0, 1])
def test_clips_of_several_rows_are_planned(longer: int) -> None:
    def collate(rows: list[Any]) -> dict[str, Any]:
        pieces = [torch.randn(2 + longer * row["n"], 800) for row in rows]
        return {"input_features": torch.cat(pieces), "input_ids": torch.ones(len(rows), 5, dtype=torch.long)}

    rows = [{"n": i % 4} for i in range(ROWS)]
    made = CollatedExamples(rows, collate, Chunks())
    batches = made.batches()
    assert made.unit.fixed == (None if longer else 1600)
    length = batches.pairs()[-1][0]
    assert length == 800 * (2 + 3 * longer)
    assert len(batches.batch(4, length, 0)["input_features"]) == 4 * length // 800, "as of four of the longest"
    peaks = []
    for points in (None, [(6, length, 0)]):
        with MemoryModel.trace(made.model, batches, points=points, **OPTIONS) as memory:
            peaks.append(memory.estimate(6, length / batches.length_per_second, 0).peak_allocated)
    assert peaks[0] == peaks[1]


def test_features_are_cut_along_time_with_their_masks() -> None:
    def collate(rows: list[Any]) -> dict[str, Any]:
        values = [torch.as_tensor(row["input_features"]) for row in rows]
        return {"input_features": padded(values), "attention_mask": padded([torch.as_tensor(r["mask"]) for r in rows])}

    rows = [{"input_features": torch.randn(40 + i, 8).tolist(), "mask": [1] * (40 + i)} for i in range(ROWS)]
    batches = CollatedExamples(rows, collate, w2v_bert()).batches()
    made = batches.batch(3, 200, 0)
    assert batches.real((3, 200, 0)) == (3, 200, 0)
    assert made["input_features"].shape == (3, 200, 8)
    assert made["attention_mask"].shape == (3, 200)


def test_every_batch_is_made_anew(tmp_path: Path) -> None:
    batches = examples(tmp_path).batches()
    point = batches.points()[0]
    first, second = batches.batch(*point), batches.batch(*point)
    assert first["labels"].data_ptr() != second["labels"].data_ptr(), "a recorder sees when tensors end"
    assert torch.equal(first["labels"], second["labels"])


def test_nested_entries_and_arrays_count_too() -> None:
    def collate(rows: list[Any]) -> dict[str, Any]:
        return {
            "audio": {"input_values": padded([torch.ones(row) for row in rows])},
            "who": "x",
            "n": np.ones(len(rows)),
        }

    made = CollatedExamples([5000, 7000, 9000, 4500], collate)
    assert made.batches().pairs() == [(4500, 0), (5000, 0), (7000, 0), (9000, 0)]


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (lambda rows: {"x": "no tensor"}, "gave a dict without tensors"),
        (lambda rows: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_collator_that_fails_is_one_clear_line(collate: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        CollatedExamples([1, 2], collate).batches()


@pytest.mark.parametrize(("name", "axis"), [("input_ids", 1), ("input_features", 2)])
def test_what_a_config_says_counts_only_where_the_collator_does_so(name: str, axis: int) -> None:
    def collate(rows: list[int]) -> dict[str, Any]:
        shape = (len(rows), max(rows)) if name == "input_ids" else (len(rows), 80, max(rows))
        return {name: torch.ones(shape, dtype=torch.long if name == "input_ids" else torch.float32)}

    config = transformers.WhisperConfig(max_source_positions=1500)
    fed = type("Fed", (torch.nn.Module,), {"config": config})()
    made = CollatedExamples([30, 40, 50], collate, fed)
    assert (made.input.axis, made.unit.fixed, made.batches().fixed_length) == (axis, None, None)
    assert CollatedExamples([3000, 3000], collate, fed).unit.fixed == 3000


def test_prepared_features_of_a_fixed_length_stay_whole() -> None:
    """As in guides for Whisper: nothing pads them, as all are as long."""

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        labels = [torch.tensor(row["labels"]) for row in rows]
        return {
            "input_features": torch.tensor([row["input_features"] for row in rows]),
            "labels": torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100),
        }

    config = transformers.WhisperConfig(max_source_positions=20, num_mel_bins=4)
    fed = type("Fed", (torch.nn.Module,), {"config": config})()
    rows = [{"input_features": [[0.5] * 40] * 4, "labels": [7] * (4 + 9 * number)} for number in range(4)]
    made = CollatedExamples(rows, collate, fed).batches()
    batch = made.batch(4, 40, 31)
    assert batch["input_features"].shape == (4, 4, 40)
    assert [int((row != -100).sum()) for row in batch["labels"]] == [31, 30, 31, 31], "one text is a little shorter"
