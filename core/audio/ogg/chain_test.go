package ogg

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// TestOggChained: streams one after another play one after another, as FFmpeg and opusdec do.
func TestOggChained(t *testing.T) {
	seconds := func(i int) float64 { return float64(oggFixtures[i].samples) / float64(oggFixtures[i].want.SampleRate) }
	for i, a := range oggFixtures {
		for j, b := range oggFixtures {
			first, second := audiotest.Fixture(t, a.file), reserial(t, audiotest.Fixture(t, b.file), 77, 0)
			info, err := audiotest.Bytes("x", append(bytes.Clone(first), second...))
			require.NoError(t, err, "%s, %s", a.file, b.file)
			assert.InDelta(t, seconds(i)+seconds(j), info.DurationS, 1e-9, "%s, %s", a.file, b.file)
			assert.Equal(t, "walked", info.Method)
			assert.Equal(t, a.want.Codec, info.Codec)
			assert.Nil(t, info.ClaimedS)
		}
		first := audiotest.Fixture(t, a.file)
		for n := 2; n < 6; n++ {
			info, err := audiotest.Bytes("x", bytes.Repeat(first, n))
			require.NoError(t, err, "%s %d times with one serial number", a.file, n)
			assert.InDelta(t, float64(n)*seconds(i), info.DurationS, 1e-9, "%s %d times with one serial number", a.file, n)
		}
	}
}

func TestOggChainedOdd(t *testing.T) {
	opus, flac, spx := audiotest.Fixture(t, "stereo_3.3s.opus"), audiotest.Fixture(t, "tone.oga"), audiotest.Fixture(t, "tone.spx")
	film := bytes.Clone(pages(t, opus)[0])
	copy(film[28:], "\x80theora")
	audiotest.Measured(t, map[string]audiotest.Clip{
		"three":                             {B: slices.Concat(opus, flac, spx), Seconds: 5.5},
		"last cut":                          {B: slices.Concat(flac, opus[:len(opus)-100]), Seconds: 1.1 + 2.9935, Claimed: 1.1 + 3.3},
		"last cut in its headers":           {B: slices.Concat(flac, opus[:400]), Seconds: 1.1},
		"last cut in its first page":        {B: slices.Concat(opus, flac[:40]), Seconds: 3.3},
		"first cut, second whole":           {B: slices.Concat(opus[:len(opus)-100], flac), Seconds: 2.9935 + 1.1},
		"zeros between":                     {B: slices.Concat(opus, make([]byte, 200_000), flac), Seconds: 4.4},
		"zeros behind":                      {B: slices.Concat(opus, flac, make([]byte, 5<<20)), Seconds: 4.4},
		"a film between":                    {B: slices.Concat(opus, reserial(t, film, 70, 0), flac), Seconds: 4.4},
		"the first number again at the end": {B: slices.Concat(opus, flac, opus), Seconds: 7.7},
		"claims more":                       {B: slices.Concat(opus, lying(t, "tone.oga", 31, 0, 1, 0, 0)), Seconds: 4.4, Claimed: 3.3 + 65536.0/16000},
		"FLAC that claims more":             {B: lying(t, "tone.oga", 31, 0, 1, 0, 0), Seconds: 1.1, Claimed: 65536.0 / 16000, Method: "tail"},
	})
	_, err := audiotest.Bytes("x", bytes.Join([][]byte{opus, lying(t, "tone.spx", 48, 3)}, nil))
	audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "3 channels")
}

// TestOggMultiplexed: pages of a film between those of the sound, and after them.
func TestOggMultiplexed(t *testing.T) {
	for _, c := range oggFixtures {
		var out []byte
		all := pages(t, audiotest.Fixture(t, c.file))
		other := bytes.Repeat([]byte("film"), 16<<10)[:255*255]
		film := func(flags byte, body []byte, granule int64) []byte {
			p := append([]byte("OggS\x00"), flags)
			p = le.AppendUint64(p, uint64(granule))
			p = append(p, "\x63\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
			if len(body) < 255 {
				p = append(p, 1, byte(len(body)))
			} else {
				p = append(append(p, 255), bytes.Repeat([]byte{255}, 255)...)
			}
			p = append(p, body...)
			le.PutUint32(p[22:], pageSum(p))
			return p
		}
		out = append(out, film(flagBOS, []byte("\x80theora"), 0)...)
		for _, page := range all {
			out = append(append(out, page...), film(0, other, 1<<50)...)
		}
		out = bytes.Replace(out, film(0, other, 1<<50), nil, 1) // all first pages come first
		out = append(out, bytes.Repeat(film(0, other, -1), 3)...)
		info, samples, err := audiotest.SamplesOf(out)
		require.NoError(t, err, c.file)
		assert.Equal(t, c.samples, samples, c.file)
		assert.Equal(t, c.want.Codec, info.Codec)
	}
}
