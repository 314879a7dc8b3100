package riff

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// core puts a Core Audio file together.
func core(chunks ...[]byte) []byte {
	b := []byte("caff\x00\x01\x00\x00")
	for _, c := range chunks {
		b = append(b, c...)
	}
	return b
}

func wideChunk(id string, size int64, body []byte) []byte {
	return append(be.AppendUint64([]byte(id), uint64(size)), body...)
}

func desc(rate float64, kind string, flags, packetLen, packet, channels, bits uint32) []byte {
	b := append(be.AppendUint64(nil, math.Float64bits(rate)), kind...)
	for _, x := range []uint32{flags, packetLen, packet, channels, bits} {
		b = be.AppendUint32(b, x)
	}
	return wideChunk("desc", 32, b)
}

func cafData(size int64) []byte {
	return wideChunk("data", size, append(make([]byte, 4), audiotest.Second()...))
}

// pakt is a packet table with these sizes, below 128.
func pakt(packets, valid uint64, priming uint32, sizes ...byte) []byte {
	b := be.AppendUint64(be.AppendUint64(nil, packets), valid)
	b = append(be.AppendUint32(be.AppendUint32(b, priming), 0), sizes...)
	return wideChunk("pakt", int64(len(b)), b)
}

func TestCAFFixtures(t *testing.T) {
	pcm := media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}
	piped := pcm
	piped.Method, piped.Codec = "tail", "pcm_s16be"
	claimed := 4096.0 / 16000 // FFmpeg's muxer counts the last packet as full
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "short.caf", Samples: 801, Want: pcm, Start: 130, PerByte: 0.5},
		{File: "piped.caf", Samples: 801, Want: piped, Start: 130, PerByte: 0.5},
		{File: "short_ima4.caf", Samples: 832, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_qt", Method: "header"}, Start: 130, PerByte: 64.0 / 34},
		{File: "short_alac.caf", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "alac", Method: "header", ClaimedS: &claimed}, Start: 0, PerByte: 801},
		{File: "short_opus.caf", Samples: 2880, Want: media.Info{SampleRate: 48000, Channels: 1, Codec: "opus", Method: "header"}, Start: 0, PerByte: 2880},
	})
}

func TestCAFLength(t *testing.T) {
	linear := desc(16000, "lpcm", 2, 2, 1, 1, 16)
	aac := desc(16000, "aac ", 0, 0, 1024, 1, 0)
	short := wideChunk("data", 304, make([]byte, 4+150)) // says 300 bytes of packets, has 150
	audiotest.Measured(t, map[string]audiotest.Clip{
		"plain":             {B: core(linear, cafData(32004)), Seconds: 16000 / 16000.0, Codec: "pcm_s16le", Method: "header"},
		"to the end":        {B: core(linear, cafData(-1)), Seconds: 16000 / 16000.0, Codec: "pcm_s16le", Method: "tail"},
		"never closed":      {B: core(linear, cafData(0)), Seconds: 16000 / 16000.0, Codec: "pcm_s16le", Method: "tail"},
		"size of the count": {B: core(linear, cafData(4)), Seconds: 16000 / 16000.0, Codec: "pcm_s16le", Method: "tail"},
		"cut":               {B: core(linear, cafData(64004)), Seconds: 16000 / 16000.0, Claimed: 32000 / 16000.0, Codec: "pcm_s16le", Method: "header"},
		"data first":        {B: core(cafData(32004), linear), Seconds: 16000 / 16000.0, Codec: "pcm_s16le", Method: "header"},
		"float":             {B: core(desc(16000, "lpcm", 1, 8, 1, 2, 32), cafData(32004)), Seconds: 4000 / 16000.0, Codec: "pcm_f32be", Method: "header"},
		"24 bits in 4":      {B: core(desc(16000, "lpcm", 0, 4, 1, 1, 24), cafData(32004)), Seconds: 8000 / 16000.0, Codec: "pcm_s24be", Method: "header"},
		"A-law":             {B: core(desc(16000, "alaw", 0, 2, 1, 2, 8), cafData(32004)), Seconds: 16000 / 16000.0, Codec: "pcm_alaw", Method: "header"},
		"AAC":               {B: core(aac, pakt(3, 2000, 1000, 100, 100, 100), cafData(304)), Seconds: 2000 / 16000.0, Codec: "aac", Method: "header"},
		"AAC, table behind": {B: core(aac, wideChunk("data", 304, make([]byte, 304)), pakt(3, 2000, 1000, 100, 100, 100)), Seconds: 2000 / 16000.0, Codec: "aac", Method: "header"},
		"AAC, cut":          {B: core(aac, pakt(3, 3000, 72, 100, 50, 100), short), Seconds: (2*1024 - 72) / 16000.0, Claimed: 3000 / 16000.0, Codec: "aac", Method: "header"},
	})
}

func TestCAFRefused(t *testing.T) {
	aac := desc(16000, "aac ", 0, 0, 1024, 1, 0)
	audiotest.Refuses(t, "x.caf", []audiotest.Refusal{
		{B: core(), Code: fault.Corrupt, Text: "no desc chunk"},
		{B: core(wideChunk("desc", 8, make([]byte, 8))), Code: fault.Corrupt, Text: "desc chunk of 8 bytes"},
		{B: core(desc(16000, "lpcm", 2, 2, 1, 1, 16)), Code: fault.Corrupt, Text: "ends before its data chunk"},
		{B: core(desc(16000, "lpcm", 2, 2, 1, 1, 16), cafData(32004)[:16]), Code: fault.Corrupt, Text: "claims 1.000 s"},
		{B: core(desc(math.NaN(), "lpcm", 2, 2, 1, 1, 16), cafData(32004)), Code: fault.Corrupt, Text: "sample rate of NaN"},
		{B: core(desc(math.Inf(1), "lpcm", 2, 2, 1, 1, 16), cafData(32004)), Code: fault.Corrupt, Text: "sample rate of +Inf"},
		{B: core(desc(16000, "lpcm", 2, 2, 1, 0, 16), cafData(32004)), Code: fault.Corrupt, Text: "0 channels"},
		{B: core(desc(16000, "lpcm", 2, 0, 1, 1, 16), cafData(32004)), Code: fault.Corrupt, Text: "packets of 0 bytes"},
		{B: core(desc(16000, "lpcm", 2, 2, 1, 1, 99), cafData(32004)), Code: fault.Corrupt, Text: "99 bits"},
		{B: core(desc(16000, "QDM2", 0, 0, 0, 1, 0), cafData(32004)), Code: fault.Unsupported, Text: `"QDM2"`},
		{B: core(desc(16000, "aac ", 0, 0, 0, 1, 0), cafData(32004)), Code: fault.Unsupported, Text: "packets of 0 samples"},
		{B: core(aac, cafData(32004)), Code: fault.Corrupt, Text: "ends before its packet table"},
		{B: core(aac, cafData(32004), pakt(1, 1024, 0)), Code: fault.Corrupt, Text: "claims 1 packets"},
		{B: core(aac, cafData(32004), pakt(1, 1<<62, 0, 9)), Code: fault.Corrupt, Text: "claims 1 packets and 4611686018427387904 samples"},
		{B: core(aac, cafData(32004), pakt(1<<63, 5, 0, 9)), Code: fault.Corrupt, Text: "packets"},
		{B: core(aac, cafData(32004), pakt(1, 5, 1<<31, 9)), Code: fault.Corrupt, Text: "packets"},
		{B: core(aac, wideChunk("data", 20, make([]byte, 20)), pakt(1, 1000, 0, 100)), Code: fault.Corrupt, Text: "holds no audio, though"},
	})
}

func TestVarint(t *testing.T) {
	for b, want := range map[string][2]int64{"\x05": {5, 1}, "\x81\x00": {128, 2}, "\x81": {0, 0}, "": {0, 0}, "\xff\xff\xff\xff\xff\x01": {0, 0}} {
		n, used := varint([]byte(b))
		assert.Equal(t, want, [2]int64{n, int64(used)}, "%x", b)
	}
}

func FuzzCAF(f *testing.F) {
	for _, name := range []string{"short.caf", "short_alac.caf", "short_opus.caf", "short_ima4.caf"} {
		f.Add(audiotest.Fixture(f, name))
	}
	f.Add(core(desc(16000, "aac ", 0, 0, 1024, 1, 0), pakt(3, 2000, 1000, 100, 100, 100), cafData(-1)[:99]))
	f.Fuzz(func(t *testing.T, b []byte) {
		audiotest.Sane(t, append([]byte("caff\x00\x01\x00\x00"), b[min(8, len(b)):]...))
	})
}
