"""The profile of a dataset: durations, padding, sampling rates, warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._core.plot import plot
from .._core.records import to_json
from .._core.render import Shown
from ..errors import EmptyDatasetError
from .data_records import DatasetRecord


@dataclass(frozen=True, repr=False)
class DatasetProfile(Shown, DatasetRecord, kind="dataset"):
    """The audio summed up; statistics speak of the usable clips that were measured. Seconds, bytes, hertz.

    With ``sampled`` a sample represents the whole: counts, hours and bytes are then scaled to it, and ``sampling``
    reports how far they may be off. ``row_kind`` is ``"texts"`` where rows hold tokens, 50 of which count as a
    second, and are shown as tokens. ``padding`` is for batches of ``batch_size`` measured clips. ``warnings`` are
    likely problems of a training; whether a clip is silent is not judged, as nothing is decoded.

    >>> profile = scan_audio(CLIPS, progress=False).profile
    >>> profile.sample_count, profile.bad_count
    (310, 0)
    """

    def plot(self, ax: Any = None) -> Any:
        """Draw the histogram with matplotlib, on ``ax`` or a new figure, and give the axes or the figure.

        Raises ``UnsupportedError`` where matplotlib is not installed and ``EmptyDatasetError`` without a usable clip.
        """
        if not self.measured_count:
            raise EmptyDatasetError(f"there is no usable clip to draw ({self.source})", "see bad_files for the reasons")
        return plot("dataset", to_json(self), ax)
