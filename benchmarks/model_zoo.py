"""Plans of speech models of transformers, against traces of their own batches and torch's own CUDA code.

    python benchmarks/model_zoo.py [--only WORDS] [--beside CHECKOUT] [--cuda] [--guard] [--json FILE] [--markdown FILE]

Each row of ``model_zoo/`` is a model with random weights and the collator of its training. Of each it prints how a plan
finds its memory by the collator, by the processor and without either, in how many seconds, and how far the predicted
peaks of the plan's question are from a trace of exactly that batch. ``--cuda`` trains it for three steps by torch's own
CUDA code on the stand-in runtime of ``build/cuda_standin``, with the plan's settings, and compares the peaks that the
allocator counted; ``--guard`` trains it on the CPU, undisturbed and with one out-of-memory error in forward and in
backward. With ``--beside``, another checkout with its library built plans the same by the collator. ``--json`` keeps
the answers: what the file has is not asked again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OURS = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).resolve().parent / "model_zoo"
sys.path.insert(0, str(FOLDER))
_ANSWER = "answer: "
_PLANS = ("collator", "processor", "neither")
_USUAL = {
    "precision": "fp16",
    "optimizer": "adamw_torch_fused",
    "allocator": "expandable_segments:True",
    "gradient_checkpointing": False,
}


def answers(questions: list[dict[str, Any]], checkout: Path) -> Iterator[dict[str, Any]]:
    """The answers of the package of ``checkout``, one after the other."""
    if not questions:
        return
    paths = os.pathsep.join([str(checkout.resolve() / "python"), str(FOLDER)])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    if questions[0].get("settings", {}).get("allocator") and questions[0]["what"] == "train":
        environment["PYTORCH_ALLOC_CONF"] = questions[0]["settings"]["allocator"]
    command = [sys.executable, str(FOLDER / "child.py")]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"questions": questions}))
        process.stdin.close()
        for line in process.stdout:
            if line.startswith(_ANSWER):
                yield json.loads(line[len(_ANSWER) :])


class Zoo:
    """Answers by row and question, kept in a file where there is one."""

    def __init__(self, names: list[str], file: Path | None) -> None:
        self._file = file
        read = json.loads(file.read_text()) if file is not None and file.exists() else {}
        self.rows: dict[str, dict[str, Any]] = {name: read.get(name, {}) for name in names}
        self._others = {name: row for name, row in read.items() if name not in self.rows}

    def ask(self, topic: str, checkout: Path, label: str = "") -> None:
        """Ask every row that has no answer yet."""
        label = label or topic
        missing = [question for name in self.rows if (question := self._question(name, topic, label)) is not None]
        for together in _same_allocator(missing):
            for question, answer in zip(together, answers(together, checkout), strict=False):
                settings = {"settings": question["settings"]} if "settings" in question else {}
                self.rows[question["row"]][label] = settings | answer
                self._keep()
                print(f"{question['row']:45} {label:10} {json.dumps(answer)[:160]}", file=sys.stderr, flush=True)

    def _question(self, name: str, topic: str, label: str) -> dict[str, Any] | None:
        """None where the row has an answer, for the settings of its plan where it depends on them."""
        row: dict[str, Any] = self.rows[name]
        question: dict[str, Any] = {"row": name, "what": topic}
        if topic in ("train", "trace"):
            plan = row.get("collator", {})
            settings = plan["settings"] if plan.get("outcome") == "trace" else _USUAL
            question |= {"settings": settings}
            return None if row.get(label, {}).get("settings") == settings else question
        return None if label in row else question

    def _keep(self) -> None:
        if self._file is not None:
            self._file.write_text(json.dumps(self._others | self.rows, indent=1) + "\n")


def _same_allocator(questions: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """A process has one PYTORCH_ALLOC_CONF."""
    by_setting: dict[str, list[dict[str, Any]]] = {}
    for question in questions:
        by_setting.setdefault(question.get("settings", {}).get("allocator", ""), []).append(question)
    return list(by_setting.values())


def main() -> int:
    from results import page, summary

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS", help="rows whose name has these words")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--cuda", action="store_true", help="train each on the stand-in CUDA runtime, too")
    parser.add_argument("--guard", action="store_true", help="train each on the CPU under the guard, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the answers there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args()
    from kinds import ROWS

    zoo = Zoo([name for name in ROWS if options.only.lower() in name.lower()], options.json)
    for way in _PLANS:
        zoo.ask(way, OURS)
    zoo.ask("trace", OURS)
    if options.beside is not None:
        zoo.ask("collator", options.beside, "before")
    if options.cuda:
        zoo.ask("train", OURS)
    if options.guard:
        zoo.ask("guard", OURS)
    print(summary(zoo.rows))
    if options.markdown:
        options.markdown.write_text(page(zoo.rows, {name: ROWS[name].kind for name in zoo.rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
