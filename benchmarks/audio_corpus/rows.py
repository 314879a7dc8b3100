"""Datasets with embedded bytes: 200 000 rows of FLAC, MP3 and Opus as Arrow, as datasets keeps them, and as Parquet."""

from __future__ import annotations

import random
from pathlib import Path

from .speech import Cutter, run, save_wav

ROWS = 200_000
_BATCH = 1_000
_ROW_GROUP = 1_000
_LONGEST_S = 2.5  # short, so that the files stay moderate; a reader of headers does not mind, a decoder is helped
_ORIGINALS = 100


def _originals(folder: Path, cutter: Cutter) -> list[bytes]:
    made = []
    source, out = folder / "row.wav", folder / "row.out"
    for number in range(_ORIGINALS):
        save_wav(source, cutter.cut(_LONGEST_S))
        if number % 10 < 2:
            run("flac", "-s", "-f", source, "-o", out)
        elif number % 10 < 5:
            run("lame", "--quiet", "-V5", source, out)
        else:
            run("opusenc", "--quiet", "--bitrate", "24", source, out)
        made.append(out.read_bytes())
    source.unlink()
    out.unlink()
    return made


def make_rows(folder: Path, cutter: Cutter, rows: int = ROWS) -> None:
    """Write rows.arrow (an IPC stream) and rows.parquet with the columns audio and text."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Audio, Features, Value

    folder.mkdir(parents=True, exist_ok=True)
    originals, chance = _originals(folder, cutter), random.Random(5)
    schema = Features({"audio": Audio(decode=False), "text": Value("string")}).arrow_schema
    arrow, parquet = folder / "rows.arrow", folder / "rows.parquet"
    with (
        pa.OSFile(str(arrow), "wb") as file,
        pa.ipc.new_stream(file, schema) as stream,
        pq.ParquetWriter(parquet, schema, compression="none", use_dictionary=False) as table,
    ):
        for start in range(0, rows, _BATCH):
            numbers = range(start, min(start + _BATCH, rows))
            audio = [{"bytes": chance.choice(originals), "path": f"clip_{n}"} for n in numbers]
            columns = [pa.array(audio, schema.field(0).type), pa.array(["some words"] * len(audio))]
            batch = pa.record_batch(columns, schema=schema)
            stream.write_batch(batch)
            table.write_batch(batch, row_group_size=_ROW_GROUP)
    sizes = " and ".join(f"{p.stat().st_size / 1e9:.2f} GB as {p.suffix[1:]}" for p in (arrow, parquet))
    print(f"{folder}: {rows} rows, {sizes}")
