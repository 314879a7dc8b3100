"""Estimates as people see them: text, HTML, pictures."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

import pytest

from asrconfig_go._core import native
from asrconfig_go.errors import InvalidArgumentError, UnsupportedError
from asrconfig_go.predict.estimate import MemoryEstimate
from asrconfig_go.predict.memory_model import MemoryModel
from html_checks import charts, tags
from memory_fakes import STATIC, FakeLibrary


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryModel]:
    monkeypatch.setattr(native, "call", FakeLibrary())
    with MemoryModel.load("any.trace", gpu="L4") as model:
        yield model


@pytest.fixture
def estimate(traced: MemoryModel) -> MemoryEstimate:
    return traced.estimate(8, 10.0)


def test_text_has_the_breakdown_and_the_moment(estimate: MemoryEstimate) -> None:
    lines = repr(estimate).splitlines()
    words = "fp16, adamw_torch, gradient checkpointing off, expandable_segments:True"
    assert lines[0] == f"Fake, 8 × 10 s, {words} (traced)"
    assert lines[1].startswith("✓ fits NVIDIA L4: 0.88 GiB of ")
    rows = {line.split()[0]: line for line in lines if "|" in line}
    assert list(rows)[:4] == [*STATIC, "activations"]
    assert f"{STATIC['optimizer'] / estimate.peak_allocated:.0%}" in rows["optimizer"]
    text = repr(estimate)
    for part in ("at the peak: backward, aten.mm in layers.1", "load 0.10 GiB, backward 0.47 GiB"):
        assert part in text
    assert ["5.0", "MiB", "layers.1"] in [line.split() for line in lines]


def test_notes_and_approximations_are_said(estimate: MemoryEstimate) -> None:
    odd = dataclasses.replace(estimate, approximate=3, notes=("from afar",), retries=2, warnings=("careful",))
    for part in ("! careful", "· from afar", "after emptying the allocator's cache 2 times"):
        assert part in repr(odd)


def test_html_is_whole_and_has_no_script(estimate: MemoryEstimate) -> None:
    page = estimate._repr_html_()
    elements = tags(page)
    assert not {"script", "link", "img", "iframe"} & set(elements.seen)
    assert len(page) < 30_000
    (timeline,) = charts(page)
    paths = [path for path in timeline.iter() if path.tag.endswith("path")]
    assert [path.get("class") for path in paths] == ["stacked"] * 4 + [None]


def test_html_escapes_what_it_shows(estimate: MemoryEstimate) -> None:
    page = dataclasses.replace(estimate, model="<b>&", warnings=("<script>",))._repr_html_()
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_the_limit_is_drawn_where_it_is_near(traced: MemoryModel) -> None:
    assert "limit 22.20 GiB" not in traced.estimate(8, 10.0)._repr_html_()
    assert "limit 22.20 GiB" in traced.estimate(4000, 10.0)._repr_html_()


def test_html_without_a_timeline(traced: MemoryModel) -> None:
    assert charts(traced.estimate(8, 10.0, timeline=0)._repr_html_()) == []


def test_plot_draws_components_reserved_limit_and_phases(estimate: MemoryEstimate) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = estimate.plot()
    labels = axes.get_legend_handles_labels()[1]
    assert labels == [*STATIC, "activations", "reserved", "limit 22.20 GiB"]
    assert [text.get_text().strip() for text in axes.texts] == ["load", "backward"]
    assert axes.get_title(loc="left").startswith("Fake, 8 × 10 s")
    mine = pyplot.subplots()[1]
    assert estimate.plot(mine) is mine
    pyplot.close("all")


def test_plot_says_what_it_needs(
    traced: MemoryModel, estimate: MemoryEstimate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgumentError, match="no timeline"):
        traced.estimate(8, 10.0, timeline=0).plot()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match="needs matplotlib") as caught:
        estimate.plot()
    assert "pip install matplotlib" in caught.value.hint
