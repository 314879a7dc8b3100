package ogg

import (
	"bytes"
	"testing"

	"github.com/jfreymuth/oggvorbis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// pages cuts a file into its Ogg pages.
func pages(t *testing.T, b []byte) (all [][]byte) {
	t.Helper()
	for off := int64(0); off < int64(len(b)); {
		p, ok := pageAt(b[off:], off)
		require.True(t, ok)
		all = append(all, bytes.Clone(b[off:p.next()]))
		off = p.next()
	}
	return all
}

// reserial returns a copy with another serial number and every audio position moved. Checksums are
// made again.
func reserial(t *testing.T, b []byte, serial uint32, move int64) []byte {
	t.Helper()
	var out []byte
	for _, p := range pages(t, b) {
		le.PutUint32(p[14:], serial)
		if granule := int64(le.Uint64(p[6:])); granule > 0 {
			le.PutUint64(p[6:], uint64(granule+move))
		}
		le.PutUint32(p[22:], 0)
		le.PutUint32(p[22:], pageSum(p))
		out = append(out, p...)
	}
	return out
}

// pageSum is the checksum of pages: polynomial 0x04c11db7, high bit first, start 0.
func pageSum(b []byte) (sum uint32) {
	for _, x := range b {
		sum ^= uint32(x) << 24
		for range 8 {
			sum = sum<<1 ^ sum>>31*0x04c11db7
		}
	}
	return sum
}

func decodedVorbis(t *testing.T, b []byte) int64 {
	t.Helper()
	pcm, format, err := oggvorbis.ReadAll(bytes.NewReader(b))
	require.NoError(t, err)
	return int64(len(pcm) / format.Channels)
}

func TestVorbisAgreesWithDecoder(t *testing.T) {
	for _, name := range []string{"tone.ogg", "stereo_44k_4.4s.ogg"} {
		b := audiotest.Fixture(t, name)
		_, samples, err := audiotest.SamplesOf(b)
		require.NoError(t, err)
		assert.Equal(t, decodedVorbis(t, b), samples, name)
	}
}

func TestVorbisCut(t *testing.T) {
	b := audiotest.Fixture(t, "stereo_44k_4.4s.ogg")
	all := pages(t, b)
	last, before := all[len(all)-1], all[len(all)-2]
	granule := func(p []byte) float64 { return float64(le.Uint64(p[6:])) / 44100 }

	info, err := audiotest.Bytes("x", b[:len(b)-10])
	require.NoError(t, err)
	assert.InDelta(t, granule(before), info.DurationS, 1e-9)
	require.NotNil(t, info.ClaimedS, "the header of the cut page says how far it went")
	assert.InDelta(t, granule(last), *info.ClaimedS, 1e-9)

	info, err = audiotest.Bytes("x", b[:len(b)-len(last)])
	require.NoError(t, err)
	assert.InDelta(t, granule(before), info.DurationS, 1e-9)
	assert.Nil(t, info.ClaimedS, "cut between pages: nothing claims more")

	info, err = audiotest.Bytes("x", b[:len(b)-len(last)+20])
	require.NoError(t, err)
	assert.InDelta(t, granule(before), info.DurationS, 1e-9)

	info, err = audiotest.Bytes("x", append(bytes.Clone(b), make([]byte, 100_000)...))
	require.NoError(t, err)
	assert.InDelta(t, 4.4, info.DurationS, 1e-9, "zeros behind the last page")
}

func TestVorbisChained(t *testing.T) {
	mono, stereo := audiotest.Fixture(t, "tone.ogg"), audiotest.Fixture(t, "stereo_44k_4.4s.ogg")
	info, err := audiotest.Bytes("x", append(bytes.Clone(mono), stereo...))
	require.NoError(t, err)
	assert.InDelta(t, 1.1+4.4, info.DurationS, 1e-9)
	assert.Equal(t, 16000, info.SampleRate)

	info, err = audiotest.Bytes("x", bytes.Join([][]byte{mono, stereo, reserial(t, mono, 99, 0)}, nil))
	require.NoError(t, err)
	assert.InDelta(t, 1.1+4.4+1.1, info.DurationS, 1e-9)
}

// TestVorbisPiece: pieces of a radio stream keep the positions of the whole.
func TestVorbisPiece(t *testing.T) {
	for _, name := range []string{"tone.ogg", "stereo_44k_4.4s.ogg"} {
		original := audiotest.Fixture(t, name)
		_, samples, err := audiotest.SamplesOf(original)
		require.NoError(t, err)
		moved := reserial(t, original, 5, 3600*48000)
		_, err = oggvorbis.NewReader(bytes.NewReader(moved))
		require.NoError(t, err, "the file is valid")
		_, got, err := audiotest.SamplesOf(moved)
		require.NoError(t, err)
		// The last page of a short file may also cut the end, which its one audio page cannot tell
		// from a late start.
		assert.InDelta(t, samples, got, 1024, name)
	}
}

// TestVorbisBlockSizes: the block sizes of the first audio page give exactly its position, as the
// stream starts at 0.
func TestVorbisBlockSizes(t *testing.T) {
	for _, move := range []int64{0, 123456} {
		b := reserial(t, audiotest.Fixture(t, "stereo_44k_4.4s.ogg"), 8, move)
		s := new(media.File)
		s.Hold(b)
		link, err := linkAt(s, 0)
		require.NoError(t, err)
		require.NoError(t, link.begin(s))
		require.Positive(t, link.first.granule)
		require.NoError(t, link.findStart(s, 0, link.first.off))
		assert.Equal(t, move, link.start)
	}
}

func TestOggRefused(t *testing.T) {
	tone := audiotest.Fixture(t, "tone.ogg")
	edit := func(offset int, b ...byte) []byte { c := bytes.Clone(tone); copy(c[offset:], b); return c }
	all := pages(t, tone)
	huge := audiotest.Fixture(t, "stereo_44k_4.4s.ogg")
	last := huge[bytes.LastIndex(huge, []byte("OggS")):]
	le.PutUint64(last[6:], 1<<50)
	le.PutUint32(last[22:], 0)
	le.PutUint32(last[22:], pageSum(last))
	cases := []struct {
		name string
		b    []byte
		code fault.Code
		text string
	}{
		{"first page cut", tone[:20], fault.Corrupt, "ends inside its first Ogg page"},
		{"no header", bytes.Join(all[1:], nil), fault.Corrupt, "starts in the middle"},
		{"first header cut", tone[:45], fault.Corrupt, "ends inside its Vorbis header"},
		{"headers only", bytes.Join(all[:2], nil), fault.Corrupt, "holds no audio"},
		{"rate 0", edit(28+12, 0, 0, 0, 0), fault.Corrupt, "0 Hz"},
		{"channels 0", edit(28+11, 0), fault.Corrupt, "0 channels"},
		{"block sizes", edit(28+28, 0x0f), fault.Corrupt, "block sizes"},
		{"version", edit(28+7, 1), fault.Unsupported, "version 1"},
		{"impossible position", huge, fault.Corrupt, "more than"},
		{"a film", edit(28, []byte("\x80theora")...), fault.Unsupported, "without a supported audio stream"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := audiotest.Bytes("clip.ogg", c.b)
			audiotest.RefusedAs(t, err, c.code, "clip.ogg: ", c.text)
		})
	}
}

func FuzzOgg(f *testing.F) {
	tone := audiotest.Fixture(f, "tone.ogg")
	f.Add(tone[4:])
	f.Add(tone[4:3600])
	f.Add(append(bytes.Clone(tone[4:]), audiotest.Fixture(f, "tone.opus")...))
	f.Add(append(make([]byte, 0, 100), "\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...))
	f.Fuzz(func(t *testing.T, b []byte) { audiotest.Sane(t, append([]byte("OggS"), b...)) })
}
