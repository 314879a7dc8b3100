"""Fine-tuning adapters, also beside weights of 8 bits: they learn, come back from their folder, and resume exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asrconfig_go import TrainingConfig
from asrconfig_go.__main__ import main
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.plan import add_lora
from asrconfig_go.recipe import FineTuneResult, SpeechData, build_processor, fine_tune, load_model, load_speech
from asrconfig_go.recipe.model_building import check_bits
from recipe_data import assert_same_weights, digits, weights

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytest.importorskip("safetensors")

LEARNED = {"tiny-wav2vec2": 0.7, "tiny-whisper": 0.92}  # Whisper's head is frozen, here with random weights
MODELS = ("tiny-wav2vec2", pytest.param("tiny-whisper", marks=pytest.mark.slow))


@pytest.fixture(scope="module")
def speech() -> SpeechData:
    return load_speech(digits(), check_audio=False, progress=False)


def trained(speech: SpeechData, output: Path, model: str, **options: Any) -> FineTuneResult:
    settings: dict[str, Any] = {"lora_rank": 8, "max_steps": 3, "target_batch_size": 4, "verbose": False, **options}
    return fine_tune(speech, model, output, **settings)


class Watch(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Keeps the model and the losses, and interrupts at a step."""

    def __init__(self, interrupted_at: int | None = None) -> None:
        self.at, self.losses = interrupted_at, list[float]()
        self.model: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.model = model
        if state.global_step == self.at:
            raise KeyboardInterrupt

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.losses += [float(logs["loss"])] if "loss" in logs else []


def logits(model: Any) -> Any:
    torch.manual_seed(0)
    kind = type(model.get_base_model()).__name__
    audio = torch.randn(2, 40, 500) if kind.startswith("Whisper") else torch.randn(2, 8000)
    inputs = {"decoder_input_ids": torch.tensor([[1, 2], [3, 4]])} if kind.startswith("Whisper") else {}
    with torch.no_grad():
        return model.eval()(audio, **inputs).logits


@pytest.mark.parametrize("model", MODELS)
def test_adapters_learn_and_come_back_from_their_folder(speech: SpeechData, tmp_path: Path, model: str) -> None:
    watch = Watch()
    settings = {"learning_rate": 0.02, "logging_steps": 1}
    result = trained(speech, tmp_path, model, max_steps=24, settings=settings, callbacks=[watch])
    assert sum(watch.losses[-4:]) < LEARNED[model] * sum(watch.losses[:4])
    assert result.config.lora_rank == 8
    assert not (tmp_path / "model.safetensors").exists()
    assert "library_name: peft" in (tmp_path / "README.md").read_text()
    processor = build_processor(list(speech.clean().train["text"]), model)
    loaded = peft.PeftModel.from_pretrained(load_model(model, processor), tmp_path)
    assert torch.equal(logits(loaded), logits(watch.model))


@pytest.mark.parametrize("model", MODELS)
def test_interrupted_adapters_go_on_exactly(speech: SpeechData, tmp_path: Path, model: str) -> None:
    """Without lora_rank: the plan of the run knows it."""
    trained(speech, tmp_path / "whole", model)
    with pytest.raises(KeyboardInterrupt):
        trained(speech, tmp_path / "cut", model, callbacks=[Watch(2)])
    resumed = trained(speech, tmp_path / "cut", model, resume=True, lora_rank=0)
    assert resumed.training.resumed_from.endswith("checkpoint-2")
    assert_same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    with pytest.raises(InvalidArgumentError, match="lora_rank is 4, and that of the plan is 8"):
        trained(speech, tmp_path / "cut", model, resume=True, lora_rank=4)
    with pytest.raises(InvalidArgumentError, match="target_batch_size = 5, and a step of the plan has 4 clips"):
        trained(speech, tmp_path / "cut", model, resume=True, target_batch_size=5)
    with pytest.raises(InvalidArgumentError, match=r"holds an earlier training \(checkpoint-2"):
        trained(speech, tmp_path / "cut", model)


def test_the_commands(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "out"
    assert (
        main(["plan", "--data", "demo", "--model", "tiny-wav2vec2", "--lora", "4", "--output", str(plan), "--quiet"])
        == 0
    )
    assert TrainingConfig.load(plan).lora_rank == 4
    command = ["train", "--data", "demo", "--model", "tiny-wav2vec2", "--max-steps", "1", "--out", str(out)]
    assert main([*command, "--config", str(plan)]) == 0
    assert any(name.endswith("lora_A.weight") and w.shape[0] == 4 for name, w in weights(out).items())


@pytest.mark.filterwarnings("ignore")  # of bitsandbytes, on what the CPU lacks
@pytest.mark.parametrize("model", ["tiny-wav2vec2", "tiny-whisper"])
def test_a_checkpoint_in_8_bits_trains(speech: SpeechData, tmp_path: Path, model: str) -> None:
    pytest.importorskip("bitsandbytes")
    base, out = str(tmp_path / "base"), tmp_path / "out"
    options: dict[str, Any] = {"max_steps": 1, "target_batch_size": 4, "verbose": False}
    fine_tune(speech, model, base, **options)
    options |= {"lora_rank": 4, "bits": 8, "max_steps": 3, "settings": {"learning_rate": 0.02}}
    result = fine_tune(speech, base, out, **options)
    assert result.loss is not None and result.config.lora_rank == 4
    processor = build_processor(list(speech.clean().train["text"]), base)
    loaded = peft.PeftModel.from_pretrained(load_model(base, processor, bits=8), out)
    kinds = {type(m.base_layer).__name__ for m in loaded.modules() if hasattr(m, "base_layer")}
    assert kinds == {"Linear8bitLt"}
    adapters = [p for name, p in loaded.named_parameters() if "lora_B" in name]
    assert adapters and all(bool(p.any()) for p in adapters)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3, "lora_rank": 4}, "bits = 3 is not 8 or 4"),
        ({"bits": 8}, "weights of 8 bits do not train"),
        ({"bits": 8, "lora_rank": 4}, "the tiny models have none"),
    ],
)
def test_bits_that_cannot_be(speech: SpeechData, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        fine_tune(speech, "tiny-wav2vec2", tmp_path, verbose=False, **options)


def test_4_bits_are_refused_without_a_gpu() -> None:
    pytest.importorskip("bitsandbytes")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UnsupportedError, match="bits=4 needs a GPU"):
        check_bits(4, True, False)
    check_bits(8, True, False)


@pytest.mark.filterwarnings("ignore")
def test_a_head_in_8_bits_is_refused_and_whole_again_as_the_hint_says(speech: SpeechData, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    processor = build_processor(list(speech.clean().train["text"]), "tiny-wav2vec2")
    load_model("tiny-wav2vec2", processor).save_pretrained(tmp_path)

    def load(**options: Any) -> Any:
        config = transformers.BitsAndBytesConfig(load_in_8bit=True, **options)
        return transformers.AutoModelForCTC.from_pretrained(tmp_path, quantization_config=config)

    with pytest.raises(InvalidArgumentError, match="lm_head is quantized") as caught:
        add_lora(load(llm_int8_skip_modules=["dropout"]), 2)
    assert 'llm_int8_skip_modules=["lm_head"]' in caught.value.hint
    add_lora(load(llm_int8_skip_modules=["lm_head"]), 2)
