// Package audiotest holds what the tests of audio formats share: fixtures, the checks that every
// parser must pass, and WAV files built chunk by chunk.
//
// Parsers are tested through the entry that callers use, package audio, so that a test sees a
// format recognised, and its errors named. audio imports the parsers, and their tests cannot import
// it in turn: an external test of each package hands it over (see Use).
package audiotest

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// The entry under test, as of package audio.
var (
	Bytes func(name string, b []byte) (media.Info, error)
	File  func(path string) (media.Info, media.Stat, error)
)

// Use sets the entry; call it from an init.
func Use(bytes func(string, []byte) (media.Info, error),
	file func(string) (media.Info, media.Stat, error)) {
	Bytes, File = bytes, file
}

// Path returns the path of a fixture, beside the parser of its family.
func Path(name string) string {
	_, source, _, _ := runtime.Caller(0)
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(source), "..", "*", "testdata", name))
	return append(found, name)[0] // a missing one is named when it is read
}

// Write puts b into a file of its own.
func Write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

// Fixture reads a fixture.
func Fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(Path(name))
	require.NoError(t, err)
	return b
}

// RefusedAs checks the error of a file that cannot be used: its code, its hint, and a message that
// starts with the name of the file.
func RefusedAs(t *testing.T, err error, code fault.Code, prefix, text string) {
	t.Helper()
	var f *fault.Error
	require.True(t, errors.As(err, &f), "%v", err)
	assert.Equal(t, code, f.Code)
	assert.True(t, strings.HasPrefix(f.Message, prefix), f.Message)
	assert.Contains(t, f.Message, text)
	if code == fault.Unsupported {
		assert.Contains(t, f.Hint, "ffmpeg -i")
	}
	assert.NotEmpty(t, f.Hint)
	assert.Equal(t, prefix+errors.Unwrap(err).Error(), f.Message, "the cause is the bare reason")
}

// Sane is what must hold of any bytes: an error, or a possible answer.
func Sane(t *testing.T, b []byte) {
	t.Helper()
	info, err := Bytes("fuzz", b)
	if err != nil {
		assert.Zero(t, info)
		var f *fault.Error
		require.True(t, errors.As(err, &f))
		assert.Contains(t, []fault.Code{fault.Corrupt, fault.Unsupported}, f.Code)
		return
	}
	assert.Positive(t, info.DurationS)
	assert.False(t, math.IsInf(info.DurationS, 0))
	assert.Positive(t, info.SampleRate)
	assert.Positive(t, info.Channels)
	assert.NotEmpty(t, info.Codec)
	assert.Contains(t, []string{"header", "tail", "walked", "estimated"}, info.Method)
	if info.ClaimedS != nil {
		assert.Positive(t, *info.ClaimedS)
		assert.False(t, math.IsInf(*info.ClaimedS, 0))
	}
}

// SamplesOf also returns the duration in samples.
func SamplesOf(b []byte) (media.Info, int64, error) {
	info, err := Bytes("x", b)
	return info, int64(info.DurationS*float64(info.SampleRate) + 0.5), err
}
