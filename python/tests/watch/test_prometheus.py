"""The Prometheus endpoint: its text by the format's rules and by the official parser, and its manners."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

prometheus_client = pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from asrconfig_go.errors import InvalidArgumentError, LibraryError, UnsupportedError
from asrconfig_go.watch import MetricsServer
from asrconfig_go.watch.live_readings import MonitorCollector
from asrconfig_go.watch.watch_records import Activity
from run_logs import GIB, Watcher


def families_of(watcher: Watcher) -> dict[str, Any]:
    registry = prometheus_client.CollectorRegistry()
    registry.register(MonitorCollector(watcher))  # type: ignore[arg-type]
    text = prometheus_client.generate_latest(registry).decode()
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


def scraped(server: MetricsServer) -> str:
    with urllib.request.urlopen(server.url, timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def test_endpoint_answers_on_this_machine_alone() -> None:
    with MetricsServer(Watcher(gpu_names=())) as server:  # type: ignore[arg-type]
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
        assert "asrconfig_samples_total 100.0\n" in scraped(server), "silent clients delay nobody"
        for client in silent:
            client.close()
        port = server.port
    with pytest.raises(urllib.error.URLError):
        scraped(server)
    assert repr(server).endswith("stopped)")
    server.stop()
    with MetricsServer(Watcher(), port) as again:  # type: ignore[arg-type]
        assert again.port == port


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
        lines = [line for line in scraped(server).splitlines() if not line.startswith("#")]
    assert lines == ["asrconfig_monitor_running 0.0"]
