// Package entry hands package audio to the tests of its parsers.
package entry

import (
	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
)

func init() { audiotest.Use(audio.Bytes, audio.File) }
