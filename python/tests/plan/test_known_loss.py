"""Plans split steps by predicted memory only where the rule of the loss is known: by the table, or as it is given."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import asrconfig_go as ac
from asrconfig_go.errors import InvalidArgumentError
from asrconfig_go.guard import attach
from asrconfig_go.guard.loss_table import UNTIL_PROBLEM_TYPE, knows_loss
from asrconfig_go.plan.plan_options import PlanOptions
from asrconfig_go.predict import ModelProfile, known_models
from speech_models import CTC_SIZES, wav2vec2
from tiny_training import tiny_trainer
from training_fixtures import make_plan

_SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "do_stable_layer_norm": True, "feat_extract_norm": "layer",
}  # fmt: skip
_UNKNOWN = "the loss of OwnForCTC is not in the table of known losses, and rule= was not given"


class OwnForCTC(transformers.Wav2Vec2ForCTC):  # type: ignore[misc, name-defined]
    """A user's class, which may compute another loss."""

    def forward(self, input_values: Any, attention_mask: Any = None, labels: Any = None) -> Any:
        return super().forward(input_values, attention_mask=attention_mask, labels=labels)


class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Convolutions over audio, with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv1d(1, 256, 10, stride=5), torch.nn.Conv1d(256, 512, 8, stride=4)

    def forward(self, input_values: Any, labels: Any = None) -> dict[str, Any]:
        hidden = self.second(self.first(input_values.unsqueeze(1)).relu()).mean(-1)
        return {"loss": torch.nn.functional.cross_entropy(hidden, labels), "logits": hidden}


def clips_of(batch: Any) -> int:
    return len(batch["input_values"])


def manager_for(model: Any) -> ac.ASRConfigManager:
    """For clips as of read speech, from 1 s to 30 s."""
    lengths = random.Random(1)
    manager = ac.ASRConfigManager(gpu="T4")
    manager.profile_model(model)
    seconds = [min(30.0, max(1.0, lengths.lognormvariate(1.9, 0.6))) for _ in range(1000)]
    manager.profile_dataset([[0.0] * int(100 * s) for s in seconds], sampling_rate=100)
    return manager


@pytest.fixture(scope="module")
def own() -> ac.ASRConfigManager:
    return manager_for(OwnForCTC(transformers.Wav2Vec2Config(**_SIZES)))


def reason(config: ac.TrainingConfig, setting: str = "micro_batching") -> str:
    return next(d.reason for d in config.decisions if d.setting == setting)


def test_losses_are_known_by_module_config_folder_name_and_profile(tmp_path: Path) -> None:
    config = transformers.Wav2Vec2Config(**CTC_SIZES)
    config.save_pretrained(tmp_path)
    models = "wav2vec2-base", "Whisper Small", config, config.to_dict(), tmp_path, str(tmp_path), wav2vec2("mean")
    for model in (*models, ac.profile_model(wav2vec2("mean")), ac.profile_model("wav2vec2-base")):
        assert knows_loss(model), model
    for named in ([], ["SeamlessM4TForSpeechToText"], ["SeamlessM4TModel"]):
        seamless = {"model_type": "seamless_m4t", "architectures": named}
        assert knows_loss(seamless), "a bare model is fine-tuned as the class for speech to text"


def test_losses_of_users_and_of_other_classes_are_unknown() -> None:
    config = transformers.Wav2Vec2Config(**CTC_SIZES)
    to_speech = {"model_type": "seamless_m4t", "architectures": ["SeamlessM4TForSpeechToSpeech"]}
    untuned = {"model_type": "encodec", "architectures": ["EncodecModel"]}
    modules = OwnForCTC(config), torch.nn.Linear(2, 2), transformers.Wav2Vec2ForPreTraining(config)
    for model in (*modules, to_speech, untuned, ModelProfile(total_parameters=9), "no model"):
        assert not knows_loss(model), model


def test_every_model_of_the_catalogue_has_a_known_loss() -> None:
    unknown = [name for name in known_models() if not knows_loss(name)]
    assert {ac.profile_model(name).class_name for name in unknown} <= UNTIL_PROBLEM_TYPE


def test_a_plan_of_an_unknown_loss_keeps_the_batches_and_says_what_a_rule_would_gain(own: ac.ASRConfigManager) -> None:
    config = own.plan(PlanOptions(target_batch_size=64))
    assert (config.micro_batching, config.length_handling, config.rule) == ("fixed", "random", None)
    assert config.micro_batch_size == config.per_device_train_batch_size
    explanation = reason(config)
    assert explanation.startswith(f"{_UNKNOWN}, so that batches stay the Trainer's; with it the guard would split them")
    assert "\n" not in explanation
    split = next(a for a in config.alternatives if a.name == "random order, sized by memory")
    assert split.speed is not None and split.speed < 1
    assert f": {1 / split.speed:.2f}× faster, {split.what} instead of " in explanation
    assert split.why == _UNKNOWN
    assert explanation in " ".join(str(own.explain()).split())


@pytest.mark.parametrize("rule", ["mean", clips_of])
def test_a_given_rule_splits_them(own: ac.ASRConfigManager, rule: Any, tmp_path: Path) -> None:
    config = own.plan(PlanOptions(target_batch_size=64, rule=rule))
    assert config.micro_batching == "memory"
    assert config.rule == ("given" if callable(rule) else rule)
    assert reason(config, "rule") == "as given: the guard weights micro-batches by it"
    config.save(tmp_path / "plan.json")
    assert ac.TrainingConfig.load(tmp_path / "plan.json") == config, "by its name"


def test_a_known_loss_needs_no_rule() -> None:
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**_SIZES))
    config = manager_for(model).plan(PlanOptions(target_batch_size=64))
    assert (config.micro_batching, config.rule) == ("memory", None)
    assert "splits each step" in reason(config)


def test_comparisons_plan_so_too() -> None:
    network = Network()
    manager = manager_for(network)
    for rule, expected in ((None, "fixed"), (clips_of, "memory")):
        assert manager.plan(PlanOptions(target_batch_size=64, rule=rule)).micro_batching == expected
        assert [row.micro_batching for row in manager.what_if(["T4"]).rows] == [expected]
    comparison = ac.compare_gpus(network, manager.dataset, gpus=["T4"], target_batch_size=64)
    assert [row.micro_batching for row in comparison.rows] == ["fixed"]


def test_create_optimal_config_takes_a_rule() -> None:
    clips: list[list[float]] = [[0.0] * 800] * 40
    options: dict[str, Any] = {"gpu": "T4", "sampling_rate": 100, "verbose": False, "trace": False, "loader_rate": 1e3}
    config, manager = ac.create_optimal_config(clips, "wav2vec2-base", rule=clips_of, **options)
    assert (config.rule, manager._planned_rule()) == ("given", clips_of)
    options |= {"policy": "published", "loader_rate": None}
    config, manager = ac.create_optimal_config(clips, "wav2vec2-base", rule="token_mean", **options)
    assert (config.policy, manager._planned_rule()) == ("published", "token_mean")
    with pytest.raises(InvalidArgumentError, match="rule = 'median'"):
        ac.create_optimal_config(clips, "wav2vec2-base", rule="median", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="rule = 'median'"):
        config.rule = "median"  # type: ignore[assignment]


def test_a_plan_that_was_saved_before_rules_is_read() -> None:
    saved = make_plan().to_dict()
    assert saved["schema_version"] == 2
    del saved["rule"]
    assert ac.TrainingConfig.from_dict(saved) == make_plan()


@pytest.mark.parametrize(
    ("planned", "options", "rule"),
    [
        ("sum", {}, "sum"),
        ("sum", {"rule": "mean"}, "mean"),
        ("sum", {"rule": None}, None),
        (clips_of, {}, "given"),
        (None, {}, None),
    ],
)
def test_the_guard_takes_the_rule_of_the_plan(
    planned: str | Callable[[Any], int] | None, options: dict[str, Any], rule: str | None, tmp_path: Path
) -> None:
    manager = ac.ASRConfigManager()
    manager.config = make_plan(rule="given" if callable(planned) else planned)
    manager._rule = planned if callable(planned) else None
    guard = manager.attach(tiny_trainer(tmp_path), **options)
    assert (guard.rule, guard.knows_rule) == (rule, rule is not None)
    assert manager.attach(guard.trainer) is guard, "a second call asks for nothing"


def test_a_training_takes_it_and_leaves_no_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[str | None] = []
    manager = ac.ASRConfigManager()
    manager.config = make_plan(rule="mean")
    trainer = tiny_trainer(tmp_path, max_steps=2)
    step = trainer.training_step

    def noting(*args: Any, **kwargs: Any) -> Any:
        rules.append(ac.guard.guard_of(trainer).rule)  # type: ignore[union-attr]
        return step(*args, **kwargs)

    monkeypatch.setattr(trainer, "training_step", noting)
    manager.train(trainer, verbose=False)
    assert set(rules) == {"mean"}
    assert ac.guard.guard_of(trainer) is None
    attach(trainer, rule="sum")
    rules.clear()
    manager.train(trainer, verbose=False)
    assert set(rules) == {"sum"}, "a guard that is there stays as it is"


def test_a_function_is_not_known_where_its_plan_is_loaded(tmp_path: Path) -> None:
    make_plan(rule="given").save(tmp_path / "plan.json")
    manager = ac.ASRConfigManager()
    manager.load_config(tmp_path / "plan.json")
    assert not manager.attach(tiny_trainer(tmp_path)).knows_rule
    assert manager.attach(tiny_trainer(tmp_path), rule=clips_of).rule == "given"
