"""One optimizer step's gradient must not depend on how its samples are cut into micro-batches, in any Trainer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Trainer, TrainingArguments  # noqa: E402

from asrconfig_go.gradient_scale import GradientScale, loss_kind  # noqa: E402
from asrconfig_go.recovery import train_with_recovery  # noqa: E402
from speech_models import MODELS, Clips, gradient, wav2vec2, whisper  # noqa: E402
from tiny_training import Regression, tiny_trainer  # noqa: E402


@pytest.mark.parametrize("kind", list(MODELS))
def test_the_gradient_does_not_depend_on_the_micro_batch(tmp_path: Path, kind: str) -> None:
    whole, _ = gradient(kind, tmp_path, 16, 1, Trainer.train)
    for micro, accumulation in ((8, 2), (4, 4), (1, 16)):
        cut, trainer = gradient(kind, tmp_path, micro, accumulation, train_with_recovery)
        assert torch.allclose(cut, whole, rtol=1e-3, atol=1e-5 * float(whole.abs().max())), (micro, accumulation)
        assert not {"compute_loss"} & set(trainer.__dict__)


@pytest.mark.parametrize("kind", list(MODELS))
def test_the_reported_loss_is_the_mean_over_the_effective_batch(tmp_path: Path, kind: str) -> None:
    _, one = gradient(kind, tmp_path, 16, 1, train_with_recovery)
    _, cut = gradient(kind, tmp_path, 4, 4, train_with_recovery)
    if kind == "ctc sum" and not one.model_accepts_loss_kwargs:
        pytest.skip("this version reports a sum divided by the steps, which is display only")
    losses = [t.state.log_history[-1]["train_loss"] for t in (one, cut)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("kind", ["ctc mean", "ctc sum", "whisper"])
def test_a_speech_model_that_runs_out_of_memory_once_ends_with_the_same_weights(tmp_path: Path, kind: str) -> None:
    def run(failing: bool) -> Any:
        def fail_once(module: Any, *_: Any) -> None:
            hook.remove()
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

        torch.manual_seed(0)
        model = MODELS[kind]()
        if failing:
            hook = model.register_forward_hook(fail_once)
        arguments = TrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=8,
            num_train_epochs=4,
            learning_rate=1e-3,
            optim="sgd",  # AdamW would hide a gradient of the wrong size
            max_grad_norm=0.0,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=Clips(kind))
        train_with_recovery(trainer)
        assert arguments.per_device_train_batch_size == (4 if failing else 8)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.allclose(run(failing=True), run(failing=False), atol=1e-5)


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


class Honest(torch.nn.Module):
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


def test_a_user_s_own_methods_come_back(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, gradient_accumulation_steps=2)
    mine = trainer.compute_loss
    trainer.compute_loss = mine
    scale = GradientScale(trainer)
    scale.install()
    assert trainer.compute_loss is not mine
    scale.remove()
    assert trainer.compute_loss is mine
    assert "backward" not in trainer.accelerator.__dict__
