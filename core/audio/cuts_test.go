package audio

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decoded is a fixture and what decoders make of it: the samples per channel that sox and ffmpeg wrote, counted when it was
// made, and for the truncations where its samples start and how many of them a byte can hold at most.
type decoded struct {
	file    string
	samples int
	want    Info // without its duration
	start   int
	perByte float64
}

// agree checks that each fixture has the length that decoders find.
func agree(t *testing.T, cases []decoded) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			c.want.DurationS = float64(c.samples) / float64(c.want.SampleRate)
			b := fixture(t, c.file)
			got, err := Bytes(c.file, b)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			got, _, err = File(write(t, b))
			require.NoError(t, err)
			assert.Equal(t, c.want, got, "the same from a file")
			everyCut(t, b, c)
			everyFlip(t, b)
		})
	}
}

// everyCut checks every truncation: an error, or no more than the bytes hold and a sign that something is missing.
func everyCut(t *testing.T, b []byte, c decoded) {
	t.Helper()
	unclaimed := 0
	for n := range b {
		info, err := Bytes("cut", b[:n])
		sane(t, b[:n])
		if err != nil {
			continue
		}
		samples := info.DurationS * float64(info.SampleRate)
		require.LessOrEqual(t, samples, float64(n-c.start)*c.perByte+1e-6, "%d bytes", n)
		require.LessOrEqual(t, info.DurationS, c.want.DurationS+1e-9, "%d bytes", n)
		if info.DurationS < c.want.DurationS-1e-9 && info.ClaimedS == nil {
			require.NotEqual(t, "header", info.Method, "%d bytes", n)
			unclaimed++
		}
	}
	if c.want.Method == "header" {
		assert.Zero(t, unclaimed, "cuts that nothing tells of")
	}
}

// everyFlip checks every file that differs in one bit of its first bytes or, by chance, of the others.
func everyFlip(t *testing.T, b []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	b = append([]byte(nil), b...)
	for range 4000 {
		i := r.IntN(min(len(b), 160))
		if r.IntN(4) == 0 {
			i = r.IntN(len(b))
		}
		bit := byte(1) << r.IntN(8)
		b[i] ^= bit
		sane(t, b)
		b[i] ^= bit
	}
}
