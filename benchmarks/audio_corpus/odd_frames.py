"""Odd FLAC, MP3, MP2, ADTS AAC and AMR files: formats made of frames."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator

from .odd_kit import Kit, Odd, nothing, part
from .speech import run


def files(kit: Kit) -> Iterator[Odd]:
    """Every odd file of these formats."""
    yield from _flac(kit)
    yield from _mp3_headers(kit)
    yield from _mp3_without_header(kit)
    yield from _aac_and_amr(kit)


def id3(size: int) -> bytes:
    """An ID3v2.4 tag with a picture frame of this many bytes."""

    def synchsafe(n: int) -> bytes:
        return bytes(n >> shift & 0x7F for shift in (21, 14, 7, 0))

    frame = b"APIC" + synchsafe(size) + b"\0\0" + b"\0image/png\0\3\0" + b"\x89PNG" * (size // 4)
    frame = frame[: 10 + size]
    return b"ID3\4\0\0" + synchsafe(len(frame)) + frame


def ape_tail(size: int) -> bytes:
    """An APEv2 tag with one item of this many bytes, with header and footer."""
    item = struct.pack("<II", size, 2) + b"Cover Art (Front)\0" + b"\xff\xfb\x90\x00" * (size // 4)
    fields = struct.pack("<III", 2000, len(item) + 32, 1)
    header, footer = (b"APETAGEX" + fields + struct.pack("<I", flags) + bytes(8) for flags in (0xA0000000, 0x80000000))
    return header + item + footer


def _flac(kit: Kit) -> Iterator[Odd]:
    plain = kit.tool("plain.flac", "flac", "-s", "-f", kit.speech, "-o")
    stereo = kit.tool("stereo.flac", "flac", "-s", "-f", kit.music, "-o")
    raw = ("--endian=little", "--sign=signed", "--channels=1", "--bps=16", "--sample-rate=16000")
    raw_speech = kit.saved("speech.raw", kit.samples.tobytes())
    unknown = kit.tool("unknown.sh.flac", "sh", "-c", f'cat {raw_speech} | flac -s {" ".join(raw)} --stdout - > "$0"')
    yield Odd("FLAC", "plain.flac", plain)
    yield Odd("FLAC", "stereo_44k.flac", stereo)
    yield Odd("FLAC", "id3_in_front.flac", id3(70_000) + plain)
    yield Odd("FLAC", "total_samples_0.flac", unknown)
    yield Odd("FLAC", "ffmpeg_piped.flac", kit.piped(kit.music, "flac"))
    yield Odd("FLAC", "total_samples_0_truncated.flac", part(unknown, 0.6))
    yield Odd("FLAC", "truncated.flac", part(plain, 0.6))
    yield Odd("FLAC", "truncated_stereo.flac", part(stereo, 0.45))
    picture = kit.saved("cover.png", b"\x89PNG\r\n\x1a\n" + bytes(1_500_000))
    big = kit.tool("big.flac", "flac", "-s", "-f", f"--picture=3|image/png||64x64x24|{picture}", kit.speech, "-o")
    yield Odd("FLAC", "picture_1.5_mb.flac", big)
    yield Odd("FLAC", "id3v1_tail.flac", plain + b"TAG" + b"title".ljust(125, b"\0"))


def _lame(kit: Kit, name: str, *options: str, music: bool = False) -> bytes:
    return kit.tool(name, "lame", "--quiet", *options, kit.music if music else kit.speech)


def _with_frames(data: bytes, change: float) -> bytes:
    """The file with another number of frames in its Xing or Info header."""
    at = max(data.find(b"Xing", 0, 4096), data.find(b"Info", 0, 4096))
    frames = struct.unpack(">I", data[at + 8 : at + 12])[0]
    return data[: at + 8] + struct.pack(">I", int(frames * change)) + data[at + 12 :]


def _mp3_headers(kit: Kit) -> Iterator[Odd]:
    vbr, cbr = _lame(kit, "vbr.mp3", "-V4"), _lame(kit, "cbr.mp3", "-b", "48")
    stereo = _lame(kit, "stereo.mp3", "-V2", music=True)
    yield Odd("MP3", "vbr_xing.mp3", vbr)
    yield Odd("MP3", "cbr_info.mp3", cbr)
    yield Odd("MP3", "vbr_stereo_44k.mp3", stereo)
    yield Odd("MP3", "abr.mp3", _lame(kit, "abr.mp3", "--abr", "40"))
    yield Odd("MP3", "xing_claims_10_times.mp3", _with_frames(vbr, 10))
    yield Odd("MP3", "xing_claims_half.mp3", _with_frames(vbr, 0.5))
    yield Odd("MP3", "truncated_xing.mp3", part(vbr, 0.6))
    yield Odd("MP3", "truncated_info.mp3", part(stereo, 0.35))
    yield Odd("MP3", "id3_5_mb.mp3", id3(5_000_000) + vbr)
    yield Odd("MP3", "two_id3_tags.mp3", id3(3_000) + id3(40_000) + vbr)
    yield Odd("MP3", "ape_tail_100k.mp3", _lame(kit, "bare.mp3", "-b", "48", "-t") + ape_tail(100_000))
    yield Odd("MP3", "ape_and_id3v1_tails.mp3", vbr + ape_tail(2_000) + b"TAG" + b"title".ljust(125, b"\0"))
    yield Odd("MP3", "two_files_joined.mp3", vbr + _lame(kit, "second.mp3", "-V4"))
    yield Odd("MP3", "ffmpeg.mp3", kit.ffmpeg(kit.music, "ffmpeg.mp3", "-c:a", "libmp3lame", "-b:a", "64k"))


def _mp3_without_header(kit: Kit) -> Iterator[Odd]:
    vbr = _lame(kit, "bare_vbr.mp3", "-V4", "-t")
    yield Odd("MP3", "cbr_no_header.mp3", _lame(kit, "bare_cbr.mp3", "-b", "48", "-t"))
    yield Odd("MP3", "vbr_no_header.mp3", vbr)
    quiet = kit.folder / "quiet.wav"
    kit.sox(kit.speech, "quiet.wav", effects=("pad", "30"))
    silent = kit.tool("silent.mp3", "lame", "--quiet", "-V4", "-t", quiet)
    yield Odd("MP3", "vbr_no_header_30_s_silence_first.mp3", silent)
    kit.sox(kit.speech, "quiet_end.wav", effects=("pad", "0", "60"))
    silent = kit.tool("end.mp3", "lame", "--quiet", "-V4", "-t", kit.folder / "quiet_end.wav")
    yield Odd("MP3", "vbr_no_header_60_s_silence_last.mp3", silent)
    yield Odd("MP3", "vbr_no_header_truncated.mp3", part(vbr, 0.6))
    yield Odd("MP3", "junk_before_first_frame.mp3", bytes(700) + vbr)
    yield Odd("MP3", "stereo_no_header.mp3", _lame(kit, "bare_stereo.mp3", "-V2", "-t", music=True))
    mp2 = kit.ffmpeg(kit.music, "plain.mp2", "-c:a", "mp2", "-b:a", "192k")
    yield Odd("MP2", "plain.mp2", mp2)
    yield Odd("MP2", "speech_16k.mp2", kit.ffmpeg(kit.speech, "speech.mp2", "-c:a", "mp2", "-b:a", "48k"))
    yield Odd("MP2", "truncated.mp2", part(mp2, 0.6))
    yield nothing("MP3", "id3_tag_only.mp3", id3(4_000))


def _amr_wide(kit: Kit) -> bytes:
    """Wideband AMR at 23.85 kbit/s by the VisualOn library: no program of Debian's writes it."""
    library = ctypes.CDLL("libvo-amrwbenc.so.0")
    library.E_IF_init.restype = ctypes.c_void_p
    state, frame = ctypes.c_void_p(library.E_IF_init()), ctypes.create_string_buffer(64)
    frames = [b"#!AMR-WB\n"]
    for start in range(0, len(kit.samples) - 319, 320):
        length = library.E_IF_encode(state, 8, kit.samples[start : start + 320].tobytes(), frame, 0)
        frames.append(frame.raw[:length])
    library.E_IF_exit(state)
    return b"".join(frames)


def _aac_and_amr(kit: Kit) -> Iterator[Odd]:
    aac = kit.ffmpeg(kit.speech, "plain.aac", "-c:a", "aac", "-b:a", "40k")
    yield Odd("AAC", "plain.aac", aac)
    yield Odd("AAC", "stereo_44k.aac", kit.ffmpeg(kit.music, "stereo.aac", "-c:a", "aac", "-b:a", "96k"))
    yield Odd("AAC", "named.mp3", aac)
    yield Odd("AAC", "id3_in_front.aac", id3(3_000) + aac)
    yield Odd("AAC", "truncated.aac", part(aac, 0.6))
    quiet = kit.ffmpeg(kit.folder / "quiet.wav", "quiet.aac", "-c:a", "aac", "-b:a", "64k")
    yield Odd("AAC", "silence_first.aac", quiet)
    kit.sox(kit.speech, "speech8k.wav", "-r", "8000")
    yield from _amr(kit)


def _amr(kit: Kit) -> Iterator[Odd]:
    """Narrowband is decoded by sox: ffmpeg leaves out the frames of silence, which the encoder makes too."""
    narrow = [kit.tool(f"mode{m}.amr", "sox", kit.folder / "speech8k.wav", "-C", m, "-t", "amr-nb") for m in "07"]
    wide = _amr_wide(kit)
    mixed = narrow[1] + narrow[0][6:]
    cases = {"plain.amr": narrow[1], "truncated.amr": part(narrow[1], 0.6), "modes_change.amr": mixed}
    for name, data in cases.items():
        sound = run("sox", kit.saved(name, data), "-t", "raw", "-e", "signed", "-b", "16", "-")
        yield Odd("AMR", name, data, len(sound) / 2 / 8000, "sox")
    yield Odd("AMR", "plain.awb", wide)
    yield Odd("AMR", "truncated.awb", part(wide, 0.6))
