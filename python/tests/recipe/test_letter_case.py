"""Lower case by language: no letter becomes another, and no mark a token of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asrconfig_go.recipe import build_processor, clean_text, fine_tune, load_speech
from asrconfig_go.recipe.speech_data import language_code, lower_case
from recipe_data import digits

datasets = pytest.importorskip("datasets")

DOT = "\u0307"


@pytest.mark.parametrize(
    ("language", "text", "cleaned"),
    [
        ("tr", "IĞDIR'dan İzmir'e", "ığdır'dan izmir'e"),
        ("Turkish", "ILIK İÇİN", "ılık için"),
        ("az-AZ", "Iİ", "ıi"),
        ("tr", f"I{DOT}zmir i{DOT}yi", "izmir iyi"),
        (None, "İzmir IT", "izmir it"),
        (None, f"i{DOT}zmir", "izmir"),
        ("de", "İ Straße ẞ", "i straße ß"),
        (None, "ΟΔΥΣΣΕΥΣ Σ", "οδυσσευς σ"),
        (None, "Ìr", "ìr"),
        (None, f"I{DOT}\u0301", "í"),
        ("vi", "ĐƯỜNG ẾCH", "đường ếch"),
    ],
)
def test_lower_case_of_languages(language: str | None, text: str, cleaned: str) -> None:
    assert clean_text(text, language=language) == cleaned
    assert clean_text(cleaned, language=language) == cleaned, "cleaning twice changes nothing more"


def test_a_letter_stays_one_letter_in_every_script() -> None:
    letters = [chr(i) for i in range(0x110000) if chr(i).isupper() and not 0xD800 <= i < 0xE000]
    assert len(letters) > 1000
    assert [c for c in letters if len(lower_case(c)) != 1] == []


def test_codes_of_languages() -> None:
    codes = {"Turkish": "tr", "tr_TR": "tr", "TUR": "tr", "aze": "az", "german": "german", None: ""}
    assert {name: language_code(name) for name in codes} == codes


def speech(texts: list[str], **options: Any) -> Any:
    paths = digits(4)["train"]["audio"][: len(texts)]
    rows = datasets.Dataset.from_dict({"audio": paths, "text": texts})
    return load_speech(rows, evaluation_share=0, progress=False, **options)


def test_recipes_know_the_language() -> None:
    cleaned = speech(["IĞDIR", "İzmir"], language="tr").clean()
    assert list(cleaned.train["text"]) == ["ığdır", "izmir"]
    assert DOT not in build_processor(cleaned.train["text"], "tiny-wav2vec2").tokenizer.get_vocab()
    assert not any("Turkish" in note for note in cleaned.notes)
    assert list(speech(["IĞDIR"]).clean(language="tr").train["text"]) == ["ığdır"]


def test_letters_that_may_be_turkish_are_said() -> None:
    cleaned = speech(["Izgara", "İzmir", f"i{DOT}yi", "ok"]).clean()
    assert list(cleaned.train["text"]) == ["izgara", "izmir", "iyi", "ok"]
    notes = [note for note in cleaned.notes if "Turkish" in note]
    assert len(notes) == 1
    assert notes[0].startswith(
        '2 transcripts with İ or i with a combining dot, as in Turkish: clean with language="tr"'
    )
    cased = speech(["İzmir"]).clean(lowercase=False)
    assert list(cased.train["text"]) == ["İzmir"] and not any("Turkish" in note for note in cased.notes)


@pytest.mark.slow
def test_a_fine_tuning_in_turkish(tmp_path: Any) -> None:
    rows = digits(8)["train"].map(lambda row, i: {"text": "IĞDIR" if i % 2 else "İZMİR"}, with_indices=True)
    fine_tune(rows, "tiny-wav2vec2", tmp_path / "out", language="tr", max_steps=1, verbose=False)
    letters = set(json.loads((tmp_path / "out" / "vocab.json").read_text(encoding="utf-8")))
    assert {"ı", "i", "ğ"} <= letters
    assert DOT not in letters
