"""Odd WAV, AIFF, AU and SPHERE files, and what only looks like audio."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .odd_kit import SPEECH_SECONDS, Kit, Odd, nothing, part
from .speech import chunk, run, wav


def files(kit: Kit) -> Iterator[Odd]:
    """Every odd file of these formats."""
    yield from _wav_layouts(kit)
    yield from _wav_sizes(kit)
    yield from _wav_codecs(kit)
    yield from _aiff(kit)
    yield from _au_and_sphere(kit)
    yield from _not_audio(kit)


def _riff(*chunks: bytes, form: bytes = b"WAVE") -> bytes:
    body = form + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _wav_layouts(kit: Kit) -> Iterator[Odd]:
    plain = wav("plain", kit.samples)
    form, data = plain[12:36], plain[36:]
    yield Odd("WAV", "plain.wav", plain)
    yield Odd("WAV", "extensible.wav", wav("extensible", kit.samples))
    yield Odd("WAV", "float.wav", wav("float", kit.samples))
    yield Odd("WAV", "list_320k_before_data.wav", _riff(form, chunk(b"LIST", b"INFO" + bytes(320_000)), data))
    yield Odd("WAV", "junk_odd_size_before_fmt.wav", _riff(chunk(b"JUNK", bytes(4095)), form, data))
    yield Odd("WAV", "list_after_data.wav", _riff(form, data, chunk(b"LIST", b"INFO" + bytes(70_000))))
    odd = kit.ffmpeg(kit.speech, "u8.wav", "-c:a", "pcm_u8")
    yield Odd("WAV", "8_bit_odd_size_list_after.wav", odd + chunk(b"LIST", b"INFO" + bytes(600)))
    yield Odd("WAV", "24_bit_stereo.wav", kit.ffmpeg(kit.music, "s24.wav", "-c:a", "pcm_s24le"))
    yield Odd("WAV", "big_endian_rifx.wav", kit.sox(kit.speech, "rifx.wav", "-B"))
    yield Odd("WAV", "rf64.wav", kit.ffmpeg(kit.speech, "rf64.wav", "-rf64", "always"))
    yield Odd("WAV", "bw64.wav", b"BW64" + kit.ffmpeg(kit.speech, "rf64.wav", "-rf64", "always")[4:])
    yield Odd("WAV", "sony.w64", kit.ffmpeg(kit.speech, "sony.w64"))
    yield Odd("WAV", "sony_truncated.w64", part(kit.ffmpeg(kit.music, "music.w64"), 0.4))


def _wav_sizes(kit: Kit) -> Iterator[Odd]:
    plain = wav("plain", kit.samples)
    raw = ("-t", "raw", "-r", "16k", "-e", "signed", "-b", "16", "-c", "1", "-")
    open_sizes = plain[:4] + bytes(4) + plain[8:40] + bytes(4) + plain[44:]
    wide = kit.ffmpeg(kit.music, "s32.wav", "-c:a", "pcm_s32le")
    yield Odd("WAV", "ffmpeg_piped_ffffffff.wav", kit.piped(kit.speech, "wav"))
    yield Odd("WAV", "sox_piped.wav", run("sox", *raw, "-t", "wav", "-", stdin=kit.samples.tobytes()))
    yield Odd("WAV", "never_closed_sizes_0.wav", open_sizes, SPEECH_SECONDS, "bytes")
    yield Odd("WAV", "truncated_60_percent.wav", part(plain, 0.6))
    yield Odd("WAV", "truncated_extensible_stereo.wav", part(wide, 0.31))
    claims = struct.pack("<I", 50 * (len(plain) - 44))
    yield Odd("WAV", "claims_50_times_more.wav", plain[:40] + claims + plain[44:])
    yield Odd("WAV", "rf64_truncated.wav", part(kit.ffmpeg(kit.speech, "rf64.wav", "-rf64", "always"), 0.5))


def _wav_codecs(kit: Kit) -> Iterator[Odd]:
    yield Odd("WAV", "alaw.wav", kit.sox(kit.speech, "alaw.wav", "-e", "a-law"))
    yield Odd("WAV", "mulaw.wav", kit.sox(kit.speech, "mulaw.wav", "-e", "mu-law"))
    for encoding in ("ms-adpcm", "ima-adpcm"):
        data = kit.sox(kit.speech, f"{encoding}.wav", "-e", encoding)
        yield Odd("WAV", f"{encoding}.wav", data)  # decoders play the last block out; the fact chunk says less
        yield Odd("WAV", f"{encoding}_truncated.wav", part(data, 0.6))
    yield Odd("WAV", "gsm.wav", kit.sox(kit.speech, "gsm.wav", "-e", "gsm"))
    yield Odd("WAV", "mp3_inside.wav", kit.ffmpeg(kit.speech, "mp3.wav", "-c:a", "libmp3lame"))


def _aiff(kit: Kit) -> Iterator[Odd]:
    plain = kit.sox(kit.speech, "plain.aiff")
    yield Odd("AIFF", "plain.aiff", plain)
    yield Odd("AIFF", "stereo.aif", kit.sox(kit.music, "stereo.aif"))
    yield Odd("AIFF", "sowt.aifc", kit.ffmpeg(kit.speech, "sowt.aiff", "-c:a", "pcm_s16le"))
    yield Odd("AIFF", "float.aifc", kit.ffmpeg(kit.speech, "float.aiff", "-c:a", "pcm_f32be"))
    yield Odd("AIFF", "mulaw.aifc", kit.ffmpeg(kit.speech, "mulaw.aiff", "-c:a", "pcm_mulaw"))
    yield Odd("AIFF", "ima4.aifc", kit.ffmpeg(kit.music, "ima4.aiff", "-c:a", "adpcm_ima_qt"))
    yield Odd("AIFF", "truncated.aiff", part(plain, 0.6))
    yield Odd("AIFF", "truncated_stereo.aif", part(kit.sox(kit.music, "stereo.aif"), 0.3))
    tagged = kit.ffmpeg(kit.speech, "id3.aiff", "-metadata", "title=" + "x" * 60_000, "-write_id3v2", "1")
    yield Odd("AIFF", "id3_chunk.aiff", tagged)


def _au_and_sphere(kit: Kit) -> Iterator[Odd]:
    plain = kit.sox(kit.speech, "plain.au")
    yield Odd("AU", "plain.au", plain)
    yield Odd("AU", "size_unknown.au", kit.piped(kit.speech, "au"))
    yield Odd("AU", "mulaw.au", kit.sox(kit.speech, "mulaw.au", "-e", "mu-law"))
    yield Odd("AU", "float_stereo.au", kit.ffmpeg(kit.music, "float.au", "-c:a", "pcm_f32be"))
    yield Odd("AU", "truncated.au", part(plain, 0.6))
    sphere = kit.sox(kit.speech, "plain.sph")
    yield Odd("SPHERE", "plain.sph", sphere)
    yield Odd("SPHERE", "mulaw.sph", kit.sox(kit.speech, "mulaw.sph", "-e", "mu-law"))
    yield Odd("SPHERE", "truncated.sph", part(sphere, 0.6))
    yield Odd("SPHERE", "timit_named.wav", sphere)


def _not_audio(kit: Kit) -> Iterator[Odd]:
    raw = kit.samples.tobytes()
    yield nothing("no audio", "headerless.wav", raw[2000:52_000])
    yield nothing("no audio", "zeros.wav", bytes(64_000))
    yield nothing("no audio", "empty.wav", b"")
    yield nothing("no audio", "error_page.mp3", b"<!DOCTYPE html><html><body>404 Not Found</body></html>" * 40)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
    yield nothing("no audio", "git_lfs_pointer.flac", pointer)
    yield nothing("no audio", "text.mp3", b"the quick brown fox jumps over the lazy dog. " * 300)
    yield nothing("no audio", "header_only.wav", wav("plain", kit.samples)[:44])
    yield nothing("no audio", "image.ogg", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 30)
