"""A Prometheus endpoint of a monitor, on this machine alone."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

from .._checks import checked
from .._errors import AsrConfigError, InvalidArgumentError
from .prometheus import CONTENT_TYPE, exposition

if TYPE_CHECKING:
    from ..monitor import MemoryMonitor

_HOST = "127.0.0.1"
_PATIENCE_S = 5.0  # with a client that sends nothing
_open: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


class MetricsServer:
    """Answers ``GET /metrics`` on 127.0.0.1 from construction until ``stop`` or the end of a ``with`` block.

    ``port`` 0 takes one that is free; ``url`` tells it. One thread answers one request after another and keeps no
    process alive; the monitor is the caller's to stop. A forked child lets go of the port.

    Raises ``InvalidArgumentError`` for a port that is taken, or is none.
    """

    def __init__(self, monitor: MemoryMonitor, port: int = 0) -> None:
        if not 0 <= checked("port", port, int) <= 65535:
            raise InvalidArgumentError(f"port = {port} is none", "pass 1 to 65535, or 0 for one that is free")
        try:
            self._server = _Server((_HOST, port), _Handler)
        except OSError as error:
            raise InvalidArgumentError(
                f"port {port} of {_HOST} cannot be taken: {error.strerror or error}", "pass another one, or 0"
            ) from error
        self._server.monitor = monitor
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="asrconfig-metrics", daemon=True
        )
        self._thread.start()
        _open.add(self)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return f"http://{_HOST}:{self.port}/metrics"

    def stop(self) -> None:
        """Answer no more, and free the port. Stopping twice is harmless."""
        if self in _open:
            _open.discard(self)
            self._server.shutdown()
            self._thread.join(2 * _PATIENCE_S)
            self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"MetricsServer({self.url}{'' if self in _open else ', stopped'})"


class _Server(HTTPServer):
    monitor: MemoryMonitor
    request_queue_size = 16

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no news for a training's log."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S
    server_version, sys_version = "asrconfig", ""

    def do_GET(self) -> None:
        if self.path.split("?", 1)[0] != "/metrics":
            self.send_error(404, "there is /metrics alone")
            return
        try:
            body = exposition(self.server.monitor).encode()
        except AsrConfigError as error:
            self.send_error(503, "the monitor cannot be read", error.message)
            return
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: a scrape each few seconds is no news."""


def _let_go() -> None:
    """In a forked child: the port is the parent's."""
    for server in list(_open):
        with contextlib.suppress(OSError):
            server._server.socket.close()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
