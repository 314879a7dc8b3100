"""The report of a run: figures worked out by hand, what it says, and what it keeps out."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.__main__ import main
from asrconfig_go._core import native
from asrconfig_go.errors import CorruptFileError, InvalidArgumentError, NotFoundError, VersionMismatchError
from asrconfig_go.guard import BadBatch, BadClip
from asrconfig_go.guard.training_report import GuardEvent, MemoryFailure
from asrconfig_go.predict.predict_records import HeldRow, PredictedMoment
from asrconfig_go.train.run_record import RunFolder, RunRecord
from asrconfig_go.watch import RunReport, report
from asrconfig_go.watch.memory_summary import RankPeaks
from asrconfig_go.watch.telemetry import RunLog
from html_checks import charts, tags
from made_runs import logged, trained
from run_logs import GIB, START, Json, empty, put_activity, put_alert, put_event, put_memory, put_step, saved


def told(run_log: Json) -> RunReport:
    return report(RunLog.from_json(run_log))


@pytest.fixture
def small() -> Json:
    """Ten seconds on one GPU, in figures that can be added up."""
    run_log = empty(1)
    for at, used in ((0, 4), (2, 10), (4, 20), (6, 18), (8, 18), (10, 6)):
        put_memory(run_log, at, (8 + at) * GIB, used * GIB)
    for at, watts, busy, throttle in ((0, 36, 0.5, 0), (2, 72, 1.0, 2), (4, 72, 1.0, 3), (6, None, None, None)):
        row = {"power_w": watts, "utilization": busy, "throttle": throttle, "temperature_c": 60 + at}
        put_activity(run_log, at, row, cpu_share=0.25, host_available_bytes=(20 - at) * GIB, disk_read_bytes_s=1e6 * at)
    for number, (end, spent, waited) in enumerate(((2.0, 1.0, 0.25), (4.0, 2.0, 0.5), (6.0, 2.0, 0.0)), 1):
        memory: dict[str, Any] = {
            "allocated_bytes": 2 * GIB,
            "peak_allocated_bytes": (4 + 4 * number) * GIB,
            "headroom_bytes": 20 * GIB,
        }
        times: dict[str, Any] = {
            "spent_s": spent,
            "waited_s": waited,
            "arithmetic_s": 0.3 * spent,
            "audio_s": 40.0,
            "padded_s": 50.0,
            "longest_s": 10.0 + number,
        }
        put_step(run_log, end, number, gpu=0, peak_reserved_bytes=17 * GIB, **times, **memory)
    put_step(run_log, 8.0, 3, "evaluation", gpu=0, spent_s=1.5)
    return run_log


def test_figures_are_those_of_the_story(small: Json) -> None:
    r = told(small)
    gpu, steps, host = r.gpus[0], r.steps, r.hosts[0]
    assert (gpu.used_peak_bytes, gpu.used_peak_at_s) == (20 * GIB, 4)
    assert gpu.used_mean_bytes == pytest.approx((4 + 10 + 20 + 18 + 18 + 6) / 6 * GIB)
    assert (gpu.allocated_peak_bytes, gpu.reserved_peak_bytes) == (16 * GIB, 17 * GIB)
    assert (gpu.headroom_lowest_bytes, gpu.headroom_lowest_at_s) == (6 * GIB, 6.0), "20 less the 14 freed again"
    assert gpu.utilization == pytest.approx(2.5 / 3)
    assert gpu.energy_wh == pytest.approx((36 + 72 + 72) * 2 / 3600)
    assert r.energy_wh == gpu.energy_wh
    assert gpu.temperature_peak_c == 66
    assert gpu.throttled == pytest.approx({"power limit": 1 / 3, "heat": 2 / 3})
    assert (steps.train, steps.evaluation, steps.checkpoint, steps.first, steps.last) == (3, 1, 0, 1, 3)
    assert steps.steps_per_s == pytest.approx(3 / 5)
    assert steps.audio_rate == pytest.approx(120 / 5)
    assert steps.padding == pytest.approx(0.2)
    assert steps.waited == pytest.approx(0.75 / 5)
    assert (steps.longest_clip_s, steps.evaluation_s) == (13.0, 1.5)
    assert (host.used_peak_bytes, host.available_lowest_bytes) == (18 * GIB, 14 * GIB)
    assert host.disk_read_bytes_s == pytest.approx(3e6)
    assert host.swap_peak_bytes is None
    assert r.headline == (
        "3 steps in 10 s on NVIDIA L4; 0.6 steps/s in 50 % of the time; GPU 83 % busy; "
        "at least 6.0 GiB of GPU memory left"
    )


def test_energy_is_not_counted_across_a_gap() -> None:
    run_log = empty(1)
    for at in (0, 1, 2, 3, 1000, 1001, 1002):
        put_activity(run_log, at, {"power_w": 3600.0})
    assert told(run_log).energy_wh == pytest.approx(7.0), "seven seconds of 3600 W, not a thousand"


def test_text_and_card_name_findings_alerts_and_what_became_of_them() -> None:
    r = told(trained())
    text, card = " ".join(str(r).split()), r._repr_html_()
    first = r.findings[0]
    assert [f.kind for f in r.findings[:2]] == ["leak", "out_of_memory"]
    assert "65.1 MiB with every step since step 490" in first.evidence
    assert not any("halve per_device" in f.change for f in r.findings)
    for words in (first.title, first.evidence, f"→ {first.change}"):
        assert words in text and words in card, words
    assert r.to_json()["findings"][0]["change"] == first.change
    assert "workers' RAM grows 2.67 GiB/min" in text
    assert "passed after 5.4 min" in text
    assert "came true 5.39 min later (warned of 5.32 min)" in text
    assert "came true 5.39 min later (warned of 5.32 min)" in card
    assert "→ something keeps a tensor of every step" in text and "→ something keeps a tensor of every step" in card
    assert "CUDA out of memory. Tried to allocate 1.20 GiB" in text
    assert repr(r).startswith("RunReport('649 steps in 30 min on NVIDIA L4")
    titles = [svg.get("aria-label") for svg in charts(card)]
    assert titles[:2] == ["GPU 0: Memory", "GPU 0: Utilisation"]
    assert {"Seconds a step", "Host RAM", "Processors", "Disk and network"} <= set(titles)


def test_what_becomes_of_alerts() -> None:
    run_log = empty(2)
    for at in range(100):
        put_memory(run_log, at, GIB, GIB, GIB)
        put_activity(run_log, at, {}, {}, host_available_bytes=0.001 * GIB if at == 70 else 9 * GIB)
    put_alert(run_log, 10, "leak", "of the other GPU", gpu=1, seconds_left=25.0)
    put_alert(run_log, 20, "full", "cleaned up", gpu=0, cleared_s=25.0)
    put_alert(run_log, 30, "full", "nothing came of it", gpu=0, cleared_s=38.0)
    put_alert(run_log, 60, "host_ram", "RAM was used up", cleared_s=80.0)
    put_alert(run_log, 90, "shm", "held")
    put_event(run_log, 24, "clean_up", "cache emptied", 0)
    put_event(run_log, 35, "out_of_memory", "CUDA out of memory", 1)
    outcomes = {o.alert.text: (o.what, o.after_s) for o in told(run_log).alerts}
    assert outcomes == {
        "of the other GPU": ("came true", 25),
        "cleaned up": ("averted", 5),
        "nothing came of it": ("cleared", 8),
        "RAM was used up": ("came true", 10),
        "held": ("held", None),
    }


@pytest.mark.parametrize("gpus", [0, 1, 16])
def test_any_number_of_gpus(gpus: int) -> None:
    r = told(trained(seconds=300, gpus=gpus, points=100, rows=60, steps=40))
    card = r._repr_html_()
    tags(card)
    assert len(r.gpus) == gpus
    assert ("on the CPU" in r.headline) == (gpus == 0)
    memory = [svg for svg in charts(card) if (svg.get("aria-label") or "").endswith(" Memory")]
    assert len(memory) == gpus
    assert ("12 more GPUs, with more headroom" in card) == (gpus == 16)
    assert f"{r}".count("GPU 15") == (1 if gpus == 16 else 0)
    if gpus == 16:
        assert r.headline.split("; ")[0].endswith("on 16 × NVIDIA L4")


def test_a_story_of_nothing_is_told_as_such() -> None:
    r = told(empty())
    assert r.headline == "0 ms on the CPU"
    assert "<svg" not in r._repr_html_()
    assert json.loads(json.dumps(r.to_json(), allow_nan=False))["steps"]["train"] == 0
    with pytest.raises(NotFoundError, match="nothing to draw"):
        r.plot()


def test_without_steps_there_is_no_axis_of_steps(tmp_path: Path) -> None:
    run_log = empty(1)
    put_memory(run_log, 0, GIB, GIB)
    put_memory(run_log, 5, GIB, GIB)
    r = told(run_log)
    assert "steps/s" not in r.headline
    with pytest.raises(InvalidArgumentError, match="reported no training steps"):
        replace(r, by="steps").to_html(tmp_path / "r.html")
    with pytest.raises(InvalidArgumentError, match="is not one of 'time', 'steps'"):
        report(RunLog.from_json(run_log), by="epochs")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"does not end with \.html"):
        r.to_html(tmp_path / "r.txt")
    assert list(tmp_path.iterdir()) == []


def test_columns_that_are_not_known_are_no_zeros() -> None:
    run_log = empty(1)
    for at in range(20):
        put_memory(run_log, at, None, None)
        put_activity(run_log, at, {}, cpu_share=None)
        put_step(run_log, at + 0.5, at + 1)
    r = told(run_log)
    gpu = r.gpus[0]
    assert (gpu.used_peak_bytes, gpu.utilization, gpu.energy_wh, gpu.headroom_lowest_bytes) == (None,) * 4
    assert r.steps.train == 20
    assert (r.steps.steps_per_s, r.steps.waited, r.steps.padding) == (None, None, None)
    assert "<svg" not in r._repr_html_()
    assert "–" in str(r)


HOSTILE = '<script>alert("x")</script>\x1b[2J\u202e&'


def test_names_and_texts_of_others_do_no_harm(small: Json) -> None:
    small["gpus"][0]["name"] = HOSTILE
    put_event(small, 1, HOSTILE, HOSTILE)
    put_alert(small, 1, HOSTILE, HOSTILE, gpu=0, advice=HOSTILE, severity=HOSTILE)
    small["steps"]["kind"][0] = HOSTILE
    r = told(small)
    card = r._repr_html_()
    assert "script" not in tags(card).seen
    charts(card)
    for text in (card, str(r)):
        assert "\x1b" not in text and "\u202e" not in text
    assert json.loads(json.dumps(r.to_json()))["gpus"][0]["name"] == HOSTILE


def test_page_stands_alone_in_light_and_dark(tmp_path: Path) -> None:
    told(trained()).to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    parser = tags(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(parser.seen)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in page
    assert len(page) < 300_000


def test_a_folder_is_one_run(tmp_path: Path) -> None:
    """Two ranks that see the same GPUs, a second machine, and a restart of the first an hour later."""
    first, rank, other, again = (empty(2) for _ in range(4))
    for run_log, used in ((first, 10), (rank, 10), (other, 12), (again, 14)):
        for at in range(11):
            put_memory(run_log, at, GIB, used * GIB, used * GIB)
            put_activity(run_log, at, {"power_w": 360.0}, {"power_w": 360.0})
    for run_log, gpu, numbers in ((first, 0, range(1, 6)), (rank, 1, range(1, 6)), (again, 0, range(4, 9))):
        for place, number in enumerate(numbers):
            put_step(run_log, 2 * place + 1, number, gpu=gpu, spent_s=1.0, audio_s=10.0, peak_allocated_bytes=gpu * GIB)
    other["gpus"] = [{**gpu, "uuid": f"other {i}"} for i, gpu in enumerate(other["gpus"])]
    rank["start_unix_nanos"] += 10**9 // 2
    again["start_unix_nanos"] += 3600 * 10**9
    for name, run_log in (("", first), ("-rank1", rank), ("-node1", other), ("-restart1", again)):
        saved(run_log, tmp_path / f"asrconfig_monitor{name}.json")
    r = report(tmp_path)
    assert r.notes == ()
    assert [gpu.label for gpu in r.gpus] == ["GPU 0", "GPU 1", "node1 GPU 0", "node1 GPU 1"]
    assert [gpu.used_peak_bytes for gpu in r.gpus] == [14 * GIB, 14 * GIB, 12 * GIB, 12 * GIB]
    assert r.gpus[0].energy_wh == pytest.approx(22 * 0.1), "of both processes, of two ranks once"
    assert r.gpus[1].allocated_peak_bytes == GIB, "which the other rank tells"
    assert (r.steps.train, r.steps.first, r.steps.last) == (10, 1, 8)
    assert r.steps.audio_rate == pytest.approx(15.0)
    assert r.duration_s == pytest.approx(3610)
    assert [host.label for host in r.hosts] == ["", "node1"]


def test_a_monitor_has_a_report_while_it_runs_and_after() -> None:
    with ac.MemoryMonitor(5) as monitor:
        for _ in range(3):
            monitor.step(spent_s=0.5, waited_s=0.25)
        running = report(monitor)
    after = report(monitor)
    for r in (running, after):
        assert (r.steps.train, r.steps.steps_per_s, r.steps.waited) == (3, 2.0, 0.5)
    assert after.sources[0].run_log.samples > 0
    assert after.hosts[0].used_peak_bytes


def test_a_file_that_cannot_be_read_beside_others_is_a_note(tmp_path: Path, small: Json) -> None:
    saved(small, tmp_path / "asrconfig_monitor.json")
    (tmp_path / "asrconfig_monitor-rank1.json").write_text('{"version": 1')
    r = report(tmp_path)
    assert r.steps.train == 3
    assert [note for note in r.notes if "asrconfig_monitor-rank1.json ends in the middle" in note]


def test_what_was_held_when_memory_ran_out_is_told(tmp_path: Path, small: Json) -> None:
    saved(small, tmp_path / "asrconfig_monitor.json")
    begin = small["start_unix_nanos"] / 1e9
    rows = (HeldRow("others", "*", 5 * GIB, 3 * GIB), HeldRow("parameters", "*", GIB, GIB))
    moment = PredictedMoment("micro", "backward", "aten.mm.default", "lm_head", 2)
    failure = MemoryFailure(
        "training", 2, 0, begin + 1, 8, 10.0, "backward", "", 7 * GIB, 6 * GIB, 4 * GIB, moment, rows
    )
    earlier = replace(failure, place="optimizer", at_unix_s=begin - 60)
    for record in (failure, earlier):
        (tmp_path / f"_asrconfig-oom-{record.place}.json").write_text(json.dumps(asdict(record)))
    (tmp_path / "_asrconfig-oom-evaluation.json").write_text('{"place": 1}')
    r = report(tmp_path)
    assert r.failures == (failure,), "without those of an earlier training"
    assert [note for note in r.notes if "_asrconfig-oom-evaluation.json cannot be read" in note]
    assert r.to_json()["out_of_memory"] == [asdict(failure)]
    r.to_html(tmp_path / "run.html")
    for text in (str(r), unescape((tmp_path / "run.html").read_text("utf-8"))):
        assert "backward: 6.00 GiB held of 7.00 GiB reserved" in text
        assert "+2.00 GiB" in text


def test_what_lies_beside_the_story_is_told(tmp_path: Path, small: Json) -> None:
    file = saved(small, tmp_path / "asrconfig_monitor.json")
    record = RunRecord((4, 2, 1), 1, 100, None)
    record.events.append(GuardEvent("training", 2, 4, 2, "CUDA out of memory", snapshot="out/_asrconfig-oom.pickle"))
    clip = BadClip(7, "clips/7.wav", "one", 1.5, 3, None, None, "its loss is nan", ())
    record.bad_batches.append(BadBatch(2, "loss", "the loss is not finite", (clip,), "left out", "my out/bad-batch"))
    RunFolder(tmp_path).write(record)
    state = {"global_step": 3, "max_steps": 10, "epoch": 0.5, "log_history": [{"loss": 4.25}, {"eval_loss": 1}]}
    told_by = asdict(RankPeaks(1, "cuda:1", 3 * GIB, 4 * GIB, GIB))
    (tmp_path / ".asrconfig" / "memory-rank1.json").write_text(json.dumps(told_by))
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-10").mkdir()
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text("{")
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text(json.dumps(state))
    r = report(file)
    assert "Trainer: step 3 of 10, epoch 0.5, last loss 4.25" in str(r)
    assert "guard: memory ran out once" in str(r)
    assert "memory snapshot of that moment, for pytorch.org/memory_viz: out/_asrconfig-oom.pickle" in str(r)
    assert "rank 1 (cuda:1): allocated 3.0 GiB, reserved 4.0 GiB, RAM 1.0 GiB" in str(r)
    assert f"bad clips: {record.bad_batches[0]}" in " ".join(str(r).split())
    assert "asrconfig replay 'my out/bad-batch'" in " ".join(str(r).split())
    assert r.to_json()["guard"]["bad_batches"][0]["clips"][0]["row"] == 7
    assert r.to_json()["ranks"] == [told_by]
    assert [(m.at_s, m.kind) for m in r.events] == [(4.0, "guard")] * 2
    assert r.to_json()["guard"]["events"][0]["micro_batch_after"] == 2
    put_event(small, 3.9, "out_of_memory", str(record.events[0]))
    saved(small, file)
    assert [m.kind for m in report(file).events] == ["out_of_memory", "guard"], "told once"
    (tmp_path / ".asrconfig" / "memory-rank2.json").write_text("{")
    assert any("memory-rank2.json ends in the middle" in note for note in report(tmp_path).notes)
    (tmp_path / "trainer_state.json").write_text('{"global_step": "x"}')
    assert any("trainer_state.json cannot be read" in note for note in report(tmp_path).notes)


def test_what_the_trainer_logged_is_drawn_with_gaps_for_what_is_missing(tmp_path: Path) -> None:
    run_log = trained(seconds=600, points=300, rows=150, steps=200, leak=False)
    saved(run_log, tmp_path / "asrconfig_monitor.json")
    state = logged(run_log, every=5)
    losses = [entry for entry in state["log_history"] if "loss" in entry]
    losses[3]["loss"] = losses[-1]["loss"] = math.nan
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    r = report(tmp_path)
    assert r.trainer is not None
    assert r.history[3]["loss"] is None and r.trainer.last_loss is None
    drawn = {svg.get("aria-label"): svg for svg in charts(r._repr_html_())}
    assert {"Loss", "WER", "Learning rate"} <= set(drawn)
    paths = [path for path in drawn["Loss"].iter() if path.tag.endswith("path")]
    titles = [[child.text for child in path] for path in paths]
    assert titles == [["training"], ["evaluation"]]
    assert (paths[0].get("d") or "").count("M") == 3, "broken where one is missing and where one is not a number"
    assert (paths[1].get("d") or "").count("M") == 1, "the time between two evaluations is no gap"
    text = str(r)
    assert "Loss               |" in text and "WER                |" in text
    by_steps = report(tmp_path, by="steps")
    assert "optimizer step" in str(by_steps) and "optimizer step" not in text
    by_steps.to_html(tmp_path / "steps.html")
    assert 'aria-label="Loss"' in (tmp_path / "steps.html").read_text()
    state["log_history"] = [{"step": 1, "loss": 10**400}]
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert any("trainer_state.json cannot be read" in note for note in report(tmp_path).notes)


def test_settings_are_those_of_the_nearest_source(tmp_path: Path, small: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []
    call = native.call

    def observed(op: str, args: Json) -> Any:
        requests.append(args.get("settings"))
        return call(op, args)

    monkeypatch.setattr(native, "call", observed)
    saved(small, tmp_path / "asrconfig_monitor.json")
    state = {"global_step": 3, "max_steps": 10, "logging_steps": 5, "eval_steps": 0.1, "save_steps": 50}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    plan = {"dataloader_num_workers": 2, "dataloader_pin_memory": True, "save_steps": 40, "fp16": True, "bf16": False}
    (tmp_path / "training_config.json").write_text(json.dumps(plan))
    report(tmp_path)
    assert requests.pop() == {
        "logging_steps": 5,
        "save_steps": 40,
        "workers": 2,
        "pin_memory": True,
        "precision": "fp16",
    }
    RunFolder(tmp_path).write(RunRecord((4, 2, 3), 1, 100, None))
    report(tmp_path, {"dataloader_num_workers": 7, "gradient_accumulation_steps": 1})
    settings = requests.pop()
    assert (settings["workers"], settings["accumulation"], settings["devices"]) == (7, 2, 3)


def changed(run_log: Json, series: str, column: str, values: list[Any]) -> Json:
    return {**run_log, series: {**run_log[series], column: values}}


def test_anything_else_is_one_clear_error(tmp_path: Path, small: Json, capsys: pytest.CaptureFixture[str]) -> None:
    intact = json.dumps(small)
    contents = {
        "empty": ("", CorruptFileError, "is empty"),
        "cut": (intact[: len(intact) // 2], CorruptFileError, "ends in the middle"),
        "corrupt": ('{"version": 1,,}', CorruptFileError, "is not JSON"),
        "list": ("[1]", CorruptFileError, "holds no run log"),
        "deep": ("[" * 100_000, CorruptFileError, "cut"),
        "shorter": (json.dumps(changed(small, "steps", "spent_s", [1.0])), CorruptFileError, "1 entries, not 4"),
        "words": (json.dumps(changed(small, "steps", "number", ["a"] * 4)), CorruptFileError, "whole number"),
        "infinite": (json.dumps(changed(small, "memory", "host_used_bytes", [1e400] * 6)), CorruptFileError, "finite"),
        "cards": (json.dumps({**small, "gpus": []}), CorruptFileError, "0 GPUs"),
        "fields": ('{"version": 1}', CorruptFileError, "fields"),
        "newer": (json.dumps({**small, "version": 2}), VersionMismatchError, "version 2"),
    }
    for name, (text, kind, words) in contents.items():
        path = tmp_path / f"{name}.json"
        path.write_text(text)
        with pytest.raises(kind) as caught:
            report(path)
        assert str(path) in str(caught.value), name
        assert caught.value.hint, name
        assert name == "deep" or words in caught.value.message, (name, caught.value.message)
        assert main(["report", str(path)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("asrconfig: ") == 1
    with pytest.raises(NotFoundError, match="there is no run"):
        report(tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match=r"holds no asrconfig_monitor\.json"):
        report(tmp_path)
    with pytest.raises(InvalidArgumentError, match="int is not a run"):
        report(5)  # type: ignore[arg-type]


def test_report_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(trained(seconds=120, points=60, rows=40, steps=30), tmp_path / "asrconfig_monitor.json")
    outputs = ["--html", str(tmp_path / "r.html"), "--export", str(tmp_path / "r.csv")]
    assert main(["report", str(tmp_path), *outputs]) == 0
    assert capsys.readouterr().out.startswith("29 steps in 2 min on NVIDIA L4; 0.262 steps/s in 92 % of the time; ")
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "r.csv").read_text().startswith("time_s,unix_s,series,host_used_bytes,gpu0_used_bytes,")
    assert main(["report", str(tmp_path), "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["report_version"] == 1
    assert answer["start_unix_s"] == START
    assert [alert["outcome"] for alert in answer["alerts"]] == ["cleared", "came true"]
    assert main(["report", str(tmp_path), "--html", str(tmp_path / "none" / "r.html")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_drawing_by_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    saved(trained(seconds=120, gpus=6, points=60, rows=40, steps=30), tmp_path / "asrconfig_monitor.json")
    assert main(["report", str(tmp_path), "--by", "steps", "--plot", str(tmp_path / "r.png")]) == 0
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert main(["report", str(tmp_path), "--plot", str(tmp_path / "r.tiff2")]) == 1
    assert "cannot tell from" in capsys.readouterr().err
    r = report(tmp_path)
    figure = r.plot(gpus=[5])
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == [
        "GPU 5: Memory",
        "GPU 5: Utilisation",
        "Seconds a step",
        "Host RAM",
        "Processors",
        "Disk and network",
    ]
    peak = r.gpus[5].used_peak_bytes
    assert peak is not None
    assert figure.axes[0].get_lines()[0].get_ydata().max() == pytest.approx(peak / GIB)
    with pytest.raises(InvalidArgumentError, match="6 is not one of 6 GPUs"):
        r.plot(gpus=[6])
    pyplot.close("all")
