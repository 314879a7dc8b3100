"""Clips shorter than a mask of SpecAugment, which models refuse where no longer one is in the batch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

import asrconfig_go as ac
from asrconfig_go._core.padding import min_input_length, min_trimmed_length, padded_for_masks
from asrconfig_go.guard import guarded_step
from speech_models import CTC_SIZES, MODELS, adapted, w2v_bert, wav2vec2
from uneven_clips import Run

# Of audio, a frame has 20 samples: masks of 45 frames are longer than a third of UnevenClips, and 90 than all of them.
MASKED: dict[str, Any] = {"apply_spec_augment": True, "mask_time_prob": 0.3, "mask_time_length": 45}
KINDS = ("Wav2Vec2", "Hubert", "WavLM", "Data2VecAudio", "UniSpeech", "UniSpeechSat", "SEW", "Wav2Vec2Conformer")


def masking(model: Any, **settings: Any) -> Any:
    for name, value in {**MASKED, **settings}.items():
        setattr(model.config, name, value)
    return model


def of_kind(kind: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**CTC_SIZES, "squeeze_factor": 1, **settings})
    return getattr(transformers, f"{kind}ForCTC")(config)


def encoder_decoder() -> Any:
    torch.manual_seed(0)
    encoder = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**CTC_SIZES))
    sizes = {"vocab_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    decoder = transformers.BertConfig(**sizes, intermediate_size=16, is_decoder=True, add_cross_attention=True)
    model = transformers.SpeechEncoderDecoderModel(encoder=encoder, decoder=transformers.BertLMHeadModel(decoder))
    model.config.decoder_start_token_id, model.config.pad_token_id = 1, 0
    masking(model.encoder)
    return model


def batch(*lengths: int, masked: bool = True) -> dict[str, Any]:
    source = torch.Generator().manual_seed(1)
    audio = torch.zeros(len(lengths), max(lengths))
    for row, n in zip(audio, lengths, strict=True):
        row[:n] = torch.randn(n, generator=source)
    inputs = {"input_values": audio, "labels": torch.tensor([[3, 4]] * len(lengths))}
    return inputs | ({"attention_mask": (audio != 0).long()} if masked else {})


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_that_masks_trains_on_short_clips(kind: str) -> None:
    model = masking(of_kind(kind)).train()
    shortest = min_input_length(model)
    with pytest.raises(ValueError, match="mask_length"):
        model(**batch(shortest - 20, 400))
    for masked in (True, False):
        padded = padded_for_masks(batch(shortest - 20, 400, masked=masked), model)
        assert torch.isfinite(model(**padded).loss)
    assert int(padded_for_masks(batch(400), model)["input_values"].shape[1]) == shortest
    enough = batch(shortest, 400)
    assert padded_for_masks(enough, model) is enough
    model(**enough)


def test_the_models_own_settings_are_asked_each_time() -> None:
    model = masking(wav2vec2("mean"))
    shortest = min_input_length(model)
    assert min_input_length(masking(model, mask_time_length=20)) < shortest
    assert min_input_length(masking(model, mask_time_prob=0.0)) == 0
    assert min_input_length(masking(model, apply_spec_augment=False)) == 0
    del model.config.apply_spec_augment  # as configs of some families, whose models mask
    assert min_input_length(masking(model, apply_spec_augment=True)) == shortest


def test_masks_inside_of_wrappers_encoders_and_before_adapters_are_found() -> None:
    plain = min_input_length(masking(wav2vec2("mean")))
    assert min_input_length(encoder_decoder()) == plain
    assert min_input_length(masking(adapted(wav2vec2("mean")))) == plain
    assert min_input_length(masking(of_kind("Wav2Vec2", add_adapter=True, output_hidden_size=16))) == plain
    assert min_input_length(masking(w2v_bert())) == 45, "of frames, which are its input"
    assert min_input_length(torch.nn.Linear(1, 1)) == 0
    model = encoder_decoder().train()
    assert torch.isfinite(model(**padded_for_masks(batch(200, 400), model)).loss)


def test_with_an_attention_mask_nothing_of_short_clips_is_masked() -> None:
    model = masking(wav2vec2("mean")).train()
    padded = model(**padded_for_masks(batch(400, 600), model)).loss
    assert padded.item() == pytest.approx(masking(model, mask_time_prob=0.0)(**batch(400, 600)).loss.item(), rel=1e-5)


def test_without_one_masks_leave_most_of_a_short_clip() -> None:
    """With padding to the length of one mask, it would cover every frame of every such clip."""
    model = masking(of_kind("Wav2Vec2", feat_extract_norm="group"), mask_time_length=10).train()
    length = int(padded_for_masks(batch(100, masked=False), model)["input_values"].shape[1])
    assert int(model._get_feat_extract_output_lengths(torch.tensor(length))) == 40, "twice two masks of ten frames"


def test_what_has_another_layout_is_left_alone() -> None:
    model = masking(wav2vec2("mean"))
    for inputs in ((torch.zeros(2, 4), None), {"x": torch.zeros(2, 4)}, {**batch(400), "frames": torch.zeros(1, 7)}):
        assert padded_for_masks(inputs, model) is inputs
    labels = torch.tensor([[3] * 30])  # as many as there are frames
    padded = padded_for_masks({"input_features": torch.ones(1, 30, 8), "labels": labels}, masking(w2v_bert()))
    assert padded["labels"][0, 30:].tolist() == [-100] * (padded["labels"].shape[1] - 30)


@pytest.mark.parametrize(("kind", "limit"), [("ctc mean", 8000), ("w2v-bert", 400)])
def test_a_training_ends_as_without_masks_also_when_memory_runs_out(tmp_path: Path, kind: str, limit: int) -> None:
    """All clips are shorter than the mask, so that none is masked."""

    def model(**settings: Any) -> Any:
        torch.manual_seed(0)
        return masking(MODELS[kind](), mask_time_length=90, **settings)

    calm = Run(tmp_path, kind, model=model(mask_time_prob=0.0)).train()
    run = Run(tmp_path, kind, model=model()).train()
    assert run.apart(calm) < 1e-5
    assert not run.guard.bad_batches
    assert any("mask_time_length" in note for note in run.guard.notes)
    split = Run(tmp_path, kind, limit, model=model()).train()
    assert split.guard.events
    assert split.apart(calm) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_is_not_trimmed_below_a_frame(kind: str) -> None:
    model = masking(of_kind(kind), mask_time_prob=0.0).eval()
    shortest = min_trimmed_length(model)
    model(**batch(shortest))
    with pytest.raises(RuntimeError):
        model(**batch(shortest - 1))
    masking(model, mask_time_prob=0.5)
    assert min_trimmed_length(model) == min_input_length(model) > shortest


def test_clips_without_a_frame_train_when_memory_runs_out(tmp_path: Path) -> None:
    runs = []
    for limit in (None, 1700):
        run = Run(tmp_path, limit=limit)
        run.model.config.ctc_zero_infinity = True  # of a clip with more labels than frames
        for item in run.trainer.train_dataset.items[::6]:
            item["audio"] = item["audio"][:30]
        runs.append(run.train())
    calm, split = runs
    assert split.guard.events
    assert split.apart(calm) < 1e-5


def test_what_is_left_when_the_long_clips_are_taken_out_trains(tmp_path: Path) -> None:
    """Clips over 1500 samples do not fit; two thirds of the others are shorter than the mask."""
    run = Run(tmp_path, limit=1500, too_long="skip", model=masking(wav2vec2("mean"), mask_time_length=70)).train()
    assert run.guard.skipped == 4
    assert run.trainer.state.global_step == 6
    assert {batch.what for batch in run.guard.bad_batches} == {"memory"}, "no clip raises the model's error"


def test_a_loop_of_ones_own_and_trials_take_short_clips_too() -> None:
    model = masking(wav2vec2("mean")).train()
    step = guarded_step(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda m, b: m(**b).loss)
    assert torch.isfinite(step(batch(400, 500)))
    assert "mask_time_length" in step.notes[0]
    assert ac.find_max_batch_size(model, seconds=0.02, high=2).micro_batch == 2


def test_batches_with_a_long_clip_are_not_touched(tmp_path: Path) -> None:
    """The order of random numbers and every result are those of a training without the guard's padding."""
    torch.manual_seed(3)
    model = masking(wav2vec2("mean"), mask_time_length=5)
    run = Run(tmp_path, model=copy.deepcopy(model)).train()
    assert not run.guard.notes
    assert {length for _, length in run.appetite.shapes} <= {20 * n for n in range(20, 81)}
