package audio

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// hissing is 16-bit samples up to a loudness.
func hissing(seed uint64, samples, loudness int) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	var b []byte
	for range samples {
		b = binary.LittleEndian.AppendUint16(b, uint16(random.IntN(2*loudness+1)-loudness))
	}
	return b
}

// TestDigest: what tells recordings from each other is in the digest, wherever the samples begin,
// and silence says nothing.
func TestDigest(t *testing.T) {
	long := audiotest.NewWAV("RIFF").Chunk("bext", hissing(9, 2500, 9000)).Encoded
	wavWith := func(head, samples []byte) []byte {
		w := &audiotest.WAV{Encoded: bytes.Clone(head)}
		return w.Chunk("fmt ", audiotest.FmtBody(1, 1, 16000, 2, 16)).Chunk("data", samples).Encoded
	}
	plain := audiotest.NewWAV("RIFF").Encoded
	quiet, loud, other := make([]byte, 20000), hissing(1, 10000, 9000), hissing(2, 10000, 9000)
	hiss, otherHiss := hissing(3, 10000, 2), hissing(4, 10000, 2)
	late := append(append([]byte(nil), quiet[:3000]...), loud[:17000]...)
	otherLate := append(append([]byte(nil), quiet[:3000]...), other[:17000]...)
	for name, c := range map[string]struct {
		a, b  []byte
		known bool // the digest says something
	}{
		"recordings":                         {wavWith(plain, loud), wavWith(plain, other), true},
		"behind a long header":               {wavWith(long, loud), wavWith(long, other), true},
		"behind some silence":                {wavWith(plain, late), wavWith(plain, otherLate), true},
		"silence":                            {wavWith(plain, quiet), wavWith(plain, quiet), false},
		"hiss, of which one is as any other": {wavWith(plain, hiss), wavWith(plain, otherHiss), false},
	} {
		t.Run(name, func(t *testing.T) {
			first, second, copied := digestOf(t, c.a), digestOf(t, c.b), digestOf(t, bytes.Clone(c.a))
			assert.Equal(t, first, copied)
			if !c.known {
				assert.Zero(t, first)
				assert.Zero(t, second)
				return
			}
			assert.NotZero(t, first)
			assert.NotEqual(t, first, second)
			assert.NotEqual(t, media.Digest(c.a), media.Digest(c.b), "in memory")
		})
	}
}

// TestDigestOfShortFile: a file that is read whole is marked by its end as well, as the same bytes
// in memory are.
func TestDigestOfShortFile(t *testing.T) {
	tone := audiotest.Fixture(t, "tone.opus")
	require.Less(t, len(tone)+128, media.WholeLen)
	tagged := func(title byte) []byte {
		return append(append(bytes.Clone(tone), "TAG"...), bytes.Repeat([]byte{title}, 125)...)
	}
	assert.NotEqual(t, digestOf(t, tagged('a')), digestOf(t, tagged('b')))
	assert.Equal(t, digestOf(t, tagged('a')), media.Digest(tagged('a')))
}

var extension = map[string]string{"RIFF": ".wav", "fLaC": ".flac", "OggS": ".opus"}

func digestOf(t *testing.T, b []byte) uint64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a"+extension[string(b[:4])])
	require.NoError(t, os.WriteFile(path, b, 0o644))
	_, st, err := File(path)
	require.NoError(t, err)
	return st.Digest
}

// TestTimes: File reports what Look reports.
func TestTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.flac")
	require.NoError(t, os.WriteFile(path, audiotest.Fixture(t, "tone.flac"), 0o644))
	want, err := Look(path)
	require.NoError(t, err)
	_, st, err := File(path)
	require.NoError(t, err)
	want.Digest = st.Digest
	assert.Equal(t, want, st)
}
