"""Environment variables that must be set before CUDA starts. A value that is set already wins over the plan's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from .._base.allocator_settings import NEW, OLD, alloc_conf_names, parse_alloc_conf
from .._base.errors import InvalidArgumentError
from ..plan.plan_record import PlanRecord
from ..view.units import exact
from .applied_settings import DONE, KEPT, NOT_DONE, AppliedSetting, TooLateWarning

# Of what is allocated: gaps take a tenth of it in fixed segments, a hundredth in expandable ones.
_GAPS_SHARE = 0.1 - 0.01
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_REPEATABLE = (":16:8", ":4096:8")  # https://docs.nvidia.com/cuda/cublas/#results-reproducibility
_RESTART = "restart the process (in a notebook, the kernel) and call apply() before anything uses the GPU"


def set_environment(config: PlanRecord) -> Iterator[AppliedSetting]:
    """Set what the plan needs in ``os.environ``, which torch and the processes started from here read."""
    if config.alloc_conf:
        yield _alloc_conf(config.alloc_conf, _gaps(config))
    if config.dataloader_num_workers > 0:
        # Fast tokenizers turn their threads off in a forked worker, and say so in every one of them.
        yield _unless_set("TOKENIZERS_PARALLELISM", "false", "loader workers already run in parallel")
    if config.deterministic:
        yield _cublas()


def cuda_started() -> bool:
    """Whether torch has begun to use CUDA in this process; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _gaps(config: PlanRecord) -> str:
    """The additional memory of a training without expandable segments, as the plan predicts it; "" if unknown."""
    allocated = sum(part.bytes for part in config.memory_parts if part.name not in ("cached", "context"))
    more = round(_GAPS_SHARE * allocated)
    if "expandable_segments:True" not in config.alloc_conf or not more:
        return ""
    peak = config.predicted_bytes + more
    fits = "which still fits" if peak <= config.budget_bytes else "so that micro-batches may have to be split"
    return (
        f"gaps between clips of other lengths then take about {exact(more)} more: {exact(peak)} of the "
        f"{exact(config.budget_bytes)} that the plan may use, {fits}"
    )


def _alloc_conf(planned: str, gaps: str) -> AppliedSetting:
    wanted = parse_alloc_conf(planned)
    if wanted is None:
        raise InvalidArgumentError(
            f"alloc_conf = {planned!r} is not a list of settings", "write it as 'expandable_segments:True,other:value'"
        )
    read = alloc_conf_names()
    names_set = [name for name in read if os.environ.get(name)]
    # Torch reads one name; which wins, when both are set, differs between versions: both then get all settings.
    unread = [name for name in (NEW, OLD) if name not in read and os.environ.get(name)]
    before = {
        name: os.environ.get(name) or (os.environ[unread[0]] if unread else "") for name in names_set or [read[0]]
    }
    merged, notes = {}, [f"this torch does not read {name}, whose settings are taken over" for name in unread]
    for name, text in before.items():
        theirs = parse_alloc_conf(text)
        if theirs is None:
            reason = "has a value that cannot be parsed; left alone"
            return AppliedSetting("environment", name, text, NOT_DONE, reason, UserWarning)
        merged[name] = ",".join(f"{key}:{value}" for key, value in {**wanted, **theirs}.items())
        notes += [
            f"your {key}:{theirs[key]} wins over the plan's {value}"
            for key, value in wanted.items()
            if theirs.get(key, value) != value
        ]
    return _write(merged, wanted, notes, gaps)


def _write(merged: dict[str, str], wanted: dict[str, str], notes: list[str], gaps: str) -> AppliedSetting:
    name, value = next(iter(merged.items()))
    changed = {
        key: text for key, text in merged.items() if parse_alloc_conf(os.environ.get(key, "")) != parse_alloc_conf(text)
    }
    if not changed:
        return AppliedSetting("environment", name, os.environ[name], KEPT, "; ".join(notes) or "is set to this already")
    late = "CUDA has started in this process" if cuda_started() else ""
    if not late and "backend" in wanted and "torch" in sys.modules:  # torch chooses it while its library is loaded
        late = "the backend is chosen when torch is imported"
    if late:
        reason = "; ".join([f"{value} has no effect: {late}", *filter(None, [gaps]), _RESTART, *notes])
        return AppliedSetting("environment", name, os.environ.get(name, "not set"), NOT_DONE, reason, TooLateWarning)
    os.environ.update(changed)
    return AppliedSetting("environment", name, value, DONE, "; ".join(notes))


def _unless_set(name: str, value: str, reason: str) -> AppliedSetting:
    current = os.environ.get(name)
    if current is not None:
        return AppliedSetting("environment", name, current, KEPT, "set before")
    os.environ[name] = value
    return AppliedSetting("environment", name, value, DONE, reason)


def _cublas() -> AppliedSetting:
    """What cuBLAS needs for the same results in every run; the Trainer's ``full_determinism`` sets the same value."""
    current = os.environ.get(_CUBLAS)
    if current in _REPEATABLE:
        return AppliedSetting("environment", _CUBLAS, current, KEPT, "set before")
    if current is not None:
        reason = (
            f"is {current!r}, with which torch refuses matrix products in deterministic mode; set {_REPEATABLE[0]!r}"
        )
        return AppliedSetting("environment", _CUBLAS, current, NOT_DONE, reason, UserWarning)
    os.environ[_CUBLAS] = _REPEATABLE[0]
    if cuda_started():
        reason = f"is set, but CUDA has started, and cuBLAS may have chosen its workspace before; {_RESTART}"
        return AppliedSetting("environment", _CUBLAS, _REPEATABLE[0], DONE, reason, TooLateWarning)
    reason = "a workspace with the same results in every run"
    return AppliedSetting("environment", _CUBLAS, _REPEATABLE[0], DONE, reason)
