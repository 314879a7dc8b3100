"""``asrconfig memory``, as a person types it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.__main__ import main
from asrconfig_go._core import native
from asrconfig_go.errors import UnsupportedError
from asrconfig_go.predict.recordings import Recording, open_trace
from memory_fakes import CONTEXT, FakeLibrary

QUESTION = ["memory", "--model", "xls-r-300m", "--batch", "8", "--seconds", "10"]


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Recording]:
    made: list[Recording] = []
    monkeypatch.setenv("ASRCONFIG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "call", FakeLibrary())
    monkeypatch.setattr(Recording, "make", lambda self, key, progress: made.append(self) or open_trace(b""))  # type: ignore[func-returns-value]
    return made


def test_it_prints_breakdown_peak_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, "--gpu", "L4"]) == 0
    short = capsys.readouterr().out
    assert "fits NVIDIA L4: 0.88 GiB of" in short and len(short.splitlines()) <= 15
    assert main([*QUESTION, "--gpu", "L4", "--full"]) == 0
    printed = capsys.readouterr().out
    for part in ("fits NVIDIA L4", "peak: allocated 0.47 GiB", "activations", "█", "at the peak: backward"):
        assert part in printed


def test_settings_are_passed_on(recorded: list[Recording], capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--labels 9 --precision bf16 --checkpointing --every-n-layers 2 --offload-checkpoints --optimizer adafactor "
        "--accumulation 2 --freeze-feature-encoder --evaluation-batch 4 --gpu T4 --estimator trace "
        "--allocator expandable_segments:True --no-cache --json"
    )
    assert main([*QUESTION, *options.split()]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["settings"] == {
        "precision": "bf16", "gradient_checkpointing": True, "optimizer": "adafactor", "accumulation": 2,
        "freeze_feature_encoder": True, "lora_rank": 0, "allocator": "expandable_segments:True", "every_n_layers": 2,
        "offload_checkpoints": True,
    }  # fmt: skip
    assert body["shape"] == {"batch": 8, "seconds": 10.0, "labels": 9}
    assert (body["gpu"]["name"], body["evaluation"]["batch"], body["gpu"]["context_bytes"]) == ("Tesla T4", 4, CONTEXT)
    assert recorded[0].capability == (7, 5)


def test_a_page_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    page, picture = tmp_path / "memory.html", tmp_path / "memory.png"
    assert main([*QUESTION, "--html", str(page), "--plot", str(picture)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith('<!DOCTYPE html><meta charset="utf-8">') and "<title>facebook/wav2vec2-xls-r-300m" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*QUESTION, "--html", str(tmp_path / "no" / "x.html")]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert main([*QUESTION, "--plot", str(tmp_path / "x.unknown")]) == 1
    assert "cannot tell from" in capsys.readouterr().err


def test_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.pickle"
    assert main([*QUESTION, "--snapshot", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["estimator"] == "trace"
    assert err == f"{path} holds the last 2 events; 7 earlier ones are left out\n"
    (events,) = pickle.loads(path.read_bytes())["device_traces"]
    assert [event["action"] for event in events] == ["segment_alloc", "alloc", "snapshot"]


def test_a_snapshots_name_is_checked_before_tracing(
    recorded: list[Recording], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUESTION, "--snapshot", "run.json"]) == 1
    assert "the name does not end in .pickle" in capsys.readouterr().err
    assert recorded == []


def test_a_formula_s_answer_is_marked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise UnsupportedError("aten.odd in layers.3 cannot be traced")

    monkeypatch.setattr(Recording, "make", fails)
    assert main(QUESTION) == 0
    out, err = capsys.readouterr()
    assert "published formula" in out and "aten.odd in layers.3" in out
    assert err == ""
    assert main([*QUESTION, "--estimator", "trace"]) == 1
    assert "asrconfig: aten.odd in layers.3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "0"], "batch = 0"),
        (["--seconds", "nan"], "seconds = nan"),
        (["--gpu", "T5"], "T5"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_wrong_questions_are_one_message(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUESTION, *options]) == 1
    out, err = capsys.readouterr()
    assert out == "" and message in err and "→" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "accepted"),
    [(["--precision", "int8"], "'fp32', 'fp16', 'bf16'"), (["--estimator", "guess"], "'trace'")],
)
def test_wrong_choices_list_the_right_ones(
    options: list[str], accepted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*QUESTION, *options])
    err = capsys.readouterr().err
    assert stopped.value.code == 2 and accepted in err and len(err.splitlines()) == 2


def test_without_a_batch_it_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    library: FakeLibrary = native.call  # type: ignore[assignment]
    assert main(["memory", "--model", "xls-r-300m", "--gpu", "T4", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert library.count("memory.largest") == 1, "one question for all lengths"
    assert table["batches"] == [1, 2, 4, 8, 16, 32, 64]
    assert [row["seconds"] for row in table["rows"]] == [5, 10, 20, 30]
    largest = [row["largest_batch"] for row in table["rows"]]
    assert largest == sorted(largest, reverse=True) and largest[0] > 1
    assert main(["memory", "--model", "xls-r-300m", "--gpu", "T4", "--seconds", "600"]) == 0
    printed = capsys.readouterr().out
    assert "600" in printed and "✗" in printed and all(len(line) <= 80 for line in printed.splitlines())
    assert main(["memory", "--model", "xls-r-300m"]) == 0
    assert "name a GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--batch", "8"], "no length of the batch's longest clip"),
        (["--snapshot", "run.pickle"], "--snapshot is for one batch"),
        (["--estimator", "published"], "--estimator is for one batch"),
    ],
)
def test_what_belongs_to_one_batch(options: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--model", "xls-r-300m", *options]) == 1
    assert problem in capsys.readouterr().err
