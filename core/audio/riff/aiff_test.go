package riff

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// rate80 is 16000 Hz as IEEE 754 extended.
const rate80 = "\x40\x0c\xfa\x00\x00\x00\x00\x00\x00\x00"

// form puts an AIFF or AIFC file together.
func form(kind string, chunks ...[]byte) []byte {
	b := []byte("FORM\x00\x00\x00\x00" + kind)
	for _, c := range chunks {
		b = append(b, c...)
	}
	return b
}

// bigChunk is a chunk whose size field says size.
func bigChunk(id string, size uint32, body []byte) []byte {
	return append(be.AppendUint32([]byte(id), size), body...)
}

func comm(channels, frames, bits int, kind string) []byte {
	b := be.AppendUint16(nil, uint16(channels))
	b = be.AppendUint16(be.AppendUint32(b, uint32(frames)), uint16(bits))
	b = append(b, rate80+kind...)
	return bigChunk("COMM", uint32(len(b)), b)
}

func ssnd(offset uint32, body []byte) []byte {
	b := append(be.AppendUint64(nil, uint64(offset)<<32), body...)
	return bigChunk("SSND", uint32(len(b)), b)
}

func ssndClaim(size uint32, body []byte) []byte {
	return bigChunk("SSND", size, append(make([]byte, 8), body...))
}

func TestAIFFFixtures(t *testing.T) {
	pcm := media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16be", Method: "header"}
	piped, little := pcm, pcm
	piped.Method, little.Codec = "tail", "pcm_s16le"
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "short.aiff", Samples: 801, Want: pcm, Start: 88, PerByte: 0.5},
		{File: "piped_sox.aiff", Samples: 801, Want: piped, Start: 88, PerByte: 0.5},
		{File: "piped_ffmpeg.aiff", Samples: 801, Want: piped, Start: 54, PerByte: 0.5},
		{File: "short_sowt.aifc", Samples: 801, Want: little, Start: 72, PerByte: 0.5},
		{File: "short_fl32.aifc", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 32, Codec: "pcm_f32be", Method: "header"}, Start: 72, PerByte: 0.25},
		{File: "short_alaw.aifc", Samples: 801, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_alaw", Method: "header"}, Start: 72, PerByte: 1},
		{File: "short_ima4.aifc", Samples: 832, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_qt", Method: "header"}, Start: 72, PerByte: 64.0 / 34},
	})
}

func TestAIFFLength(t *testing.T) {
	odd := bigChunk("NAME", 3, []byte("abc\x00"))
	audiotest.Measured(t, map[string]audiotest.Clip{
		"plain":                     {B: form("AIFF", comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"odd chunk":                 {B: form("AIFF", odd, comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"odd chunk, padding forgot": {B: form("AIFF", odd[:11], comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"sound first":               {B: form("AIFF", ssnd(0, audiotest.Second()), comm(1, 16000, 16, "")), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"12 bits stereo":            {B: form("AIFF", comm(2, 8000, 12, ""), ssnd(0, audiotest.Second())), Seconds: 8000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"20 bits":                   {B: form("AIFF", comm(1, 8000, 20, ""), ssnd(0, audiotest.Second()[:24000])), Seconds: 8000 / 16000.0, Codec: "pcm_s24be", Method: "header"},
		"offset":                    {B: form("AIFF", comm(1, 15000, 16, ""), ssnd(2000, audiotest.Second())), Seconds: 15000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"offset, sound first":       {B: form("AIFF", ssnd(2000, audiotest.Second()), comm(1, 15000, 16, "")), Seconds: 15000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"COMM says half":            {B: form("AIFF", comm(1, 8000, 16, ""), ssnd(0, audiotest.Second())), Seconds: 16000 / 16000.0, Claimed: 8000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"COMM says double":          {B: form("AIFF", comm(1, 32000, 16, ""), ssnd(0, audiotest.Second())), Seconds: 16000 / 16000.0, Claimed: 32000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"COMM says nothing":         {B: form("AIFF", comm(1, 0, 16, ""), ssnd(0, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"cut":                       {B: form("AIFF", comm(1, 32000, 16, ""), ssndClaim(64008, audiotest.Second())), Seconds: 16000 / 16000.0, Claimed: 32000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"never closed":              {B: form("AIFF", comm(1, 0, 16, ""), ssndClaim(0, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "tail"},
		"all ones":                  {B: form("AIFF", comm(1, 0, 16, ""), ssndClaim(0xffffffff, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "tail"},
		"sox's open size":           {B: form("AIFF", comm(1, 0x3f800000, 16, ""), ssndClaim(0x7f000008, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "tail"},
		"sowt of 8 bits":            {B: form("AIFC", comm(1, 32000, 8, "sowt\x00\x00"), ssnd(0, audiotest.Second())), Seconds: 32000 / 16000.0, Codec: "pcm_s8", Method: "header"},
		"twos":                      {B: form("AIFC", comm(1, 16000, 16, "twos\x00\x00"), ssnd(0, audiotest.Second())), Seconds: 16000 / 16000.0, Codec: "pcm_s16be", Method: "header"},
		"raw":                       {B: form("AIFC", comm(1, 32000, 8, "raw \x00\x00"), ssnd(0, audiotest.Second())), Seconds: 32000 / 16000.0, Codec: "pcm_u8", Method: "header"},
		"ulaw that says 16 bits":    {B: form("AIFC", comm(1, 32000, 16, "ulaw\x00\x00"), ssnd(0, audiotest.Second())), Seconds: 32000 / 16000.0, Codec: "pcm_mulaw", Method: "header"},
		"fl32 that says 16 bits":    {B: form("AIFC", comm(1, 8000, 16, "fl32\x00\x00"), ssnd(0, audiotest.Second())), Seconds: 8000 / 16000.0, Codec: "pcm_f32be", Method: "header"},
		"FL64":                      {B: form("AIFC", comm(1, 4000, 64, "FL64\x00\x00"), ssnd(0, audiotest.Second())), Seconds: 4000 / 16000.0, Codec: "pcm_f64be", Method: "header"},
		"in24":                      {B: form("AIFC", comm(1, 8000, 24, "in24\x00\x00"), ssnd(0, audiotest.Second()[:24000])), Seconds: 8000 / 16000.0, Codec: "pcm_s24be", Method: "header"},
		"ima4 in packets":           {B: form("AIFC", comm(1, 10, 16, "ima4\x00\x00"), ssnd(0, audiotest.Second()[:340])), Seconds: 640 / 16000.0, Codec: "adpcm_ima_qt", Method: "header"},
		"ima4 in samples":           {B: form("AIFC", comm(1, 630, 16, "ima4\x00\x00"), ssnd(0, audiotest.Second()[:340])), Seconds: 640 / 16000.0, Codec: "adpcm_ima_qt", Method: "header"},
		"ima4, a cut packet":        {B: form("AIFC", comm(1, 10, 16, "ima4\x00\x00"), ssnd(0, audiotest.Second()[:360])), Seconds: 640 / 16000.0, Codec: "adpcm_ima_qt", Method: "header"},
		"MACE 6:1 stereo":           {B: form("AIFC", comm(2, 16000, 8, "MAC6\x00\x00"), ssnd(0, audiotest.Second())), Seconds: 96000 / 16000.0, Codec: "mace6", Method: "header"},
	})
}

func TestAIFFRefused(t *testing.T) {
	badRate := comm(1, 16000, 16, "")
	badRate[16] = 0x7f // 2^16000 Hz
	audiotest.Refuses(t, "x.aiff", []audiotest.Refusal{
		{B: form("AIFF", ssnd(0, audiotest.Second())), Code: fault.Corrupt, Text: "no COMM chunk"},
		{B: form("AIFF", comm(1, 16000, 16, "")), Code: fault.Corrupt, Text: "ends before its SSND chunk"},
		{B: form("AIFF", comm(0, 16000, 16, ""), ssnd(0, audiotest.Second())), Code: fault.Corrupt, Text: "0 channels"},
		{B: form("AIFF", comm(0xffff, 16000, 16, ""), ssnd(0, audiotest.Second())), Code: fault.Corrupt, Text: "-1 channels"},
		{B: form("AIFF", comm(1, 16000, 40, ""), ssnd(0, audiotest.Second())), Code: fault.Corrupt, Text: "40 bits"},
		{B: form("AIFF", badRate, ssnd(0, audiotest.Second())), Code: fault.Corrupt, Text: "sample rate"},
		{B: form("AIFF", bigChunk("COMM", 6, make([]byte, 6)), ssnd(0, audiotest.Second())), Code: fault.Corrupt, Text: "COMM chunk of 6 bytes"},
		{B: form("AIFC", comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), Code: fault.Corrupt, Text: "too short to name its codec"},
		{B: form("AIFC", comm(1, 16000, 16, "QDM2\x00\x00"), ssnd(0, audiotest.Second())), Code: fault.Unsupported, Text: `"QDM2"`},
		{B: form("AIFF", comm(1, 16000, 16, ""), ssnd(0xfffffff0, audiotest.Second())), Code: fault.Corrupt, Text: "start after it"},
		{B: form("AIFF", comm(1, 16000, 16, ""), ssnd(0, nil)), Code: fault.Corrupt, Text: "holds no audio"},
		{B: form("AIFF", comm(1, 16000, 16, ""), ssndClaim(32008, nil)), Code: fault.Corrupt, Text: "claims 1.000 s"},
	})
}

func TestExtendedRate(t *testing.T) {
	for b, want := range map[string]int{
		rate80: 16000,
		"\x40\x0e\xac\x44\x00\x00\x00\x00\x00\x00": 44100,
		"\x40\x0d\xad\xdd\x17\x45\xd1\x74\x5d\x17": 22255,      // 22254.545 Hz of old Macs
		"\x3f\xff\x80\x00\x00\x00\x00\x00\x00\x00": 1,          // 2^0
		"\x40\x1e\xff\xff\xff\xff\x00\x00\x00\x00": 0xffffffff, // the largest
		"\x40\x1f\x80\x00\x00\x00\x00\x00\x00\x00": 0,          // 2^32
		"\xc0\x0c\xfa\x00\x00\x00\x00\x00\x00\x00": 0,          // negative
		"\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff": 0,          // not a number
		"\x3f\xfe\xff\x00\x00\x00\x00\x00\x00\x00": 0,          // below 1
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00": 0,
	} {
		assert.Equal(t, want, extended([]byte(b)), "%x", b)
	}
}

func FuzzAIFF(f *testing.F) {
	for _, name := range []string{"short.aiff", "piped_ffmpeg.aiff", "short_ima4.aifc"} {
		f.Add(audiotest.Fixture(f, name))
	}
	f.Add(form("AIFC", comm(2, 9, 16, "fl64\x00\x00"), ssnd(4, audiotest.Second()[:99])))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[min(12, len(b)):]
		audiotest.Sane(t, form("AIFF", b))
		audiotest.Sane(t, form("AIFC", b))
	})
}
