"""A stream's audio as it is stored. Imports datasets; see ``stream_sources``."""

from __future__ import annotations

from typing import Any

from datasets import Audio


class UndecodedAudio(Audio):  # type: ignore[misc]
    """``Audio(decode=False)`` for rows of tar shards, for which a plain one imports torchcodec."""

    def encode_example(self, value: Any) -> Any:
        """The stored form of a path, of bytes, or of a dictionary of both."""
        if isinstance(value, str):
            return {"bytes": None, "path": value}
        if isinstance(value, dict) and value.get("bytes") is not None:
            return {"bytes": value["bytes"], "path": value.get("path")}
        return super().encode_example(value)


def stored(dataset: Any) -> Any:
    """The stream with audio as it is stored."""
    for name, feature in dataset.features.items():
        if type(feature).__name__ == "Audio":
            dataset = dataset.cast_column(name, UndecodedAudio(decode=False))
    return dataset
