package riff

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	for name, c := range map[string]struct {
		b       []byte
		samples float64
		claimed float64
		codec   string
		method  string
	}{
		"plain":                     {form("AIFF", comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), 16000, 0, "pcm_s16be", "header"},
		"odd chunk":                 {form("AIFF", odd, comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), 16000, 0, "pcm_s16be", "header"},
		"odd chunk, padding forgot": {form("AIFF", odd[:11], comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), 16000, 0, "pcm_s16be", "header"},
		"sound first":               {form("AIFF", ssnd(0, audiotest.Second()), comm(1, 16000, 16, "")), 16000, 0, "pcm_s16be", "header"},
		"12 bits stereo":            {form("AIFF", comm(2, 8000, 12, ""), ssnd(0, audiotest.Second())), 8000, 0, "pcm_s16be", "header"},
		"20 bits":                   {form("AIFF", comm(1, 8000, 20, ""), ssnd(0, audiotest.Second()[:24000])), 8000, 0, "pcm_s24be", "header"},
		"offset":                    {form("AIFF", comm(1, 15000, 16, ""), ssnd(2000, audiotest.Second())), 15000, 0, "pcm_s16be", "header"},
		"offset, sound first":       {form("AIFF", ssnd(2000, audiotest.Second()), comm(1, 15000, 16, "")), 15000, 0, "pcm_s16be", "header"},
		"COMM says half":            {form("AIFF", comm(1, 8000, 16, ""), ssnd(0, audiotest.Second())), 16000, 8000, "pcm_s16be", "header"},
		"COMM says double":          {form("AIFF", comm(1, 32000, 16, ""), ssnd(0, audiotest.Second())), 16000, 32000, "pcm_s16be", "header"},
		"COMM says nothing":         {form("AIFF", comm(1, 0, 16, ""), ssnd(0, audiotest.Second())), 16000, 0, "pcm_s16be", "header"},
		"cut":                       {form("AIFF", comm(1, 32000, 16, ""), ssndClaim(64008, audiotest.Second())), 16000, 32000, "pcm_s16be", "header"},
		"never closed":              {form("AIFF", comm(1, 0, 16, ""), ssndClaim(0, audiotest.Second())), 16000, 0, "pcm_s16be", "tail"},
		"all ones":                  {form("AIFF", comm(1, 0, 16, ""), ssndClaim(0xffffffff, audiotest.Second())), 16000, 0, "pcm_s16be", "tail"},
		"sox's open size":           {form("AIFF", comm(1, 0x3f800000, 16, ""), ssndClaim(0x7f000008, audiotest.Second())), 16000, 0, "pcm_s16be", "tail"},
		"sowt of 8 bits":            {form("AIFC", comm(1, 32000, 8, "sowt\x00\x00"), ssnd(0, audiotest.Second())), 32000, 0, "pcm_s8", "header"},
		"twos":                      {form("AIFC", comm(1, 16000, 16, "twos\x00\x00"), ssnd(0, audiotest.Second())), 16000, 0, "pcm_s16be", "header"},
		"raw":                       {form("AIFC", comm(1, 32000, 8, "raw \x00\x00"), ssnd(0, audiotest.Second())), 32000, 0, "pcm_u8", "header"},
		"ulaw that says 16 bits":    {form("AIFC", comm(1, 32000, 16, "ulaw\x00\x00"), ssnd(0, audiotest.Second())), 32000, 0, "pcm_mulaw", "header"},
		"fl32 that says 16 bits":    {form("AIFC", comm(1, 8000, 16, "fl32\x00\x00"), ssnd(0, audiotest.Second())), 8000, 0, "pcm_f32be", "header"},
		"FL64":                      {form("AIFC", comm(1, 4000, 64, "FL64\x00\x00"), ssnd(0, audiotest.Second())), 4000, 0, "pcm_f64be", "header"},
		"in24":                      {form("AIFC", comm(1, 8000, 24, "in24\x00\x00"), ssnd(0, audiotest.Second()[:24000])), 8000, 0, "pcm_s24be", "header"},
		"ima4 in packets":           {form("AIFC", comm(1, 10, 16, "ima4\x00\x00"), ssnd(0, audiotest.Second()[:340])), 640, 0, "adpcm_ima_qt", "header"},
		"ima4 in samples":           {form("AIFC", comm(1, 630, 16, "ima4\x00\x00"), ssnd(0, audiotest.Second()[:340])), 640, 0, "adpcm_ima_qt", "header"},
		"ima4, a cut packet":        {form("AIFC", comm(1, 10, 16, "ima4\x00\x00"), ssnd(0, audiotest.Second()[:360])), 640, 0, "adpcm_ima_qt", "header"},
		"MACE 6:1 stereo":           {form("AIFC", comm(2, 16000, 8, "MAC6\x00\x00"), ssnd(0, audiotest.Second())), 96000, 0, "mace6", "header"},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := audiotest.Bytes(name, c.b)
			require.NoError(t, err)
			assert.InDelta(t, c.samples, info.DurationS*16000, 1e-6)
			assert.Equal(t, []any{16000, c.codec, c.method}, []any{info.SampleRate, info.Codec, info.Method})
			if c.claimed == 0 {
				assert.Nil(t, info.ClaimedS)
			} else if assert.NotNil(t, info.ClaimedS) {
				assert.InDelta(t, c.claimed, *info.ClaimedS*16000, 1e-6)
			}
		})
	}
}

func TestAIFFRefused(t *testing.T) {
	badRate := comm(1, 16000, 16, "")
	badRate[16] = 0x7f // 2^16000 Hz
	for _, c := range []struct {
		b    []byte
		code fault.Code
		text string
	}{
		{form("AIFF", ssnd(0, audiotest.Second())), fault.Corrupt, "no COMM chunk"},
		{form("AIFF", comm(1, 16000, 16, "")), fault.Corrupt, "ends before its SSND chunk"},
		{form("AIFF", comm(0, 16000, 16, ""), ssnd(0, audiotest.Second())), fault.Corrupt, "0 channels"},
		{form("AIFF", comm(0xffff, 16000, 16, ""), ssnd(0, audiotest.Second())), fault.Corrupt, "-1 channels"},
		{form("AIFF", comm(1, 16000, 40, ""), ssnd(0, audiotest.Second())), fault.Corrupt, "40 bits"},
		{form("AIFF", badRate, ssnd(0, audiotest.Second())), fault.Corrupt, "sample rate"},
		{form("AIFF", bigChunk("COMM", 6, make([]byte, 6)), ssnd(0, audiotest.Second())), fault.Corrupt, "COMM chunk of 6 bytes"},
		{form("AIFC", comm(1, 16000, 16, ""), ssnd(0, audiotest.Second())), fault.Corrupt, "too short to name its codec"},
		{form("AIFC", comm(1, 16000, 16, "QDM2\x00\x00"), ssnd(0, audiotest.Second())), fault.Unsupported, `"QDM2"`},
		{form("AIFF", comm(1, 16000, 16, ""), ssnd(0xfffffff0, audiotest.Second())), fault.Corrupt, "start behind it"},
		{form("AIFF", comm(1, 16000, 16, ""), ssnd(0, nil)), fault.Corrupt, "holds no audio"},
		{form("AIFF", comm(1, 16000, 16, ""), ssndClaim(32008, nil)), fault.Corrupt, "claims 1.000 s"},
	} {
		_, err := audiotest.Bytes("x.aiff", c.b)
		audiotest.RefusedAs(t, err, c.code, "x.aiff: ", c.text)
	}
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
