"""The notebooks run from top to bottom without a network, and what is committed is what they gave."""

from __future__ import annotations

import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest

from locations import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "build"))

import run_notebooks as runner

NOTEBOOKS = sorted(runner.FOLDER.glob("*.ipynb"))
SMALL: dict[str, dict[str, object]] = {
    "compare_gpus": {"GPUS": ["2xT4", "L4", "H100"]},
    "quickstart": {"STEPS": 6},
    "optimized_training": {"STEPS": 6, "SAVE_EVERY": 2, "STOP_AT": 3},
    "whisper": {"STEPS": 4, "EVALUATE_EVERY": 2},
}
BADGE = "https://colab.research.google.com/github/asrconfig/asrconfig-go/blob/main/notebooks/{}.ipynb"
RATES = re.compile(r"word error rate on \d+ held-out clips: (\d+\.\d) ?% before, (\d+\.\d) ?% after")
TRAINED = re.compile(r"Training:  (\d+) of (\d+) steps in [\d.]+ s(?:, resumed from (\S+))?")


def outputs(cell: Any, kind: str) -> list[str]:
    return [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]


def said(cell: Any) -> str:
    """Everything that a cell shows, tables without their tags and without their style."""
    streams = [output.text for output in cell.outputs if output.output_type == "stream"]
    pages = [unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", page)) for page in outputs(cell, "text/html")]
    return "\n".join([*streams, *outputs(cell, "text/plain"), *pages])


def shown(notebook: Any) -> dict[str, str]:
    return {cell.id: said(cell) for cell in notebook.cells if cell.cell_type == "code"}


def check_compared(cells: dict[str, str]) -> None:
    assert "2 × T4" in cells["compare"] and "does not fit" in cells["compare"]
    assert re.search(r"H100-80GB SXM .*fastest", cells["compare"])
    assert "fits" in cells["refused"] and "LoRA" in cells["refused"]
    assert re.search(r"LoRA of rank 32 +\d+ × \d+ +[\d.]+ GiB +[\d.]+ +[\d.]+\n", cells["what-if"])
    assert "310 clips" in cells["own"] and "Decisions" in cells["own"]
    assert "openai/whisper-small" in cells["own-what-if"]
    assert re.search(r"L4 +\d+\.\d\d  20\d\d-\d\d", cells["prices"])


def check_started(cells: dict[str, str]) -> None:
    assert "Optimized Settings" in cells["plan"] and "Decisions" in cells["explain"]
    trained = TRAINED.search(cells["train"])
    assert trained and trained[1] == trained[2] and trained[3] is None
    assert "memory never ran out" in cells["train"]
    assert re.search(r"clips: \d+\.\d%\n", cells["evaluate"])


def check_optimized(cells: dict[str, str]) -> None:
    assert "250 clips" in cells["load"] and "60 clips" in cells["load"]
    assert "ten o'clock yes he said" in cells["clean"]
    assert "18 tokens: [PAD] | e f g" in cells["prepare"]
    assert "Decisions" in cells["plan"] and "per_device_train_batch_size" in cells["plan"]
    assert "Guard of CTCTrainer" in cells["trainer"]
    cut, resumed = TRAINED.search(cells["train"]), TRAINED.search(cells["resume"])
    assert cut and resumed and int(cut[1]) < int(cut[2]) == int(resumed[1])
    assert f"cut off at step {cut[1]}\n" in cells["train"] and "ended by KeyboardInterrupt\n" in cells["train"]
    step = int(re.fullmatch(r"speech-model/checkpoint-(\d+)", resumed[3])[1])  # type: ignore[index]
    assert 0 < step <= int(cut[1])
    assert re.search(rf"\s{resumed[1]}\s+\d+\.\d+\s", cells["resume"]), "the last row of the Trainer's table"
    assert "said: " in cells["save"] and "heard:" in cells["save"]
    assert "not pushed to the Hub, as there is no token" in cells["push"]
    made_again = int(cut[1]) - step
    assert f"{int(cut[2]) + made_again} steps in" in cells["report"], "both parts of the run"


def check_whisper(cells: dict[str, str]) -> None:
    assert "<|startoftranscript|>" in cells["features"]
    assert "Decisions" in cells["plan"] and "fp16" in cells["real"]
    trained = TRAINED.search(cells["train"])
    assert trained and trained[1] == trained[2]
    assert "not pushed to the Hub" in cells["save"] and "steps in" in cells["report"]


CHECKS = {
    "compare_gpus": check_compared,
    "quickstart": check_started,
    "optimized_training": check_optimized,
    "whisper": check_whisper,
}


@cache
def kept(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_every_notebook_is_known_here() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SMALL) == sorted(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_offline(path: Path, tmp_path: Path) -> None:
    notebook = runner.run(path, SMALL[path.stem], tmp_path)
    assert runner.private(notebook) == []
    cells = shown(notebook)
    CHECKS[path.stem](cells)
    assert "".join(text for name, text in cells.items() if name == "install") == ""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_is_what_ran(path: Path) -> None:
    notebook = kept(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.metadata.asrconfig_go.code == runner.fingerprint(notebook), "run `make notebooks`"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    CHECKS[path.stem](shown(notebook))
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert "error" not in kinds
    warned = [output.text for cell in code for output in cell.outputs if output.get("name") == "stderr"]
    assert warned == []
    assert runner.private(notebook) == []
    assert path.stat().st_size <= runner.MAX_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_as_any_machine_would_write_it(path: Path) -> None:
    notebook = kept(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec == {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook.metadata.language_info == {"name": "python"}
    assert set(notebook.metadata) <= {"kernelspec", "language_info", "asrconfig_go", "accelerator", "colab"}
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)
    assert BADGE.format(path.stem) in notebook.cells[0].source
    assert sum(runner.PARAMETERS in cell.metadata.get("tags", ()) for cell in notebook.cells) == 1


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in ("optimized_training", "whisper")])
def test_the_committed_trainings_learnt(path: Path) -> None:
    rates = RATES.search(shown(kept(path))["after"])
    assert rates is not None
    before, after = float(rates[1]), float(rates[2])
    assert before >= 90 and after <= 50


@pytest.mark.parametrize("path", [*NOTEBOOKS, runner.FOLDER / "README.md"], ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    texts = [path.read_text("utf-8")] if path.suffix == ".md" else [c.source for c in kept(path).cells]
    links = re.findall(r"\]\(([^)\s]+)\)", "\n".join(texts))
    assert links
    for link in links:
        here = link.removeprefix("https://github.com/asrconfig/asrconfig-go/blob/main/")
        if here != link:
            assert (runner.ROOT / here).is_file(), link
        elif not link.startswith("https:"):
            assert (path.parent / link).is_file(), link


def test_what_tells_of_a_machine_is_found() -> None:
    def told(text: str) -> list[str]:
        output = nbformat.v4.new_output("stream", text=text)
        return runner.private(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[output])]))

    assert told("saved in speech-model/checkpoint-4, 3/4 of it, at 60 s/step") == []
    assert told("saved in /home/ann/speech") == ["/home/a"]
    assert told("/opt/venv/lib/python3.13/site-packages/x.py: warning") == ["/opt/v", "site-packages"]
    assert told("token hf_" + "a" * 34) != []


def test_settings_that_a_notebook_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"quickstart\.ipynb has no settings STEP"):
        runner.run(runner.FOLDER / "quickstart.ipynb", {"STEP": 6}, tmp_path)
