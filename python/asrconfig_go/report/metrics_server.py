"""A Prometheus endpoint of a monitor, on this machine alone."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING, Any

from .._base.checks import checked
from .._base.errors import AsrConfigError, InvalidArgumentError
from .prometheus import registry_of

if TYPE_CHECKING:
    from ..monitor.memory_monitor import MemoryMonitor

_HOST = "127.0.0.1"
_PATIENCE_S = 5.0  # with a client, from its connection to the end of its answer
_MAX_CONNECTIONS = 32  # connections at once; one more ends the oldest
_open: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


class MetricsServer:
    """Answers ``GET /metrics`` on 127.0.0.1 from construction until ``stop`` or the end of a ``with`` block.

    ``port`` 0 takes a free one; see ``url``. Each connection has a thread and a few seconds, so that silent clients
    delay no other, and no thread keeps the process alive. The caller stops the monitor. A forked child closes the port.

    Needs ``prometheus_client``, whose own servers bound neither the number of clients nor their time. Raises
    ``UnsupportedError`` without it, and ``InvalidArgumentError`` for a port that is taken or invalid.
    """

    def __init__(self, monitor: MemoryMonitor, port: int = 0) -> None:
        if not 0 <= checked("port", port, int) <= 65535:
            raise InvalidArgumentError(f"invalid port = {port}", "pass 1 to 65535, or 0 for a free one")
        registry = registry_of(monitor)
        try:
            self._server = _Server((_HOST, port), _Handler)
        except OSError as error:
            raise InvalidArgumentError(
                f"port {port} of {_HOST} cannot be taken: {error.strerror or error}", "pass another one, or 0"
            ) from error
        self._server.registry = registry
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


class _Server(ThreadingHTTPServer):
    registry: Any
    request_queue_size = 16
    daemon_threads, block_on_close = True, False

    def __init__(self, *arguments: Any) -> None:
        self.reading = threading.Lock()  # of the monitor
        self._connections: dict[socket, float] = {}  # and when they were made, the oldest first
        self._changing = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin to answer a client."""
        with self._changing:
            self._connections[request] = time.monotonic()
        self._end(lambda at, _: at < len(self._connections) - _MAX_CONNECTIONS)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a client: answered, ended or gone."""
        with self._changing:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections that last too long; called ten times a second."""
        late = time.monotonic() - _PATIENCE_S
        self._end(lambda _, since: since < late)

    def server_close(self) -> None:
        """Close the port and every connection."""
        super().server_close()
        self._end(lambda *_: True)

    def _end(self, chosen: Callable[[int, float], bool]) -> None:
        """End connections by their place and time: their threads read or write no more, and close them."""
        with self._changing:
            for at, (connection, since) in enumerate(self._connections.items()):
                if chosen(at, since):
                    with contextlib.suppress(OSError):
                        connection.shutdown(SHUT_RDWR)

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
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        try:
            with self.server.reading:
                body = encode(self.server.registry)
        except AsrConfigError as error:
            self.send_error(503, "the monitor cannot be read", error.message)
            return
        self.send_response(200)
        self.send_header("Content-Type", content_type)
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
