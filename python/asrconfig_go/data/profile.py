"""The result of a scan: a dataset's clips and their profile."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core.input_units import InputUnit
from .._core.plot import plot
from .._core.records import to_json
from .._core.render import Shown
from ..errors import EmptyDatasetError
from .clips import COLUMNS, Clips
from .data_records import DatasetRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the histogram with matplotlib, on ``ax`` or a new figure, and give the axes or the figure.

        Raises ``UnsupportedError`` where matplotlib is not installed and ``EmptyDatasetError`` without a usable clip.
        """
        if not self.measured_count:
            raise EmptyDatasetError(f"there is no usable clip to draw ({self.source})", "see bad_files for the reasons")
        return plot("dataset", to_json(self), ax)


@dataclass(frozen=True, repr=False)
class ScanResult:
    """What a scan found: the profile, and every clip in source order, bad ones included."""

    profile: DatasetProfile
    clips: Clips
    unit: InputUnit | None = None
    """What the lengths of rows count that hold a model's input; None of audio."""
    source: object = field(default=None, compare=False)
    """What was scanned."""

    @property
    def durations(self) -> array[float]:
        """Seconds of every clip as an array of doubles, not a number (NaN) for bad ones."""
        return self.clips.durations

    def to_dict(self) -> dict[str, list[Any]]:
        """The table of clips as one list for each field of ``Clip``, as pandas and datasets take it."""
        return {name: self.clips.column(name) for name in COLUMNS}

    def __len__(self) -> int:
        return len(self.clips)

    def __repr__(self) -> str:
        return repr(self.profile)

    def _repr_html_(self) -> str:
        return self.profile._repr_html_()

    def plot(self, ax: Axes | None = None) -> Any:
        """The histogram by matplotlib (see ``DatasetProfile.plot``)."""
        return self.profile.plot(ax)
