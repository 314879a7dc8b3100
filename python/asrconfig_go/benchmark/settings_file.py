"""Files of the settings that a user trains with: JSON of TrainingArguments or of a plan, or ``training_args.bin``."""

from __future__ import annotations

import enum
import importlib
import os
import warnings
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from .._base.errors import CorruptFileError, NotFoundError, UnsupportedError
from .._base.json_files import read_object
from .._base.out_of_memory import first_line

_HINT = "pass a plan's JSON, TrainingArguments.to_json_string in a file, or the training_args.bin of a checkpoint"
_PACKAGES = ("transformers.", "accelerate.")


def read_settings(path: str | os.PathLike[str]) -> Any:
    """A JSON object, or the TrainingArguments of a ``.bin`` file as the Trainer saves it.

    Raises ``NotFoundError`` for a file that cannot be read, ``CorruptFileError`` for one that holds something else.
    """
    if Path(path).suffix.lower() != ".bin":
        return read_object(path, "settings", _HINT)
    if not Path(path).is_file():
        raise NotFoundError(f"cannot read the settings {os.fspath(path)!r}: there is no such file", _HINT)
    return _unpickled(Path(path))


def _unpickled(path: Path) -> Any:
    """Only settings of transformers and accelerate are made of it: a pickle could run anything."""
    import torch

    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        hint = "save the settings by TrainingArguments.to_json_string"
        raise UnsupportedError(f"reading {path} requires torch 2.6", hint)
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        with torch.serialization.safe_globals([_settings_class(name) for name in names]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CorruptFileError(f"{path} holds no TrainingArguments: {first_line(error)}", _HINT) from error
    if not is_dataclass(arguments):
        raise CorruptFileError(f"{path} holds no TrainingArguments, but a {type(arguments).__name__}", _HINT)
    return arguments


def _settings_class(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    kind = getattr(importlib.import_module(module), attribute) if module.startswith(_PACKAGES) else None
    if isinstance(kind, type) and (
        is_dataclass(kind) or issubclass(kind, enum.Enum) or name == "accelerate.state.PartialState"
    ):
        return kind
    raise ValueError(f"it names {name}, which holds no settings")
