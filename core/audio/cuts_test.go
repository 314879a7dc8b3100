package audio

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
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

// whole is a fixture with the samples per channel that decoders make of it.
type whole struct {
	file    string
	samples int
	want    Info // without its duration
}

// plays checks that each fixture has that length, on disk and in memory.
func plays(t *testing.T, cases []whole) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			c.want.DurationS = float64(c.samples) / float64(c.want.SampleRate)
			got, _, err := File(filepath.Join("testdata", c.file))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			got, err = Bytes(c.file, fixture(t, c.file))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// told is a file, and what its header and its size tell; claimed is 0 for no claim.
type told struct {
	b                []byte
	seconds, claimed float64
	codec, method    string
}

func tells(t *testing.T, cases map[string]told) {
	t.Helper()
	for name, c := range cases {
		info, err := Bytes(name, c.b)
		require.NoError(t, err, name)
		assert.Equal(t, []any{c.seconds, c.codec, c.method}, []any{info.DurationS, info.Codec, info.Method}, name)
		if c.claimed == 0 {
			assert.Nil(t, info.ClaimedS, name)
		} else if assert.NotNil(t, info.ClaimedS, name) {
			assert.Equal(t, c.claimed, *info.ClaimedS, name)
		}
	}
}

// refusal is a file that cannot be used, and why.
type refusal struct {
	name string
	b    []byte
	code fault.Code
	text string
}

func refuses(t *testing.T, file string, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Bytes(file, c.b)
			refusedAs(t, err, c.code, file+": ", c.text)
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
