"""``asrconfig monitor``: GPUs, host and a training's processes, live in a terminal."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.errors import NotFoundError
from .._base.output import show, show_json, write

if TYPE_CHECKING:
    from ..monitor.memory_monitor import MemoryMonitor
    from ..monitor.reading import Reader, Reading

_REFRESH_S = 1.0
_RATES_S = 8.0  # until the second slow reading: rates are known from it on
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen, without cursor; and back


def add_monitor(commands: Any) -> None:
    """Add the command and its options."""
    monitor = commands.add_parser("monitor", help="watch GPUs, host and a training's processes")
    add = monitor.add_argument
    add("--pid", type=int, help="process of a training: its RAM, with its children's")
    add("--interval", type=float, default=100.0, metavar="MS", help="between samples (default 100)")
    add("--once", action="store_true", help="print one reading")
    add("--json", action="store_true", help="a JSON object for each reading")
    add("--seconds", type=float, metavar="N", help="stop after this time (default: at Ctrl-C)")
    add("--prometheus", type=int, metavar="PORT",
        help="also serve /metrics on this port of 127.0.0.1; 0: any free port")  # fmt: skip
    monitor.set_defaults(run=_monitor)


def _monitor(arguments: argparse.Namespace) -> int:
    from ..monitor.memory_monitor import MemoryMonitor
    from ..monitor.reading import Reader

    if arguments.pid is not None and not _alive(arguments.pid):
        raise NotFoundError(f"there is no process {arguments.pid}", "name one that runs, as ps or nvidia-smi list them")
    with MemoryMonitor(arguments.interval, pid=arguments.pid) as monitor, _metrics(monitor, arguments.prometheus):
        reader = Reader(monitor, arguments.pid)
        if arguments.once:
            _once(reader, arguments.json)
            return 0
        readings = _readings(reader, arguments)
        with contextlib.suppress(KeyboardInterrupt):  # the way out
            if sys.stdout.isatty() and not arguments.json:
                _live(readings)
            else:
                _lines(readings, arguments.json)
    return 0


def _alive(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").is_dir()


@contextlib.contextmanager
def _metrics(monitor: MemoryMonitor, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from ..report import MetricsServer

    with MetricsServer(monitor, port) as server:
        show(f"asrconfig: metrics at {server.url}", sys.stderr)
        yield


def _once(reader: Reader, as_json: bool) -> None:
    deadline = time.monotonic() + _RATES_S
    now = reader.read()
    while now.activity.cpu_share is None and time.monotonic() < deadline:
        time.sleep(0.05)
        now = reader.read()
    if as_json:
        show_json(now.to_json())
    else:
        show(now.screen(shutil.get_terminal_size().columns, 10**6))


def _readings(reader: Reader, arguments: argparse.Namespace) -> Iterator[Reading]:
    """Yield one reading a second, until the time is up or the watched process ends."""
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    pause = max(_REFRESH_S, arguments.interval / 1000)
    while arguments.pid is None or _alive(arguments.pid):
        yield reader.read()
        if end is not None and time.monotonic() + pause > end:
            time.sleep(max(0.0, end - time.monotonic()))
            return
        time.sleep(pause)


def _lines(readings: Iterator[Reading], as_json: bool) -> None:
    for now in readings:
        if not (show_json(now.to_json(), indent=None) if as_json else show(now.screen(brief=True))):
            return


def _live(readings: Iterator[Reading]) -> None:
    """Redraw one screen, and restore the terminal however it ends."""
    before = signal.signal(signal.SIGTERM, _ended)
    write(_ENTER)
    try:
        for now in readings:
            columns, rows = shutil.get_terminal_size()
            lines = now.screen(columns, rows, coloured="NO_COLOR" not in os.environ).splitlines()
            if not write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J"):
                return
    finally:
        signal.signal(signal.SIGTERM, before)
        write(_LEAVE)


def _ended(number: int, _: Any) -> None:
    raise SystemExit(128 + number)
