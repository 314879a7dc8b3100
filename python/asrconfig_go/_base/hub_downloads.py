"""Downloads from the Hugging Face Hub, with errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError
from .hub_connection import offline, without_retries

OFFLINE = '"tiny-wav2vec2", "tiny-whisper" and "tiny-qwen3-asr" are always there'
TOKEN = "log in with `hf auth login`, or set HF_TOKEN"
_NO_NETWORK = (
    "offline", "couldn't connect", "connection", "name resolution", "temporary failure", "max retries", "timed out",
    "couldn't reach", "cannot send a request", "network", "localentrynotfound",
)  # fmt: skip

_NOT_REACHED = {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError"}


def from_hub(kind: str, name: str, load: Callable[[], Any], instead: str) -> Any:
    """What ``load`` gives; ``NotFoundError`` with a remedy where the network, a token or the thing itself is missing.

    It is a ``kind`` of thing called ``name``, which may be a folder; ``instead`` says what does without.
    """
    what, unreachable = f"{kind} {name!r}", offline()
    try:
        with without_retries(unreachable):
            return load()
    except AsrConfigError:
        raise
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        if Path(name).expanduser().is_dir():
            raise CorruptFileError(f"{what} cannot be loaded: {_first(error)}", "save it there again") from error
        raise explained(what, error, instead, unreachable) from error


def explained(what: str, error: Exception, instead: str, unreachable: bool) -> AsrConfigError:
    """The exception that says why ``what`` failed by ``error``, and what to do; ``unreachable`` as ``offline`` says."""
    chain = list(_chain(error))
    kinds = {kind.__name__ for each in chain for kind in type(each).__mro__}
    told = " ".join(str(each) for each in chain).lower()
    first = _first(error)
    if "GatedRepoError" in kinds or any(word in told for word in ("gated", "401", "403")):
        hint = f"{TOKEN}, and accept its terms; {instead}"
        return NotFoundError(f"{what} needs a token that may read it: {first}", hint)
    if "config name is missing" in told or "builderconfig" in told:
        return InvalidArgumentError(f"{what} needs the name of a configuration: {error}", "name=… (--name)")
    if "unknown split" in told or "should be one of" in told:
        return InvalidArgumentError(f"{what} has no such split: {error}", "split=…, evaluation_split=…")
    if unreachable or kinds & _NOT_REACHED or any(word in told for word in _NO_NETWORK):
        return NotFoundError(
            f"{what} is not on this machine, and the Hub cannot be reached: {first}", f"connect to a network; {instead}"
        )
    if isinstance(error, OSError) or any("NotFound" in kind for kind in kinds):
        return NotFoundError(f"{what} cannot be found on the Hub: {first}", f"check its name; {instead}")
    return InvalidArgumentError(f"{what} cannot be loaded: {first}", instead)


def _first(error: Exception) -> str:
    """The first sentence of an exception."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.split(". ")[0].rstrip(".")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
