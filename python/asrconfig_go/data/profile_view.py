"""A dataset's profile for people: text for terminals, HTML with inline SVG for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..view.markup import BAR_COLOUR, escaped, folded
from ..view.units import gb, plural
from .histogram import histogram_lines, histogram_svg

if TYPE_CHECKING:
    from .profile import DatasetProfile

ORDERS = {"random": "random", "grouped": "grouped by length", "bucketed": "in 10 buckets", "sorted": "sorted"}


def dataset_text(d: DatasetProfile) -> str:
    """Counts, durations, a histogram, what padding costs, what may go wrong, and what is wrong with the bad files."""
    lines = [*dataset_facts(d), *histogram_lines(d.histogram), *_batches(d)]
    lines += [f"! {warning}" for warning in d.warnings]
    if d.bad_count:
        lines.append(f"{plural(d.bad_count, 'bad file')} left out:")
        lines += [f"  {bad.path}: {bad.error}" for bad in d.bad_files[:5]]
        lines += [f"  … and {d.bad_count - 5} more in bad_files"] if d.bad_count > 5 else []
    return "\n".join(lines)


def dataset_facts(d: DatasetProfile) -> list[str]:
    """How much there is, how long it is, and of what kind; a line each."""
    if not d.measured_count:
        return [f"no usable clip ({d.source})"]
    p = d.percentiles_s
    lines = [
        f"{plural(d.sample_count, 'clip')}, {d.total_hours:.2f} h, {gb(d.size_bytes)} on disk, "
        f"{gb(d.decoded_bytes)} decoded ({d.source})",
        f"durations {d.min_s:.2f}–{d.max_s:.2f} s, mean {d.mean_s:.2f} s, median {p['p50']:.2f} s, "
        f"95 % under {p['p95']:.2f} s",
        f"{d.share_over_30s:.1%} over 30 s; sample rates {_mix(d.sample_rates, ' Hz')}; codecs {_mix(d.codecs)}",
    ]
    if d.sampled:
        lines.append(f"measured on a random sample of {d.measured_count}")
    return lines


def _batches(d: DatasetProfile) -> list[str]:
    """What padding costs, and the few clips that cost most of it."""
    if d.measured_count <= 1:
        return []
    costs = ", ".join(f"{ORDERS.get(p.order, p.order)} {p.waste:.1%}" for p in d.padding)
    lines = [f"padding in batches of {d.batch_size}: {costs}"]
    if d.outliers is not None:
        o = d.outliers
        lines.append(f"{plural(o.count, 'clip')} over {o.over_s:.4g} s hold {o.padded_share:.0%} of the padded time")
    return lines


def _mix(counts: dict[str, int], unit: str = "") -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return (
        ", ".join(f"{name}{unit}" + (f" ×{count}" if len(ordered) > 1 else "") for name, count in ordered) or "unknown"
    )


def dataset_html(d: DatasetProfile) -> str:
    """The facts, the histogram as a picture, padding as bars, warnings, and the bad files and copies behind folds."""
    lines = [*dataset_facts(d)]
    parts = [f"<div><b>Dataset</b>: {escaped(lines[0])}</div>"]
    parts += [f"<div>{escaped(line)}</div>" for line in lines[1:]]
    if d.measured_count > 1:
        parts += [f'<div style="margin:6px 0">{histogram_svg(d.histogram)}</div>', _padding(d)]
    parts += [f"<div>⚠ {escaped(warning)}</div>" for warning in d.warnings]
    copies = [", ".join(group) for group in d.duplicates.groups]
    parts += [_folded(f"{plural(d.duplicates.count, 'likely copy', 'likely copies')}", copies)] if copies else []
    bad = [f"{one.path}: {one.error}" for one in d.bad_files[:_SHOWN]]
    parts += [_folded(f"{plural(d.bad_count, 'bad file')} left out", bad, d.bad_count)] if bad else []
    style = f"font-family:sans-serif;max-width:{_WIDTH}px;line-height:1.4"
    return f'<div style="{style}">{"".join(parts)}</div>'


_WIDTH = 720
_SHOWN = 50  # lines behind a fold


def _padding(d: DatasetProfile) -> str:
    bars = "".join(
        f'<tr><td style="text-align:left">{escaped(ORDERS.get(p.order, p.order))}</td>'
        f'<td style="width:200px">'
        f'<div style="background:{BAR_COLOUR};height:10px;width:{100 * p.waste:.1f}%"></div></td>'
        f"<td>{p.waste:.1%}</td></tr>"
        for p in d.padding
    )
    few = "".join(f"<div>{escaped(line)}</div>" for line in _batches(d)[1:])
    return f"<div>padding in batches of {d.batch_size}:</div><table>{bars}</table>{few}"


def _folded(title: str, lines: list[str], count: int = 0) -> str:
    rows = "".join(f"<div><small>{escaped(line)}</small></div>" for line in lines)
    rows += f"<div><small>… and {count - len(lines)} more</small></div>" if count > len(lines) else ""
    return folded(escaped(title), rows)
