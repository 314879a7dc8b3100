"""``StreamBatches`` in a Trainer: its loader, and its place in every checkpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from .._base.checksums import STREAM_FILE
from .._base.errors import CorruptFileError, InvalidArgumentError
from .._base.files import write_whole
from .._base.json_files import read_object
from .._base.listing import listed
from .._base.override import override
from .._base.records import from_file
from ..batching.trainer_batches import with_batches
from .stream_batches import StreamBatches
from .stream_windows import StreamPosition

logger: logging.Logger = logging.getLogger("asrconfig_go")

_KEY = "_asrconfig_stream"
_SCHEMA = 1
_HINT = "resume from another checkpoint, or start a new run"


class PassedRows(Dataset):  # type: ignore[misc]
    """Returns the rows that it is indexed with: a loader's workers receive rows in place of numbers, and collate."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        return row


class TrainerSteps:
    """The batches of a run, as a batch sampler; those of steps that were made already are empty, and skipped.

    Whoever iterates begins at the last known window that begins before the steps that ``trainer`` has made.
    """

    def __init__(self, trainer: Any, stream: StreamBatches, start: StreamPosition) -> None:
        args = trainer.args
        self._trainer, self._stream, self.positions = trainer, stream, [start]
        self._size, self._accumulation = args.train_batch_size, args.gradient_accumulation_steps
        self._count = args.max_steps
        self.share: int = self._size * self._accumulation
        """Clips of this process in a step."""
        self._process = {"rank": args.process_index, "ranks": args.world_size}

    def position(self) -> StreamPosition:
        """Where the window begins that the Trainer is in."""
        done = self._trainer.state.global_step
        while len(self.positions) > 1 and self.positions[1].step <= done:
            self.positions.pop(0)
        return self.positions[0]

    def _begun(self, position: StreamPosition) -> None:
        self.position()  # forgets windows that are done: there are few at any time
        self.positions = [p for p in self.positions if p.window < position.window] + [position]

    def __len__(self) -> int:
        return int(self._count * self._accumulation)

    def __iter__(self) -> Iterator[list[Any]]:
        start = self.position()
        for _ in range(start.step * self._accumulation):
            yield []
        remaining = self._count - start.step
        steps = self._stream.steps(self.share, count=remaining, start=start, begun=self._begun, **self._process)
        for clips in steps:
            for first in range(0, self.share, self._size):
                yield clips[first : first + self._size]


class StreamTraining:
    """Lets a Trainer whose ``train_dataset`` is a ``StreamBatches`` read its steps, save its place and find it again.

    Every process writes its own file into each checkpoint, before its random numbers, without which the checkpoint does
    not count as complete.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._stream: StreamBatches = trainer.train_dataset
        self._steps: TrainerSteps | None = None

    def install(self) -> Callable[[], None]:
        """Take effect; returns the function that undoes it."""
        trainer = self._trainer
        _check(trainer)
        undo = [
            override(trainer, "get_train_dataloader", self._loader(trainer.get_train_dataloader)),
            override(trainer, "_load_optimizer_and_scheduler", self._loading(trainer._load_optimizer_and_scheduler)),
            override(trainer, "_save_rng_state", self._saving(trainer._save_rng_state)),
        ]
        setattr(trainer, _KEY, self)

        def leave() -> None:
            delattr(trainer, _KEY)
            for back in reversed(undo):
                back()

        return leave

    def _loader(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def get_train_dataloader() -> Any:
            trainer = self._trainer
            _check(trainer)  # settings may have changed since
            self._steps = steps = TrainerSteps(trainer, self._stream, StreamPosition())
            trainer.train_dataset = PassedRows(len(steps) * trainer.args.train_batch_size * trainer.args.world_size)
            try:
                return with_batches(original(), steps)
            finally:
                trainer.train_dataset = self._stream

        return get_train_dataloader

    def _loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load_optimizer_and_scheduler(checkpoint: Any) -> Any:
            assert self._steps is not None  # the loader is made before
            start = self._read(Path(checkpoint)) if checkpoint is not None else StreamPosition()
            self._steps.positions = [start]  # where the next iteration begins
            return original(checkpoint)

        return load_optimizer_and_scheduler

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save_rng_state(folder: Any) -> Any:
            if self._steps is not None:
                document = {"schema": _SCHEMA, "settings": self._settings(), "position": asdict(self._steps.position())}
                path = Path(folder) / _file(self._trainer.args.process_index)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, json.dumps(document, indent=1).encode())
            return original(folder)

        return save_rng_state

    def _read(self, checkpoint: Path) -> StreamPosition:
        """The position that a checkpoint holds; the stream's begin where it holds none."""
        paths = (checkpoint / _file(rank) for rank in (self._trainer.args.process_index, 0))
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            logger.warning("%s was saved without a place in the stream: it is read again from its begin", checkpoint)
            return StreamPosition()
        document = read_object(path, "place in a stream", _HINT)
        if document.get("schema") != _SCHEMA or not isinstance(document.get("settings"), dict):
            raise CorruptFileError(f"{path} holds no place in a stream", _HINT)
        now, before = self._settings(), document["settings"]
        changed = [f"{name} was {was!r}, is {now.get(name)!r}" for name, was in before.items() if was != now.get(name)]
        if changed:
            raise InvalidArgumentError(
                f"the stream of {checkpoint} cannot be continued: {listed(changed, '; ')}",
                "make StreamBatches and arguments as for that run, or start a new one in another output_dir",
            )
        return from_file(StreamPosition, document.get("position", {}), path, _HINT)

    def _settings(self) -> dict[str, Any]:
        assert self._steps is not None
        return self._stream.settings(self._steps.share, self._trainer.args.process_index, self._trainer.args.world_size)


def _file(rank: int) -> str:
    return STREAM_FILE.format("" if rank == 0 else f"_{rank}")


def use_stream(trainer: Any) -> Callable[[], None]:
    """Let a Trainer read a ``StreamBatches``, if that is its ``train_dataset``; returns the function that undoes it.

    Nothing changes where it does so already. Raises ``InvalidArgumentError`` for settings that do not go together.
    """
    if not isinstance(trainer.train_dataset, StreamBatches) or hasattr(trainer, _KEY):
        return lambda: None
    return StreamTraining(trainer).install()


def _check(trainer: Any) -> None:
    args, config = trainer.args, getattr(trainer.accelerator, "dataloader_config", None)
    strategy = getattr(args, "train_sampling_strategy", "")
    by_length = strategy == "group_by_length" or getattr(args, "group_by_length", False)
    wrong = {
        "a stream has no length, and max_steps is not set": (
            args.max_steps <= 0, 'pass max_steps to the arguments: config.to_training_arguments("out", max_steps=1000)',
        ),
        "ignore_data_skip would train on clips again": (
            args.ignore_data_skip, "leave ignore_data_skip out: a stream continues at its place, which costs nothing",
        ),
        "a stream cannot be grouped by length by the Trainer": (
            by_length, "leave group_by_length out: StreamBatches(…, mode=\"bucketed\") groups clips",
        ),
        "accelerate splits or dispatches batches": (
            bool(getattr(config, "split_batches", False) or getattr(config, "dispatch_batches", False)),
            "leave split_batches and dispatch_batches of accelerator_config off",
        ),
    }  # fmt: skip
    for problem, (is_wrong, hint) in wrong.items():
        if is_wrong:
            raise InvalidArgumentError(problem, hint)
