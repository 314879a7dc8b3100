"""Environment variables that must be set before CUDA starts. A value that is set already wins over the plan's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from .._base.errors import InvalidArgumentError
from ..plan.plan_record import PlanRecord
from .applied_settings import DONE, KEPT, NOT_DONE, AppliedSetting, TooLateWarning

NEW, OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_REPEATABLE = (":16:8", ":4096:8")  # https://docs.nvidia.com/cuda/cublas/#results-reproducibility
_RESTART = "restart the process (in a notebook, the kernel) and call apply() before anything uses the GPU"


def set_environment(config: PlanRecord) -> Iterator[AppliedSetting]:
    """Set what the plan needs in ``os.environ``, which torch and the processes started from here read."""
    if config.alloc_conf:
        yield _alloc_conf(config.alloc_conf)
    if config.dataloader_num_workers > 0:
        # Fast tokenizers turn their threads off in a forked worker, and say so in every one of them.
        yield _unless_set("TOKENIZERS_PARALLELISM", "false", "loader workers already run in parallel")
    if config.deterministic:
        yield _cublas()


def cuda_started() -> bool:
    """Whether torch has begun to use CUDA in this process; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def alloc_conf_names(folder: Path | None = None) -> tuple[str, ...]:
    """The variables that the installed torch reads allocator settings from, the one to prefer first.

    The names are read from the library that uses them. torch 2.9 has the new name in libc10 only, and CUDA's allocator
    ignores it (pytorch issue 183387), so CUDA's own library is checked where there is one. Without torch the new name
    is all that is known. ``folder`` holds torch's libraries.
    """
    return _names_in(folder or _library_folder())


@lru_cache(maxsize=4)
def _names_in(folder: Path | None) -> tuple[str, ...]:
    for pattern in ("*c10_cuda.*", "*c10_hip.*", "*c10.*"):
        for path in sorted(folder.glob(pattern)) if folder else ():
            content = b"\0" + path.read_bytes()
            found = tuple(name for name in (NEW, OLD) if b"\0" + name.encode() + b"\0" in content)
            if found:
                return found
    return (NEW,)


def allocator_in_force() -> str:
    """The allocator settings that torch reads in this process, "" for its defaults or for another allocator's."""
    text = next((os.environ[name] for name in alloc_conf_names() if os.environ.get(name)), "")
    return text if (parse_alloc_conf(text) or {}).get("backend", "native") == "native" else ""


def _library_folder() -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("torch")
    return Path(spec.origin).parent / "lib" if spec and spec.origin else None


def _alloc_conf(planned: str) -> AppliedSetting:
    wanted = parse_alloc_conf(planned)
    if wanted is None:
        raise InvalidArgumentError(
            f"alloc_conf = {planned!r} is not a list of settings", "write it as 'expandable_segments:True,other:value'"
        )
    read = alloc_conf_names()
    given = [name for name in read if os.environ.get(name)]
    # Torch reads one name; which wins, when both are set, differs between versions: both then get all settings.
    unread = [name for name in (NEW, OLD) if name not in read and os.environ.get(name)]
    names = given or [read[0]]
    before = {name: os.environ.get(name) or (os.environ[unread[0]] if unread else "") for name in names}
    merged, notes = {}, [f"this torch does not read {name}, whose settings are taken over" for name in unread]
    for name, text in before.items():
        theirs = parse_alloc_conf(text)
        if theirs is None:
            why = "has a value that cannot be parsed; left alone"
            return AppliedSetting("environment", name, text, NOT_DONE, why, UserWarning)
        merged[name] = ",".join(f"{key}:{value}" for key, value in {**wanted, **theirs}.items())
        notes += [
            f"your {key}:{theirs[key]} wins over the plan's {value}"
            for key, value in wanted.items()
            if theirs.get(key, value) != value
        ]
    return _write(merged, wanted, notes)


def _write(merged: dict[str, str], wanted: dict[str, str], notes: list[str]) -> AppliedSetting:
    """Set the variables, unless that is without effect now."""
    name, value = next(iter(merged.items()))
    changed = {key: text for key, text in merged.items() if _differs(os.environ.get(key), text)}
    if not changed:
        return AppliedSetting("environment", name, os.environ[name], KEPT, "; ".join(notes) or "is set to this already")
    late = _too_late(wanted)
    if late:
        why = "; ".join([f"{value} has no effect: {late}; {_RESTART}", *notes])
        return AppliedSetting("environment", name, os.environ.get(name, "not set"), NOT_DONE, why, TooLateWarning)
    os.environ.update(changed)
    return AppliedSetting("environment", name, value, DONE, "; ".join(notes))


def _differs(before: str | None, after: str) -> bool:
    return parse_alloc_conf(before or "") != parse_alloc_conf(after)


def _too_late(wanted: dict[str, str]) -> str:
    if cuda_started():
        return "CUDA has started in this process"
    if "backend" in wanted and "torch" in sys.modules:  # torch chooses it while its library is loaded
        return "the backend is chosen when torch is imported"
    return ""


def parse_alloc_conf(text: str) -> dict[str, str] | None:
    """``key:value`` pairs between commas that are in no brackets, by key; None for other texts."""
    pairs, depth, start = [], 0, 0
    for i, letter in enumerate(text + ","):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            pairs.append(text[start:i].strip())
            start = i + 1
    split = [pair.partition(":") for pair in pairs if pair]
    if depth != 0 or any(not (key.strip() and mark and value.strip()) for key, mark, value in split):
        return None
    return {key.strip(): value.strip() for key, _, value in split}


def _unless_set(name: str, value: str, why: str) -> AppliedSetting:
    given = os.environ.get(name)
    if given is not None:
        return AppliedSetting("environment", name, given, KEPT, "set before")
    os.environ[name] = value
    return AppliedSetting("environment", name, value, DONE, why)


def _cublas() -> AppliedSetting:
    """What cuBLAS needs for the same results in every run; the Trainer's ``full_determinism`` sets the same value."""
    given = os.environ.get(_CUBLAS)
    if given in _REPEATABLE:
        return AppliedSetting("environment", _CUBLAS, given, KEPT, "set before")
    if given is not None:
        why = f"is {given!r}, with which torch refuses matrix products in deterministic mode; set {_REPEATABLE[0]!r}"
        return AppliedSetting("environment", _CUBLAS, given, NOT_DONE, why, UserWarning)
    os.environ[_CUBLAS] = _REPEATABLE[0]
    if cuda_started():
        why = f"is set, but CUDA has started, and cuBLAS may have chosen its workspace before; {_RESTART}"
        return AppliedSetting("environment", _CUBLAS, _REPEATABLE[0], DONE, why, TooLateWarning)
    return AppliedSetting(
        "environment", _CUBLAS, _REPEATABLE[0], DONE, "a workspace that gives the same results in every run"
    )
