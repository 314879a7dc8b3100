"""Tables of measured kernels: kept, found, named, refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.__main__ import main
from asrconfig_go._core import native
from asrconfig_go.benchmark import kernel_timing
from asrconfig_go.data.source import CLIPS
from asrconfig_go.errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError
from asrconfig_go.plan import find_step_calibration
from asrconfig_go.plan.step_calibrations import MeasuredStep, calibrate_steps, store_step_calibration
from asrconfig_go.predict.hardware import kernel_profile, known_kernel_profiles, store_kernel_table
from asrconfig_go.predict.memory_settings import MemorySettings

pytestmark = pytest.mark.usefixtures("fresh_cache")

BYTES_A_SECOND, FLOPS = 2.0e11, 4.0e12
HOURS: dict[str, Any] = {"hours": 10, "mean_s": 5, "max_s": 20}


def t4_table(bytes_a_second: float = BYTES_A_SECOND, flops: float = FLOPS) -> dict[str, Any]:
    """A table as ``asrconfig profile-gpu`` writes it, of a card that nobody measured.

    Each kernel takes what its bytes or its arithmetic take at these rates, and 2 µs.
    """
    asked = {"compute_capability": "7.5", "memory_bytes": 16e9}
    rows = []
    for sample in native.call("timing.kernels", asked)["samples"]:
        o = sample["operation"]
        products = {"attention": 2, "attention_backward": 5}.get(sample["recipe"], 1)
        work = 2 * products * o.get("batch", 0) * o.get("m", 0) * o.get("n", 0) * o.get("k", 0)
        seconds = max((o["read"] + o["written"]) / bytes_a_second, work / flops) + 2e-6 * o["kernels"]
        rows.append({**o, "seconds": seconds, "low_s": 0.98 * seconds, "high_s": 1.04 * seconds})
    return {
        "version": 1, "gpu": "Tesla T4", "memory_bytes": 16106127360, "driver": "580.1", "torch": "2.9", "cuda": "12.8",
        "date": "2026-03-01", "launch_s": 2e-6, "dispatch_s": 7e-6, "kernels": rows,
    }  # fmt: skip


def _written(path: Path, table: Any) -> Path:
    path.write_text(json.dumps(table), "utf-8")
    return path


def test_comparisons_take_what_was_measured() -> None:
    before = ac.compare_gpus("wav2vec2-base", gpus=["T4", "L4"], **HOURS)
    assert [row.measured for row in before.rows] == ["", ""]
    assert before.rows[0].run_hours is not None
    store_kernel_table(t4_table(BYTES_A_SECOND / 3), "T4")
    after = ac.compare_gpus("wav2vec2-base", gpus=["T4", "L4"], **HOURS)
    assert [row.measured for row in after.rows] == ["2026-03-01", ""]
    assert after.rows[0].run_hours is not None
    assert after.rows[0].run_hours.likely > 1.2 * before.rows[0].run_hours.likely
    assert after.rows[1].run_hours == before.rows[1].run_hours
    assert "measured" in str(after)


def test_a_table_can_be_named(tmp_path: Path) -> None:
    path = _written(tmp_path / "t4.json", t4_table())
    comparison = ac.compare_gpus("wav2vec2-base", gpus=["T4"], gpu_profile=path, **HOURS)
    assert comparison.rows[0].measured == "2026-03-01"
    options: dict[str, Any] = {"trace": False, "verbose": False, "gpu_profile": path}
    config, manager = ac.create_optimal_config(CLIPS, "wav2vec2-base", gpu="T4", **options)
    assert config.times is not None and config.times.measured == "2026-03-01"
    assert "by kernels measured on 2026-03-01" in str(manager.explain())
    with pytest.raises(InvalidArgumentError, match="measured on a T4, and the plan is for a L4"):
        ac.create_optimal_config(CLIPS, "wav2vec2-base", gpu="L4", **options)


def test_plans_find_the_table_of_their_card() -> None:
    store_kernel_table(t4_table(), "T4")
    plans = [
        ac.create_optimal_config(CLIPS, "wav2vec2-base", gpu=gpu, trace=False, verbose=False)[0]
        for gpu in ("T4", "2xT4", "L4")
    ]
    assert [plan.times.measured for plan in plans if plan.times] == ["2026-03-01", "2026-03-01", ""]


@pytest.mark.slow
def test_steps_and_runs_take_what_was_measured(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"batch": 4, "seconds": 10, "precision": "fp16"}
    before = ac.estimate_step_time("wav2vec2-base", "T4", **shape)
    path = store_kernel_table(t4_table(BYTES_A_SECOND / 3), "T4")
    after = ac.estimate_step_time("wav2vec2-base", "T4", **shape)
    run = ac.estimate_run_time("wav2vec2-base", "T4", steps=100, workers=4, **shape)
    assert (before.measured, after.measured, run.measured) == ("", "2026-03-01", "2026-03-01")
    assert after.step_s.likely > 1.2 * before.step_s.likely
    path.rename(tmp_path / "mine.json")
    assert ac.estimate_step_time("wav2vec2-base", "T4", gpu_profile=tmp_path / "mine.json", **shape) == after
    with pytest.raises(InvalidArgumentError, match="measured on a T4, and the plan is for a L4"):
        ac.estimate_step_time("wav2vec2-base", "L4", gpu_profile=tmp_path / "mine.json", **shape)


def test_calibrations_rest_on_the_table_of_their_day() -> None:
    path = store_kernel_table(t4_table(BYTES_A_SECOND / 3), "T4")
    took = 2 * ac.estimate_step_time("wav2vec2-base", "T4", batch=4, seconds=10).step_s.likely
    steps = [MeasuredStep(((4, 10.0),), took)]
    record = calibrate_steps("wav2vec2-base", "T4", MemorySettings("fp16", False), steps)
    assert record.factor == pytest.approx(2)
    assert record.kernels == "2026-03-01"
    assert store_step_calibration(ac.profile_model("wav2vec2-base"), record)
    (row,) = ac.compare_gpus("wav2vec2-base", gpus=["T4"], **HOURS).rows
    assert row.calibrated and row.measured == "2026-03-01"
    path.unlink()
    assert find_step_calibration("wav2vec2-base", "T4") is None
    (row,) = ac.compare_gpus("wav2vec2-base", gpus=["T4"], **HOURS).rows
    assert not row.calibrated and row.measured == ""


def test_broken_tables_in_the_cache_count_for_nothing() -> None:
    good = store_kernel_table(t4_table(), "T4")
    (good.parent / "broken.json").write_text('{"version": 1,', "utf-8")
    (good.parent / "empty.json").write_text("{}", "utf-8")
    assert [profile["gpu"] for profile in known_kernel_profiles()] == ["T4"]
    good.unlink()
    assert known_kernel_profiles() == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gpu": "NVIDIA H100 80GB HBM3", "memory_bytes": 0, "kernels": []}, InvalidArgumentError, "0 kernels"),
        ({"gpu": "abacus"}, NotFoundError, "abacus"),
        ({"launch_s": float("nan")}, CorruptFileError, "table of kernels"),
        ({"launch_s": -1}, InvalidArgumentError, "seconds of a launch -1"),
        ({"rows": []}, CorruptFileError, "rows"),
    ],
)
def test_tables_that_cannot_be_are_refused(change: dict[str, Any], error: type[AsrConfigError], message: str) -> None:
    with pytest.raises(error, match=message):
        kernel_profile({**t4_table(), **change})


def test_the_command_stores_and_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel_timing, "measure_kernels", lambda device, minutes, progress: t4_table())
    copy = tmp_path / "t4.json"
    assert main(["profile-gpu", "--minutes", "1", "--output", str(copy)]) == 0
    output = capsys.readouterr().out
    assert "Tesla T4: " in output and "a launch takes 2.0 µs, a dispatch 7.0 µs" in output
    assert "  linear                float16" in output
    assert json.loads(copy.read_text("utf-8")) == t4_table()
    assert [profile["gpu"] for profile in known_kernel_profiles()] == ["T4"]
    assert (
        main(["compare", "--model", "wav2vec2-base", "--gpus", "T4", "--hours", "5", "--gpu-profile", str(copy)]) == 0
    )
    assert "measured" in capsys.readouterr().out


def test_the_command_lists_what_is_stored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile-gpu", "--list"]) == 0
    assert "no kernels were measured" in capsys.readouterr().out
    path = store_kernel_table(t4_table(), "T4")
    (path.parent / "broken.json").write_text("{}", "utf-8")
    assert main(["profile-gpu", "--list"]) == 0
    good, broken = capsys.readouterr().out.splitlines()
    count = len(t4_table()["kernels"])
    assert good == f"{path}: T4, 2026-03-01, {count} kernels, torch 2.9, CUDA 12.8, driver 580.1"
    assert broken.startswith(f"{path.parent / 'broken.json'}: not used, ")


def test_the_command_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["profile-gpu"]) == 1
    assert "there is no GPU to measure" in capsys.readouterr().err


def test_a_torch_that_cannot_be_imported_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudnn.so.9: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    assert main(["profile-gpu"]) == 1
    assert "measuring kernels needs torch" in capsys.readouterr().err
