"""What of a module shapes a training step, as a text: classes, options, tensors, config, and the user's own code."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import config_values, fingerprint
from .._core.modules import VERSIONED

if TYPE_CHECKING:
    from torch import nn

# Values of a config, and attributes of a module, without influence on a training step.
_NAMES_ONLY = ("_name_or_path", "name_or_path", "transformers_version", "architectures", "id2label", "label2id")


def structure_of(module: nn.Module) -> str:
    """A text that changes with a module's classes, options, tensors and config, but not with its weights' values.

    It includes the source of classes outside torch and transformers.
    """
    numbers: dict[int, int] = {}  # a tensor that two names share has one number
    modules = [(name, type(m).__qualname__, m.extra_repr(), _options(m)) for name, m in module.named_modules()]
    tensors = [
        (name, list(t.shape), str(t.dtype), t.requires_grad, numbers.setdefault(id(t), len(numbers)))
        for named in (module.named_parameters, module.named_buffers)
        for name, t in named(remove_duplicate=False)
    ]
    config = getattr(module, "config", None)
    settings = shaping(config_values(config)) if hasattr(config, "to_json_string") else None
    return fingerprint("module", modules, tensors, settings, _own_code(module))


def shaping(values: Mapping[str, object]) -> dict[str, object]:
    """The values of a config that have an influence on a training step."""
    return {name: value for name, value in values.items() if name not in _NAMES_ONLY}


def _options(module: nn.Module) -> dict[str, object]:
    """A module's plain attributes, such as a stride that no parameter shows."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str)
        and not name.startswith("_")
        and name not in ("training", *_NAMES_ONLY)
    }


def _own_code(module: nn.Module) -> list[str]:
    """Digests of the user's classes, and of ``forward`` functions assigned to single modules."""
    kinds = {type(m) for m in module.modules()}
    digests = [_source(kind) for kind in kinds if kind.__module__.partition(".")[0] not in VERSIONED]
    for m in module.modules():
        patched = vars(m).get("forward")
        if patched is not None and not hasattr(m, "_original_forward"):  # accelerate's wrapper for mixed precision
            digests.append(_function(patched))
    return sorted(digests)


def _source(kind: type) -> str:
    """A class's functions, and the file that defines it with the helpers that they call."""
    members = [(name, _function(m)) for name, m in sorted(vars(kind).items()) if inspect.isfunction(m)]
    file = None
    with contextlib.suppress(OSError, TypeError):  # a notebook's class has none
        file = inspect.getsourcefile(kind)
    text = Path(file).read_bytes() if file and Path(file).is_file() else b""
    return f"{kind.__qualname__} {fingerprint(members)} {hashlib.sha256(text).hexdigest()}"


def _function(function: Any) -> str:
    function = getattr(inspect.unwrap(function), "__func__", function)
    code = getattr(function, "__code__", None)
    return repr(function) if code is None else fingerprint(_code(code))


def _code(code: types.CodeType) -> list[object]:
    constants = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return [code.co_name, code.co_code.hex(), list(code.co_names), constants]
