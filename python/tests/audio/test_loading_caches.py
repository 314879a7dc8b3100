"""Clips kept in memory and on disk: never another clip than the file holds, and never more than allowed."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import asrconfig_go as ac
from asrconfig_go.audio import CacheNotKeptWarning, DecodedCache, ResampledCache, load_audio
from asrconfig_go.audio.clip_cache import name_of_load
from asrconfig_go.audio.resampled_cache import header
from asrconfig_go.data.source import CLIPS
from asrconfig_go.data.splits import load_split
from asrconfig_go.errors import AsrConfigError, InvalidArgumentError, NotFoundError

RATE = 16_000
PATHS = sorted(map(str, CLIPS.glob("*.mp3")))


def write(path: Path, value: float, seconds: float = 0.1, rate: int = RATE, age_s: float = 10.0) -> Path:
    """A WAV of one value, last changed so many seconds ago."""
    soundfile.write(path, np.full(int(seconds * rate), value, np.float32), rate, subtype="FLOAT")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return DecodedCache(1 << 28) if request.param == "memory" else ResampledCache(tmp_path / "cache")


def counts(cache: Any) -> tuple[int, int]:
    return cache.hits, cache.misses


def test_a_clip_is_what_load_gives_and_is_kept(cache: Any, tmp_path: Path) -> None:
    stereo = tmp_path / "stereo.wav"
    soundfile.write(stereo, np.random.default_rng(0).standard_normal((8820, 2)) * 0.1, 44_100)
    os.utime(stereo, (1, 1))
    data = Path(PATHS[0]).read_bytes()
    sources = [
        PATHS[0],
        Path(PATHS[1]),
        {"path": PATHS[2], "bytes": None},
        {"path": "a", "bytes": data},
        data[:],
        stereo,
    ]
    first = [cache(source) for source in sources]
    again = [cache(source) for source in sources]
    for source, one, two in zip(sources, first, again, strict=True):
        for clip in (one, two):
            assert clip.dtype == np.float32
            np.testing.assert_array_equal(clip, load_audio(source))
        with pytest.raises(ValueError, match="read-only"):
            two *= 2
    assert counts(cache) == (7, 5), "the bytes are the same, wherever they are"
    assert f"58% of {12} found" in repr(cache)


def test_arrays_are_not_kept(cache: Any) -> None:
    array: Any = np.ones(100, np.float32)
    for source in (array, {"array": array, "sampling_rate": RATE}):
        np.testing.assert_array_equal(cache(source), array)
    assert counts(cache) == (0, 2) and len(cache) == 0


@pytest.mark.parametrize("age_s", [10.0, 5.0])
def test_a_changed_file_is_read_anew(cache: Any, tmp_path: Path, age_s: float) -> None:
    path = write(tmp_path / "clip.wav", 0.25)
    assert cache(path)[0] == 0.25 and cache(path)[0] == 0.25
    write(path, 0.5, age_s=age_s, seconds=0.1 if age_s == 5 else 0.2)  # another time, or another size
    assert cache(path)[0] == 0.5 and cache(path)[0] == 0.5
    assert counts(cache) == (2, 2)


def test_a_file_that_may_still_be_changing_is_not_kept(cache: Any, tmp_path: Path) -> None:
    """A file system's clock may not tell two changes within a tick apart."""
    path = tmp_path / "clip.wav"
    write(path, 0.25)
    os.utime(path, (time.time() + 0.01,) * 2)
    cache(path)
    assert len(cache) == 0
    time.sleep(0.05)
    cache(path)
    assert len(cache) == 1


def test_a_file_replaced_while_it_is_read(cache: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "clip.wav", 0.25)

    def swapped(source: Any, **settings: Any) -> Any:
        clip = load_audio(source, **settings)
        write(path, 0.5, age_s=5)
        return clip

    cache.load = swapped
    assert cache(path)[0] == 0.25
    cache.load = load_audio
    assert cache(path)[0] == 0.5 and len(cache) == 1


def test_bad_clips_are_not_kept(cache: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_bytes(b"no audio")
    os.utime(bad, (1, 1))
    for source in (bad, tmp_path / "missing.wav", None, b"x"):
        for _ in range(2):
            with pytest.raises(AsrConfigError):
                cache(source)
    assert counts(cache) == (0, 8) and len(cache) == 0


def test_prepare(cache: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_bytes(b"no audio")
    done = cache.prepare([*PATHS[:10], {"audio": PATHS[10]}, str(bad)], workers=3, progress=False)
    assert (done.clips, done.bad) == (12, 1) and "bad.wav" in done.first_error
    assert str(done).startswith("11 clips prepared, 1 could not be loaded; the first: cannot decode ")
    assert len(cache) == 11
    every = cache.prepare(CLIPS, workers=2, progress=False)
    assert (every.clips, every.bad, len(cache)) == (len(PATHS), 0, len(PATHS))
    before = cache.misses
    test = load_split("test")
    assert cache.prepare(test, progress=False).clips == len(test)
    for row in test:
        np.testing.assert_array_equal(cache(row["audio"]), load_audio(row["audio"]["path"]))
    assert cache.misses == before
    for wrong, message in ((3, "cannot prepare an int"), (PATHS, "workers = 0")):
        with pytest.raises(InvalidArgumentError, match=message):
            cache.prepare(wrong, workers=0 if wrong is PATHS else 1)
    with pytest.raises(KeyError):
        cache.prepare([PATHS[0], KeyRaiser()])


class KeyRaiser:
    """A path of which something other than a clip is wrong."""

    def __fspath__(self) -> str:
        raise KeyError


def test_threads_agree(tmp_path: Path) -> None:
    truth = {path: load_audio(path) for path in PATHS[:30]}
    room = 8 * max(clip.nbytes for clip in truth.values())
    for cache in (DecodedCache(room), ResampledCache(tmp_path)):

        def use(seed: int, cache: Any = cache) -> int:
            chance = random.Random(seed)
            return sum(np.array_equal(cache(path), truth[path]) for path in chance.choices(list(truth), k=60))

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(use, range(8))) == [60] * 8
        assert cache.hits + cache.misses == 480 and cache.hits > 0
        assert isinstance(cache, ResampledCache) or cache.nbytes <= room


# In memory.


def test_what_was_used_last_is_kept(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.wav", 0.1 * i) for i in range(4)]
    cache = DecodedCache(3 * 8000)  # three clips of 6400 bytes, with what Python needs to keep them
    for i in (0, 1, 2, 0, 3):  # 1 goes
        cache(paths[i])
    assert len(cache) == 3 and cache.nbytes <= cache.max_bytes
    before = cache.hits
    for i in (0, 2, 3):
        cache(paths[i])
    assert cache.hits == before + 3
    cache(paths[1])
    assert (cache.hits, cache.misses) == (before + 3, 5)
    cache(write(tmp_path / "long.wav", 0.1, seconds=2.0))
    assert len(cache) == 3, "a clip that has no room at all takes none from the others"
    cache.clear()
    assert (len(cache), cache.nbytes, cache.hits, cache.misses) == (0, 0, 0, 0)


@pytest.mark.parametrize("samples", [50, 4000])
def test_the_budget_counts_what_python_takes(samples: int) -> None:
    cache = DecodedCache(1 << 30, load=lambda source: np.zeros(samples, np.float32))
    names = [f"clip {i} ".encode() * 20 for i in range(2000)]
    tracemalloc.start()
    for name in names:
        cache(name)
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(cache) == 2000
    assert 0.9 * allocated < cache.nbytes < 1.5 * allocated


def test_views_keep_nothing_alive() -> None:
    array: Any = np.zeros(1_000_000, np.float32)
    clip = DecodedCache(1 << 20, load=lambda source: array[:100])(b"a clip")
    assert clip.base is None and clip.nbytes == 400


def test_settings_that_make_no_cache() -> None:
    for wrong in (0, -1, 1.5, True, None):
        with pytest.raises(InvalidArgumentError, match="max_bytes"):
            DecodedCache(wrong)  # type: ignore[arg-type]


def test_one_cache_behind_the_other(tmp_path: Path) -> None:
    disk = ResampledCache(tmp_path, sample_rate=8000)
    memory = DecodedCache(1 << 20, load=disk)
    assert memory.sample_rate == 8000 and DecodedCache(1).sample_rate == RATE
    assert DecodedCache(1, load=partial(load_audio, sample_rate=8000)).sample_rate == 8000
    assert DecodedCache(1, load=lambda source: source).sample_rate is None
    for _ in range(3):
        np.testing.assert_array_equal(memory(PATHS[0]), load_audio(PATHS[0], sample_rate=8000))
    assert (counts(memory), counts(disk)) == ((2, 1), (0, 1))


def test_a_copy_for_a_worker_starts_empty(tmp_path: Path) -> None:
    for cache in (DecodedCache(1 << 20), ResampledCache(tmp_path, max_bytes=1 << 20, keep_free_bytes=5)):
        cache(PATHS[0])
        copy = pickle.loads(pickle.dumps(cache))
        assert counts(copy) == (0, 0)
        np.testing.assert_array_equal(copy(PATHS[0]), cache(PATHS[0]))
        assert copy.max_bytes == 1 << 20


# On disk.


def test_later_runs_find_the_clips(tmp_path: Path) -> None:
    ResampledCache(tmp_path)(PATHS[0])
    later = ResampledCache(str(tmp_path))
    clip = later(PATHS[0])
    assert counts(later) == (1, 0)
    (file,) = tmp_path.rglob("*.npy")
    np.testing.assert_array_equal(np.load(file), clip)
    assert clip.ctypes.data % 64 == 0 and file.stat().st_size == later.nbytes == 128 + clip.nbytes
    other = [
        ResampledCache(tmp_path, sample_rate=8000),
        ResampledCache(tmp_path, load=lambda source, sample_rate: np.ones(3)),
    ]
    assert [len(cache(PATHS[0])) for cache in other] == [-(-len(clip) // 2), 3] and len(later) == 3
    later.clear()
    assert len(later) == 0


def doubled(source: Any, *, sample_rate: int, gain: float = 2.0) -> Any:
    return gain * load_audio(source, sample_rate=sample_rate)


def test_other_ways_to_load_have_other_files(tmp_path: Path) -> None:
    ways: list[tuple[Any, float]] = [
        (load_audio, 1.0),
        (doubled, 2.0),
        (partial(doubled, gain=3.0), 3.0),
        (partial(doubled, gain=4.0), 4.0),
        (lambda source, sample_rate: 5.0 * load_audio(source, sample_rate=sample_rate), 5.0),
        (lambda source, sample_rate: 6.0 * load_audio(source, sample_rate=sample_rate), 6.0),
    ]
    for hits in (0, 1):
        for load, gain in ways:
            cache = ResampledCache(tmp_path, load=load)
            np.testing.assert_allclose(cache(PATHS[0]), np.float32(gain) * load_audio(PATHS[0]), rtol=1e-6)
            assert cache.hits == hits
    assert len(ResampledCache(tmp_path)) == len(ways)


def test_the_header_is_numpy_s() -> None:
    for count in (0, 1, 16_000, 10**12):
        written = header(count)
        assert len(written) == 128
        stream = io.BytesIO(written)
        assert np.lib.format.read_magic(stream) == (1, 0)
        assert np.lib.format.read_array_header_1_0(stream) == ((count,), False, np.dtype("<f4"))


@pytest.mark.parametrize("harm", ["empty", "header", "cut", "longer", "zeros", "other"])
def test_a_file_that_is_not_whole_is_made_anew(tmp_path: Path, harm: str) -> None:
    cache = ResampledCache(tmp_path)
    truth = np.array(cache(PATHS[0]))
    (file,) = tmp_path.rglob("*.npy")
    data = file.read_bytes()
    harmed = {
        "empty": b"", "header": data[:100], "cut": data[:-4], "longer": data + b"\0", "zeros": bytes(len(data)),
        "other": header(7) + data[128:],
    }  # fmt: skip
    file.write_bytes(harmed[harm])
    fresh = ResampledCache(tmp_path)
    np.testing.assert_array_equal(fresh(PATHS[0]), truth)
    assert counts(fresh) == (0, 1) and file.read_bytes() == data


def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    for name, changed in (("old.npy1.part", 1.0), ("new.npy2.part", time.time())):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (changed, changed))
    cache = ResampledCache(tmp_path)
    cache(PATHS[0])
    assert len(cache) == 1
    assert [path.name for path in tmp_path.rglob("*.part")] == ["new.npy2.part"]


def not_kept(cache: ResampledCache, message: str) -> None:
    """Clips come all the same, with one warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for path in PATHS[:20]:
            np.testing.assert_array_equal(cache(path), load_audio(path))
    assert [w.category for w in caught] == [CacheNotKeptWarning]
    assert message in str(caught[0].message) and "decoded each time" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert cache.unsaved == 20 - len(cache) > 0
    assert f"{cache.unsaved} not kept" in repr(cache)


def test_no_more_than_max_bytes(tmp_path: Path) -> None:
    cache = ResampledCache(tmp_path, max_bytes=500_000)
    not_kept(cache, "max_bytes = 0.5 MiB")
    assert 400_000 < cache.nbytes <= 500_000
    assert counts(ResampledCache(tmp_path)) == (0, 0)
    cache.clear()
    cache(PATHS[15])
    assert len(cache) == 1, "there is room again"


def test_room_is_left_on_the_disk(tmp_path: Path) -> None:
    cache = ResampledCache(tmp_path, keep_free_bytes=1 << 60)
    not_kept(cache, "are kept for checkpoints")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match="cannot make the cache's folder"):
        ResampledCache(tmp_path / "file" / "cache")
    for i in range(256):  # root may write anywhere, but not into files
        (tmp_path / f"{i:02x}").write_text("")
    not_kept(ResampledCache(tmp_path), "a clip cannot be written")


def test_a_folder_that_is_removed_meanwhile(tmp_path: Path) -> None:
    cache = ResampledCache(tmp_path / "cache")
    cache.folder.rmdir()
    not_kept(cache, "No such file")


def test_a_load_that_gives_no_clip(tmp_path: Path) -> None:
    cache = ResampledCache(tmp_path, load=lambda source, sample_rate: np.ones((2, 3)))
    with pytest.raises(InvalidArgumentError, match=r"shape \(2, 3\)"):
        cache(PATHS[0])
    for wrong in ({"max_bytes": -1}, {"keep_free_bytes": 1.5}, {"keep_free_bytes": None}, {"sample_rate": 10}):
        with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
            ResampledCache(tmp_path, **wrong)


def test_the_reader_rate_of_a_cached_data_set(tmp_path: Path) -> None:
    cache = ResampledCache(tmp_path)
    cache.prepare(PATHS, progress=False)

    class Cached:
        def __len__(self) -> int:
            return len(PATHS)

        def __getitem__(self, row: int) -> Any:
            return cache(PATHS[row]), RATE

    rate = ac.measure_loader(Cached(), seconds=0.3)
    assert rate is not None and rate.bad == 0 and rate.how == "the dataset's own __getitem__"
    assert cache.misses == len(PATHS) and cache.hits >= rate.clips
    assert json.loads(json.dumps(rate.rate)) > 0


def test_a_loading_function_without_a_module_has_a_name() -> None:
    namespace: dict[str, Any] = {"__name__": None}
    exec("def load(path): return path", namespace)
    assert namespace["load"].__module__ is None
    assert name_of_load(namespace["load"]).startswith(".load ")
