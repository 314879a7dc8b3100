package media

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLastIndex(t *testing.T) {
	b := make([]byte, 5000)
	for _, at := range []int{0, 1021, 1022, 1024, 2047, 4996, 3} {
		clear(b)
		assert.Equal(t, -1, LastIndex(b, "OggS"))
		copy(b, "OggS")
		copy(b[at:], "OggS")
		assert.Equal(t, bytes.LastIndex(b, []byte("OggS")), LastIndex(b, "OggS"), at)
		assert.Equal(t, bytes.LastIndex(b[:at+3], []byte("OggS")), LastIndex(b[:at+3], "OggS"), at)
	}
}
