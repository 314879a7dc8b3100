"""The disk space that checkpoints take: looked at before a training, and a full disk reported as such."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.modules import lora_rank
from .._core.out_of_memory import classify
from .._core.render import exact, plural
from .._core.storage import mount_of, storage_error, unanswered
from ..errors import AsrConfigError, LibraryError, NotFoundError
from .checkpoints import checkpoints, incomplete, newest_complete

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import TrainerState

logger: logging.Logger = logging.getLogger("asrconfig_go")

_FULL = ("no space left", "os error 28", "disk quota", "file write failed", "pytorchstreamwriter", "unexpected pos")
_LITTLE = 256 << 20  # bytes free: a full disk, where an error names no cause


def saved_bytes(model: torch.nn.Module) -> int:
    """What the model's weights take where they are saved: of adapters, themselves alone."""
    adapters = bool(lora_rank(model))
    return sum(_bytes(p) for p in model.parameters() if p.requires_grad or not adapters)


def checkpoint_bytes(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> int:
    """What a checkpoint takes: the weights, and the optimizer's state, which for one without any is that of AdamW."""
    state = getattr(optimizer, "state", None) or {}
    tensors = [v for moments in list(state.values()) for v in moments.values() if hasattr(v, "element_size")]
    moments = sum(map(_bytes, tensors)) or 2 * sum(_bytes(p) for p in model.parameters() if p.requires_grad)
    return saved_bytes(model) + moments


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def warn_of_little_space(trainer: Trainer) -> None:
    """Log, before the first step, that the checkpoints of a training do not fit on their disk."""
    args = trainer.args
    count = _planned_saves(args, trainer.state)
    if not count or not args.should_save:
        return
    size = saved_bytes(trainer.model) if args.save_only_model else checkpoint_bytes(trainer.model)
    path = Path(args.output_dir)
    free = _free(path)
    if free < count * size:
        logger.warning(
            "%s has %s free, and %s of about %s each %s to lie there at once: set save_total_limit=1, or an output_dir "
            "on another disk",
            path, exact(free), plural(count, "checkpoint"), exact(size), "is" if count == 1 else "are",
        )  # fmt: skip


def _planned_saves(args: TrainingArguments, state: TrainerState) -> int:
    """Checkpoints on the disk at once: the Trainer removes an old one after the new one is written."""
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    every = {"steps": state.save_steps, "epoch": state.max_steps / max(state.num_train_epochs, 1)}.get(strategy)
    if strategy == "no" or state.max_steps <= 0:
        return 0
    count = 1 if not every else max(1, int((state.max_steps - state.global_step) // every))
    return count if not args.save_total_limit else min(count, args.save_total_limit + 1)


def check_room(path: Path, model: torch.nn.Module) -> None:
    """Raise ``NotFoundError`` when the disk has no room for one checkpoint and the model."""
    needed = checkpoint_bytes(model) + saved_bytes(model)
    free = _free(path)
    if free < needed:
        raise NotFoundError(
            f"{path} has {exact(free)} free, and a checkpoint with the model takes {exact(needed)}",
            "free some space, or choose a folder on another disk (--out)",
        )


@contextlib.contextmanager
def disk_errors_explained(path: Path, trainer: Callable[[], Any]) -> Iterator[None]:
    """Turn the error of a full disk into a ``NotFoundError`` with what is needed and what could be removed.

    That of storage which does not answer becomes a ``StorageError``. A half-written checkpoint is removed: it takes
    room, and nothing can continue from it.
    """
    try:
        yield
    except AsrConfigError:
        raise
    except Exception as error:
        place = _full_place(error, path)
        if place is None:
            reason = unanswered(error, files_alone=False)
            if reason is None:
                raise
            raise storage_error(path, reason) from error
        raise _explained(path, place, trainer()) from error


def _explained(path: Path, place: Path, trainer: Trainer) -> NotFoundError:
    step = int(trainer.state.global_step)
    partial = path / f"checkpoint-{step}"
    if partial.is_dir() and incomplete(partial):
        shutil.rmtree(partial, ignore_errors=True)
    older = [folder for folder in checkpoints(path) if folder != newest_complete(path)]
    sizes = f"{exact(_free(place))} free"
    if place == path:
        sizes += f", a checkpoint takes {exact(checkpoint_bytes(trainer.model, trainer.optimizer))}"
    size = sum(file.stat().st_size for folder in older for file in folder.rglob("*") if file.is_file())
    remove = f" by removing {', '.join(map(str, older))} ({exact(size)})" if older else ""
    return NotFoundError(
        f"{place} is full: it could not be written at step {step} ({sizes})",
        f"free space on that disk{remove}, then continue with resume=True (--resume); {saved_so_far(path)}",
    )


def _full_place(error: Exception, path: Path) -> Path | None:
    """Where the disk is full: ``path``, or the folder that the error names, on another disk. None for other errors."""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).lower()
        number = cause.errno if isinstance(cause, OSError) else None
        full = number in (errno.ENOSPC, errno.EDQUOT) or any(word in text for word in _FULL[:3])
        if full or (any(word in text for word in _FULL) and _free(path) < _LITTLE):
            named = Path(str(getattr(cause, "filename", None) or path / "x")).absolute().parent
            with contextlib.suppress(LibraryError):
                if classify(error)["class"] == "host_oom":  # /dev/shm, through which loader workers pass batches
                    return None
            return path if mount_of(named) == mount_of(path) else named
        cause = cause.__cause__ or cause.__context__
    return None


def _free(path: Path) -> int:
    """Bytes that are free where ``path`` is or will be."""
    there = next((folder for folder in (path, *path.absolute().parents) if folder.exists()), Path("/"))
    return int(shutil.disk_usage(there).free)


def saved_so_far(path: Path) -> str:
    """In words, which checkpoint a resumed training would continue from."""
    newest = newest_complete(path)
    return f"{newest} is complete, and training continues from there" if newest else "no checkpoint was saved yet"
