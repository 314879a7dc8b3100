"""Scans by several machines: equal to the scan by one, on a Ray cluster of two nodes and in a local Spark."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from asrconfig_go._core.records import to_json
from asrconfig_go.data import ScanResult, scan_jobs
from asrconfig_go.data.scan import scan_audio
from asrconfig_go.data.scan_jobs import MAPS
from asrconfig_go.data.source import CLIPS
from asrconfig_go.errors import (
    CorruptFileError,
    EmptyDatasetError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)

PARTS = 7


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts one after another in this process, sent as a cluster would send them."""

    def by_turns(task: Callable[[int, int], Any]) -> Iterator[Any]:
        task = pickle.loads(pickle.dumps(task))
        return (pickle.loads(pickle.dumps(task(index, PARTS))) for index in range(PARTS))

    monkeypatch.setitem(MAPS, "ray", by_turns)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips, copies, and what cannot be used, in files and in tar shards; and a manifest of pieces."""
    root = tmp_path_factory.mktemp("corpus")
    clips = sorted(CLIPS.glob("*.mp3"))[:40]
    (root / "clips").mkdir()
    for number in range(2):
        with tarfile.open(root / f"{number}.tar", "w") as shard:
            for clip in clips[number::2]:
                shard.add(clip, clip.name)
    for clip in (*clips, clips[0]):
        (root / "clips" / f"{len(list((root / 'clips').iterdir()))}.mp3").write_bytes(clip.read_bytes())
    (root / "clips" / "bad.wav").write_text("text")
    (root / os.fsdecode(b"clips/caf\xe9.mp3")).write_bytes(clips[1].read_bytes())
    (root / "2.tar").write_text("no archive")
    rows = [{"audio_filepath": f"clips/{n}.mp3", "offset": 0.1, "duration": 0.2 + n / 50} for n in range(42)]
    (root / "list.jsonl").write_text("\n".join(["nothing", *map(json.dumps, rows)]))
    return root


SOURCES = ("clips", "list.jsonl", "[0-2].tar", ".")


def as_text(result: ScanResult) -> str:
    return json.dumps([to_json(result.profile), result.to_dict()], default=list)


def test_a_cluster_that_does_not_answer_is_an_error(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(NotFoundError, match=f"{address} does not answer") as caught:
        scan_audio(corpus, cluster="ray", progress=False)
    assert "RAY_ADDRESS" in caught.value.hint
    monkeypatch.delenv("RAY_ADDRESS")
    (tmp_path / "ray_current_cluster").write_text(f"{address}\n")
    monkeypatch.setattr(scan_jobs, "_RUNNING", tmp_path / "ray_current_cluster")
    with pytest.raises(NotFoundError, match=f"{address} does not answer"):
        scan_audio(corpus, cluster="ray", progress=False)


@pytest.mark.parametrize("source", SOURCES)
def test_parts_make_the_scan_of_one_machine(here: None, corpus: Path, source: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(corpus)
    options: dict[str, Any] = {"batch_size": 4, "seed": 3, "progress": False, "cache": False}
    expected = scan_audio(source, **options)
    assert as_text(scan_audio(source, cluster="ray", **options)) == as_text(expected)
    assert Path.cwd() == corpus


def test_paths_in_parts(here: None, corpus: Path) -> None:
    paths = [str(path) for path in sorted((corpus / "clips").iterdir())] + ["none.wav", str(corpus / "0.tar")]
    expected = scan_audio(paths, progress=False)
    assert expected.profile.bad_count == 2
    assert expected.profile.duplicates.count
    assert as_text(scan_audio(paths, progress=False, cluster="ray")) == as_text(expected)
    profile = scan_audio(paths, progress=False, cluster="ray", clips=False)
    assert (profile.profile, len(profile)) == (expected.profile, 0)


def test_what_one_machine_raises(here: None, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.csv").write_text("path\n")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.wav").write_text("text")
    (tmp_path / "columns.csv").write_text("a,b\n1,2\n")
    for name, kind in {
        "empty": EmptyDatasetError,
        "empty.csv": EmptyDatasetError,
        "bad": EmptyDatasetError,
        "columns.csv": InvalidArgumentError,
    }.items():
        raised = []
        for cluster in (None, "ray"):
            with pytest.raises(kind) as caught:
                scan_audio(tmp_path / name, progress=False, cluster=cluster)
            raised.append(str(caught.value))
        assert raised[0] == raised[1]
    empty = [scan_audio(tmp_path / "empty", progress=False, allow_empty=True, cluster=c) for c in (None, "ray")]
    assert as_text(empty[0]) == as_text(empty[1])


def test_a_source_that_changes(here: None, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that comes between two parts would shift the others: it is found, not counted wrong."""
    usual = scan_jobs.scan_part

    def changing(request: dict[str, Any], folder: str, index: int, count: int) -> Any:
        (corpus / "clips" / "new.wav").write_text(str(index))
        if index < 3:
            (corpus / "clips" / "new.wav").unlink()
        return usual(request, folder, index, count)

    monkeypatch.setattr(scan_jobs, "scan_part", changing)
    monkeypatch.setitem(MAPS, "ray", lambda task: (task(index, PARTS) for index in range(PARTS)))
    with pytest.raises(CorruptFileError, match="the source changed meanwhile"):
        scan_audio(corpus / "clips", progress=False, cluster="ray")
    monkeypatch.setattr(scan_jobs, "scan_part", usual)  # nothing writes any more
    again = scan_audio(corpus / "clips", progress=False, cluster="ray")
    assert as_text(again) == as_text(scan_audio(corpus / "clips", progress=False))
    (corpus / "clips" / "new.wav").unlink()


def test_it_refuses(here: None, corpus: Path) -> None:
    """And takes what the hints say."""
    with pytest.raises(UnsupportedError, match="ray cannot scan what this process has in memory"):
        scan_audio([[0.0] * 100], cluster="ray", progress=False)
    assert len(scan_audio([[0.0] * 100], progress=False)) == 1
    for source in (corpus / "clips", corpus / "list.jsonl", corpus / "0.tar", [str(corpus / "clips" / "0.mp3")]):
        assert scan_audio(source, cluster="ray", progress=False).profile.measured_count
    with pytest.raises(InvalidArgumentError, match="sample_size given for a part"):
        scan_audio(corpus / "clips", cluster="ray", sample_size=3, progress=False)
    assert scan_audio(corpus / "clips", sample_size=3, progress=False).profile.sampled
    with pytest.raises(InvalidArgumentError, match="cluster = 'dask'"):
        scan_audio(corpus, cluster="dask", progress=False)  # type: ignore[arg-type]


def test_a_machine_without_the_working_folder(corpus: Path) -> None:
    request = {"folder": "clips", "cache": {"folder": ""}, "workers": 1}
    missing = scan_jobs.scan_part(request, str(corpus / "nowhere"), 0, 1)
    assert isinstance(missing, NotFoundError)
    assert "does not have the working folder" in missing.message
    shared = scan_jobs.scan_part(request, str(corpus), 0, 1)
    assert isinstance(shared, scan_jobs.ScannedPart)


@pytest.mark.parametrize(("cluster", "module"), [("ray", "ray"), ("spark", "pyspark")])
def test_without_the_cluster_s_package(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, cluster: Literal["ray", "spark"], module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedError) as caught:
        scan_audio(corpus / "clips", cluster=cluster, progress=False)
    assert caught.value.hint == f"pip install {module}"


RAY = """
import atexit
from ray.cluster_utils import Cluster
import ray
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
atexit.register(nodes.shutdown)
nodes.add_node(num_cpus=1)
ray.init(address=nodes.address, log_to_driver=False)
"""
SPARK = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""
SCAN = """
import json, sys
from asrconfig_go._core.records import to_json
from asrconfig_go.data.scan import scan_audio
def text(source, cluster=None):
    result = scan_audio(source, batch_size=4, seed=3, progress=False, cluster=cluster)
    return json.dumps([to_json(result.profile), result.to_dict()], default=list)
for source in sys.argv[2:]:
    assert text(source, sys.argv[1]) == text(source), source
    print("equal:", source)
try:
    scan_audio("none/*.wav", progress=False, cluster=sys.argv[1])
except LookupError as error:
    print("raised:", error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "module", "start"), [("ray", "ray", RAY), ("spark", "pyspark", SPARK)])
def test_on_a_real_cluster(corpus: Path, cluster: str, module: str, start: str) -> None:
    """Two Ray nodes, or Spark with two cores: tasks in processes of their own."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed (extra {cluster})")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", start + SCAN, cluster, *SOURCES],
        cwd=corpus,
        env={**environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("equal: ") == len(SOURCES)
    assert "raised: the dataset 'none/*.wav' does not exist" in done.stdout
