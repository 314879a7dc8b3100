package audio

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	return append(b, second()...)
}

func TestAUFixtures(t *testing.T) {
	pcm := Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16be", Method: "header"}
	little := pcm
	little.Codec = "pcm_s16le"
	agree(t, []decoded{
		{"short.au", 801, pcm, 44, 0.5},
		{"short_le.au", 801, little, 44, 0.5},
		{"piped.au", 801, Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_mulaw", Method: "tail"}, 32, 1},
		{"short_g726_8k.au", 402, Info{SampleRate: 8000, Channels: 1, Bits: 4, Codec: "adpcm_g726le", Method: "header"}, 32, 2},
		{"short_g722_8k.au", 402, Info{SampleRate: 8000, Channels: 1, Bits: 4, Codec: "adpcm_g722", Method: "header"}, 32, 2},
	})
}

// TestAUEncodings holds the lengths of 32000 bytes that FFmpeg and sox decode.
func TestAUEncodings(t *testing.T) {
	for encoding, c := range map[uint32]struct {
		samples int
		codec   string
	}{
		1: {32000, "pcm_mulaw"}, 2: {32000, "pcm_s8"}, 3: {16000, "pcm_s16be"}, 4: {10666, "pcm_s24be"}, 5: {8000, "pcm_s32be"},
		6: {8000, "pcm_f32be"}, 7: {4000, "pcm_f64be"}, 23: {64000, "adpcm_g726le"}, 24: {64000, "adpcm_g722"},
		25: {85333, "adpcm_g726le"}, 26: {51200, "adpcm_g726le"}, 27: {32000, "pcm_alaw"},
	} {
		info, err := Bytes("x.au", au(".snd", be, 28, 32000, encoding, 8000, 1))
		require.NoError(t, err, encoding)
		assert.Equal(t, c.codec, info.Codec)
		assert.InDelta(t, float64(c.samples)/8000, info.DurationS, 1e-9, encoding)
		assert.Nil(t, info.ClaimedS)
	}
}

func TestAULength(t *testing.T) {
	tells(t, map[string]told{
		"size not known":       {au(".snd", be, 28, 0xffffffff, 3, 16000, 1), 1, 0, "pcm_s16be", "tail"},
		"size never filled in": {au(".snd", be, 28, 0, 3, 16000, 1), 1, 0, "pcm_s16be", "tail"},
		"text between":         {au(".snd", be, 60, 32000, 3, 16000, 2), 0.5, 0, "pcm_s16be", "header"},
		"more behind":          {au(".snd", be, 24, 16000, 3, 16000, 1), 0.5, 0, "pcm_s16be", "header"},
		"cut":                  {au(".snd", be, 24, 64000, 3, 16000, 1), 1, 2, "pcm_s16be", "header"},
		"libsndfile's little":  {au("dns.", le, 24, 32000, 3, 16000, 1), 1, 0, "pcm_s16le", "header"},
		"DEC's little":         {au(".sd\x00", be, 24, 32000, 3, 16000, 1), 1, 0, "pcm_s16be", "header"},
	})
}

func TestAURefused(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		code fault.Code
		text string
	}{
		{[]byte(".snd\x00\x00"), fault.Corrupt, "ends inside its header"},
		{au(".snd", be, 8, 32000, 3, 16000, 1), fault.Corrupt, "inside its header"},
		{au(".snd", be, 0xfffffff0, 32000, 3, 16000, 1), fault.Corrupt, "claims 1.000 s"},
		{au(".snd", be, 24, 32000, 3, 16000, 0), fault.Corrupt, "0 channels"},
		{au(".snd", be, 24, 32000, 3, 16000, 1<<31), fault.Corrupt, "2147483648 channels"},
		{au(".snd", be, 24, 32000, 3, 0, 1), fault.Corrupt, "0 Hz"},
		{au(".snd", be, 24, 32000, 10, 16000, 1), fault.Unsupported, "encoding 10"},
		{au(".snd", be, 24, 1, 3, 16000, 1), fault.Corrupt, "holds no audio"},
	} {
		_, err := Bytes("x.au", c.b)
		refusedAs(t, err, c.code, "x.au: ", c.text)
	}
}

func FuzzAU(f *testing.F) {
	for _, name := range []string{"short.au", "short_le.au", "piped.au", "short_g726_8k.au"} {
		f.Add(fixture(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !isAU(b) {
			b = append([]byte(".snd"), b...)
		}
		sane(t, b)
	})
}
