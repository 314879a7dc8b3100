"""benchmarks/bench.py: its claims give every figure that pages quote, and what fails is named and changes nothing."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from locations import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs"))
sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import bench
import figures
from claims import CLAIMS, Claim, text

OLD = figures.Figure(value="5", unit="s", command="python old.py", date="2026-01-01")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of one old figure."""
    figures.write({"seen": OLD}, tmp_path / "known.json")
    return tmp_path / "known.json"


def toy(folder: Path, body: str, minutes: float = 1) -> Claim:
    """A claim of a script with the file of ``--json`` as ``file``."""
    script = folder / "toy.py"
    script.write_text(f"import json, pathlib, sys, time\nfile = pathlib.Path(sys.argv[2])\n{body}\n", "utf-8")
    return Claim(f"python {script}", f"python {script}", minutes, text("s", "seen"))


def test_claims_give_every_figure_once() -> None:
    given = [name for claim in CLAIMS for name in claim.figures]
    assert sorted(given) == sorted(figures.read())


def test_readme_shows_the_date_of_every_row_of_its_table() -> None:
    lines = (REPOSITORY / "README.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and "<!--=" in line]
    assert rows and [row for row in rows if ".date-->" not in row] == []


def test_commands_of_figures_are_those_of_claims() -> None:
    commands = {name: (claim.quick, claim.full) for claim in CLAIMS for name in claim.figures}
    assert {n: f["command"] for n, f in figures.read().items() if f["command"] not in commands[n]} == {}


def test_scripts_of_claims_are_there() -> None:
    for command in {written for claim in CLAIMS for written in (claim.quick, claim.full) if written}:
        program, *rest = shlex.split(command)
        script = rest[0] if program == "python" else rest[1]
        assert (REPOSITORY / script).exists(), command


def test_measured_figures_take_the_place_of_old_ones(tmp_path: Path, file: Path) -> None:
    assert bench.bench([toy(tmp_path, 'file.write_text(json.dumps({"seen": 3}))')], file) == []
    new = figures.read(file)["seen"]
    assert (new["value"], new["unit"], new["command"]) == ("3", "s", f"python {tmp_path / 'toy.py'}")
    assert new["date"] > OLD["date"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('sys.exit("no tinytag here")', "no tinytag here"),
        ("file.write_text(json.dumps({}))", "seen was not measured"),
        ('file.write_text(json.dumps({"seen": None}))', "seen was not measured"),
        ("time.sleep(60)", "killed after 2 s"),
    ],
    ids=["fails", "says nothing", "lacks a peer", "takes too long"],
)
def test_what_is_not_measured_is_named_and_stays(tmp_path: Path, file: Path, body: str, named: str) -> None:
    problems = bench.bench([toy(tmp_path, body, minutes=2 / 60)], file)
    assert any(named in problem for problem in problems)
    assert figures.read(file) == {"seen": OLD}


def test_a_missed_aim_is_named_and_its_figure_kept(tmp_path: Path, file: Path) -> None:
    problems = bench.bench([toy(tmp_path, 'file.write_text(json.dumps({"seen": 9}))\nsys.exit("MISSED")')], file)
    assert len(problems) == 1 and "MISSED" in problems[0]
    assert figures.read(file)["seen"]["value"] == "9"


def test_an_interpreter_that_is_missing_is_named(file: Path) -> None:
    claim = Claim("python toy.py", "", 1, text("s", "seen"), environment="nowhere")
    problems = bench.bench([claim], file)
    assert "cannot be started" in problems[0] and figures.read(file) == {"seen": OLD}


@pytest.mark.parametrize(("problems", "status"), [([], 0), (["one"], 1)])
def test_status_tells_of_problems(monkeypatch: pytest.MonkeyPatch, problems: list[str], status: int) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only", "machine"])
    monkeypatch.setattr(bench, "bench", lambda *_: problems)
    monkeypatch.setattr(bench, "refill", lambda: True)
    assert bench.main() == status


@pytest.mark.parametrize("name", ["nothing.py", "cuda_truth"])
def test_what_would_run_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only", name])
    with pytest.raises(SystemExit):
        bench.main()
    assert f"no script called {name} is run without --full" in capsys.readouterr().err


def test_figures_are_written_as_they_are_read(tmp_path: Path) -> None:
    known = figures.read()
    figures.write(known, tmp_path / "again.json")
    assert figures.read(tmp_path / "again.json") == known
    assert json.loads((tmp_path / "again.json").read_text("utf-8")) == known
