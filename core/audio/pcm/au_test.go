package pcm

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// au puts a file with 32000 bytes of samples together.
func au(magic string, order binary.AppendByteOrder, offset, size, encoding, rate, channels uint32) []byte {
	b := []byte(magic)
	for _, x := range []uint32{offset, size, encoding, rate, channels} {
		b = order.AppendUint32(b, x)
	}
	if offset > 24 && offset < 100 {
		b = append(b, make([]byte, offset-24)...)
	}
	return append(b, audiotest.Second()...)
}

func TestAUFixtures(t *testing.T) {
	pcm := media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16be", Method: "header"}
	little := pcm
	little.Codec = "pcm_s16le"
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "short.au", Samples: 801, Want: pcm, Start: 44, PerByte: 0.5},
		{File: "short_le.au", Samples: 801, Want: little, Start: 44, PerByte: 0.5},
		{File: "piped.au", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_mulaw", Method: "tail"}, Start: 32, PerByte: 1},
		{File: "short_g726_8k.au", Samples: 402, Want: media.Info{SampleRate: 8000, Channels: 1, Bits: 4, Codec: "adpcm_g726le", Method: "header"}, Start: 32, PerByte: 2},
		{File: "short_g722_8k.au", Samples: 402, Want: media.Info{SampleRate: 8000, Channels: 1, Bits: 4, Codec: "adpcm_g722", Method: "header"}, Start: 32, PerByte: 2},
	})
}

// TestAUEncodings holds the lengths of 32000 bytes that FFmpeg and sox decode.
func TestAUEncodings(t *testing.T) {
	clips := map[string]audiotest.Clip{}
	for encoding, c := range map[uint32]struct {
		samples float64
		codec   string
	}{
		1: {32000, "pcm_mulaw"}, 2: {32000, "pcm_s8"}, 3: {16000, "pcm_s16be"}, 4: {10666, "pcm_s24be"}, 5: {8000, "pcm_s32be"},
		6: {8000, "pcm_f32be"}, 7: {4000, "pcm_f64be"}, 23: {64000, "adpcm_g726le"}, 24: {64000, "adpcm_g722"},
		25: {85333, "adpcm_g726le"}, 26: {51200, "adpcm_g726le"}, 27: {32000, "pcm_alaw"},
	} {
		clips[c.codec+fmt.Sprint(encoding)] = audiotest.Clip{B: au(".snd", be, 28, 32000, encoding, 8000, 1), Seconds: c.samples / 8000, Codec: c.codec}
	}
	audiotest.Measured(t, clips)
}

func TestAULength(t *testing.T) {
	audiotest.Measured(t, map[string]audiotest.Clip{
		"size not known":       {B: au(".snd", be, 28, 0xffffffff, 3, 16000, 1), Seconds: 1, Codec: "pcm_s16be", Method: "tail"},
		"size never filled in": {B: au(".snd", be, 28, 0, 3, 16000, 1), Seconds: 1, Codec: "pcm_s16be", Method: "tail"},
		"text between":         {B: au(".snd", be, 60, 32000, 3, 16000, 2), Seconds: 0.5, Codec: "pcm_s16be", Method: "header"},
		"more behind":          {B: au(".snd", be, 24, 16000, 3, 16000, 1), Seconds: 0.5, Codec: "pcm_s16be", Method: "header"},
		"cut":                  {B: au(".snd", be, 24, 64000, 3, 16000, 1), Seconds: 1, Claimed: 2, Codec: "pcm_s16be", Method: "header"},
		"libsndfile's little":  {B: au("dns.", le, 24, 32000, 3, 16000, 1), Seconds: 1, Codec: "pcm_s16le", Method: "header"},
		"DEC's little":         {B: au(".sd\x00", be, 24, 32000, 3, 16000, 1), Seconds: 1, Codec: "pcm_s16be", Method: "header"},
	})
}

func TestAURefused(t *testing.T) {
	audiotest.Refuses(t, "x.au", []audiotest.Refusal{
		{B: []byte(".snd\x00\x00"), Code: fault.Corrupt, Text: "ends inside its header"},
		{B: au(".snd", be, 8, 32000, 3, 16000, 1), Code: fault.Corrupt, Text: "inside its header"},
		{B: au(".snd", be, 0xfffffff0, 32000, 3, 16000, 1), Code: fault.Corrupt, Text: "claims 1.000 s"},
		{B: au(".snd", be, 24, 32000, 3, 16000, 0), Code: fault.Corrupt, Text: "0 channels"},
		{B: au(".snd", be, 24, 32000, 3, 16000, 1<<31), Code: fault.Corrupt, Text: "2147483648 channels"},
		{B: au(".snd", be, 24, 32000, 3, 0, 1), Code: fault.Corrupt, Text: "0 Hz"},
		{B: au(".snd", be, 24, 32000, 10, 16000, 1), Code: fault.Unsupported, Text: "encoding 10"},
		{B: au(".snd", be, 24, 1, 3, 16000, 1), Code: fault.Corrupt, Text: "holds no audio"},
	})
}

func FuzzAU(f *testing.F) {
	for _, name := range []string{"short.au", "short_le.au", "piped.au", "short_g726_8k.au"} {
		f.Add(audiotest.Fixture(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !IsAU(b) {
			b = append([]byte(".snd"), b...)
		}
		audiotest.Sane(t, b)
	})
}
