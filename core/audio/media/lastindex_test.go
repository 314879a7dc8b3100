package media

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLastIndex(t *testing.T) {
	b := make([]byte, 5000)
	for _, pos := range []int{0, 1021, 1022, 1024, 2047, 4996, 3} {
		clear(b)
		assert.Equal(t, -1, LastIndex(b, "OggS"))
		copy(b, "OggS")
		copy(b[pos:], "OggS")
		assert.Equal(t, bytes.LastIndex(b, []byte("OggS")), LastIndex(b, "OggS"), pos)
		assert.Equal(t, bytes.LastIndex(b[:pos+3], []byte("OggS")), LastIndex(b[:pos+3], "OggS"), pos)
	}
}
