"""What warnings of plans advise: planned again as they say, and the warning is gone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import asrconfig_go as ac


class Case(NamedTuple):
    hint: str
    seconds: tuple[float, ...]
    model: str
    wrong: dict[str, Any]
    mended: dict[str, Any]


_PUBLISHED = {"policy": "published"}
_LOWER, _LEAVE_OUT = "Lower target_batch_size.", "max_length_s leaves them out."
CASES = [
    Case(_LOWER, (2.0,) * 4, "wav2vec2-base", {}, {"target_batch_size": 2}),
    Case(_LOWER, (2.0,) * 4, "wav2vec2-base", _PUBLISHED, {**_PUBLISHED, "target_batch_size": 2}),
    Case(_LEAVE_OUT, (31.0, 5.0) * 20, "whisper-tiny", _PUBLISHED, {**_PUBLISHED, "drop": 30.0}),
    Case(_LEAVE_OUT, (31.0, 5.0) * 20, "whisper-tiny", {}, {"max_length_s": 30.0}),
]


def planned(case: Case, options: dict[str, Any]) -> str:
    options = dict(options)
    limit = options.pop("drop", 1e9)
    waves: list[Any] = [np.zeros(int(16000 * s), dtype="float32") for s in case.seconds if s <= limit]
    config, _ = ac.create_optimal_config(waves, case.model, gpu="T4", trace=False, verbose=False, **options)
    return " ".join(config.warnings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.hint[:50])
def test_a_plan_made_as_its_warning_says_has_it_no_longer(case: Case) -> None:
    assert case.hint in planned(case, case.wrong)
    assert case.hint not in planned(case, case.mended)


def test_an_effective_batch_that_is_met() -> None:
    waves: list[Any] = [np.zeros(16000, dtype="float32")] * 200
    config, _ = ac.create_optimal_config(
        waves, "wav2vec2-base", target_batch_size=7, gpu="2xT4", policy="published", trace=False, verbose=False
    )
    (warning,) = [text for text in config.warnings if "would be met exactly" in text]
    target = int(re.search(r"target_batch_size=(\d+) would", warning)[1])  # type: ignore[index]
    again, _ = ac.create_optimal_config(
        waves, "wav2vec2-base", target_batch_size=target, gpu="2xT4", policy="published", trace=False, verbose=False
    )
    assert not any("would be met exactly" in text for text in again.warnings)
    assert again.effective_batch_size == target


def test_a_model_that_was_not_traced() -> None:
    """Each fix that a plan without a trace names."""
    torch = pytest.importorskip("torch")

    class Plain(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x: Any) -> Any:
            return {"loss": self.layer(x).mean()}

    def warned(model: Any, gpu: str | None, **options: Any) -> str:
        manager = ac.ASRConfigManager(gpu=gpu)
        manager.profile_dataset([np.zeros(16000, dtype="float32")] * 40, progress=False)
        manager.profile_model(model)
        return " ".join(manager.plan(batch_fn=batch, **options).warnings)

    def batch(clips: int, length: int, labels: int) -> dict[str, Any]:
        return {"x": torch.zeros(clips, length, 8)}

    model = Plain()
    assert "Leave trace out." in warned(model, "T4", trace=False)
    switched_off = warned("wav2vec2-base", "T4", trace=False, options=ac.PlanOptions(every_n_layers=3))
    assert "no recording of facebook/wav2vec2-base" in switched_off and "failed" not in switched_off
    assert "Pass the model instead of its profile." in warned(ac.profile_model(model), "T4")
    for warning in (warned(model, "T4"), warned(model, None, trace=True), warned(model, "2xT4")):
        assert "is unknown" not in warning


@pytest.mark.filterwarnings("ignore")
def test_a_stream_is_trained_on_for_as_many_steps_as_its_warning_says(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")
    from recipe_data import digits
    from tiny_training import Regression

    stream = digits(12)["train"].cast_column("audio", datasets.Audio(decode=False)).to_iterable_dataset()
    # As of a dataset that the Hub describes.
    stream.info.splits = datasets.SplitDict({"train": datasets.SplitInfo("train", num_examples=12)})
    stream._split = datasets.Split.TRAIN
    config, _ = ac.create_optimal_config(
        stream, "wav2vec2-base", target_batch_size=4, num_train_epochs=2.0, gpu="T4", trace=False, verbose=False
    )
    (warning,) = [text for text in config.warnings if "the Trainer needs max_steps" in text]
    steps = int(re.search(r"max_steps: about (\d+) for 2 epochs \(12 clips × 2 / 4\)", warning)[1])  # type: ignore[index]

    def trained(**more: Any) -> list[list[int]]:
        arguments = transformers.TrainingArguments(
            str(tmp_path), per_device_train_batch_size=4, use_cpu=True, report_to="none", save_strategy="no",
            remove_unused_columns=False, disable_tqdm=True, **more,
        )  # fmt: skip
        model = Regression()
        transformers.Trainer(model, arguments, data_collator=collate, train_dataset=stream).train()
        return model.seen

    def collate(rows: list[Any]) -> dict[str, Any]:
        return {"x": torch.ones(len(rows), 6), "labels": torch.ones(len(rows), 1), "index": torch.arange(len(rows))}

    with pytest.raises(ValueError, match="max_steps"):
        trained(num_train_epochs=2)
    assert sum(map(len, trained(max_steps=steps))) == 2 * 12
