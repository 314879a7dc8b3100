"""What people name, and whether it is a path at all; and other arguments of a recipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asrconfig_go as ac
from asrconfig_go._core.files import user_path
from asrconfig_go.audio import ResampledCache, load_audio
from asrconfig_go.data.source import CLIPS
from asrconfig_go.data.splits import splits_of
from asrconfig_go.errors import AsrConfigError, InvalidArgumentError, NotFoundError, UnsupportedError
from asrconfig_go.recipe.fine_tune_run import output_folder
from asrconfig_go.recipe.model_building import load_model
from asrconfig_go.recipe.speech_sources import load_speech
from asrconfig_go.watch import report
from asrconfig_go.watch.telemetry import RunLog

CLIP = next(CLIPS.glob("*.mp3"))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("", InvalidArgumentError, "the name of the dataset is empty"),
        ("a" * 5000, NotFoundError, "cannot read the dataset 'a{399}…': File name too long"),
        ("a\0b", NotFoundError, "null"),
        ("~nobody-of-this-name/clips", NotFoundError, "home directory"),
    ],
)
def test_texts_that_are_no_path(name: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        user_path(name, "dataset")


def test_a_folder_on_the_way_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, who may read everything."""

    def stat(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(NotFoundError, match="cannot read the dataset '/theirs/clips': Permission denied"):
        user_path("/theirs/clips", "dataset")


def test_what_is_not_there_may_still_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert user_path(tmp_path / "new", "output folder") == tmp_path / "new"
    assert not user_path(tmp_path / "file" / "under", "output folder").exists()
    assert user_path("~", "output folder") == Path.home()


NO_PATHS = ("", "a" * 5000, "a\0b", "~nobody-of-this-name/x")
TAKEN: dict[str, Callable[[str], Any]] = {
    "scan": ac.scan_audio,
    "rate": ac.measure_loader,
    "model": ac.profile_model,
    "memory": lambda name: ac.MemoryModel.load(name),
    "report": report,
    "config": ac.TrainingConfig.load,
    "run log": RunLog.load,
    "labels": lambda name: ac.check_labels(CLIP, ["a"], model=name),
    "clip": load_audio,
    "cache": ResampledCache,
    "speech": lambda name: splits_of(name, None, None, {}, []),
    "output": lambda name: output_folder(name, False),
    "prices": lambda name: ac.compare_gpus("wav2vec2-base", hours=1, prices=name),
}


@pytest.mark.parametrize("name", NO_PATHS, ids=["empty", "long", "zero", "home"])
@pytest.mark.parametrize("function", TAKEN)
def test_every_function_that_takes_a_path_says_so(function: str, name: str) -> None:
    with pytest.raises(AsrConfigError) as caught:
        TAKEN[function](name)
    assert caught.value.hint


def test_an_output_folder_that_is_not_utf_8(tmp_path: Path) -> None:
    """torch and safetensors could not save there, at the end of a training."""
    with pytest.raises(UnsupportedError, match="is not UTF-8"):
        output_folder(tmp_path / os.fsdecode(b"out\xe9"), False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", [-1, 1 << 32, 10**20, 1.5, "abc", None, True])
def test_seeds_that_are_none(seed: Any) -> None:
    for call in (lambda: load_speech("demo", seed=seed), lambda: load_model("tiny-wav2vec2", None, seed=seed)):
        with pytest.raises(InvalidArgumentError, match="seed = "):
            call()


@pytest.mark.parametrize("share", ["abc", None, 0.6, -0.1, float("nan")])
def test_shares_that_are_none(share: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="evaluation_share = "):
        load_speech("demo", evaluation_share=share)
