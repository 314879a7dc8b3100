"""Estimates as people see them: text, HTML, pictures."""

from __future__ import annotations

import dataclasses
import html.parser
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

import pytest
from asrconfig_go.memory.memory_text import bar, estimate_text, ordered, size

from asrconfig_go._base import native
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.memory.estimate import MemoryEstimate
from asrconfig_go.memory.memory_model import MemoryModel
from memory_fakes import MIB, STATIC, FakeLibrary


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryModel]:
    monkeypatch.setattr(native, "call", FakeLibrary())
    with MemoryModel.load("any.trace", gpu="L4") as model:
        yield model


@pytest.fixture
def estimate(traced: MemoryModel) -> MemoryEstimate:
    return traced.estimate(8, 10.0)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (None, "–"),
        (0, "0.0 KiB"),
        (1000, "1.0 KiB"),
        (3 * MIB, "3.0 MiB"),
        (2**30, "1.00 GiB"),
        (-(2**31), "-2.00 GiB"),
    ],
)
def test_sizes(count: int | None, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(("share", "drawn"), [(0.0, ""), (0.5, "████"), (1.0, "████████"), (1 / 64, "▏"), (0.3, "██▍")])
def test_bars_count_eighths(share: float, drawn: str) -> None:
    assert bar(share, 8) == drawn


def test_components_are_drawn_in_a_fixed_order_and_unknown_ones_last() -> None:
    held = {"zebra": 1, "activations": 2, "parameters": 3, "inputs": 0, "optimizer": 4}
    assert [name for name, _ in ordered(held)] == ["parameters", "optimizer", "activations", "zebra"]


def test_text_has_the_breakdown_and_the_moment(estimate: MemoryEstimate) -> None:
    lines = repr(estimate).splitlines()
    assert lines[0] == "Fake, 8 × 10 s, fp16, adamw_torch, gradient checkpointing off (traced)"
    assert lines[1].startswith("  fits NVIDIA L4: 0.88 GiB of ")
    rows = {line.split()[0]: line for line in lines if line.endswith("|")}
    assert list(rows) == [*STATIC, "activations"]
    share = STATIC["optimizer"] / estimate.peak_allocated
    assert f"{share:.0%}" in rows["optimizer"] and bar(share) in rows["optimizer"]
    text = repr(estimate)
    for part in (
        "at the peak: backward, aten.mm in layers.1",
        "load 0.10 GiB, backward 0.47 GiB",
        "5.0 MiB  layers.1",
    ):
        assert part in text


def test_notes_and_approximations_are_said(estimate: MemoryEstimate) -> None:
    odd = dataclasses.replace(estimate, approximate=3, notes=("from afar",), retries=2, warnings=("careful",))
    text = estimate_text(odd)
    for part in ("! careful", "· from afar", "after emptying the allocator's cache 2 times"):
        assert part in text


class _Balance(html.parser.HTMLParser):
    """Fails on tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in ("br", "rect", "line", "meta"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag


def test_html_is_whole_and_has_no_script(estimate: MemoryEstimate) -> None:
    page = estimate._repr_html_()
    check = _Balance()
    check.feed(page)
    assert check.open == []
    assert check.seen.count("svg") == 2
    assert not {"script", "link", "img", "iframe"} & set(check.seen)
    assert len(page) < 20_000
    svg = page[page.rindex("<svg") : page.rindex("</svg>") + 6]
    shapes = [element.tag.split("}")[1] for element in ET.fromstring(svg)]
    assert shapes.count("polygon") == 4
    assert shapes.count("polyline") == 1


def test_html_escapes_what_it_shows(estimate: MemoryEstimate) -> None:
    page = dataclasses.replace(estimate, model="<b>&", warnings=("<script>",))._repr_html_()
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_the_limit_is_drawn_where_it_is_near(traced: MemoryModel) -> None:
    assert "limit" not in traced.estimate(8, 10.0)._repr_html_()
    assert ">limit 22.20 GiB</text>" in traced.estimate(4000, 10.0)._repr_html_()


def test_html_without_a_timeline(traced: MemoryModel) -> None:
    assert traced.estimate(8, 10.0, timeline=0)._repr_html_().count("<svg") == 1


def test_plot_draws_components_reserved_limit_and_phases(estimate: MemoryEstimate) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = estimate.plot()
    labels = axes.get_legend_handles_labels()[1]
    assert labels == [*STATIC, "activations", "reserved", "limit of NVIDIA L4"]
    assert [text.get_text().strip() for text in axes.texts] == ["load", "backward"]
    assert "fits NVIDIA L4" in axes.get_title(loc="left")
    mine = pyplot.subplots()[1]
    assert estimate.plot(mine) is mine
    pyplot.close("all")


def test_plot_of_a_run(traced: MemoryModel) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = traced.simulate_run([3.0, 2.0], batch=2, seeds=3).plot()
    assert [list(line.get_xdata()) for line in axes.lines[:2]] == [[1, 2, 3]] * 2
    pyplot.close("all")


def test_plot_says_what_it_needs(
    traced: MemoryModel, estimate: MemoryEstimate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgumentError, match="no timeline"):
        traced.estimate(8, 10.0, timeline=0).plot()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match="needs matplotlib") as caught:
        estimate.plot()
    assert "asrconfig-go[plot]" in caught.value.hint
