"""Packs a source distribution again, the same files to the same bytes: python same_sdist.py FROM.tar.gz FOLDER."""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
from pathlib import Path


def repack(source: Path, folder: Path) -> None:
    """Sort the members, and give all the commit's time, no owner, and the modes of plain files."""
    when = int(os.environ["SOURCE_DATE_EPOCH"])
    with (
        tarfile.open(source) as old,
        (folder / source.name).open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            plain = tarfile.TarInfo(member.name)
            plain.size, plain.mtime, plain.type = member.size, when, member.type
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)


if __name__ == "__main__":
    repack(Path(sys.argv[1]), Path(sys.argv[2]))
