"""Transcripts of a folder's clips, in files of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import CorruptFileError
from .segments import joined, read_subtitles, subtitles_beside

_TEXT_FOLDERS = ("txt", "text", "texts", "transcripts")  # trees of transcripts beside those of clips
_MICROPHONE = re.compile(r"_mic\d+$")  # which VCTK's transcripts do not name


@dataclass(frozen=True)
class FolderTexts:
    """The transcripts of the clips in one folder."""

    chapter: dict[str, str]
    """Those in the list of LibriSpeech, by the names of their clips."""
    folders: list[Path]
    """Where other transcripts are: the folder itself, and its places in trees beside its own."""

    @classmethod
    def of(cls, clips: Path, root: Path) -> FolderTexts:
        """Those of the folder ``clips``, which is in the dataset's folder ``root``."""
        lines = (line for file in clips.glob("*.trans.txt") for line in file.read_text("utf-8").splitlines())
        trees = [tree for tree in (clips, *clips.parents) if tree != root and tree.is_relative_to(root)]
        beside = [tree.with_name(name) / clips.relative_to(tree) for tree in trees for name in _TEXT_FOLDERS]
        chapter = {name: text for name, _, text in (line.partition(" ") for line in lines)}
        return cls(chapter, [clips, *filter(Path.is_dir, beside)])

    def text(self, clip: Path) -> str | None:
        """The transcript of a clip, None where there is none. Raises ``CorruptFileError`` for an unreadable one."""
        if text := self.chapter.get(clip.stem):
            return text
        stems = (clip.stem, f"{clip.stem}.normalized", _MICROPHONE.sub("", clip.stem))  # the second: LibriTTS
        names = dict.fromkeys(f"{stem}.txt" for stem in stems)
        for path in (folder / name for folder in self.folders for name in names):
            try:
                return path.read_text(encoding="utf-8-sig").strip()
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                problem = f"{path} cannot be read as a transcript: {error}"
                raise CorruptFileError(problem, "write it as UTF-8") from error
        subtitles = subtitles_beside(clip)
        return None if subtitles is None else joined([cue.text for cue in read_subtitles(subtitles)])
