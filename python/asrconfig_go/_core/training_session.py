"""The methods of a Trainer that this package replaces: one table of them, and a session that restores them.

A part (the guard, batches of chosen clips, …) belongs to a Trainer's session while it is attached. Every method it
replaces has a row in ``REPLACED``; replacing any other raises. The session is an attribute of the Trainer and of its
``CallbackHandler``, which callbacks can reach; it is removed with its last part.

The module also tells whether a Trainer's processes share one model, so that none of them can retry a step alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from transformers import Trainer
    from transformers.trainer_callback import CallbackHandler

Part = Literal["guard", "batches", "stream", "lengths", "run", "arguments"]
"""The guard; steps of chosen clips; a stream; groups by measured lengths; ``manager.train``; checked arguments."""
Span = Literal["attached", "training", "a step"]
"""While the part is attached, while the Trainer trains, or within a step that is split or measured."""
SESSION_KEY: Final = "_asrconfig_session"
_LOADER = "get_train_dataloader"


class Replaced(NamedTuple):
    """A method of a Trainer, or of what it holds (``accelerator.backward``), that ``part`` replaces, and why."""

    method: str
    part: Part
    span: Span
    reason: str


REPLACED: Final = (
    Replaced("get_batch_samples", "guard", "attached", "keeps the window's batches; loads again with fewer workers"),
    Replaced("training_step", "guard", "attached", "computes the window again when memory runs out; names bad clips"),
    Replaced("prediction_step", "guard", "attached", "computes a batch in pieces when memory runs out"),
    Replaced("evaluation_loop", "guard", "attached", "moves predictions off the GPU; names clips that are not finite"),
    Replaced("_save_checkpoint", "guard", "attached", "saves again when memory runs out or storage fails"),
    Replaced("callback_handler.on_train_begin", "guard", "attached", "follows the training after all callbacks"),
    Replaced("callback_handler.on_epoch_begin", "guard", "attached", "notes where the epoch's order is drawn from"),
    Replaced("callback_handler.on_train_end", "guard", "attached", "looks at the last step"),
    Replaced("optimizer.step", "guard", "training", "repeats a step that ran out of memory and changed nothing"),
    Replaced("accelerator.clip_grad_norm_", "guard", "training", "keeps the gradient norm, to find bad clips"),
    Replaced("accelerator.backward", "guard", "a step", "weights the loss of a micro-batch"),
    Replaced("log", "guard", "a step", "logs nothing of a measurement"),
    Replaced(_LOADER, "batches", "attached", "takes the batches of a `StepSampler`"),
    Replaced(_LOADER, "stream", "attached", "takes the steps of `StreamBatches`"),
    Replaced(_LOADER, "run", "attached", "makes a loader that a resumed run can reproduce"),
    Replaced("_load_optimizer_and_scheduler", "stream", "attached", "finds a checkpoint's place in the stream"),
    Replaced("_save_rng_state", "stream", "attached", "writes the place in the stream to each checkpoint"),
    Replaced("_load_rng_state", "run", "attached", "keeps and restores the random numbers of an epoch"),
    Replaced("_get_train_sampler", "lengths", "attached", "groups by measured lengths where there is no column"),
    Replaced("_get_eval_sampler", "lengths", "attached", "keeps the order where no lengths are known"),
)
"""All replaced methods; where several parts replace one, the innermost comes first."""
_ROWS = {(row.part, row.method) for row in REPLACED}


def override(owner: object, name: str, function: object) -> Callable[[], None]:
    """Replace a method or another attribute of one object; returns the function that restores it."""
    before = owner.__dict__.get(name)
    setattr(owner, name, function)

    def undo() -> None:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo


def replace_method(trainer: Trainer, part: Part, method: str, function: Callable[..., object]) -> Callable[[], None]:
    """Replace a method of ``trainer`` by ``function``; returns the function that restores it.

    Raises ``LookupError`` for a method that is not in the table.
    """
    if (part, method) not in _ROWS:
        raise LookupError(f"{method} is not among the methods of a Trainer that {part} replaces")
    owner, _, name = method.rpartition(".")
    return override(getattr(trainer, owner) if owner else trainer, name, function)


class TrainingSession:
    """The parts of this package that are attached to one Trainer.

    Attributes:
        parts: The attached parts by name.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.parts: dict[Part, object] = {}
        self._undo: dict[Part, list[Callable[[], None]]] = {}
        self._loaders: dict[Part, Callable[[Callable[[], object]], object]] = {}
        self._loader_back: Callable[[], None] = lambda: None

    def add(
        self, part: Part, value: object = True, functions: Mapping[str, Callable[..., object]] | None = None
    ) -> Callable[[], None]:
        """Attach ``value`` as ``part``, and replace the Trainer's methods named in ``functions``.

        Returns the function that removes it. Raises ``LookupError`` for a method that is not in the table.
        """
        if not self.parts:
            setattr(self.trainer, SESSION_KEY, self)
            setattr(self.trainer.callback_handler, SESSION_KEY, self)
        self.parts[part] = value
        replaced = (functions or {}).items()
        self._undo[part] = [replace_method(self.trainer, part, method, function) for method, function in replaced]
        return lambda: self.remove(part)

    def wrap_loader(self, part: Part, wrap: Callable[[Callable[[], object]], object]) -> None:
        """Pass the function that makes the training loader through ``wrap`` until ``part`` is removed.

        ``get_train_dataloader`` is replaced once, however many parts wrap it.
        """
        if not self._loaders:
            original = self.trainer.get_train_dataloader
            self._loader_back = replace_method(self.trainer, part, _LOADER, lambda: self._loader(original))
        self._loaders[part] = wrap

    def _loader(self, make: Callable[[], object]) -> object:
        for row in REPLACED:
            if row.method == _LOADER and (wrap := self._loaders.get(row.part)) is not None:
                make = partial(wrap, make)
        return make()

    def remove(self, part: Part) -> None:
        """Restore what a part has replaced; does nothing if the part is not attached."""
        if self.parts.pop(part, None) is None:
            return
        for undo in reversed(self._undo.pop(part, [])):
            undo()
        if self._loaders.pop(part, None) is not None and not self._loaders:
            self._loader_back()
        if not self.parts:
            delattr(self.trainer, SESSION_KEY)
            delattr(self.trainer.callback_handler, SESSION_KEY)


def session_of(trainer: Trainer) -> TrainingSession:
    """The session of a Trainer, or a new one, which is set on the Trainer when its first part is attached."""
    session: TrainingSession | None = getattr(trainer, SESSION_KEY, None)
    return TrainingSession(trainer) if session is None else session


def attached(owner: Trainer | CallbackHandler | None, part: Part) -> object:
    """The ``part`` that is attached to a Trainer, or to the Trainer of a callback handler; None if it is not."""
    session: TrainingSession | None = getattr(owner, SESSION_KEY, None)
    return None if session is None else session.parts.get(part)


def sharded(trainer: Trainer) -> bool:
    """Whether processes hold parts of one model."""
    return bool(
        trainer.is_deepspeed_enabled
        or trainer.is_fsdp_enabled
        or getattr(trainer, "is_distributed_loading_by_transformers", False)
    )


def single_process(trainer: Trainer) -> bool:
    """Whether this is the only process of the training."""
    return bool(trainer.args.world_size == 1 and not sharded(trainer))


def cannot_retry(trainer: Trainer) -> bool:
    """Whether forward and backward use collectives or several GPUs, so that one process cannot retry a step alone."""
    return sharded(trainer) or trainer.args.n_gpu > 1
