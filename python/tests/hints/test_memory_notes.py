"""What the notes on an out-of-memory error that the guard raises say to do, done: the training then goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from asrconfig_go.errors import InfeasiblePlanError  # noqa: E402
from asrconfig_go.guard import attach  # noqa: E402
from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer  # noqa: E402

OutOfMemory = torch.cuda.OutOfMemoryError


class Two(Regression):
    """Of a batch more than ``fits`` clips do not fit; ``noise`` is added to the loss, so that nothing is measured."""

    def __init__(self, fits: int = 2, noise: float = 0.0) -> None:
        super().__init__()
        self.fits, self.noise = fits, noise

    def forward(self, x: Any, labels: Any = None, index: Any = None, table: Any = None) -> dict[str, Any]:
        if len(x) > self.fits:
            raise OutOfMemory(OUT_OF_MEMORY)
        found = super().forward(x, labels, index)
        return {**found, "loss": found["loss"] + self.noise * torch.randn(())}


def noted(error: BaseException, hint: str) -> bool:
    """Whether a note ends with the hint; versions of Python without notes show none."""
    return sys.version_info < (3, 11) or any(note.endswith(hint) for note in getattr(error, "__notes__", ()))


def test_a_loss_that_cannot_be_measured_is_given(tmp_path: Path) -> None:
    """As two clips do not fit together."""

    def trained(**options: Any) -> Any:
        trainer = tiny_trainer(tmp_path, model=Two(fits=1), max_steps=2)
        guard = attach(trainer, **options)
        trainer.train()
        return guard

    with pytest.raises(OutOfMemory) as caught:
        trained()
    assert noted(caught.value, 'pass rule="mean", "token_mean" or "sum", if one of them is what the loss divides by')
    for rule in ("mean", "token_mean", "sum"):
        assert trained(rule=rule).events


def test_a_loss_of_an_evaluation_that_is_not_made_of_its_parts(tmp_path: Path) -> None:
    def evaluated(size: int, **options: Any) -> None:
        trainer = tiny_trainer(tmp_path, model=Two(noise=1.0), per_device_eval_batch_size=size)
        attach(trainer, **options)
        trainer.evaluate()

    with pytest.raises(OutOfMemory) as caught:
        evaluated(4)
    assert noted(caught.value, "pass attach(rule=…), or per_device_eval_batch_size=1")
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
