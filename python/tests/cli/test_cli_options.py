"""Options that commands share, and closed sets of values: each wrong one is answered with the right ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from asrconfig_go.__main__ import _parser, main
from asrconfig_go.cli.options import Parser

QUIET = ("scan", "plan", "train", "memory", "compare", "benchmark", "report", "replay", "profile-gpu", "demo")


def commands() -> dict[str, Parser]:
    (parsers,) = (a.choices for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(parsers)


def choices() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for name, command in commands().items():
        for action in command._actions:
            if action.choices is not None:
                yield name, (action.option_strings or [""])[0], tuple(map(str, action.choices))


@pytest.mark.parametrize(
    ("command", "option", "right"), [*choices()], ids=lambda value: str(value) if value else "argument"
)
def test_a_wrong_choice_lists_the_right_ones(
    command: str, option: str, right: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, *([option] if option else []), "nonsense"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "nonsense" in message and all(value in message for value in right)


def test_commands_with_a_result_or_progress_take_quiet() -> None:
    taking = {name for name, command in commands().items() if "--quiet" in command._option_string_actions}
    assert taking == set(QUIET)
    assert len({commands()[name]._option_string_actions["--quiet"].help for name in QUIET}) == 1, "one meaning"


@pytest.mark.parametrize(
    "command",
    [
        ["scan", "demo", "--no-cache"],
        ["plan", "--data", "demo", "--model", "tiny-whisper", "--gpu", "T4"],
        ["memory", "--model", "tiny-wav2vec2", "--batch", "2", "--seconds", "3", "--gpu", "T4", "--no-cache"],
        ["compare", "--data", "demo", "--model", "tiny-wav2vec2", "--gpus", "T4"],
    ],
    ids=lambda command: command[0],
)
def test_quiet_prints_the_result_alone(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--quiet"]) == 0
    printed = capfd.readouterr()
    assert printed.err == "" and printed.out.endswith("\n") and "all of it: --full" in printed.out


@pytest.mark.slow
def test_a_quiet_demo_prints_what_it_learnt(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path), "--max-steps", "1", "--quiet"]) == 0
    printed = capfd.readouterr()
    assert printed.out.startswith("tiny-wav2vec2: 1 step") and "word error rate" in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    ("command", "right"),
    [
        (
            ["compare", "--largest", "nonsense", "--gpus", "T4"],
            ("whisper", "xls-r", "wav2vec2", "hubert", "wavlm", "mms"),
        ),
        (["benchmark", "--model", "tiny-wav2vec2", "--data", "demo", "--sweep", "nonsense"], ("precision", "workers")),
        (["scan", "demo", "--html", "page.pdf"], (".html",)),
        (["plan", "--data", "demo", "--model", "tiny-whisper", "--gpu", "L44"], ("L4",)),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_name_lists_the_right_ones(
    command: list[str], right: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    try:
        assert main(command) == 1
    except SystemExit as ended:
        assert ended.code == 2
    message = capsys.readouterr().err
    assert all(name in message for name in right), message


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--target-batch-size", "70000"], "set --target-batch-size to a whole number from 1 to 65536"),
        (["--target-batch-size", "9" * 23], "--target-batch-size: number 99999999999999999999999 does not fit"),
        (["--output", ""], "argument --output: the name of the file is empty"),
        (["--sample-size", "3"], "measured on a sample of 3"),
        (["--sample-size", "0"], "leave --sample-size out to measure every file"),
        (["--policy", "published", "--price", "2", "--lora", "8"], "does not accept --lora, --price\n"),
    ],
)
def test_plans_answer_in_the_words_of_the_command(
    options: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        main(["plan", "--data", "demo", "--model", "wav2vec2-base", "--gpu", "T4", "--no-trace", *options])
    except SystemExit as ended:
        assert ended.code == 2
    printed = capsys.readouterr()
    assert answer in printed.out.replace("\n ", "") + printed.err


def test_an_error_names_options_and_leaves_other_words() -> None:
    text = 'batch = 0: ask with estimator="trace" in a batch, or set config.lora_rank = 8'
    in_options = '--batch = 0: ask with --estimator "trace" in a batch, or set config.lora_rank = 8'
    assert commands()["memory"].in_options(text) == in_options
