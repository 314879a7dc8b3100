"""What is printed ends nothing, whatever the stream, and stays short; progress bars; sizes as people read them."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import asrconfig_go as ac
from asrconfig_go._core import output
from asrconfig_go._core.out_of_memory import first_line
from asrconfig_go._core.output import ProgressBar, first_of, listed, shortened
from asrconfig_go._core.render import exact, parameter_count
from asrconfig_go.audio.long_clips import LongClips
from asrconfig_go.data import LabelReport
from asrconfig_go.data.source import CLIPS
from asrconfig_go.guard import BadBatch, BadClip
from asrconfig_go.guard.training_report import Change, GuardEvent, Restart, TrainingReport
from asrconfig_go.watch.memory_summary import MemorySummary, RankPeaks
from locations import HELPERS

PACKAGE = Path(ac.__file__).parent
ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}
PLAN = ["--data", str(CLIPS), "--model", "facebook/wav2vec2-base", "--gpu", "T4", "--no-trace"]


def run(*arguments: str, encoding: str = "ascii", stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    paths = [str(PACKAGE.parent), str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    environment = {**variables, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **ENCODINGS[encoding]}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, stdout=stdout, stderr=subprocess.PIPE, timeout=120, check=False)


def script(text: str) -> tuple[str, str]:
    return "-c", textwrap.dedent(text)


def needs_torch() -> None:
    if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch and transformers")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["plan", *PLAN], "Clips a step "),
        (["plan", *PLAN, "--json"], '"learning_rate"'),
        (["scan", str(CLIPS)], "clips"),
        (["compare", "--help"], "--gpus"),
        (["compare", "--model", "facebook/wav2vec2-base", "--hours", "10", "--gpus", "T4,L4"], "T4"),
        pytest.param(["doctor"], "library", marks=pytest.mark.slow),
        (["monitor", "--once"], "Host"),
        (["report", "none"], ""),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands(command: list[str], expected: str, encoding: str) -> None:
    done = run("-m", "asrconfig_go", *command, encoding=encoding)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode == (0 if expected else 1), done.stderr.decode()
    assert expected in done.stdout.decode("ascii" if encoding == "ascii" else "latin-1")
    assert expected or b"\n  -> " in done.stderr


TRAINING = """
    import sys
    from pathlib import Path
    from asrconfig_go import ASRConfigManager
    from tiny_training import tiny_trainer
    manager = ASRConfigManager()
    trainer = tiny_trainer(Path(sys.argv[1]), max_steps=2)
    manager.train(trainer)
    assert not manager.report.error
    (Path(sys.argv[1]) / "done").write_text(str(manager.report.steps))
"""


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_training_ends_well(tmp_path: Path, encoding: str) -> None:
    needs_torch()
    done = run(*script(TRAINING), str(tmp_path), encoding=encoding)
    assert done.returncode == 0, done.stderr.decode()
    times = "\N{MULTIPLICATION SIGN}".encode("latin-1") if encoding == "latin-1" else b"x"
    assert b"effective batch 4: 4 " + times + b" 1" in done.stdout


def closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.slow
def test_a_training_whose_reader_is_gone(tmp_path: Path) -> None:
    """The Trainer's own prints would end it; ours come after the last step."""
    needs_torch()
    silent = TRAINING.replace("max_steps=2", 'max_steps=2, logging_strategy="no"').replace(
        "manager.train", "from transformers import PrinterCallback\n    trainer.remove_callback(PrinterCallback)\n"
        "    manager.train",
    )  # fmt: skip
    writer = closed_pipe()
    try:
        run(*script(silent), str(tmp_path), stdout=writer)
    finally:
        os.close(writer)
    assert (tmp_path / "done").read_text() == "2"


@pytest.mark.parametrize("command", [["scan", str(CLIPS), "--json"], ["plan", *PLAN], ["monitor", "--json"]])
def test_commands_whose_reader_is_gone(command: list[str]) -> None:
    writer = closed_pipe()
    try:
        done = run("-m", "asrconfig_go", *command, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("long", [["--json"], []])
def test_a_disk_that_is_full_is_told(long: list[str]) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb") as full:
        done = run("-m", "asrconfig_go", "scan", str(CLIPS), *long, stdout=full.fileno())
    assert done.returncode
    assert b"asrconfig: [Errno 28] No space left on device" in done.stderr


def in_encoding(name: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=name)


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("8 × 4 – 2 … ≥ 3 → 5 ≤ 7", "ascii", b"8 x 4 - 2 ... >= 3 -> 5 <= 7"),
        ("m², 10⁻⁹, ² alone", "ascii", b"m^2, 10^-9, 2 alone"),
        ("██▌░ ├── │", "ascii", b"###. +-- |"),
        ("Jürgen, Straße, Привет", "ascii", b"Jurgen, Strasse, ??????"),
        ("8 × 4 → Jürgen", "latin-1", "8 × 4 -> Jürgen".encode("latin-1")),
        ("a name \udcff of bytes", "utf-8", b"a name ? of bytes"),
        ("8 × 4 →", "utf-8", "8 × 4 →".encode()),
    ],
)
def test_what_stands_for_characters_that_an_encoding_lacks(text: str, encoding: str, expected: bytes) -> None:
    stream = in_encoding(encoding)
    assert output.show(text, stream)
    assert stream.buffer.getvalue() == expected + b"\n"  # type: ignore[attr-defined]


def test_every_character_of_the_package_has_one_that_says_something() -> None:
    characters = {c for file in PACKAGE.rglob("*.py") for c in file.read_text(encoding="utf-8") if ord(c) > 127}
    stream = in_encoding("ascii")
    output.write("".join(sorted(characters)), stream)
    assert b"?" not in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_json_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"path": "Jürgen \udcff.wav", "text": "8 × 4"}
    for encoding in ("ascii", "latin-1", "utf-8"):
        stream = in_encoding(encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        assert output.show_json(record)
        monkeypatch.undo()
        assert json.loads(stream.buffer.getvalue().decode(encoding)) == record  # type: ignore[attr-defined]


def test_nothing_is_printed_by_another_way() -> None:
    """So that what holds for ``output`` holds for the package; ``__main__`` may be stopped before that is imported."""
    others = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("print", "sys.stdout.write", "sys.stderr.write") and file.name != "__main__.py":
                others.append(f"{file.name}:{node.lineno}")  # type: ignore[attr-defined]
    assert not others


MANY = 10_000
CLIP = BadClip(1, "clips/" + "x" * 480, "word " * 100, 1.0, 5, None, None, "its loss is nan " * 50, ("so " * 9,) * 9)
BATCH = BadBatch(1, "loss", "the loss is not finite", tuple(replace(CLIP, row=i) for i in range(MANY)), "raised", "out")
EVENT = GuardEvent("training", 1, 4, 2, "CUDA out of memory", not_restored=("model.buffer",) * MANY)
REPORT = TrainingReport(
    5, 5, "", (Restart(2, 1, "training", 4, 2, "x"),) * MANY, (EVENT,) * MANY, 0, (4, 2, 1), 2, None, 1.0, "",
    changes=(Change("seed", 1, 2, False),), bad_batches=(BATCH,) * MANY,
)  # fmt: skip
SUMMARY = MemorySummary(
    (1,) * MANY, (2,) * MANY, 1, 2, 3, 0, 0, 0, "", tuple(RankPeaks(rank, "", 1, 2, 3) for rank in range(MANY))
)
LABELS = LabelReport("m", "tokens", "frames", MANY, (), (), 0, 0, 0, 5, 1.0, 0.5, ("a finding",) * MANY)
REASONS = {f"why {i}": 1 for i in range(MANY)}


def test_the_first_and_how_many_more() -> None:
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(30), "; ", 2) == "0; 1; … and 28 more"
    assert listed([]) == ""
    assert first_of("abc", 2) == ["a", "b", "… and 1 more"]
    assert shortened("abcd", 3) == "ab…"
    assert shortened("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: str(CLIP), 2_000),
        (lambda: str(BATCH), 5_000),
        (lambda: str(EVENT), 1_000),
        (lambda: repr(REPORT), 60_000),
        (lambda: str(SUMMARY), 6_000),
        (lambda: repr(LongClips(9.0, not_cut=REASONS, lost=REASONS)), 6_000),
        (lambda: repr(LABELS), 6_000),
        (lambda: first_line(ValueError("x" * 2_300_000)), 500),
    ],
)  # fmt: skip
def test_messages_stay_short(make: Callable[[], str], limit: int) -> None:
    message = make()
    assert len(message) <= limit
    assert "more" in message or "…" in message


class Clock:
    """The bar's clock; tqdm goes by the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ago_s: float = 0.0) -> None:
        self.now = time.time() - ago_s
        monkeypatch.setattr(output, "time", SimpleNamespace(time=lambda: self.now))


def test_short_work_shows_nothing_and_imports_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # an import would fail
    with ProgressBar("Reading", "file", None, True) as advance:
        clock.now += 0.4
        advance(3, 10)
    assert capsys.readouterr().err == ""


def test_longer_work_shows_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    clock = Clock(monkeypatch, ago_s=10_000)
    with ProgressBar("Reading", "file", None, True, note=lambda: "soon") as advance:
        clock.now += 10_000
        advance(30_000, 100_000)
        bar = capsys.readouterr().err
    assert "Reading" in bar and "30000/100000" in bar and "soon" in bar
    assert "3.00file/s" in bar, "the rate counts from the start of the work"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_file_gets_few_states(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    clock = Clock(monkeypatch, ago_s=5)
    with ProgressBar("Reading", "file", None, True) as advance:
        clock.now += 5
        advance(3, 10)
    assert ("Reading" in capsys.readouterr().err) == terminal


def test_not_shown_when_not_wanted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    with ProgressBar("Reading", "file", 10, False) as advance:
        clock.now += 9
        advance(3, 10)
    assert capsys.readouterr().err == ""


def test_without_tqdm_the_work_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with ProgressBar("Reading", "file", None, True) as advance:
        clock.now += 9
        advance(3, 10)
        advance(4, 10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (1.5e9, "1.40 GiB"),
        (38e6, "36.2 MiB"),
        (3e3, "2.9 KiB"),
        (48, "48 B"),
        (0, "0 B"),
        (-3e3, "-2.9 KiB"),
    ],
)
def test_sizes(size: float | None, text: str) -> None:
    assert exact(size) == text


@pytest.mark.parametrize(("count", "text"), [(94_395_680, "94.4 M"), (8192, "8.2 k"), (65, "65"), (0, "0")])
def test_numbers_of_parameters(count: int, text: str) -> None:
    assert parameter_count(count) == text
