package ogg

import (
	"bytes"
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
	cases := []struct {
		name          string
		b             [][]byte
		held, claimed float64
	}{
		{"three", [][]byte{opus, flac, spx}, 5.5, 0},
		{"last cut", [][]byte{flac, opus[:len(opus)-100]}, 1.1 + 2.9935, 1.1 + 3.3},
		{"last cut in its headers", [][]byte{flac, opus[:400]}, 1.1, 0},
		{"last cut in its first page", [][]byte{opus, flac[:40]}, 3.3, 0},
		{"first cut, second whole", [][]byte{opus[:len(opus)-100], flac}, 2.9935 + 1.1, 0},
		{"zeros between", [][]byte{opus, make([]byte, 200_000), flac}, 4.4, 0},
		{"zeros behind", [][]byte{opus, flac, make([]byte, 5<<20)}, 4.4, 0},
		{"a film between", [][]byte{opus, reserial(t, film, 70, 0), flac}, 4.4, 0},
		{"the first number again at the end", [][]byte{opus, flac, opus}, 7.7, 0},
		{"claims more", [][]byte{opus, lying(t, "tone.oga", 31, 0, 1, 0, 0)}, 4.4, 3.3 + 65536.0/16000},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := bytes.Join(c.b, nil)
			info, err := audiotest.Bytes("x", b)
			require.NoError(t, err)
			assert.InDelta(t, c.held, info.DurationS, 1e-9)
			if c.claimed == 0 {
				assert.Nil(t, info.ClaimedS)
			} else if assert.NotNil(t, info.ClaimedS) {
				assert.InDelta(t, c.claimed, *info.ClaimedS, 1e-9)
			}
			onDisk, _, err := audiotest.File(audiotest.Write(t, b))
			require.NoError(t, err)
			assert.Equal(t, info, onDisk)
		})
	}
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

// TestOggEndless: files made to keep a reader busy give an answer, and not by reading all.
func TestOggEndless(t *testing.T) {
	spx := audiotest.Fixture(t, "tone.spx")
	all := pages(t, spx)
	empty := le.AppendUint64([]byte("OggS\x00\x00"), 17600)
	empty = append(empty, all[1][14:18]...)
	empty = append(empty, make([]byte, 9)...)
	le.PutUint32(empty[22:], pageSum(empty))
	cases := map[string][]byte{
		"empty pages":           append(bytes.Clone(spx), bytes.Repeat(empty, 1<<19)...),
		"empty pages, new tail": append(append(bytes.Clone(spx), bytes.Repeat(empty, 1<<19)...), reserial(t, spx, 9, 0)...),
		"links":                 bytes.Repeat(bytes.Join([][]byte{spx, reserial(t, spx, 9, 0)}, nil), 4000),
		"first pages":           append(bytes.Repeat(all[0], 1<<17), reserial(t, spx, 9, 0)...),
		"magic":                 append(bytes.Clone(spx), bytes.Repeat([]byte("OggS\x00"), 2<<20)...),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) { audiotest.Sane(t, b) })
	}
	info, err := audiotest.Bytes("x", cases["links"])
	require.NoError(t, err)
	assert.Equal(t, "estimated", info.Method)
	assert.InDelta(t, 8000*1.1, info.DurationS, 1)
	info, err = audiotest.Bytes("x", cases["links"][:len(cases["links"])/4])
	require.NoError(t, err)
	assert.Equal(t, "walked", info.Method)
	assert.InDelta(t, 2000*1.1, info.DurationS, 1e-6)
	info, err = audiotest.Bytes("x", cases["empty pages"])
	require.NoError(t, err)
	assert.InDelta(t, 1.1, info.DurationS, 1e-9)
}

// long makes an Opus stream of that many pages with one packet of 20 ms each.
func long(t *testing.T, serial uint32, pageCount int) []byte {
	t.Helper()
	out := bytes.Join(pages(t, reserial(t, audiotest.Fixture(t, "tone.opus"), serial, 0))[:2], nil)
	for i := range pageCount {
		p := le.AppendUint64([]byte("OggS\x00\x00"), uint64(960*(i+1)))
		p = le.AppendUint32(le.AppendUint32(p, serial), uint32(2+i))
		p = append(append(p, "\x00\x00\x00\x00\x01\x28\x98"...), make([]byte, 39)...)
		le.PutUint32(p[22:], checksum(p)) // the quick way: there are many
		out = append(out, p...)
	}
	return out
}

// TestOggLeap: more pages than are ever walked, and yet counted to the sample; the short links
// between are not overlooked.
func TestOggLeap(t *testing.T) {
	const many = 75_000
	a, b, short := long(t, 1, many), long(t, 2, many), audiotest.Fixture(t, "tone.spx")
	play := (960*many - 312) / 48000.0
	for name, c := range map[string]struct {
		b    []byte
		held float64
	}{
		"two long":                {bytes.Join([][]byte{a, b}, nil), 2 * play},
		"short ones between":      {bytes.Join([][]byte{a, short, reserial(t, short, 9, 0), b, reserial(t, short, 10, 0)}, nil), 2*play + 3.3},
		"short ones first":        {bytes.Join([][]byte{short, reserial(t, short, 9, 0), a, b}, nil), 2*play + 2.2},
		"matter between":          {bytes.Join([][]byte{a, make([]byte, 1<<20), b}, nil), 2 * play},
		"first cut":               {bytes.Join([][]byte{a[:len(a)-10], b}, nil), 2*play - 0.02},
		"a long and many shorter": {append(bytes.Clone(a), bytes.Repeat(append(reserial(t, short, 9, 0), reserial(t, short, 8, 0)...), 300)...), play + 660},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := audiotest.Bytes("x", c.b)
			require.NoError(t, err)
			assert.Equal(t, "walked", info.Method)
			assert.InDelta(t, c.held, info.DurationS, 1e-6)
			assert.Nil(t, info.ClaimedS)
		})
	}
}
