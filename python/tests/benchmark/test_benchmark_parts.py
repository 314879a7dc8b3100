"""What benchmarks are made of: turns, drawn clips, changes, causes, words, pictures; nothing is trained."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import random
import time
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.__main__ import main
from asrconfig_go.benchmark import runner, sides
from asrconfig_go.benchmark.benchmark_clips import draw
from asrconfig_go.benchmark.benchmark_result import bottleneck, seen
from asrconfig_go.benchmark.blocks import WarmedUp, warmed_up
from asrconfig_go.benchmark.measurements import OptionResult, Spread
from asrconfig_go.benchmark.request import default_side, original_side
from asrconfig_go.benchmark.runner import OutOfTime, TimeBudget
from asrconfig_go.benchmark.sides import (
    OPTIONS,
    BenchmarkRun,
    Place,
    Side,
    batch_settings,
    changes,
    interleave,
    most_workers,
)
from asrconfig_go.benchmark.step_phases import cpu_seconds
from asrconfig_go.cli.measure_commands import _next_command
from asrconfig_go.errors import EmptyDatasetError, InvalidArgumentError, NotFoundError
from asrconfig_go.watch.telemetry import RunLog
from benched import block, result, side
from html_checks import tags
from made_runs import trained
from watching_fakes import MovedMoments

CPU = Place(False, (0, 0), True, 2.0)
A100 = Place(True, (8, 0), True, 8.0)
T4 = Place(True, (7, 5), False, 4.0)


def test_the_result_names_its_baseline() -> None:
    lines = str(result(gpu=False)).splitlines()
    assert lines[0] == "3.00× your settings: batch 8 × 4, fp32; Wav2Vec2ForCTC on Tesla T4"
    assert lines[1] == "Train with the plan: batch 8 × 4, fp16"
    assert lines[2] == "200 samples/s instead of 66.7; 2.91 to 3.09× in 5 rounds, by processor time 3.00×"
    alone = str(result(original=None)).splitlines()
    assert alone[0].startswith("200 samples/s with the plan") and result(original=None).speedup is None
    assert result().brief().splitlines()[:3] == str(result()).splitlines()[:3]


@pytest.mark.parametrize("rounds", [5, 6])
def test_speedup_rates_and_step_times_are_of_the_same_rounds(rounds: int) -> None:
    """Their medians are, too, where a machine is noisy, and of an even number of rounds."""
    noise = random.Random(rounds)
    plan, original = (
        side(name, seconds, None, [noise.uniform(0.5, 2) for _ in range(rounds)])
        for name, seconds in (("plan", 1.0), ("your settings", 1.5))
    )
    compared = result(plan=plan, original=original)
    assert compared.speedup is not None and compared.cpu_speedup is not None
    for name in ("clips_per_s", "audio_per_s"):
        rates = [getattr(measured, name).median for measured in (plan, original)]
        assert compared.speedup.median == pytest.approx(rates[0] / rates[1], rel=1e-12)
    assert plan.step_s is not None and original.step_s is not None
    assert compared.speedup.median == pytest.approx(original.step_s.median / plan.step_s.median, rel=1e-12)
    assert compared.speedup.low <= compared.speedup.median <= compared.speedup.high


def test_few_rounds_are_told_everywhere() -> None:
    plan, original = (side(name, 1.0, None, [1.0, 1.1, 1.2, 1.3]) for name in ("plan", "your settings"))
    few = result(plan=plan, original=original)
    assert few.too_few_rounds and few.verdict == "undecided" and few.to_json()["too_few_rounds"] is True
    for text in (str(few), few._repr_html_()):
        assert "too few rounds: 4 measured rounds of at least 5" in text
    assert not result().too_few_rounds and result().verdict == "faster" and "too few" not in str(result())
    swapped = result(plan=result().original, original=result().plan)
    assert swapped.verdict == "slower" and "Keep plan" in str(swapped)


def test_a_machine_that_gets_evenly_slower_changes_no_gain() -> None:
    clock = iter(range(1000))

    def run(side_run: BenchmarkRun) -> Any:
        slow = 1 + 0.1 * next(clock)
        return block(slow * {"plan": 1.0, "twice": 0.5, "half": 2.0}[side_run.side.name])

    plan, twice, half = (BenchmarkRun(Side(name, {})) for name in ("plan", "twice", "half"))
    interleave(plan, [twice, half], 3, run)
    for other, gain in ((twice, 2.0), (half, 0.5)):
        assert other.gain is not None
        assert [other.gain.low, other.gain.median, other.gain.high, other.gain.count] == pytest.approx([gain] * 3 + [3])
    assert (len(plan.blocks), len(twice.blocks), len(half.blocks)) == (7, 3, 3)


def test_a_side_that_fails_is_not_run_again() -> None:
    ran: list[str] = []

    def run(side_run: BenchmarkRun) -> Any:
        ran.append(side_run.side.name)
        if side_run.side.name == "bad":
            side_run.problem = "out of memory"
            return None
        return block(1.0)

    plan, bad, good = (BenchmarkRun(Side(name, {})) for name in ("plan", "bad", "good"))
    interleave(plan, [bad, good], 2, run)
    assert ran == ["plan", "bad", "good", "plan", "good", "plan"]
    assert bad.gain is None and good.gain is not None


def test_the_plan_alone_runs_once_a_round() -> None:
    plan = BenchmarkRun(Side("plan", {}))
    interleave(plan, [], 3, lambda side_run: block(1.0))
    assert len(plan.blocks) == 3


def test_the_first_batches_come_once_more() -> None:
    batches = [[1], [2], [3]]
    assert list(WarmedUp(batches, 2)) == [[1], [2], [1], [2], [3]]
    assert list(WarmedUp(batches, 5)) == [[1], [2], [3], [1], [2], [1], [2], [3]]
    assert len(WarmedUp(batches, 2)) == 5


def test_workers_end_with_the_training(tmp_path: Path) -> None:
    """Those that a loader keeps between epochs; the garbage collector would wait 5 s for them."""
    pytest.importorskip("accelerate")
    from tiny_training import tiny_trainer

    before = len(multiprocessing.active_children())
    trainer = tiny_trainer(tmp_path, dataloader_num_workers=1, dataloader_persistent_workers=True)
    with warmed_up(trainer, 2):
        trainer.train()
    assert len(trainer.model.seen) == 6
    assert len(multiprocessing.active_children()) == before


def test_clips_are_drawn_without_the_bad_and_the_long() -> None:
    pytest.importorskip("torch")
    rows = list(range(10))
    seconds = array("d", [1.0, math.nan, 30.0, *(float(i) for i in range(3, 10))])
    sample = draw(rows, seconds, 2, 4, 20.0, 0)
    chosen = [sample.dataset[i] for i in range(len(sample.dataset))]
    assert set(chosen) == {0, 3, 4, 5, 6, 7, 8, 9} and sample.population == 8
    assert sample.seconds is not None and list(sample.seconds) == [seconds[i] for i in chosen]
    assert sample.audio_s == pytest.approx(43.0)
    again = draw(rows, seconds, 2, 4, 20.0, 0)
    assert [again.dataset[i] for i in range(8)] == chosen
    few = draw(rows, seconds, 5, 4, 20.0, 0)
    counts = [[few.dataset[i] for i in range(20)].count(row) for row in set(chosen)]
    assert (min(counts), max(counts)) == (2, 3)
    with pytest.raises(EmptyDatasetError, match="none of 10 clips"):
        draw(rows, seconds, 1, 1, 0.5, 0)


def names(candidates: Any) -> set[tuple[str, str]]:
    return {(change.option, change.value) for change in candidates if not change.why_not}


def test_changes_are_those_that_make_sense_here(plan: ac.TrainingConfig) -> None:
    assert names(changes(["tf32", "pin", "cudnn_benchmark"], plan, CPU, "sdpa")) == set()
    assert names(changes(["tf32"], plan, A100, "sdpa")) == {("tf32", "off" if plan.tf32 else "on")}
    assert names(changes(["tf32"], plan, T4, "sdpa")) == set()
    fp32 = ac.TrainingConfig.from_dict({**plan.to_dict(), "fp16": False, "bf16": False})
    assert names(changes(["precision"], fp32, A100, "sdpa")) == {("precision", "fp16"), ("precision", "bf16")}
    assert names(changes(["precision"], fp32, T4, "sdpa")) == {("precision", "fp16")}
    assert names(changes(["precision"], fp32, CPU, "sdpa")) == {("precision", "bf16")}
    none = ac.TrainingConfig.from_dict({**plan.to_dict(), "dataloader_num_workers": 0})
    assert names(changes(["workers"], none, CPU, "sdpa")) == {("workers", "1"), ("workers", "2")}
    assert names(changes(["prefetch", "persistent"], none, CPU, "sdpa")) == set()
    two = ac.TrainingConfig.from_dict({**plan.to_dict(), "dataloader_num_workers": 2, "dataloader_prefetch_factor": 2})
    assert names(changes(["prefetch"], two, CPU, "sdpa")) == {("prefetch", n) for n in "148"}
    assert names(changes(["attention"], fp32, CPU, "sdpa")) == {("attention", "eager")}
    compiled = [change for change in changes(OPTIONS, two, CPU, "sdpa") if change.option == "compile"]
    assert [change.why_not[:8] for change in compiled] == ["on a CPU"]
    assert names(changes(["compile"], two, CPU, "sdpa")) == {("compile", "on")}
    for change in changes(["precision", "workers", "checkpointing", "compile", "order"], two, A100, "sdpa"):
        if not change.why_not:
            changed = change.of(two)
            assert changed != two and changed.effective_batch_size == two.effective_batch_size


def parts(waiting: float, optimizer: float, other: float, *, queued: float | None = None, padded: float = 900) -> Any:
    """A side whose steps consist of these shares; the model has the rest."""
    plan = side("plan", 4.0, 0.5 if queued is not None else None)
    model = 1 - waiting - optimizer - other
    step = dataclasses.replace(
        plan.blocks[0].steps[0], seconds=1.0, waiting_s=waiting, forward_s=model / 3, backward_s=2 * model / 3,
        optimizer_s=optimizer, other_s=other, queued_s=None if queued is None else queued * model,
    )  # fmt: skip
    only = dataclasses.replace(plan.blocks[0], steps=(step,), padded_s=padded)
    return dataclasses.replace(plan, blocks=(only,))


def test_the_bottleneck_is_found_by_the_shares_of_a_step() -> None:
    padded = parts(0.05, 0.1, 0.05, padded=1800)
    whisper = dataclasses.replace(padded, blocks=(dataclasses.replace(padded.blocks[0], longest_s=30.0),))
    assert (padded.fixed_s, whisper.fixed_s) == (None, 30.0)
    finding, tries, change = bottleneck(parts(0.5, 0.1, 0.05), checkpointing=False, gpu=False)
    assert finding.kind == "loader" and "workers" in tries and change.endswith("(not measured)")
    finding, _, _ = bottleneck(whisper, checkpointing=False, gpu=False)
    assert finding.kind == "compute" and "50 % of what is computed is padding to the 30 s that" in finding.evidence


def test_a_change_is_better_beyond_doubt_alone() -> None:
    unsure = OptionResult("attention", "eager", "attn_implementation='eager'", None, Spread(1.5, 0.9, 2.0, 5))
    good = OptionResult("precision", "bf16", "bf16=True", None, Spread(1.2, 1.1, 1.3, 5))
    steady = dataclasses.replace(unsure, cpu_gain=Spread(1.3, 1.2, 1.4, 5))
    assert (unsure.better, steady.better, good.better) == ("", "faster by processor time", "faster")
    _, _, change = bottleneck(parts(0.05, 0.1, 0.05), (unsure, good), checkpointing=False, gpu=False)
    assert change == "set bf16=True: 1.20 (1.10 to 1.30) times as fast over the rounds"
    assert not dataclasses.replace(good, gain=Spread.of([1.5] * 4)).better  # too few rounds show nothing
    assert not dataclasses.replace(good, gain=Spread.of([0.5] * 4)).worse
    assert dataclasses.replace(good, gain=Spread.of([0.5, 0.6, 0.7, 0.8, 0.9])).worse
    assert not dataclasses.replace(steady, gain=Spread(0.9, 0.5, 1.5, 5)).better


def test_the_diagnosis_sees_the_blocks_alone() -> None:
    run_log = RunLog.from_json(trained(gpus=1))
    start = run_log.start_unix_nanos / 1e9
    blocks = [block(40.0, 4, begun_unix_s=start + 30), block(40.0, 4, begun_unix_s=start + 100)]
    rows = [i for i, t in enumerate(run_log.activity.times_s) if 30 <= t <= 70 or 100 <= t <= 140]
    busy = [run_log.activity.gpus[0].utilization[i] or 0.0 for i in rows]
    settings = {"fp16": False, "bf16": False, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    readings, findings = seen(run_log, blocks, settings)
    assert {"precision", "room"} <= {finding.kind for finding in findings}
    assert readings.gpu_use == pytest.approx(sum(busy) / len(busy))
    assert readings.gpu_total_bytes == run_log.gpus[0].total_bytes and readings.gpu_memory_bytes
    assert readings.ram_bytes == max(run_log.activity.tree_rss_bytes[i] or 0 for i in rows)
    assert seen(run_log, [block(1.0, begun_unix_s=start - 100)], settings)[0].gpu_use is None
    without, findings = seen(RunLog.from_json(trained(gpus=0)), blocks, settings)
    assert (without.gpu_use, without.gpu_memory_bytes, findings) == (None, None, ())
    assert seen(None, blocks, settings)[0].ram_bytes is None


def test_blocks_are_long_enough_for_their_workers(plan: ac.TrainingConfig) -> None:
    four = ac.TrainingConfig.from_dict({**plan.to_dict(), "dataloader_num_workers": 4, "dataloader_prefetch_factor": 2})
    assert most_workers(four, None, (), 16.0) == 4
    assert most_workers(four, None, ("workers",), 16.0) == 8
    assert most_workers(four, None, None, 2.0) == 4
    own = {"dataloader_num_workers": 12, "gradient_accumulation_steps": 2}
    assert most_workers(four, Side("original", own), (), 16.0) == 6


def test_parts_on_a_gpu_are_those_of_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from asrconfig_go.benchmark import step_phases

    clock = MovedMoments()
    monkeypatch.setattr(step_phases, "moments_of", lambda model: clock)

    def passes(seconds: float) -> Any:
        def work(*args: Any, **kwargs: Any) -> str:
            clock.now += seconds
            return "a loss"

        return work

    added: list[Any] = []
    accelerator = SimpleNamespace(backward=passes(0.2))
    trainer = SimpleNamespace(compute_loss=passes(0.1), accelerator=accelerator, add_callback=added.append)
    phases = step_phases.Phases(trainer, 1, 2)
    args, state = SimpleNamespace(torch_compile=True), SimpleNamespace(global_step=0)
    assert added == [phases]
    phases.on_train_begin(args, state, None, model=torch.nn.Linear(1, 1))
    for number in (1, 2, 3):
        phases.on_step_begin(args, state, None)
        for _ in range(2):
            assert trainer.compute_loss() == "a loss"
            accelerator.backward()
        clock.now += 0.05  # the optimizer
        state.global_step = number
        phases.on_step_end(args, state, None)
    assert phases.block is not None and len(phases.block.steps) == 2
    for step in phases.block.steps:
        assert [step.forward_s, step.backward_s, step.optimizer_s] == pytest.approx([0.2, 0.4, 0.05])
        assert step.micro_batches == 2 and step.queued_s is not None and 0 < step.queued_s < 0.2
    assert clock.waited == 2  # where what counts begins and ends, and nowhere else
    assert phases.block.padded_s is None


def _work() -> None:
    while time.process_time() < 0.3:
        pass
    time.sleep(30)


def test_processor_time_counts_workers() -> None:
    before = cpu_seconds()
    worker = multiprocessing.get_context("spawn").Process(target=_work, daemon=True)
    worker.start()
    try:
        deadline = time.monotonic() + 60
        while cpu_seconds() - before < 0.3 and time.monotonic() < deadline:
            time.sleep(0.05)
        while_running = cpu_seconds() - before
    finally:
        worker.terminate()
        worker.join()
    assert while_running >= 0.3
    assert cpu_seconds() - before >= 0.3


def test_text_card_and_tables_tell_the_same(tmp_path: Path) -> None:
    compared = result()
    text, card = str(compared), compared._repr_html_()
    for words in (
        "3.00× your settings: batch 8 × 4, fp32",
        "waits for the data loader",
        "set bf16=True",
        "out of memory",
        "fp16 was left",
    ):
        assert words in text and words in card
    assert "requires compute capability 8.0" in text and "slower" in text
    assert all(len(line) <= 110 for line in text.splitlines())
    assert {"caution", "keys"} <= tags(card).classes
    compared.to_csv(tmp_path / "b.csv")
    rows = (tmp_path / "b.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 + 4 + 4 + 1 and rows[-1].startswith("speedup")
    record = json.loads(json.dumps(compared.to_json(), allow_nan=False))
    assert record["speedup"]["median"] == pytest.approx(3.0) and record["speedup"]["count"] == 5
    assert record["plan"]["readings"]["gpu_use"] == 0.92 and record["options"][3]["gain"] is None
    assert repr(compared) == f"BenchmarkResult({str(compared).splitlines()[0]!r})"


def test_files_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"does not end with \.html"):
        result().to_html(tmp_path / "b.txt")
    with pytest.raises(NotFoundError, match="cannot write"):
        result().to_html(tmp_path / "none" / "b.html")
    with pytest.raises(NotFoundError, match="cannot write"):
        result().to_csv(tmp_path / "none" / "b.csv")


def test_plots_have_all_that_was_measured() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for compared, count in ((result(), 4), (result(loader=(), options=()), 2)):
        figure = compared.plot()
        assert len(figure.axes) == count
        assert figure.axes[0].get_title(loc="left") == "samples/s"
        widths = [bar.get_width() for bar in figure.axes[0].patches]  # type: ignore[attr-defined]
        assert widths == pytest.approx([66.7, 200.0], rel=1e-3)
        pyplot.close(figure)
    with pytest.raises(NotFoundError, match="nothing was measured"):
        nothing = dataclasses.replace(result().plan, blocks=())
        result(plan=nothing, original=None).plot()


def test_the_command_checks_its_files_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    begin = ["benchmark", "--model", "tiny-wav2vec2", "--data", "demo"]
    for option, name, text in (
        ("--csv", "b.xls", "does not end with .csv"),
        ("--plot", "b.gif", "does not end with .png"),
        ("--csv", str(tmp_path / "none" / "b.csv"), "cannot write"),
    ):
        assert main([*begin, option, name]) == 1
        assert text in capsys.readouterr().err


def test_the_command_passes_on_what_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from asrconfig_go.cli import measure_commands

    requests: list[SimpleNamespace] = []
    monkeypatch.setattr(
        measure_commands,
        "_measured",
        lambda arguments: requests.append(arguments) or result(stopped=True),  # type: ignore[func-returns-value]
    )
    begin = ["benchmark", "--model", "m", "--data", "d", "--args", "a.bin", "--steps", "7", "--sweep", "all"]
    begin += ["--minutes", "2"]
    code = main([*begin, "--csv", str(tmp_path / "b.csv"), "--html", str(tmp_path / "b.html"), "--json"])
    assert code == 130  # stopped by Ctrl-C
    record = json.loads(capsys.readouterr().out)
    assert record["stopped"] is True
    assert (requests[0].args, requests[0].steps, requests[0].sweep, requests[0].minutes) == ("a.bin", 7, "all", 2)
    assert main(begin) == 130 and main([*begin, "--full"]) == 130
    short, full = capsys.readouterr().out.split("3.00× your settings")[1:]
    assert "next:\nasrconfig train --model m --data d --target-batch-size 32\n" in short
    assert "Loading data alone" in full and "Loading data alone" not in short
    assert (tmp_path / "b.csv").exists() and (tmp_path / "b.html").exists()


def test_the_next_command_follows_from_the_result() -> None:
    arguments = SimpleNamespace(model="my model", data="d", config=None, text_column=None, audio_column="a", args="x")
    model = "--model 'my model' --data d --audio-column a --target-batch-size 32"
    assert _next_command(arguments, result()) == f"asrconfig train {model}"  # type: ignore[arg-type]
    slower = result(plan=result().original, original=result().plan)
    assert _next_command(arguments, slower) == ""  # type: ignore[arg-type]
    alike = result(original=dataclasses.replace(result().plan, rounds=result().plan.rounds[::-1]))
    assert alike.verdict == "undecided"
    again = f"asrconfig benchmark --compare {model} --args x --rounds 11"
    assert _next_command(arguments, alike) == again  # type: ignore[arg-type]
    missing = result(original=dataclasses.replace(result().plan, rounds=(), problem="out of memory"))
    assert _next_command(arguments, missing) == f"asrconfig train {model}"  # type: ignore[arg-type]


def test_the_baseline_is_what_the_installed_trainer_does_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    assert (default_side(None).batch, default_side(8).batch, default_side(32).batch) == ((8, 1), (8, 1), (8, 4))
    assert (default_side(4).batch, default_side(12).batch, default_side(1).batch) == ((4, 1), (6, 2), (1, 1))
    assert default_side(None).adapted == default_side(8).adapted == ""
    assert default_side(12).adapted == "8 × 1 makes no steps of 12 clips"
    with pytest.raises(InvalidArgumentError, match="batch of 8 makes no steps of 13 clips, but one clip at a time"):
        default_side(13)
    monkeypatch.setattr(sides, "defaults", lambda kind=None: batch_settings(6, 2))
    assert (default_side(None).batch, default_side(12).batch, default_side(24).batch) == ((6, 2), (6, 2), (6, 4))


def test_only_defaults_are_halved_and_never_to_one_clip() -> None:
    pytest.importorskip("transformers")
    four = default_side(None).halved()
    assert four is not None and four.batch == (4, 2)
    two = four.halved()
    assert two is not None and two.batch == (2, 4) and two.halved() is None
    assert two.adapted == "8 × 1 ran out of memory on this device; 4 × 2 ran out of memory on this device"
    assert original_side({"per_device_train_batch_size": 8}).halved() is None


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, math.inf, "60", True])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="minutes"):
        TimeBudget(seconds)


def test_the_time_left_is_shown_until_it_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: clock.now))
    TimeBudget(None).check()
    assert TimeBudget(None).time_left == ""
    budget = TimeBudget(1, clock.now)
    clock.now += 20
    budget.check()
    assert budget.time_left == "at most 40 s left"
    clock.now += 40
    with pytest.raises(OutOfTime):
        budget.check()
