package mpeg

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// adts makes a frame of AAC LC at 16 kHz with some data behind the header of head bytes.
func adts(channels, blocks, head, size int, data ...byte) []byte {
	b := make([]byte, size)
	copy(b, []byte{0xff, 0xf1, 1<<6 | 8<<2 | byte(channels>>2), byte(channels<<6 | size>>11), byte(size >> 3), byte(size<<5) | 0x1f, 0xfc | byte(blocks-1)})
	if head == adtsHeadLen+adtsCRCLen {
		b[1] &^= 1
	}
	copy(b[head:], data)
	return b
}

func TestADTS(t *testing.T) {
	frame := adts(2, 1, 7, 100)
	for name, c := range map[string]struct {
		b        []byte
		samples  int64
		channels int
	}{
		"two channels":         {bytes.Repeat(frame, 50), 50 * 1024, 2},
		"7.1":                  {bytes.Repeat(adts(7, 1, 7, 100), 50), 50 * 1024, 8},
		"with checksums":       {bytes.Repeat(adts(1, 1, 9, 100), 50), 50 * 1024, 1},
		"blocks in a frame":    {bytes.Repeat(adts(1, 4, 7, 100), 50), 50 * 4096, 1},
		"dual mono":            {bytes.Repeat(adts(0, 1, 7, 100), 50), 50 * 1024, 2},
		"frames as headers":    {bytes.Repeat(adts(2, 1, 7, 7), 50), 50 * 1024, 2},
		"longest frames":       {bytes.Repeat(adts(2, 1, 7, 8191), 50), 50 * 1024, 2},
		"from the middle":      {bytes.Repeat(frame, 50)[30:], 49 * 1024, 2},
		"last frame cut":       {bytes.Repeat(frame, 50)[:4999], 49 * 1024, 2},
		"something between":    {join(bytes.Repeat(frame, 50), noise(5000), bytes.Repeat(frame, 50)), 100 * 1024, 2},
		"a hole":               {join(bytes.Repeat(frame, 50), bytes.Repeat(frame, 50)[50:]), 99 * 1024, 2},
		"channels that change": {join(bytes.Repeat(adts(1, 1, 7, 100), 50), bytes.Repeat(frame, 50)), 100 * 1024, 1},
	} {
		info, samples, err := audiotest.SamplesOf(c.b)
		require.NoError(t, err, name)
		assert.Equal(t, c.samples, samples, name)
		info.DurationS = 0
		assert.Equal(t, media.Info{SampleRate: 16000, Channels: c.channels, Codec: "aac", Method: "walked"}, info, name)
	}
}

func TestADTSHeads(t *testing.T) {
	good := adts(2, 1, 7, 100)
	for name, edit := range map[string]func(b []byte){
		"no sync":                       func(b []byte) { b[1] = 0xe1 },
		"a layer":                       func(b []byte) { b[1] |= 2 },
		"a reserved rate":               func(b []byte) { b[2] = 13 << 2 },
		"an escaped rate":               func(b []byte) { b[2] = 15 << 2 },
		"shorter than its header":       func(b []byte) { b[3], b[4], b[5] = 0, 0, 6<<5 },
		"no room for its checksum":      func(b []byte) { b[1], b[3], b[4], b[5] = 0xf0, 0, 1, 0 },
		"length zero: would never move": func(b []byte) { b[3], b[4], b[5] = 0, 0, 0 },
	} {
		b := bytes.Clone(good)
		edit(b)
		_, ok := parseADTSHead(b)
		assert.False(t, ok, name)
		_, err := audiotest.Bytes("x", bytes.Repeat(b, 50))
		audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "is not audio")
	}
}

func TestADIF(t *testing.T) {
	_, err := audiotest.Bytes("x", []byte("ADIF\x00\x00\x00\x00\x00"))
	audiotest.RefusedAs(t, err, fault.Unsupported, "x: ", "is AAC (ADIF), which is not supported yet")
}

// TestProgramConfig: one and a pair in front, a pair behind, one low, told by the data.
func TestProgramConfig(t *testing.T) {
	for _, head := range []int{7, 9} {
		pce := []byte{0b101_0000_0, 0b1_1000_001, 0b0_0000_000, 0b1_01_000_00, 0b00_0_0_0_000, 0b0_0_1_0001_1, 0b0010_0000}
		info, err := audiotest.Bytes("x", bytes.Repeat(adts(0, 1, head, 100, pce...), 5))
		require.NoError(t, err)
		assert.Equal(t, 6, info.Channels)
	}
}

func FuzzADTS(f *testing.F) {
	for _, name := range []string{"tone.aac", "mpeg2_stereo_44k.aac", "six_channels_by_pce.aac"} {
		f.Add(audiotest.Fixture(f, name)[2:2500])
	}
	f.Add(bytes.Repeat(adts(2, 1, 7, 7), 20)[2:])
	f.Fuzz(func(t *testing.T, b []byte) { audiotest.Sane(t, append([]byte{0xff, 0xf1}, b...)) })
}
