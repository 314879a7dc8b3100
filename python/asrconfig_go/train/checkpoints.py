"""Checkpoints of a Trainer: which are complete, checksums of their files, and the disk space that they take."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import exception_chain, mount_of, read_object, storage_error, unanswered, write_whole
from .._core.modules import lora_rank
from .._core.out_of_memory import classify
from .._core.output import listed, logger
from .._core.render import exact, plural
from ..errors import AsrConfigError, LibraryError, NotFoundError

if TYPE_CHECKING:
    import torch
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import TrainerState

INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
"""The indices of weights that are saved in several files (shards)."""
_ADAPTER_CONFIG = "adapter_config.json"
_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
# In the order in which Trainer._load_from_checkpoint looks for them; the first is FSDP's full state dict.
_MODEL_WEIGHTS = ("pytorch_model_fsdp.bin", "model.safetensors", "pytorch_model.bin", *INDICES)
NAME = "asrconfig_checksums.json"
_SCHEMA = 1
_CHUNK = 1 << 20
STREAM_FILE = "asrconfig_stream{}.json"
"""What a process writes of its place in a stream; ``_1`` and so on of any but the first."""
# Of other processes, which may not have written theirs yet.
_OTHERS = re.compile(r"rng_state_\d+\.pth|asrconfig_stream_\d+\.json|.*\.part")
_HINT = "remove it to go without checksums"
_NAME = re.compile(r"checkpoint-(\d+)")
_STATE = "trainer_state.json"  # written last
_SHARDED = ("global_step*", "*fsdp*")  # what DeepSpeed and FSDP write in place of weights and optimizer
_ZIPPED = re.compile(r".*\.(pt|pth)|(pytorch_model.*|adapter_model|optimizer|training_args)\.bin")
_FULL = ("no space left", "os error 28", "disk quota", "file write failed", "pytorchstreamwriter", "unexpected pos")
_LITTLE = 256 << 20  # bytes free: a full disk, where an error names no cause


def weight_files(folder: Path) -> list[Path]:
    """The files from which the Trainer reads the weights in ``folder``; empty where it has none.

    PEFT saves the adapter named "default" in ``folder`` itself, any other in a subfolder of its name. Shards that an
    index names are among the files even where they are missing, and so are the weights of an adapter whose
    configuration is there: the Trainer would resume without them, with that adapter's initial weights.
    """
    file = next((folder / name for name in _MODEL_WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        subfolders = sorted(path for path in folder.glob("*") if path.is_dir())
        return [weights for path in (folder, *subfolders) for weights in _adapter_weights(path)]
    return [file, *(folder / name for name in shards(file))] if file.name in INDICES else [file]


def shards(index: Path) -> list[str]:
    """The names of the files that ``index`` lists; empty where it is malformed."""
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return sorted({Path(name).name for name in weight_map.values()})  # they lie beside the index
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


def _adapter_weights(folder: Path) -> list[Path]:
    files = [folder / name for name in _ADAPTER_WEIGHTS]
    saved = [file for file in files if file.is_file()]
    return saved[:1] or (files[:1] if (folder / _ADAPTER_CONFIG).is_file() else [])


def write_checksums(checkpoint: Path) -> None:
    """Write the size and CRC-32 of each file in ``checkpoint``; in subfolders, of adapters' weights only.

    A CRC-32 finds every flipped bit and every zeroed block at some gigabytes a second; it is not a signature. Raises
    ``OSError``.
    """
    files = sorted(path for path in {*checkpoint.iterdir(), *weight_files(checkpoint)} if path.is_file())
    own = {path.relative_to(checkpoint).as_posix(): path for path in files if path.name != NAME}
    sums = {name: [path.stat().st_size, _crc32(path)] for name, path in own.items() if not _OTHERS.fullmatch(name)}
    write_whole(checkpoint / NAME, json.dumps({"schema": _SCHEMA, "files": sums}, indent=1).encode())


def damaged(checkpoint: Path) -> str:
    """Name the file that differs from what was written, and how; ``""`` if none does, or without checksums."""
    if not (checkpoint / NAME).is_file():
        return ""
    try:
        content = read_object(checkpoint / NAME, "list of checksums", _HINT)
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in content["files"].items()}
        weights = {path.relative_to(checkpoint).as_posix() for path in weight_files(checkpoint)}
        if weights.isdisjoint(files):  # saved anew since, such as in shards: the files before are not needed any more
            files = {name: sums for name, sums in files.items() if not _was_weights(checkpoint / name)}
        for name, (size, _) in files.items():  # sizes first: they cost nothing
            current_size = (checkpoint / name).stat().st_size
            if current_size != size:
                return f"{name} has {current_size} bytes, {size} were written"
        wrong = [name for name, (_, crc) in files.items() if _crc32(checkpoint / name) != crc]
    except OSError as error:
        return f"{os.path.relpath(error.filename or checkpoint, checkpoint)} cannot be read: {error.strerror}"
    except (AsrConfigError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return f"{NAME} cannot be read; {_HINT}"
    return f"{listed(wrong)} changed since it was written" if wrong else ""


def _was_weights(path: Path) -> bool:
    return not path.exists() and (path.suffix in (".safetensors", ".bin") or path.name in INDICES)


def _crc32(path: Path) -> int:
    crc, chunk = 0, memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(chunk):
            crc = zlib.crc32(chunk[:count], crc)
    return crc


def step_of(checkpoint: Path) -> int:
    """The optimizer steps that were made when it was saved."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else int(_json(checkpoint / _STATE)["global_step"])


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, complete or not, the newest last."""
    return sorted((p for p in folder.glob("checkpoint-*") if p.is_dir() and _NAME.fullmatch(p.name)), key=step_of)


def newest_complete(folder: Path, foreign: Collection[str] = (), processes: int | None = None) -> Path | None:
    """The newest checkpoint of ``folder`` that training can continue from; others are left in place, and logged."""
    for checkpoint in reversed(checkpoints(folder)):
        if checkpoint.name in foreign:
            continue
        if not (reason := incomplete(checkpoint, processes)):
            return checkpoint
        logger.warning("%s is not complete or damaged (%s): an earlier one is taken", checkpoint, reason)
    return None


def incomplete(checkpoint: Path, processes: int | None = None) -> str:
    """What keeps training from continuing exactly from ``checkpoint``; ``""`` when nothing does.

    Files are checked at their beginnings and ends, which finds truncated ones at no cost, then compared with the
    checksums that were written when it was complete, if there are any. ``processes`` is how many saved their random
    numbers.
    """
    if not (checkpoint / _STATE).is_file():
        return f"it has no {_STATE}"
    weights = weight_files(checkpoint)
    if missing := _missing(checkpoint, weights, processes):
        return f"it has no {missing}"
    files = sorted(path for path in {*checkpoint.iterdir(), *weights} if path.is_file())
    if truncated := [path.relative_to(checkpoint).as_posix() for path in files if not _whole(path)]:
        return f"{listed(truncated)} cannot be read"
    state = _json(checkpoint / _STATE)
    if not isinstance(state, dict) or not isinstance(state.get("global_step"), int):
        return f"{_STATE} holds no state of a Trainer"
    return damaged(checkpoint)


def _missing(checkpoint: Path, weights: list[Path], processes: int | None) -> str:
    if any(path.is_dir() for pattern in _SHARDED for path in checkpoint.glob(pattern)):
        return ""
    if not weights:
        return "weights"
    optimizer = "optimizer.bin" if weights[0].name == "pytorch_model_fsdp.bin" else "optimizer.pt"
    wanted = [*weights, checkpoint / optimizer, checkpoint / "scheduler.pt"]
    if processes:
        names = ["rng_state.pth"] if processes == 1 else [f"rng_state_{rank}.pth" for rank in range(processes)]
        wanted += [checkpoint / name for name in names]
    elif not any(checkpoint.glob("rng_state*.pth")):
        return "rng_state.pth"
    return next((path.relative_to(checkpoint).as_posix() for path in wanted if not path.is_file()), "")


def _whole(path: Path) -> bool:
    """False when a file of a known format is truncated."""
    try:
        if path.name in INDICES:
            return bool(shards(path))
        if path.suffix == ".json":
            return isinstance(_json(path), dict | list)
        if path.suffix == ".safetensors":
            return _is_safetensors(path)
        if path.match("rng_state*.pth"):  # small, and of each process: checksums are of the first one's files
            with zipfile.ZipFile(path) as file:
                return file.testzip() is None
        return not _ZIPPED.fullmatch(path.name) or zipfile.is_zipfile(path)
    except (OSError, zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError):
        return False


def _is_safetensors(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):  # compares the header with the file's size
            return True
    except SafetensorError:
        return False


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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
    for cause in exception_chain(error):
        text = str(cause).lower()
        number = cause.errno if isinstance(cause, OSError) else None
        full = number in (errno.ENOSPC, errno.EDQUOT) or any(word in text for word in _FULL[:3])
        if full or (any(word in text for word in _FULL) and _free(path) < _LITTLE):
            named = Path(str(getattr(cause, "filename", None) or path / "x")).absolute().parent
            with contextlib.suppress(LibraryError):
                if classify(error)["class"] == "host_oom":  # /dev/shm, through which loader workers pass batches
                    return None
            return path if mount_of(named) == mount_of(path) else named
    return None


def _free(path: Path) -> int:
    """Bytes that are free where ``path`` is or will be."""
    there = next((folder for folder in (path, *path.absolute().parents) if folder.exists()), Path("/"))
    return int(shutil.disk_usage(there).free)


def saved_so_far(path: Path) -> str:
    """Which checkpoint a resumed training would continue from, in words."""
    newest = newest_complete(path)
    return f"{newest} is complete, and training continues from there" if newest else "no checkpoint was saved yet"
