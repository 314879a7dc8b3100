package audio

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return b
}

func refusedAs(t *testing.T, err error, code fault.Code, prefix, text string) {
	t.Helper()
	var f *fault.Error
	require.True(t, errors.As(err, &f), "%v", err)
	assert.Equal(t, code, f.Code)
	assert.True(t, strings.HasPrefix(f.Message, prefix), f.Message)
	assert.Contains(t, f.Message, text)
	assert.NotEmpty(t, f.Hint)
	assert.Equal(t, prefix+errors.Unwrap(err).Error(), f.Message, "the cause is the bare reason")
}

// sane is what must hold of any bytes: an error, or a possible answer.
func sane(t *testing.T, b []byte) {
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

func TestFixtures(t *testing.T) {
	const length = 17600 // samples at 16 kHz
	cases := []struct {
		file    string
		samples float64
		want    Info
	}{
		{"tone.wav", length, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}},
		{"pcm24.wav", length, Info{SampleRate: 16000, Channels: 1, Bits: 24, Codec: "pcm_s24le", Method: "header"}},
		{"float32.wav", length, Info{SampleRate: 16000, Channels: 1, Bits: 32, Codec: "pcm_f32le", Method: "header"}},
		{"alaw.wav", length, Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_alaw", Method: "header"}},
		{"mulaw.wav", length, Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_mulaw", Method: "header"}},
		{"adpcm_ms.wav", 18000, Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ms", Method: "header"}},
		{"adpcm_ima.wav", 17675, Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_wav", Method: "header"}},
		{"tone.flac", length, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
		{"piped.flac", length, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
		{"unknown_length.flac", length, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "tail"}},
		{"ffmpeg_piped_stereo_44k.flac", 48510, Info{SampleRate: 44100, Channels: 2, Bits: 16, Codec: "flac", Method: "tail"}},
		{"tone.ogg", length, Info{SampleRate: 16000, Channels: 1, Codec: "vorbis", Method: "tail"}},
		{"stereo_44k_4.4s.ogg", 4 * 48510, Info{SampleRate: 44100, Channels: 2, Codec: "vorbis", Method: "tail"}},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			c.want.DurationS = c.samples / float64(c.want.SampleRate)
			got, size, err := File(filepath.Join("testdata", c.file))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			assert.EqualValues(t, len(fixture(t, c.file)), size)
			got, err = Bytes(c.file, fixture(t, c.file))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestKnownButNotRead(t *testing.T) {
	cases := map[string]struct {
		b    []byte
		text string
	}{
		"WMA in WAV": {riff("RIFF").fmt(0x161, 1, 16000, 1, 0).chunk("data", second()).b, "WMA inside"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Bytes("dir/x", c.b)
			refusedAs(t, err, fault.Unsupported, "dir/x: ", c.text)
			assert.Contains(t, fault.From(err).Hint, "ffmpeg -i")
		})
	}
}

func TestNoAudio(t *testing.T) {
	for name, c := range map[string]struct {
		b    string
		text string
	}{
		"empty":       {"", "is empty"},
		"text":        {"hello world, this is no sound", `is not audio: its content is text`},
		"one byte":    {"R", `is not audio: its content is text`},
		"RIFF alone":  {"RIFF", "is not audio"},
		"a RIFF film": {"RIFF\x00\x10\x00\x00AVI LIST", "is not audio"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, []byte(c.b))
			_, size, err := File(path)
			refusedAs(t, err, fault.Corrupt, path+": ", c.text)
			assert.EqualValues(t, len(c.b), size)
		})
	}
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	pipe, loop, secret := filepath.Join(dir, "pipe.wav"), filepath.Join(dir, "loop.wav"), filepath.Join(dir, "secret.wav")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(loop, loop))
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o000))
	cases := map[string]string{
		dir:                           "is a folder",
		pipe:                          "is a pipe, socket or device",
		"/dev/null":                   "is a pipe, socket or device",
		filepath.Join(dir, "missing"): "no such file",
		"":                            "no such file",
		"a\x00b":                      "no such file",
		loop:                          "too many levels of symbolic links",
	}
	if os.Getuid() != 0 {
		cases[secret] = "permission denied"
	}
	for path, text := range cases {
		_, _, err := File(path)
		refusedAs(t, err, fault.NotFound, path+": ", text)
	}
}

func TestPrintable(t *testing.T) {
	assert.Equal(t, "größe.wav", fault.Printable("größe.wav"))
	assert.Equal(t, `gr\xf6\xdfe ö.wav`, fault.Printable("gr\xf6\xdfe ö.wav"))
	_, _, err := File("no/\xf6.wav")
	refusedAs(t, err, fault.NotFound, `no/\xf6.wav: `, "no such file")
}

func TestExtensions(t *testing.T) {
	for _, name := range []string{"a.wav", "A.WAV", "b.Flac", "c.d.ogg", "x.mp3", "y.opus"} {
		assert.True(t, HasExtension(name), name)
	}
	for _, name := range []string{"a.txt", "wav", "a.wav.txt", "", "a.json"} {
		assert.False(t, HasExtension(name), name)
	}
	seen := map[string]bool{}
	for _, e := range Extensions() {
		assert.Equal(t, strings.ToLower(e), e)
		assert.False(t, seen[e], "twice: %s", e)
		seen[e] = true
	}
}

func FuzzSniff(f *testing.F) {
	f.Add([]byte("ID3\x04\x00\x10\x00\x00\x00\x02abfLaC"))
	f.Add([]byte("\xff\xfb\x90\x00"))
	f.Add([]byte("FORM\x00\x00\x00\x00AIFC"))
	f.Fuzz(sane)
}

func BenchmarkFile(b *testing.B) {
	for _, name := range []string{"tone.wav", "tone.flac", "tone.ogg", "stereo_44k_4.4s.ogg", "tone.opus", "tone.spx", "tone.oga"} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join("testdata", name)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := File(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
