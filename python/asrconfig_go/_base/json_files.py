"""JSON files that a user names, which may be missing, truncated or hostile; and configurations as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from .errors import CorruptFileError, InvalidArgumentError, NotFoundError
from .files import user_path
from .storage import from_storage

_LARGEST = 1 << 28  # bytes; what this package writes stays far under it


def read_json(path: str | os.PathLike[str], kind: str, hint: str) -> Any:
    """Parse a JSON file; ``kind`` ("run log") and ``hint`` are for the messages.

    Raises ``NotFoundError`` for a file that is missing or cannot be opened, ``CorruptFileError`` for one that is larger
    than 256 MiB, empty, truncated, not UTF-8 or not JSON.
    """
    path = user_path(path, kind)

    def first_bytes() -> bytes:
        with path.open("rb") as file:
            return file.read(_LARGEST + 1)

    try:
        data = from_storage(path, first_bytes)
    except OSError as error:
        raise NotFoundError(f"cannot read the {kind} {str(path)!r}: {error.strerror}", hint) from error
    if len(data) > _LARGEST:
        raise CorruptFileError(f"{path} has more than {_LARGEST >> 20} MiB: it is not what its name says", hint)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path} is not UTF-8: {error}", hint) from error
    if not text.strip():
        raise CorruptFileError(f"{path} is empty", hint)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise CorruptFileError(f"{path} nests too deeply", hint) from error
    except ValueError as error:  # also of numbers with too many digits
        cut = not text.rstrip().endswith(("}", "]"))
        problem = f"ends in the middle, after {len(text)} characters" if cut else f"is not JSON: {error}"
        raise CorruptFileError(f"{path} {problem}", hint) from error


def read_object(path: str | os.PathLike[str], kind: str, hint: str) -> dict[str, Any]:
    """``read_json`` of a file that must hold an object; ``CorruptFileError`` for anything else."""
    content = read_json(path, kind, hint)
    if not isinstance(content, dict):
        raise CorruptFileError(f"{path} holds no {kind}", hint)
    return content


def config_values(config: Any) -> dict[str, Any]:
    """The content of ``config.json`` for a transformers configuration.

    Raises ``InvalidArgumentError`` for an entry that JSON cannot hold, such as a NumPy number.
    """
    try:
        values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    except TypeError as error:
        of = type(config).__name__
        wrong = [(name, value) for name, value in vars(config).items() if not _is_json(value)]
        named = ", ".join(f"{name} = {value!r} ({type(value).__name__})"[:100] for name, value in wrong[:3]) or error
        raise InvalidArgumentError(
            f"the model's {of} cannot be saved as JSON: {named}", "set it to a number, a text or a list of them"
        ) from error
    return values


def _is_json(value: Any) -> bool:
    if hasattr(value, "to_dict") or type(value).__module__.partition(".")[0] == "torch":  # configs, and torch.dtype
        return True
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
