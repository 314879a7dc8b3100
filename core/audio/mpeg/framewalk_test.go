package mpeg

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

func TestConstantBitRate(t *testing.T) {
	cases := map[string]struct {
		b      []byte
		frames int64
		method string
	}{
		"constant":                {stream(high, 3000), 3000, "tail"},
		"mono":                    {stream(mono, 3000), 3000, "tail"},
		"low":                     {stream(low, 3000), 3000, "tail"},
		"48 kHz":                  {stream("\xff\xfb\x94\x00", 3000), 3000, "tail"},
		"Layer II":                {stream("\xff\xfd\x90\x00", 3000), 3000, "tail"},
		"Layer I":                 {stream("\xff\xff\x50\x00", 3000), 3000, "tail"},
		"short":                   {stream(high, 100), 100, "walked"},
		"cut":                     {stream(high, 3000)[:417*2000+100], 1996, "tail"},
		"silence first":           {join(stream(low, 1149), stream(high, 2000)), 3149, "walked"},
		"silence last":            {join(stream(high, 2000), stream(low, 400)), 2400, "walked"},
		"silence inside":          {join(stream(high, 2000), stream(low, 3), stream(high, 2000)), 4003, "walked"},
		"never padded":            {bytes.Repeat(stream(high, 1), 3000), 3000, "walked"},
		"something between":       {join(stream(high, 1500), noise(5000), stream(high, 1500)), 3000, "walked"},
		"a tag between":           {join(stream(high, 1500), id3(noise(9000), 0), stream(high, 1500)), 3000, "walked"},
		"much behind":             {join(stream(high, 1500), make([]byte, 100<<10)), 1500, "walked"},
		"from the middle":         {stream(high, 3001)[200:], 3000, "tail"},
		"from the middle, silent": {join(stream(low, 2000), stream(high, 2000))[60:], 3999, "walked"},
		// the first of them is where a frame should be
		"false syncs between": {join(stream(high, 1500), bytes.Repeat([]byte(high), 5000), stream(high, 1500)), 3001, "walked"},
	}
	clips := map[string]audiotest.Clip{}
	for name, c := range cases {
		f, ok := parseSyncFrame(c.b)
		if !ok {
			f, _ = parseSyncFrame([]byte(high))
		}
		clips[name] = audiotest.Clip{B: c.b, Seconds: float64(c.frames*int64(f.samples)) / float64(f.rate()), Method: c.method}
	}
	audiotest.Measured(t, clips)
}

// TestJoinedStreams adds up seconds, as the rates differ.
func TestJoinedStreams(t *testing.T) {
	info, err := audiotest.Bytes("x", join(stream("\xff\xf3\x88\xc0", 500), stream(high, 700), stream("\xff\xfd\x94\x00", 300)))
	require.NoError(t, err)
	assert.InDelta(t, 500*576/16000.+700*1152/44100.+300*1152/48000., info.DurationS, 1e-4)
	assert.Equal(t, 16000, info.SampleRate)
	assert.Equal(t, "walked", info.Method)
}

// TestFramesWithBitFlips: a broken header costs its frame, and those that its wrong size covers,
// not the rest of the file.
func TestFramesWithBitFlips(t *testing.T) {
	for _, c := range []struct {
		file   string
		frames float64 // of the usual size that one of the largest size covers, and one
	}{
		{"vbr_untagged_44k.mp3", 5}, {"tone.mp2", 4}, {"tone.aac", 45}, {"lame_vbr_44k_stereo.mp3", 0},
	} {
		name, original := c.file, audiotest.Fixture(t, c.file)
		if c.frames > 40 {
			original = bytes.Repeat(original, 4)
		}
		want, err := audiotest.Bytes(name, original)
		require.NoError(t, err)
		f, _ := parseSyncFrame(original)
		frame := float64(f.samples) / float64(f.rate())
		for i := 2000; i < min(len(original), 6000); i++ {
			for bit := range 8 {
				b := bytes.Clone(original)
				b[i] ^= 1 << bit
				got, err := audiotest.Bytes(name, b)
				require.NoError(t, err)
				assert.InDelta(t, want.DurationS, got.DurationS, (c.frames+0.01)*frame, "%s: bit %d of byte %d", name, bit, i)
			}
		}
	}
}

func TestTooLongToWalk(t *testing.T) {
	b := join(stream(low, 9000), stream(high, 9000))
	s := new(media.File)
	s.Hold(b)
	first, _ := parseSyncFrame(b)
	r := newFrameReader(s)
	r.work = 1000
	samples, method, dense := r.count(first, 0)
	assert.InEpsilon(t, 18000*1152, samples, 0.02)
	assert.Equal(t, "estimated", method)
	assert.True(t, dense)
}
