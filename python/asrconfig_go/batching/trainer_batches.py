"""``StepSampler`` in a Trainer, or in a custom loop with accelerate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._base.errors import InvalidArgumentError
from .._base.override import BATCHES_KEY, GUARD_KEY, override
from .step_sampler import StepSampler


def use_batches(trainer: Any, sampler: StepSampler, shares: Sequence[int] | None = None) -> Callable[[], None]:
    """Let a ``transformers.Trainer`` train on the steps of ``sampler``, shared over its processes.

    The Trainer's batch is a whole step's share of a process: ``per_device_train_batch_size`` must be the step's samples
    divided by the devices, and ``gradient_accumulation_steps`` 1. ``manager.attach(trainer, memory=…)``, before or
    after, splits it into micro-batches that fit. Each clip comes once per epoch over all processes, in the order of the
    sampler's seed; a resumed training continues with the next step. The sampler's ``seed`` counts,
    not ``data_seed``, and ``group_by_length`` is not looked at. ``shares`` are the clips of each process in a step
    where they are not even (see ``StepSampler.shard``): training then requires the guard, which weights them.

    Gives a function that leaves the Trainer as it was. Raises ``InvalidArgumentError``, with nothing changed, for
    settings that do not go together.

    >>> from transformers import Trainer, TrainingArguments
    >>> from asrconfig_go.demo.digit_model import small_model
    >>> args = TrainingArguments("out", use_cpu=True, report_to=[], per_device_train_batch_size=8)
    >>> trainer = Trainer(small_model(tokens=12, seed=0), args, train_dataset=[{"input_values": [0.0]}] * 16)
    >>> leave = use_batches(trainer, StepSampler([2.0] * 16, 8))
    >>> len(trainer.get_train_dataloader())
    2
    """
    if hasattr(trainer, BATCHES_KEY):
        raise InvalidArgumentError(
            "the trainer uses batches of a StepSampler already",
            "call the function that use_batches returned to detach it",
        )
    _check(trainer, sampler)
    part = sampler.shard(trainer.args.process_index, trainer.args.world_size, shares)
    make_loader = trainer.get_train_dataloader
    callback = _epochs(part)

    def get_train_dataloader(*args: Any, **kwargs: Any) -> Any:
        _check(trainer, sampler)  # settings may have changed since
        if not part.even and not hasattr(trainer, GUARD_KEY):
            raise InvalidArgumentError(
                "a plain Trainer weights processes alike, and they have unequal shares of a step",
                "call manager.attach(trainer) first, or leave shares out",
            )
        return with_batches(make_loader(*args, **kwargs), part)

    undo = override(trainer, "get_train_dataloader", get_train_dataloader)
    setattr(trainer, BATCHES_KEY, part)
    trainer.add_callback(callback)

    def leave() -> None:
        trainer.remove_callback(callback)
        delattr(trainer, BATCHES_KEY)
        undo()

    return leave


def with_batches(loader: Any, sampler: Iterable[list[Any]]) -> Any:
    """A loader as ``loader``, which ``accelerator.prepare`` made, with the batches of ``sampler``, already sharded.

    For custom loops, with ``sampler.shard(accelerator.process_index, accelerator.num_processes)``. Call
    ``sampler.set_epoch`` before each epoch; ``accelerate.skip_first_batches`` continues in the middle of one.

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
            f"a {type(loader).__name__} does not take batches of chosen clips",
            "use a dataset with a length, and accelerate without dispatch_batches",
        )
    wrapper.batch_sampler = sampler
    return made


def _epochs(sampler: StepSampler) -> Any:
    from transformers.trainer_callback import TrainerCallback

    class Epochs(TrainerCallback):  # type: ignore[misc]
        """Tells the sampler the epoch, which accelerate passes on to some samplers and not to others."""

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            sampler.set_epoch(state.global_step // len(sampler))

    return Epochs()


def _check(trainer: Any, sampler: StepSampler) -> None:
    args, size = trainer.args, getattr(trainer.train_dataset, "__len__", None)
    share = args.train_batch_size * args.world_size
    config = getattr(trainer.accelerator, "dataloader_config", None)
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
            size is not None and size() != sampler.clips,
            f"pass one duration for each clip: there are {sampler.clips}",
        ),
        "dataloader_drop_last differs from the sampler's drop_last": (
            args.dataloader_drop_last != sampler.drop_last,
            "set both alike",
        ),
        "auto_find_batch_size would make other batches": (
            args.auto_find_batch_size,
            "the guard does that: turn it off",
        ),
        "accelerate splits or dispatches batches": (
            bool(getattr(config, "split_batches", False) or getattr(config, "dispatch_batches", False)),
            "leave split_batches and dispatch_batches of accelerator_config off",
        ),
    }
    for problem, (is_wrong, hint) in wrong.items():
        if is_wrong:
            raise InvalidArgumentError(problem, hint)
