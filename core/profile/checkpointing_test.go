package profile

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCheckpointing(t *testing.T) {
	for _, c := range []struct {
		Checkpointing
		on, partly bool
		share      float64
		said, with string
	}{
		{CheckpointingOf(false, 7, false), false, false, 0, "off", "without checkpointing"},
		{CheckpointingOf(true, 0, false), true, false, 1, "on", "with checkpointing"},
		{CheckpointingOf(true, 1, false), true, false, 1, "on", "with checkpointing"},
		{CheckpointingOf(true, 2, false), true, true, 0.5, "on every 2nd layer", "with checkpointing of every 2nd layer"},
		{CheckpointingOf(true, 3, false), true, true, 1.0 / 3, "on every 3rd layer", "with checkpointing of every 3rd layer"},
		{CheckpointingOf(true, 1, true), true, false, 1, "on, offloaded", "with offloaded checkpointing"},
		{CheckpointingOf(true, 2, true), true, true, 0.5, "on every 2nd layer, offloaded", "with offloaded checkpointing of every 2nd layer"},
		{CheckpointingOf(false, 2, true), false, false, 0, "off", "without checkpointing"},
		{CheckpointingOf(true, 8, false), true, true, 0.125, "on every 8th layer", "with checkpointing of every 8th layer"},
	} {
		assert.Equal(t, []any{c.on, c.partly, c.share, c.said, c.with}, []any{c.On(), c.Partly(), c.Share(), c.String(), c.With()})
	}
}
