package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestUnlikeCards: with a T4 beside it a V100 waits most of the time, so that it is planned alone, too.
func TestUnlikeCards(t *testing.T) {
	warned := func(cards ...string) string {
		in := described(t, xlsr, speech(4000, 20, 1), cards...)
		for i := range in.Hardware.GPUs {
			in.Hardware.GPUs[i].Index = i
		}
		for _, w := range planned(t, in).Warnings {
			if strings.HasPrefix(w, "Each step waits") {
				return w
			}
		}
		return ""
	}
	slow := warned("T4", "V100")
	assert.Contains(t, slow, "waits for Tesla T4")
	assert.Contains(t, slow, "Set CUDA_VISIBLE_DEVICES=1 before Python starts, and plan again.")
	assert.Contains(t, warned("A10G", "L4"), "% longer", "a second card that is nearly as fast is worth it")
	assert.Empty(t, warned("T4", "T4"))
	assert.Empty(t, warned("T4"))
}
