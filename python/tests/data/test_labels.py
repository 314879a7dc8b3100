"""Whether texts fit their audio, by hand-made pairs and against transformers' own frames and losses."""

from __future__ import annotations

import io
import json
import math
import tarfile
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

import asrconfig_go as ac
from asrconfig_go.data import LabelReport
from asrconfig_go.data.label_rules import limits_of, repeats
from asrconfig_go.errors import InvalidArgumentError, NotFoundError


@pytest.fixture
def clips(make_wav: WavMaker, tmp_path: Path) -> list[str]:
    """1 s is 49 frames of wav2vec2, 0.1 s are 4."""
    paths = [make_wav("a.wav", 1.0), make_wav("b.wav", 0.1), make_wav("c.wav", 0.1), make_wav("d.wav", 1.0)]
    (tmp_path / "bad.wav").write_text("no audio")
    return [str(path) for path in (*paths, tmp_path / "bad.wav")]


TEXTS = ["hello world", "abcd", "abbc", "", "x"]


def check(source: Any, texts: Any = None, **options: Any) -> LabelReport:
    return ac.check_labels(source, texts, progress=False, **options)


def test_ctc_needs_frames_for_labels_and_repeats(clips: list[str]) -> None:
    report = check(clips, TEXTS)
    assert (report.checked, report.infeasible_rows, report.unreadable, report.empty) == (4, (2,), 1, 1)
    pair = report.infeasible[0]
    assert (pair.labels, pair.needed, pair.available, pair.text) == (4, 5, 4, "abbc")
    assert (report.longest_labels, report.mean_labels, report.tightest) == (11, 19 / 4, 5 / 4)
    assert (report.unit, report.limit, report.model) == ("characters", "frames", "wav2vec2")
    text = repr(report)
    assert "1 of 4 pairs do not fit wav2vec2" in text
    assert "4 labels need 5, there are 4: 'abbc'" in text
    assert "1 cannot be read" in text
    page = report._repr_html_()
    assert "abbc" in page and "\\n" not in page
    assert page.count("\n") == text.count("\n") > 0  # the lines of the text are lines in a notebook
    assert "all 1 pairs fit" in repr(check(clips[:1], TEXTS[:1]))
    assert repr(check(["none.wav"], ["a"])) == "no pairs were checked\nof the clips 1 cannot be read"


def test_a_clip_too_short_for_one_frame_is_named(make_wav: WavMaker) -> None:
    """The model itself raises an error then, whatever the loss does with what does not fit."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    clips = [str(make_wav(f"{samples}.wav", samples / 16_000)) for samples in (16_000, 399, 400)]
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, conv_dim=(8,) * 7,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=1, vocab_size=12, ctc_zero_infinity=True,
        mask_time_prob=0.0,
    )  # fmt: skip
    model = transformers.Wav2Vec2ForCTC(config)
    (finding,) = check(clips, [[1], [1], [1]], model=model).findings
    assert finding.startswith("1 of 3 rows has a clip too short for one frame: row 1")
    assert "raises an error in a batch of only such clips" in finding and "counts zero" not in finding
    labels = torch.ones(1, 1, dtype=torch.long)
    with pytest.raises(RuntimeError, match="Kernel size"):
        model(input_values=torch.zeros(1, 399), labels=labels)
    assert math.isfinite(model(input_values=torch.zeros(1, 400), labels=labels).loss.item())


def test_only_the_first_pairs_are_listed(clips: list[str]) -> None:
    report = check(clips[1:2] * 30, ["abbc"] * 30)
    assert (report.infeasible_count, len(report.infeasible)) == (30, 20)
    assert "… and 10 more" in repr(report)


def test_a_scan_is_not_made_again(clips: list[str]) -> None:
    result = ac.scan_audio(clips, progress=False)
    Path(clips[0]).unlink()
    assert check(result, TEXTS).infeasible_rows == (2,)
    with pytest.raises(InvalidArgumentError, match="2 texts for 5 clips"):
        check(result, ["a", "b"])
    with pytest.raises(InvalidArgumentError, match="has no transcripts"):
        check(result)


def test_tokenizers(clips: list[str]) -> None:
    class Tokenizer:
        def __call__(self, texts: list[str]) -> Any:
            return type("Encoding", (), {"input_ids": [[1] * len(text) for text in texts]})

        def batch_decode(self) -> None: ...

    class Processor:
        tokenizer = Tokenizer()

    for tokenizer in (Tokenizer(), Processor()):
        report = check(clips, TEXTS, tokenizer=tokenizer)
        assert (report.infeasible_rows, report.unit) == ((1, 2), "tokens"), "all tokens are the same"
    assert check(clips, TEXTS, tokenizer=str.split).infeasible_count == 0
    assert check(clips, TEXTS, tokenizer=lambda text: {"input_ids": text}).infeasible_rows == (2,)
    with pytest.raises(InvalidArgumentError, match="cannot be called"):
        check(clips, TEXTS, tokenizer=5)
    with pytest.raises(InvalidArgumentError, match="a list of lists for a text"):
        check(clips, TEXTS, tokenizer=lambda text: {"input_ids": [[1] * len(text)]})


def test_decoders(clips: list[str]) -> None:
    texts = ["a", "b" * 449, "c" * 448, None, "x"]
    report = check(clips, texts, model="whisper", tokenizer=list)
    assert (report.infeasible_rows, report.limit, report.missing) == ((1,), "positions", 1)
    assert report.infeasible[0].available == 448
    with pytest.raises(InvalidArgumentError, match="without a tokenizer"):
        check(clips, texts, model="openai/whisper-small")


def test_texts_of_manifests_and_shards(clips: list[str], tmp_path: Path) -> None:
    rows = [{"audio_filepath": c, "text": t, "words": "w"} for c, t in zip(clips, TEXTS, strict=True)]
    manifest = tmp_path / "m.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows) + "broken\n")
    report = check(manifest)
    assert (report.infeasible_rows, report.unreadable) == ((2,), 2)
    assert check(manifest, text="words").longest_labels == 1
    with pytest.raises(InvalidArgumentError, match="no 'nothing' in manifest"):
        check(manifest, text="nothing")
    shard = tmp_path / "s.tar"
    with tarfile.open(shard, "w") as archive:
        for name, data in (("1.wav", Path(clips[1]).read_bytes()), ("1.txt", b"abbc")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert check(shard).infeasible[0].text == "abbc"
    with pytest.raises(InvalidArgumentError, match="has no transcripts"):
        check(clips)


def test_texts_of_datasets(clips: list[str], tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pq = pytest.importorskip("pyarrow.parquet")
    plain = datasets.Dataset.from_dict({"audio": clips, "sentence": TEXTS, "labels": [[1, 1, 1, 1, 1]] * 5})
    assert check(plain).infeasible_rows == (2,)
    shuffled = plain.select([4, 2, 1])
    assert check(shuffled).infeasible_rows == (1,)
    assert check(shuffled, text="labels", model="whisper").checked == 2
    numbers = check(plain.remove_columns("sentence"))
    assert (numbers.infeasible_rows, numbers.unit, numbers.infeasible[0].text) == ((1, 2), "tokens", "[1, 1, 1, 1, 1]")
    pq.write_table(plain.data.table, tmp_path / "d.parquet")
    assert check(tmp_path / "d.parquet").infeasible_rows == (2,)
    with pytest.raises(InvalidArgumentError, match=r"no column 'said' \(columns: audio, sentence, labels\)"):
        check(plain, text="said")


def test_repeats() -> None:
    assert [repeats(x) for x in ("", "a", "aa", "aab", "aaa", [1, 1, 2, 2])] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("model", "frames"),
    [
        ("wav2vec2", 49),
        ("w2v-bert", 49),
        ("facebook/wav2vec2-xls-r-300m", 49),
        ({"model_type": "wav2vec2-bert", "add_adapter": True}, 25),
        (lambda seconds: 50 * seconds, 50),
    ],
)
def test_frames_of_a_second(model: Any, frames: int) -> None:
    assert limits_of(model).available(1.0) == frames
    assert limits_of(model).available(0.0001) == 0


def test_models_without_known_frames() -> None:
    for model in ({"model_type": "bert"}, 5):
        with pytest.raises(InvalidArgumentError, match=r"cannot (determine|read)"):
            limits_of(model)
    with pytest.raises(NotFoundError):
        limits_of("no/such-model")


@pytest.mark.parametrize("adapter", [False, True])
def test_frames_are_those_of_transformers(adapter: bool) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tiny = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
        "add_adapter": adapter, "output_hidden_size": 16,
    }  # fmt: skip
    conv = {"conv_dim": (8,) * 7, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    wav2vec2 = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**tiny, **conv)).eval()
    for samples in (400, 401, 1999, 16_000, 23_456):
        with torch.no_grad():
            made = wav2vec2(torch.zeros(1, samples)).last_hidden_state.shape[1]
        # The adapter pads by one frame, and its lengths count without: the loss goes by the lengths.
        counted = int(wav2vec2._get_feat_extract_output_lengths(samples))
        assert limits_of(wav2vec2).available(samples / 16_000) == counted
        assert adapter or made == counted
    bert = transformers.Wav2Vec2BertModel(transformers.Wav2Vec2BertConfig(**tiny)).eval()
    extractor = transformers.SeamlessM4TFeatureExtractor()
    for samples in (720, 880, 16_000, 16_160, 23_456):
        features = extractor([torch.zeros(samples).numpy()], sampling_rate=16_000, return_tensors="pt")
        valid = int(bert._get_feat_extract_output_lengths(features["attention_mask"].sum()))
        assert limits_of(bert.config).available(samples / 16_000) == valid


def test_the_loss_of_an_infeasible_pair_is_infinite() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.zeros(4, 1, 5).log_softmax(-1)
    for text, fits in (("abcd", True), ("abbc", False), ("abb", True)):
        labels = torch.tensor([["_abcd".index(letter) for letter in text]])
        loss = torch.nn.functional.ctc_loss(scores, labels, torch.tensor([4]), torch.tensor([len(text)]))
        assert bool(torch.isfinite(loss)) == fits == (len(text) + repeats(text) <= 4)
