"""Steps of chosen clips and ``StreamBatches`` in a Trainer: their loader, and their place in every checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from .._core.files import read_object, write_whole
from .._core.output import kind_of, listed, logger
from .._core.records import from_file
from .._core.training_session import attached, session_of
from ..data.source import open_source
from ..errors import CorruptFileError, InvalidArgumentError
from ..predict.step_sampler import StepSampler
from .checkpoints import STREAM_FILE
from .stream_batches import StreamBatches, StreamPosition

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import TrainerControl, TrainerState

_SCHEMA = 1
_HINT = "resume from another checkpoint, or start a new run"


def use_batches(trainer: Trainer, sampler: StepSampler, shares: Sequence[int] | None = None) -> Callable[[], None]:
    """Let a ``transformers.Trainer`` train on the steps of a sampler, shared over its processes.

    The Trainer's batch is a whole step's share of a process. ``manager.attach(trainer, memory=…)``, before or after,
    splits it into micro-batches that fit. Each clip comes once per epoch over all processes, in the order of the
    sampler's seed; a resumed training continues with the next step. The sampler's ``seed`` applies, not ``data_seed``,
    and ``group_by_length`` is ignored.

    Args:
        trainer: The Trainer. Its ``per_device_train_batch_size`` must be the samples of a step divided by the devices,
            and ``gradient_accumulation_steps`` 1.
        sampler: The sampler of whole steps, of all processes.
        shares: The clips of each process in a step, where they are not even (see ``StepSampler.shard``): training then
            requires the guard, which weights them. None for even shares.

    Returns:
        A function without arguments that leaves the Trainer as it was.

    Raises:
        InvalidArgumentError: Settings of the Trainer and the sampler do not go together, or the Trainer uses a sampler
            already; nothing is changed then.

    Example:
        >>> from transformers import Trainer, TrainingArguments
        >>> from asrconfig_go.recipe.model_building import small_model
        >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
        >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
        >>> leave = use_batches(trainer, StepSampler([2.0] * 16, 8))
        >>> len(trainer.get_train_dataloader())
        2
    """
    if attached(trainer, "batches"):
        raise InvalidArgumentError(
            "the trainer uses batches of a StepSampler already",
            "call the function that use_batches returned to detach it",
        )
    _check_sampler(trainer, sampler)
    part = sampler.shard(trainer.args.process_index, trainer.args.world_size, shares)
    callback, session = _epochs(part), session_of(trainer)

    def loader_of_part(make: Callable[[], Any]) -> Any:
        _check_sampler(trainer, sampler)  # settings may have changed since
        if not part.even and not attached(trainer, "guard"):
            raise InvalidArgumentError(
                "a plain Trainer weights processes alike, and they have unequal shares of a step",
                "call manager.attach(trainer) first, or leave shares out",
            )
        return with_batches(make(), part)

    session.add("batches", part)
    session.wrap_loader("batches", loader_of_part)
    trainer.add_callback(callback)

    def leave() -> None:
        trainer.remove_callback(callback)
        session.remove("batches")

    return leave


def with_batches(loader: torch.utils.data.DataLoader, sampler: Iterable[list[Any]]) -> Any:
    """Return a loader like another one, with the batches of a sampler, for a training loop of your own.

    Call the sampler's ``set_epoch`` before each epoch; ``accelerate.skip_first_batches`` continues in the middle of
    one.

    Args:
        loader: A loader, as ``accelerator.prepare`` returns it.
        sampler: The batches of this process: with several processes
            ``sampler.shard(accelerator.process_index, accelerator.num_processes)``.

    Returns:
        The new loader.

    Raises:
        InvalidArgumentError: The loader does not take batches of chosen clips: its dataset has no length, or accelerate
            dispatches its batches.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> loader = with_batches(DataLoader(range(60)), StepSampler([2.0, 3.0, 9.0] * 20, 32))
        >>> [len(batch) for batch in loader]
        [32, 28]
    """
    from accelerate import skip_first_batches
    from accelerate.data_loader import DataLoaderDispatcher

    # The only public way to a loader with other batches: it wraps the batch sampler, sharded or not, in another one.
    made = skip_first_batches(loader, 0)
    wrapper: Any = getattr(made, "batch_sampler", None)
    if not hasattr(wrapper, "batch_sampler") or isinstance(made, DataLoaderDispatcher):
        raise InvalidArgumentError(
            f"{kind_of(loader)} does not take batches of chosen clips",
            "use a dataset with a length, and accelerate without dispatch_batches",
        )
    wrapper.batch_sampler = sampler
    return made


def _epochs(sampler: StepSampler) -> Any:
    from transformers.trainer_callback import TrainerCallback

    class Epochs(TrainerCallback):  # type: ignore[misc]
        """Tells the sampler the epoch, which accelerate passes on to some samplers and not to others."""

        def on_epoch_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> None:
            sampler.set_epoch(state.global_step // len(sampler))

    return Epochs()


def _check_sampler(trainer: Trainer, sampler: StepSampler) -> None:
    args, size = trainer.args, open_source(trainer.train_dataset).length
    share = args.train_batch_size * args.world_size
    wrong = {
        "the sampler is one process's share": (sampler.ranks > 1, "pass the whole one, without shard()"),
        f"gradient_accumulation_steps is {args.gradient_accumulation_steps}": (
            args.gradient_accumulation_steps != 1,
            "set it to 1 and per_device_train_batch_size to a whole step: the guard splits it into micro-batches",
        ),
        f"a step has {share} samples by the Trainer and {sampler.step_samples} by the sampler": (
            share != sampler.step_samples,
            f"set per_device_train_batch_size to {sampler.step_samples} / (processes × devices each)",
        ),
        "the dataset has no length": (size is None, "load it without streaming"),
        "the number of clips differs from that of the dataset": (
            size not in (None, sampler.clips),
            f"pass one duration for each clip: there are {sampler.clips}",
        ),
        "dataloader_drop_last differs from the sampler's drop_last": (
            args.dataloader_drop_last != sampler.drop_last,
            "make the two agree",
        ),
        "auto_find_batch_size would make other batches": (
            args.auto_find_batch_size,
            "the guard does that: turn it off",
        ),
    }
    _refuse(trainer, wrong)


class PassedRows(Dataset):  # type: ignore[misc]
    """Returns the rows that it is indexed with: a loader's workers receive rows in place of numbers, and collate."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: object) -> object:
        return row


class TrainerSteps:
    """The batches of a run, as a batch sampler; those of steps that were made already are empty, and skipped.

    Whoever iterates begins at the last known window that begins before the steps that ``trainer`` has made.
    """

    def __init__(self, trainer: Trainer, stream: StreamBatches, start: StreamPosition) -> None:
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

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._stream: StreamBatches = trainer.train_dataset
        self._steps: TrainerSteps | None = None

    def install(self) -> Callable[[], None]:
        """Take effect; returns the function that undoes it."""
        trainer = self._trainer
        _check_trainer(trainer)
        session = session_of(trainer)
        leave = session.add("stream", self, {
            "_load_optimizer_and_scheduler": partial(self._load, trainer._load_optimizer_and_scheduler),
            "_save_rng_state": partial(self._save, trainer._save_rng_state),
        })  # fmt: skip
        session.wrap_loader("stream", self._loader)
        return leave

    def _loader(self, make: Callable[[], Any]) -> Any:
        trainer = self._trainer
        _check_trainer(trainer)  # settings may have changed since
        self._steps = steps = TrainerSteps(trainer, self._stream, StreamPosition())
        trainer.train_dataset = PassedRows(len(steps) * trainer.args.train_batch_size * trainer.args.world_size)
        try:
            return with_batches(make(), steps)
        finally:
            trainer.train_dataset = self._stream

    def _load(self, original: Callable[..., Any], checkpoint: str | None) -> Any:
        assert self._steps is not None  # the loader is made before
        start = self._read(Path(checkpoint)) if checkpoint is not None else StreamPosition()
        self._steps.positions = [start]  # where the next iteration begins
        return original(checkpoint)

    def _save(self, original: Callable[..., Any], folder: str) -> Any:
        if self._steps is not None:
            document = {"schema": _SCHEMA, "settings": self._settings(), "position": asdict(self._steps.position())}
            path = Path(folder) / _file(self._trainer.args.process_index)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(document, indent=1).encode())
        return original(folder)

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


def use_stream(trainer: Trainer) -> Callable[[], None]:
    """Let a Trainer read a ``StreamBatches``, if that is its ``train_dataset``; returns the function that undoes it.

    Nothing changes where it does so already. Raises ``InvalidArgumentError`` for settings that do not go together.
    """
    if not isinstance(trainer.train_dataset, StreamBatches) or attached(trainer, "stream"):
        return lambda: None
    return StreamTraining(trainer).install()


def _check_trainer(trainer: Trainer) -> None:
    args = trainer.args
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
    }  # fmt: skip
    _refuse(trainer, wrong)


def _refuse(trainer: Trainer, wrong: dict[str, tuple[bool, str]]) -> None:
    """Raise ``InvalidArgumentError`` for the first problem that there is, or that every loader of chosen clips has."""
    config = getattr(trainer.accelerator, "dataloader_config", None)
    wrong["accelerate splits or dispatches batches"] = (
        bool(getattr(config, "split_batches", False) or getattr(config, "dispatch_batches", False)),
        "leave split_batches and dispatch_batches of accelerator_config off",
    )
    for problem, (is_wrong, hint) in wrong.items():
        if is_wrong:
            raise InvalidArgumentError(problem, hint)
