"""What Lightning's Trainer tells a monitor. Imports no transformers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UnsupportedError
from .alerts import AlertReporter, BestEffort

if TYPE_CHECKING:
    from .memory_monitor import MemoryMonitor

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")


class _Trainer(Protocol):
    global_step: int


def lightning_callback(monitor: MemoryMonitor) -> Any:
    """Make a callback that reports the steps, evaluations and checkpoints of a Lightning Trainer to a monitor.

    What the monitor warns of is logged. A step is an optimizer step, with all batches that it accumulates.

    Args:
        monitor: The monitor. The callback does not stop it: stop it when the training is over, best by
            ``with MemoryMonitor() as monitor:``.

    Returns:
        The callback for ``lightning.pytorch.Trainer`` (or that of ``pytorch_lightning``).

    Raises:
        UnsupportedError: Lightning is not installed.
    """

    class Watching(_base()):  # type: ignore[misc]
        """Reports to the monitor; a failure is logged once and then skipped."""

        def __init__(self) -> None:
            self._call, self._alerts = BestEffort("memory is not watched"), AlertReporter(monitor)
            self._last = 0

        def on_fit_start(self, trainer: _Trainer, pl_module: object) -> None:
            self._last = trainer.global_step
            self._call(monitor.event, "training", f"training begins after step {trainer.global_step}")

        def on_train_batch_end(self, trainer: _Trainer, *_: object, **__: object) -> None:
            if trainer.global_step != self._last:
                self._last = trainer.global_step
                self._call(monitor.step, trainer.global_step)
                self._call(self._alerts.say)

        def on_validation_batch_end(self, trainer: _Trainer, *_: object, **__: object) -> None:
            self._call(lambda: monitor.step(kind="evaluation"))
            self._call(self._alerts.say)

        on_test_batch_end = on_predict_batch_end = on_validation_batch_end

        def on_save_checkpoint(self, trainer: _Trainer, *_: object, **__: object) -> None:
            self._call(lambda: monitor.step(kind="checkpoint"))

        def on_fit_end(self, trainer: _Trainer, pl_module: object) -> None:
            self._call(monitor.event, "training", f"training ends after step {trainer.global_step}")

    return Watching()


def _base() -> Any:
    for name in _LIGHTNING:
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise UnsupportedError("Lightning is not installed", "pip install lightning")
