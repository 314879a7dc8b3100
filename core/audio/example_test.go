package audio_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
)

// The format is recognised by the first bytes, not by the name of the file.
func ExampleFile() {
	folder, err := os.MkdirTemp("", "clips")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	second := audiotest.NewWAV("RIFF").Fmt(1, 1, 16000, 2, 16).Chunk("data", audiotest.Second()).Encoded
	path := filepath.Join(folder, "clip.bin")
	if err = os.WriteFile(path, second, 0o600); err != nil {
		panic(err)
	}
	info, size, err := audio.File(path)
	if err != nil {
		panic(err)
	}
	fmt.Println(info.DurationS, "s,", info.SampleRate, "Hz,", info.Channels, "channel,", info.Codec, "in", size, "bytes")
	// Output: 1 s, 16000 Hz, 1 channel, pcm_s16le in 32044 bytes
}
