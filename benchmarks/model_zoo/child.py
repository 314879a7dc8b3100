"""Answers about rows of the zoo, each in a fork of its own: a line of JSON for every question that was asked.

    echo '{"questions": [{"row": "Whisper", "what": "collator"}]}' | python child.py

``what`` is ``collator``, ``processor`` or ``neither`` (a plan), ``trace``, ``guard``, or ``train``, which alone needs
the stand-in CUDA runtime: ask it apart from others, with ``settings`` of the plan.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

ANSWER = "answer: "
COPY_LIMIT = 1 << 24  # larger copies are left out on the stand-in: nothing reads them
LIMIT_S = 240  # of processor time: the machine may be busy


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """What is asked of one row."""
    what, row = question["what"], _rows()[question["row"]]
    settings = question.get("settings", {}) | {"precision": row.settings.get("precision", "fp16")}
    if what == "train":
        import cuda_standin

        cuda_standin.load(gpu=row.settings.get("gpu", "T4"), memory_bytes=80 << 30, copy_limit_bytes=COPY_LIMIT)
    import torch

    torch.set_num_threads(1)
    if what == "train":
        from cuda_standin.values import Values
        from trained import train

        return train(row, settings, Values())
    if what == "guard":
        from guarded import guarded

        return guarded(row)
    import planned

    return planned.traced(row, settings) if what == "trace" else planned.plan(row, what)


def _rows() -> dict[str, Any]:
    import transformers

    transformers.logging.set_verbosity_error()
    from kinds import ROWS

    return ROWS


def _prepare(stand_in: bool) -> None:
    """What forks share: imports alone, no thread and no GPU."""
    if stand_in:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "build"))
        import cuda_standin

        cuda_standin.prepare()
    _rows()


def _answered(question: dict[str, Any]) -> str:
    """The answer of a fork, or how the fork ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        try:
            found = answer(question)
        except BaseException as error:
            found = {"outcome": "error", "error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    late = f"no answer after {LIMIT_S} s of processor time"
    ending = late if os.waitstatus_to_exitcode(status) == -signal.SIGPROF else f"ended with status {status}"
    return text or json.dumps({"outcome": "error", "error": ending})


def main(request: dict[str, Any]) -> None:
    """Answer one question after the other."""
    questions = request["questions"]
    _prepare(any(question["what"] == "train" for question in questions))
    for question in questions:
        print("\n" + ANSWER + _answered(question), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
