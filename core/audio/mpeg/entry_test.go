package mpeg_test

import (
	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
)

func init() { audiotest.Use(audio.Bytes, audio.File) }
