"""What a dataset's profile says beyond the durations: batches, copies, warnings, and how it is shown."""

from __future__ import annotations

import random
import re
import statistics
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import WavMaker

from asrconfig_go import scan_audio
from asrconfig_go.data import DatasetProfile
from asrconfig_go.errors import EmptyDatasetError, InvalidArgumentError, UnsupportedError

RATE = 100


def profile_of(seconds: list[float], **options: Any) -> DatasetProfile:
    np = pytest.importorskip("numpy")
    arrays = [np.zeros(round(s * RATE), dtype=np.int8) for s in seconds]
    return scan_audio(arrays, sampling_rate=RATE, progress=False, **options).profile


def lengths(count: int) -> list[float]:
    drawn = random.Random(4)
    return [round(min(60.0, drawn.lognormvariate(1.8, 0.6)), 2) for _ in range(count)]


def padded(order: list[float], batch: int) -> float:
    batches = (order[i : i + batch] for i in range(0, len(order), batch))
    return sum(max(one) * len(one) for one in batches)


def test_padding_by_hand() -> None:
    profile = profile_of([1.0, 2.0, 3.0, 4.0], batch_size=2)
    costs = {p.order: p for p in profile.padding}
    assert costs["sorted"].padded_s == 2 * 4 + 2 * 2
    assert costs["sorted"].waste == pytest.approx(2 / 12)
    assert costs["random"].padded_s == pytest.approx(4 * (4 * 3 + 3 * 2 + 2 * 1) / 6)
    assert profile.batch_size == 2


def test_grouped_padding_is_that_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("transformers.trainer_pt_utils")
    seconds = lengths(3_000)
    theirs = []
    for seed in range(5):
        order = utils.get_length_grouped_indices(seconds, 8, generator=torch.Generator().manual_seed(seed))
        theirs.append(padded([seconds[i] for i in order], 8))
    ours = [{p.order: p.padded_s for p in profile_of(seconds, seed=seed).padding}["grouped"] for seed in range(5)]
    assert len(set(ours)) == 5
    assert statistics.mean(ours) == pytest.approx(statistics.mean(theirs), rel=0.01)


def test_random_padding_is_the_mean_of_shuffles() -> None:
    seconds, drawn, costs = lengths(500), random.Random(1), []
    for _ in range(300):
        drawn.shuffle(seconds)
        costs.append(padded(seconds, 16))
    expected = {p.order: p.padded_s for p in profile_of(seconds, batch_size=16).padding}["random"]
    assert expected == pytest.approx(statistics.mean(costs), rel=0.01)


def test_few_long_clips_are_named() -> None:
    profile = profile_of([5.0] * 400 + [50.0] * 4)
    assert profile.outliers is not None
    assert (profile.outliers.over_s, profile.outliers.count) == (30.0, 4)
    assert 0.35 < profile.outliers.padded_share < 0.45
    assert re.search(r"4 clips over 30 s hold \d\d% of the padded time", repr(profile))
    assert profile_of([5.0] * 400).outliers is None


@pytest.mark.parametrize("size", [-1, 1 << 17])
def test_batch_size_has_bounds(size: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"batch_size is {size}"):
        profile_of([1.0], batch_size=size)


def test_copies_and_warnings(make_wav: WavMaker, tmp_path: Path) -> None:
    first = make_wav("data/<first>.wav", 2.0)
    (tmp_path / "data/second.wav").write_bytes(first.read_bytes())
    make_wav("data/slow.wav", 3.0, 8_000)
    (tmp_path / "data/bad & broken.wav").write_text("no audio")
    profile = scan_audio(tmp_path / "data", progress=False).profile
    assert profile.duplicates.count == 1
    assert profile.duplicates.groups == ((str(first), str(tmp_path / "data/second.wav")),)
    assert profile.methods == {"header": 3}
    assert [warning.split(",")[0] for warning in profile.warnings] == [
        "1 clip not at 16 kHz",
        "1 clip very likely copied (0.00 h): the size",
    ]
    assert all(f"! {warning}" in repr(profile) for warning in profile.warnings)


def test_html_is_well_formed_and_escaped(make_wav: WavMaker, tmp_path: Path) -> None:
    for i in range(30):
        make_wav(f"data/<b>{i}.wav", 0.1 + i / 10)
    (tmp_path / "data/bad & broken.wav").write_text("no audio")
    html = scan_audio(tmp_path / "data", progress=False)._repr_html_()
    tree = ElementTree.fromstring(html)
    bars = tree.findall(".//{http://www.w3.org/2000/svg}rect")
    assert len(bars) >= 10
    titles = "".join(title.text or "" for title in tree.iter("{http://www.w3.org/2000/svg}title"))
    counted = sum(int(n) for n in re.findall(r": (\d+) clips?", titles))
    assert counted == 30
    text = "".join(tree.itertext())
    for part in ("30 clips", "padding in batches of 8", "grouped by length", "1 bad file left out", "bad & broken.wav"):
        assert part in text
    assert "<b>0" not in html


def test_profile_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_text("no audio")
    profile = scan_audio(tmp_path, allow_empty=True, progress=False).profile
    assert "no usable clip" in repr(profile)
    assert "no usable clip" in profile._repr_html_()
    assert (profile.padding, profile.warnings, profile.outliers) == ((), (), None)
    with pytest.raises(EmptyDatasetError, match="no usable clip to draw"):
        profile.plot()


def test_plot() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    profile = profile_of(lengths(200))
    axes = profile.plot()
    assert sum(bar.get_height() for bar in axes.patches) == 200
    assert "padding in batches of 8" in axes.get_title(loc="left")
    assert profile.plot(axes) is axes


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(UnsupportedError, match="needs matplotlib"):
        profile_of([1.0, 2.0]).plot()
