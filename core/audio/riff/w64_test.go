package riff

import (
	"testing"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

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
