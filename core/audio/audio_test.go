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
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

func init() { audiotest.Use(Bytes, File) }

func TestFixtures(t *testing.T) {
	const length = 17600 // samples at 16 kHz
	cases := []struct {
		file    string
		samples float64
		want    media.Info
	}{
		{"tone.wav", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}},
		{"pcm24.wav", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 24, Codec: "pcm_s24le", Method: "header"}},
		{"float32.wav", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 32, Codec: "pcm_f32le", Method: "header"}},
		{"alaw.wav", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_alaw", Method: "header"}},
		{"mulaw.wav", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 8, Codec: "pcm_mulaw", Method: "header"}},
		{"adpcm_ms.wav", 18000, media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ms", Method: "header"}},
		{"adpcm_ima.wav", 17675, media.Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_wav", Method: "header"}},
		{"tone.flac", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
		{"piped.flac", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
		{"unknown_length.flac", length, media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "tail"}},
		{"ffmpeg_piped_stereo_44k.flac", 48510, media.Info{SampleRate: 44100, Channels: 2, Bits: 16, Codec: "flac", Method: "tail"}},
		{"tone.ogg", length, media.Info{SampleRate: 16000, Channels: 1, Codec: "vorbis", Method: "tail"}},
		{"stereo_44k_4.4s.ogg", 4 * 48510, media.Info{SampleRate: 44100, Channels: 2, Codec: "vorbis", Method: "tail"}},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			c.want.DurationS = c.samples / float64(c.want.SampleRate)
			got, size, err := File(audiotest.Path(c.file))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			assert.EqualValues(t, len(audiotest.Fixture(t, c.file)), size)
			got, err = Bytes(c.file, audiotest.Fixture(t, c.file))
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
		"WMA in WAV": {audiotest.NewWAV("RIFF").Fmt(0x161, 1, 16000, 1, 0).Chunk("data", audiotest.Second()).Encoded, "WMA inside"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Bytes("dir/x", c.b)
			audiotest.RefusedAs(t, err, fault.Unsupported, "dir/x: ", c.text)
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
		loop:                          "too many levels of symbolic links",
	}
	if os.Getuid() != 0 {
		cases[secret] = "permission denied"
	}
	for path, text := range cases {
		_, _, err := File(path)
		audiotest.RefusedAs(t, err, fault.NotFound, path+": ", text)
	}
}

func TestNamesInErrorsArePrintable(t *testing.T) {
	_, _, err := File("no/\xf6.wav")
	audiotest.RefusedAs(t, err, fault.NotFound, `no/\xf6.wav: `, "no such file")
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
