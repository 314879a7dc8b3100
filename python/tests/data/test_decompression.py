"""Parquet and Arrow files that are small and unpack to gigabytes: refused, by name, before memory is taken."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import pytest
from conftest import WavMaker

from asrconfig_go.data.scan import scan_audio
from asrconfig_go.errors import UnsupportedError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

_SILENCE_S = 400  # of one clip: 13 MB, which compress to a kilobyte
_ROWS = 256

_SCAN = """
import sys, resource
import pyarrow.parquet
from asrconfig_go.data.scan import scan_audio
from asrconfig_go.errors import AsrConfigError
scan_audio([b"RIFF"], progress=False, allow_empty=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    print(len(scan_audio(sys.argv[1], progress=False).clips))
except AsrConfigError as error:
    print(type(error).__name__, error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def silence() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(32_000 * _SILENCE_S))
    return buffer.getvalue()


def repeated() -> Any:
    """One clip in every row, by its number in a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * _ROWS, pa.int32()), pa.array([silence()], pa.binary()))


def write_stream(table: Any, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)


def write_file(table: Any, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table)


def structs() -> Any:
    clips = pa.array([silence()], pa.binary()).take(pa.array([0] * 100))
    return pa.StructArray.from_arrays([clips, pa.array(["a.wav"] * 100)], ["bytes", "path"])


def one_long_list() -> Any:
    return pa.array([[0.0] * 1_000]).take(pa.array([0] * 100_000))


BOMBS = {
    "dictionary.parquet": lambda path: pq.write_table(pa.table({"audio": repeated()}), path, compression="zstd"),
    "structs.parquet": lambda path: pq.write_table(pa.table({"audio": structs()}), path, compression="zstd"),
    "page.parquet": lambda path: pq.write_table(
        pa.table({"audio": [bytes(900_000_000)]}), path, compression="zstd", use_dictionary=False
    ),
    "list.parquet": lambda path: pq.write_table(pa.table({"input_values": one_long_list()}), path),
    "stream.arrow": lambda path: write_stream(pa.table({"audio": [bytes(900_000_000)]}), path),
    "file.arrow": lambda path: write_file(pa.table({"audio": [bytes(900_000_000)]}), path),
    "dictionary.arrow": lambda path: write_stream(pa.table({"audio": repeated()}), path),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_what_unpacks_to_gigabytes_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    BOMBS[name](path)  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", _SCAN, str(path)], capture_output=True, text=True, timeout=120)
    said, grown = done.stdout.rsplit("\n", 2)[:2] if done.stdout.count("\n") > 1 else (done.stdout, "")
    assert done.returncode == 0, done.stderr
    assert said.startswith(f"UnsupportedError {path}: "), said
    assert re.search(r"of \d+ bytes unpacks to \d+ MiB, more than the limit of \d+ MiB", said), said
    assert int(grown) < 400  # MiB


@pytest.mark.slow
def test_a_footer_that_lies_is_no_help(tmp_path: Path) -> None:
    """The sizes of pages count, which the reader goes by, not those of the footer."""
    path = tmp_path / "lie.parquet"
    pq.write_table(pa.table({"audio": [bytes(300_000_000)]}), path, compression="zstd", use_dictionary=False)
    raw = path.read_bytes()
    claimed = _varint(2 * pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size)
    path.write_bytes(raw.replace(claimed, _varint(2 * 3_000_000, len(claimed))))
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size == 3_000_000
    with pytest.raises(UnsupportedError, match=r"a page of column 'audio' of .* unpacks to 286 MiB"):
        scan_audio(path, progress=False)


def _varint(number: int, length: int = 5) -> bytes:
    return bytes((number >> 7 * i & 0x7F) | 0x80 * (i + 1 < length) for i in range(length))


@pytest.mark.parametrize(
    "damage", [b"\xff" * 40, b"\x15" * 40, bytes(40), b"\x1c" * 40, b"\x18\xff\xff\xff\xff\x0f" * 6]
)
def test_damaged_pages_are_one_error(damage: bytes, make_wav: WavMaker, tmp_path: Path) -> None:
    from asrconfig_go.errors import AsrConfigError

    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"audio": [make_wav("a.wav", 1.0).read_bytes()] * 3}), path)
    raw = path.read_bytes()
    path.write_bytes(raw[:4] + damage + raw[4 + len(damage) :])
    with pytest.raises(AsrConfigError, match=r"damaged\.parquet"):
        scan_audio(path, progress=False)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_ordinary_tables_are_read_as_before(compression: str, version: str, make_wav: WavMaker, tmp_path: Path) -> None:
    clips = [make_wav(f"{i}.wav", 0.5 + i / 10).read_bytes() for i in range(8)] * 100
    path = tmp_path / "clips.parquet"
    table = pa.table({"audio": pa.array([{"bytes": clip, "path": "x.wav"} for clip in clips]), "text": ["said"] * 800})
    pq.write_table(table, path, compression=compression, data_page_version=version, row_group_size=300)
    found = scan_audio(path, progress=False).clips.column("duration_s")
    assert [round(s, 3) for s in found] == [0.5 + i / 10 for i in range(8)] * 100
