package riff_test

import _ "github.com/asrconfig/asrconfig-go/core/audio/audiotest/entry" // see audiotest.Use
