"""What all cards for notebooks are made of: escaped text, inline SVG, folds, colours, pages that stand alone."""

from __future__ import annotations

import html
import math

PART_COLOURS = {
    "parameters": "#4e79a7",
    "model and optimizer": "#4e79a7",
    "training": "#4e79a7",
    "buffers": "#86bcb6",
    "gradients": "#f28e2b",
    "optimizer": "#b07aa1",
    "activations": "#59a14f",
    "temporaries": "#edc948",
    "logits_loss": "#ff9da7",
    "outputs": "#ff9da7",
    "inputs": "#76b7b2",
    "workspaces": "#9c755f",
    "cached": "#d0d0d0",
    "reserved, not held": "#d0d0d0",
    "context": "#7f7f7f",
}
BAR_COLOUR = "#4e79a7"
LIMIT_COLOUR = "#d62728"
_OTHER_COLOUR = "#8c8c8c"


def colour_of(part: str) -> str:
    """The colour that stands for a share of memory in every picture."""
    return PART_COLOURS.get(part, _OTHER_COLOUR)


def visible(text: str) -> str:
    """``text`` with what does nothing but harm written out: control characters, marks that turn text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped(text: str) -> str:
    """Anyone's text for HTML and SVG, attributes included."""
    return html.escape(visible(text))


def svg(body: str, label: str, *, height: int, view_width: int | None = None, described: str = "") -> str:
    """Inline SVG as wide as there is room: scaled from ``view_width``, or else drawn in percent of the width.

    In percent, texts keep their size on narrow screens. ``label`` and ``described`` are for those who hear it.
    """
    box = "" if view_width is None else f'viewBox="0 0 {view_width} {height}" '
    sized = "" if view_width is not None else f'height="{height}" '
    desc = f"<desc>{escaped(described)}</desc>" if described else ""
    return (
        f'<svg {box}width="100%" {sized}role="img" aria-label="{escaped(label)}" '
        f'style="display:block;font:11px sans-serif;overflow:visible" xmlns="http://www.w3.org/2000/svg">'
        f"{desc}{body}</svg>"
    )


def folded(summary: str, body: str, *, unfolded: bool = False) -> str:
    """``body`` behind a fold; both are HTML."""
    return f"<details{' open' * unfolded}><summary>{summary}</summary>{body}</details>"


def page(title: str, fragment: str, style: str = "") -> str:
    """An HTML file that stands alone and loads nothing."""
    return (
        f'<!DOCTYPE html><meta charset="utf-8"><title>{escaped(title)}</title>'
        f"{f'<style>{style}</style>' if style else ''}{fragment}\n"
    )


def round_step(top: float) -> float:
    """1, 2 or 5 times a power of ten, so that a few marks fit below ``top``."""
    power: float = 10.0 ** math.floor(math.log10(top / 3))
    return max(power * n for n in (1, 2, 5) if power * n <= top / 3)


def share(x: float) -> str:
    """A share of the width, 0 to 1, as SVG and CSS write it."""
    return f"{100 * x:.2f}%"
