package audiotest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Decoded is a fixture and what decoders make of it: the samples per channel that sox and ffmpeg
// wrote, counted when it was made, and for the truncations where its samples start and how many of
// them a byte can hold at most.
type Decoded struct {
	File    string
	Samples int
	Want    media.Info // without its duration
	Start   int
	PerByte float64
}

// Agree checks that each fixture has the length that decoders find.
func Agree(t *testing.T, cases []Decoded) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.File, func(t *testing.T) {
			c.Want.DurationS = float64(c.Samples) / float64(c.Want.SampleRate)
			b := Fixture(t, c.File)
			got, err := Bytes(c.File, b)
			require.NoError(t, err)
			assert.Equal(t, c.Want, got)
			got, _, err = File(Write(t, b))
			require.NoError(t, err)
			assert.Equal(t, c.Want, got, "the same from a file")
			everyCut(t, b, c)
			everyFlip(t, b)
		})
	}
}

// Whole is a fixture with the samples per channel that decoders make of it.
type Whole struct {
	File    string
	Samples int
	Want    media.Info // without its duration
}

// Plays checks that each fixture has that length, on disk and in memory.
func Plays(t *testing.T, cases []Whole) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.File, func(t *testing.T) {
			c.Want.DurationS = float64(c.Samples) / float64(c.Want.SampleRate)
			got, _, err := File(Path(c.File))
			require.NoError(t, err)
			assert.Equal(t, c.Want, got)
			got, err = Bytes(c.File, Fixture(t, c.File))
			require.NoError(t, err)
			assert.Equal(t, c.Want, got)
		})
	}
}

// Told is a file, with what its header and size claim; claimed is 0 for no claim.
type Told struct {
	B                []byte
	Seconds, Claimed float64
	Codec, Method    string
}

// Tells checks durations, claims, codecs and methods.
func Tells(t *testing.T, cases map[string]Told) {
	t.Helper()
	for name, c := range cases {
		info, err := Bytes(name, c.B)
		require.NoError(t, err, name)
		assert.Equal(t, []any{c.Seconds, c.Codec, c.Method},
			[]any{info.DurationS, info.Codec, info.Method}, name)
		if c.Claimed == 0 {
			assert.Nil(t, info.ClaimedS, name)
		} else if assert.NotNil(t, info.ClaimedS, name) {
			assert.Equal(t, c.Claimed, *info.ClaimedS, name)
		}
	}
}

// Refusal is a file that cannot be used, and why.
type Refusal struct {
	Name string
	B    []byte
	Code fault.Code
	Text string
}

// Refuses checks that each file is refused, and why.
func Refuses(t *testing.T, file string, cases []Refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			_, err := Bytes(file, c.B)
			RefusedAs(t, err, c.Code, file+": ", c.Text)
		})
	}
}

// everyCut checks every truncation: an error, or no more than the bytes hold and a sign that
// something is missing.
func everyCut(t *testing.T, b []byte, c Decoded) {
	t.Helper()
	unclaimed := 0
	for n := range b {
		info, err := Bytes("cut", b[:n])
		Sane(t, b[:n])
		if err != nil {
			continue
		}
		samples := info.DurationS * float64(info.SampleRate)
		require.LessOrEqual(t, samples, float64(n-c.Start)*c.PerByte+1e-6, "%d bytes", n)
		require.LessOrEqual(t, info.DurationS, c.Want.DurationS+1e-9, "%d bytes", n)
		if info.DurationS < c.Want.DurationS-1e-9 && info.ClaimedS == nil {
			require.NotEqual(t, "header", info.Method, "%d bytes", n)
			unclaimed++
		}
	}
	if c.Want.Method == "header" {
		assert.Zero(t, unclaimed, "cuts that nothing tells of")
	}
}

// everyFlip checks every file that differs in one bit of its first bytes or, by chance, of the
// others.
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
		Sane(t, b)
		b[i] ^= bit
	}
}
