"""The Prometheus endpoint: its text by the format's rules and by the official parser, and its manners."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

prometheus_client = pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from asrconfig_go.errors import InvalidArgumentError, LibraryError, UnsupportedError
from asrconfig_go.watch import MetricsServer
from asrconfig_go.watch.prometheus import MonitorCollector, registry_of
from asrconfig_go.watch.run_log import Activity
from locations import HELPERS
from run_logs import GIB, Watcher


def families_of(watcher: Watcher) -> dict[str, Any]:
    text = prometheus_client.generate_latest(registry_of(watcher)).decode()  # type: ignore[arg-type]
    assert "None" not in text and "nan" not in text
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_metrics_have_what_is_known_and_no_more() -> None:
    families = families_of(Watcher())
    samples = [sample for family in families.values() for sample in family.samples]
    values = {(s.name, *(text for _, text in sorted(s.labels.items()))): s.value for s in samples}
    name = 'A "card" \\ of\\n{several="lines"} 1\\n\\x1b'
    assert values["asrconfig_gpu_memory_used_bytes", "0", name] == 20 * GIB
    assert values["asrconfig_gpu_torch_reserved_bytes", "0", name] == 2 * GIB
    assert values["asrconfig_gpu_headroom_bytes", "0", name] == 5 * GIB
    assert values["asrconfig_gpu_utilization_ratio", "0", name] == 0.5
    assert values["asrconfig_gpu_clock_hertz", "0", name] == 1905500000
    assert values["asrconfig_gpu_throttled", "0", name, "heat"] == 1
    assert values["asrconfig_gpu_throttled", "0", name, "power limit"] == 0
    assert values["asrconfig_alert_active", "0", "leak", "warn"] == 2
    assert values["asrconfig_alert_active", "", "leak", "warn"] == 1
    assert values["asrconfig_samples_total",] == 100
    assert values["asrconfig_cpu_busy_ratio",] == 0.25
    assert not any(key[1:2] == ("1",) for key in values), "a GPU that does not answer"
    assert not any("swap" in name for name in families), "no family without a sample"
    assert families["asrconfig_samples"].type == "counter"
    assert len(families) > 15


def test_a_registry_of_one_s_own_takes_the_collector() -> None:
    registry = prometheus_client.CollectorRegistry()
    registry.register(MonitorCollector(Watcher()))  # type: ignore[arg-type]
    assert registry.get_sample_value("asrconfig_cpu_busy_ratio") == 0.25


def test_without_prometheus_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UnsupportedError, match="needs prometheus_client") as caught:
        MetricsServer(Watcher())  # type: ignore[arg-type]
    assert "pip install prometheus-client" in str(caught.value.hint)


def test_endpoint_answers_on_this_machine_alone() -> None:
    with MetricsServer(Watcher(gpu_names=())) as server:  # type: ignore[arg-type]
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(server.url, timeout=5) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            assert "Python" not in (answer.headers["Server"] or "")
            assert "asrconfig_samples_total 100.0\n" in answer.read().decode()
        for path, code in (("/", 404), ("/metrics/..", 404)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5)
            assert caught.value.code == code
            caught.value.close()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(server.url, data=b"x", timeout=5)
        assert caught.value.code == 501
        caught.value.close()
        port = server.port
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)
    assert repr(server).endswith("stopped)")
    server.stop()
    with MetricsServer(Watcher(), port) as again:  # type: ignore[arg-type]
        assert again.port == port


def scrape_s(server: MetricsServer) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(server.url, timeout=60) as answer:
        assert b"asrconfig_samples_total 100" in answer.read()
    return time.monotonic() - began


@pytest.mark.parametrize("sent", [b"", b"GET /metr"])
def test_silent_clients_delay_nobody(sent: bytes) -> None:
    with MetricsServer(Watcher()) as server:  # type: ignore[arg-type]
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
        for client in silent:
            client.sendall(sent)
        assert scrape_s(server) < 4, "they used to have five seconds each, one after the other"
        for client in silent:
            client.close()


@pytest.mark.slow
def test_connections_are_bounded_in_number_and_time() -> None:
    before = threading.active_count()
    with MetricsServer(Watcher()) as server:  # type: ignore[arg-type]
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        assert scrape_s(server) < 4
        assert threading.active_count() - before <= 40
        dripping = socket.create_connection(("127.0.0.1", server.port))
        for _ in range(200):  # at most 20 s
            try:
                dripping.sendall(b"x")
            except OSError:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("a client that goes on to send a byte now and then is never ended")
        for client in [*silent, dripping]:
            client.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b"", "ended by the server"
            client.close()


def test_a_taken_port_and_no_port_are_clear_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidArgumentError, match=f"port {port} of 127.0.0.1 cannot be taken: Address already"):
            MetricsServer(Watcher(), port)  # type: ignore[arg-type]
    for wrong in (-1, 65536, "x", True):
        with pytest.raises(InvalidArgumentError, match="port = "):
            MetricsServer(Watcher(), wrong)  # type: ignore[arg-type]


def test_a_monitor_that_cannot_be_read_is_no_end() -> None:
    class Broken(Watcher):
        def activity(self) -> Activity:
            raise LibraryError("poisoned", "restart")

    with MetricsServer(Broken()) as server:  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(server.url, timeout=5)
            assert caught.value.code == 503
            caught.value.close()


FORKED = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from asrconfig_go.watch import MetricsServer
from run_logs import Watcher
server = MetricsServer(Watcher())
ready, told = os.pipe()
child = os.fork()
if child == 0:
    os.read(ready, 1)
    os._exit(0)
server.stop()
socket.create_server(("127.0.0.1", server.port)).close()  # free, though a forked child lives
os.write(told, b"x")
os.waitpid(child, 0)
MetricsServer(Watcher())  # is not stopped: a process ends all the same
print("ended")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_lets_go_and_no_process_is_kept() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(HELPERS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
