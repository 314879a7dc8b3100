"""What is shown of a training while it runs: live panel, progress bar, logs, the file of the run log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from transformers.trainer_callback import PrinterCallback, ProgressCallback

from .._core.render import GIB, html
from .._core.training_session import override

if TYPE_CHECKING:
    from IPython.display import DisplayHandle
    from tqdm import tqdm
    from transformers.trainer_callback import CallbackHandler

    from .memory_monitor import MemoryMonitor
    from .telemetry import MemorySnapshot
    from .watch_records import Activity, Alert, MemoryHistory, MemoryUse


@dataclass(frozen=True)
class PanelState:
    """What the live panel shows: the training's progress, and a monitor's figures.

    ``step`` of ``steps`` planned ones are made, and the rest takes ``left_s`` seconds. Shares of the time are 0 to 1:
    ``waited`` that of waiting for the loader, ``model_flops_utilization`` what the model's arithmetic takes at the
    GPU's peak rate. ``stopped`` says that the training has stopped before its end.
    """

    step: int
    steps: int
    left_s: float | None
    waited: float | None
    model_flops_utilization: float | None
    shot: MemorySnapshot
    activity: Activity
    history: MemoryHistory
    alerts: tuple[Alert, ...]
    stopped: bool = False


class Panel:
    """The live panel of a notebook. ``display`` is IPython's function, or a replacement; None for IPython's."""

    def __init__(self, display: Callable[..., DisplayHandle] | None = None) -> None:
        self._display = display
        self._handle: DisplayHandle | None = None

    def show(self, state: PanelState) -> None:
        """Draw the panel, in place of the earlier one if there is one."""
        card = {"text/html": html("panel", asdict(state)), "text/plain": "(a live panel of the training's memory)"}
        if self._handle is not None:
            self._handle.update(card, raw=True)
            return
        if self._display is None:
            from IPython.display import display

            self._display = display
        self._handle = self._display(card, raw=True, display_id=True)


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def one_line(
    fullest: MemoryUse | None,
    activity: Activity,
    waited: float | None,
    useful: float | None,
    columns: float = math.inf,
) -> str:
    """``GPU 93% · mem 82% 12.3/15.0 GiB · CPU 61% · wait 3% · MFU 38%``, of it what is known and fits in ``columns``.

    It is about the GPU whose memory is the fullest, with unused cache counted as free; without a GPU, about the host:
    ``RAM 41% … · CPU 61%``. ``waited`` and ``useful`` are shares of the time as in ``scalars``. What does not fit is
    left out: first the GiB, then MFU, then the wait.
    """
    busy, share, sizes = None, "", ""
    if fullest is not None:
        used, total = (fullest.total_bytes - fullest.headroom_bytes) / GIB, fullest.total_bytes / GIB
        share, sizes = f"{'RAM' if fullest.gpu < 0 else 'mem'} {used / total:.0%}", f" {used:.1f}/{total:.1f} GiB"
        if 0 <= fullest.gpu < len(activity.gpus):
            busy = activity.gpus[fullest.gpu].utilization
    gpu = _percent(f"GPU{fullest.gpu or ''}" if fullest is not None else "GPU", busy)
    cpu, wait, mfu = _percent("CPU", activity.cpu_share), _percent("wait", waited), _percent("MFU", useful)
    lines = [
        " · ".join(filter(None, (gpu, memory, cpu, *others)))
        for memory, others in ((share + sizes, (wait, mfu)), (share, (wait, mfu)), (share, (wait,)), (share, ()))
    ]
    return next((line for line in lines if len(line) <= columns), lines[-1])


def _percent(name: str, share: float | None) -> str:
    return "" if share is None else f"{name} {share:.0%}"


def show_line(
    handler: CallbackHandler, fullest: MemoryUse | None, activity: Activity, waited: float | None, useful: float | None
) -> None:
    """Put ``one_line`` behind the bar of a Trainer's ``ProgressCallback``, or before that of a notebook.

    It is drawn when the bar itself is drawn again.
    """
    for callback in handler.callbacks:
        bar, tracker = getattr(callback, "training_bar", None), getattr(callback, "training_tracker", None)
        if bar is not None and hasattr(bar, "set_postfix_str"):
            bar.set_postfix_str(one_line(fullest, activity, waited, useful, _columns_left(bar)), refresh=False)
        elif tracker is not None:
            tracker.prefix = f"{one_line(fullest, activity, waited, useful)}<br>"


def _columns_left(bar: tqdm) -> float:
    """The columns that a short tqdm bar leaves free in its terminal: tqdm would cut a longer text."""
    figures = bar.format_dict
    if not isinstance(figures["ncols"], int):  # no terminal
        return math.inf
    without = bar.format_meter(**{**figures, "ncols": 0, "postfix": ""})
    return figures["ncols"] - len(without) - len("|██████|, ")


SCALAR_PREFIX = "asrconfig/"


def scalars(shot: MemorySnapshot, activity: Activity, waited: float | None, useful: float | None) -> dict[str, float]:
    """``asrconfig/gpu0_memory_used_gib`` and so on; what is not known is left out.

    Of the time since the last log, ``waited`` is the share that was spent waiting for the loader, and ``useful`` the
    share that the model's arithmetic takes at the GPU's peak rate.
    """
    figures: dict[str, float | None] = {
        "host_memory_used_gib": _gib(shot.host_used),
        "host_memory_fraction": shot.host_fraction,
        "host_cpu_utilization": activity.cpu_share,
        "training_cpu_utilization": activity.tree_cpu_share,
        "workers_rss_gib": _gib(activity.workers_rss_bytes),
        "loader_wait_share": waited,
        "model_flops_utilization": useful,
    }
    for i, gpu in enumerate(shot.gpus):
        figures |= {
            f"gpu{i}_memory_used_gib": _gib(gpu.used),
            f"gpu{i}_memory_fraction": gpu.fraction,
            f"gpu{i}_headroom_gib": _gib(gpu.headroom),
            f"gpu{i}_torch_allocated_gib": _gib(gpu.allocated),
            f"gpu{i}_torch_reserved_gib": _gib(gpu.reserved),
        }
    for i, busy in enumerate(activity.gpus):
        names = ("utilization", "tensor_active", "power_w", "temperature_c")
        figures |= {f"gpu{i}_{name}": getattr(busy, name) for name in names}
    return {SCALAR_PREFIX + name: round(x, 4) for name, x in figures.items() if x is not None and math.isfinite(x)}


def _gib(size: float | None) -> float | None:
    return None if size is None else size / GIB


RUN_FILE_NAME = "asrconfig_monitor.json"
_EVERY_S = 60.0


class RunFile:
    """Writes ``asrconfig_monitor.json`` into ``folder``, at least once a minute while ``write`` is called.

    Each node writes a file; those after the first have ``-rank<n>`` in the name. When a run is resumed at step n, the
    file that it wrote before its process was killed is kept as ``asrconfig_monitor-until-step-<n>.json``.
    """

    def __init__(
        self, monitor: MemoryMonitor, folder: Path, rank: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._monitor, self._clock = monitor, clock
        self.path = folder / (f"asrconfig_monitor-rank{rank}.json" if rank else RUN_FILE_NAME)
        self._next = clock() + _EVERY_S

    def keep_earlier(self, step: int) -> None:
        """Rename the file that a run wrote before it is resumed at ``step``, above 0."""
        if step > 0 and self.path.exists():
            self.path.replace(self.path.with_name(f"{self.path.stem}-until-step-{step}.json"))

    @property
    def due(self) -> bool:
        """Whether a minute has passed since the file was written, or since the start."""
        return self._clock() >= self._next

    def write(self) -> None:
        """Write the run log so far."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._monitor.save(self.path)
        self._next = self._clock() + _EVERY_S


def leave_out_of_print(handler: CallbackHandler, undo: ExitStack) -> None:
    """Leave ``scalars`` out of the logs that the Trainer prints, until ``undo`` closes.

    They are for curves: a line with dozens of numbers for eight GPUs hides the loss. Reporters such as TensorBoard and
    other callbacks get them.
    """
    for callback in handler.callbacks:
        if isinstance(callback, PrinterCallback | ProgressCallback):
            undo.callback(override(callback, "on_log", partial(_printed, callback.on_log)))


def _printed(
    on_log: Callable[..., object], *arguments: object, logs: dict[str, float] | None = None, **others: object
) -> object:
    printable = logs and {name: value for name, value in logs.items() if not name.startswith(SCALAR_PREFIX)}
    return on_log(*arguments, logs=printable, **others)
