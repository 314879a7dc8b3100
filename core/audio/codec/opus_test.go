package codec

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOpusPackets(t *testing.T) {
	for packet, want := range map[string]int64{
		"\x00": 480, "\x08": 960, "\x10": 1920, "\x18": 2880, "\x60": 480, "\x68": 960, "\x80": 120, "\x88": 240, "\x90": 480, "\x98": 960,
		"\x99": 1920, "\x9a": 1920, "\x9b\x05": 4800, "\x9b\xc6": 5760, "\x9b\x07": 0, "\x9b": 0, "": 0, "\x18\xff": 2880, "\x1b\x02": 5760,
	} {
		assert.Equal(t, want, OpusSamples([]byte(packet)), "%x", packet)
	}
}
