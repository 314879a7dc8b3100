"""What an explanation warns of: each rule where it applies, and none in the plain case."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go.data import InfeasiblePair, LabelReport
from asrconfig_go.plan import Caution, Explanation
from asrconfig_go.predict import HardwareProfile
from whole_plans import GIB, audio, published_plan, two_gpus, whole_plan

CTC = {"model_type": "wav2vec2", "vocab_size": 32, "ctc_loss_reduction": "sum"}
WHISPER = {"model_type": "whisper", "vocab_size": 51865}


@pytest.fixture
def plan() -> ac.TrainingConfig:
    return published_plan()


@pytest.fixture
def plain(plan: ac.TrainingConfig) -> Explanation:
    """A plan with accumulation for a model of CTC whose loss is a sum, on a machine with room."""
    hardware = HardwareProfile.detect("T4")
    memory = dataclasses.replace(hardware.memory, total_bytes=64 * GIB, available_bytes=60 * GIB)
    model = ac.profile_model("xls-r-300m")
    return Explanation(plan, dataclasses.replace(hardware, memory=memory), audio([2.0, 4.0, 9.0]), model, None, CTC)


def codes(e: Explanation) -> list[str]:
    return [caution.code for caution in e.cautions]


def found(e: Explanation, code: str) -> Caution:
    (caution,) = [caution for caution in e.cautions if caution.code == code]
    assert caution.level in ("serious", "warning", "note") and caution.what
    assert code in ("plan", "dataset", "changed") or (caution.why and caution.remedy)
    return caution


def changed(e: Explanation, **fields: Any) -> Explanation:
    """With other settings, as if they had been planned."""
    return dataclasses.replace(e, config=dataclasses.replace(e.config, decisions=(), **fields))


def machine(e: Explanation, total_gib: float, available_gib: float) -> Explanation:
    assert e.hardware is not None
    memory = dataclasses.replace(
        e.hardware.memory, total_bytes=int(total_gib * GIB), available_bytes=int(available_gib * GIB)
    )
    return dataclasses.replace(e, hardware=dataclasses.replace(e.hardware, memory=memory))


def test_nothing_in_the_plain_case(plain: Explanation) -> None:
    assert plain.config.gradient_accumulation_steps == 4
    assert codes(plain) == []
    assert "Cautions" not in str(plain) and "Cautions" not in plain._repr_html_()
    assert codes(Explanation(plain.config)) == []


def test_texts_that_do_not_fit_come_first(plain: Explanation) -> None:
    pair = InfeasiblePair(7, "a.wav", 0.36, 19, 19, 17, "he said so long ago")
    report = LabelReport("wav2vec2", "characters", "frames", 400, (pair,), (7, 9), 0, 0, 0, 30, 12.0, 1.2)
    warned = dataclasses.replace(plain, labels=report)
    warned = changed(warned, warnings=("The plan has its doubts.",))
    assert codes(warned) == ["labels", "plan"]
    caution = found(warned, "labels")
    assert caution.level == "serious" and caution.what.startswith("2 of 400 texts")
    assert "he said so long ago" in caution.why
    assert "!! 2 of 400 texts do not fit wav2vec2." in str(warned)
    positions = dataclasses.replace(report, limit="positions", model="whisper")
    assert "ctc_zero_infinity" not in found(dataclasses.replace(plain, labels=positions), "labels").remedy
    assert codes(dataclasses.replace(plain, labels=dataclasses.replace(report, infeasible_rows=()))) == []


def test_labels_that_the_model_does_not_have(plain: Explanation) -> None:
    findings = ("1 of 4 rows has labels that the model does not have: row 2. Leave it out.", "another finding.")
    labels = LabelReport("wav2vec2", "tokens", "frames", 4, (), (), 0, 0, 0, 30, 12.0, 0.2, findings)
    caution = found(dataclasses.replace(plain, labels=labels), "label_ids")
    assert (caution.level, caution.what) == ("serious", "1 of 4 rows has labels that the model does not have: row 2.")
    assert caution.remedy == "And 1 more: print(labels) lists them."


@pytest.mark.parametrize(("seconds", "level"), [(0.02, "serious"), (0.06, "warning"), (0.12, None)])
def test_clips_without_a_ctc_path(plain: Explanation, seconds: float, level: str | None) -> None:
    short = dataclasses.replace(plain, dataset=dataclasses.replace(audio([2.0, 4.0]), min_s=seconds))
    assert codes(short) == ["ctc_path"] * bool(level)
    if level:
        assert found(short, "ctc_path").level == level
    whisper = dataclasses.replace(short, model=ac.profile_model("whisper-tiny"), model_config=None)
    assert "ctc_path" not in codes(whisper)


@pytest.mark.parametrize(
    ("model", "config", "beginning"),
    [
        ("whisper-tiny", None, "The model's loss is a mean"),
        ("xls-r-300m", {**CTC, "ctc_loss_reduction": "mean"}, "The model's loss is a mean"),
        ("xls-r-300m", None, "With ctc_loss_reduction='mean'"),
        ("xls-r-300m", CTC, None),
    ],
)
def test_accumulation_of_means(
    plain: Explanation, model: str, config: dict[str, Any] | None, beginning: str | None
) -> None:
    one = dataclasses.replace(plain, model=ac.profile_model(model), model_config=config)
    assert codes(one) == [], "manager.train and asrconfig train attach the guard"
    one = dataclasses.replace(one, guarded=False)
    assert codes(one) == (["accumulation"] if beginning else [])
    if beginning:
        assert found(one, "accumulation").why.startswith(beginning)
        assert "up to 4 times" in found(one, "accumulation").what
    assert codes(changed(one, gradient_accumulation_steps=1)) == []
    if beginning:
        two = found(changed(one, device_count=2), "accumulation")
        assert two.what.startswith("With 4 accumulation steps and 2 processes") and "up to 8 times" in two.what


@pytest.mark.parametrize(("kind", "multiplies"), [("ctc mean", True), ("ctc sum", False), ("whisper", True)])
def test_the_rule_of_accumulation_is_what_a_plain_trainer_does(
    plain: Explanation, tmp_path: Path, kind: str, multiplies: bool
) -> None:
    pytest.importorskip("transformers")
    from speech_models import MODELS, gradient

    full_batch, _ = gradient(kind, tmp_path, 16, 1, lambda trainer: trainer.train())
    accumulated, _ = gradient(kind, tmp_path, 4, 4, lambda trainer: trainer.train())
    assert float(accumulated.norm() / full_batch.norm()) == pytest.approx(4.0 if multiplies else 1.0, rel=1e-3)
    manager = ac.ASRConfigManager(gpu="T4")
    manager.profile_model(MODELS[kind]())
    manager.config = ac.TrainingConfig.from_dict(plain.config.to_dict())
    assert ("accumulation" in codes(manager.explain(guarded=False))) is multiplies


def test_predictions_of_an_evaluation(plain: Explanation) -> None:
    whisper = dataclasses.replace(plain, model=ac.profile_model("whisper-tiny"), model_config=WHISPER)
    whisper = changed(whisper, gradient_accumulation_steps=1)
    assert whisper.dataset is not None and codes(whisper) == []  # of so few clips
    whisper = dataclasses.replace(whisper, dataset=dataclasses.replace(whisper.dataset, sample_count=5000))
    caution = found(whisper, "evaluation")
    assert (
        caution.what.startswith("The predictions of 1000 evaluated clips take at least 7.7 GiB")
        and "GPU" in caution.what
    )
    asked = changed(whisper, eval_samples=800)
    assert found(asked, "evaluation").what.startswith("The predictions of 800 evaluated clips take at least 6.2 GiB")
    assert codes(changed(whisper, eval_samples=100)) == []
    assert "40 tokens" in caution.why and "preprocess_logits_for_metrics" in caution.remedy
    assert codes(changed(whisper, eval_accumulation_steps=8)) == []
    small = machine(changed(whisper, eval_accumulation_steps=8), 24, 20)
    assert "host RAM" in found(small, "evaluation").what and "GPU memory" not in found(small, "evaluation").what
    counted = LabelReport("whisper", "tokens", "positions", 400, (), (), 0, 0, 0, 10, 5.0, 0.1)
    assert codes(dataclasses.replace(whisper, labels=counted)) == []


def test_little_host_memory(plain: Explanation) -> None:
    loading = changed(
        plain, dataloader_num_workers=2, dataloader_prefetch_factor=2, cache_dataset=True, per_device_train_batch_size=8
    )
    assert codes(loading) == []
    assert codes(machine(loading, 12.7, 5.0)) == ["colab_ram"]
    assert "2 loader workers and decoded audio" in found(machine(loading, 12.7, 5.0), "colab_ram").what
    assert codes(machine(loading, 12.7, 11.5)) == []  # less than a quarter
    assert codes(machine(changed(loading, dataloader_num_workers=0), 12.7, 5.0)) == []
    assert codes(machine(loading, 12.7, 1.0)) == ["host_memory"]
    assert found(machine(loading, 12.7, 1.0), "host_memory").level == "serious"


def test_predictions_over_the_budget(plain: Explanation) -> None:
    c = plain.config
    assert codes(changed(plain, predicted_high_bytes=c.budget_bytes)) == []
    high = found(changed(plain, predicted_high_bytes=c.budget_bytes + GIB), "over_budget")
    assert high.level == "warning" and "worst" in high.what
    assert found(changed(plain, predicted_bytes=16 * GIB), "over_budget").level == "serious"


def test_overrides_and_what_they_leave_behind(plain: Explanation) -> None:
    plain.config.gradient_checkpointing = False
    plain.config.seed = 7
    assert codes(plain) == ["overrides", "changed"]
    assert found(plain, "overrides").what == "gradient_checkpointing changed since the plan was made."
    assert found(plain, "changed").what == "Changed since the plan was made: seed = 7 (planned: 42)."
    assert "GiB (54 %) on Tesla T4, before your changes" in plain.brief(300)
    plain.config.per_device_train_batch_size = 16
    names = "per_device_train_batch_size, gradient_accumulation_steps, gradient_checkpointing"
    assert f"{names} changed since the plan was made." in found(plain, "overrides").what, "a step keeps its clips"
    plain.config.gradient_accumulation_steps = 4
    assert "per_device_train_batch_size, gradient_checkpointing changed" in found(plain, "overrides").what
    assert "a step has 64 clips instead of 32" in found(plain, "overrides").what


def test_larger_evaluation_batches(plain: Explanation) -> None:
    plain.config.per_device_eval_batch_size = 4
    assert codes(plain) == ["changed"]
    plain.config.per_device_eval_batch_size = 64
    assert codes(plain) == ["evaluation_batch", "changed"]
    assert found(plain, "evaluation_batch").what == "Evaluation takes 64 clips at once; 8 were planned."


def test_a_plan_for_another_machine(plain: Explanation) -> None:
    elsewhere = dataclasses.replace(plain, hardware=HardwareProfile.detect("L4"))
    assert found(elsewhere, "other_machine").what == "The plan is for Tesla T4; here is NVIDIA L4."
    assert plain.hardware is not None
    none = dataclasses.replace(plain, hardware=dataclasses.replace(plain.hardware, gpus=()))
    assert found(none, "other_machine").what.endswith("here is no GPU.")
    cpu = changed(none, gpu_name="", gpu_memory_bytes=None)
    assert codes(cpu) == []
    assert found(dataclasses.replace(cpu, hardware=plain.hardware), "other_machine").what.startswith(
        "The plan is for the CPU"
    )


def test_bad_files(plain: Explanation) -> None:
    assert found(dataclasses.replace(plain, dataset=audio([4.0] * 300, bad=2)), "bad_files").level == "note"
    many = found(dataclasses.replace(plain, dataset=audio([4.0] * 300, bad=60)), "bad_files")
    assert many.level == "warning" and many.what == "60 files cannot be read and were not counted."


def test_batches_that_are_cut_need_the_guard(plain: Explanation) -> None:
    cut = dataclasses.replace(plain, config=whole_plan(plain.config))
    assert codes(cut) == ["guard"]
    assert "bucketed clips" in found(cut, "guard").what
    assert "batches of 32 × 1 without checkpointing: they may not fit." in found(cut, "guard").why
    fitting = whole_plan(plain.config, per_device_train_batch_size=2, gradient_accumulation_steps=16)
    assert "longer than predicted" in found(dataclasses.replace(plain, config=fitting), "guard").why
    assert codes(dataclasses.replace(plain, config=whole_plan(plain.config, micro_batching="fixed"))) == []
    assert codes(Explanation(two_gpus(plain.config), None, None, plain.model, None, CTC)) == ["guard"]


def test_warnings_of_plan_and_dataset_are_there(plain: Explanation) -> None:
    assert plain.dataset is not None
    dataset = dataclasses.replace(plain.dataset, warnings=("3 clips not mono, to be mixed down",))
    warned = dataclasses.replace(changed(plain, warnings=("Careful. There are 2.5 s.",)), dataset=dataset)
    assert [(c.level, c.code, c.what, c.why) for c in warned.cautions] == [
        ("warning", "plan", "Careful.", "There are 2.5 s."),
        ("note", "dataset", "3 clips not mono, to be mixed down", ""),
    ]
