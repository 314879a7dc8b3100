"""Plans as TrainingArguments of whatever transformers is installed: nothing lost, nothing silently dropped."""

from __future__ import annotations

import dataclasses
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.plan import training_arguments
from asrconfig_go.plan.argument_names import ArgumentFields
from asrconfig_go.plan.plan_record import OverrideWarning
from asrconfig_go.plan.training_arguments import UnsupportedSettingWarning, build
from training_fixtures import make_plan

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers import Seq2SeqTrainingArguments, TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig
from transformers.training_args import OptimizerNames

FIELDS = {field.name: str(field.type) for field in dataclasses.fields(TrainingArguments)}
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")


@pytest.fixture(autouse=True)
def precision_of_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of transformers 4 with bf16 leave this variable behind, and later ones without it follow it."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")


def built(output: Path, config: Any = None, **overrides: Any) -> TrainingArguments:
    """The arguments, where no warning is allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsupportedSettingWarning)
        return build(config or make_plan(), output, overrides)


def checkpointing(arguments: TrainingArguments) -> tuple[bool, Any]:
    new = "activation_checkpointing" if "activation_checkpointing" in FIELDS else "gradient_checkpointing"
    return getattr(arguments, new), getattr(arguments, f"{new}_kwargs")


def test_warm_up_is_a_share_of_all_steps(tmp_path: Path) -> None:
    assert built(tmp_path).get_warmup_steps(200) == 20
    assert built(tmp_path, make_plan(warmup_ratio=1.0)).get_warmup_steps(200) == 200
    assert built(tmp_path, make_plan(warmup_ratio=0.0)).get_warmup_steps(200) == 0
    assert built(tmp_path, warmup_ratio=0.2).get_warmup_steps(200) == 40
    assert built(tmp_path, warmup_steps=15).get_warmup_steps(200) == 15


@pytest.mark.parametrize("grouped", [True, False])
def test_grouping_by_length(tmp_path: Path, grouped: bool) -> None:
    for arguments in (
        built(tmp_path, make_plan(group_by_length=grouped)),
        built(tmp_path, make_plan(group_by_length=not grouped), group_by_length=grouped),
        built(tmp_path, train_sampling_strategy="group_by_length" if grouped else "random"),
    ):
        if "train_sampling_strategy" in FIELDS:
            assert arguments.train_sampling_strategy == ("group_by_length" if grouped else "random")
        else:
            assert arguments.group_by_length is grouped


@pytest.mark.parametrize(("grouped", "handling"), [(True, "random"), (False, "grouped")])
def test_two_settings_of_grouping_that_disagree(tmp_path: Path, grouped: bool, handling: str) -> None:
    config = make_plan(group_by_length=grouped, length_handling=handling)
    with pytest.warns(UnsupportedSettingWarning, match="so clips are grouped by length; make the two agree") as caught:
        arguments = config.to_training_arguments(tmp_path)
    assert caught[0].filename == __file__
    strategy = getattr(arguments, "train_sampling_strategy", None) or arguments.group_by_length
    assert strategy in (True, "group_by_length")
    built(tmp_path, config, group_by_length=False)  # an override settles it


@pytest.mark.parametrize("handling", ["bucketed", "stratified"])
def test_a_sampler_s_plan_is_not_grouped_by_the_trainer(tmp_path: Path, handling: str) -> None:
    config = make_plan(group_by_length=True, length_handling=handling)
    with pytest.warns(UnsupportedSettingWarning, match="so clips are not grouped"):
        arguments = config.to_training_arguments(tmp_path)
    assert getattr(arguments, "train_sampling_strategy", "random") == "random"
    assert not getattr(arguments, "group_by_length", False)


def test_checkpointing_is_not_reentrant_unless_asked(tmp_path: Path) -> None:
    config = make_plan(gradient_checkpointing=True)
    assert checkpointing(built(tmp_path, config)) == (True, {"use_reentrant": False})
    wanted = {"use_reentrant": True}
    assert checkpointing(built(tmp_path, config, gradient_checkpointing_kwargs=wanted)) == (True, wanted)
    assert checkpointing(built(tmp_path, config, gradient_checkpointing=False))[0] is False
    assert checkpointing(built(tmp_path))[0] is False


def test_the_depth_of_checkpointing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_plan(gradient_checkpointing=True, every_n_layers=3)
    monkeypatch.setattr("asrconfig_go.plan.training_arguments.has_any_depth", lambda: True)
    assert checkpointing(built(tmp_path, config)) == (True, {"use_reentrant": False, "every_n_layers": 3})
    monkeypatch.setattr("asrconfig_go.plan.training_arguments.has_any_depth", lambda: False)
    with pytest.warns(UnsupportedSettingWarning, match="checkpoints every layer"):
        assert checkpointing(build(config, tmp_path, {})) == (True, {"use_reentrant": False})


def test_offloaded_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_plan(gradient_checkpointing=True, offload_checkpoints=True)
    monkeypatch.setattr("asrconfig_go.plan.training_arguments.can_offload_checkpoints", lambda: True)
    assert checkpointing(built(tmp_path, config)) == (True, {"use_reentrant": False, "offload": True})
    monkeypatch.setattr("asrconfig_go.plan.training_arguments.can_offload_checkpoints", lambda: False)
    with pytest.warns(UnsupportedSettingWarning, match="keeps checkpoints on the GPU"):
        assert checkpointing(build(config, tmp_path, {})) == (True, {"use_reentrant": False})


def test_loader_settings_that_need_workers(tmp_path: Path) -> None:
    config = make_plan(dataloader_num_workers=2, dataloader_prefetch_factor=3, dataloader_persistent_workers=True)
    arguments = built(tmp_path, config)
    assert (arguments.dataloader_prefetch_factor, arguments.dataloader_persistent_workers) == (3, True)
    without = built(tmp_path, config, dataloader_num_workers=0)
    assert (without.dataloader_prefetch_factor, without.dataloader_persistent_workers) == (None, False)


@pytest.mark.parametrize("override", [{"eval_steps": 100}, {"save_steps": 100}])
def test_one_interval_of_ones_own_leaves_the_other_to_the_trainer(tmp_path: Path, override: dict[str, int]) -> None:
    config = make_plan(eval_steps=93, save_steps=93)
    best = {"eval_strategy": "steps", "load_best_model_at_end": True}
    assert (built(tmp_path, config, **best).eval_steps, built(tmp_path, config, **best).save_steps) == (93, 93)
    assert 93 not in (built(tmp_path, config, **override).eval_steps, built(tmp_path, config, **override).save_steps)
    assert built(tmp_path, config, eval_steps=100, **best).save_steps == 500, "a multiple, as the best model needs"


def test_older_names_in_overrides(tmp_path: Path) -> None:
    arguments = built(tmp_path, evaluation_strategy="steps", eval_steps=5, no_cuda=True, per_gpu_train_batch_size=3)
    assert arguments.eval_strategy == "steps"
    assert arguments.use_cpu is True
    assert arguments.per_device_train_batch_size == 3


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        ({"learning_rat": 1e-3}, "'learning_rat'", "learning_rate"),
        ({"warmup_ration": 0.1}, "'warmup_ration'", "warmup_ratio"),
        ({"output_dir": "elsewhere"}, "output_dir is passed twice", "first argument"),
        ({"evaluation_strategy": "no", "eval_strategy": "no"}, "'eval_strategy' is passed twice", "one of the two"),
        ({"xyzzy": 1}, "'xyzzy'", "dataclasses.fields(TrainingArguments)"),
    ],
)
def test_refused_overrides(tmp_path: Path, overrides: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        build(make_plan(), tmp_path, overrides)
    assert message in caught.value.message
    assert hint in caught.value.hint


@on_cpu
@pytest.mark.parametrize("setting", ["fp16", "bf16", "tf32", "dataloader_pin_memory"])
def test_a_plan_for_a_gpu_that_is_not_here(tmp_path: Path, setting: str) -> None:
    with pytest.warns(UnsupportedSettingWarning) as caught:
        arguments = build(make_plan(gpu_name="Tesla T4", **{setting: True}), tmp_path, {})
    assert [str(w.message).split(":")[0] for w in caught] == [f"planned {setting} = True"]
    assert not getattr(arguments, setting)


@pytest.mark.parametrize(
    ("overrides", "non_blocking"),
    [
        ({}, False),
        ({"dataloader_pin_memory": True}, True),
        ({"dataloader_pin_memory": True, "accelerator_config": {"even_batches": False}}, True),
        ({"dataloader_pin_memory": True, "accelerator_config": {"non_blocking": False}}, False),
        ({"dataloader_pin_memory": True, "accelerator_config": AcceleratorConfig(even_batches=False)}, False),
    ],
)
def test_copies_from_pinned_memory_do_not_block(tmp_path: Path, overrides: dict[str, Any], non_blocking: bool) -> None:
    arguments = built(tmp_path, **overrides)
    assert arguments.accelerator_config.non_blocking is non_blocking
    assert arguments.accelerator_config.even_batches is ("even_batches" not in str(overrides))


@on_cpu
def test_bf16_planned_for_a_cpu_is_kept(tmp_path: Path) -> None:
    arguments = built(tmp_path, make_plan(bf16=True))
    assert (arguments.bf16, arguments.use_cpu) == (True, True)


@on_cpu
def test_an_override_settles_the_precision(tmp_path: Path) -> None:
    arguments = built(tmp_path, make_plan(fp16=True, gpu_name="Tesla T4"), bf16=True, use_cpu=True)
    assert (arguments.fp16, arguments.bf16) == (False, True)


@pytest.fixture
def without_eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [(o.name, o.value) for o in OptimizerNames if o.value != "adamw_8bit"]
    monkeypatch.setattr("transformers.training_args.OptimizerNames", Enum("OptimizerNames", names))


@pytest.mark.usefixtures("without_eight_bits")
def test_an_optimizer_that_this_version_does_not_know(tmp_path: Path) -> None:
    with pytest.warns(UnsupportedSettingWarning, match="planned optimizer = 'adamw_8bit'"):
        arguments = build(make_plan(optimizer="adamw_8bit"), tmp_path, {})
    assert arguments.optim == TrainingArguments(tmp_path).optim


@on_cpu
def test_another_number_of_devices_is_reported(tmp_path: Path) -> None:
    with pytest.warns(UnsupportedSettingWarning, match="effective batch is 32 instead of 64"):
        build(make_plan(device_count=2, target_batch_size=64), tmp_path, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnsupportedSettingWarning)
        warnings.simplefilter("ignore", OverrideWarning)
        build(make_plan(device_count=2, target_batch_size=64), tmp_path, {"per_device_train_batch_size": 64})


def test_a_setting_that_this_version_lacks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ArgumentFields(TrainingArguments)
    del fields.types["max_grad_norm"]
    with pytest.warns(UnsupportedSettingWarning, match=r"planned max_grad_norm = 1.0: .*no setting 'max_grad_norm'"):
        planned = training_arguments._planned(make_plan(), fields, {})
    assert "max_grad_norm" not in planned
    assert "weight_decay" in planned


def test_a_subclass_of_the_arguments(tmp_path: Path) -> None:
    overrides = {"predict_with_generate": True}
    arguments = make_plan().to_training_arguments(tmp_path, arguments_class=Seq2SeqTrainingArguments, **overrides)
    assert isinstance(arguments, Seq2SeqTrainingArguments)
    assert arguments.predict_with_generate is True
    assert type(build(make_plan(), tmp_path, overrides)) is Seq2SeqTrainingArguments, "the name alone chooses it"
