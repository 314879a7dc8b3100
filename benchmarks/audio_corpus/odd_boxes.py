"""Odd MP4 and Matroska files."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .odd_kit import MUSIC_RATE, MUSIC_SECONDS, SPEECH_SECONDS, Kit, Odd, nothing, part
from .speech import RATE

# A picture of 7 s in front of the sound.
_VIDEO = ("-f", "lavfi", "-i", "testsrc=s=64x48:r=5:d=7", "-map", "1:v", "-map", "0:a", "-c:v")


PRIMING = 1024  # samples in front of ffmpeg's AAC, which nothing takes off in a file of fragments


def files(kit: Kit) -> Iterator[Odd]:
    """Every odd file of these formats."""
    yield from _m4a(kit)
    yield from _m4a_fragments(kit)
    yield from _m4a_codecs(kit)
    yield from _matroska(kit)


def _boxes(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    at = 0
    while at + 8 <= len(data):
        size = struct.unpack(">I", data[at : at + 4])[0]
        yield data[at + 4 : at + 8], at, at + size
        at += size


def _with_open_mdat(data: bytes) -> bytes:
    """The file, whose mdat is its last box, with the size 0 there: to the end."""
    start = next(start for name, start, _ in _boxes(data) if name == b"mdat")
    return data[:start] + bytes(4) + data[start + 4 :]


def _m4a(kit: Kit) -> Iterator[Odd]:
    aac, first = ("-c:a", "aac", "-b:a", "48k"), ("-movflags", "+faststart")
    last, start = kit.ffmpeg(kit.speech, "last.m4a", *aac), kit.ffmpeg(kit.speech, "first.m4a", *aac, *first)
    music = kit.ffmpeg(kit.music, "music.m4a", *aac, *first)
    yield Odd("M4A", "moov_last.m4a", last, declared=SPEECH_SECONDS)
    yield Odd("M4A", "moov_first.m4a", start, declared=SPEECH_SECONDS)
    yield Odd("M4A", "stereo_44k.m4a", music, declared=MUSIC_SECONDS)
    yield Odd("M4A", "truncated_mdat.m4a", part(start, 0.6))
    yield Odd("M4A", "truncated_mdat_stereo.m4a", part(music, 0.4))
    yield Odd("M4A", "mdat_size_0.m4a", _with_open_mdat(start), declared=SPEECH_SECONDS)
    yield nothing("M4A", "truncated_without_moov.m4a", part(last, 0.7))
    source = kit.saved("whole.m4a", start)
    cut = kit.ffmpeg(source, "cut.m4a", "-ss", "1.5", "-c", "copy")
    delayed = kit.tool("delayed.m4a", "ffmpeg", "-v", "error", "-y", "-itsoffset", "0.7", "-i", source, "-c", "copy")
    yield Odd("M4A", "edit_list_cut.m4a", cut, declared=57_776 / RATE)
    yield Odd("M4A", "edit_list_delay.m4a", delayed, declared=83_376 / RATE)


def _m4a_fragments(kit: Kit) -> Iterator[Odd]:
    aac, flags = ("-c:a", "aac", "-b:a", "48k"), "+frag_keyframe+empty_moov"
    whole = kit.ffmpeg(kit.speech, "fragmented.m4a", *aac, "-movflags", flags, "-frag_duration", "500000")
    piped = ("-movflags", flags + "+default_base_moof", "-frag_duration", "300000")
    piped = kit.piped(kit.music, "mp4", *aac, *piped)
    yield Odd("M4A", "fragmented.m4a", whole, declared=SPEECH_SECONDS + PRIMING / RATE)
    yield Odd("M4A", "fragmented_truncated.m4a", part(whole, 0.6))
    yield Odd("M4A", "fragmented_piped.m4a", piped, declared=MUSIC_SECONDS + PRIMING / MUSIC_RATE)


def _m4a_codecs(kit: Kit) -> Iterator[Odd]:
    opus = kit.ffmpeg(kit.speech, "opus.mp4", "-c:a", "libopus", "-b:a", "24k")
    mp3 = kit.ffmpeg(kit.speech, "mp3.mp4", "-c:a", "libmp3lame")
    yield Odd("M4A", "alac.m4a", kit.ffmpeg(kit.speech, "alac.m4a", "-c:a", "alac"))
    yield Odd("M4A", "opus.mp4.m4a", opus, declared=SPEECH_SECONDS)
    yield Odd("M4A", "flac.mp4.m4a", kit.ffmpeg(kit.speech, "flac.mp4", "-c:a", "flac", "-strict", "-2"))
    yield Odd("M4A", "mp3.mp4.m4a", mp3, declared=SPEECH_SECONDS)
    titles = kit.saved("chapters.txt", b";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1\nSTART=0\nEND=9\ntitle=a\n")
    book = ("ffmpeg", "-v", "error", "-y", "-i", kit.speech, "-i", titles, "-map_metadata", "1", "-c:a", "aac")
    yield Odd("M4A", "chapters.m4b", kit.tool("chapters.m4b", *book, "-f", "ipod"), declared=SPEECH_SECONDS)
    film = kit.ffmpeg(kit.speech, "video.mp4", *_VIDEO, "mpeg4", "-c:a", "aac")
    yield Odd("M4A", "longer_video.m4a", film, declared=SPEECH_SECONDS)


def _matroska(kit: Kit) -> Iterator[Odd]:
    opus = ("-c:a", "libopus", "-b:a", "24k")
    plain = kit.ffmpeg(kit.speech, "plain.webm", *opus)
    yield Odd("Matroska", "plain.webm", plain)
    yield Odd("Matroska", "live_no_duration.webm", kit.piped(kit.speech, "webm", *opus, "-live", "1"))
    yield Odd("Matroska", "piped.webm", kit.piped(kit.music, "webm", *opus))
    yield Odd("Matroska", "truncated.webm", part(plain, 0.6))
    yield Odd("Matroska", "vorbis.webm", kit.ffmpeg(kit.music, "vorbis.webm", "-c:a", "libvorbis"))
    yield Odd("Matroska", "flac.mka", kit.ffmpeg(kit.speech, "flac.mka", "-c:a", "flac"))
    yield Odd("Matroska", "pcm.mka", kit.ffmpeg(kit.speech, "pcm.mka", "-c:a", "pcm_s16le"))
    yield Odd("Matroska", "aac.mka", kit.ffmpeg(kit.speech, "aac.mka", "-c:a", "aac"))
    yield Odd("Matroska", "mp3.mka", kit.ffmpeg(kit.speech, "mp3.mka", "-c:a", "libmp3lame"))
    merged = kit.folder / "merged.mka"
    source = kit.saved("source.opus", kit.tool("source.opus", "opusenc", "--quiet", kit.music))
    kit.tool("merge.log", "sh", "-c", f'mkvmerge -q -o {merged} {source} > "$0"')
    yield Odd("Matroska", "mkvmerge_opus.mka", merged.read_bytes())
    yield Odd("Matroska", "longer_video.webm", kit.ffmpeg(kit.speech, "video.webm", *_VIDEO, "libvpx", *opus))
