"""The model that a saved batch is replayed with: the architecture of the training, and a checkpoint's weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._base.errors import AsrConfigError, InvalidArgumentError, NotFoundError, UnsupportedError
from .._base.hub_downloads import from_hub
from .._base.out_of_memory import first_line
from .._base.weight_files import weight_files
from ..bad_clips.clip_measurement import broken
from ..bad_clips.saved_batch import SavedBatch
from .checkpoints import checkpoints, incomplete, step_of

_BEGAN = "name the checkpoint or the model that the training began with: --model"
_OWN = "from Python: asrconfig_go.training.replay_batch(folder, model=model)"


def load_saved(folder: Path, saved: SavedBatch, model: Any) -> tuple[Any, str]:
    """The model, and where its weights come from. Raises ``InvalidArgumentError`` for weights that are not finite."""
    loaded, source = _loaded(folder, saved, model)
    if name := broken(loaded):
        raise InvalidArgumentError(f"{name} of {source} is not finite", _BEGAN)
    return loaded, source


def _loaded(folder: Path, saved: SavedBatch, model: Any) -> tuple[Any, str]:
    import torch

    if isinstance(model, torch.nn.Module):
        return model, f"the given {type(model).__name__}"
    if model is not None and not isinstance(model, str | os.PathLike):
        raise InvalidArgumentError(f"{type(model).__name__} is no model", "pass a torch module, a checkpoint or a name")
    source = os.fspath(model) if model is not None else str(_checkpoint(folder, saved))
    kind = _architecture(saved, Path(source))

    def load() -> Any:
        from transformers import AutoConfig

        return kind.from_pretrained(source, config=AutoConfig.for_model(**saved.config))

    if not Path(source).is_dir():
        return from_hub("the model", source, load, "pass --model with a checkpoint of the training"), source
    try:
        return load(), source
    except AsrConfigError:
        raise
    except Exception as error:  # whatever transformers raises of a folder that is no checkpoint
        raise NotFoundError(
            f"cannot load {saved.architecture} from {source}: {first_line(error)}", "pass --model with a checkpoint"
        ) from error


def _checkpoint(folder: Path, saved: SavedBatch) -> Path:
    """The run's newest checkpoint from before the step, else its first one."""
    run = (folder.resolve() if folder.is_symlink() else folder).parent
    folders = checkpoints(run)
    before = [path for path in folders if step_of(path) <= saved.global_step]
    after = folders[len(before) :]
    checkpoint = next((path for path in (*reversed(before), *after) if not incomplete(path)), None)
    if checkpoint is None:
        raise NotFoundError(f"{run} has no checkpoint to load weights from", _BEGAN)
    return checkpoint


def _architecture(saved: SavedBatch, source: Path) -> Any:
    import transformers

    kind = getattr(transformers, saved.architecture, None)
    if kind is None or not saved.config.get("model_type"):
        raise UnsupportedError(f"transformers has no {saved.architecture} to load weights into", _OWN)
    if any(path.name.startswith("adapter_") for path in weight_files(source)):
        raise UnsupportedError(f"{source} holds adapters alone", _OWN)
    return kind
