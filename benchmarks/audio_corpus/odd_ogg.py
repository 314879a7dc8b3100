"""Odd Ogg files: Vorbis, Opus, FLAC and Speex."""

from __future__ import annotations

from collections.abc import Iterator

from . import ogg
from .odd_kit import Kit, Odd, decoded, nothing, part
from .speech import RATE


def files(kit: Kit) -> Iterator[Odd]:
    """Every odd file of these formats."""
    yield from _vorbis(kit)
    yield from _opus(kit)
    yield from _flac_and_speex(kit)


def _joined(kit: Kit, family: str, name: str, *parts: bytes) -> Odd:
    """A chain of whole streams: it plays what its parts play, each decoded by itself."""
    seconds = [decoded(kit.saved(f"part{n}_{name}", data)) for n, data in enumerate(parts)]
    return Odd(family, name, b"".join(parts), sum(seconds), "ffmpeg, stream by stream")


def _without(data: bytes, first: int, last: int) -> bytes:
    """The file without the pages first to last: a recording of a broadcast that was joined late, or that lost some."""
    return b"".join(data[s:e] for n, (s, e) in enumerate(ogg.pages(data)) if not first <= n <= last)


def _in_last_page(data: bytes, share: float) -> bytes:
    """The file cut within its last page."""
    start, end = list(ogg.pages(data))[-1]
    return data[: start + int((end - start) * share)]


def _vorbis(kit: Kit) -> Iterator[Odd]:
    plain = kit.tool("plain.ogg", "oggenc", "-Q", "-q", "3", "--serial", "7", kit.speech, "-o")
    stereo = kit.tool("stereo.ogg", "oggenc", "-Q", "-q", "3", "--serial", "8", kit.music, "-o")
    yield Odd("Vorbis", "plain.ogg", plain)
    yield Odd("Vorbis", "stereo_44k.ogg", stereo)
    yield Odd("Vorbis", "ffmpeg.ogg", kit.ffmpeg(kit.music, "ffmpeg.ogg", "-c:a", "libvorbis"))
    yield Odd("Vorbis", "truncated.ogg", part(stereo, 0.6))
    yield Odd("Vorbis", "truncated_last_page.ogg", _in_last_page(stereo, 0.5))
    kit.sox(kit.music, "long.wav", effects=("repeat", "5"))
    long = kit.tool("long.ogg", "oggenc", "-Q", "-q", "3", "--serial", "8", kit.folder / "long.wav", "-o")
    yield Odd("Vorbis", "joined_late.ogg", _without(long, 2, 5))
    again = kit.tool("again.ogg", "oggenc", "-Q", "-q", "3", "--serial", "9", kit.speech, "-o")
    yield _joined(kit, "Vorbis", "chained.ogg", plain, again)
    yield _joined(kit, "Vorbis", "chained_three_same_serial.ogg", plain, plain, plain)
    yield _joined(kit, "Vorbis", "chained_16k_44k.ogg", plain, stereo)
    yield Odd("Vorbis", "garbage_behind.ogg", plain + b"\0" * 5000)
    tagged = kit.tool("tagged.ogg", "oggenc", "-Q", "-c", "PICTURE=" + "x" * 100_000, "--serial", "7", kit.speech, "-o")
    yield Odd("Vorbis", "comment_100k.ogg", tagged)


def _opus(kit: Kit) -> Iterator[Odd]:
    def opusenc(name: str, *options: str, music: bool = False) -> bytes:
        source = kit.music if music else kit.speech
        return kit.tool(name, "opusenc", "--quiet", "--serial", "7", "--bitrate", "24", *options, source)

    plain, music = opusenc("plain.opus"), opusenc("music.opus", "--max-delay", "100", music=True)
    yield Odd("Opus", "plain.opus", plain)
    yield Odd("Opus", "stereo_44k.opus", music)
    yield Odd("Opus", "frames_60_ms.opus", opusenc("60.opus", "--framesize", "60"))
    yield Odd("Opus", "frames_2.5_ms.opus", opusenc("2.opus", "--framesize", "2.5"))
    yield Odd("Opus", "ffmpeg.opus", kit.ffmpeg(kit.speech, "ffmpeg.opus", "-c:a", "libopus", "-b:a", "24k"))
    yield Odd("Opus", "truncated.opus", part(music, 0.6))
    yield Odd("Opus", "truncated_last_page.opus", _in_last_page(music, 0.5))
    yield Odd("Opus", "joined_late.opus", _without(music, 2, 6))
    yield Odd("Opus", "pages_lost.opus", _without(music, 8, 12))
    second = kit.tool("second.opus", "opusenc", "--quiet", "--serial", "9", kit.music)
    yield _joined(kit, "Opus", "chained.opus", plain, second)
    picture = kit.saved("cover_opus.png", b"\x89PNG\r\n\x1a\n" + bytes(200_000))
    yield Odd("Opus", "picture_200k.opus", opusenc("pic.opus", "--picture", f"3|image/png||64x64x24|{picture}"))
    headers = list(ogg.pages(plain))[1][1]
    yield nothing("Opus", "headers_only.opus", plain[:headers])


def _flac_and_speex(kit: Kit) -> Iterator[Odd]:
    flac = kit.tool("ogg.oga", "flac", "-s", "-f", "--ogg", "--serial-number=7", kit.speech, "-o")
    yield Odd("Ogg FLAC", "plain.oga", flac)
    yield Odd("Ogg FLAC", "ffmpeg.oga", kit.ffmpeg(kit.music, "ffmpeg_flac.oga", "-c:a", "flac"))
    yield Odd("Ogg FLAC", "truncated.oga", part(flac, 0.6))
    speex = kit.tool("plain.spx", "speexenc", "--quiet", "-w", kit.speech)
    five = kit.tool("five.spx", "speexenc", "--quiet", "-w", "--nframes", "5", kit.speech)
    yield _speex(kit, "plain.spx", speex)
    yield _speex(kit, "ffmpeg.spx", kit.ffmpeg(kit.speech, "ffmpeg.spx", "-c:a", "libspeex"))
    yield _speex(kit, "five_frames_a_packet.spx", five)
    yield _speex(kit, "truncated.spx", part(speex, 0.6))


def _speex(kit: Kit, name: str, data: bytes) -> Odd:
    """Decoded by speexdec: ffmpeg does not trim what the last page's granule position leaves out."""
    sound = kit.tool("speex.wav", "sh", "-c", f'speexdec {kit.saved(name, data)} "$0" >&2')
    return Odd("Speex", name, data, (len(sound) - 44) / 2 / RATE, "speexdec")
