"""What is said: how long, how right, and whether it can be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from material import ctc, noise, train
from outcome import Heard, Outcome, hearing, situation

import asrconfig_go
from asrconfig_go.data.splits import load_split
from asrconfig_go.recipe import build_processor
from asrconfig_go.watch import report
from asrconfig_go.watch.telemetry import RunLog

LONGEST = 6_000  # characters of a message


def _short(heard: Heard, report: Any) -> Outcome:
    lines = [*heard.lines, *repr(report).splitlines()]
    most = max(map(len, lines), default=0)
    text = f"{len(lines)} lines, the longest has {most:,} characters"
    said = any("not finite" in line for line in lines)
    return Outcome("named" if said and most <= LONGEST else "silent" if not said else "unnamed", text)


@situation
def diverged_run_of_large_batches(folder: Path) -> Outcome:
    """A loss that is not finite in a batch of 1500 clips, for each of them."""
    spoken = load_split("train").select(range(16))
    processor = build_processor(spoken["text"], "tiny-wav2vec2")
    clip = noise(folder / f"{'x' * 80}.wav", 0.3)
    rows = datasets.Dataset.from_list([{"audio": clip, "labels": [3, 4] * 50}] * 1500)
    model = ctc(processor, ctc_zero_infinity=False)  # and every clip's labels are too long
    with hearing() as heard:
        trainer = train(
            model, rows, processor, folder, plan={"target_batch_size": 1500}, attach={"memory": False}, max_steps=1
        )
    report = None if heard.error else trainer.manager.report
    return _short(heard, report)


@situation
def full_cpu_beside_nothing(folder: Path) -> Outcome:
    """A report that says nothing held the training back beside a CPU that is busy all the time."""
    recorded = Path(asrconfig_go.__file__).resolve().parents[2] / "capi" / "testdata" / "diagnosis.blocks.json"
    log = json.loads(recorded.read_text())[0]["request"]["args"]["run_log"]
    log["gpus"], log["activity"]["gpus"], log["memory"]["gpu_used_bytes"] = [], [], []
    log["activity"]["cpu_share"] = [1.0] * len(log["activity"]["cpu_share"])
    first = report(RunLog.from_json(log)).findings[0]
    wrong = "Nothing held" in first.title
    return Outcome("unnamed" if wrong else "named", f"{first.title}: {first.evidence} → {first.change}")


def _speech(folder: Path, count: int) -> tuple[Any, Any]:
    spoken = load_split("train").select(range(16))
    processor = build_processor(spoken["text"], "tiny-wav2vec2")
    rng = np.random.default_rng(0)
    clips = [noise(folder / f"{i}.wav", float(rng.uniform(0.4, 3)), i) for i in range(count)]
    return datasets.Dataset.from_list([{"audio": clip, "labels": [3, 4, 3]} for clip in clips]), processor


def _planned(folder: Path, rows: Any, trained: Any, processor: Any, heard_words: tuple[str, ...]) -> Outcome:
    """The plan of ``rows`` with steps by length, a training of ``trained``."""
    from transformers import Trainer

    from asrconfig_go import create_optimal_config
    from asrconfig_go.recipe import make_collator

    model = ctc(processor)
    with hearing() as heard:
        config, manager = create_optimal_config(
            rows, model, target_batch_size=8, num_train_epochs=1, verbose=False, length_handling="stratified",
            trace=True,
        )  # fmt: skip
        arguments = config.to_training_arguments(
            folder / "out", remove_unused_columns=False, report_to=[], save_strategy="no", disable_tqdm=True
        )
        trainer = Trainer(model, arguments, train_dataset=trained, data_collator=make_collator(processor, model))
        manager.attach(trainer)
    return heard.named(*heard_words)


@situation
def plan_of_raw_data(folder: Path) -> Outcome:
    """A plan of raw data, and a training of what a filter left."""
    rows, processor = _speech(folder, 64)
    words = "64 clips were measured and the training set has 48", "times as long as planned", "plan with"
    return _planned(folder, rows, rows.select(range(48)), processor, words)


@situation
def plan_of_unreadable_clips(folder: Path) -> Outcome:
    """A plan of data of which two clips cannot be read: as many clips as the training set has."""
    rows, processor = _speech(folder, 40)
    for row in (5, 9):
        (folder / f"{row}.wav").write_bytes(b"RIFF")
    return _planned(folder, rows, rows, processor, ("2 of 40", "5, 9", "select"))
