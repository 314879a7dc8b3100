"""The parts of the watching: messages, the loader's share, lengths, the next batch, files, the panel."""

from __future__ import annotations

import dataclasses
import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from asrconfig_go._core.render import html
from asrconfig_go.watch import AlertReporter, memory_summary
from asrconfig_go.watch.alerts import BestEffort
from asrconfig_go.watch.batch_shapes import BatchShapes, Excess, LoaderWait, NextBatch, by_memory, by_table
from asrconfig_go.watch.display import (
    Panel,
    PanelState,
    RunFile,
    one_line,
    show_line,
)
from asrconfig_go.watch.memory_summary import RankFiles, RankPeaks
from asrconfig_go.watch.watch import (
    TimeShare,
    Watch,
    WatchOptions,
)
from asrconfig_go.watch.watch_records import GPUHistory, MemoryHistory, MemoryUse, MonitorMessage
from html_checks import charts
from speech_models import wav2vec2
from watching_fakes import GIB, Clock, FakeMonitor, activity, alert, gpu


def test_messages_are_logged_by_their_severity(caplog: pytest.LogCaptureFixture) -> None:
    monitor = FakeMonitor()
    reporter = AlertReporter(monitor)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, logger="asrconfig_go"):
        assert reporter.say() == 0 and not monitor.limits, "nothing is asked while nothing changes"
        monitor.warn()
        monitor.messages = [MonitorMessage(*pair) for pair in (("warn", "a leak"), ("info", "no longer: it"))]
        assert (reporter.say(), reporter.say()) == (1, 0)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "a leak"),
        ("INFO", "no longer: it"),
    ]


def test_a_part_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    part = BestEffort("nothing is drawn")
    assert part(lambda: 3) == 3
    for _ in range(2):
        assert part(lambda: 1 / 0) is None
    assert part(lambda: 3) is None
    assert [r.getMessage() for r in caplog.records] == [
        "nothing is drawn from here on: ZeroDivisionError: division by zero"
    ]
    with pytest.raises(KeyboardInterrupt):
        BestEffort("")(_interrupted)


def _interrupted() -> None:
    raise KeyboardInterrupt


# The loader.


def test_only_the_fetching_of_batches_is_the_loader_s(tmp_path: Path) -> None:
    clock = Clock()
    wait = LoaderWait(clock)
    share = TimeShare(wait.known, clock)
    wait.on_step_begin(None, None, None)
    assert wait.last is None and share() is None, "nothing is known of what came before"
    wait.on_epoch_begin(None, None, None)
    for fetched, computed, logged in [(2.0, 5.0, 1.0), (1.0, 5.0, 6.0)]:
        clock.now += fetched
        wait.on_step_begin(None, None, None)
        assert wait.last == fetched
        clock.now += computed
        wait.on_step_end(None, None, None)
        clock.now += logged
        wait.on_log(None, None, None)
    assert share() == pytest.approx(3 / 20)
    assert share() is None, "no time has passed"


# Lengths and the next batch.


def batch(model_kind: str, clips: int, seconds: float, lengths: list[float] | None = None) -> dict[str, Any]:
    if model_kind == "whisper":
        return {"input_features": torch.zeros(clips, 80, int(seconds * 100)), "labels": torch.ones(clips, 4).long()}
    mask = torch.zeros(clips, int(seconds * 16_000), dtype=torch.long)
    for row, length in zip(mask, lengths or [seconds] * clips, strict=True):
        row[: int(length * 16_000)] = 1
    return {"input_values": torch.zeros(mask.shape), "attention_mask": mask, "labels": torch.ones(clips, 4).long()}


def passed(model: Any, positional: Any, named: Any) -> None:
    """What a forward of the model with these arguments calls first."""
    for hook in list(model._forward_pre_hooks.values()):
        hook(model, positional, named)


def test_seconds_of_the_batches_between_two_steps() -> None:
    model = wav2vec2("mean")
    inputs = BatchShapes(model)
    assert inputs.take() == {}
    passed(model, (), batch("ctc", 2, 3.0, [3.0, 1.0]))
    passed(model, (), batch("ctc", 1, 0.5))
    assert inputs.take() == pytest.approx({"padded_s": 6.5, "longest_s": 3.0, "audio_s": 4.5}, abs=0.2)
    lengths = [0.5 + 0.037 * clip for clip in range(30)]
    passed(model, (), batch("ctc", 30, 1.6, lengths))
    assert inputs.take()["audio_s"] == pytest.approx(sum(lengths), rel=0.01), "rounded both up and down"
    unmasked = batch("ctc", 2, 3.0)
    del unmasked["attention_mask"]
    passed(model, (), unmasked)
    assert inputs.take() == {"padded_s": 6.0, "longest_s": 3.0}, "what is padding is not known"
    passed(model, (torch.zeros(2, 3),), {})
    assert inputs.take() == {}, "inputs of another kind"
    inputs.leave()
    assert not model._forward_pre_hooks


def test_the_next_batch_is_asked_about_once_and_warned_of_when_it_is_worse() -> None:
    predicted: list[Any] = []
    messages: list[Any] = []

    def predict(clips: int, seconds: float) -> Excess | None:
        predicted.append((clips, seconds))
        return None if clips * seconds <= 100 else Excess(clips * seconds / 100, "is too much")

    before = NextBatch(predict, messages.append)
    for clips, seconds in [(8, 10.0), (4, 9.8), (8, 9.9), (9, 10.0), (16, 10.0), (16, 10.0), (16, 10.2), (16, 24.1)]:
        before(clips, seconds)
    assert predicted == [(8, 10.0), (9, 10.0), (16, 10.0), (16, 10.5), (16, 24.5)]
    assert messages == ["the next batch, 16 × 10.0 s, is too much", "the next batch, 16 × 24.1 s, is too much"]


def test_the_plan_s_lengths_say_what_fits() -> None:
    predict = by_table([(5.0, 32), (10.0, 12), (20.0, 4)])
    assert predict(32, 5.0) is None
    excess = predict(16, 8.0)
    assert excess is not None and excess.times == pytest.approx(16 / 12)
    assert "more than the 12 clips of that length" in excess.words
    longer = predict(5, 30.0)
    assert longer is not None and "4 clips" in longer.words, "beyond the table at most what its last row says"


def test_a_memory_model_says_what_a_batch_takes() -> None:
    target = SimpleNamespace(limit_bytes=14 * GIB, available_bytes=15 * GIB)

    def estimate(clips: int, seconds: float, timeline: int) -> Any:
        reserved = clips * seconds * GIB / 20
        return SimpleNamespace(
            fits=reserved <= target.limit_bytes, peak_device=reserved + GIB, peak_reserved=reserved, shape=timeline
        )

    predict = by_memory(SimpleNamespace(estimate=estimate, target=target, longest_s=30.0))  # type: ignore[arg-type]
    assert predict(8, 24.5) is None
    excess = predict(16, 24.0)
    assert excess is not None and "is predicted to take 20.2 of 15.0 GiB" in excess.words
    for wrong in (3, SimpleNamespace(estimate=estimate, target=SimpleNamespace(limit_bytes=None))):
        with pytest.raises(InvalidArgumentError):
            by_memory(wrong)  # type: ignore[arg-type]


# Files.


def test_the_story_is_written_each_minute_and_an_earlier_one_kept(tmp_path: Path) -> None:
    clock, monitor = Clock(), FakeMonitor()
    file = RunFile(monitor, tmp_path / "out", clock=clock)  # type: ignore[arg-type]
    assert not file.due
    clock.now += 60
    assert file.due
    file.write()
    assert monitor.saved == [tmp_path / "out" / "asrconfig_monitor.json"] and not file.due
    assert RunFile(monitor, tmp_path, rank=8).path.name == "asrconfig_monitor-rank8.json"
    file.path.write_text("{}")
    file.keep_earlier(0)
    assert file.path.exists(), "a run from its beginning replaces what is there"
    file.keep_earlier(800)
    assert [path.name for path in file.path.parent.iterdir()] == ["asrconfig_monitor-until-step-800.json"]


def test_peaks_go_through_files_and_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        memory_summary, "own_peaks", lambda rank, _: RankPeaks(rank, "cuda:0", rank * GIB, 2 * GIB, None)
    )
    first, second, third = (RankFiles(tmp_path / "new", rank, 3, wait_s=0.2) for rank in range(3))
    assert second.end() == ()
    third.begin()
    assert first.end() == (RankPeaks(0, "cuda:0", 0, 2 * GIB, None), RankPeaks(1, "cuda:0", GIB, 2 * GIB, None))
    assert third.end() == ()
    third.begin()
    second.begin()
    assert not list((tmp_path / "new").iterdir()), "what an earlier run left"
    assert third.end() == ()
    RankFiles(tmp_path / "new", 0, 1).begin()
    assert not list((tmp_path / "new").iterdir()), "of an earlier run with more processes"
    assert RankFiles(tmp_path / "none", 0, 1).end() == ()
    assert not (tmp_path / "none").exists()
    assert str(RankPeaks(1, "cuda:1", 3 * GIB, None, GIB)) == "rank 1 (cuda:1): allocated 3.0 GiB, RAM 1.0 GiB"
    assert str(RankPeaks(1, "", None, None, None)) == "rank 1: peaks unknown"


def test_the_peaks_of_a_watched_process_are_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    for name, value in {"current_device": 2, "max_memory_allocated": 3 * GIB, "max_memory_reserved": 4 * GIB}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    steps = SimpleNamespace(peak_allocated_bytes=(None, 7.0 * GIB, 2.0), peak_reserved_bytes=(None, 3.0 * GIB))
    monitor: Any = SimpleNamespace(run_log=lambda: SimpleNamespace(steps=steps))
    assert vars(memory_summary.own_peaks(1, monitor)) | {"rss": 0} == vars(RankPeaks(1, "cuda:2", 7 * GIB, 4 * GIB, 0))
    assert memory_summary.own_peaks(1).allocated == 3 * GIB


# What is shown.


def fullest(used: float, gpu: int = 0) -> MemoryUse:
    return MemoryUse(gpu, (10 - used) * GIB, 10 * GIB)


BUSY = activity({"utilization": 0.934}, {"utilization": 0.5}, {"utilization": 0.7}, cpu_share=0.61)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (200, "GPU 93% · mem 82% 8.2/10.0 GiB · CPU 61% · wait 3% · MFU 38%"),
        (59, "GPU 93% · mem 82% · CPU 61% · wait 3% · MFU 38%"),
        (46, "GPU 93% · mem 82% · CPU 61% · wait 3%"),
        (36, "GPU 93% · mem 82% · CPU 61%"),
        (9, "GPU 93% · mem 82% · CPU 61%"),
    ],
)
def test_the_progress_line_leaves_out_what_has_no_room(columns: int, line: str) -> None:
    assert one_line(fullest(8.2), BUSY, 0.034, 0.381, columns) == line


def test_the_progress_line_has_what_is_known() -> None:
    assert one_line(fullest(8.2, gpu=2), BUSY, None, None) == "GPU2 70% · mem 82% 8.2/10.0 GiB · CPU 61%"
    assert one_line(fullest(8.2), activity(), 0.5, None) == "mem 82% 8.2/10.0 GiB · wait 50%"
    assert one_line(fullest(8.2, gpu=-1), BUSY, None, None) == "RAM 82% 8.2/10.0 GiB · CPU 61%"
    assert one_line(None, activity(), None, None) == ""


def test_the_line_is_in_the_bar_of_a_terminal_and_of_a_notebook() -> None:
    tqdm = pytest.importorskip("tqdm")
    handler: Any = SimpleNamespace(callbacks=[SimpleNamespace(), SimpleNamespace(training_bar=None)])
    show_line(handler, fullest(8.2), BUSY, 0.03, 0.4)
    tracker = SimpleNamespace(prefix="")
    handler.callbacks.append(SimpleNamespace(training_tracker=tracker))
    short, full = "GPU 93% · mem 82% · CPU 61% · wait 3%]", "10.0 GiB · CPU 61% · wait 3% · MFU 40%]"
    for columns, words in ((80, short), (None, full)):
        with tqdm.tqdm(total=400, ncols=columns, file=io.StringIO()) as bar:
            handler.callbacks[1].training_bar = bar
            show_line(handler, fullest(8.2), BUSY, 0.03, 0.4)
            assert str(bar).endswith(words) and len(str(bar)) <= (columns or 200)
    assert tracker.prefix == "GPU 93% · mem 82% 8.2/10.0 GiB · CPU 61% · wait 3% · MFU 40%<br>"


def panel_state(**changes: Any) -> PanelState:
    monitor = FakeMonitor([gpu(8.2, allocated=6.0, reserved=7.0)])
    busy = {"utilization": 0.91, "power_w": 68.0, "temperature_c": 71.0}
    times = tuple(float(i) for i in range(60))
    curve = MemoryHistory(
        0,
        times,
        1,
        100 * GIB,
        tuple(int((20 + i / 10) * GIB) for i in range(60)),
        (GPUHistory(10 * GIB, tuple(None if 20 <= i < 25 else int(i / 8 * GIB) for i in range(60))),),
    )
    usual: dict[str, Any] = {
        "step": 120, "steps": 400, "left_s": 370.0, "waited": 0.03,
        "model_flops_utilization": 0.38, "shot": monitor.read(),
        "activity": activity(busy, cpu_share=0.6, workers_rss_bytes=3.0 * GIB), "history": curve,
        "alerts": (alert(1, "GPU memory grows <38 MB>/step", advice="keep no losses"), alert(2, "old", cleared_s=3.0)),
    }  # fmt: skip
    return PanelState(**{**usual, **changes})


def panel_html(state: PanelState) -> str:
    return html("panel", dataclasses.asdict(state))


def test_the_panel_shows_what_is_known_and_escapes_it() -> None:
    page = panel_html(panel_state())
    for words in (
        "Step 120 of 400 · about 6 min left",
        "8.2 of 10.0 GiB",
        "2.8 GiB",
        "91 %",
        "68 W · 71 °C",
        "60 %",
        "3 %",
    ):
        assert words in page, words
    assert "about 8 s left" in panel_html(panel_state(left_s=7.71))
    assert "grows &lt;38 MB&gt;/step" in page and "→ keep no losses" in page
    assert "old" not in page.split("</style>")[1], "what no longer holds is not shown"
    (tree,) = charts(page)
    paths = [element.attrib["d"] for element in tree.iter() if element.tag.endswith("path")]
    assert len(paths) == 2
    assert paths[0].count("M") == 2, "a gap where nothing is known"
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("ended", [True, False])
def test_the_last_panel_says_whether_training_came_to_its_end(ended: bool) -> None:
    states: list[PanelState] = []
    watch = Watch(FakeMonitor([gpu(8.2)]), WatchOptions(), Clock())  # type: ignore[arg-type]
    watch.panel = Panel()
    watch.panel.show = states.append  # type: ignore[method-assign, assignment]
    watch.begin(0, 400)
    for step in range(1, 121):
        watch.step(step, 400)
    if ended:
        watch.end(120)
    watch.stop()
    watch.stop()
    head = panel_html(states[-1]).split('aria-level="2">')[1].split("<")[0]
    assert head == ("Step 120 of 120" if ended else "Stopped after step 120 of 400")
    assert not states[0].stopped and sum(state.stopped for state in states) == (not ended)
