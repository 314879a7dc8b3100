package amr

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	multi := append([]byte("#!AMR_MC1.0\n\x00\x00\x00\x02"), frames...)
	for name, c := range map[string]struct {
		b                []byte
		seconds, claimed float64
		channels         int
	}{
		"frames of any kind":         {append([]byte("#!AMR\n"), frames...), 0.08, 0, 1},
		"cut":                        {append([]byte("#!AMR\n"), frames[:40]...), 0.02, 0.04, 1},
		"a type byte alone":          {append([]byte("#!AMR\n"), frames[:33]...), 0.02, 0.04, 1},
		"reserved types are skipped": {append(append([]byte("#!AMR\n"), 0x4c, 0x54), frames...), 0.08, 0, 1},
		"two channels":               {multi, 0.04, 0, 2},
		"two channels, one missing":  {multi[:len(multi)-1], 0.02, 0.04, 2},
		"wideband, two channels":     {append([]byte("#!AMR-WB_MC1.0\n\x00\x00\x00\x02"), make([]byte, 4*18)...), 0.04, 0, 2},
	} {
		info, err := audiotest.Bytes(name, c.b)
		require.NoError(t, err, name)
		assert.Equal(t, "walked", info.Method, name)
		assert.Equal(t, c.channels, info.Channels, name)
		assert.InDelta(t, c.seconds, info.DurationS, 1e-9, name)
		if c.claimed == 0 {
			assert.Nil(t, info.ClaimedS, name)
		} else if assert.NotNil(t, info.ClaimedS, name) {
			assert.InDelta(t, c.claimed, *info.ClaimedS, 1e-9, name)
		}
	}
}

// TestAMRLong reads a file whose frames lie across the windows of the walk, and one too long to
// walk.
func TestAMRLong(t *testing.T) {
	long := bytes.Repeat(amrFrame(4), 12500) // frames across the reads
	info, err := audiotest.Bytes("x", append([]byte("#!AMR\n"), long...))
	require.NoError(t, err)
	assert.Equal(t, media.Info{DurationS: 250, SampleRate: 8000, Channels: 1, Codec: "amr_nb", Method: "walked"}, info)

	path := filepath.Join(t.TempDir(), "x.awb")
	require.NoError(t, os.WriteFile(path, []byte("#!AMR-WB\n"), 0o600))
	// two days of frames of 18 bytes, all zero
	require.NoError(t, os.Truncate(path, 9+18*50*86400*2))
	info, _, err = audiotest.File(path)
	require.NoError(t, err)
	assert.Equal(t, "estimated", info.Method)
	assert.Equal(t, 2*86400.0, info.DurationS)
}

func TestAMRRefused(t *testing.T) {
	for text, b := range map[string]string{
		"its variant is unknown": "#!AMR-XX\n\x04",
		"holds no audio":         "#!AMR\n",
		"claims 0.020 s":         "#!AMR\n\x04\x00",
		"ends inside its header": "#!AMR_MC1.0\n\x00\x00",
		"0 channels":             "#!AMR_MC1.0\n\x00\x00\x00\x00\x04",
	} {
		_, err := audiotest.Bytes("x.amr", []byte(b))
		audiotest.RefusedAs(t, err, fault.Corrupt, "x.amr: ", text)
	}
}

func FuzzAMR(f *testing.F) {
	f.Add(audiotest.Fixture(f, "tone_8k.amr"))
	f.Add(audiotest.Fixture(f, "tone.awb"))
	f.Add([]byte("#!AMR_MC1.0\n\x00\x00\x00\x03\x7c\x7c\x7c"))
	f.Add([]byte("#!AMR-WB_MC1.0\n\x00\x00\x00\x03\x7c\x7c\x7c"))
	f.Fuzz(func(t *testing.T, b []byte) {
		audiotest.Sane(t, append([]byte("#!AMR"), b[min(5, len(b)):]...))
	})
}
