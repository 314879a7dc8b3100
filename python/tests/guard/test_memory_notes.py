"""The notes of the guard on errors that it raises: what they say is done, and the training goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from asrconfig_go.errors import InfeasiblePlanError
from asrconfig_go.guard import attach
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer

OutOfMemory = torch.cuda.OutOfMemoryError


class Two(Regression):
    """Of a batch more than ``fits`` clips do not fit; ``noise`` is added to the loss, so that nothing is measured."""

    def __init__(self, fits: int = 2, noise: float = 0.0) -> None:
        super().__init__()
        self.fits, self.noise = fits, noise

    def forward(self, x: Any, labels: Any = None, index: Any = None, table: Any = None) -> dict[str, Any]:
        if len(x) > self.fits:
            raise OutOfMemory(OUT_OF_MEMORY)
        output = super().forward(x, labels, index)
        return {**output, "loss": output["loss"] + self.noise * torch.randn(())}


def noted(error: BaseException, hint: str) -> bool:
    """Whether a note ends with the hint; versions of Python without notes show none."""
    return sys.version_info < (3, 11) or any(note.endswith(hint) for note in getattr(error, "__notes__", ()))


def test_a_loss_of_an_evaluation_that_is_not_made_of_its_parts(tmp_path: Path) -> None:
    def evaluated(size: int, **options: Any) -> None:
        trainer = tiny_trainer(tmp_path, model=Two(noise=1.0), per_device_eval_batch_size=size)
        attach(trainer, **options)
        trainer.evaluate()

    with pytest.raises(OutOfMemory) as caught:
        evaluated(4)
    hint = "call attach(trainer, rule=…) before it, or pass per_device_eval_batch_size=1"
    assert noted(caught.value, f"does not follow from the losses of its parts; {hint}")
    evaluated(4, rule="mean")
    evaluated(1)


def test_a_batch_of_an_evaluation_that_cannot_be_split(tmp_path: Path) -> None:
    def halves(inputs: Any, size: int) -> list[Any]:
        count = len(inputs["x"])
        parts = [{n: v[at : at + size] for n, v in inputs.items() if n != "table"} for at in range(0, count, size)]
        return [{**part, "table": inputs["table"]} for part in parts]

    def evaluated(**options: Any) -> None:
        trainer = tiny_trainer(tmp_path, model=Two(), per_device_eval_batch_size=4)
        collate = trainer.data_collator
        trainer.data_collator = lambda rows: {**collate(rows), "table": torch.zeros(3)}
        attach(trainer, **options)
        trainer.evaluate()

    with pytest.raises(InfeasiblePlanError) as caught:
        evaluated()
    assert caught.value.hint.endswith("pass attach(split=…)")
    evaluated(split=halves)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("mean", ["GPU memory is not the cause; look at the error itself"]),
        (None, ["this often hides a lack of GPU memory", 'pass rule="mean"']),
    ],
)
def test_an_error_that_a_smaller_micro_batch_does_not_mend(tmp_path: Path, rule: Any, message: list[str]) -> None:
    """The error itself is what comes up, with the advice as its note."""
    error = RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR, in a layer of one's own")

    def broken(model: Any, samples: int) -> None:
        raise error

    model = Regression()
    model.fail = broken
    trainer = tiny_trainer(tmp_path, model=model)
    attach(trainer, rule=rule)
    with pytest.raises(RuntimeError) as caught:
        trainer.train()
    assert caught.value is error and any(entry.name == "broken" for entry in caught.traceback)
    if sys.version_info >= (3, 11):  # older ones have no notes
        notes = [note for note in error.__notes__ if not note.startswith("it ran out of memory in\n")]
        assert len(notes) == len(message)
        assert all(words in note for note, words in zip(notes, message, strict=True))
    model = Regression()  # without what the traceback names
    trainer = tiny_trainer(tmp_path, model=model)
    guard = attach(trainer)
    trainer.train()
    assert trainer.state.global_step == 4 and not guard.events
