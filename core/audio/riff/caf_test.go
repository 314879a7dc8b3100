package riff

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	for name, c := range map[string]struct {
		b                []byte
		samples, claimed float64
		codec, method    string
	}{
		"plain":             {core(linear, cafData(32004)), 16000, 0, "pcm_s16le", "header"},
		"to the end":        {core(linear, cafData(-1)), 16000, 0, "pcm_s16le", "tail"},
		"never closed":      {core(linear, cafData(0)), 16000, 0, "pcm_s16le", "tail"},
		"size of the count": {core(linear, cafData(4)), 16000, 0, "pcm_s16le", "tail"},
		"cut":               {core(linear, cafData(64004)), 16000, 32000, "pcm_s16le", "header"},
		"data first":        {core(cafData(32004), linear), 16000, 0, "pcm_s16le", "header"},
		"float":             {core(desc(16000, "lpcm", 1, 8, 1, 2, 32), cafData(32004)), 4000, 0, "pcm_f32be", "header"},
		"24 bits in 4":      {core(desc(16000, "lpcm", 0, 4, 1, 1, 24), cafData(32004)), 8000, 0, "pcm_s24be", "header"},
		"A-law":             {core(desc(16000, "alaw", 0, 2, 1, 2, 8), cafData(32004)), 16000, 0, "pcm_alaw", "header"},
		"AAC":               {core(aac, pakt(3, 2000, 1000, 100, 100, 100), cafData(304)), 2000, 0, "aac", "header"},
		"AAC, table behind": {core(aac, wideChunk("data", 304, make([]byte, 304)), pakt(3, 2000, 1000, 100, 100, 100)), 2000, 0, "aac", "header"},
		"AAC, cut":          {core(aac, pakt(3, 3000, 72, 100, 50, 100), short), 2*1024 - 72, 3000, "aac", "header"},
	} {
		info, err := audiotest.Bytes(name, c.b)
		require.NoError(t, err, name)
		assert.Equal(t, []any{c.codec, c.method}, []any{info.Codec, info.Method}, name)
		assert.InDelta(t, c.samples, info.DurationS*16000, 1e-6, name)
		if c.claimed == 0 {
			assert.Nil(t, info.ClaimedS, name)
		} else if assert.NotNil(t, info.ClaimedS, name) {
			assert.InDelta(t, c.claimed, *info.ClaimedS*16000, 1e-6, name)
		}
	}
}

func TestCAFRefused(t *testing.T) {
	aac := desc(16000, "aac ", 0, 0, 1024, 1, 0)
	for _, c := range []struct {
		b    []byte
		code fault.Code
		text string
	}{
		{core(), fault.Corrupt, "no desc chunk"},
		{core(wideChunk("desc", 8, make([]byte, 8))), fault.Corrupt, "desc chunk of 8 bytes"},
		{core(desc(16000, "lpcm", 2, 2, 1, 1, 16)), fault.Corrupt, "ends before its data chunk"},
		{core(desc(16000, "lpcm", 2, 2, 1, 1, 16), cafData(32004)[:16]), fault.Corrupt, "claims 1.000 s"},
		{core(desc(math.NaN(), "lpcm", 2, 2, 1, 1, 16), cafData(32004)), fault.Corrupt, "sample rate of NaN"},
		{core(desc(math.Inf(1), "lpcm", 2, 2, 1, 1, 16), cafData(32004)), fault.Corrupt, "sample rate of +Inf"},
		{core(desc(16000, "lpcm", 2, 2, 1, 0, 16), cafData(32004)), fault.Corrupt, "0 channels"},
		{core(desc(16000, "lpcm", 2, 0, 1, 1, 16), cafData(32004)), fault.Corrupt, "packets of 0 bytes"},
		{core(desc(16000, "lpcm", 2, 2, 1, 1, 99), cafData(32004)), fault.Corrupt, "99 bits"},
		{core(desc(16000, "QDM2", 0, 0, 0, 1, 0), cafData(32004)), fault.Unsupported, `"QDM2"`},
		{core(desc(16000, "aac ", 0, 0, 0, 1, 0), cafData(32004)), fault.Unsupported, "packets of 0 samples"},
		{core(aac, cafData(32004)), fault.Corrupt, "ends before its packet table"},
		{core(aac, cafData(32004), pakt(1, 1024, 0)), fault.Corrupt, "claims 1 packets"},
		{core(aac, cafData(32004), pakt(1, 1<<62, 0, 9)), fault.Corrupt, "claims 1 packets and 4611686018427387904 samples"},
		{core(aac, cafData(32004), pakt(1<<63, 5, 0, 9)), fault.Corrupt, "packets"},
		{core(aac, cafData(32004), pakt(1, 5, 1<<31, 9)), fault.Corrupt, "packets"},
		{core(aac, wideChunk("data", 20, make([]byte, 20)), pakt(1, 1000, 0, 100)), fault.Corrupt, "holds no audio, though"},
	} {
		_, err := audiotest.Bytes("x.caf", c.b)
		audiotest.RefusedAs(t, err, c.code, "x.caf: ", c.text)
	}
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
