"""A dataset's profile drawn with matplotlib, which is optional."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from .._base.errors import EmptyDatasetError, UnsupportedError
from ..view.units import plural
from .profile_view import ORDERS

if TYPE_CHECKING:
    from .profile import DatasetProfile


def plot_dataset(d: DatasetProfile, ax: Any) -> Any:
    """The histogram of durations, with the median and the 95th percentile."""
    if not d.measured_count:
        raise EmptyDatasetError(f"there is no usable clip to draw ({d.source})", "see bad_files for the reasons")
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise UnsupportedError("drawing needs matplotlib", 'pip install "asrconfig-go[plot]"') from error
        ax = pyplot.subplots(figsize=(9, 3.5), layout="constrained")[1]
    edges = d.histogram.edges_s
    widths = [high - low for low, high in itertools.pairwise(edges)]
    ax.bar(edges[:-1], d.histogram.counts, width=widths, align="edge", edgecolor="white", linewidth=0.5)
    for name, style in (("p50", "-"), ("p95", "--")):
        label = {"p50": "median", "p95": "95 % under"}[name]
        seconds = d.percentiles_s[name]
        ax.axvline(seconds, color="black", linewidth=1, linestyle=style, label=f"{label} {seconds:.3g} s")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel("seconds")
    ax.set_ylabel("clips")
    costs = ", ".join(f"{ORDERS.get(p.order, p.order)} {p.waste:.1%}" for p in d.padding)
    title = f"{plural(d.sample_count, 'clip')}, {d.total_hours:.2f} h ({d.source})"
    ax.set_title(f"{title}\npadding in batches of {d.batch_size}: {costs}", fontsize=9, loc="left")
    ax.legend(fontsize=8, frameon=False)
    return ax
