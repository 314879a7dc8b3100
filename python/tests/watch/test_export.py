"""A run's series for other programs: the numbers are those of the run log, and nothing that is not known is a zero."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError, NotFoundError
from asrconfig_go.watch import export
from asrconfig_go.watch.telemetry import RunLog
from run_logs import GIB, START, Json, empty, put_activity, put_alert, put_event, put_memory, put_step, saved


@pytest.fixture
def two() -> Json:
    """Two GPUs, each kind of row once."""
    run_log = empty(2)
    put_memory(run_log, 0.0, 3 * GIB, 5 * GIB, None)
    put_activity(run_log, 1.0, {"utilization": 0.5, "throttle": 3}, {"power_w": 70.5}, cpu_share=0.25)
    put_step(
        run_log, 2.5, 7, gpu=1, spent_s=1.5, waited_s=0.5, audio_s=33.0, peak_allocated_bytes=GIB, headroom_bytes=0
    )
    put_step(run_log, 3.0, 7, "checkpoint")
    put_event(run_log, 3.5, "training", 'ends, "well"\nand truly', -1)
    put_alert(run_log, 4.0, "leak", "=1+1", gpu=1, steps_left=110.0, cleared_s=5.0, advice="@SUM(A1)")
    return run_log


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_for_everything(two: Json, tmp_path: Path) -> None:
    export(RunLog.from_json(two), tmp_path / "run.csv")
    rows = rows_of(tmp_path / "run.csv")
    assert [row["series"] for row in rows] == ["memory", "activity", "step", "step", "event", "alert"]
    cells = [{name: cell for name, cell in row.items() if cell} for row in rows]
    assert cells[0] == {
        "time_s": "0",
        "unix_s": f"{START}",
        "series": "memory",
        "host_used_bytes": f"{3 * GIB}",
        "gpu0_used_bytes": f"{5 * GIB}",
    }
    assert cells[1] == {
        "time_s": "1",
        "unix_s": f"{START + 1}",
        "series": "activity",
        "cpu_share": "0.25",
        "gpu0_utilization": "0.5",
        "gpu0_throttle": "3",
        "gpu1_power_w": "70.5",
    }
    assert cells[2]["step"] == "7" and cells[2]["gpu"] == "1" and cells[2]["headroom_bytes"] == "0"
    assert cells[2]["audio_s"] == "33" and cells[2]["spent_s"] == "1.5"
    assert cells[3]["kind"] == "checkpoint" and "gpu" not in cells[3]
    assert cells[4]["text"] == 'ends, "well"\nand truly'
    assert cells[5]["text"] == "'=1+1" and cells[5]["advice"] == "'@SUM(A1)", "no formula for a spreadsheet"
    assert cells[5]["cleared_s"] == "5"


def test_jsonl_tells_the_run_first(two: Json, tmp_path: Path) -> None:
    export(RunLog.from_json(two), tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    head, *rows = lines
    assert (head["series"], head["gpus"][1]["uuid"], head["host"]["cpus"]) == ("run", "GPU-1", 8)
    assert [row["series"] for row in rows] == ["memory", "activity", "step", "step", "event", "alert"]
    assert "gpu1_used_bytes" not in rows[0]
    assert rows[4]["text"] == 'ends, "well"\nand truly'
    assert rows[5]["text"] == "=1+1"
    assert rows[5]["steps_left"] == 110.0


def test_chrome_trace(two: Json, tmp_path: Path) -> None:
    export(RunLog.from_json(two), tmp_path / "run.json")
    trace: dict[str, Any] = json.loads((tmp_path / "run.json").read_text())
    by_phase: dict[str, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        by_phase.setdefault(event["ph"], []).append(event)
    assert set(by_phase) == {"M", "C", "X", "i"}
    names = {event["pid"]: event["args"]["name"] for event in by_phase["M"] if event["name"] == "process_name"}
    assert names == {1: "host and steps", 2: "GPU 0: NVIDIA L4", 3: "GPU 1: NVIDIA L4"}
    (step,) = by_phase["X"]
    assert (step["name"], step["ts"], step["dur"], step["args"]["waited_s"]) == ("train 7", 1_000_000, 1_500_000, 0.5)
    counters = {(e["pid"], e["name"]): e["args"] for e in by_phase["C"]}
    assert counters[2, "memory"] == {"used_bytes": 5 * GIB}
    assert (3, "memory") not in counters, "not known is no zero"
    assert counters[3, "PyTorch"] == {"peak_allocated_bytes": GIB, "headroom_bytes": 0}
    assert counters[3, "power"] == {"watts": 70.5}
    instants = [(e["name"], e["ts"], e["s"]) for e in by_phase["i"]]
    assert instants == [
        ("training", 3_500_000, "g"),
        ("alert: leak", 4_000_000, "p"),
        ("cleared: leak", 5_000_000, "p"),
    ]
    assert trace["otherData"]["start_unix_nanos"] == f"{START * 10**9}"


def test_several_monitors_are_told_apart(two: Json, tmp_path: Path) -> None:
    later = json.loads(json.dumps(two))
    later["start_unix_nanos"] += 60 * 10**9
    saved(two, tmp_path / "asrconfig_monitor.json")
    saved(later, tmp_path / "asrconfig_monitor-node1.json")
    export(tmp_path, tmp_path / "run.csv")
    rows = rows_of(tmp_path / "run.csv")
    assert {row["source"] for row in rows} == {"first", "node1"}
    assert [row["time_s"] for row in rows if row["source"] == "node1"][:2] == ["60", "61"]
    assert [row["unix_s"] for row in rows if row["source"] == "node1"][:2] == [f"{START + 60}", f"{START + 61}"]
    export(tmp_path, tmp_path / "run.trace", "chrome")
    events = json.loads((tmp_path / "run.trace").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names[101] == "node1 host and steps"
    assert {event["ts"] for event in events if event["ph"] == "X"} == {1_000_000, 61_000_000}


def test_other_formats_and_places_are_errors(two: Json, tmp_path: Path) -> None:
    run_log = RunLog.from_json(two)
    with pytest.raises(InvalidArgumentError, match=r"cannot tell from 'run\.parquet'"):
        export(run_log, tmp_path / "run.parquet")
    with pytest.raises(InvalidArgumentError, match="unknown format 'xml'"):
        export(run_log, tmp_path / "run.csv", "xml")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="a monitor's own files"):
        export(run_log, tmp_path / "asrconfig_monitor.json")
    with pytest.raises(NotFoundError, match="cannot write"):
        export(run_log, tmp_path / "none" / "run.csv")
    assert list(tmp_path.iterdir()) == []
