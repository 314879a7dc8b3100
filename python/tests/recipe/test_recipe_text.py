"""Transcripts: how they are cleaned, how columns are found, how far two texts are from each other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from asrconfig_go.data.columns import find_column
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.recipe import clean_text, fine_tune, load_speech
from asrconfig_go.recipe.speech_data import CleaningReport
from asrconfig_go.recipe.transcription import character_error_rate, edit_distance, word_error_rate


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Hello, World!", "hello world"),
        ("it’s ‘fine’", "it's 'fine'"),
        ("well-known – yes/no_maybe", "well known yes no maybe"),
        ("3.5 % of 10,000 at 12:30.", "3.5 of 10,000 at 12:30"),
        ("½ x² ﬁne", "1 2 x2 fine"),
        ("STRASSE Straße École", "strasse straße école"),
        ("e\u0301cole", "école"),
        ("नमस्ते। दुनिया", "नमस्ते दुनिया"),
        ("می\u200cخواهم؟", "می\u200cخواهم"),
        ("a\u200bb\ufeff\u00ad", "ab"),
        ("tab\tline\nend\u00a0 ", "tab line end"),
        ("… ?! — 😀", ""),
        ("", ""),
    ],
)
def test_cleaning(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned
    assert clean_text(cleaned) == cleaned, "cleaning twice changes nothing more"


def test_cleaning_keeps_what_is_asked_for() -> None:
    assert clean_text("Ja, WIRKLICH? it's", lowercase=False, keep="?") == "Ja WIRKLICH? its"


def test_the_report_counts_what_was_changed() -> None:
    report = CleaningReport()
    for text in ("Hello, you!", "fine", "?!", "at 5, no"):
        report.add(text, clean_text(text))
    assert (report.texts, report.changed, report.empty, report.with_digits) == (4, 3, 1, 1)
    assert report.removed == {"!": 2, ",": 2, "?": 1}
    changed, empty, digits = report.notes()
    assert changed.startswith("cleaning changed 3 of 4 transcripts; removed ")
    assert empty == "1 clip without a transcript left out"
    assert "1 transcript with digits, left as written" in digits


def test_nothing_is_noted_of_clean_texts() -> None:
    report = CleaningReport()
    report.add("one two", "one two")
    assert list(report.notes()) == []


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("asrconfig_go._core.requirements.find_spec", lambda name: None if name == "datasets" else name)
    calls: list[Any] = [lambda: fine_tune("demo", "tiny-wav2vec2", tmp_path / "out"), lambda: load_speech("demo")]
    for call in calls:
        with pytest.raises(UnsupportedError, match="needs datasets") as caught:
            call()
        assert caught.value.hint == "pip install datasets"
    assert not (tmp_path / "out").exists()


COLUMNS = ["client_id", "path", "Sentence", "accent"]


def test_usual_columns_are_found_whatever_their_case() -> None:
    assert find_column(COLUMNS, "audio", None) == "path"
    assert find_column(COLUMNS, "text", None) == "Sentence"
    assert find_column(COLUMNS, "text", "accent") == "accent"
    assert find_column(["path", "speech"], "audio", None, first=["speech"]) == "speech"


@pytest.mark.parametrize(
    ("columns", "kind", "wanted", "message"),
    [
        (COLUMNS, "text", "sentense", "did you mean 'Sentence'? Pass text_column='Sentence'"),
        (COLUMNS, "audio", "paths", "did you mean 'path'?"),
        (["clip", "sentence_text"], "text", None, "did you mean 'sentence_text'?"),
        (["a", "b"], "text", "zzz", "name it: text_column=…"),
        ([], "audio", None, "name it: audio_column=…"),
    ],
)
def test_a_wrong_column_is_answered_with_the_right_one(
    columns: list[str], kind: str, wanted: str | None, message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        find_column(columns, kind, wanted)
    assert message in caught.value.hint
    assert f"columns: {', '.join(columns) or 'none'}" in caught.value.message


def table_distance(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """By the definition, row by row."""
    row = list(range(len(hypothesis) + 1))
    for deleted, wanted in enumerate(reference, start=1):
        diagonal, row[0] = row[0], deleted
        for column, token in enumerate(hypothesis, start=1):
            cheapest = min(row[column] + 1, row[column - 1] + 1, diagonal + (wanted != token))
            diagonal, row[column] = row[column], cheapest
    return row[-1]


def test_edit_distance_is_that_of_the_definition() -> None:
    source = random.Random(0)
    for _ in range(2000):
        texts = ["".join(source.choices("abc", k=source.randint(0, 70))) for _ in range(2)]
        assert edit_distance(*texts) == table_distance(*texts), texts


@pytest.mark.parametrize(
    ("references", "hypotheses", "rate"),
    [
        (["one two"], ["one two"], 0.0),
        (["one two", "three"], ["one", "three four"], 2 / 3),
        (["one two three four"], ["one six three four"], 0.25),
        (["one", "two"], ["", ""], 1.0),
        (["one"], ["two three"], 2.0),
    ],
)
def test_word_error_rate(references: list[str], hypotheses: list[str], rate: float) -> None:
    assert word_error_rate(references, hypotheses) == pytest.approx(rate)


@pytest.mark.parametrize(("references", "hypotheses"), [([], []), ([""], ["one"]), (["one"], [])])
def test_word_error_rate_refuses_nothing_to_compare(references: list[str], hypotheses: list[str]) -> None:
    with pytest.raises(ValueError):
        word_error_rate(references, hypotheses)


def test_character_error_rate_counts_single_spaces() -> None:
    assert character_error_rate(["ab  cd"], ["ab cd"]) == 0.0
    assert character_error_rate(["ab cd"], ["abcd"]) == pytest.approx(1 / 5)
