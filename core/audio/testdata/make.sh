#!/bin/sh
# Makes the encoded fixtures here, then moves each into the testdata of its family. Needs sox, flac, oggenc, lame, twolame, ffmpeg with libopus and libmp3lame.
# Every file plays the same 1.1 s of decaying tones at 16 kHz mono (17600 samples), if its name does not say otherwise.
set -eu
cd "$(dirname "$0")"
sox -R -n -r 16000 -b 16 -c 1 tone.wav synth 1.1 sine 220:880 fade 0 1.1 0.8
flac -s -f -o tone.flac tone.wav
flac -s -f --stdout - <tone.wav >piped.flac 2>/dev/null # knows its length: sent as WAV
sox tone.wav -t raw - | flac -s --endian=little --sign=signed --channels=1 --bps=16 --sample-rate=16000 --stdout - >unknown_length.flac 2>/dev/null
ffmpeg -v error -y -i tone.wav -ar 44100 -ac 2 -f flac - >ffmpeg_piped_stereo_44k.flac
oggenc -Q --serial 7 -o tone.ogg tone.wav
sox -R tone.wav -r 44100 -c 2 -t wav - repeat 3 | oggenc -Q --serial 8 -q 3 -o stereo_44k_4.4s.ogg -
sox tone.wav -t wav -e ms-adpcm adpcm_ms.wav
sox tone.wav -t wav -e ima-adpcm adpcm_ima.wav
sox tone.wav -t wav -e a-law alaw.wav
sox tone.wav -t wav -e mu-law mulaw.wav
sox tone.wav -t wav -e float -b 32 float32.wav
sox tone.wav -t wav -b 24 pcm24.wav
sox tone.wav -t wav -e gsm gsm.wav
ffmpeg -v error -y -i tone.wav -c:a libopus -b:a 16k tone.opus
ffmpeg -v error -y -i tone.wav -c:a libmp3lame -b:a 32k tone.mp3
ffmpeg -v error -y -i tone.wav -c:a aac -b:a 32k tone.m4a
# Ogg with other codecs. Decoded by opusdec, speexdec and flac -d: 52800, 158400 (both Opus), 17600 (both FLAC) samples; speexdec
# gives 40000 for narrow_5s.spx, and 17680 for tone.spx: it does not drop the look-ahead in a file of one page of sound.
opusenc --quiet --serial 11 --bitrate 12 tone.wav tone_opusenc.opus
sox -R -n -r 48000 -b 16 -c 2 -t wav - synth 3.3 sine 220:880 | opusenc --quiet --serial 12 --bitrate 16 - stereo_3.3s.opus
speexenc --quiet tone.wav tone.spx
sox -R -n -r 8000 -b 16 -c 1 -t wav - synth 5 sine 220:880 | speexenc --quiet -n --quality 4 --nframes 2 - narrow_5s.spx
flac -s -f --ogg --serial-number 13 --no-padding --no-seektable -o tone.oga tone.wav
ffmpeg -v error -y -i tone.wav -c:a flac -f ogg -bitexact tone_ffmpeg.oga
# MP4 family. fdkaac 1.0 (with libfdk-aac 2) writes what FFmpeg's encoder cannot: SBR, PS and iTunSMPB instead of an edit list.
ffmpeg -v error -y -i tone.wav -c:a aac -b:a 16k -movflags +faststart front.m4a
ffmpeg -v error -y -i tone.wav -c:a aac -b:a 16k -movflags +frag_keyframe+delay_moov -frag_duration 200000 fragments.m4a
ffmpeg -v error -y -i tone.wav -c:a libopus -b:a 16k -movflags +frag_keyframe+empty_moov -frag_duration 200000 fragments_opus.mp4
ffmpeg -v error -y -i tone.wav -t 0.1 -ar 96000 -c:a alac alac_96k_0.1s.m4a
ffmpeg -v error -y -i tone.wav -t 0.3 -c:a flac -strict -2 flac_0.3s.mp4
ffmpeg -v error -y -i tone.wav -ar 8000 -c:a adpcm_ima_qt ima4_8k.mov
ffmpeg -v error -y -i tone.wav -ar 48000 -c:a ac3 -b:a 32k ac3_48k.mp4
ffmpeg -v error -y -f lavfi -i color=d=1.5:s=16x16:r=4 -i tone.wav -c:v mpeg4 -c:a aac -b:a 16k film.mp4
sox -R tone.wav -r 44100 -c 2 stereo.wav
fdkaac -S -p 5 -b 24k -o sbr_itunes_44k.m4a stereo.wav
fdkaac -S -p 29 -b 16k -G 1 -o sbr_ps_44k.m4a stereo.wav
rm stereo.wav
gst-launch-1.0 -q filesrc location=tone.wav ! wavparse ! audioconvert ! voamrwbenc ! 3gppmux ! filesink location=amrwb.3gp
# Matroska family. aac_delay.mka is by FFmpeg 8.0, which writes CodecDelay: ffmpeg -i tone.wav -ac 2 -c:a aac -b:a 16k aac_delay.mka
ffmpeg -v error -y -i tone.wav -c:a libopus -b:a 16k opus.webm
ffmpeg -v error -y -i tone.wav -c:a libopus -b:a 16k -live 1 live.webm
ffmpeg -v error -y -i tone.wav -c:a libvorbis -q:a 0 vorbis.webm
ffmpeg -v error -y -i tone.wav -t 0.3 -c:a flac flac_0.3s.mka
ffmpeg -v error -y -i tone.wav -ar 8000 -t 0.7 -c:a alac alac_8k_0.7s.mka
ffmpeg -v error -y -f lavfi -i color=d=1.5:s=16x16:r=4 -i tone.wav -c:v libvpx -c:a libopus -b:a 16k film.webm
mkvmerge -q -o laced_mp3.mka tone.mp3

# PCM and its kin, short and of an odd length: 801 samples at 16 kHz, or 401 at 8 kHz in names with 8k. The lengths in the
# tests are what sox or ffmpeg decode. Needs libvo-amrwbenc0 (and python3 to call it).
sox -R -D tone.wav short.wav trim 0 801s
sox -R -D tone.wav -r 8000 short_8k.wav trim 0 802s
in=short.wav
ff() { ffmpeg -v error -y -fflags +bitexact -i "$in" -flags:a +bitexact "$@"; }
sox -D $in -B short_rifx.wav
sox -D $in -B -e float -b 32 short_rifx_float.wav
sox -D $in -e ima-adpcm short_ima.wav
ff -f wav -rf64 always short_rf64.wav
ff -f wav -rf64 always - | cat >piped_rf64.wav
ff -c:a pcm_s64le short_s64.wav
ff -c:a adpcm_yamaha short_yamaha.wav
in=short_8k.wav
ff -c:a adpcm_g726 -code_size 3 short_g726_3_8k.wav
ff -c:a adpcm_g722 short_g722_8k.wav
ff -c:a libmp3lame -f wav short_mp3_8k.wav
ff -c:a adpcm_g726le -f au short_g726_8k.au
ff -c:a adpcm_g722 -f au short_g722_8k.au
sox -D tone.wav -r 8000 -t amr-nb - >tone_8k.amr
rm $in
in=short.wav
ff -f w64 short.w64
ff -f w64 - | cat >piped.w64
sox -D $in -e ima-adpcm short_ima.w64
sox -D $in short.aiff
sox -D $in -t aiff - | cat >piped_sox.aiff
ff -f aiff - | cat >piped_ffmpeg.aiff
ff -c:a adpcm_ima_qt -f aiff short_ima4.aifc
ff -c:a pcm_s16le -f aiff short_sowt.aifc
sox -D $in -t aifc -e float -b 32 short_fl32.aifc
ff -c:a pcm_alaw -f aiff short_alaw.aifc
sox -D $in short.au
sox -D $in -L short_le.au
ff -c:a pcm_mulaw -f au - | cat >piped.au
sox -D $in -t sph short.sph
sox -D $in -t sph -e mu-law short_mulaw.sph
sox -t raw -r 16000 -b 16 -e signed -c 1 - -t sph - <short.wav trim 22s | cat >piped.sph # 22 samples of RIFF header
ff -c:a pcm_s16le -f caf short.caf
ff -c:a pcm_s16be -f caf - | cat >piped.caf
ff -c:a adpcm_ima_qt -f caf short_ima4.caf
ff -c:a alac -f caf short_alac.caf
ff -c:a libopus -f caf short_opus.caf
python3 - <<'PY'
import ctypes

lib = ctypes.CDLL("libvo-amrwbenc.so.0")
lib.E_IF_init.restype = ctypes.c_void_p
state = ctypes.c_void_p(lib.E_IF_init())
pcm = open("tone.wav", "rb").read()[44:]
with open("tone.awb", "wb") as f:
    f.write(b"#!AMR-WB\n")
    for mode, i in enumerate(range(0, 10 * 640, 640)):  # 10 frames of 20 ms, of every rate and with silence
        out = ctypes.create_string_buffer(100)
        n = lib.E_IF_encode(state, min(mode, 8), pcm[i : i + 640], out, 1)
        f.write(out.raw[:n])
PY
# MPEG audio and ADTS. Their tests state how many samples FFmpeg (free format: mpg123) decodes from each.
sox -R tone.wav -r 44100 -t wav - | lame --quiet --resample 44.1 -m m -b 56 - lame_cbr_44k.mp3
sox -R tone.wav -r 44100 -c 2 -t wav - | lame --quiet --resample 44.1 -V 9 - lame_vbr_44k_stereo.mp3
sox -R tone.wav -r 44100 -t wav - | lame --quiet --resample 44.1 -m m -t -V 9 - vbr_untagged_44k.mp3
sox -R tone.wav -r 44100 -t wav - | lame --quiet --resample 44.1 -m m -t -p -b 48 - cbr_untagged_crc_44k.mp3
lame --quiet --resample 8 -b 16 tone.wav mpeg25_8k.mp3
twolame --quiet -b 32 -m mono tone.wav tone.mp2 >/dev/null
ffmpeg -v error -y -i tone.wav -ar 44100 -ac 2 -c:a mp2 -b:a 64k stereo_44k.mp2
ffmpeg -v error -y -i tone.wav -c:a aac -b:a 24k tone.aac
ffmpeg -v error -y -i tone.wav -ar 44100 -ac 2 -c:a aac -b:a 32k -write_mpeg2 1 mpeg2_stereo_44k.aac
ffmpeg -v error -y -i tone.wav -af aformat=channel_layouts=hexagonal -c:a aac -b:a 32k six_channels_by_pce.aac
sox -R tone.wav -r 44100 -c 2 -t wav - | fdkaac -S -p 29 -b 24k -f 2 -o sbr_ps_44k.aac - # the frames show 22.05 kHz and one channel
fdkaac -S -p 2 -b 16k -f 2 --adts-crc-check -o checksums.aac tone.wav
move() { family=$1; shift; for extension; do mv ./*."$extension" "../$family/testdata/"; done; }
move riff wav w64 aiff aifc caf
move pcm au sph
move amr amr awb
move mpeg mp3 mp2 aac
move flac flac
move ogg ogg oga opus spx
move isobmff m4a mp4 mov 3gp
move matroska mka webm
