"""What a scan gets: one request, or rows that Python reads, piece by piece.

Rows hold arrays, audio as it is stored, or a model's input, whose length follows without a look at its values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from .._core.batches import INPUTS, TOKENS_PER_SECOND, InputUnit
from .._core.output import kind_of, listed
from .._core.settings import SAMPLING_RATE
from .._core.stored_clip import StoredClip
from ..errors import InvalidArgumentError
from ..trace.model import Model
from .columns import audio_columns, usual_columns
from .source import is_array, open_source

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

    from ..trace.collated_batches import CollatedExamples

Text = str | list[int] | None
"""A transcript, or labels."""
_HIGHEST_RATE = 10_000_000  # hertz
FIX = "pass your Trainer's collator, too: create_optimal_config(dataset, model, collator=collator)"
_FIX_OF_AUDIO = f"pass load_speech(rows).train, which knows the audio of rows; or {FIX}"


@dataclass(frozen=True)
class Piece:
    """Some rows as ``scan.add`` takes them, and ``alive``, which keeps the memory that they point to."""

    request: dict[str, object]
    columns: bytes = b""
    alive: object = None


@dataclass
class ScanInput:
    """A request for one scan, or ``pieces`` with a ``label``.

    ``population`` is the number of rows that the pieces come from, None for a stream of unknown length; ``sampled``
    says that the pieces may be fewer. ``shards``, filled while pieces are read, counts the rows that were read of each
    shard of a stream, one behind the other. ``texts`` returns the transcripts of all rows, by the name of the column or
    None for the usual ones; it is None where the library reads it, from manifests and shards, or where there is none.
    """

    request: dict[str, Any] | None = None
    pieces: Callable[[], Iterator[Piece]] = lambda: iter(())
    label: str = ""
    total: int | None = None
    population: int | None = None
    sampled: bool = False
    shards: list[int] = field(default_factory=list)
    alive: object = None  # keeps the memory that the request points to
    texts: Callable[[str | None], list[Text]] | None = None
    unit: InputUnit | None = None  # of rows that hold a model's input


def stored_piece(rows: Iterable[tuple[int, object]]) -> Piece:
    """A piece of audio as streams store it: paths, encoded bytes, dictionaries of both, or arrays."""
    import pyarrow as pa

    clips: list[dict[str, object]] = []
    buffers: list[pa.Buffer] = []
    for row, value in rows:
        clip = StoredClip.of(with_bytes({} if value is None else value))
        match clip.kind:
            case "bytes":
                buffers.append(buffer := pa.py_buffer(clip.value))
                where = {"address": buffer.address, "size": buffer.size}
                clips.append({"path": clip.path or f"[{row}]", "buffer": where})
            case "path" if clip.path:
                clips.append({"path": clip.path})
            case "path" | "missing":
                clips.append(known_clip(f"[{row}]", None, 0, 0, "has neither a path nor bytes"))
            case _:
                clips.append(array_clip(value, row, SAMPLING_RATE))
    return Piece({"rows": clips}, alive=buffers)


def with_bytes(value: Any) -> Any:
    """A stored clip with its bytes, where only a remote file's address is stored."""
    clip = StoredClip.of(value)
    if clip.kind != "path" or "://" not in clip.path:
        return value
    import fsspec

    with fsspec.open(clip.path, "rb") as file:
        return {"path": clip.path, "bytes": file.read()}


def array_clip(item: Any, row: int, sampling_rate: int) -> dict[str, object]:
    """The clip of a decoded array: its length over its rate. Samples are not looked at."""
    clip = StoredClip.of(item)
    rate: Any = sampling_rate if clip.rate is None else clip.rate
    problem = _array_problem(clip.value, rate)
    if problem:
        return known_clip(f"[{row}]", None, 0, 0, problem)
    return known_clip(f"[{row}]", len(clip.value) / rate, rate, 4 * len(clip.value), "")


def _array_problem(array: Any, rate: object) -> str:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= _HIGHEST_RATE:
        return f"sampling rate {rate!r} is not a positive number of hertz"
    if not is_array(array) and not (isinstance(array, list | tuple) and all(isinstance(x, int | float) for x in array)):
        return f"is {kind_of(array)}, not a 1-D array"
    if is_array(array) and len(array.shape) != 1:
        return f"has the shape {tuple(array.shape)}, not one dimension"
    return "" if len(array) else "holds no audio"


def known_clip(path: str, duration: float | None, rate: float, size: int, error: str) -> dict[str, object]:
    """A clip measured here rather than by the library."""
    codec, method = ("", "") if error else ("array", "given")
    return {
        "path": path, "duration_s": duration, "claimed_duration_s": None, "sample_rate": int(rate),
        "channels": int(not error), "bits": 0, "codec": codec, "method": method, "size_bytes": size, "error": error,
    }  # fmt: skip


class PreparedRows:
    """Measures rows as the input of ``model``; ``examples`` are collated rows, if there is a collator."""

    def __init__(self, model: object = None, examples: CollatedExamples | None = None) -> None:
        self.model, self.examples = model, examples

    def of_column(
        self, dataset: Dataset, stored: tuple[pa.ChunkedArray, pa.ChunkedArray | None], name: str, axes: int
    ) -> ScanInput:
        """A ``datasets.Dataset`` by a column of its table."""
        try:
            unit = input_unit(name, axes, self.model)
        except InvalidArgumentError:
            return self.of_examples(dataset)
        label = f"dataset of {len(dataset)} rows, column {name!r}, {unit}"
        return _source(enumerate(_stored_lengths(*stored)), unit, label, len(dataset), len(dataset))

    def of_stream(
        self,
        rows: Iterator[Mapping[str, Any]],
        name: str,
        limit: int,
        population: int | None,
        where: str,
        shards: list[int],
    ) -> ScanInput:
        """At most ``limit`` rows of a stream, from ``where``; reading them fills ``shards``."""
        first = next(rows)
        unit = input_unit(name, axes_of(first[name]), self.model)
        lengths = ((row, len(value[name])) for row, value in enumerate(chain((first,), rows)))
        total = limit if population is None else min(limit, population)
        return replace(_source(lengths, unit, f"{where}, column {name!r}, {unit}", total, population), shards=shards)

    def of_rows(self, rows: Sequence[Any], sample_size: int | None, seed: int) -> ScanInput:
        """A list or a dataset of dictionaries, or of whatever the collator takes."""
        first = rows[0]
        name = input_column(first) if isinstance(first, Mapping) else None
        try:
            unit = None if name is None else input_unit(name, axes_of(first[name]), self.model)
        except InvalidArgumentError:
            unit = None
        if name is None or unit is None:
            return self.of_examples(rows)
        numbers: Sequence[int] = range(len(rows))
        if sample_size is not None and sample_size < len(rows):
            numbers = sorted(random.Random(seed).sample(numbers, sample_size))
        lengths = ((row, len(rows[row][name])) for row in numbers)
        return _source(lengths, unit, f"{len(rows)} rows, {name!r}, {unit}", len(numbers), len(rows))

    def of_examples(self, dataset: Dataset | Sequence[object]) -> ScanInput:
        """Rows that only the collator can read: some examples represent all of them."""
        if self.examples is None:
            names = open_source(dataset).columns or [kind_of(dataset[0])]
            has_audio = usual_columns(names, ("audio", *audio_columns()))
            hint = _FIX_OF_AUDIO if has_audio else FIX
            raise InvalidArgumentError(f"how long the rows of {listed(names)} are is not known", hint)
        unit, lengths = self.examples.unit, self.examples.lengths()
        return _source(lengths, unit, f"{len(dataset)} rows, collated, {unit}", len(lengths), len(dataset))


def examples_of(dataset: object, collator: object, model: object) -> CollatedExamples | None:
    """Some rows of ``dataset`` as ``collator`` makes them input; None without one. Examples are returned."""
    if collator is None:
        return None
    from ..trace.collated_batches import CollatedExamples

    if isinstance(collator, CollatedExamples):
        return collator
    if not callable(collator):
        raise InvalidArgumentError(f"collator is {kind_of(collator)}, not a function", "pass your Trainer's")
    source = open_source(dataset).train
    if not source.has_rows:
        raise InvalidArgumentError(
            f"{kind_of(source.data)} has no rows that a collator takes", "pass the dataset that you train on"
        )
    return CollatedExamples(source.data, collator, model)


def row_seconds(row: Any, unit: InputUnit, examples: CollatedExamples | None) -> float:
    """The seconds that one row counts."""
    name = input_column(row) if isinstance(row, Mapping) else None
    if name is not None and (unit.fixed or examples is None):
        return unit.seconds(len(row[name]))
    return unit.seconds(1 if examples is None else examples.measured(row)[0])


def input_column(names: Iterable[str]) -> str | None:
    """The column that is a model's input; None if there is none."""
    there = set(names)
    return next((name for name in INPUTS if name in there), None)


def input_unit(name: str, axes: int, model: Any) -> InputUnit:
    """The unit of the lengths of an input with ``axes`` axes a row, for ``model``.

    Raises ``InvalidArgumentError`` where the frames of a second do not follow from the model.
    """
    if name == "input_ids":
        return InputUnit("tokens", TOKENS_PER_SECOND, row_kind="texts")
    if axes == 1:
        return InputUnit("samples", SAMPLING_RATE)
    batches = None if model is None else Model.of(model).batches
    if batches is None or batches.length_per_second == SAMPLING_RATE:
        raise InvalidArgumentError(f"how long a frame of {name!r} lasts does not follow from the model", FIX)
    return InputUnit("frames", batches.length_per_second, batches.fixed_length)


def axes_of(value: Any) -> int:
    """The axes of one row's input, which may be nested lists."""
    if is_array(value):
        return len(value.shape)
    if not isinstance(value, list | tuple):
        return 0
    return 1 + (axes_of(value[0]) if value else 0)


def _source(
    lengths: Iterable[tuple[int, int]], unit: InputUnit, label: str, total: int, population: int | None
) -> ScanInput:
    def pieces() -> Iterator[Piece]:
        clips = (known_clip(f"[{row}]", unit.seconds(n), 0, 0, "" if n else "holds nothing") for row, n in lengths)
        yield Piece({"rows": [{**clip, "codec": unit.word} for clip in clips]})

    return ScanInput(None, pieces, label, total, population, population is None or total < population, unit=unit)


def _stored_lengths(column: pa.ChunkedArray, indices: pa.ChunkedArray | None) -> list[int]:
    """The length of each list in a column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chunks = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks]
    lengths = pa.concat_arrays([pc.list_value_length(chunk).cast(pa.int64()) for chunk in chunks])
    chosen = lengths if indices is None else lengths.take(indices)
    return [length or 0 for length in chosen.to_pylist()]
