package mpeg

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// xingAt is where the tag of lame_vbr_44k_stereo.mp3 starts: 44 frames, 1105 samples of delay, 1073
// of padding.
const xingAt, vbrFrames = 36, 44

func taggedWith(t *testing.T, edit func(tag []byte)) []byte {
	b := bytes.Clone(audiotest.Fixture(t, "lame_vbr_44k_stereo.mp3"))
	edit(b[xingAt:])
	return b
}

func TestXingClaims(t *testing.T) {
	tone := audiotest.Fixture(t, "lame_vbr_44k_stereo.mp3")
	number := func(offset int, n uint32) func([]byte) { return func(b []byte) { be.PutUint32(b[offset:], n) } }
	const all, gapless = vbrFrames * 1152, 48510
	cases := map[string]struct {
		b       []byte
		samples int64
		method  string
		claimed int64 // 0: none
	}{
		"right":                  {tone, gapless, "header", 0},
		"claims 1.5 hours":       {taggedWith(t, number(8, 206000)), all - 1105, "walked", 206000*1152 - all + gapless},
		"claims less":            {taggedWith(t, number(8, 2)), gapless, "walked", 2*1152 - all + gapless},
		"claims bytes too many":  {taggedWith(t, number(12, 1<<31)), gapless, "walked", 0},
		"claims bytes too few":   {taggedWith(t, number(12, 1000)), all - 1105, "walked", 0},
		"no frames, no bytes":    {taggedWith(t, func(b []byte) { clear(b[8:16]) }), all + 1152 - 1105, "walked", 0},
		"no bytes":               {taggedWith(t, number(12, 0)), gapless, "walked", 0},
		"no fields":              {taggedWith(t, number(4, 0)), all + 1152, "walked", 0},
		"another encoder":        {taggedWith(t, func(b []byte) { copy(b[120:], "GOGO") }), all, "header", 0},
		"says a constant rate":   {taggedWith(t, func(b []byte) { copy(b, "Info") }), gapless, "walked", 0},
		"joined with another":    {join(tone, tone), all - 1105 + 45*1152, "walked", 44*1152 - 1105},
		"joined with a tag":      {join(tone, id3(noise(2000), 0), tone), all - 1105 + 45*1152, "walked", 44*1152 - 1105},
		"joined with few frames": {join(tone, stream(high, 1)[:200]), gapless + 1152, "walked", gapless},
	}
	clips := map[string]audiotest.Clip{}
	for name, c := range cases {
		clips[name] = audiotest.Clip{B: c.b, Seconds: float64(c.samples) / 44100, Claimed: float64(c.claimed) / 44100, Method: c.method}
	}
	audiotest.Measured(t, clips)
	size := 417
	_, err := audiotest.Bytes("x", tone[:size])
	audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "holds no audio, though its header claims 1.100 s")
}

// TestVBRI: FFmpeg skips the frame, and drops nothing else.
func TestVBRI(t *testing.T) {
	audio := audiotest.Fixture(t, "vbr_untagged_44k.mp3")
	tag := stream(mono, 1)
	copy(tag[36:], "VBRI\x00\x01\x00\x00\x00\x4b")
	be.PutUint32(tag[46:], uint32(len(audio)+len(tag)))
	be.PutUint32(tag[50:], 44)
	info, samples, err := audiotest.SamplesOf(join(tag, audio))
	require.NoError(t, err)
	assert.EqualValues(t, 50688, samples)
	assert.Nil(t, info.ClaimedS)
	info, samples, err = audiotest.SamplesOf(join(tag, audio[:len(audio)/2]))
	require.NoError(t, err)
	assert.Less(t, samples, int64(26*1152))
	require.NotNil(t, info.ClaimedS)
	assert.InDelta(t, 50688/44100., *info.ClaimedS, 1e-9)
}
