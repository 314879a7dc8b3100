package riff

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	goaudio "github.com/go-audio/audio"
	"github.com/go-audio/wav"
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
	cases := []struct {
		name    string
		file    *audiotest.WAV
		seconds float64
		claimed float64 // 0: none
		codec   string
	}{
		{"plain", pcm16().Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"8 bits", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 8000, 1, 8).Chunk("data", make([]byte, 8001)), 8001.0 / 8000, 0, "pcm_u8"},
		{"24 bits stereo", audiotest.NewWAV("RIFF").Fmt(tagPCM, 2, 48000, 6, 24).Chunk("data", make([]byte, 48000*6)), 1, 0, "pcm_s24le"},
		{"24 bits in 4 bytes", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 4, 24).Chunk("data", make([]byte, 4000)), 1, 0, "pcm_s32le"},
		{"32 bits", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 4, 32).Chunk("data", make([]byte, 2000)), 0.5, 0, "pcm_s32le"},
		{"float", audiotest.NewWAV("RIFF").Fmt(tagFloat, 1, 1000, 4, 32, 0, 0).Chunk("fact", []byte{9, 0, 0, 0}).Chunk("data", make([]byte, 4000)), 1, 0, "pcm_f32le"},
		{"double", audiotest.NewWAV("RIFF").Fmt(tagFloat, 1, 1000, 8, 64).Chunk("data", make([]byte, 8000)), 1, 0, "pcm_f64le"},
		{"A-law", audiotest.NewWAV("RIFF").Fmt(tagALaw, 1, 8000, 1, 8).Chunk("data", make([]byte, 4000)), 0.5, 0, "pcm_alaw"},
		{"mu-law", audiotest.NewWAV("RIFF").Fmt(tagMuLaw, 2, 8000, 2, 8).Chunk("data", make([]byte, 4000)), 0.25, 0, "pcm_mulaw"},
		{"extensible", audiotest.NewWAV("RIFF").Fmt(tagExtensible, 1, 16000, 2, 16, extensible(tagPCM)...).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"extensible float", audiotest.NewWAV("RIFF").Fmt(tagExtensible, 1, 8000, 4, 32, extensible(tagFloat)...).Chunk("data", audiotest.Second()), 1, 0, "pcm_f32le"},
		{"long LIST and odd JUNK before data", pcm16().Chunk("LIST", make([]byte, 320001)).Chunk("JUNK", make([]byte, 5)).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"JUNK before fmt", audiotest.NewWAV("RIFF").Chunk("JUNK", make([]byte, 28)).Fmt(tagPCM, 1, 16000, 2, 16).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"LIST after data", pcm16().Chunk("data", audiotest.Second()).Chunk("LIST", make([]byte, 5000)), 1, 0, "pcm_s16le"},
		{"piped by FFmpeg", pcm16().Claim("data", 0xffffffff, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"piped by espeak-ng", pcm16().Claim("data", 0x7ffff000, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"never closed", pcm16().Claim("data", 0, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"RF64", audiotest.NewWAV("RF64").Chunk("ds64", ds64(32000)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Chunk("LIST", make([]byte, 64)), 1, 0, "pcm_s16le"},
		{"BW64", audiotest.NewWAV("BW64").Chunk("ds64", ds64(32000)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"RF64 never closed", audiotest.NewWAV("RF64").Chunk("ds64", ds64(0)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"RF64 cut", audiotest.NewWAV("RF64").Chunk("ds64", ds64(10<<30)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()), 1, (10 << 30) / 32000.0, "pcm_s16le"},
		{"cut", pcm16().Claim("data", 320000, audiotest.Second()), 1, 10, "pcm_s16le"},
		{"cut inside a sample", pcm16().Claim("data", 64000, make([]byte, 32001)), 1, 2, "pcm_s16le"},
		{"IMA ADPCM, fact inside the last block", audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("fact", []byte{0xe8, 3, 0, 0}).Chunk("data", make([]byte, 512)), 1.01, 0, "adpcm_ima_wav"},
		{"IMA ADPCM, fact far off", audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("fact", []byte{0xf4, 1, 0, 0}).Chunk("data", make([]byte, 512)), 1.01, 0.5, "adpcm_ima_wav"},
		{"IMA ADPCM stereo, fact over both channels", audiotest.NewWAV("RIFF").Fmt(tagIMA, 2, 1000, 512, 4, ima...).Chunk("fact", []byte{0xf2, 3, 0, 0}).Chunk("data", make([]byte, 512)), 0.505, 0, "adpcm_ima_wav"},
		{"IMA ADPCM without fact", audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("data", make([]byte, 512)), 1.01, 0, "adpcm_ima_wav"},
		{"IMA ADPCM, half a block", audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("data", make([]byte, 256+128)), 0.505 + 0.249, 0, "adpcm_ima_wav"},
		{"IMA ADPCM cut", audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 4, ima...).Chunk("fact", []byte{0xe8, 3, 0, 0}).Claim("data", 512, make([]byte, 256)), 0.505, 1.01, "adpcm_ima_wav"},
		{"IMA ADPCM of 3 bits", audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 1000, 256, 3, 2, 0, 0, 0).Chunk("data", make([]byte, 2560)), 6.73, 0, "adpcm_ima_wav"},
		{"MS ADPCM", audiotest.NewWAV("RIFF").Fmt(tagADPCM, 1, 1000, 256, 4).Chunk("data", make([]byte, 512)), 1, 0, "adpcm_ms"},
		{"MS ADPCM, half a block", audiotest.NewWAV("RIFF").Fmt(tagADPCM, 1, 1000, 256, 4).Chunk("data", make([]byte, 256+131)), 0.75, 0, "adpcm_ms"},
		{"OKI ADPCM", audiotest.NewWAV("RIFF").Fmt(0x10, 1, 8000, 1, 4).Chunk("data", make([]byte, 4000)), 1, 0, "adpcm_ima_oki"},
		{"G.729", audiotest.NewWAV("RIFF").Fmt(0x83, 1, 8000, 10, 0).Chunk("data", make([]byte, 1009)), 1, 0, "g729"},
		{"GSM, half a block", audiotest.NewWAV("RIFF").Fmt(tagGSM, 1, 8000, 65, 0, 2, 0, 0x40, 1).Chunk("data", make([]byte, 65*25+33)), 1, 0, "gsm_ms"},
		{"64 bits", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 8, 64).Chunk("data", make([]byte, 8000)), 1, 0, "pcm_s64le"},
		{"20 bits in 3 bytes", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 1000, 3, 20).Chunk("data", make([]byte, 3000)), 1, 0, "pcm_s24le"},
		{"no bits", audiotest.NewWAV("RIFF").Fmt(tagPCM, 2, 1000, 4, 0).Chunk("data", make([]byte, 4000)), 1, 0, "pcm_s16le"},
		{"A-law that says 16 bits", audiotest.NewWAV("RIFF").Fmt(tagALaw, 1, 8000, 1, 16).Chunk("data", make([]byte, 8000)), 1, 0, "pcm_alaw"},
		{"block size 0", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 0, 16).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"block size of one channel for two", audiotest.NewWAV("RIFF").Fmt(tagPCM, 2, 16000, 2, 16).Chunk("data", audiotest.Second()), 0.5, 0, "pcm_s16le"},
		{"block size too large", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 8, 16).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"two fmt chunks", pcm16().Fmt(tagPCM, 1, 8000, 2, 16).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"fmt behind data", audiotest.NewWAV("RIFF").Chunk("data", audiotest.Second()).Fmt(tagPCM, 1, 16000, 2, 16), 1, 0, "pcm_s16le"},
		{"two data chunks", pcm16().Chunk("data", audiotest.Second()).Chunk("LIST", make([]byte, 8)).Chunk("data", audiotest.Second()[:16000]), 1, 1.5, "pcm_s16le"},
		{"an empty data chunk first", pcm16().Chunk("data", nil).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"no padding behind an odd LIST", pcm16().Claim("LIST", 5, make([]byte, 5)).Chunk("data", audiotest.Second()), 1, 0, "pcm_s16le"},
		{"garbage behind the data", pcm16().Chunk("data", audiotest.Second()).Claim("\x00\x01\x02\x03", 77, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"piped by lame", pcm16().Claim("data", 0xffffffff-36, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"piped by arecord", pcm16().Claim("data", 0x80000000, audiotest.Second()), 1, 0, "pcm_s16le"},
		{"3 GiB, cut", pcm16().Claim("data", 0xc0000000, audiotest.Second()), 1, 0xc0000000 / 32000.0, "pcm_s16le"},
		{"RIFF with ds64", audiotest.NewWAV("RIFF").Chunk("ds64", ds64(32000)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()).Chunk("LIST", make([]byte, 64)), 1, 0, "pcm_s16le"},
		{"RF64 of a size beyond belief", audiotest.NewWAV("RF64").Chunk("ds64", ds64(1<<63)).Fmt(tagPCM, 1, 16000, 2, 16).Claim("data", 0xffffffff, audiotest.Second()), 1, 0, "pcm_s16le"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			info, err := audiotest.Bytes(c.name, c.file.Encoded)
			require.NoError(t, err)
			assert.InDelta(t, c.seconds, info.DurationS, 1e-9)
			assert.Equal(t, c.codec, info.Codec)
			if c.claimed == 0 {
				assert.Nil(t, info.ClaimedS)
			} else if assert.NotNil(t, info.ClaimedS) {
				assert.InDelta(t, c.claimed, *info.ClaimedS, 1e-9)
			}
			onDisk, size, err := audiotest.File(audiotest.Write(t, c.file.Encoded))
			require.NoError(t, err)
			assert.Equal(t, info, onDisk, "the same from a file")
			assert.EqualValues(t, len(c.file.Encoded), size)
		})
	}
}

func TestWAVRefused(t *testing.T) {
	manyChunks := audiotest.NewWAV("RIFF")
	for range maxChunks + 1 {
		manyChunks.Chunk("JUNK", nil)
	}
	cases := []struct {
		name string
		file *audiotest.WAV
		code fault.Code
		text string
	}{
		{"empty data", pcm16().Chunk("data", nil), fault.Corrupt, "holds no audio"},
		{"empty data, then LIST", pcm16().Chunk("data", nil).Chunk("LIST", make([]byte, 40)), fault.Corrupt, "holds no audio"},
		{"header only, claims 1 s", pcm16().Claim("data", 32000, nil), fault.Corrupt, "holds no audio, though its header claims 1.000 s"},
		{"less than one sample", pcm16().Chunk("data", []byte{1}), fault.Corrupt, "holds no audio"},
		{"no data chunk", pcm16(), fault.Corrupt, "ends before its data chunk"},
		{"data before fmt", audiotest.NewWAV("RIFF").Chunk("data", audiotest.Second()), fault.Corrupt, "no fmt chunk with its data"},
		{"short fmt", audiotest.NewWAV("RIFF").Chunk("fmt ", make([]byte, 14)), fault.Corrupt, "fmt chunk of 14 bytes"},
		{"rate 0", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 0, 2, 16).Chunk("data", audiotest.Second()), fault.Corrupt, "sample rate of 0 Hz"},
		{"channels 0", audiotest.NewWAV("RIFF").Fmt(tagPCM, 0, 16000, 2, 16).Chunk("data", audiotest.Second()), fault.Corrupt, "0 channels"},
		{"no bits and no block size", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 0, 0).Chunk("data", audiotest.Second()), fault.Corrupt, "samples of 0 bits"},
		{"56 bits", audiotest.NewWAV("RIFF").Fmt(tagPCM, 1, 16000, 7, 56).Chunk("data", audiotest.Second()), fault.Corrupt, "samples of 56 bits and blocks of 7 bytes"},
		{"extensible without a codec", audiotest.NewWAV("RIFF").Fmt(tagExtensible, 1, 16000, 2, 16, 0, 0).Chunk("data", audiotest.Second()), fault.Corrupt, "too short to name its codec"},
		{"wave list", pcm16().Chunk("LIST", []byte("wavldata")).Chunk("data", audiotest.Second()), fault.Unsupported, "list of waves"},
		{"1-bit G.726", audiotest.NewWAV("RIFF").Fmt(0x45, 1, 8000, 1, 1).Chunk("data", audiotest.Second()), fault.Corrupt, "1 bits"},
		{"stereo GSM", audiotest.NewWAV("RIFF").Fmt(tagGSM, 2, 8000, 65, 0).Chunk("data", audiotest.Second()), fault.Corrupt, "2 channels instead of one"},
		{"ADPCM block too short", audiotest.NewWAV("RIFF").Fmt(tagIMA, 2, 16000, 4, 4).Chunk("data", audiotest.Second()), fault.Corrupt, "shorter than their header"},
		{"7-bit ADPCM", audiotest.NewWAV("RIFF").Fmt(tagIMA, 1, 16000, 256, 7).Chunk("data", audiotest.Second()), fault.Unsupported, "7 bits"},
		{"no MP3 inside", audiotest.NewWAV("RIFF").Fmt(0x55, 1, 16000, 1, 0).Chunk("data", audiotest.Second()), fault.Corrupt, "holds no frames"},
		{"WMA inside", audiotest.NewWAV("RIFF").Fmt(0x161, 1, 16000, 1, 0).Chunk("data", audiotest.Second()), fault.Unsupported, "WMA inside"},
		{"unknown codec", audiotest.NewWAV("RIFF").Fmt(0x1234, 1, 16000, 1, 0).Chunk("data", audiotest.Second()), fault.Unsupported, "0x1234"},
		{"endless small chunks", manyChunks, fault.Corrupt, "more than 1024 chunks"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := audiotest.Bytes("clip.wav", c.file.Encoded)
			audiotest.RefusedAs(t, err, c.code, "clip.wav: ", c.text)
		})
	}
}

func TestWAVFixtures(t *testing.T) {
	audiotest.Agree(t, []audiotest.Decoded{
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
		info, n, err := audiotest.File(path)
		require.NoError(t, err, name)
		assert.EqualValues(t, len(c.head.Encoded)+size, n)
		assert.Equal(t, size/32000.0, info.DurationS, name)
		if c.claimed == 0 {
			assert.Nil(t, info.ClaimedS, name)
		} else if assert.NotNil(t, info.ClaimedS, name) {
			assert.Equal(t, c.claimed, *info.ClaimedS, name)
		}
	}
}

// TestWAVAgreesWithDecoder compares durations of plain PCM with go-audio/wav as encoder and as
// decoder.
func TestWAVAgreesWithDecoder(t *testing.T) {
	for _, bits := range []int{8, 16, 24, 32} {
		for _, channels := range []int{1, 2} {
			path := filepath.Join(t.TempDir(), "x.wav")
			f, err := os.Create(path)
			require.NoError(t, err)
			e := wav.NewEncoder(f, 22050, bits, channels, 1)
			format := &goaudio.Format{NumChannels: channels, SampleRate: 22050}
			require.NoError(t, e.Write(&goaudio.IntBuffer{Format: format, Data: make([]int, 12345*channels), SourceBitDepth: bits}))
			require.NoError(t, e.Close())
			require.NoError(t, f.Close())

			b, err := os.ReadFile(path)
			require.NoError(t, err)
			buffer, err := wav.NewDecoder(bytes.NewReader(b)).FullPCMBuffer()
			require.NoError(t, err)
			info, _, err := audiotest.File(path)
			require.NoError(t, err)
			assert.InDelta(t, float64(buffer.NumFrames())/22050, info.DurationS, 1e-9)
			assert.Equal(t, []int{22050, channels, bits}, []int{info.SampleRate, info.Channels, info.Bits})
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
