"""Fine-tuning with all its stages: resumed exactly, with nothing lost on a full disk, and every error with a remedy."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import TrainingConfig
from asrconfig_go.__main__ import main
from asrconfig_go.errors import AsrConfigError, InvalidArgumentError, NotFoundError
from asrconfig_go.recipe import FineTuneResult, SpeechData, fine_tune, load_speech, push_to_hub
from asrconfig_go.recipe.fine_tune_options import schedule
from asrconfig_go.recipe.fine_tune_run import output_folder
from recipe_data import assert_same_weights, digits, further_models, weights

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("soundfile")
pytest.importorskip("safetensors")

MODELS = ["tiny-wav2vec2", "tiny-whisper"]
QUICK = {"save_steps": 1, "eval_strategy": "no", "report_to": []}


@pytest.fixture(scope="module")
def speech() -> SpeechData:
    return load_speech(digits(16), progress=False)


def trained(speech: Any, output: Path, model: str = MODELS[0], **options: Any) -> FineTuneResult:
    settings = {**QUICK, **options.pop("settings", {})}
    return fine_tune(speech, model, output, **{"max_steps": 3, "verbose": False, "settings": settings, **options})


def at_step(step: int, act: Any) -> Any:
    """A callback that acts at the end of a step."""

    class Acting(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                act(state)

    return Acting()


@pytest.mark.slow
def test_a_deadline_leaves_a_checkpoint_that_is_resumed_to_the_end(
    speech: SpeechData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "asrconfig_go.train.train_options.DeadlineCallback._late"
    uninterrupted = trained(speech, tmp_path / "whole")
    monkeypatch.setattr(late, lambda _, __, state, ___: state.global_step >= 2)
    stopped = trained(speech, tmp_path / "out", save_by="1h")
    assert "2 of 3 steps; saved" in repr(stopped) and "asrconfig train … --resume" in repr(stopped)
    assert stopped.wer is None and not (tmp_path / "out" / "model.safetensors").exists()
    monkeypatch.undo()
    resumed = trained(speech, tmp_path / "out", resume=True, save_by="24h")
    assert resumed.training.resumed_from.endswith("checkpoint-2") and resumed.wer == uninterrupted.wer
    assert_same_weights(weights(tmp_path / "out"), weights(tmp_path / "whole"))


def test_a_deadline_that_has_passed_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"save_by = '2020-01-01T00:00' has passed"):
        fine_tune("/no/such/data", MODELS[0], tmp_path, save_by="2020-01-01T00:00")


def interrupt(_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "model", [MODELS[0], *(pytest.param(model, marks=pytest.mark.slow) for model in (*MODELS[1:], *further_models()))]
)
def test_an_interrupted_training_goes_on_exactly(
    speech: SpeechData, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    uninterrupted = trained(speech, tmp_path / "whole", model)
    assert uninterrupted.training.steps == len(uninterrupted.samples) == 3
    assert None not in (uninterrupted.wer, uninterrupted.wer_before, uninterrupted.loss)
    with pytest.raises(KeyboardInterrupt):
        trained(speech, tmp_path / "cut", model, callbacks=[at_step(2, interrupt)], verbose=True)
    printed = capsys.readouterr().out
    assert f"Stopped at step 2 of 3: {tmp_path / 'cut' / 'checkpoint-2'} is complete" in printed
    assert "continue with the same call with resume=True (asrconfig train … --resume)" in printed
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    resumed = trained(speech, tmp_path / "cut", model, resume=True)
    assert resumed.training.resumed_from.endswith("checkpoint-2")
    assert resumed.wer == uninterrupted.wer
    assert_same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


def test_a_run_is_evaluated_and_saved_as_planned(speech: SpeechData, tmp_path: Path) -> None:
    plan: dict[str, Any] = {"steps": 900, "evaluates": True}
    assert [schedule(**plan)[name] for name in ("eval_steps", "save_steps")] == [225, 225]
    assert [schedule(**plan, planned=300)[name] for name in ("eval_steps", "save_steps")] == [300, 300]
    assert "eval_steps" not in schedule(900, evaluates=False, planned=300)
    trained(speech, tmp_path)
    made = TrainingConfig.load(tmp_path / "training_config.json").decisions
    reasons = {decision.setting: decision.reason for decision in made}
    assert speech.evaluation is not None
    assert f"{len(speech.evaluation)} clips (eval_samples)" in reasons["eval_steps"]


@pytest.mark.parametrize("model", MODELS)
def test_evaluations_during_training_take_the_planned_clips(
    speech: SpeechData, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same ones each time, and all in the end."""
    evaluations: list[tuple[int, list[Any]]] = []

    class Seeing(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clips = kwargs["eval_dataloader"].dataset
            evaluations.append((state.global_step, list(clips["labels"])))

    settings = {"eval_strategy": "steps", "eval_steps": 1, "eval_samples": 2, "per_device_eval_batch_size": 8}
    result = trained(
        speech, tmp_path / "out", model, max_steps=2, settings=settings, callbacks=[Seeing()], verbose=True
    )
    assert [(step, len(clips)) for step, clips in evaluations] == [(1, 2), (2, 2), (2, 3)]
    assert evaluations[0][1] == evaluations[1][1]
    assert all(clip in evaluations[2][1] for clip in evaluations[0][1])
    note = "evaluations during training take 2 of 3 clips, drawn at random; the last one takes all"
    assert note in result.notes and note in capsys.readouterr().out
    assert TrainingConfig.load(tmp_path / "out" / "training_config.json").eval_samples == 2
    state = json.loads((tmp_path / "out" / "checkpoint-2" / "trainer_state.json").read_text())
    assert [entry["step"] for entry in state["log_history"] if "eval_wer" in entry] == [1, 2]
    assert result.wer is not None and result.cer is not None


@pytest.mark.parametrize("settings", [{"max_steps": 2}, {"num_train_epochs": 2}])
def test_a_length_among_the_settings_is_the_option(
    speech: SpeechData, tmp_path: Path, settings: dict[str, int]
) -> None:
    """Not the thousand steps of random weights, nor a warm-up for those."""
    result = trained(speech, tmp_path, max_steps=None, settings=settings, target_batch_size=len(speech.train))
    assert result.training.steps == 2
    logged = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
    assert max(entry.get("learning_rate", 0) for entry in logged) == 1.5e-3


def test_the_folder_holds_all_that_is_needed(
    speech: SpeechData, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = trained(speech, tmp_path, settings={"eval_strategy": "steps", "eval_steps": 2, "learning_rate": 1e-3})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "%|" not in printed.err, "there are no bars without verbose"
    assert "word error rate" in str(result)
    assert "no clips to evaluate with" not in str(result)
    assert "tiny-wav2vec2: 3 steps" in result._repr_html_()
    assert TrainingConfig.load(tmp_path / "training_config.json").learning_rate == 1e-3
    logged = json.loads((tmp_path / "checkpoint-3" / "trainer_state.json").read_text())["log_history"]
    assert max(entry.get("learning_rate", 0) for entry in logged) == 1e-3
    assert next(entry["step"] for entry in logged if "eval_wer" in entry) == 2
    assert "per_device_train_batch_size" in (tmp_path / "plan.html").read_text()
    card = (tmp_path / "README.md").read_text()
    assert "Fine-tuned from tiny-wav2vec2" in card
    assert "automatic-speech-recognition" in card
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    processor = transformers.AutoProcessor.from_pretrained(tmp_path)
    model = transformers.AutoModelForCTC.from_pretrained(tmp_path)
    assert model.config.vocab_size == len(processor.tokenizer)
    assert not list(tmp_path.glob(".saving*"))


@pytest.mark.slow
def test_a_trained_model_is_trained_further(speech: SpeechData, tmp_path: Path) -> None:
    trained(speech, tmp_path / "first")
    settings = {"learning_rate": 1e-12}
    again = trained(speech, tmp_path / "second", str(tmp_path / "first"), max_steps=1, settings=settings)
    assert again.model == str(tmp_path / "first")
    first, second = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert torch.allclose(first["lm_head.weight"], second["lm_head.weight"], atol=1e-6), "its head is kept"


def test_an_earlier_training_is_never_overwritten(speech: SpeechData, tmp_path: Path) -> None:
    trained(speech, tmp_path)
    before = weights(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"holds an earlier training \(checkpoint-2, checkpoint-3") as caught:
        trained(speech, tmp_path)
    assert "--resume" in caught.value.hint
    (tmp_path / "training_config.json").unlink()
    assert trained(speech, tmp_path, resume=True).training.steps == 3
    assert_same_weights(weights(tmp_path), before)


@pytest.fixture(params=["injected", "tmpfs"])
def full(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose disk is full when the third checkpoint is written."""
    if request.param == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", "size=26m", "tmpfs", str(tmp_path)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a small file system")
        yield tmp_path / "out"
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
        return
    real = torch.save

    def save(state: Any, path: Any, *args: Any, **options: Any) -> None:
        if "checkpoint-3" in str(path):
            Path(path).write_bytes(b"begun")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(state, path, *args, **options)

    monkeypatch.setattr(torch, "save", save)
    yield tmp_path / "out"


def test_a_full_disk_loses_nothing(speech: SpeechData, full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match="is full: it could not be written at step 3") as caught:
        trained(speech, full, max_steps=4)
    assert f"{full / 'checkpoint-2'} is complete, and training continues from there" in caught.value.hint
    assert "--resume" in caught.value.hint
    assert not (full / "checkpoint-3").exists(), "what was begun takes no room"
    monkeypatch.undo()
    if full.parent.is_mount():
        subprocess.run(["mount", "-o", "remount,size=80m", str(full.parent)], check=True)
    resumed = trained(speech, full, max_steps=4, resume=True)
    assert resumed.training.resumed_from == str(full / "checkpoint-2")
    assert resumed.training.steps == 4


def test_no_room_for_a_checkpoint_is_said_first(
    speech: SpeechData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("asrconfig_go.train.checkpoints.shutil.disk_usage", lambda _: usage)
    with pytest.raises(NotFoundError, match=r"has 1\.0 MiB free, and a checkpoint with the model takes"):
        trained(speech, tmp_path)
    assert not list(tmp_path.glob("checkpoint-*"))


def test_an_output_that_cannot_be_written_is_said_before_anything_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match="cannot write to the output folder") as caught:
        fine_tune("/no/such/data", "tiny-wav2vec2", tmp_path / "file" / "out", verbose=False)
    assert "--out" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps = 0 trains nothing"),
        ({"epochs": 0.0, "max_steps": None}, "epochs = 0.0 trains nothing"),
        ({"profile": 0}, "profile = 0 is not 1 to 20 optimizer steps"),
        ({"profile": 1}, "profile = 1 needs 4 optimizer steps, the first 3 to warm up, and 3 are left"),
        ({"epochs": 1.0}, "both max_steps and epochs"),
        ({"settings": {"num_train_epochs": 2}}, "both max_steps and epochs"),
        ({"settings": {"learning_rat": 1}}, "has no setting 'learning_rat'"),
        ({"settings": {"optimizer": 3}}, "optimizer = 3 is not one of"),
        ({"settings": {"max_steps": "abc"}}, "max_steps = 'abc' is not a whole number"),
        ({"settings": {"logging_steps": True}}, "logging_steps = True is not a number"),
        ({"settings": {"lr_scheduler_type": "cosinus"}}, "lr_scheduler_type = 'cosinus' is not one of"),
    ],
)
def test_options_that_cannot_be(speech: SpeechData, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AsrConfigError, match=message):
        trained(speech, tmp_path, **options)


class Hub:
    """In place of huggingface_hub's API."""

    error: Exception | None = None
    uploaded: list[Any]

    def __init__(self, token: str) -> None:
        Hub.uploaded = [token]

    def create_repo(self, repo: str, **options: Any) -> Any:
        if self.error:
            raise self.error
        self.uploaded += [repo, options]
        return type("Url", (str,), {"repo_id": f"me/{repo}"})(f"https://hub/me/{repo}")

    def upload_folder(self, *, repo_id: str, folder_path: Path, ignore_patterns: list[str]) -> None:
        from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

        files = [str(path.relative_to(folder_path)) for path in folder_path.rglob("*") if path.is_file()]
        self.uploaded += [repo_id, sorted(filter_repo_objects(files, ignore_patterns=ignore_patterns))]


def test_pushing(speech: SpeechData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    result = trained(speech, tmp_path / "digits", push=True, max_steps=1)
    assert result.pushed.startswith("not pushed to the Hub, as there is no token: log in with `hf auth login`")
    assert str(result).endswith(result.pushed)
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("asrconfig_go.recipe.fine_tuning.offline", lambda: False)
    message = push_to_hub(tmp_path / "digits", token="secret")
    assert message == "pushed to https://hub/me/digits"
    token, repo, options, target, files = Hub.uploaded
    assert (token, repo, target, options["private"]) == ("secret", "digits", "me/digits", True)
    assert {"model.safetensors", "config.json", "vocab.json", "README.md", "training_config.json"} <= set(files)
    assert not [name for name in files if name.startswith(("checkpoint", ".asrconfig", "runs"))]
    monkeypatch.setattr(Hub, "error", ConnectionError("Connection refused"))
    with pytest.raises(NotFoundError, match="not pushed to the Hub: the repository 'mine'") as caught:
        push_to_hub(str(tmp_path / "digits"), "mine", token="secret")
    assert f"the model is safe in {tmp_path / 'digits'}" in caught.value.hint
    with pytest.raises(NotFoundError, match="holds no saved model"):
        push_to_hub(tmp_path, token="secret")


def test_pushing_named_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEFT saves each in a subfolder, with no configuration of a model beside them."""
    peft = pytest.importorskip("peft")
    from tiny_training import Regression, tiny_trainer

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("asrconfig_go.recipe.fine_tuning.offline", lambda: False)
    model = peft.get_peft_model(Regression(), peft.LoraConfig(target_modules=["first"]), "speech")
    trainer = tiny_trainer(tmp_path / "run", model=model, save_strategy="epoch")
    trainer.train()
    with pytest.raises(NotFoundError, match="holds no saved model"):
        push_to_hub(trainer, token="secret")
    trainer.save_model()
    assert push_to_hub(trainer, token="secret") == "pushed to https://hub/me/run"
    assert Hub.uploaded[-1] == ["README.md", "speech/adapter_config.json", "speech/adapter_model.safetensors"]
    with pytest.raises(InvalidArgumentError, match="holds an earlier training"):
        output_folder(tmp_path / "run", False)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits(8, 2).save_to_disk(tmp_path / "data")
    capsys.readouterr()
    command = ["train", "--model", "tiny-wav2vec2", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    quick = ["--max-steps", "1", "--set", "eval_strategy=no", "--set", "report_to=none", "--set", "adam_beta1=0.8"]
    assert main([*command, *quick]) == 0
    captured = capsys.readouterr()
    for stage in ("Speech:", "Prepared:", "Plan: ", "Training:  1 of 1 step", "word error rate"):
        assert stage in captured.out
    assert main([*command, *quick]) == 1
    assert "holds an earlier training" in capsys.readouterr().err
    assert main([*command, *quick, "--resume", "--quiet"]) == 0
    assert main([*command, "--set", "oops"]) == 1
    assert "write --set learning_rate=3e-5" in capsys.readouterr().err
    command[4] = str(tmp_path / "nothing")
    assert main(command[:5]) == 1
    assert "does not exist" in capsys.readouterr().err
