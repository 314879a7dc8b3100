package pcm

import (
	"encoding/binary"
	"fmt"
	"strings"
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

// nist puts a SPHERE file with 32000 bytes of samples together. Each field is "name type value".
func nist(fields ...string) []byte {
	head := "NIST_1A\n   1024\n" + strings.Join(fields, "\n") + "\nend_head\n"
	return append([]byte(fmt.Sprintf("%-1024s", head)), audiotest.Second()...)
}

func TestSPHEREFixtures(t *testing.T) {
	pcm := media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}
	piped := pcm
	piped.Method = "tail"
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "short.sph", Samples: 801, Want: pcm, Start: 1024, PerByte: 0.5},
		{File: "piped.sph", Samples: 801, Want: piped, Start: 1024, PerByte: 0.5},
		{File: "short_mulaw.sph", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_mulaw", Method: "header"}, Start: 1024, PerByte: 1},
	})
}

func TestSPHERELength(t *testing.T) {
	const rate, count = "sample_rate -i 16000", "sample_count -i 16000"
	audiotest.Measured(t, map[string]audiotest.Clip{
		"as of TIMIT":          {B: nist("database_id -s5 TIMIT", count, rate, "channel_count -i 1", "sample_n_bytes -i 2", "sample_byte_format -s2 01", "sample_sig_bits -i 16"), Seconds: 1, Codec: "pcm_s16le", Method: "header"},
		"big endian stereo":    {B: nist("channel_count -i 2", "sample_count -i 8000", rate, "sample_n_bytes -i 2", "sample_byte_format -s2 10", "sample_coding -s3 pcm"), Seconds: 0.5, Codec: "pcm_s16be", Method: "header"},
		"ulaw, bytes not told": {B: nist("sample_count -i 32000", rate, "sample_coding -s4 ulaw"), Seconds: 2, Codec: "pcm_mulaw", Method: "header"},
		"alaw":                 {B: nist("sample_count -i 32000", rate, "sample_coding -s4 alaw", "sample_n_bytes -i 1"), Seconds: 2, Codec: "pcm_alaw", Method: "header"},
		"24 bits":              {B: nist("sample_count -i 10666", rate, "sample_n_bytes -i 3"), Seconds: 10666.0 / 16000, Codec: "pcm_s24le", Method: "header"},
		"real rate":            {B: nist(count, "sample_rate -r 16000.000000", "sample_n_bytes -i 2"), Seconds: 1, Codec: "pcm_s16le", Method: "header"},
		"no count":             {B: nist(rate, "sample_n_bytes -i 2"), Seconds: 1, Codec: "pcm_s16le", Method: "tail"},
		"claims half":          {B: nist("sample_count -i 8000", rate, "sample_n_bytes -i 2"), Seconds: 1, Claimed: 0.5, Codec: "pcm_s16le", Method: "header"},
		"cut":                  {B: nist("sample_count -i 32000", rate, "sample_n_bytes -i 2"), Seconds: 1, Claimed: 2, Codec: "pcm_s16le", Method: "header"},
		"shorten":              {B: nist("sample_count -i 48000", rate, "sample_coding -s26 pcm,embedded-shorten-v2.00", "sample_n_bytes -i 2"), Seconds: 3, Codec: "shorten", Method: "estimated"},
	})
}

func TestSPHERERefused(t *testing.T) {
	const rate = "sample_rate -i 16000"
	head := func(n string) []byte { return append([]byte("NIST_1A\n"+n+"\n"), audiotest.Second()...) }
	audiotest.Refuses(t, "x.sph", []audiotest.Refusal{
		{B: []byte("NIST_1A\n   10"), Code: fault.Corrupt, Text: "ends inside its header"},
		{B: nist(rate)[:1000], Code: fault.Corrupt, Text: "ends inside its header of 1024 bytes"},
		{B: nist(rate)[:1024], Code: fault.Corrupt, Text: "holds no audio"},
		{B: head("   abcd"), Code: fault.Corrupt, Text: "has no valid header length"},
		{B: head("     -1"), Code: fault.Corrupt, Text: "has no valid header length"},
		{B: head("9999999"), Code: fault.Corrupt, Text: "has no valid header length"},
		{B: nist("sample_count -i 16000"), Code: fault.Corrupt, Text: "0 Hz"},
		{B: nist("sample_rate -i 1e300"), Code: fault.Corrupt, Text: "0 Hz"},
		{B: nist(rate, "channel_count -i 1000000"), Code: fault.Corrupt, Text: "1000000 channels"},
		{B: nist(rate, "sample_n_bytes -i 7"), Code: fault.Corrupt, Text: "samples of 7 bytes"},
		{B: nist(rate, "sample_coding -s4 cvsd"), Code: fault.Unsupported, Text: `"cvsd"`},
		{B: nist(rate, "sample_coding -s20 pcm,embedded-wavpack"), Code: fault.Unsupported, Text: `"wavpack"`},
		{B: nist(rate, "sample_coding -s26 pcm,embedded-shorten-v2.00"), Code: fault.Unsupported, Text: "its header has no length"},
		{B: nist(rate, "sample_count -i 9000000", "sample_coding -s26 pcm,embedded-shorten-v2.00"), Code: fault.Corrupt, Text: "more than its 32000 bytes can hold"},
	})
}

func FuzzSPHERE(f *testing.F) {
	f.Add(audiotest.Fixture(f, "short.sph")[:1100])
	f.Add([]byte("NIST_1A\n     99\nsample_rate -i 8000\nsample_count -i 9\nsample_coding -s26 ulaw,embedded-shorten-v2.00\nend_head\n123456789"))
	f.Add([]byte("NIST_1A\n     40\nsample_rate -i 8000\nend_head12"))
	f.Fuzz(func(t *testing.T, b []byte) {
		audiotest.Sane(t, append([]byte("NIST_1A"), b[min(7, len(b)):]...))
	})
}
