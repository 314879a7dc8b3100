"""What a loss is over its micro-batch, by configuration and source."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from asrconfig_go.guard.loss_kind import loss_kind, multiplied_by_accumulation  # noqa: E402
from transformers import Trainer  # noqa: E402

from speech_models import gradient, wav2vec2, whisper  # noqa: E402
from tiny_training import Regression, tiny_trainer  # noqa: E402


def kind_of(model: Any, **changes: Any) -> str | None:
    trainer = Trainer.__new__(Trainer)
    defaults = {"model_accepts_loss_kwargs": True, "compute_loss_func": None, "label_smoother": None}
    trainer.__dict__.update({"model": model, **defaults, **changes})
    return loss_kind(trainer)


def test_kinds_of_loss() -> None:
    assert kind_of(wav2vec2("mean")) == "mean"
    assert kind_of(wav2vec2("sum")) == "sum"
    assert kind_of(whisper()) == "mean"
    assert kind_of(Regression(), model_accepts_loss_kwargs=False) == "mean"
    assert kind_of(SimpleNamespace(get_base_model=lambda: wav2vec2("sum"))) == "sum"


class Honest(torch.nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any, num_items_in_batch: Any = None, **kwargs: Any) -> Any:
        return torch.nn.functional.cross_entropy(x, x, reduction="sum") / num_items_in_batch


class Own(Trainer):  # type: ignore[misc]
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs)


def test_a_loss_that_others_answer_for_is_left_alone(tmp_path: Path) -> None:
    assert kind_of(Honest()) is None
    assert kind_of(wav2vec2("mean"), compute_loss_func=lambda *_: None) is None
    assert kind_of(wav2vec2("mean"), loss_is_scaled_for_ga=True) is None
    own = tiny_trainer(tmp_path, trainer_class=Own)
    own.model_accepts_loss_kwargs = True
    assert loss_kind(own) is None


def test_a_label_smoother_that_takes_the_number_of_items_is_trusted() -> None:
    class Counting:
        def __call__(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
            return outputs

    class Mean:
        def __call__(self, outputs: Any, labels: Any) -> Any:
            return outputs

    assert kind_of(whisper(), label_smoother=Counting()) is None
    assert kind_of(whisper(), label_smoother=Mean()) == "mean"


@pytest.mark.parametrize("kind", ["ctc mean", "ctc sum", "whisper"])
def test_what_the_trainer_multiplies_is_known(tmp_path: Path, kind: str) -> None:
    model = {"ctc mean": lambda: wav2vec2("mean"), "ctc sum": lambda: wav2vec2("sum"), "whisper": whisper}[kind]()
    whole, _ = gradient(kind, tmp_path, 16, 1, lambda trainer: trainer.train())
    cut, _ = gradient(kind, tmp_path, 4, 4, lambda trainer: trainer.train())
    assert multiplied_by_accumulation(model) == (float((cut - whole).norm() / whole.norm()) > 1)
    assert not multiplied_by_accumulation(Regression()), "a forward without **kwargs"
