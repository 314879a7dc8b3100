package amr

import (
	"bytes"
	"testing"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

func amrFrame(kind byte) []byte { return append([]byte{kind<<3 | 4}, make([]byte, amrNB[kind]-1)...) }

func TestAMRFixtures(t *testing.T) {
	audiotest.Agree(t, []audiotest.Decoded{
		// With comfort noise and untransmitted frames, which FFmpeg's decoder leaves out;
		// opencore-amr (sox) plays them.
		{File: "tone_8k.amr", Samples: 8800, Want: media.Info{SampleRate: 8000, Channels: 1, Codec: "amr_nb", Method: "walked"}, Start: 6, PerByte: 160},
		// one frame of every rate
		{File: "tone.awb", Samples: 3200, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "amr_wb", Method: "walked"}, Start: 9, PerByte: 320.0 / 18},
	})
}

func TestAMRLength(t *testing.T) {
	frames := bytes.Join([][]byte{amrFrame(7), amrFrame(0), amrFrame(8), amrFrame(15)}, nil)
	audiotest.Measured(t, map[string]audiotest.Clip{
		"frames of any kind":         {B: append([]byte("#!AMR\n"), frames...), Seconds: 0.08, Codec: "amr_nb", Method: "walked"},
		"cut":                        {B: append([]byte("#!AMR\n"), frames[:40]...), Seconds: 0.02, Claimed: 0.04},
		"a type byte alone":          {B: append([]byte("#!AMR\n"), frames[:33]...), Seconds: 0.02, Claimed: 0.04},
		"reserved types are skipped": {B: append(append([]byte("#!AMR\n"), 0x4c, 0x54), frames...), Seconds: 0.08},
		"across reads":               {B: append([]byte("#!AMR\n"), bytes.Repeat(amrFrame(4), 12500)...), Seconds: 250, Codec: "amr_nb", Method: "walked"},
	})
}

func TestAMRRefused(t *testing.T) {
	audiotest.Refuses(t, "x.amr", []audiotest.Refusal{
		{Name: "several channels", B: []byte("#!AMR_MC1.0\n\x00\x00\x00\x02\x04"), Code: fault.Corrupt, Text: "its variant is unknown"},
		{Name: "unknown kind", B: []byte("#!AMR-XX\n\x04"), Code: fault.Corrupt, Text: "its variant is unknown"},
		{Name: "magic alone", B: []byte("#!AMR\n"), Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "cut", B: []byte("#!AMR\n\x04\x00"), Code: fault.Corrupt, Text: "claims 0.020 s"},
	})
}

func FuzzAMR(f *testing.F) {
	f.Add(audiotest.Fixture(f, "tone_8k.amr"))
	f.Add(audiotest.Fixture(f, "tone.awb"))
	f.Fuzz(func(t *testing.T, b []byte) {
		audiotest.Sane(t, append([]byte("#!AMR"), b[min(5, len(b)):]...))
	})
}
