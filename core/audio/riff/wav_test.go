package riff

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Format tags beside those of plain samples.
const (
	tagADPCM = 2
	tagIMA   = 0x11
	tagGSM   = 0x31
)

func extensible(tag int) []byte {
	b := []byte{22, 0, 16, 0, 4, 0, 0, 0}
	b = le.AppendUint16(b, uint16(tag))
	return append(b, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"...)
}

func ds64(data uint64) []byte {
	b := le.AppendUint64(make([]byte, 8), data)
	return append(b, make([]byte, 12)...)
}

func pcm16() *audiotest.WAV { return audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 2, 16) }

func TestWAVLength(t *testing.T) {
	ima := []byte{2, 0, 0xf9, 0x01} // 505 samples a block
	audiotest.Measured(t, map[string]audiotest.Clip{
		"plain":                                 {B: pcm16().Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"8 bits":                                {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 8000, 1, 8).Chunk("data", make([]byte, 8001)).Encoded, Seconds: 8001.0 / 8000, Codec: "pcm_u8"},
		"24 bits stereo":                        {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 2, 48000, 6, 24).Chunk("data", make([]byte, 48000*6)).Encoded, Seconds: 1, Codec: "pcm_s24le"},
		"24 bits in 4 bytes":                    {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 4, 24).Chunk("data", make([]byte, 4000)).Encoded, Seconds: 1, Codec: "pcm_s32le"},
		"32 bits":                               {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 4, 32).Chunk("data", make([]byte, 2000)).Encoded, Seconds: 0.5, Codec: "pcm_s32le"},
		"float":                                 {B: audiotest.NewWAV("RIFF").Fmt(tagFloat, 1, 1000, 4, 32, 0, 0).Chunk("fact", []byte{9, 0, 0, 0}).Chunk("data", make([]byte, 4000)).Encoded, Seconds: 1, Codec: "pcm_f32le"},
		"double":                                {B: audiotest.NewWAV("RIFF").Fmt(tagFloat, 1, 1000, 8, 64).Chunk("data", make([]byte, 8000)).Encoded, Seconds: 1, Codec: "pcm_f64le"},
		"A-law":                                 {B: audiotest.NewWAV("RIFF").Fmt(tagALaw, 1, 8000, 1, 8).Chunk("data", make([]byte, 4000)).Encoded, Seconds: 0.5, Codec: "pcm_alaw"},
		"mu-law":                                {B: audiotest.NewWAV("RIFF").Fmt(tagMuLaw, 2, 8000, 2, 8).Chunk("data", make([]byte, 4000)).Encoded, Seconds: 0.25, Codec: "pcm_mulaw"},
		"extensible":                            {B: audiotest.NewWAV("RIFF").Fmt(tagExtensible, 1, 16000, 2, 16, extensible(tagPCM)...).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"extensible float":                      {B: audiotest.NewWAV("RIFF").Fmt(tagExtensible, 1, 8000, 4, 32, extensible(tagFloat)...).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_f32le"},
		"long LIST and odd JUNK before data":    {B: pcm16().Chunk("LIST", make([]byte, 320001)).Chunk("JUNK", make([]byte, 5)).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"JUNK before fmt":                       {B: audiotest.NewWAV("RIFF").Chunk("JUNK", make([]byte, 28)).Fmt(tagPCM, 1, 16000, 2, 16).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"LIST after data":                       {B: pcm16().Chunk("data", audiotest.Second()).Chunk("LIST", make([]byte, 5000)).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"piped by FFmpeg":                       {B: pcm16().Claim("data", 0xffffffff, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"piped by espeak-ng":                    {B: pcm16().Claim("data", 0x7ffff000, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"never closed":                          {B: pcm16().Claim("data", 0, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"RF64":                                  {B: audiotest.NewWAV("RF64").Chunk("ds64", ds64(32000)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Chunk("LIST", make([]byte, 64)).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"BW64":                                  {B: audiotest.NewWAV("BW64").Chunk("ds64", ds64(32000)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"RF64 never closed":                     {B: audiotest.NewWAV("RF64").Chunk("ds64", ds64(0)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"RF64 cut":                              {B: audiotest.NewWAV("RF64").Chunk("ds64", ds64(10<<30)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Encoded, Seconds: 1, Claimed: (10 << 30) / 32000.0, Codec: "pcm_s16le"},
		"cut":                                   {B: pcm16().Claim("data", 320000, audiotest.Second()).Encoded, Seconds: 1, Claimed: 10, Codec: "pcm_s16le"},
		"cut inside a sample":                   {B: pcm16().Claim("data", 64000, make([]byte, 32001)).Encoded, Seconds: 1, Claimed: 2, Codec: "pcm_s16le"},
		"IMA ADPCM, fact inside the last block": {B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("fact", []byte{0xe8, 3, 0, 0}).Chunk("data", make([]byte, 512)).Encoded, Seconds: 1.01, Codec: "adpcm_ima_wav"},
		"IMA ADPCM, fact far off":               {B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("fact", []byte{0xf4, 1, 0, 0}).Chunk("data", make([]byte, 512)).Encoded, Seconds: 1.01, Claimed: 0.5, Codec: "adpcm_ima_wav"},
		"IMA ADPCM stereo, fact over both channels": {B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 2, 1000, 512, 4, ima...).Chunk("fact", []byte{0xf2, 3, 0, 0}).Chunk("data", make([]byte, 512)).Encoded, Seconds: 0.505, Codec: "adpcm_ima_wav"},
		"IMA ADPCM without fact":                    {B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("data", make([]byte, 512)).Encoded, Seconds: 1.01, Codec: "adpcm_ima_wav"},
		"IMA ADPCM, half a block":                   {B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("data", make([]byte, 256+128)).Encoded, Seconds: 0.505 + 0.249, Codec: "adpcm_ima_wav"},
		"IMA ADPCM cut":                             {B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("fact", []byte{0xe8, 3, 0, 0}).Claim("data", 512, make([]byte, 256)).Encoded, Seconds: 0.505, Claimed: 1.01, Codec: "adpcm_ima_wav"},
		"IMA ADPCM of 3 bits":                       {B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 3, 2, 0, 0, 0).Chunk("data", make([]byte, 2560)).Encoded, Seconds: 6.73, Codec: "adpcm_ima_wav"},
		"MS ADPCM":                                  {B: audiotest.NewWAV("RIFF").Fmt(tagADPCM, 1, 1000, 256, 4).Chunk("data", make([]byte, 512)).Encoded, Seconds: 1, Codec: "adpcm_ms"},
		"MS ADPCM, half a block":                    {B: audiotest.NewWAV("RIFF").Fmt(tagADPCM, 1, 1000, 256, 4).Chunk("data", make([]byte, 256+131)).Encoded, Seconds: 0.75, Codec: "adpcm_ms"},
		"OKI ADPCM":                                 {B: audiotest.NewWAV("RIFF").Fmt(0x10, 1, 8000, 1, 4).Chunk("data", make([]byte, 4000)).Encoded, Seconds: 1, Codec: "adpcm_ima_oki"},
		"G.729":                                     {B: audiotest.NewWAV("RIFF").Fmt(0x83, 1, 8000, 10, 0).Chunk("data", make([]byte, 1009)).Encoded, Seconds: 1, Codec: "g729"},
		"GSM, half a block":                         {B: audiotest.NewWAV("RIFF").Fmt(tagGSM, 1, 8000, 65, 0, 2, 0, 0x40, 1).Chunk("data", make([]byte, 65*25+33)).Encoded, Seconds: 1, Codec: "gsm_ms"},
		"64 bits":                                   {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 8, 64).Chunk("data", make([]byte, 8000)).Encoded, Seconds: 1, Codec: "pcm_s64le"},
		"20 bits in 3 bytes":                        {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 3, 20).Chunk("data", make([]byte, 3000)).Encoded, Seconds: 1, Codec: "pcm_s24le"},
		"no bits":                                   {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 2, 1000, 4, 0).Chunk("data", make([]byte, 4000)).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"A-law that says 16 bits":                   {B: audiotest.NewWAV("RIFF").Fmt(tagALaw, 1, 8000, 1, 16).Chunk("data", make([]byte, 8000)).Encoded, Seconds: 1, Codec: "pcm_alaw"},
		"block size 0":                              {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 0, 16).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"block size of one channel for two":         {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 2, 16000, 2, 16).Chunk("data", audiotest.Second()).Encoded, Seconds: 0.5, Codec: "pcm_s16le"},
		"block size too large":                      {B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 8, 16).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"two fmt chunks":                            {B: pcm16().Fmt(tagPCM, 1, 8000, 2, 16).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"fmt behind data":                           {B: audiotest.NewWAV("RIFF").Chunk("data", audiotest.Second()).Fmt(tagPCM, 1, 16000, 2, 16).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"two data chunks":                           {B: pcm16().Chunk("data", audiotest.Second()).Chunk("LIST", make([]byte, 8)).Chunk("data", audiotest.Second()[:16000]).Encoded, Seconds: 1, Claimed: 1.5, Codec: "pcm_s16le"},
		"an empty data chunk first":                 {B: pcm16().Chunk("data", nil).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"no padding behind an odd LIST":             {B: pcm16().Claim("LIST", 5, make([]byte, 5)).Chunk("data", audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"garbage behind the data":                   {B: pcm16().Chunk("data", audiotest.Second()).Claim("\x00\x01\x02\x03", 77, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"piped by lame":                             {B: pcm16().Claim("data", 0xffffffff-36, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"piped by arecord":                          {B: pcm16().Claim("data", 0x80000000, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"3 GiB, cut":                                {B: pcm16().Claim("data", 0xc0000000, audiotest.Second()).Encoded, Seconds: 1, Claimed: 0xc0000000 / 32000.0, Codec: "pcm_s16le"},
		"RIFF with ds64":                            {B: audiotest.NewWAV("RIFF").Chunk("ds64", ds64(32000)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Chunk("LIST", make([]byte, 64)).Encoded, Seconds: 1, Codec: "pcm_s16le"},
		"RF64 of a size beyond belief":              {B: audiotest.NewWAV("RF64").Chunk("ds64", ds64(1<<63)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Encoded, Seconds: 1, Codec: "pcm_s16le"},
	})
}

func TestWAVRefused(t *testing.T) {
	manyChunks := audiotest.NewWAV("RIFF")
	for range maxChunks + 1 {
		manyChunks.Chunk("JUNK", nil)
	}
	audiotest.Refuses(t, "clip.wav", []audiotest.Refusal{
		{Name: "empty data", B: pcm16().Chunk("data", nil).Encoded, Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "empty data, then LIST", B: pcm16().Chunk("data", nil).Chunk("LIST", make([]byte, 40)).Encoded, Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "header only, claims 1 s", B: pcm16().Claim("data", 32000, nil).Encoded, Code: fault.Corrupt, Text: "holds no audio, though its header claims 1.000 s"},
		{Name: "less than one sample", B: pcm16().Chunk("data", []byte{1}).Encoded, Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "no data chunk", B: pcm16().Encoded, Code: fault.Corrupt, Text: "ends before its data chunk"},
		{Name: "data before fmt", B: audiotest.NewWAV("RIFF").Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "no fmt chunk with its data"},
		{Name: "short fmt", B: audiotest.NewWAV("RIFF").Chunk("fmt ", make([]byte, 14)).Encoded, Code: fault.Corrupt, Text: "fmt chunk of 14 bytes"},
		{Name: "rate 0", B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 0, 2, 16).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "sample rate of 0 Hz"},
		{Name: "channels 0", B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 0, 16000, 2, 16).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "0 channels"},
		{Name: "no bits and no block size", B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 0, 0).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "samples of 0 bits"},
		{Name: "56 bits", B: audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 7, 56).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "samples of 56 bits and blocks of 7 bytes"},
		{Name: "extensible without a codec", B: audiotest.NewWAV("RIFF").Fmt(tagExtensible, 1, 16000, 2, 16, 0, 0).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "too short to name its codec"},
		{Name: "1-bit G.726", B: audiotest.NewWAV("RIFF").Fmt(0x45, 1, 8000, 1, 1).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "1 bits"},
		{Name: "stereo GSM", B: audiotest.NewWAV("RIFF").Fmt(tagGSM, 2, 8000, 65, 0).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "2 channels instead of one"},
		{Name: "ADPCM block too short", B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 2, 16000, 4, 4).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "shorter than their header"},
		{Name: "7-bit ADPCM", B: audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 16000, 256, 7).Chunk("data", audiotest.Second()).Encoded, Code: fault.Unsupported, Text: "7 bits"},
		{Name: "no MP3 inside", B: audiotest.NewWAV("RIFF").Fmt(0x55, 1, 16000, 1, 0).Chunk("data", audiotest.Second()).Encoded, Code: fault.Corrupt, Text: "holds no frames"},
		{Name: "WMA inside", B: audiotest.NewWAV("RIFF").Fmt(0x161, 1, 16000, 1, 0).Chunk("data", audiotest.Second()).Encoded, Code: fault.Unsupported, Text: "WMA inside"},
		{Name: "unknown codec", B: audiotest.NewWAV("RIFF").Fmt(0x1234, 1, 16000, 1, 0).Chunk("data", audiotest.Second()).Encoded, Code: fault.Unsupported, Text: "0x1234"},
		{Name: "endless small chunks", B: manyChunks.Encoded, Code: fault.Corrupt, Text: "more than 1024 chunks"},
	})
}

func TestWAVFixtures(t *testing.T) {
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "tone.wav", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}},
		{File: "pcm24.wav", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 24, Codec: "pcm_s24le", Method: "header"}},
		{File: "float32.wav", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 32, Codec: "pcm_f32le", Method: "header"}},
		{File: "alaw.wav", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_alaw", Method: "header"}},
		{File: "mulaw.wav", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_mulaw", Method: "header"}},
		{File: "adpcm_ima.wav", Samples: 17675, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_wav", Method: "header"}},
		{File: "short.wav", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}, Start: 44, PerByte: 0.5},
		{File: "short_rf64.wav", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}, Start: 80, PerByte: 0.5},
		{File: "piped_rf64.wav", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "tail"}, Start: 80, PerByte: 0.5},
		{File: "short_rifx.wav", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16be", Method: "header"}, Start: 44, PerByte: 0.5},
		{File: "short_rifx_float.wav", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 32, Codec: "pcm_f32be", Method: "header"}, Start: 58, PerByte: 0.25},
		{File: "short_s64.wav", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 64, Codec: "pcm_s64le", Method: "header"}, Start: 44, PerByte: 0.125},
		{File: "short_ima.wav", Samples: 1010, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_wav", Method: "header"}, Start: 60, PerByte: 2},
		{File: "short_yamaha.wav", Samples: 2048, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_yamaha", Method: "header"}, Start: 44, PerByte: 2},
		{File: "short_g726_3_8k.wav", Samples: 402, Want: media.Info{SampleRate: 8000, Channels: 1, Bits: 3, Codec: "adpcm_g726", Method: "header"}, Start: 44, PerByte: 8.0 / 3},
		{File: "short_g722_8k.wav", Samples: 402, Want: media.Info{SampleRate: 8000, Channels: 1, Bits: 4, Codec: "adpcm_g722", Method: "header"}, Start: 44, PerByte: 2},
		{File: "gsm.wav", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "gsm_ms", Method: "header"}, Start: 60, PerByte: 320.0 / 65},
		{File: "adpcm_ms.wav", Samples: 18000, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ms", Method: "header"}, Start: 90, PerByte: 2},
	})
}

// TestWAVWithMPEG reads frames of MPEG audio between other chunks; the frames tell more than fmt.
func TestWAVWithMPEG(t *testing.T) {
	info, err := audiotest.Bytes("x", audiotest.Fixture(t, "short_mp3_8k.wav"))
	require.NoError(t, err)
	assert.Nil(t, info.ClaimedS)
	assert.Equal(t, []any{1728.0, 8000, 1, "mp3", "walked"}, []any{info.DurationS * 8000, info.SampleRate, info.Channels, info.Codec, info.Method})

	frames := audiotest.Fixture(t, "short_mp3_8k.wav")[104:]
	tail := append([]byte("TAG"), make([]byte, 400)...)
	original := audiotest.NewWAV("RIFF").Fmt(0x55, 2, 44100, 1, 0).Chunk("data", frames).Chunk("LIST", append(frames, tail...))
	info, err = audiotest.Bytes("x", original.Encoded)
	require.NoError(t, err)
	assert.Equal(t, []any{0.216, 8000, 1}, []any{info.DurationS, info.SampleRate, info.Channels}, "frames behind the data do not count")

	for n := range frames {
		info, err := audiotest.Bytes("x", audiotest.NewWAV("RIFF").Fmt(0x50, 1, 8000, 1, 0).Claim("data", uint32(len(frames)), frames[:n]).Encoded)
		if err == nil {
			assert.LessOrEqual(t, info.DurationS, 0.216)
			assert.NotNil(t, info.ClaimedS)
		}
	}
}

// TestWAVLarge reads files of more than 4 GiB, of which the disk holds the header alone.
func TestWAVLarge(t *testing.T) {
	const size = 10 << 30
	for name, c := range map[string]struct {
		head    *audiotest.WAV
		claimed float64
	}{
		"RF64":                    {audiotest.NewWAV("RF64").Chunk("ds64", ds64(size)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, nil), 0},
		"RF64 that claims double": {audiotest.NewWAV("RF64").Chunk("ds64", ds64(2*size)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, nil), 2 * size / 32000.0},
		"RIFF of unknown size":    {pcm16().Claim("data", 0xffffffff, nil), 0},
		"sox's unknown size":      {pcm16().Claim("data", 0x7ffff000, nil), 0},
		"AIFF of unknown size":    {&audiotest.WAV{Encoded: form("AIFF", comm(1, 0, 16, ""), ssndClaim(0x7f000008, nil))}, 0},
		"Wave64":                  {&audiotest.WAV{Encoded: wave64(24+size, nil)[:104]}, 0},
		"Core Audio":              {&audiotest.WAV{Encoded: core(desc(16000, "lpcm", 2, 2, 1, 1, 16), cafData(4 + size)[:16])}, 0},
	} {
		path := audiotest.Write(t, c.head.Encoded)
		require.NoError(t, os.Truncate(path, int64(len(c.head.Encoded)+size)))
		info, st, err := audiotest.File(path)
		require.NoError(t, err, name)
		assert.EqualValues(t, len(c.head.Encoded)+size, st.Size)
		assert.Equal(t, size/32000.0, info.DurationS, name)
		if c.claimed == 0 {
			assert.Nil(t, info.ClaimedS, name)
		} else if assert.NotNil(t, info.ClaimedS, name) {
			assert.Equal(t, c.claimed, *info.ClaimedS, name)
		}
	}
}

func FuzzWAV(f *testing.F) {
	f.Add(pcm16().Chunk("data", audiotest.Second()[:64]).Encoded)
	f.Add(audiotest.NewWAV("RF64").Chunk("ds64", ds64(64)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()[:64]).Encoded)
	f.Add(audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, 2, 0, 0xf9, 1).Chunk("fact", []byte{9, 0, 0, 0}).Chunk("data", make([]byte, 512)).Encoded)
	f.Add(audiotest.Fixture(f, "short_rifx.wav"))
	f.Add(audiotest.Fixture(f, "short_g726_3_8k.wav"))
	f.Add(audiotest.Fixture(f, "short_mp3_8k.wav"))
	f.Add(audiotest.NewWAV("RIFF").Fmt(tagExtensible, 1, 16000, 2, 16, extensible(tagPCM)...).Claim("data", 0, audiotest.Second()[:9]).Encoded)
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.HasPrefix(b, []byte("RIFX")) || bytes.HasPrefix(b, []byte("RF64")) {
			audiotest.Sane(t, b)
		}
		audiotest.Sane(t, append([]byte("RIFF\x00\x00\x00\x00WAVE"), b[min(12, len(b)):]...))
	})
}

const (
	w64Riff = "riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
	w64Tail = "\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"
)

// wave64 puts a file of one second of 16-bit mono together; the data chunk says size, and before
// goes in front of it.
func wave64(size uint64, before []byte) []byte {
	b := append(le.AppendUint64([]byte(w64Riff), 0), "wave"+w64Tail...)
	b = append(b, w64Chunk("fmt ", 40, audiotest.FmtBody(tagPCM, 1, 16000, 2, 16))...)
	b = append(b, before...)
	return append(b, w64Chunk("data", size, audiotest.Second())...)
}

func w64Chunk(id string, size uint64, body []byte) []byte {
	return append(le.AppendUint64([]byte(id+w64Tail), size), body...)
}

func TestW64Fixtures(t *testing.T) {
	pcm := media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}
	piped := pcm
	piped.Method = "tail"
	ima := media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_wav", Method: "header"}
	audiotest.Agree(t, []audiotest.Decoded{
		// FFmpeg counts the padding as samples, and so do all decoders
		{File: "short.w64", Samples: 804, Want: pcm, Start: 104, PerByte: 0.5},
		{File: "piped.w64", Samples: 801, Want: piped, Start: 104, PerByte: 0.5},
		{File: "short_ima.w64", Samples: 1017, Want: ima, Start: 136, PerByte: 2.1},
	})
}

func TestW64(t *testing.T) {
	odd := append(w64Chunk("junk", 24+5, make([]byte, 5)), 0, 0, 0)
	audiotest.Measured(t, map[string]audiotest.Clip{
		"plain":                   {B: wave64(24+32000, nil), Seconds: 1, Method: "header"},
		"odd chunk before data":   {B: wave64(24+32000, odd), Seconds: 1, Method: "header"},
		"never closed":            {B: wave64(0, nil), Seconds: 1, Method: "tail"},
		"never closed, head only": {B: wave64(24, nil), Seconds: 1, Method: "tail"},
		"piped":                   {B: wave64(1<<63-1, nil), Seconds: 1, Method: "tail"},
		"all ones":                {B: wave64(1<<64-1, nil), Seconds: 1, Method: "tail"},
		"more behind":             {B: append(wave64(24+32000, nil), w64Chunk("list", 24+64, make([]byte, 64))...), Seconds: 1, Method: "header"},
		"cut, of 6 GB":            {B: wave64(24+6e9, nil), Seconds: 1, Claimed: 187500, Method: "header"},
	})
}

func TestW64Refused(t *testing.T) {
	original := wave64(24+32000, nil)
	audiotest.Refuses(t, "x.w64", []audiotest.Refusal{
		{Name: "cut head", B: original[:30], Code: fault.Corrupt, Text: "without waves"},
		{Name: "no data", B: original[:80], Code: fault.Corrupt, Text: "ends before its data chunk"},
		{Name: "empty data", B: original[:104], Code: fault.Corrupt, Text: "holds no audio, though its header claims 1.000 s"},
		{Name: "endless chunk", B: wave64(24+32000, w64Chunk("junk", 1<<63, nil)), Code: fault.Corrupt, Text: "ends before its data"},
	})
}

func FuzzW64(f *testing.F) {
	f.Add(audiotest.Fixture(f, "short.w64"))
	f.Add(audiotest.Fixture(f, "short_ima.w64"))
	f.Add(wave64(0, w64Chunk("junk", 24, nil))[:200])
	f.Fuzz(func(t *testing.T, b []byte) {
		audiotest.Sane(t, append([]byte(w64Riff), b[min(16, len(b)):]...))
	})
}
