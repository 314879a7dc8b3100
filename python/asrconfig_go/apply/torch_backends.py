"""The switches of ``torch.backends``, in one place for ``config.apply`` and the callback."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..plan.plan_record import PlanRecord
from .applied_settings import DONE, KEPT, AppliedSetting

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
    """cuDNN's benchmark, and what makes results repeatable. TF32 is not among them: the Trainer sets it by itself.

    Deterministic kernels are requested with ``warn_only``: CUDA has none for the gradient of the CTC loss, and the
    Trainer's ``full_determinism``, which asks without, ends every CTC training at its first step.
    """
    import torch

    cudnn = torch.backends.cudnn
    # Timing decides between kernels, and they round differently.
    switches = [_attribute("cudnn.benchmark", cudnn, "benchmark", config.cudnn_benchmark and not config.deterministic)]
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
    switches = [_attribute(name, cudnn, name, None) for name in ("benchmark", "deterministic")] + _tf32(False)
    switches.append(("use_deterministic_algorithms", None, _determinism, _set_determinism))
    switches.append(("threads", None, torch.get_num_threads, torch.set_num_threads))
    before = [(write, read()) for _, _, read, write in switches]
    try:
        yield
    finally:
        for write, value in before:
            if value is not None:  # TF32 in some parts of cuDNN alone is not one value
                write(value)


def _attribute(name: str, owner: Any, attribute: str, wanted: Any) -> Switch:
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


def _has(part: Any, name: str) -> bool:
    try:
        return hasattr(part, name)
    except RuntimeError:  # there, but not to be read after the other interface was used
        return True
