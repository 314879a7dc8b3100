"""Batches as the processors of transformers themselves pad them, and trainings with them."""

from __future__ import annotations

import json
import pickle
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import asrconfig_go as ac
from asrconfig_go.audio import CTCCollator, DecodedCache, ResampledCache, Seq2SeqCollator, load_audio
from asrconfig_go.errors import InvalidArgumentError
from speech_models import MODELS
from tiny_training import OUT_OF_MEMORY
from training_fixtures import make_plan

RATE = 16_000
LENGTHS = (5000, 16_000, 9001, 12_345)


def clips() -> list[Any]:
    generator = np.random.default_rng(0)
    return [(generator.standard_normal(length) * 0.1 + 0.02).astype(np.float32) for length in LENGTHS]


def wav2vec2(mask: bool = True, normalize: bool = True) -> Any:
    return transformers.Wav2Vec2FeatureExtractor(return_attention_mask=mask, do_normalize=normalize)


def w2v_bert() -> Any:
    return transformers.SeamlessM4TFeatureExtractor()


def whisper(**settings: Any) -> Any:
    return transformers.WhisperFeatureExtractor(chunk_length=2, **settings)


def rows(**more: Any) -> list[dict[str, Any]]:
    labels = ([3, 4], [5], [6, 7, 8], [9])
    return [{"audio": clip, "labels": ids, **more} for clip, ids in zip(clips(), labels, strict=True)]


@pytest.fixture(scope="module")
def ctc_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    vocabulary = tmp_path_factory.mktemp("tokenizer") / "vocab.json"
    vocabulary.write_text(json.dumps({token: i for i, token in enumerate(["[PAD]", "[UNK]", "|", *"abcdefgh"])}))
    return transformers.Wav2Vec2CTCTokenizer(str(vocabulary), pad_token="[PAD]", unk_token="[UNK]")


class Processor:
    """A feature extractor and a tokenizer."""

    def __init__(self, feature_extractor: Any, tokenizer: Any = None) -> None:
        self.feature_extractor, self.tokenizer = feature_extractor, tokenizer


def same(batch: dict[str, Any], expected: Any) -> None:
    assert set(batch) - {"labels"} == set(expected)
    for name, values in expected.items():
        assert torch.equal(batch[name], torch.as_tensor(values)), name
        assert batch[name].dtype == torch.as_tensor(values).dtype, name


@pytest.mark.parametrize("multiple", [None, 1000, 8])
@pytest.mark.parametrize(
    "extractor", [wav2vec2(), wav2vec2(normalize=False), wav2vec2(False, False)], ids=["mask", "raw", "raw, no mask"]
)
def test_ctc_batches_are_the_extractor_s(extractor: Any, multiple: int | None) -> None:
    batch = CTCCollator(Processor(extractor), pad_to_multiple_of=multiple)(rows())
    settings = {"sampling_rate": RATE, "padding": True, "pad_to_multiple_of": multiple, "return_tensors": "pt"}
    same(batch, extractor(clips(), **settings))
    assert batch["labels"].tolist() == [[3, 4, -100], [5, -100, -100], [6, 7, 8], [9, -100, -100]]
    assert batch["labels"].dtype == torch.long


class Derived(transformers.Wav2Vec2FeatureExtractor):  # type: ignore[misc,name-defined]
    """Takes the way of all other extractors."""


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kind", [transformers.Wav2Vec2FeatureExtractor, Derived])
def test_every_bit_is_the_extractor_s(kind: Any, normalize: bool) -> None:
    extractor = kind(return_attention_mask=True, do_normalize=normalize)
    generator = np.random.default_rng(4)
    lengths = [1, 2, 7, 400, 65_537, *generator.integers(1000, 200_000, 12)]
    inputs = [(generator.standard_normal(n) * 10.0 ** generator.uniform(-5, 1)).astype(np.float32) for n in lengths]
    inputs += [np.zeros(500, np.float32), np.full(501, 0.1, np.float32), np.linspace(0, 1, 999, dtype=np.float32)]
    batch = CTCCollator(extractor)([{"audio": clip} for clip in inputs])
    same(batch, extractor(inputs, sampling_rate=RATE, padding=True, return_tensors="pt"))


@pytest.mark.parametrize("settings", [{"padding_side": "left"}, {"padding_value": 1.0}])
@pytest.mark.parametrize("kind", ["Wav2Vec2FeatureExtractor", "SeamlessM4TFeatureExtractor"])
def test_other_paddings(kind: str, settings: dict[str, Any]) -> None:
    extractor = getattr(transformers, kind)(return_attention_mask=True, **settings)
    alone = [extractor(clip, sampling_rate=RATE) for clip in clips()]
    alone = [{name: values[0] for name, values in features.items()} for features in alone]
    same(CTCCollator(extractor)(rows()), extractor.pad(alone, padding=True, return_tensors="pt"))


def test_without_a_mask_clips_are_normalised_alone() -> None:
    """As every recipe does, clip by clip and then ``pad``: together, the padding would be counted in."""
    extractor = wav2vec2(mask=False)
    alone = [{"input_values": extractor(clip, sampling_rate=RATE)["input_values"][0]} for clip in clips()]
    batch = CTCCollator(extractor)(rows())
    same(batch, extractor.pad(alone, padding=True, return_tensors="pt"))
    for values, length in zip(batch["input_values"], LENGTHS, strict=True):
        assert abs(float(values[:length].mean())) < 1e-4 and abs(float(values[:length].std()) - 1) < 1e-3
        assert not values[length:].any()


@pytest.mark.parametrize("multiple", [None, 64])
def test_mel_features_of_w2v_bert(multiple: int | None) -> None:
    extractor = w2v_bert()
    batch = CTCCollator(Processor(extractor), pad_to_multiple_of=multiple)(rows())
    expected = extractor(
        clips(), sampling_rate=RATE, padding=True, pad_to_multiple_of=2 * (multiple or 1), return_tensors="pt"
    )
    same(batch, expected)  # its multiple is of frames before two are joined
    assert batch["input_features"].shape[1] % (multiple or 1) == 0


@pytest.mark.parametrize("settings", [{}, {"return_attention_mask": True}], ids=["as it is", "mask"])
def test_whisper_s_features_have_one_length(settings: dict[str, Any]) -> None:
    extractor = whisper(**settings)
    batch = Seq2SeqCollator(Processor(extractor), 3, pad_to_multiple_of=4)(rows())
    mask, no = bool(settings), -100
    expected = extractor(clips(), sampling_rate=RATE, return_tensors="pt", return_attention_mask=mask)
    assert set(batch) - {"labels"} == set(expected)
    torch.testing.assert_close(batch["input_features"], expected["input_features"], atol=1e-5, rtol=0)
    if mask:
        assert torch.equal(batch["attention_mask"], expected["attention_mask"])
    assert batch["labels"].tolist() == [
        [4, no, no, no], [5, no, no, no], [6, 7, 8, no], [9, no, no, no]
    ]  # fmt: skip


def test_texts_become_labels(ctc_tokenizer: Any) -> None:
    examples = [{"audio": clip, "text": text} for clip, text in zip(clips(), ["bad", "a cab", "", "face"], strict=True)]
    labels = CTCCollator(Processor(wav2vec2(), ctc_tokenizer))(examples)["labels"]
    expected = ctc_tokenizer([row["text"] for row in examples], padding=True, return_tensors="pt")
    assert torch.equal(labels, expected.input_ids.masked_fill(expected.attention_mask.ne(1), -100))


@pytest.mark.parametrize("mask", [True, False])
def test_inputs_made_before(mask: bool) -> None:
    extractor = wav2vec2(mask)
    prepared = [{"input_values": extractor(c, sampling_rate=RATE)["input_values"][0], "labels": [1]} for c in clips()]
    batch, fresh = CTCCollator(extractor)(prepared), CTCCollator(extractor)(rows())
    same({**batch}, {name: values for name, values in fresh.items() if name != "labels"})
    frames = [{"input_features": whisper()(c, sampling_rate=RATE)["input_features"][0].tolist()} for c in clips()]
    assert Seq2SeqCollator(whisper(), 3)(frames)["input_features"].shape == (4, 80, 200)


def test_without_labels_there_are_none() -> None:
    assert set(CTCCollator(wav2vec2())([{"audio": clip} for clip in clips()])) == {"input_values", "attention_mask"}


@pytest.mark.parametrize(
    ("examples", "settings", "message"),
    [
        ([], {}, "a batch of no rows"),
        ([{"labels": [1]}], {}, "rows of labels have no audio.*remove_unused_columns=False"),
        ([{"audio": clips()[0], "labels": [1]}, {"audio": clips()[0]}], {}, "row 1 of the batch has no labels"),
        ([{"audio": clips()[0], "text": None}], {}, "row 0 of the batch has no text"),
        ([{"audio": clips()[0], "text": "a"}], {}, "no tokenizer"),
        ([{"audio": clips()[0]}], {"load": partial(load_audio, sample_rate=8000)}, "8000 Hz, .* takes 16000 Hz"),
        ([{"audio": clips()[0]}], {"load": DecodedCache(9, load=partial(load_audio, sample_rate=8000))}, "8000 Hz"),
        ([{"input_values": [0.0]}], {"augment": (lambda *a: a[:2],)}, "input_values, which cannot be augmented"),
    ],
)
def test_rows_that_make_no_batch(examples: Any, settings: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"(?s){message}"):
        CTCCollator(wav2vec2(), **settings)(examples)


def test_settings_that_make_no_collator() -> None:
    with pytest.raises(InvalidArgumentError, match="pad_to_multiple_of = 0"):
        CTCCollator(wav2vec2(), pad_to_multiple_of=0)
    with pytest.raises(InvalidArgumentError, match="decoder_start_token_id = None"):
        Seq2SeqCollator(whisper(), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="no feature extractor"):
        CTCCollator(object())(rows())


def test_they_travel_to_workers(tmp_path: Path) -> None:
    for load in (load_audio, DecodedCache(1 << 20), ResampledCache(tmp_path), partial(load_audio, sample_rate=RATE)):
        collator = pickle.loads(pickle.dumps(CTCCollator(wav2vec2(), load=load)))
        assert collator(rows())["input_values"].shape == (4, max(LENGTHS))
    assert pickle.loads(pickle.dumps(Seq2SeqCollator(whisper(), 3))).decoder_start_token_id == 3


def louder(batch: Any, lengths: Any, generator: np.random.Generator) -> Any:
    return batch * generator.uniform(2, 3, (len(batch), 1)).astype(np.float32), lengths


def shorter(batch: Any, lengths: Any, generator: np.random.Generator) -> Any:
    return batch[:, : batch.shape[1] // 2], lengths // 2


class Shared:
    """A collator's batch, and which of its tensors lie in shared memory when it leaves the worker's collator."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def __call__(self, examples: list[Any]) -> tuple[Any, dict[str, bool]]:
        batch = self.collator(examples)
        return batch, {name: values.is_shared() for name, values in batch.items()}


@pytest.mark.parametrize("extractor", [wav2vec2(), wav2vec2(mask=False), w2v_bert(), whisper()])
def test_a_worker_makes_its_batches_in_shared_memory(extractor: Any) -> None:
    examples = [{"audio": clip} for clip in clips()]
    collator, loader = Shared(CTCCollator(extractor)), torch.utils.data.DataLoader
    ((here, shared_here),) = loader(examples, 4, collate_fn=collator)
    ((there, shared_there),) = loader(examples, 4, collate_fn=collator, num_workers=1)
    same(there, here)
    assert not any(shared_here.values())
    assert all(shared_there.values())


def test_a_worker_s_empty_input_needs_no_memory() -> None:
    examples: list[dict[str, Any]] = [{"input_values": np.zeros(0, np.float32)}]
    (batch,) = torch.utils.data.DataLoader(examples, 1, collate_fn=CTCCollator(wav2vec2(False)), num_workers=1)
    assert batch["input_values"].shape == (1, 0)


def test_augmentations_in_order_for_rows_that_want_them() -> None:
    extractor = wav2vec2(normalize=False)
    collator = CTCCollator(extractor, augment=(louder, shorter))
    torch.manual_seed(5)
    examples = rows()
    examples[1]["augment"] = False
    batch = collator(examples)
    assert batch["attention_mask"].sum(1).tolist() == [2500, 16_000, 4500, 6172]
    np.testing.assert_array_equal(batch["input_values"][1].numpy(), clips()[1])
    ratio = batch["input_values"][0, :2500].numpy() / clips()[0][:2500]
    assert 2 <= ratio.mean() <= 3 and ratio.std() < 1e-5
    torch.manual_seed(5)
    assert torch.equal(collator(examples)["input_values"], batch["input_values"]), "torch's seed decides"
    assert not torch.equal(collator(examples)["input_values"], batch["input_values"]), "and its generator moves on"
    np.testing.assert_array_equal(examples[0]["audio"], clips()[0])


class Files(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """The demo's first clips."""

    def __init__(self, count: int) -> None:
        from asrconfig_go.data.splits import demo_rows

        self.paths = [row["audio_filepath"] for row in demo_rows()[:count]]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"audio": self.paths[i], "labels": [3, 4, 5]}


@pytest.mark.parametrize("kind", ["ctc mean", "w2v-bert", "whisper"])
def test_a_guarded_training(tmp_path: Path, kind: str) -> None:
    extractors = {
        "ctc mean": wav2vec2(),
        "w2v-bert": transformers.SeamlessM4TFeatureExtractor(feature_size=4, num_mel_bins=4),
        "whisper": transformers.WhisperFeatureExtractor(feature_size=4, chunk_length=1, hop_length=500),
    }
    load = ResampledCache(tmp_path / "cache")
    extractor = extractors[kind]
    torch.manual_seed(0)
    collator = (
        Seq2SeqCollator(extractor, 1, load=load)
        if kind == "whisper"
        else CTCCollator(extractor, load=load, pad_to_multiple_of=64, augment=(louder,))
    )
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=4, remove_unused_columns=False,
        report_to="none", use_cpu=True, disable_tqdm=True, save_strategy="no", logging_steps=1,
    )  # fmt: skip
    trainer = transformers.Trainer(MODELS[kind](), arguments, data_collator=collator, train_dataset=Files(8))
    sizes: list[int] = []

    def full_at_first(model: Any, _: Any, inputs: Any) -> None:
        if not torch.is_grad_enabled():  # the guard measures
            return
        sizes.append(len(inputs["labels"]))
        if len(sizes) == 1:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)

    trainer.model.register_forward_pre_hook(full_at_first, with_kwargs=True)
    manager = ac.ASRConfigManager()
    manager.config = make_plan(per_device_train_batch_size=4, gradient_accumulation_steps=1, target_batch_size=4)
    manager.attach(trainer)
    trainer.train()
    assert sizes[0] == 4 and sizes[1] < 4, "the first attempt is repeated in pieces"
    assert 4 in accumulate(sizes[1:]), "of all its clips"
    assert trainer.state.global_step == 2
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert len(losses) == 2 and all(np.isfinite(loss) and loss > 0 for loss in losses)
    assert len(load) == 8
