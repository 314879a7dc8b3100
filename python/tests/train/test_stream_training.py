"""Trainings on streams: with whole effective batches, and killed ones end as those that nobody disturbed."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from asrconfig_go import ASRConfigManager, create_optimal_config
from asrconfig_go.audio import load_audio
from asrconfig_go.errors import CorruptFileError, InvalidArgumentError
from asrconfig_go.train import StreamBatches
from disturbed_runs import Failing, OutOfMemory, once_at, weights
from locations import HELPERS
from streamed_training import STEPS, allowed, collate, make_shards, open_shards, result, trainer_of
from training_fixtures import make_plan

RUNS: dict[str, dict[str, Any]] = {"workers": {"workers": 2}, "tar": {"kind": "tar"}, "ranks": {"ranks": 2}}
KILLS = {"workers": (33, 12, 50), "tar": (5, 20, 59), "ranks": (30, 3, 26)}


class Stopped(Exception):
    """Ends a process, as far as one test process can tell."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_shards(tmp_path_factory.mktemp("shards"), "parquet")


def trained(output: Path, files: list[str], fail: Any = None, steps: int = 20, **settings: Any) -> Any:
    """A Trainer after a resumable run; ``fail`` is asked before each optimizer step."""
    trainer = trainer_of({"output": str(output), "steps": steps, **settings}, files)
    if fail is not None:
        trainer.add_callback(Failing("on_pre_optimizer_step", fail))
    manager = ASRConfigManager()
    manager.train(trainer, resume=True, verbose=False)
    trainer.report = manager.report
    return trainer


def seen(output: Path) -> dict[int, list[int]]:
    """The clips of every step, the last time that it was made."""
    return dict(json.loads(line) for line in (output / "steps-0.jsonl").read_text().splitlines())


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, files: list[str]) -> tuple[dict[int, list[int]], Any]:
    output = tmp_path_factory.mktemp("calm")
    trainer = trained(output, files)
    return seen(output), weights(trainer)


def test_every_step_has_the_effective_batch(calm: tuple[dict[int, list[int]], Any], files: list[str]) -> None:
    assert {len(clips) for clips in calm[0].values()} == {8}
    counts = Counter(chain.from_iterable(calm[0].values()))
    assert set(counts) <= set(allowed(files)) and set(counts.values()) == {1}, "160 of the 200 that are short enough"


@pytest.mark.parametrize("at", [3, 9, 17])
def test_a_resumed_run_continues_with_the_same_clips(
    tmp_path: Path, files: list[str], calm: tuple[dict[int, list[int]], Any], at: int
) -> None:
    """Before the first checkpoint, within the second window, and after two checkpoints; then once more."""
    for again in (at, 2):
        with pytest.raises(Stopped):
            trained(tmp_path, files, once_at(again, Stopped()))
    trainer = trained(tmp_path, files)
    assert seen(tmp_path) == calm[0]
    assert torch.equal(weights(trainer), calm[1])


def test_a_restart_in_the_process_goes_back_in_the_stream(
    tmp_path: Path, files: list[str], calm: tuple[dict[int, list[int]], Any]
) -> None:
    trainer = trained(tmp_path, files, once_at(12))
    assert [(r.since, r.step) for r in trainer.report.restarts] == [(7, 11)]
    assert seen(tmp_path) == calm[0]
    assert max((weights(trainer) - calm[1]).abs()) < 0.1, "dropout draws other masks for half a micro-batch"
    trainer = trained(tmp_path / "early", files, once_at(2, OutOfMemory("CUDA out of memory")))
    assert [(r.since, r.step) for r in trainer.report.restarts] == [(0, 1)], "before there is a checkpoint"
    assert seen(tmp_path / "early") == calm[0]


def test_another_micro_batch_keeps_the_clips(
    tmp_path: Path, files: list[str], calm: tuple[dict[int, list[int]], Any]
) -> None:
    with pytest.raises(Stopped):
        trained(tmp_path, files, once_at(10, Stopped()))
    trainer = trainer_of({"output": str(tmp_path), "steps": 20}, files)
    trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps = 2, 4
    ASRConfigManager().train(trainer, resume=True, verbose=False)
    assert {step: sorted(clips) for step, clips in seen(tmp_path).items()} == {
        step: sorted(clips) for step, clips in calm[0].items()
    }
    assert max((weights(trainer) - calm[1]).abs()) < 0.2, "dropout draws other masks"


def test_a_checkpoint_without_a_place_is_continued_by_reading_again(
    tmp_path: Path, files: list[str], calm: tuple[dict[int, list[int]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Stopped):
        trained(tmp_path, files, once_at(10, Stopped()))
    checkpoint = tmp_path / "checkpoint-7"
    (checkpoint / "asrconfig_stream.json").unlink()
    (checkpoint / "asrconfig_checksums.json").unlink()
    with caplog.at_level(logging.WARNING, "asrconfig_go"):
        trained(tmp_path, files)
    assert "without a place in the stream" in caplog.text
    assert seen(tmp_path) == calm[0]


def test_what_cannot_be_continued(tmp_path: Path, files: list[str], calm: tuple[dict[int, list[int]], Any]) -> None:
    with pytest.raises(Stopped):
        trained(tmp_path, files, once_at(17, Stopped()))
    place = tmp_path / "checkpoint-14" / "asrconfig_stream.json"
    trainer = trainer_of({"output": str(tmp_path), "steps": 20}, files)
    trainer.train_dataset = StreamBatches(open_shards(files, "parquet"), seed=4, window_clips=64)
    with pytest.raises(InvalidArgumentError, match="mode was 'bucketed', is 'random'; seed was 3, is 4") as caught:
        ASRConfigManager().train(trainer, resume=True, verbose=False)
    assert "start a new one in another output_dir" in caught.value.hint
    (tmp_path / "checkpoint-14" / "asrconfig_checksums.json").unlink()
    right = json.loads(place.read_text())
    for wrong in ({"state": 7}, {"window": "1"}):
        place.write_text(json.dumps({**right, "position": {**right["position"], **wrong}}))
        with pytest.raises(CorruptFileError, match=r"asrconfig_stream\.json"):
            trained(tmp_path, files)
    place.write_text('{"schema": 9}')
    with pytest.raises(CorruptFileError, match="holds no place in a stream"):
        trained(tmp_path, files)
    trainer = trainer_of({"output": str(tmp_path), "steps": 20}, files)
    ASRConfigManager().train(trainer, resume=tmp_path / "checkpoint-7", verbose=False)
    assert seen(tmp_path) == calm[0]


def test_settings_that_do_not_go_with_streams(tmp_path: Path, files: list[str]) -> None:
    def refused(problem: str, hint: str, change: Any) -> None:
        trainer = trainer_of({"output": str(tmp_path), "steps": 2}, files)
        change(trainer)
        with pytest.raises(InvalidArgumentError, match=problem) as caught:
            ASRConfigManager().train(trainer, verbose=False)
        assert hint in caught.value.hint

    refused("max_steps is not set", "max_steps=1000", lambda t: setattr(t.args, "max_steps", -1))
    refused("clips again", "ignore_data_skip out", lambda t: setattr(t.args, "ignore_data_skip", True))
    newer = hasattr(trainer_of({"output": str(tmp_path)}, files).args, "train_sampling_strategy")
    name, value = ("train_sampling_strategy", "group_by_length") if newer else ("group_by_length", True)
    refused("grouped by length", 'mode="bucketed"', lambda t: setattr(t.args, name, value))
    settings = "split_batches", True
    refused("dispatches", "accelerator_config", lambda t: setattr(t.accelerator.dataloader_config, *settings))
    alone = trainer_of({"output": str(tmp_path), "steps": 2}, files)
    with pytest.raises(InvalidArgumentError, match="no clips without a batch size") as caught:
        alone.train()
    assert "manager.train(trainer)" in caught.value.hint
    ASRConfigManager().train(alone, verbose=False)
    assert alone.state.global_step == 2


@pytest.mark.parametrize(("rule", "batches"), [("mean", [8] * 4), (None, [4] * 8)])
def test_a_planned_stream_is_split_by_the_guard(
    tmp_path: Path, files: list[str], rule: str | None, batches: list[int]
) -> None:
    """A share comes as one batch where the rule of the loss is known, and leaves the Trainer as it was."""
    trainer = trainer_of({"output": str(tmp_path), "steps": 4}, files)
    manager = ASRConfigManager()
    manager.config = make_plan(
        micro_batching="memory", length_handling="bucketed", streaming=True, micro_batch_size=8, rule=rule
    )
    sizes: list[int] = []
    trainer.model.register_forward_pre_hook(
        lambda model, args, kwargs: sizes.append(len(kwargs["labels"])) if torch.is_grad_enabled() else None,
        with_kwargs=True,
    )
    manager.train(trainer, verbose=False)
    assert sizes == batches
    assert (trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps) == (4, 2)
    assert isinstance(trainer.train_dataset, StreamBatches) and "get_train_dataloader" not in vars(trainer)


def test_a_plan_makes_the_stream_s_batches(files: list[str]) -> None:
    plan = make_plan(max_length_s=1.3, length_handling="bucketed", seed=5)
    stream = plan.stream(open_shards(files, "parquet"), window_clips=16)
    assert (stream.max_length_s, stream.mode, stream.seed, stream.window_clips) == (1.3, "bucketed", 5, 16)
    assert len(collate(next(stream.steps(4)))["number"]) == 4
    with pytest.raises(InvalidArgumentError, match="by index") as caught:
        plan.select(open_shards(files, "parquet"))
    assert "config.stream(dataset)" in caught.value.hint


@pytest.mark.filterwarnings("ignore:the loader was not measured")
def test_a_plan_s_warnings_are_followed(tmp_path: Path, files: list[str]) -> None:
    """From a sample to the last step: the stream's longest clip, and its unknown length."""
    stream = open_shards(files, "parquet")
    config, manager = create_optimal_config(
        stream, "wav2vec2-base", target_batch_size=8, sample_size=48, num_train_epochs=1.0, max_length_s=1.2,
        gpu="T4", trace=False, verbose=False,
    )  # fmt: skip
    assert manager.dataset is not None and manager.dataset.sampling is not None
    sampling = manager.dataset.sampling
    assert (sampling.shards, sampling.population, manager.dataset.measured_count) == (6, None, 48)
    assert sampling.mean_high_s is not None and sampling.mean_low_s < manager.dataset.mean_s < sampling.mean_high_s
    assert sampling.longer_share == pytest.approx(1 - 0.05 ** (1 / 48))
    shown = " ".join(repr(manager.dataset).split())
    assert "measured on a sample of 48, from 6 shards of a stream" in shown
    assert "with 95 % certainty: mean " in shown
    warnings = " ".join(config.warnings)
    assert "over max_length_s = 1.2 s do not fit the plan. config.stream(dataset) leaves them out" in warnings
    assert "config.max_steps(clips), for as many clips as the stream has" in warnings
    assert any(caution.code == "plan" and "max_length_s" in caution.what for caution in manager.explain().cautions)
    steps = config.max_steps(150)
    trainer = trainer_of({"output": str(tmp_path), "steps": steps}, files)
    trainer.train_dataset = config.stream(stream)
    manager.train(trainer, verbose=False)
    longest = {row["number"]: row["length"] for row in lengths(files)}
    assert len(seen(tmp_path)) == steps == 19
    assert max(longest[number] for clips in seen(tmp_path).values() for number in clips) <= 1.2


def lengths(files: list[str]) -> list[dict[str, Any]]:
    clips = open_shards(files, "parquet")
    return [{"number": row["number"], "length": len(load_audio(row["audio"])) / 16_000} for row in clips]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]]]:
    """Folders of trainings in processes, and their exit statuses: an undisturbed and a killed one of each kind."""
    folder, runs = tmp_path_factory.mktemp("killed"), list[dict[str, Any]]()
    for name, run_steps in RUNS.items():
        runs.append({**run_steps, "output": str(folder / f"calm-{name}")})
        runs += [{**run_steps, "output": str(folder / name), "kill": kill} for kill in (*sorted(KILLS[name]), None)]
    runs.append({**RUNS["workers"], "output": str(folder / "worker"), "kill": 33})
    runs.append({**RUNS["workers"], "output": str(folder / "worker"), "deadly": 100})
    command = [sys.executable, str(HELPERS / "streamed_training.py"), str(folder), json.dumps(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return folder, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.mark.slow
def test_processes_were_killed(killed: tuple[Path, list[list[int]]]) -> None:
    alone = [[0], *[[-9]] * 3, [0]]
    assert killed[1] == [*alone, *alone, [0, 0], *[[-9, -9]] * 3, [0, 0], [-9], [0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_runs_end_as_the_one_that_was_not(killed: tuple[Path, list[list[int]]], name: str) -> None:
    ranks = RUNS[name].get("ranks", 1)
    wanted, undisturbed = result(killed[0] / f"calm-{name}", ranks)
    steps, got = result(killed[0] / name, ranks)
    assert steps == wanted and all(sorted(run_steps) == list(range(1, STEPS + 1)) for run_steps in steps)
    assert {sum(len(run_steps[step]) for run_steps in steps) for step in steps[0]} == {8}
    assert torch.equal(got, undisturbed)


@pytest.mark.slow
def test_a_loader_worker_that_is_killed_in_a_resumed_run(killed: tuple[Path, list[list[int]]]) -> None:
    wanted, undisturbed = result(killed[0] / "calm-workers")
    steps, got = result(killed[0] / "worker")
    assert (killed[0] / "worker" / "killed").exists()
    assert steps == wanted and torch.equal(got, undisturbed)
