package audio

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

func TestSection(t *testing.T) {
	for _, name := range []string{"tone.wav", "tone.flac", "tone.ogg", "unknown_length.flac"} {
		b := audiotest.Fixture(t, name)
		want, err := Bytes(name, b)
		require.NoError(t, err)
		around := bytes.Repeat([]byte("OggS"), 5000) // what neighbours may look like
		path := audiotest.Write(t, append(append(bytes.Clone(around), b...), around...))
		got, err := Section(path, "in.tar/"+name, int64(len(around)), int64(len(b)))
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
		_, err = Section(path, "in.tar/"+name, int64(len(around))+1, int64(len(b)))
		audiotest.RefusedAs(t, err, fault.Corrupt, "in.tar/"+name+": ", "is not audio")
	}
	path := audiotest.Write(t, audiotest.Fixture(t, "tone.wav")[:20044])
	cut, err := Section(path, "x", 0, 35244)
	require.NoError(t, err)
	assert.Equal(t, 0.625, cut.DurationS)
	assert.Equal(t, 1.1, *cut.ClaimedS)
	_, err = Section(path, "x", 1<<40, 10)
	audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "is empty")
	_, err = Section(path+"no", "x", 0, 10)
	audiotest.RefusedAs(t, err, fault.NotFound, "x: ", "no such file")
	full, size, err := File(path)
	require.NoError(t, err, "a section leaves nothing behind in the pool")
	assert.Equal(t, []any{0.625, int64(20044)}, []any{full.DurationS, size})
}
