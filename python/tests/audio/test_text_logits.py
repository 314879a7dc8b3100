"""Logits of the text alone: the same loss and gradients as with those of prompt and audio."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from asrconfig_go import errors
from asrconfig_go.guard import attach
from asrconfig_go.plan import text_logits_only
from asrconfig_go.plan.model_preparation import cut_labels, keeps_logits
from asrconfig_go.recipe.model_building import small_model
from tiny_training import OUT_OF_MEMORY

VOCABULARY, AUDIO, PLACEHOLDERS, LETTERS = 64, 5, 6, 4
DECODER = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0,
}  # fmt: skip


def batch(clips: int = 3) -> dict[str, torch.Tensor]:
    """Prompts of unequal length before texts of unequal length, padded on the right."""
    torch.manual_seed(0)
    width = 4 + clips + PLACEHOLDERS + LETTERS
    ids = torch.randint(6, VOCABULARY, (clips, width))
    labels, mask = torch.full_like(ids, -100), torch.ones_like(ids)
    for clip in range(clips):
        start, end = 4 + clip + PLACEHOLDERS, 4 + clip + PLACEHOLDERS + LETTERS
        labels[clip, start:end] = ids[clip, start:end]
        mask[clip, end:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def decoder() -> Any:
    """Any decoder of transformers with that argument: its loss is that of the audio models around it."""
    torch.manual_seed(1)
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**DECODER))


def granite() -> Any:
    """Its loss is written out in its own forward; without audio it is a text model."""
    torch.manual_seed(1)
    encoder = {"input_dim": 8, "num_layers": 1, "hidden_dim": 16, "num_heads": 2, "context_size": 8, "max_pos_emb": 8}
    projector = {
        "model_type": "blip_2_qformer", "hidden_size": 16, "encoder_hidden_size": 16, "intermediate_size": 32,
        "num_attention_heads": 2, "num_hidden_layers": 1, "cross_attention_frequency": 1,
    }  # fmt: skip
    text = {name: value for name, value in DECODER.items() if name != "head_dim"}
    config = transformers.GraniteSpeechConfig(
        encoder_config=encoder, projector_config=projector, text_config={"model_type": "granite", **text},
        audio_token_index=AUDIO, has_lora_adapter=False,
    )  # fmt: skip
    return transformers.GraniteSpeechForConditionalGeneration(config)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("build", [decoder, granite])
@pytest.mark.parametrize("counted", [None, 12])
def test_loss_and_gradients_stay_the_same(build: Any, counted: int | None) -> None:
    """Also where the Trainer says how many labels a step has."""
    try:
        model = build()
    except AttributeError as error:
        pytest.skip(f"transformers {transformers.__version__}: {error}")
    more = {} if counted is None else {"num_items_in_batch": torch.tensor(counted)}
    full = model(**batch(), **more)
    full.loss.backward()
    expected = gradients(model)
    model.zero_grad()
    cut = cut_labels(batch())
    output = model(**cut, **more)
    output.loss.backward()
    assert full.logits.shape[1] == batch()["input_ids"].shape[1]
    assert output.logits.shape[1] == cut["labels"].shape[1] == cut["logits_to_keep"] < full.logits.shape[1]
    torch.testing.assert_close(output.loss, full.loss)
    assert gradients(model).keys() == expected.keys()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


def test_the_first_logits_are_those_that_predict_the_first_label() -> None:
    cut = cut_labels(batch())
    assert (cut["labels"][:, 0] == -100).all()
    assert (cut["labels"][:, 1] != -100).any()
    labels = batch()["labels"]
    assert torch.equal(cut["labels"][cut["labels"] != -100], labels[labels != -100])


@pytest.mark.parametrize(
    "labels",
    [torch.ones(2, 5, dtype=torch.long), torch.full((2, 5), -100), torch.ones(2, dtype=torch.long)],
    ids=["all count", "none counts", "classes"],
)
def test_batches_with_nothing_to_save_stay(labels: torch.Tensor) -> None:
    inputs = {"input_ids": torch.ones(2, 5, dtype=torch.long), "labels": labels}
    assert cut_labels(inputs) is inputs


def test_a_collator_is_wrapped() -> None:
    collator = text_logits_only(batch, decoder())
    assert pickle.loads(pickle.dumps(collator))(2)["logits_to_keep"] == cut_labels(batch(2))["logits_to_keep"]


def trained(folder: Path, collator: Any, limit: int) -> torch.Tensor:
    """The weights after two steps of four clips, of which ``most`` fit at once."""
    model = decoder()

    def fail(_: Any, args: Any, inputs: dict[str, Any]) -> None:
        if len(inputs["input_ids"]) > limit:
            raise torch.cuda.OutOfMemoryError(OUT_OF_MEMORY)

    model.register_forward_pre_hook(fail, with_kwargs=True)
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=4, max_steps=2, use_cpu=True, optim="sgd", learning_rate=0.1,
        report_to="none", save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    rows = [{"number": number} for number in range(8)]
    trainer = transformers.Trainer(model, arguments, data_collator=collator, train_dataset=rows)
    guard = attach(trainer)
    trainer.train()
    assert bool(guard.events) == (limit < 4)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_the_guard_splits_such_batches_exactly(tmp_path: Path) -> None:
    def collate(rows: list[dict[str, int]]) -> dict[str, torch.Tensor]:
        return batch(len(rows))

    expected = trained(tmp_path, collate, limit=4)
    split = trained(tmp_path, text_logits_only(collate, decoder()), limit=2)
    torch.testing.assert_close(split, expected, rtol=1e-5, atol=1e-6)


def test_models_without_the_argument_are_refused() -> None:
    model = small_model(tokens=12, seed=0)
    assert not keeps_logits(model)
    with pytest.raises(errors.UnsupportedError, match="forward of Wav2Vec2ForCTC takes no logits_to_keep"):
        text_logits_only(batch, model)


def test_adapters_are_looked_through() -> None:
    peft = pytest.importorskip("peft")
    assert keeps_logits(peft.get_peft_model(decoder(), peft.LoraConfig(r=2, target_modules=["q_proj"])))
