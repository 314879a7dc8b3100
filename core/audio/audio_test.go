package audio

import (
	"bytes"
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
			_, st, err := File(path)
			audiotest.RefusedAs(t, err, fault.Corrupt, path+": ", c.text)
			assert.EqualValues(t, len(c.b), st.Size)
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

const secret = "swordfish"

func TestWhatIsNoAudioIsNamedAndNotQuoted(t *testing.T) {
	for content, name := range map[string]string{
		"root:" + secret + ":19000:0:99999:7:::\n":              "text",
		"\xff" + secret + "\x01":                                "of no known format",
		"version https://git-lfs.github.com/spec/v1\n" + secret: "a Git LFS pointer (git lfs pull fetches the file)",
		"\n <!DOCTYPE HTML>" + secret:                           "an HTML page, as a failed download leaves",
		"<html lang=en>" + secret:                               "an HTML page, as a failed download leaves",
		"PK\x03\x04" + secret:                                   "a ZIP archive",
		"\xff\xd8\xff\xe0" + secret:                             "a JPEG image",
		"PAR1" + secret:                                         "a Parquet file",
		string(make([]byte, 500)) + secret:                      "zeros, as an unfinished download leaves",
		"é" + secret:                                            "text",
	} {
		path := audiotest.Write(t, []byte(content))
		_, _, err := File(path)
		audiotest.RefusedAs(t, err, fault.Corrupt, path+": ", "is not audio: its content is "+name)
		assert.NotContains(t, err.Error()+fault.From(err).Hint, secret)
	}
}

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
	full, st, err := File(path)
	require.NoError(t, err, "a section leaves nothing behind in the pool")
	assert.Equal(t, []any{0.625, int64(20044)}, []any{full.DurationS, st.Size})
}
