"""Two runs beside each other: which steps are compared, what is shown, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.__main__ import main
from asrconfig_go.errors import CorruptFileError, InvalidArgumentError, NotFoundError
from asrconfig_go.watch import compare_runs
from html_checks import charts, tags
from made_runs import put_run, trained


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """A run of 93 steps, and one of 186 that starts like it and has other settings."""
    folders = []
    for name, length in (("base", 1), ("larger", 2)):
        run_log = trained(seconds=300 * length, points=150 * length, rows=80 * length, steps=100 * length, leak=False)
        folders.append(put_run(tmp_path / name, run_log, 8 * length, 0.2 / length))
    return folders[0], folders[1]


def test_runs_of_different_length_are_compared_over_common_steps(runs: tuple[Path, Path]) -> None:
    compared = compare_runs(*runs)
    text = str(compared)
    last = compared.record["a"]["last"]
    assert (compared.record["first"], compared.record["last"]) == (1, last) and compared.record["b"]["last"] > last
    assert f"figures are of steps 1 to {last}, which both made; larger made 1 to {compared.record['b']['last']}" in text
    steps = compared.figures["steps_per_s"]
    assert steps.ratio == pytest.approx(1.0, rel=0.01), "both take a step in the same time"
    assert compared.figures["train_s"].ratio == pytest.approx(1.0, rel=0.01), (
        "of the common steps, not of the whole runs"
    )
    assert steps.a is not None and compared.figures["clips_per_s"].a == pytest.approx(32 * steps.a)
    assert compared.settings == {"gradient_accumulation_steps": (4, 2), "per_device_train_batch_size": (8, 16)}
    assert compared.figures["eval_wer_last"].b == pytest.approx(0.1, abs=0.01)
    assert "errors_recovered" not in compared.figures, "there is no record of a guard"
    assert len(text.splitlines()) <= 30
    assert all(words in text for words in ("base   ", "GPU busy", "mean GPU memory", "Settings that differ"))


def test_page_json_and_csv(runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(run) for run in runs]
    outputs = ["--html", str(tmp_path / "c.html"), "--export", str(tmp_path / "c.csv")]
    assert main(["report", *names, *outputs, "--full"]) == 0
    compared = compare_runs(*runs)
    assert capsys.readouterr().out.rstrip() == str(compared)
    page = (tmp_path / "c.html").read_text()
    tags(page)
    assert [svg.get("aria-label") for svg in charts(page)] == ["Loss", "WER"]
    assert "larger: evaluation" in page and compared.headline in page
    rows = {row["key"] or row["name"]: row for row in csv.DictReader((tmp_path / "c.csv").read_text().splitlines())}
    assert float(rows["steps_per_s"]["a"]) == compared.figures["steps_per_s"].a
    assert (rows["gradient_accumulation_steps"]["what"], rows["gradient_accumulation_steps"]["b"]) == ("settings", "2")
    assert main(["report", *names, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer == compared.to_json() and answer["comparison_version"] == 1 and "charts" not in answer
    assert repr(compared) == f"RunComparison({compared.headline!r})"
    assert "<script" not in compared._repr_html_()


def test_what_cannot_be_compared_is_refused(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(run) for run in runs]
    for options, words in (
        ([names[0]], "cannot compare 3 runs"),
        (["--plot", "c.png"], "--plot is for one run"),
        (["--by", "time"], "--by is for one run"),
        (["--export", "c.json"], "cannot write a comparison to 'c.json'"),
    ):
        assert main(["report", *names, *options]) == 1
        assert words in capsys.readouterr().err
    with pytest.raises(NotFoundError, match="there is no run"):
        compare_runs(runs[0], "nowhere")
    (runs[1] / "asrconfig_monitor.json").write_text("{")
    with pytest.raises(CorruptFileError):
        compare_runs(*runs)
    with pytest.raises(InvalidArgumentError, match="int is not a run"):
        compare_runs(5, runs[0])  # type: ignore[arg-type]


def test_monitors_are_runs_too() -> None:
    with ac.MemoryMonitor(5) as first, ac.MemoryMonitor(5) as second:
        for monitor, spent_s in ((first, 0.5), (second, 0.25)):
            for _ in range(2):
                monitor.step(spent_s=spent_s)
        compared = compare_runs(first, second)
    assert compared.figures["steps_per_s"].ratio == pytest.approx(2.0)
    assert compared.headline.startswith("B against A: 2.00 × steps/s")
    assert "not known: A has no training_config.json" in str(compared)
