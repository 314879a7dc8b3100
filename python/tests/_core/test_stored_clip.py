"""One clip in each of its forms."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from asrconfig_go._core.stored_clip import StoredClip

_SAMPLES = [0.0, 0.5]
_DECODER = SimpleNamespace(get_all_samples=None)


@pytest.mark.parametrize(
    ("source", "clip"),
    [
        ("a.wav", StoredClip("path", "a.wav", "a.wav")),
        (Path("a.wav"), StoredClip("path", "a.wav", "a.wav")),
        ({"path": "a.wav", "bytes": None}, StoredClip("path", "a.wav", "a.wav")),
        (b"RIFF", StoredClip("bytes", b"RIFF")),
        ({"path": None, "bytes": b"RIFF"}, StoredClip("bytes", b"RIFF")),
        ({"path": "a.wav", "bytes": b"RIFF"}, StoredClip("bytes", b"RIFF", "a.wav")),
        (_SAMPLES, StoredClip("array", _SAMPLES)),
        (
            {"path": "a.wav", "array": _SAMPLES, "sampling_rate": 8000, "bytes": b"RIFF"},
            StoredClip("array", _SAMPLES, "a.wav", 8000),
        ),
        (_DECODER, StoredClip("decoder", _DECODER)),
        ({"path": None, "bytes": None}, StoredClip("missing", None)),
        ({}, StoredClip("missing", None)),
        (None, StoredClip("array", None)),
    ],
)
def test_a_clip_is_recognised_in_every_form(source: object, clip: StoredClip) -> None:
    assert StoredClip.of(source) == clip
