package audio

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

func init() { audiotest.Use(Bytes, File) }

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
			path := audiotest.Write(t, []byte(c.b))
			_, size, err := File(path)
			audiotest.RefusedAs(t, err, fault.Corrupt, path+": ", c.text)
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
		"no/\xf6.wav":                 "no such file",
		loop:                          "too many levels of symbolic links",
	}
	if os.Getuid() != 0 {
		cases[secret] = "permission denied"
	}
	for path, text := range cases {
		_, _, err := File(path)
		audiotest.RefusedAs(t, err, fault.NotFound, strings.ReplaceAll(path, "\xf6", `\xf6`)+": ", text)
	}
}

func TestExtensions(t *testing.T) {
	for _, name := range []string{"a.wav", "A.WAV", "b.Flac", "c.d.ogg", "x.mp3", "y.opus"} {
		assert.True(t, HasExtension(name), name)
	}
	for _, name := range []string{"a.txt", "wav", "a.wav.txt", "", "a.json"} {
		assert.False(t, HasExtension(name), name)
	}
	owners := map[string]bool{}
	for _, e := range Extensions() {
		assert.Equal(t, strings.ToLower(e), e)
		assert.False(t, owners[e], "twice: %s", e)
		owners[e] = true
	}
}

func FuzzSniff(f *testing.F) {
	f.Add([]byte("ID3\x04\x00\x10\x00\x00\x00\x02abfLaC"))
	f.Add([]byte("\xff\xfb\x90\x00"))
	f.Add([]byte("FORM\x00\x00\x00\x00AIFC"))
	f.Fuzz(audiotest.Sane)
}
