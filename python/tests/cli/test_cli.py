"""The command line, as a person types it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

from asrconfig_go.__main__ import main


def test_plan_prints_profile_plan_and_reasons(
    make_wav: WavMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wav("data/a.wav", 8.0)
    saved = tmp_path / "plan.json"
    arguments = ["--data", str(tmp_path / "data"), "--model", "xls-r-300m", "--gpu", "T4", "--output", str(saved)]
    assert main(["plan", *arguments]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 26
    for part in ("Tesla T4", "1 clip,", "315.5 M parameters", "Clips a step ", "gradient_checkpointing="):
        assert part in short
    _, command = short.split("next:\n")
    assert max(map(len, short.removesuffix(command).splitlines())) <= 80
    trained = ["--data", str(tmp_path / "data"), "--model", "facebook/wav2vec2-xls-r-300m", "--config", str(saved)]
    assert shlex.split(command.replace("\\\n", "")) == ["asrconfig", "train", *trained]
    assert main(["plan", *arguments, "--full"]) == 0
    full = capsys.readouterr().out
    for part in ("Tesla T4", "1 clip,", "315.5 M parameters", "per_device_train_batch_size =", "Alternatives"):
        assert part in full
    assert json.loads(saved.read_text())["gpu_name"] == "Tesla T4"


def test_a_plan_with_own_settings_is_saved_before_it_is_trained(
    make_wav: WavMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command train has no such options: without the file it would train by another plan."""
    make_wav("data/a.wav", 2.0)
    monkeypatch.chdir(tmp_path)
    plan = ["plan", "--data", "data", "--model", "wav2vec2-base", "--gpu", "T4", "--no-trace"]
    for own in ([], ["--max-seconds", "5"], ["--lora", "8"]):
        assert main([*plan, *own]) == 0
        words = shlex.split(capsys.readouterr().out.split("next:")[1].replace("\\\n", ""))
        assert words[1:] == ([*plan, *own, "--output", "plan.json"] if own else [
            "train", "--data", "data", "--model", "facebook/wav2vec2-base"])  # fmt: skip


def test_plan_names_a_training_that_runs(
    make_wav: WavMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command takes no shards and no list of paths: these are trained on in Python."""
    clip = make_wav("a.wav", 2.0)
    (tmp_path / "paths.txt").write_text(f"{clip}\n")
    (tmp_path / "m.csv").write_text(f"path,text\n{clip},one\n")
    with tarfile.open(tmp_path / "shards.tar", "w") as shards:
        shards.add(clip, "a.wav")
    for name, in_python in (("paths.txt", True), ("shards.tar", True), ("*.tar", True), ("m.csv", False)):
        data = str(tmp_path / name)
        assert main(["plan", "--data", data, "--model", "wav2vec2-base", "--gpu", "T4", "--no-trace"]) == 0
        _, hint = capsys.readouterr().out.split("next:", 1)
        assert (
            f"create_optimal_config({data!r}, 'facebook/wav2vec2-base'); manager.train(trainer)" in hint
        ) == in_python
        assert hint.lstrip().startswith("asrconfig train ") != in_python


def test_plan_as_json(make_wav: WavMaker, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_wav("a.wav", 2.0)
    assert main(["plan", "--data", str(path), "--model", "whisper-tiny", "--gpu", "L4", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["config"]["bf16"] is True
    assert answer["dataset"]["mean_s"] == 2.0
    assert answer["model"]["total_parameters"] == 37_760_640


def test_plan_takes_options_of_evaluations(make_wav: WavMaker, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "--data", str(make_wav("a.wav", 2.0)), "--model", "whisper-tiny", "--gpu", "L4", "--json"]

    def planned(*options: str) -> Any:
        assert main([*plan, "--no-trace", *options]) == 0
        return json.loads(capsys.readouterr().out)["config"]

    assert planned("--eval-samples", "0")["eval_steps"] is None
    options = "--eval-samples 40 --max-eval-share 1 --num-beams 4 --generation-max-length 50"
    beams = planned(*options.split())
    assert beams["times"]["run_parts"]["evaluation"]["likely"] > 0
    assert "4 beams" in next(d["reason"] for d in beams["decisions"] if d["setting"] == "per_device_eval_batch_size")
    assert main([*plan, "--num-beams", "0"]) != 0
    assert "--num-beams is 0" in capsys.readouterr().err


def test_scan_prints_one_json_line_per_file(
    make_wav: WavMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = make_wav("a.wav", 2.0)
    bad = tmp_path / "b.wav"
    bad.write_text("not audio")
    assert main(["scan", str(good), str(bad), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    fields = ["path", "duration_s", "claimed_duration_s", "sample_rate", "channels", "bits", "codec", "method", "error"]
    assert [list(line) for line in lines] == [fields, fields]
    assert lines[0]["bits"] == 16
    assert (lines[0]["duration_s"], lines[0]["error"]) == (2.0, "")
    assert lines[1]["duration_s"] is None
    assert lines[1]["error"]
    assert main(["scan", str(bad), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]
    assert main(["scan", str(bad)]) == 1
    assert "no usable clip" in capsys.readouterr().out


def test_scan_shows_what_padding_costs(make_wav: WavMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seconds in (1.0, 1.0, 1.0, 3.0):
        make_wav(f"data/{len(list(tmp_path.glob('data/*')))}.wav", seconds)
    assert main(["scan", str(tmp_path / "data"), "--batch-size", "2", "--no-cache"]) == 0
    printed = capsys.readouterr().out
    assert "4 clips," in printed
    assert "padding in batches of 2" in printed
    assert "random 25.0%, grouped by length 25.0%" in printed and "sorted 25.0%" in printed
    page = tmp_path / "scan.html"
    assert main(["scan", str(tmp_path / "data"), "--full", "--html", str(page)]) == 0
    assert "<svg" in page.read_text() and "|" in capsys.readouterr().out
    assert main(["scan", str(tmp_path / "data"), "--batch-size", "-2"]) == 1
    assert "--batch-size = -2 is" in capsys.readouterr().err


def test_results_fit_a_narrow_terminal(
    make_wav: WavMaker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_wav("a.wav", 2.0, 8000)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["scan", str(path), "--quiet"]) == 0
    lines = capsys.readouterr().out.partition("all of it")[0].splitlines()
    assert lines and max(map(len, lines)) <= 40


def test_errors_are_one_message_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "/no/such/folder"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("asrconfig: the dataset '/no/such/folder' does not exist\n  → ")
    with pytest.raises(SystemExit) as caught:
        main(["plan"])
    assert caught.value.code == 2


def test_what_the_system_refuses_is_said_in_its_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device", "plan.json")

    monkeypatch.setattr("asrconfig_go.cli.run_commands._scan", full)
    assert main(["scan", "clips"]) == 1
    assert capsys.readouterr().err == "asrconfig: [Errno 28] No space left on device: 'plan.json'\n"


def test_without_torch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "asrconfig_go.train.batch_replay", raising=False)
    assert main(["replay", "folder"]) == 1
    names = [
        re.split("[><;]", text)[0] for text in requires("asrconfig-go") or () if re.search("extra == .train.$", text)
    ]
    assert capsys.readouterr().err == f"asrconfig: replay needs torch\n  → pip install {' '.join(names)}\n"


def test_doctor_without_library() -> None:
    command = [sys.executable, "-m", "asrconfig_go", "doctor"]
    environment = {**os.environ, "ASRCONFIG_LIBRARY": "/nowhere/_core.so"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 1
    assert "✗ library" in done.stdout
    assert "/nowhere/_core.so does not exist" in done.stdout


def test_ctrl_c_during_the_first_imports_is_one_line() -> None:
    code = """if True:
        import sys

        class Interrupted:
            def find_spec(self, name, *_):
                if name == "asrconfig_go.cli.options":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupted())
        from asrconfig_go.__main__ import main
        sys.exit(main(["doctor"]))
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "asrconfig: stopped\n")


@pytest.mark.usefixtures("heard_ctrl_c")
def test_ctrl_c_stops_a_long_scan(make_wav: WavMaker, tmp_path: Path) -> None:
    """The scan of a list without end in sight stops soon after SIGINT, with the exit code of Ctrl-C."""
    clip = make_wav("a.wav", 0.1)
    manifest = tmp_path / "many.csv"
    manifest.write_text("path\n" + f"{clip}\n" * 3_000_000)
    command = [sys.executable, "-m", "asrconfig_go", "scan", str(manifest), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1.5)
        assert process.poll() is None, "the scan was over before it could be stopped"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err.strip().endswith("asrconfig: stopped")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completions_know_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert "profile-gpu" in printed and "--target-batch-size" in printed


def test_completions_need_shtab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install shtab" in capsys.readouterr().err


def test_bundled_names_are_known_to_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["scan", "demo"],
        ["plan", "--data", "demo", "--model", "tiny-whisper", "--gpu", "T4", "--no-trace"],
        ["compare", "--data", "demo", "--model", "tiny-wav2vec2", "--gpus", "T4,L4"],
        ["memory", "--model", "tiny-whisper", "--batch", "4", "--seconds", "5", "--estimator", "published"],
    ):
        assert main(command) == 0
        assert len(capsys.readouterr().out.splitlines()) <= 26


def test_wrong_settings_of_a_training_are_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "--data", "no/such/data", "--model", "tiny-wav2vec2", "--out", str(tmp_path / "out")]
    cases = {"learning_rte=3": "did you mean 'learning_rate'?", "learning_rate=abc": "is not a number"}
    for setting, message in cases.items():
        assert main([*train, "--set", setting]) == 1
        assert message in capsys.readouterr().err
    assert main([*train, "--profile", "-1"]) == 1
    assert "profile = -1 is not 1 to 20 optimizer steps" in capsys.readouterr().err


def test_launch_takes_the_folder_of_a_training(tmp_path: Path) -> None:
    plan = ["plan", "--data", "demo", "--model", "wav2vec2-base", "--gpu", "2xT4", "--no-trace"]
    assert main([*plan, "--output", str(tmp_path / "training_config.json")]) == 0
    assert main(["launch", str(tmp_path), "--out", str(tmp_path / "launch")]) == 0
    assert (tmp_path / "launch" / "torchrun.sh").is_file()
