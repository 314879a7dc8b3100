"""``asrconfig monitor``: one reading, lines, and the screen, as a person at a terminal sees them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from typing import Any

import pytest

from asrconfig_go.__main__ import main
from asrconfig_go.watch.live_readings import CardProcess, Reading
from asrconfig_go.watch.telemetry import GPUMemory, MemorySnapshot
from asrconfig_go.watch.watch_records import Activity, GPUActivity, RunLogGPU, RunLogHost
from run_logs import GIB, GPU_COLUMNS, HOST_COLUMNS, HOSTILE, alert

BUSY = {"utilization": 0.5, "power_w": 61.0, "temperature_c": 74.0, "clock_mhz": 1905.0, "throttle": 2.0}
COMMAND = [sys.executable, "-m", "asrconfig_go", "monitor"]


def reading(gpus: int, name: str = "NVIDIA L4", **changed: Any) -> Reading:
    """Cards that are five sixths full and held back by heat."""
    card = GPUMemory(24 * GIB, 20 * GIB, 4 * GIB, 21 * GIB, headroom=5 * GIB)
    fields = {"cpu_share": 0.25, "tree_cpu_share": 0.2, "tree_rss_bytes": 3.0 * GIB}
    host: dict[str, Any] = dict.fromkeys(HOST_COLUMNS) | fields
    row = GPUActivity(**(dict.fromkeys(GPU_COLUMNS) | BUSY | {"others_bytes": float(GIB)}))
    current = Reading(
        unix_s=1_790_000_000.0,
        memory=MemorySnapshot(1.0, 100, 0, 32 * GIB, 8 * GIB, 9 * GIB, (card,) * gpus),
        activity=Activity(at_s=1.0, **host, gpus=(row,) * gpus),
        gpus=tuple(RunLogGPU(name, f"GPU-{i}", 24 * GIB, 72.0, 2040.0, False) for i in range(gpus)),
        host=RunLogHost(32 * GIB, 8, 16 * GIB, True),
        processes=((CardProcess(123, "python", 18 * GIB), CardProcess(9, name, GIB)),) * gpus,
        alerts=(),
    )
    return dataclasses.replace(current, **changed)


def shown(now: Reading, width: int = 120, height: int = 50) -> list[str]:
    return now.screen(width, height).splitlines()


def test_screen_shows_gpus_host_and_process() -> None:
    lines = shown(reading(1, pid=77, alerts=(alert(1),)))
    assert re.fullmatch(r"asrconfig monitor · \d\d:\d\d:\d\d · process 77", lines[0])
    assert lines[1] == "GPU 0  NVIDIA L4"
    bar = lines[2].split()[1]
    assert bar.count("█") == round(len(bar) * 20 / 24)
    assert lines[2].endswith("20.0 GiB of 24.0 GiB, 83 %, headroom 5.0 GiB")
    assert lines[3].endswith("░ 50 %")
    assert lines[4] == "  61 W of 72 · 74 °C · 1905 MHz of 2040 · held back by heat"
    assert lines[5] == "  processes  123 python 18.0 GiB, 9 NVIDIA L4 1.0 GiB"
    text = "\n".join(lines)
    assert "8.0 GiB of 32.0 GiB, container's limit, – available" in text
    assert "25 % of 8 cores, the busiest –" in text
    assert "process 77: CPU 20 %, RAM 3.0 GiB, of that its children –; GPU memory 18.0 GiB" in text
    assert lines[-1].startswith("! A ")


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (200, 60)])
@pytest.mark.parametrize("gpus", [0, 1, 16])
def test_screen_fits(width: int, height: int, gpus: int) -> None:
    lines = shown(reading(gpus, name=HOSTILE, alerts=(alert(1), alert(2))), width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert not any("\x1b" in line or "\n" in line for line in lines)
    assert ("no GPU" in lines) == (gpus == 0)
    if (gpus, height) == (16, 60):
        assert sum(line.startswith("GPU ") for line in lines) == 16
        assert "20.0 GiB of 24.0 GiB   50 %    61 W  74 °C  heat" in lines[1]


def test_what_is_not_known_is_a_dash() -> None:
    host: dict[str, Any] = dict.fromkeys(HOST_COLUMNS)
    nothing = GPUActivity(**dict.fromkeys(GPU_COLUMNS))
    lost = reading(
        1,
        memory=MemorySnapshot(None, 0, 0, None, None, None, (GPUMemory(None, None, None, None),)),
        activity=Activity(at_s=None, **host, gpus=(nothing,)),
        processes=(),
    )
    lines = shown(lost)
    assert re.fullmatch(r"  memory  ·+ – of –, –, headroom –", lines[2])
    assert lines[4] == "  – of 72 · – · – of 2040"
    assert lost.screen(brief=True).split(" | ")[1:] == ["GPU 0 – of – – – –", "RAM – of –", "CPU –"]
    assert ", RAM " in dataclasses.replace(lost, pid=77).screen(brief=True).split(" | process 77: CPU ")[1]
    record = json.loads(json.dumps(lost.to_json(), allow_nan=False))
    assert record["gpus"][0]["used_bytes"] is None
    assert record["tree_gpu_bytes"] is None


def test_json_of_a_reading() -> None:
    record = reading(2, pid=77, alerts=(alert(1),)).to_json()
    gpu = record["gpus"][1]
    assert (gpu["gpu"], gpu["uuid"], gpu["used_bytes"], gpu["headroom_bytes"]) == (1, "GPU-1", 20 * GIB, 5 * GIB)
    assert (gpu["utilization"], gpu["pcie_sent_bytes_s"]) == (0.5, None)
    assert gpu["processes"][0] == {"pid": 123, "name": "python", "memory_bytes": 18 * GIB}
    assert (record["host"]["cpus"], record["host"]["host_used_bytes"]) == (8, 8 * GIB)
    assert record["tree_gpu_bytes"] == 2 * (18 + 1 - 1) * GIB, "of both cards, without others'"
    assert record["alerts"][0]["kind"] == "leak"


def test_colours_only_where_something_is_tight() -> None:
    full = reading(1, memory=MemorySnapshot(1.0, 1, 0, 32 * GIB, GIB, GIB, (GPUMemory(100, 96, 4, 96),)))
    bold, bad, warn = "\x1b[1m", "\x1b[31m", "\x1b[33m"
    lines = full.screen(100, 40, coloured=True).splitlines()
    begins = [next((code for code in (bold, bad, warn) if line.startswith(code)), "") for line in lines[:6]]
    assert begins == [bold, bold, bad, "", warn, ""]
    assert all(line.endswith("\x1b[0m") for line, code in zip(lines, begins, strict=False) if code)


def test_once_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--once", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["samples"] >= 1
    assert 0 < record["host"]["host_used_bytes"] < record["host"]["host_total_bytes"]
    assert 0 <= record["host"]["cpu_share"] <= 1, "rates are waited for"
    assert record["host"]["tree_rss_bytes"] > 10e6


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--seconds", "2.5", "--interval", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) in (2, 3), "one a second, the first at once"
    assert all(re.match(r"\d\d:\d\d:\d\d \| .*RAM (\d+\.\d GiB|\d+ MiB) of ", line) for line in lines)
    assert main(["monitor", "--seconds", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pid"] is None


CHILD = "import time; held = bytearray(150_000_000); print('ready', flush=True)\nwhile True: pass"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_a_process_with_its_children(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            assert main(["monitor", "--once", "--json", "--pid", f"{process.pid}"]) == 0
            record = json.loads(capsys.readouterr().out)
            assert record["pid"] == process.pid
            assert 0 < record["host"]["tree_cpu_share"] <= 1
            assert 150e6 < record["host"]["workers_rss_bytes"] < record["host"]["tree_rss_bytes"] < 400e6
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert main(["monitor", "--pid", f"{process.pid}"]) == 1
    assert capsys.readouterr().err.startswith(f"asrconfig: there is no process {process.pid}\n  → ")


def test_ends_with_the_process_that_it_watches() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as watched:
        command = [*COMMAND, "--pid", f"{watched.pid}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert "RAM" in process.stdout.readline()
            assert watched.stdin is not None
            watched.stdin.write(b"\n")
            watched.stdin.close()
            watched.wait(10)
            assert process.wait(20) == 0


def test_metrics_while_it_runs() -> None:
    command = [*COMMAND, "--prometheus", "0", "--seconds", "30"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert "asrconfig_monitor_running 1" in answer.read().decode()
        finally:
            process.kill()


@pytest.mark.usefixtures("heard_ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_terminal_is_left_as_it_was(number: signal.Signals) -> None:
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    with subprocess.Popen(
        COMMAND, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "COLUMNS": "70"}
    ) as process:
        os.close(slave)
        try:
            output = until(master, b"CPU")
            process.send_signal(number)
            output += until(master, b"\x1b[?1049l")
            assert process.wait(10) == (0 if number == signal.SIGINT else 143)
        finally:
            process.kill()
            os.close(master)
    assert output.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H")
    assert output.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")
    assert b"Traceback" not in output
    plain = re.sub(rb"\x1b\[[?0-9;]*[a-zA-Z]", b"", output).decode()
    assert max(map(len, plain.splitlines())) <= 70


def until(master: int, words: bytes) -> bytes:
    """What the terminal got, up to ``words``."""
    output, deadline = b"", time.monotonic() + 20
    while words not in output and time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                output += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
    assert words in output, output
    return output


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--interval", "0", "--once"]) == 1
    assert "interval" in capsys.readouterr().err
    assert main(["monitor", "--prometheus", "70000", "--once"]) == 1
    assert "port = 70000 is not between 0 and 65535" in capsys.readouterr().err
    for seconds, problem in (("nan", "is not finite"), ("-1", "is below 0")):
        assert main(["monitor", "--seconds", seconds]) == 1
        assert f"seconds = {seconds} {problem}" in capsys.readouterr().err
