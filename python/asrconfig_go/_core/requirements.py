"""Packages that features need, and downloads from the Hugging Face Hub, with errors that say what to do."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError
from .files import exception_chain
from .training_session import override

T = TypeVar("T")


def need(feature: str, *packages: str) -> None:
    """Raise ``UnsupportedError`` naming those of ``packages`` that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"{feature} needs {', '.join(missing)}", f"pip install {' '.join(missing)}")


def imported(module: str, feature: str, hint: str = "") -> Any:
    """Import ``module`` for ``feature``; ``UnsupportedError`` where its package is missing."""
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(f"{feature} needs {package}", hint or f"pip install {package}") from error


def offline() -> bool:
    """Whether the Hub's client is set to offline mode, or the Hub's name does not resolve."""
    try:
        from huggingface_hub import constants
    except ImportError:
        return False
    if constants.HF_HUB_OFFLINE:
        return True
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return False  # the proxy knows names
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.getaddrinfo(address.hostname, address.port or 443)
    except OSError:
        return True
    return False


@contextlib.contextmanager
def without_retries(unreachable: bool) -> Iterator[None]:
    """Let the Hub's client take what is in its cache, and fail at once otherwise, where the Hub is ``unreachable``."""
    modules = (sys.modules.get(name) for name in ("huggingface_hub.constants", "datasets.config") if unreachable)
    with contextlib.ExitStack() as undo:
        for module in modules:
            if hasattr(module, "HF_HUB_OFFLINE"):
                undo.callback(override(module, "HF_HUB_OFFLINE", True))
        yield


OFFLINE = '"tiny-wav2vec2", "tiny-whisper" and "tiny-qwen3-asr" are always there'
TOKEN = "log in with `hf auth login`, or set HF_TOKEN"
_NO_NETWORK = (
    "offline", "couldn't connect", "connection", "name resolution", "temporary failure", "max retries", "timed out",
    "couldn't reach", "cannot send a request", "network", "localentrynotfound",
)  # fmt: skip

_NOT_REACHED = {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError"}


def from_hub(kind: str, name: str, load: Callable[[], T], instead: str) -> T:
    """Return what ``load`` returns; raise an error with a remedy where the network, a token or the thing is missing.

    ``kind`` and ``name`` (which may be a folder) are for messages; ``instead`` says what works without the Hub.
    """
    label, unreachable = f"{kind} {name!r}", offline()
    try:
        with without_retries(unreachable):
            return load()
    except AsrConfigError:
        raise
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        if Path(name).expanduser().is_dir():
            raise CorruptFileError(f"{label} cannot be loaded: {_first(error)}", "save it there again") from error
        raise explained(label, error, instead, unreachable) from error


def explained(label: str, error: Exception, instead: str, unreachable: bool) -> AsrConfigError:
    """The exception for ``label`` whose download failed by ``error``; ``unreachable`` is what ``offline`` returned."""
    chain = list(exception_chain(error))
    kinds = {kind.__name__ for link in chain for kind in type(link).__mro__}
    text = " ".join(str(link) for link in chain).lower()
    first = _first(error)
    if "GatedRepoError" in kinds or any(word in text for word in ("gated", "401", "403")):
        hint = f"{TOKEN}, and accept its terms; {instead}"
        return NotFoundError(f"{label} needs a token that may read it: {first}", hint)
    if "config name is missing" in text or "builderconfig" in text:
        return InvalidArgumentError(f"{label} needs the name of a configuration: {error}", "name=… (--name)")
    if "unknown split" in text or "should be one of" in text:
        return InvalidArgumentError(f"{label} has no such split: {error}", "split=…, evaluation_split=…")
    if unreachable or kinds & _NOT_REACHED or any(word in text for word in _NO_NETWORK):
        return NotFoundError(
            f"{label} is not on this machine, and the Hub cannot be reached: {first}",
            f"connect to a network; {instead}",
        )
    if isinstance(error, OSError) or any("NotFound" in kind for kind in kinds):
        return NotFoundError(f"{label} cannot be found on the Hub: {first}", f"check its name; {instead}")
    return InvalidArgumentError(f"{label} cannot be loaded: {first}", instead)


def _first(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.split(". ")[0].rstrip(".")
