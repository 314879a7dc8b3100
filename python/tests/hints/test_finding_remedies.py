"""What findings and cautions advise: it is done, and they are gone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.data import LabelReport, check_labels
from asrconfig_go.loading import CTCCollator
from asrconfig_go.report import Finding, report
from hint_names import CLIPS, codes, explained
from run_logs import Json, empty, put_activity, put_step, saved


def steps_of(every: int, kind: str, waited: float = 0.1, cpu: float = 0.4) -> Json:
    """1300 steps of a second each, with a pause of 40 s after ``every`` of them."""
    run_log, now = empty(), 0.0
    for number in range(1, 1301):
        now += 1.0
        put_step(run_log, now, number, spent_s=1.0, waited_s=waited, audio_s=8.0)
        if number % 10 == 0:
            put_activity(run_log, now, cpu_share=cpu)
        if number % every == 0:
            now += 40.0
            put_step(run_log, now, number, kind, spent_s=40.0)
    return run_log


def findings(run_log: Json, path: Path, **settings: Any) -> dict[str, Finding]:
    pytest.importorskip("transformers")
    from transformers import TrainingArguments

    arguments = TrainingArguments(str(path / "out"), use_cpu=True, report_to=[], **settings)
    return {f.kind: f for f in report(saved(run_log, path / "asrconfig_monitor.json"), arguments).findings}


@pytest.mark.parametrize(
    ("rule", "kind", "setting", "settings"),
    [
        ("checkpoints", "checkpoint", "save_steps", {}),
        ("evaluations", "evaluation", "eval_steps", {"eval_strategy": "steps"}),
    ],
)
def test_a_longer_interval(tmp_path: Path, rule: str, kind: str, setting: str, settings: dict[str, Any]) -> None:
    found = findings(steps_of(50, kind), tmp_path, **settings, **{setting: 50})[rule]
    assert found.change == f"set {setting}={found.value}, now 50"
    longer = int(found.value)
    after = findings(steps_of(longer, kind), tmp_path, **settings, **{setting: longer})
    assert rule not in after


def test_features_computed_once(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    datasets = pytest.importorskip("datasets")
    import asrconfig_go.recipe as recipe
    from recipe_data import clips

    found = findings(steps_of(2000, "checkpoint", waited=0.6, cpu=0.97), tmp_path, dataloader_num_workers=4)
    assert "dataset.map(...)" in found["cpu_saturated"].change
    decoded: list[Any] = []

    def load(source: Any, sample_rate: int = 16000) -> Any:
        decoded.append(source)
        return ac.loading.load_audio(source, sample_rate=sample_rate)

    collate = CTCCollator(recipe.build_processor(["one two"], "tiny-wav2vec2"), load=load)
    rows = datasets.Dataset.from_list([{"audio": str(path), "labels": [1]} for path, _ in clips(4)])
    batch = collate(list(rows))
    for _ in range(2):
        collate(list(rows))
    assert len(decoded) == 12, "in every epoch"
    once = rows.map(lambda row: {"input_values": collate([row])["input_values"][0].tolist()}, remove_columns=["audio"])
    decoded.clear()
    for _ in range(2):
        again = collate(list(once))
    assert not decoded
    assert torch.allclose(batch["input_values"], again["input_values"], atol=1e-4)
    after = findings(steps_of(2000, "checkpoint", waited=0.01, cpu=0.4), tmp_path, dataloader_num_workers=4)
    assert "cpu_saturated" not in after


def test_a_smaller_evaluation_batch(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import torch

    from tiny_training import OUT_OF_MEMORY, Regression, tiny_trainer

    e = explained()
    planned = e.config.per_device_eval_batch_size
    e.config.per_device_eval_batch_size = 8 * planned
    (caution,) = [c for c in e.cautions if c.code == "evaluation_batch"]
    assert caution.remedy.startswith("Lower per_device_eval_batch_size, or attach the guard")
    e.config.per_device_eval_batch_size = planned
    assert "evaluation_batch" not in codes(e)

    class Hungry(Regression):
        def forward(self, x: Any, labels: Any = None, index: Any = None) -> Any:
            if len(x) > 4:
                raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)
            return super().forward(x, labels, index)

    trainer = tiny_trainer(tmp_path, model=Hungry(), per_device_eval_batch_size=16)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        trainer.evaluate()
    ac.guard.attach(trainer)
    trainer.evaluate()
    small = tiny_trainer(tmp_path, model=Hungry(), per_device_eval_batch_size=4)
    small.evaluate()


def test_texts_of_a_decoder_are_left_out_or_shortened() -> None:
    paths = [str(path) for path in sorted(CLIPS.glob("*.mp3"))[:3]]

    def checked(texts: Any, kept: list[str] = paths) -> LabelReport:
        return check_labels(kept, texts, model="whisper", progress=False)

    def cautions(labels: LabelReport) -> list[str]:
        return [c.remedy for c in dataclasses.replace(explained(), labels=labels).cautions if c.code == "labels"]

    texts = [[5] * 10, [5] * 2000, [5] * 20]
    labels = checked(texts)
    assert cautions(labels) == ["Leave out the rows in labels.infeasible_rows, or shorten their texts."]
    assert not cautions(checked([text[:400] for text in texts]))
    kept = [row for row in range(3) if row not in labels.infeasible_rows]
    assert not cautions(checked([texts[row] for row in kept], [paths[row] for row in kept]))
