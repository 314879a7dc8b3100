"""The zoo's answers as a page."""

from __future__ import annotations

import statistics
from typing import Any

_AIMS = "aims: median 0.5 %, 95 of 100 within 2 %, worst 5 %"
_HEAD = (
    "model", "collator", "before", "processor", "neither", "seconds", "against a trace of the batch",
    "against CUDA code: allocated", "reserved", "before: reserved", "guard: undisturbed", "error in forward",
    "in backward",
)  # fmt: skip


def error(row: dict[str, Any], predicted: str, measured: str, what: str) -> float | None:
    """By how much a prediction is off, as a share of what was measured; None where either is missing."""
    said, real = row.get(predicted, {}).get(what), row.get(measured, {}).get(what)
    return said / real - 1 if said and real else None


def page(rows: dict[str, dict[str, Any]], kinds: dict[str, str]) -> str:
    """The table by kind, the statistics, and the causes of what failed."""
    lines = [
        "# The model zoo",
        "",
        "Written by `model_zoo.py`. Shares are by how much a prediction is off; seconds are of processor time.",
        "",
    ]
    for kind in dict.fromkeys(kinds.values()):
        lines += [f"## {kind}", "", "| " + " | ".join(_HEAD) + " |", "| --- " * len(_HEAD) + "|"]
        lines += [_line(name, row) for name, row in rows.items() if kinds[name] == kind] + [""]
    return "\n".join([*lines, "## Statistics", "", summary(rows), "", "## Causes", "", *_causes(rows)]) + "\n"


def _line(name: str, row: dict[str, Any]) -> str:
    guard = row.get("guard", {})
    cells = [
        name,
        *(row.get(way, {}).get("outcome", "") for way in ("collator", "before", "processor", "neither")),
        f"{row['collator']['seconds']:.1f}" if "seconds" in row.get("collator", {}) else "",
        _share(error(row, "collator", "trace", "reserved")),
        _share(error(row, "collator", "train", "allocated")),
        _share(error(row, "collator", "train", "reserved")),
        _share(error(row, "before", "train", "reserved")),
        *(str(guard.get(place, "")) for place in ("calm", "forward", "backward")),
    ]
    return "| " + " | ".join(cells) + " |"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:+.2%}"


def summary(rows: dict[str, dict[str, Any]]) -> str:
    """Medians, 95th percentiles and the worst, of all rows that were compared."""
    plans = [row["collator"] for row in rows.values() if "collator" in row]
    traced = sum(plan.get("outcome") == "trace" for plan in plans)
    lines = [
        f"{traced} of {len(plans)} plans with the collator are made by a trace ({len(rows)} rows in all); {_AIMS}.", "",
        "| prediction | against | rows | median | 95th percentile | within 2 % | worst |", "| --- " * 7 + "|",
    ]  # fmt: skip
    for said, label in (("collator", "now"), ("before", "before")):
        for real in ("trace", "train"):
            for what in ("allocated", "reserved"):
                errors = {name: e for name, row in rows.items() if (e := error(row, said, real, what)) is not None}
                if errors:
                    lines.append(f"| {label} | {_MEASURED[real]}, {what} | {_statistics(errors)} |")
    return "\n".join(lines)


_MEASURED = {"trace": "a trace of the batch", "train": "torch's CUDA code"}


def _statistics(errors: dict[str, float]) -> str:
    sizes = sorted(map(abs, errors.values()))
    worst = max(errors, key=lambda name: abs(errors[name]))
    percentile = sizes[min(len(sizes) - 1, round(0.95 * (len(sizes) - 1)))]
    within = statistics.fmean(size <= 0.02 for size in sizes)
    cells = [str(len(sizes)), f"{statistics.median(sizes):.2%}", f"{percentile:.2%}", f"{within:.0%}"]
    return " | ".join([*cells, f"{errors[worst]:+.2%}, {worst}"])


def _causes(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Why a row was not traced, trained or compared, in the words of the error."""
    lines = []
    for name, row in rows.items():
        for label, found in row.items():
            reason = found.get("error") or (found.get("why") if found.get("outcome") != "trace" else "")
            if reason:
                lines.append(f"- {name}, {label}: {reason.replace('<', '&lt;').replace('|', chr(92) + '|')}")
    return lines
