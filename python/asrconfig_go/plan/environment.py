"""Environment variables and torch's switches as planned, and which of them were applied."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .._core.render import box, exact
from ..errors import InvalidArgumentError
from ..predict.memory_settings import NEW, OLD, alloc_conf_names, parse_alloc_conf
from .plan_record import PlanRecord

DONE, KEPT, NOT_DONE = "done", "kept", "not done"
_WIDTH = 110


class TooLateWarning(UserWarning):
    """A setting that is only read when CUDA starts, which it has: restart the process (in a notebook, the kernel)."""


@dataclass(frozen=True)
class AppliedSetting:
    """One setting, and whether it was applied.

    Attributes:
        name: The name of the setting: an environment variable, a switch of torch, or a field of the plan.
        why: The reason, as a clause; ``""`` where there is nothing to explain.
    """

    where: str
    """``"environment"``, ``"torch"`` or ``"model"``."""
    name: str
    value: str
    """What is in effect now."""
    state: str
    """``"done"``; ``"kept"`` where it was so already, or your own value is kept; ``"not done"``."""
    why: str = ""
    warning: type[Warning] | None = field(default=None, repr=False, compare=False)
    """How ``apply`` warned of it."""


@dataclass(frozen=True, repr=False)
class Applied:
    """The settings that ``config.apply`` or ``prepare_model`` looked at.

    Attributes:
        settings: The settings, in the order in which they were looked at.
    """

    settings: tuple[AppliedSetting, ...]

    @property
    def done(self) -> tuple[AppliedSetting, ...]:
        """The settings that were changed."""
        return tuple(s for s in self.settings if s.state == DONE)

    @property
    def not_done(self) -> tuple[AppliedSetting, ...]:
        """The planned settings that could not be applied."""
        return tuple(s for s in self.settings if s.state == NOT_DONE)

    def __getitem__(self, name: str) -> AppliedSetting:
        """Return the setting of a name; raise ``KeyError`` for one that was not looked at."""
        for setting in self.settings:
            if setting.name == name:
                return setting
        raise KeyError(name)

    def __repr__(self) -> str:
        if not self.settings:
            return "Applied: nothing to do"
        lines = [f"Applied: {len(self.done)} done, {len(self.not_done)} not done"]
        for s in self.settings:
            lines.append(f"  {s.state:<8}  {s.where}: {s.name} = {s.value}")
            lines += textwrap.wrap(s.why, _WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 12)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return box("Applied", repr(self))


def report(settings: Iterable[AppliedSetting], stacklevel: int) -> Applied:
    """The record of ``settings``, after their warnings. ``stacklevel`` 1 is this function's caller."""
    applied = Applied(tuple(settings))
    for s in applied.settings:
        if s.warning is not None:
            warnings.warn(f"{s.name}: {s.why}", s.warning, stacklevel=stacklevel + 1)
    return applied


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


Switch = tuple[str, Any, Callable[[], Any], Callable[[Any], None]]
"""Name, value of the plan, how it is read and set."""


def set_backends(config: PlanRecord) -> Iterator[AppliedSetting]:
    """Set torch's switches as planned, for good."""
    for name, wanted, read, write in [*training_switches(config), *_tf32(config.tf32)]:
        before = read()
        if before != wanted:
            write(wanted)
        yield AppliedSetting("torch", name, str(wanted), KEPT if before == wanted else DONE)


def training_switches(config: PlanRecord) -> list[Switch]:
    """cuDNN's benchmark and attention, and what makes results repeatable. TF32 is not among them: the Trainer sets it.

    Deterministic kernels are requested with ``warn_only``: CUDA has none for the gradient of the CTC loss, and the
    Trainer's ``full_determinism``, which asks without, ends every CTC training at its first step.
    """
    import torch

    cudnn = torch.backends.cudnn
    # Timing decides between kernels, and they round differently.
    switches = [_attribute("cudnn.benchmark", cudnn, "benchmark", config.cudnn_benchmark and not config.deterministic)]
    if not config.cudnn_attention:
        switches += _cudnn_attention()
    if config.deterministic:
        switches.append(_attribute("cudnn.deterministic", cudnn, "deterministic", True))
        switches.append(("use_deterministic_algorithms", "warn", _determinism, _set_determinism))
    return switches


class TrainingSwitches:
    """Sets the switches of a plan while training runs, and restores them afterwards."""

    def __init__(self, config: PlanRecord | None) -> None:
        self._config = config
        self._before: list[tuple[Callable[[Any], None], Any]] = []

    def set(self) -> None:
        """Set the switches. A second call sets again what others have changed; the first values are restored."""
        if self._config is None:
            return
        switches = training_switches(self._config)
        if not self._before:
            self._before = [(write, read()) for _, _, read, write in switches]
        for _, wanted, _, write in switches:
            write(wanted)

    def put_back(self) -> None:
        """Restore the switches. Harmless when nothing was set."""
        for write, value in reversed(self._before):
            write(value)
        self._before = []


@contextlib.contextmanager
def backends_kept() -> Iterator[None]:
    """Restore torch's switches and its number of threads at the end of the block."""
    import torch

    cudnn = torch.backends.cudnn
    switches = [_attribute(name, cudnn, name, None) for name in ("benchmark", "deterministic")]
    switches += [*_cudnn_attention(), *_tf32(False)]
    switches.append(("use_deterministic_algorithms", None, _determinism, _set_determinism))
    switches.append(("threads", None, torch.get_num_threads, torch.set_num_threads))
    before = [(write, read()) for _, _, read, write in switches]
    try:
        yield
    finally:
        for write, value in before:
            if value is not None:  # TF32 in some parts of cuDNN alone is not one value
                write(value)


def _cudnn_attention() -> list[Switch]:
    import torch

    cuda = torch.backends.cuda
    if not hasattr(cuda, "enable_cudnn_sdp"):
        return []
    return [("cudnn attention", False, cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp)]


def _attribute(name: str, owner: object, attribute: str, wanted: object) -> Switch:
    return name, wanted, lambda: getattr(owner, attribute), lambda value: setattr(owner, attribute, value)


def _determinism() -> str:
    import torch

    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _set_determinism(value: str) -> None:
    import torch

    torch.use_deterministic_algorithms(value != "off", warn_only=value == "warn")


def _tf32(wanted: bool) -> list[Switch]:
    """TF32 in cuBLAS's products and in cuDNN.

    Where torch has both interfaces, the older attributes are set: they set the newer ones as well, while torch refuses
    to read the older ones after the newer were set alone, and some of its own code reads them.
    """
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    parts = {"matmul": [matmul], "cudnn": [p for p in (getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)) if p]}

    def switch(name: str, owner: Any) -> Switch:
        newer = [part for part in parts[name] if _has(part, "fp32_precision")]

        def read() -> bool | None:
            if not newer:
                return bool(owner.allow_tf32)
            states = {part.fp32_precision == "tf32" for part in newer}
            return states.pop() if len(states) == 1 else None

        def write(value: bool) -> None:
            if _has(owner, "allow_tf32"):
                with warnings.catch_warnings():  # torch 2.9 and some later ones recommend the newer interface
                    warnings.simplefilter("ignore")
                    owner.allow_tf32 = value
            for part in newer:  # what is switched off may still follow torch.backends.fp32_precision
                if (part.fp32_precision == "tf32") != value:
                    part.fp32_precision = "tf32" if value else "ieee"

        return f"{name} TF32", wanted, read, write

    return [switch("matmul", matmul), switch("cudnn", cudnn)]


def _has(part: object, name: str) -> bool:
    try:
        return hasattr(part, name)
    except RuntimeError:  # there, but not to be read after the other interface was used
        return True
