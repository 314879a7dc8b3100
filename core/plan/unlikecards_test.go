package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

func unlike(t *testing.T, cards ...string) Inputs {
	t.Helper()
	in := described(t, xlsr, speech(4000, 20, 1), cards...)
	for i := range in.Hardware.GPUs {
		in.Hardware.GPUs[i].Index = i
	}
	return in
}

func waitWarning(c profile.Config) string {
	for _, w := range c.Warnings {
		if strings.HasPrefix(w, "Each step waits") {
			return w
		}
	}
	return ""
}

// TestUnlikeCards: with a T4 beside it a V100 waits most of the time, so that it is planned alone, too.
func TestUnlikeCards(t *testing.T) {
	warned := func(cards ...string) string { return waitWarning(planned(t, unlike(t, cards...))) }
	slow := warned("T4", "V100")
	assert.Contains(t, slow, "waits for Tesla T4")
	assert.Contains(t, slow, "Set CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES=1 before Python starts, and plan again.")
	assert.Contains(t, warned("A30", "RTX A6000"), "% longer", "a second card that is nearly as fast is worth it")
	assert.Empty(t, warned("T4", "T4"))
	assert.Empty(t, warned("T4"))
}

// TestUnlikeCardsAreNamedByIdentifier: indices are not those of the driver where CUDA puts the fastest first, or some are hidden.
func TestUnlikeCardsAreNamedByIdentifier(t *testing.T) {
	in := unlike(t, "T4", "V100", "V100")
	for i := range in.Hardware.GPUs {
		in.Hardware.GPUs[i].UUID = fmt.Sprintf("GPU-%d", 7+i)
	}
	warning := waitWarning(planned(t, in))
	assert.Contains(t, warning, "2 × Tesla V100")
	assert.Contains(t, warning, "Set CUDA_VISIBLE_DEVICES=GPU-8,GPU-9 before")
}

// TestDevicesCarryTheirIdentifiers, by which processes find their own, and a plan says where CUDA may have selected others.
func TestDevicesCarryTheirIdentifiers(t *testing.T) {
	in := unlike(t, "T4", "V100")
	in.Hardware.GPUs[1].UUID, in.Hardware.OrderNote = "GPU-8", "CUDA may have selected others."
	for _, policy := range []string{DefaultPolicy, PublishedRule} {
		in.Options.Policy = policy
		c := planned(t, in)
		require.Len(t, c.Devices, 2)
		assert.Equal(t, []string{"", "GPU-8"}, []string{c.Devices[0].UUID, c.Devices[1].UUID})
		assert.Contains(t, c.Warnings, in.Hardware.OrderNote)
	}
}

// TestTheSlowestTakesTheLongest: an L4 has the higher published rate in tensor cores, and half the bandwidth and a quarter of the power.
func TestTheSlowestTakesTheLongest(t *testing.T) {
	for _, other := range []string{"A10G", "RTX 3090"} {
		for _, cards := range [][]string{{other, "L4"}, {"L4", other}} {
			c := planned(t, unlike(t, cards...))
			assert.Contains(t, waitWarning(c), "waits for NVIDIA L4", cards)
			assert.InEpsilon(t, planned(t, unlike(t, "L4", "L4")).Times.StepS.Likely, c.Times.StepS.Likely, 0.05, cards)
		}
	}
}

// TestKernelsOfOneOfUnlikeCards: a table counts for its own card, in the plan of all as in that of the faster one alone.
func TestKernelsOfOneOfUnlikeCards(t *testing.T) {
	for table, date := range map[string]string{"T4": "2026-03-01", "V100-16": ""} {
		measured, err := measuredTable(t, slower(t, table, 0.9, 0.9, 0.9), 0).Profile()
		require.NoError(t, err)
		in := unlike(t, "T4", "V100")
		in.Options.KernelProfile = &measured
		c := planned(t, in)
		assert.Equal(t, date, c.Times.Measured, table)
		assert.Contains(t, waitWarning(c), "waits for Tesla T4", table)
		in.Hardware.GPUs = unlike(t, "L4", "A10G").Hardware.GPUs
		_, err = Make(in)
		require.ErrorContains(t, err, "the kernels were measured on a "+table)
	}
}
