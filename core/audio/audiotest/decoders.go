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
// wrote, counted when it was made.
type Decoded struct {
	File    string
	Samples int
	Want    media.Info // without its duration
	// for the truncations, where its samples start and how many of them a byte can hold at most; 0:
	// the test of its format cuts it
	Start   int
	PerByte float64
}

// Agree checks that each fixture has the length that decoders find, on disk and in memory, and that
// a damaged one is an error or a possible answer.
func Agree(t *testing.T, cases []Decoded) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.File, func(t *testing.T) {
			c.Want.DurationS = float64(c.Samples) / float64(c.Want.SampleRate)
			b := Fixture(t, c.File)
			got, st, err := File(Path(c.File))
			require.NoError(t, err)
			assert.Equal(t, c.Want, got)
			assert.EqualValues(t, len(b), st.Size)
			got, err = Bytes(c.File, b)
			require.NoError(t, err)
			assert.Equal(t, c.Want, got)
			if c.PerByte > 0 {
				everyCut(t, b, c)
			}
			someFlips(t, b)
		})
	}
}

// Clip is a file and what is measured of it; no Claimed: nothing is claimed.
type Clip struct {
	B                []byte
	Seconds, Claimed float64
	Codec, Method    string // "": not looked at
}

// Measured checks durations, claims, codecs and methods, on disk and in memory.
func Measured(t *testing.T, clips map[string]Clip) {
	t.Helper()
	for name, c := range clips {
		t.Run(name, func(t *testing.T) {
			info, err := Bytes(name, c.B)
			require.NoError(t, err)
			assert.InDelta(t, c.Seconds, info.DurationS, 1e-9)
			if c.Codec != "" {
				assert.Equal(t, c.Codec, info.Codec)
			}
			if c.Method != "" {
				assert.Equal(t, c.Method, info.Method)
			}
			if c.Claimed == 0 {
				assert.Nil(t, info.ClaimedS)
			} else if assert.NotNil(t, info.ClaimedS) {
				assert.InDelta(t, c.Claimed, *info.ClaimedS, 1e-9)
			}
			onDisk, st, err := File(Write(t, c.B))
			require.NoError(t, err)
			assert.Equal(t, info, onDisk)
			assert.EqualValues(t, len(c.B), st.Size)
		})
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

// someFlips checks files that differ in one bit of its first bytes or, by chance, of the others.
func someFlips(t *testing.T, b []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		i := r.IntN(min(len(b), 160))
		if r.IntN(2) == 0 {
			i = r.IntN(len(b))
		}
		bit := byte(1) << r.IntN(8)
		b[i] ^= bit
		Sane(t, b)
		b[i] ^= bit
	}
}
