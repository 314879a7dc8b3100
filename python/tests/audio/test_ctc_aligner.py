"""Alignments of tones whose times are known; the best CTC path against all paths and torch's loss."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from asrconfig_go.audio import CTCAligner, ctc_aligner
from asrconfig_go.audio.ctc_aligner import best_path
from asrconfig_go.audio.cut_rules import CutClip, CutSettings, cut_clip
from asrconfig_go.data.label_rules import repeats
from asrconfig_go.errors import InvalidArgumentError
from tone_speech import LETTERS, RATE, aligner, spoken


def words(count: int, seed: int = 1) -> list[str]:
    source = random.Random(seed)
    return ["".join(source.sample(LETTERS, source.randint(1, 5))) for _ in range(count)]


def heard(audio: Any) -> dict[str, Any]:
    return {"array": audio, "sampling_rate": RATE}


@pytest.mark.parametrize("window_s", [600.0, 7.3])
def test_words_are_found_within_a_frame_also_in_windows(window_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctc_aligner, "_WINDOW_S", window_s)
    monkeypatch.setattr(ctc_aligner, "_CONTEXT_S", 1.0)
    texts = words(60)
    audio, truth = spoken(texts)
    timed = aligner().words(heard(audio), len(audio) / RATE, " ".join(texts))
    assert [word.text for word in timed] == texts
    for word, true in zip(timed, truth, strict=True):
        assert word.start == pytest.approx(true.start, abs=0.021)
        assert word.end == pytest.approx(true.end, abs=0.021)
        assert word.score is not None
        assert word.score > 0.9


def test_a_recording_is_cut_in_pauses_with_its_words() -> None:
    texts = words(120, seed=2)
    gaps = [random.Random(3 * i).choice([0.05, 0.3, 0.6]) for i in range(len(texts))]
    audio, truth = spoken(texts, gaps)
    duration, text = len(audio) / RATE, " ".join(texts)
    cut = cut_clip(heard(audio), duration, text, None, CutSettings(20.0, aligner()))
    assert isinstance(cut, CutClip)
    assert cut.rule == "alignment"
    assert " ".join(piece.text for piece in cut.pieces) == text
    assert (cut.pieces[0].start, cut.pieces[-1].end) == (0.0, duration)
    assert max(piece.end - piece.start for piece in cut.pieces) <= 20.0
    count = 0
    for piece in cut.pieces[:-1]:
        count += len(piece.text.split())
        assert truth[count - 1].end - 0.02 <= piece.end <= truth[count].start + 0.02
        assert gaps[count - 1] >= 0.3, "cut in a pause"


def test_pieces_whose_text_is_another_are_left_out_and_others_stay() -> None:
    texts = words(90, seed=4)
    audio, _ = spoken(texts)
    others = ["".join(LETTERS[-1 - LETTERS.index(c)] for c in word) for word in texts]
    wrong = [*texts[:30], *others[30:60], *texts[60:]]
    cut = cut_clip(heard(audio), len(audio) / RATE, " ".join(wrong), None, CutSettings(10.0, aligner()))
    assert isinstance(cut, CutClip)
    ((reason, seconds),) = cut.lost.items()
    assert reason == "aligned with a confidence below 0.5"
    assert 10.0 < seconds < 45.0
    remaining = " ".join(piece.text for piece in cut.pieces).split()
    assert remaining[:20] == texts[:20]
    assert remaining[-20:] == texts[-20:]
    assert len(set(remaining) & set(others[30:60]) - set(texts)) < 6, "pieces that are mostly right may stay"
    everything = cut_clip(heard(audio), len(audio) / RATE, " ".join(words(90, 5)), None, CutSettings(10.0, aligner()))
    assert isinstance(everything, str)
    assert everything.startswith("nothing left: aligned with a confidence below 0.5")


def test_letters_that_the_vocabulary_lacks_are_passed_over() -> None:
    audio, truth = spoken(["ab", "cd", "ef"])
    timed = aligner().words(heard(audio), len(audio) / RATE, "— AB! ... cd 7 ef")
    assert [word.text for word in timed] == ["—", "AB!", "...", "cd", "7", "ef"]
    assert [word.score is None for word in timed] == [True, False, True, False, True, False]
    assert [timed[i].start for i in (1, 3, 5)] == pytest.approx([segment.start for segment in truth], abs=0.021)
    assert (timed[0].start, timed[0].end) == (timed[1].start, timed[1].start)


def test_the_model_keeps_its_mode() -> None:
    audio, _ = spoken(["ab"])
    ctc = aligner()
    ctc.model.train()
    ctc.words(heard(audio), len(audio) / RATE, "ab")
    assert ctc.model.training


def test_what_cannot_be_aligned() -> None:
    from asrconfig_go.recipe import build_processor, load_model

    audio, _ = spoken(["ab"])
    for text in ("0123", "ab" * 500):
        with pytest.raises(InvalidArgumentError, match="letters of the vocabulary"):
            aligner().words(heard(audio), len(audio) / RATE, text)
    with pytest.raises(InvalidArgumentError, match="too much to be aligned at once"):
        aligner().words(heard(audio), 1e6, "ab" * 2000)
    with pytest.raises(InvalidArgumentError, match="is not between 0 and 1"):
        aligner(min_confidence=1.5)
    processor = build_processor(["one"], "tiny-whisper")
    with pytest.raises(InvalidArgumentError, match="has a decoder"):
        CTCAligner(load_model("tiny-whisper", processor), processor)


def cases(count: int, frames: int) -> Any:
    source = np.random.default_rng(3)
    for _ in range(count):
        size, length = int(source.integers(2, 4)), int(source.integers(1, 5))
        blank = int(source.integers(0, size))
        log_probs = np.log(source.dirichlet(np.ones(size) * 0.5, int(source.integers(1, frames + 1))) + 1e-9)
        yield log_probs, [int(x) for x in source.choice([v for v in range(size) if v != blank], length)], blank


def score(log_probs: Any, tokens: Any) -> float:
    return float(sum(log_probs[t, token] for t, token in enumerate(tokens)))


def tokens_of(path: Any, labels: list[int], blank: int) -> list[int]:
    return [labels[place] if place >= 0 else blank for place in path]


def by_all_paths(log_probs: Any, labels: list[int], blank: int) -> float:
    frames, size = log_probs.shape
    spelling = (
        tokens
        for tokens in itertools.product(range(size), repeat=frames)
        if [token for token, _ in itertools.groupby(tokens) if token != blank] == labels
    )
    return max(score(log_probs, tokens) for tokens in spelling)


def test_no_path_is_better() -> None:
    compared = 0
    for log_probs, labels, blank in cases(150, 6):
        path = best_path(log_probs, labels, blank)
        assert (path is None) == (len(labels) + repeats(labels) > len(log_probs))
        if path is not None:
            compared += 1
            assert sorted(set(path[path >= 0])) == list(range(len(labels))), "every label is there"
            best = score(log_probs, tokens_of(path, labels, blank))
            assert best == pytest.approx(by_all_paths(log_probs, labels, blank), abs=1e-9)
    assert compared > 50


def test_the_best_path_is_no_likelier_than_all_together() -> None:
    torch = pytest.importorskip("torch")
    for log_probs, labels, blank in cases(100, 40):
        path = best_path(log_probs, labels, blank)
        if path is None:
            continue
        loss = torch.nn.functional.ctc_loss(
            torch.tensor(log_probs)[:, None], torch.tensor([labels]), torch.tensor([len(log_probs)]),
            torch.tensor([len(labels)]), blank=blank, reduction="sum",
        )  # fmt: skip
        assert score(log_probs, tokens_of(path, labels, blank)) <= -float(loss) + 1e-6


def test_blocks_do_not_change_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    source = np.random.default_rng(4)
    log_probs = np.log(source.dirichlet(np.ones(12), 1000)).astype(np.float32)
    labels = [int(x) for x in source.integers(1, 12, 200)]
    in_blocks = best_path(log_probs, labels, 0)
    monkeypatch.setattr(ctc_aligner, "isqrt", lambda n: n)
    path = best_path(log_probs, labels, 0)
    assert in_blocks is not None
    assert (in_blocks == path).all()
