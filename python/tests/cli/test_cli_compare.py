"""``asrconfig compare``, as a person types it."""

from __future__ import annotations

import json
import shlex

import pytest

from asrconfig_go.__main__ import main

QUESTION = ["compare", "--model", "xls-r-300m", "--hours", "10", "--gpus", "T4, 2xL4"]


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


def test_the_whole_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--model", "openai/whisper-tiny", "--hours", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) > 30


def test_largest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--largest", "xls-r", "--gpus", "T4"]) == 0
    printed = capsys.readouterr().out
    assert "largest, fully: facebook/wav2vec2-xls-r-300m" in printed
    assert "largest, LoRA 32: facebook/wav2vec2-xls-r-1b" in printed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--gpus", "T4", "--hours", "1"], "no model to compare for"),
        (["--model", "whisper-tiny"], "nothing to train on"),
        (["--largest", "whisper"], "--largest with 0 GPUs"),
        ([*QUESTION[1:], "--price", "T4=cheap"], "'T4=cheap' is not a price"),
        ([*QUESTION[1:], "--price", "T4=-1"], "the price of T4 is -1"),
        (["--model", "whisper-tiny", "--hours", "1", "--gpus", "T44"], "did you mean T4"),
        (["--model", "whisper-tinny", "--hours", "1", "--gpus", "T4"], "openai/whisper-tiny"),
    ],
)
def test_mistakes_are_explained(line: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *line]) == 1
    assert message in capsys.readouterr().err


def test_hours_of_measured_data_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["compare", "--model", "whisper-tiny", "--data", "demo", "--gpus", "T4"]
    assert main([*line, "--hours", "10"]) == 1
    message, hint = capsys.readouterr().err.splitlines()
    assert "--data with --hours 10: what --data holds is measured" in message
    command = shlex.split(hint.strip().removeprefix("→ "))
    assert command == ["asrconfig", *line]
    assert main(command[1:]) == 0
