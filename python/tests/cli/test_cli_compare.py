"""``asrconfig compare``, as a person types it."""

from __future__ import annotations

import json
import shlex
import wave
from pathlib import Path

import pytest

from asrconfig_go.__main__ import main

QUESTION = ["compare", "--model", "xls-r-300m", "--hours", "10", "--gpus", "T4, 2xL4"]


@pytest.fixture
def clips(tmp_path: Path) -> str:
    """A folder of recordings of 1 to 6 s."""
    for second in range(1, 7):
        with wave.open(str(tmp_path / f"{second}.wav"), "wb") as clip:
            clip.setparams((1, 2, 16_000, 0, "NONE", ""))
            clip.writeframes(bytes(2 * 16_000 * second))
    return str(tmp_path)


def test_it_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--price", "T4=0.35,L4=0.7"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 15
    assert main([*QUESTION, "--price", "T4=0.35,L4=0.7", "--full"]) == 0
    printed = capsys.readouterr().out
    for part in ("T4 ", "2 × L4", "hours a run", "T4 0.35, L4 0.70 (given)", "cheapest", "fastest"):
        assert part in printed


def test_options_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--model wav2vec2-base --gpus T4 --target-batch-size 16 --epochs 2 --precision fp16 "
        "--optimizer adafactor --lora 8 --order grouped --workers 2 --safety-margin 0.9 "
        "--loader-rate 0.5 --mean-seconds 5 --max-seconds 9 --freeze-feature-encoder --json"
    )
    assert main([*QUESTION, *options.split()]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["target_batch_size"], body["epochs"], body["longest_s"], body["clips"]) == (16, 2.0, 9.0, 7200)
    row = body["rows"][0]
    assert (row["precision"], row["optimizer"], row["lora_rank"], row["bound"]) == ("fp16", "adafactor", 8, "loader")
    assert row["budget_bytes"] == int(0.9 * row["memory_bytes"])
    assert row["epoch_hours"]["likely"] == pytest.approx(10, rel=0.01)
    assert body["model"]["trainable_parameters"] < body["model"]["total_parameters"]


@pytest.mark.slow
def test_the_whole_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--model", "openai/whisper-tiny", "--hours", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) > 30


def test_largest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--largest", "xls-r", "--gpus", "T4"]) == 0
    printed = capsys.readouterr().out
    assert "largest, fully: facebook/wav2vec2-xls-r-300m" in printed
    assert "largest, LoRA: facebook/wav2vec2-xls-r-1b" in printed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--gpus", "T4", "--hours", "1"], "no model to compare for"),
        (["--model", "whisper-tiny"], "nothing to train on"),
        (["--largest", "whisper"], "--largest with 0 GPUs"),
        (["--largest", "whisper", "--gpus", "T4", "--lora", "8"], "--largest with --lora"),
        (["--by-hand", "--hours", "1"], "--by-hand with hours and no model"),
        (["--by-hand", "--model", "whisper-tiny"], "nothing to train on"),
        ([*QUESTION[1:], "--price", "T4=cheap"], "'T4=cheap' is not a price"),
        ([*QUESTION[1:], "--price", "T4=-1"], "the price of T4 is -1"),
        (["--model", "whisper-tiny", "--hours", "1", "--gpus", "T44"], "did you mean T4"),
        (["--model", "whisper-tiny", "--hours", "1", "--texts", "9"], "--hours = 1.0 with texts"),
        (["--model", "whisper-tiny", "--hours", "1", "--max-tokens", "9"], "--max-tokens = 9 with hours"),
        (["--model", "whisper-tiny", "--data", "demo", "--mean-seconds", "9"], "--mean-seconds = 9.0 with a dataset"),
        (["--largest", "whisper", "--gpus", "T4", "--epochs", "2"], "--epochs = 2.0 with --largest"),
        (["--model", "whisper-tinny", "--hours", "1", "--gpus", "T4"], "openai/whisper-tiny"),
    ],
)
def test_mistakes_are_explained(line: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *line]) == 1
    assert message in capsys.readouterr().err


def test_recording_a_step_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        "asrconfig_go.plan.gpu_comparison.Tracer.__init__", lambda *_, progress, **__: asked.append(progress)
    )
    for quiet in ([], ["--quiet"]):
        with pytest.raises(AttributeError):
            main(["compare", "--model", "whisper-tiny", "--hours", "1", "--gpus", "T4", *quiet])
    assert asked == [True, False]


def test_hours_of_measured_data_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["compare", "--model", "whisper-tiny", "--data", "demo", "--gpus", "T4"]
    assert main([*line, "--hours", "10"]) == 1
    message, hint = capsys.readouterr().err.splitlines()
    assert "--data with --hours 10: what --data holds is measured" in message
    command = shlex.split(hint.strip().removeprefix("→ "))
    assert command == ["asrconfig", *line]
    assert main(command[1:]) == 0


@pytest.mark.slow
def test_settings_by_hand_of_the_published_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--by-hand"]) == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    for part in (
        "L4, 22.5 GiB: facebook/wav2vec2-xls-r-1b", "A100-40GB SXM, 40.0 GiB", "T4, 15.0 GiB", "out of memory",
        "published   4 × 8, bf16,", "safe        1 × 32, bf16,", "10 runs, $",
        "dollars (published): L4, 0.40 an hour and GPU", "clips (assumed): 45000 clips",
    ):  # fmt: skip
        assert part in printed


def test_settings_by_hand_of_your_own_data(clips: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--data", clips, "--model", "wav2vec2-base", "--gpus", "L4, 2xT4", "--price", "L4=0.5"]
    assert main(["compare", "--by-hand", *own]) == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    assert "dollars (given): L4, 0.50 an hour and GPU" in printed and "clips (measured): " in printed
    assert main(["compare", "--by-hand", *own, "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [(case["gpu"], case["count"]) for case in cases] == [("L4", 1), ("T4", 2)]
    for case in cases:
        assert [row["settings"] for row in case["rows"]] == ["aggressive", "published", "safe", "plan"]
        for row in case["rows"]:
            assert row["fits"] == (row["peak_bytes"] <= case["memory_bytes"]) == bool(row["totals"])
            for total in row["totals"]:
                cost = total["hours"]["likely"] * case["price"]["usd_per_hour"] * case["count"]
                assert total["cost_usd"]["likely"] == pytest.approx(cost)
