package runlog

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMemoryIsThatOfTheAlert(t *testing.T) {
	for _, row := range []struct {
		event, alert int
		text         string
		same         bool
	}{{0, 0, "", true}, {1, 0, "", false}, {-1, 0, "CUDA", true}, {-1, 0, "MemoryError", false}, {-1, -1, "MemoryError", true}, {-1, -1, "CUDA", false}} {
		assert.Equal(t, row.same, Event{Kind: EventOOM, GPU: row.event, Text: row.text}.ranOutOf(Alert{GPU: row.alert}), row)
	}
}
