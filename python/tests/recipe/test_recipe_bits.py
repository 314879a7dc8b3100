"""Adapters beside weights of 8 bits, which bitsandbytes computes on the CPU, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.plan import add_lora
from asrconfig_go.recipe import SpeechData, build_processor, fine_tune, load_model, load_speech
from asrconfig_go.recipe.model_building import check_bits
from recipe_data import digits

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")


@pytest.fixture(scope="module")
def speech() -> SpeechData:
    return load_speech(digits(), check_audio=False, progress=False)


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
