"""Clips read from whatever people have, and told by name when they cannot be."""

from __future__ import annotations

import importlib.util
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asrconfig_go.audio import load_audio
from asrconfig_go.audio.decoding import find_resampler
from asrconfig_go.errors import AsrConfigError, CorruptFileError, InvalidArgumentError, NotFoundError, UnsupportedError

RATE = 16_000


def tone(seconds: float = 1.0, rate: int = RATE, hertz: float = 440.0) -> Any:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def written(path: Path, samples: Any, rate: int = RATE) -> Path:
    soundfile.write(path, samples, rate)
    return path


def sources(folder: Path) -> dict[str, Any]:
    """The same tone in every form; only its coding differs."""
    import torch

    path = written(folder / "tone.flac", tone())
    return {
        "path": path,
        "text": str(path),
        "bytes": path.read_bytes(),
        "memoryview": memoryview(path.read_bytes()),
        "row with a path": {"path": str(path), "bytes": None},
        "row with bytes": {"path": "elsewhere.flac", "bytes": path.read_bytes()},
        "decoded row": {"array": tone().tolist(), "sampling_rate": RATE, "path": None},
        "array": tone(),
        "float64": tone().astype(np.float64),
        "int16": np.round(tone() * 32768).astype(np.int16),
        "tensor": torch.from_numpy(tone()),
        "channels last": np.stack([tone(), tone()], 1),
        "channels first": np.stack([tone() * 1.5, tone() * 0.5]),
        "stereo file": written(folder / "stereo.wav", np.stack([tone(), tone()], 1)),
        "lossy": written(folder / "tone.ogg", tone()),
    }


def test_every_form_gives_the_same_clip(tmp_path: Path) -> None:
    for name, source in sources(tmp_path).items():
        clip = load_audio(source)
        assert (clip.dtype, clip.shape) == (np.float32, (RATE,)), name
        assert np.abs(clip - tone()).max() < (0.05 if name == "lossy" else 1e-4), name


def test_a_decoder_of_torchcodec() -> None:
    import torch

    class Samples:
        data, sample_rate = torch.from_numpy(np.stack([tone(), tone()])), RATE

    class Decoder:
        def get_all_samples(self) -> Samples:
            return Samples()

    np.testing.assert_allclose(load_audio(Decoder()), tone(), atol=1e-6)


@pytest.mark.parametrize("stored", [8_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("library", ["soxr", "scipy"])
def test_other_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, stored: int) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "soxr" != library else find(name))
    assert find_resampler()[0] == library
    clip = load_audio(written(tmp_path / "clip.wav", tone(rate=stored), stored))
    assert clip.dtype == np.float32 and abs(len(clip) - RATE) <= 1
    middle = slice(1000, 15_000)
    np.testing.assert_allclose(clip[middle], tone()[middle], atol=0.003)
    assert len(load_audio(tone(rate=stored), sample_rate=stored)) == stored, "an array is at the rate asked for"


def test_nothing_to_resample_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "clip.wav", tone(rate=8000), 8000)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"clip\.wav has 8000 Hz, the model takes 16000 Hz") as caught:
        load_audio(path)
    assert "pip install soxr" in caught.value.hint


def bad_sources(folder: Path) -> dict[str, tuple[Any, type[AsrConfigError], str]]:
    flac = written(folder / "whole.flac", np.random.default_rng(0).standard_normal(RATE) * 0.1).read_bytes()
    for name, data in {"empty.wav": b"", "noise.wav": b"hello" * 99, "cut.flac": flac[: len(flac) // 2]}.items():
        (folder / name).write_bytes(data)
    written(folder / "silence.wav", np.zeros(0, np.float32))
    soundfile.write(folder / "nan.wav", np.array([0.1, np.nan, 0.1], np.float32), RATE, subtype="FLOAT")
    written(folder / "slow.wav", tone(0.1), 3)
    corrupt, wrong = CorruptFileError, InvalidArgumentError
    return {
        "missing": (folder / "no.wav", NotFoundError, r"no\.wav does not exist"),
        "a folder": (folder, NotFoundError, "is a folder"),
        "an address": ("https://example.org/a.flac", NotFoundError, "fetch it first"),
        "empty": (folder / "empty.wav", corrupt, r"empty\.wav is empty"),
        "no format": (folder / "noise.wav", corrupt, r"cannot decode .*noise\.wav: Format not recognised"),
        "cut off": (folder / "cut.flac", corrupt, r"cut\.flac"),
        "no samples": (folder / "silence.wav", corrupt, r"silence\.wav holds no audio"),
        "nan": (folder / "nan.wav", corrupt, r"nan\.wav holds samples that are not finite"),
        "no bytes": (b"", corrupt, "an audio buffer of 0 bytes"),
        "bad bytes of a row": ({"path": "x.mp3", "bytes": b"hello"}, corrupt, r"x\.mp3 \(bytes in the dataset\)"),
        "empty row": ({"path": None, "bytes": None}, wrong, "neither bytes nor a path"),
        "no rate": ({"array": [0.0], "sampling_rate": 0}, wrong, "sampling rate 0"),
        "a rate of nothing": (folder / "slow.wav", corrupt, r"slow\.wav has the sampling rate 3 Hz"),
        "too short to be resampled": ({"array": [0.5], "sampling_rate": 1_000_000}, corrupt, "holds no audio"),
        "nothing": (None, wrong, "None is not audio"),
        "a number": (5, wrong, "^an int is not audio"),
        "whole numbers": ([1, 2], wrong, "not audio"),
        "three axes": (np.zeros((1, 2, 3)), wrong, r"shape \(1, 2, 3\)"),
    }


def test_bad_clips_are_named(tmp_path: Path) -> None:
    for name, (source, kind, message) in bad_sources(tmp_path).items():
        with pytest.raises(kind, match=message) as caught:
            load_audio(source)
        assert caught.value.hint, name


@pytest.mark.parametrize("rate", [0, 999, -1, 16_000.5, True, "16000"])
def test_rates_that_are_none(rate: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="sample_rate"):
        load_audio(tone(), sample_rate=rate)


def test_a_header_that_claims_days_of_audio(tmp_path: Path) -> None:
    path = written(tmp_path / "clip.flac", tone())
    data = bytearray(path.read_bytes())
    data[21] |= 0x0F  # the upper bits of STREAMINFO's number of samples: 2³⁶ in all, 256 GiB
    data[22:26] = b"\xff" * 4
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"clip\.flac"):
        load_audio(path)


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
def test_damaged_bytes_give_a_clip_or_one_error(form: str) -> None:
    chance, intact = random.Random(0), io.BytesIO()
    soundfile.write(intact, np.random.default_rng(0).standard_normal((2000, 2)) * 0.2, RATE, format=form)
    for _ in range(60):
        data = bytearray(intact.getvalue())
        for _ in range(chance.choice((1, 3, 20))):
            data[chance.randrange(chance.choice((60, len(data))))] = chance.choice((0, 127, 255))
        del data[chance.choice((len(data), chance.randrange(1, len(data)))) :]
        try:
            clip = load_audio(bytes(data))
        except CorruptFileError as error:
            assert "an audio buffer of" in error.message
        else:
            assert clip.dtype == np.float32 and clip.ndim == 1 and len(clip) and np.isfinite(clip).all()
