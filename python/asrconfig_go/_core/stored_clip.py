"""What one clip is, decided once: all other modules ask the ``StoredClip`` of a value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

ClipKind = Literal["path", "bytes", "array", "decoder", "missing"]


class StoredClip(NamedTuple):
    """A clip in one of the forms that ``load_audio`` takes. Nothing is read.

    Attributes:
        kind: ``"path"`` of a file, or of a piece of one; ``"bytes"`` of an encoded file; ``"array"`` of samples, and
            any other value; ``"decoder"`` of torchcodec; ``"missing"`` of a dictionary with none of these. The first
            three are the keys of dictionaries, too.
        value: The path as a text, the bytes, the samples or the decoder; None where it is missing.
        path: The path, or the one stored beside bytes or samples; ``""`` without one.
        rate: The sampling rate stored beside samples; None without one.
    """

    kind: ClipKind
    value: Any
    path: str = ""
    rate: object = None

    @classmethod
    def of(cls, source: object) -> StoredClip:
        """What ``source`` is. Of a dictionary samples win, then bytes."""
        if isinstance(source, Mapping):
            return cls._of_mapping(source)
        if isinstance(source, str | os.PathLike):
            path = os.fsdecode(source)
            return cls("path", path, path)
        if isinstance(source, bytes | bytearray | memoryview):
            return cls("bytes", source)
        return cls("decoder" if hasattr(source, "get_all_samples") else "array", source)

    @classmethod
    def _of_mapping(cls, source: Mapping[str, Any]) -> StoredClip:
        path = source.get("path")
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if source.get("array") is not None:
            return cls("array", source["array"], name, source.get("sampling_rate"))
        if source.get("bytes") is not None:
            return cls("bytes", source["bytes"], name)
        return cls("missing", None) if path is None else cls("path", name, name)
