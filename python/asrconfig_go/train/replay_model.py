"""The model with which a saved batch is computed again: the one that is passed, or the weights of a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from .._core.hub import from_hub
from .._core.out_of_memory import first_line
from ..errors import AsrConfigError, InvalidArgumentError, NotFoundError, UnsupportedError
from .checkpoints import checkpoints, incomplete, step_of, weight_files

if TYPE_CHECKING:
    from ..guard.saved_batch import SavedBatch

    Weights: TypeAlias = "torch.nn.Module | str | os.PathLike[str] | None"

# Hints of errors.
FIRST_WEIGHTS = "name the checkpoint or the model that the training began with: --model"
_PASS_MODULE = "from Python: asrconfig_go.train.replay_batch(folder, model=model)"


def load_model(folder: Path, saved: SavedBatch, model: Weights) -> tuple[Any, str]:
    """The model to compute the batch in ``folder`` with, and where its weights come from."""
    if isinstance(model, torch.nn.Module):
        return model, f"the given {type(model).__name__}"
    if model is not None and not isinstance(model, str | os.PathLike):
        raise InvalidArgumentError(
            f"{type(model).__name__} is not a model", "pass a torch module, a checkpoint or a name"
        )
    source = os.fspath(model) if model is not None else str(_checkpoint(folder, saved))
    architecture = _architecture(saved, Path(source))

    def load() -> Any:
        from transformers import AutoConfig

        return architecture.from_pretrained(source, config=AutoConfig.for_model(**saved.config))

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
    """The newest whole checkpoint of the run from before the step, else the first whole one after it."""
    run = (folder.resolve() if folder.is_symlink() else folder).parent
    folders = checkpoints(run)
    before = [path for path in folders if step_of(path) <= saved.global_step]
    after = folders[len(before) :]
    checkpoint = next((path for path in (*reversed(before), *after) if not incomplete(path)), None)
    if checkpoint is None:
        raise NotFoundError(f"{run} has no checkpoint to load weights from", FIRST_WEIGHTS)
    return checkpoint


def _architecture(saved: SavedBatch, source: Path) -> Any:
    """The class of transformers that the saved batch's model has."""
    import transformers

    architecture = getattr(transformers, saved.architecture, None)
    if architecture is None or not saved.config.get("model_type"):
        raise UnsupportedError(f"transformers has no {saved.architecture} to load weights into", _PASS_MODULE)
    if any(path.name.startswith("adapter_") for path in weight_files(source)):
        raise UnsupportedError(f"{source} holds adapters alone", _PASS_MODULE)
    return architecture
