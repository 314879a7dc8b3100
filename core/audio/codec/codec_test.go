package codec

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAACConfig(t *testing.T) {
	cases := []struct {
		name string
		b    string
		want AAC
	}{
		{"LC 44.1 kHz stereo", "\x12\x10", AAC{Rate: 44100, Core: 44100, Channels: 2, Frame: 1024}},
		{"LC, frames of 960", "\x12\x14", AAC{Rate: 44100, Core: 44100, Channels: 2, Frame: 960}},
		{"SBR told first", "\x2b\x92\x08\x00", AAC{Rate: 44100, Core: 22050, Channels: 2, Frame: 1024}},
		{"SBR told behind", "\x13\x90\x56\xe5\xa0", AAC{Rate: 44100, Core: 22050, Channels: 2, Frame: 1024}},
		{"SBR and PS told behind", "\x13\x88\x56\xe5\xa5\x48\x80", AAC{Rate: 44100, Core: 22050, Channels: 2, Frame: 1024}},
		{"PS told first", "\xeb\x8a\x08\x00", AAC{Rate: 44100, Core: 22050, Channels: 2, Frame: 1024}},
		{"rate in full", "\x17\x80\x1f\x40\x08", AAC{Rate: 16000, Core: 16000, Channels: 1, Frame: 1024}},
		{"7.1", "\x12\x38", AAC{Rate: 44100, Core: 44100, Channels: 8, Frame: 1024}},
		{"MP3 inside", "\xf8\x46\x40", AAC{Codec: "mp3", Rate: 48000, Core: 48000, Channels: 2}},
	}
	for _, c := range cases {
		got, ok := ParseAAC([]byte(c.b))
		assert.True(t, ok, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
	for _, b := range []string{"", "\x12", "\x16\x90", "\xff\xff"} {
		_, ok := ParseAAC([]byte(b))
		assert.False(t, ok, "%x", b)
	}
}

func FuzzAACConfig(f *testing.F) {
	f.Add([]byte("\x13\x88\x56\xe5\xa5\x48\x80"))
	f.Add([]byte("\x12\x04\x04\x88\x00\x04\xc4\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := ParseAAC(b); ok {
			assert.Positive(t, c.Rate)
			assert.Positive(t, c.Channels)
			assert.GreaterOrEqual(t, c.Frame, int64(0))
		}
	})
}

func TestOpusPackets(t *testing.T) {
	for packet, want := range map[string]int64{
		"\x00": 480, "\x08": 960, "\x10": 1920, "\x18": 2880, "\x60": 480, "\x68": 960, "\x80": 120, "\x88": 240, "\x90": 480, "\x98": 960,
		"\x99": 1920, "\x9a": 1920, "\x9b\x05": 4800, "\x9b\xc6": 5760, "\x9b\x07": 0, "\x9b": 0, "": 0, "\x18\xff": 2880, "\x1b\x02": 5760,
	} {
		assert.Equal(t, want, OpusSamples([]byte(packet)), "%x", packet)
	}
}
