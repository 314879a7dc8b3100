"""Caches in processes that fork, are spawned, are killed or have too little of something."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from locations import PYTHON

PATIENCE = 120
START = """
import errno, multiprocessing, os, random, resource, signal, sys, time, warnings
import numpy as np
from pathlib import Path
from asrconfig_go.data.source import CLIPS
from asrconfig_go.audio import DecodedCache, ResampledCache, load_audio

PATHS = sorted(map(str, CLIPS.glob("*.mp3")))[:24]
FOLDER = Path(sys.argv[1])

def right(cache):
    return sum(np.array_equal(cache(path), load_audio(path)) for path in PATHS), cache.hits, cache.misses
"""


def printed(folder: Path, code: str) -> str:
    """What code prints in a process of its own, out of a file where spawned children find it."""
    file = folder / "code.py"
    file.write_text(START + textwrap.dedent(code))
    path = os.pathsep.join(filter(None, [str(PYTHON), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(file), str(folder / "cache")],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Two processes fill one folder and are killed; whatever is there then is right, and a later run completes it."""
    out = printed(
        tmp_path,
        """
        def large(source, *, sample_rate):
            return np.tile(load_audio(source, sample_rate=sample_rate), 100)  # writing takes most of the time

        truth = {path: large(path, sample_rate=16_000) for path in PATHS[:4]}
        chance, killed, found, wrong = random.Random(3), 0, 0, 0
        for turn in range(8):
            folder = FOLDER / str(turn)
            children = []
            for worker in range(2):
                child = os.fork()
                if child == 0:
                    cache = ResampledCache(folder, load=large, keep_free_bytes=0)
                    for path in random.Random(worker).sample(list(truth), len(truth)):
                        cache(path)
                    time.sleep(60)
                children.append(child)
            while len(list(folder.rglob("*.npy"))) < turn % len(truth):
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.02))
            for child in children:
                os.kill(child, signal.SIGKILL)
            killed += sum(os.waitpid(child, 0)[1] == signal.SIGKILL for child in children)
            for _ in range(2):
                cache = ResampledCache(folder, load=large, keep_free_bytes=0)
                wrong += sum(not np.array_equal(cache(path), clip) for path, clip in truth.items())
                found += cache.hits
            assert cache.hits == len(truth), "the second run finds all"
        print(killed, wrong, found > 8 * len(truth))
        """,
    )
    assert out == "16 0 True", "all killed, none wrong, some clips were there"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_workers(tmp_path: Path) -> None:
    out = printed(
        tmp_path,
        """
        if __name__ == "__main__":
            memory, disk = DecodedCache(1 << 28), ResampledCache(FOLDER, keep_free_bytes=0)
            memory.prepare(PATHS, progress=False)
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, *pool.map(right, [memory, disk]), flush=True)
            memory._lock.acquire()  # as if another thread held them at the fork
            disk._lock.acquire()
            child = os.fork()
            if child == 0:
                print("forked", right(memory), right(disk), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            memory._lock.release()
            disk._lock.release()
            print("parent", right(memory), flush=True)
        """,
    )
    assert out.splitlines() == [
        "fork (24, 0, 24) (24, 0, 24)",  # what is sent to a worker starts empty
        "spawn (24, 0, 24) (24, 24, 0)",  # the folder was filled by the first
        "forked (24, 24, 0) (24, 24, 0)",  # what a worker inherits has all the clips
        "parent (24, 24, 24)",
    ]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_workers_of_a_data_loader_augment_alike_for_a_seed_and_unlike_each_other(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    out = printed(
        tmp_path,
        """
        import torch
        from transformers import Wav2Vec2FeatureExtractor
        from asrconfig_go.audio import AddNoise, CTCCollator

        def epochs(seed):
            torch.manual_seed(seed)
            load = ResampledCache(FOLDER, keep_free_bytes=0)
            collator = CTCCollator(Wav2Vec2FeatureExtractor(), load=load, augment=(AddNoise((0, 30)),))
            rows = [{"audio": PATHS[0], "labels": [1]}] * 4  # one clip: what differs is noise
            context = torch.multiprocessing.get_context("fork")
            loader = torch.utils.data.DataLoader(
                rows, 2, num_workers=2, collate_fn=collator, persistent_workers=True, multiprocessing_context=context
            )
            return [float(clip.abs().sum()) for _ in range(2) for batch in loader for clip in batch["input_values"]]

        first, again, other = epochs(1), epochs(1), epochs(2)
        print(first == again, len(set(first)), len(set(first) & set(other)))
        """,
    )
    assert out == "True 8 0", "equal for a seed; every clip of both workers and epochs is another"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_full_disk(tmp_path: Path) -> None:
    """A write that fails in the middle leaves nothing behind, and the clip comes all the same."""
    out = printed(
        tmp_path,
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cache = ResampledCache(FOLDER, keep_free_bytes=0)
            first, again = right(cache), right(cache)
        sizes = [path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()]
        print(first, again, len(caught), len(list(FOLDER.rglob("*.part"))), all(size <= 30_000 for size in sizes))
        print("File too large" in str(caught[0].message), cache.unsaved > 0)
        """,
    )
    assert out.splitlines()[0].startswith("(24, 0, 24) (24, ")
    assert out.splitlines()[0].endswith(" 1 0 True") and out.splitlines()[1] == "True True"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_more_clips_held_than_files_may_be_open(tmp_path: Path) -> None:
    out = printed(
        tmp_path,
        """
        cache = ResampledCache(FOLDER, keep_free_bytes=0)
        cache.prepare(PATHS, progress=False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        try:
            print(len([cache(path) for path in PATHS]))
        except Exception as error:
            print(type(error).__name__, error)
        print(len([cache(path).copy() for path in PATHS]))
        """,
    )
    first, *_, last = out.splitlines()
    assert first == "24" if sys.version_info >= (3, 13) else first.startswith("UnsupportedError too many clips")
    assert last == "24"
