"""The result of a scan: a dataset's clips and their profile.

``scan_audio`` makes both, and plans are made from them. Nothing here reads files or decodes audio.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core.batches import InputUnit
from .._core.records import to_json
from .._core.render import Shown, plot
from ..errors import EmptyDatasetError
from .clips import COLUMNS, Clips
from .data_records import DatasetRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class DatasetProfile(Shown, DatasetRecord, kind="dataset"):
    """Statistics of a dataset, over its usable clips that were measured, in seconds, bytes and hertz.

    The fields are those of ``DatasetRecord``. Some of them require an explanation:

    - ``sampled``: only a sample of the clips was measured. Counts, hours and bytes are scaled to all of them, and
      ``sampling`` has their errors.
    - ``row_kind`` is ``"texts"`` where rows hold tokens. 50 tokens count as one second, and are shown as tokens.
    - ``padding`` is that of batches of ``batch_size`` measured clips.
    - ``warnings`` are likely problems of a training. Silent clips are not among them, as nothing is decoded.

    >>> profile = scan_audio(CLIPS, progress=False).profile
    >>> profile.sample_count, profile.bad_count
    (310, 0)
    """

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the histogram of durations with matplotlib.

        Args:
            ax: The axes to draw on; None for a new figure.

        Returns:
            ``ax``, or the new figure.

        Raises:
            UnsupportedError: Where matplotlib is not installed.
            EmptyDatasetError: Without a usable clip.
        """
        if not self.measured_count:
            raise EmptyDatasetError(f"there is no usable clip to draw ({self.source})", "see bad_files for the reasons")
        return plot("dataset", to_json(self), ax)


@dataclass(frozen=True, repr=False)
class ScanResult:
    """What ``scan_audio`` returns.

    Attributes:
        profile: The statistics.
        clips: Every clip in source order, bad ones included.
        unit: The unit of a row's length, where rows hold a model's input (samples, frames, tokens); None of audio.
        source: The dataset as it was passed to the scan.
    """

    profile: DatasetProfile
    clips: Clips
    unit: InputUnit | None = None
    source: object = field(default=None, compare=False)

    @property
    def durations(self) -> array[float]:
        """Seconds of every clip, NaN for bad ones."""
        return self.clips.durations

    def to_dict(self) -> dict[str, list[Any]]:
        """One list for each field of ``Clip``, for ``pandas.DataFrame`` and ``Dataset.from_dict``."""
        return {name: self.clips.column(name) for name in COLUMNS}

    def __len__(self) -> int:
        return len(self.clips)

    def __repr__(self) -> str:
        return repr(self.profile)

    def _repr_html_(self) -> str:
        return self.profile._repr_html_()

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the histogram of durations: ``profile.plot(ax)``."""
        return self.profile.plot(ax)
