package ogg

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// oggFixtures with the samples that the reference decoders give; testdata/make.sh has the commands.
var oggFixtures = []struct {
	file    string
	samples int64
	skip    int64 // before the first that is played
	want    media.Info
}{
	{"tone.ogg", 17600, 0, media.Info{SampleRate: 16000, Channels: 1, Codec: "vorbis", Method: "tail"}},
	{"stereo_44k_4.4s.ogg", 194040, 0, media.Info{SampleRate: 44100, Channels: 2, Codec: "vorbis", Method: "tail"}},
	{"tone.opus", 52800, 312, media.Info{SampleRate: 48000, Channels: 1, Codec: "opus", Method: "tail"}},
	{"tone_opusenc.opus", 52800, 312, media.Info{SampleRate: 48000, Channels: 1, Codec: "opus", Method: "tail"}},
	{"stereo_3.3s.opus", 158400, 312, media.Info{SampleRate: 48000, Channels: 2, Codec: "opus", Method: "tail"}},
	{"tone.spx", 17600, 0, media.Info{SampleRate: 16000, Channels: 1, Codec: "speex", Method: "tail"}},
	{"narrow_5s.spx", 40000, 0, media.Info{SampleRate: 8000, Channels: 1, Codec: "speex", Method: "tail"}},
	{"tone.oga", 17600, 0, media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
	{"tone_ffmpeg.oga", 17600, 0, media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "tail"}},
}

func TestOggFixtures(t *testing.T) {
	var fixtures []audiotest.Decoded
	for _, c := range oggFixtures {
		fixtures = append(fixtures, audiotest.Decoded{File: c.file, Samples: int(c.samples), Want: c.want})
	}
	audiotest.Agree(t, fixtures)
}

// TestOggCutAnywhere: a cut file plays what its whole pages hold, as with opusdec, oggdec and
// FFmpeg, and says that it is cut as soon as enough of the next page is there to tell.
func TestOggCutAnywhere(t *testing.T) {
	for _, c := range oggFixtures {
		b := audiotest.Fixture(t, c.file)
		if len(b) > 8_000 {
			continue // takes long
		}
		all := pages(t, b)
		var end, position int64 // of the page before
		for _, page := range all {
			for keep := end; keep < end+int64(len(page)); keep++ {
				info, samples, err := audiotest.SamplesOf(b[:keep])
				if position <= c.skip {
					require.Error(t, err, "%s cut to %d", c.file, keep)
					continue
				}
				require.NoError(t, err, "%s cut to %d", c.file, keep)
				require.Equal(t, position-c.skip, samples, "%s cut to %d", c.file, keep)
				if keep >= end+18 {
					require.NotNil(t, info.ClaimedS, "%s cut to %d", c.file, keep)
					require.Greater(t, *info.ClaimedS, info.DurationS)
				}
			}
			end += int64(len(page))
			position = max(position, int64(le.Uint64(page[6:])))
		}
	}
}

// TestOggGarbageBehind: whatever follows the last page, near or far, does not count.
func TestOggGarbageBehind(t *testing.T) {
	noise := make([]byte, 300_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	for i := 0; i < len(noise)-400; i += 400 { // page headers that are none
		copy(noise[i:], "OggS\x00\x04")
	}
	behind := map[string][]byte{
		"a tag": append([]byte("TAG"), make([]byte, 125)...), "zeros": make([]byte, 100_000), "page headers": noise,
		"more than is searched at once": make([]byte, 5<<20),
	}
	for _, c := range oggFixtures {
		for name, garbage := range behind {
			info, samples, err := audiotest.SamplesOf(append(audiotest.Fixture(t, c.file), garbage...))
			require.NoError(t, err, "%s and %s", c.file, name)
			assert.Equal(t, c.samples, samples, "%s and %s", c.file, name)
			assert.Nil(t, info.ClaimedS, "%s and %s", c.file, name)
		}
	}
}

// TestOggLastPageBroken: a page with a wrong checksum is not played, and its position is only a
// claim.
func TestOggLastPageBroken(t *testing.T) {
	b := audiotest.Fixture(t, "stereo_3.3s.opus")
	last := bytes.LastIndex(b, []byte("OggS"))
	for _, bit := range []int{last + 60, last + 7, last + 5, len(b) - 1} {
		broken := bytes.Clone(b)
		broken[bit] ^= 0x10
		info, samples, err := audiotest.SamplesOf(broken)
		require.NoError(t, err)
		assert.EqualValues(t, 144000-312, samples, "bit in byte %d", bit)
		require.NotNil(t, info.ClaimedS)
		assert.Greater(t, *info.ClaimedS, info.DurationS)
	}
	far := bytes.Clone(b)
	le.PutUint64(far[last+6:], 1<<60)
	info, samples, err := audiotest.SamplesOf(far)
	require.NoError(t, err)
	assert.EqualValues(t, 144000-312, samples)
	assert.Nil(t, info.ClaimedS, "no page reaches so far: the position is broken too")
}

// TestOggPiece: a piece cut from a live stream plays from its first whole page. Lengths are those
// of opusdec and FFmpeg, flac -d, and oggdec.
func TestOggPiece(t *testing.T) {
	for file, want := range map[string]int64{"stereo_3.3s.opus": 110400, "tone_ffmpeg.oga": 1472, "stereo_44k_4.4s.ogg": 159544} {
		all := pages(t, audiotest.Fixture(t, file))
		piece := append(bytes.Join(all[:2], nil), bytes.Join(all[3:], nil)...)
		_, samples, err := audiotest.SamplesOf(piece)
		require.NoError(t, err, file)
		assert.Equal(t, want, samples, file)
		_, samples, err = audiotest.SamplesOf(reserial(t, piece, 5, 1<<40))
		require.NoError(t, err, file)
		assert.Equal(t, want, samples, file)
	}
}

// TestOggBeforeZero: positions before 0, as copying a part of a file with FFmpeg leaves them.
// Measured on these very bytes: oggdec and libsndfile drop up to a packet of the Vorbis file,
// FFmpeg plays all of Opus and FLAC; libopusfile refuses the Opus one.
func TestOggBeforeZero(t *testing.T) {
	cases := []struct {
		file       string
		move, held int64
	}{
		{"stereo_44k_4.4s.ogg", -500, 193540}, {"stereo_44k_4.4s.ogg", -40000, 193016},
		{"stereo_3.3s.opus", -500, 158400},
		{"tone.oga", -500, 17600}, {"narrow_5s.spx", -100, 39900},
	}
	for _, c := range cases {
		moved := reserial(t, audiotest.Fixture(t, c.file), 3, c.move)
		info, samples, err := audiotest.SamplesOf(moved)
		require.NoError(t, err)
		assert.Equal(t, c.held, samples, "%s moved by %d", c.file, c.move)
		assert.Nil(t, info.ClaimedS)
	}
}

// lying writes header pages: those of fixture, with its first packet edited.
func lying(t *testing.T, file string, offset int, b ...byte) []byte {
	t.Helper()
	all := pages(t, audiotest.Fixture(t, file))
	copy(all[0][28+offset:], b)
	return reserial(t, bytes.Join(all, nil), 1, 0)
}

func TestOggCodecsRefused(t *testing.T) {
	cut := func(file string, n int) []byte { return audiotest.Fixture(t, file)[:n] }
	audiotest.Refuses(t, "clip.ogg", []audiotest.Refusal{
		{Name: "Opus header cut", B: cut("tone.opus", 40), Code: fault.Corrupt, Text: "ends inside its Opus header"},
		{Name: "Opus version", B: lying(t, "tone.opus", 8, 0x10), Code: fault.Unsupported, Text: "version 16"},
		{Name: "Opus channels", B: lying(t, "tone.opus", 9, 0), Code: fault.Corrupt, Text: "0 channels"},
		{Name: "Opus pre-skip", B: lying(t, "tone.opus", 10, 0xff, 0xff), Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "Speex header cut", B: cut("tone.spx", 100), Code: fault.Corrupt, Text: "ends inside its Speex header"},
		{Name: "Speex rate", B: lying(t, "tone.spx", 36, 0, 0, 0, 0x80), Code: fault.Corrupt, Text: "sample rate of -2147483648 Hz"},
		{Name: "Speex channels", B: lying(t, "tone.spx", 48, 3), Code: fault.Corrupt, Text: "3 channels"},
		{Name: "Speex frames", B: lying(t, "tone.spx", 64, 255, 255, 255, 127), Code: fault.Corrupt, Text: "which Speex does not support"},
		{Name: "Speex frame size", B: lying(t, "tone.spx", 56, 0, 0), Code: fault.Corrupt, Text: "which Speex does not support"},
		{Name: "FLAC header cut", B: cut("tone.oga", 60), Code: fault.Corrupt, Text: "ends inside its FLAC header"},
		{Name: "FLAC version", B: lying(t, "tone.oga", 5, 2), Code: fault.Unsupported, Text: "version 2"},
		{Name: "FLAC without stream info", B: lying(t, "tone.oga", 13, 4), Code: fault.Corrupt, Text: "instead of its stream info"},
		{Name: "old FLAC", B: lying(t, "tone.oga", 0, []byte("fLaC")...), Code: fault.Unsupported, Text: "without a supported audio stream"},
	})
}

// TestPageSum compares the two ways to compute the checksum.
func TestPageSum(t *testing.T) {
	for _, p := range pages(t, audiotest.Fixture(t, "stereo_3.3s.opus")) {
		assert.True(t, intact(p))
		zeroed := bytes.Clone(p)
		le.PutUint32(zeroed[22:], 0)
		assert.Equal(t, le.Uint32(p[22:]), pageSum(zeroed))
		zeroed[len(zeroed)/2] ^= 1
		assert.False(t, intact(zeroed))
	}
}

func fuzzOgg(f *testing.F, files ...string) {
	for _, file := range files {
		b := audiotest.Fixture(f, file)
		f.Add(b[4:])
		f.Add(b[4 : len(b)*2/3])
		f.Add(append(bytes.Clone(b[4:]), b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) { audiotest.Sane(t, append([]byte("OggS"), b...)) })
}

func FuzzOpus(f *testing.F)    { fuzzOgg(f, "tone.opus", "tone_opusenc.opus") }
func FuzzSpeex(f *testing.F)   { fuzzOgg(f, "tone.spx", "narrow_5s.spx") }
func FuzzOggFLAC(f *testing.F) { fuzzOgg(f, "tone.oga", "tone_ffmpeg.oga") }

// FuzzOggSealed returns every page the checksum that it should have, to reach what lies behind that
// check.
func FuzzOggSealed(f *testing.F) {
	for _, c := range oggFixtures {
		f.Add(audiotest.Fixture(f, c.file))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for off := 0; off < len(b); {
			p, ok := pageAt(b[off:], int64(off))
			if !ok || p.next() > int64(len(b)) {
				break
			}
			page := b[off:p.next()]
			le.PutUint32(page[22:], 0)
			le.PutUint32(page[22:], pageSum(page))
			off = int(p.next())
		}
		audiotest.Sane(t, b)
	})
}
