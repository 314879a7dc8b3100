package plan

import (
	"fmt"
	"slices"
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

// evenly is unlike cards that share the steps of a stream, which is done evenly.
func evenly(t *testing.T, cards ...string) Inputs {
	t.Helper()
	in := unlike(t, cards...)
	in.Options.Streamed = true
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

// TestUnlikeCards: with a T4 beside it a V100 waits most of the time, so that it is planned alone,
// too.
func TestUnlikeCards(t *testing.T) {
	warned := func(cards ...string) string { return waitWarning(planned(t, evenly(t, cards...))) }
	slow := warned("T4", "V100")
	assert.Contains(t, slow, "waits for Tesla T4")
	assert.Contains(t, slow, "Set CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES=1 before Python starts, and plan again.")
	assert.Contains(t, warned("A30", "RTX A6000"), "% longer", "a second card that is nearly as fast is worth it")
	assert.Empty(t, warned("T4", "T4"))
	assert.Empty(t, warned("T4"))
}

// TestUnlikeCardsAreNamedByIdentifier: indices are not those of the driver where CUDA puts the
// fastest first, or some are hidden.
func TestUnlikeCardsAreNamedByIdentifier(t *testing.T) {
	in := evenly(t, "T4", "V100", "V100")
	for i := range in.Hardware.GPUs {
		in.Hardware.GPUs[i].UUID = fmt.Sprintf("GPU-%d", 7+i)
	}
	warning := waitWarning(planned(t, in))
	assert.Contains(t, warning, "2 × Tesla V100")
	assert.Contains(t, warning, "Set CUDA_VISIBLE_DEVICES=GPU-8,GPU-9 before")
}

// TestTheSlowestTakesTheLongest: an L4 has the higher published rate in tensor cores, and half the
// bandwidth and a quarter of the power.
func TestTheSlowestTakesTheLongest(t *testing.T) {
	for _, other := range []string{"A10G", "RTX 3090"} {
		for _, cards := range [][]string{{other, "L4"}, {"L4", other}} {
			c := planned(t, evenly(t, cards...))
			assert.Contains(t, waitWarning(c), "waits for NVIDIA L4", cards)
			assert.InEpsilon(t, planned(t, evenly(t, "L4", "L4")).Times.StepS.Likely, c.Times.StepS.Likely, 0.05, cards)
		}
	}
}

// TestKernelsOfOneOfUnlikeCards: a table counts for its own card, in the plan of all as in that of
// the faster one alone.
func TestKernelsOfOneOfUnlikeCards(t *testing.T) {
	for table, date := range map[string]string{"T4": "2026-03-01", "V100-16": ""} {
		measured, err := measuredTable(t, slower(t, table, 0.9, 0.9, 0.9), 0).Profile()
		require.NoError(t, err)
		in := evenly(t, "T4", "V100")
		in.Options.KernelProfile = &measured
		c := planned(t, in)
		assert.Equal(t, date, c.Times.Measured, table)
		assert.Contains(t, waitWarning(c), "waits for Tesla T4", table)
		in.Hardware.GPUs = unlike(t, "L4", "A10G").Hardware.GPUs
		_, err = makePlan(in)
		require.ErrorContains(t, err, "the kernels were measured on a "+table)
	}
}

func samples(c profile.Config) (all []int) {
	for _, d := range c.Devices {
		all = append(all, d.Samples)
	}
	return all
}

// TestUnlikeCardsShareClipsBySpeed: the slow one gets so many that the fast one need not wait, the
// step stays what it was.
func TestUnlikeCardsShareClipsBySpeed(t *testing.T) {
	for _, cards := range [][]string{{"T4", "V100"}, {"V100", "T4"}, {"L4", "A10G", "A10G", "A10G"}} {
		slowest := "T4"
		if cards[0] == "L4" {
			slowest = "L4"
		}
		c, slow := planned(t, unlike(t, cards...)), planned(t, unlike(t, slices.Repeat([]string{slowest}, len(cards))...))
		checkSearched(t, c)
		shares, sum := samples(c), 0
		for i, share := range shares {
			sum += share
			assert.LessOrEqual(t, c.Devices[i].MicroBatchSize, share)
			assert.Equal(t, cards[i] == slowest, share < 32/len(cards), "%v: %v", cards, shares)
		}
		assert.Equal(t, []int{32, 32}, []int{sum, c.Effective()}, "%v: %v", cards, shares)
		assert.Less(t, c.Times.StepS.Likely, 0.9*slow.Times.StepS.Likely, "%v", cards)
		assert.Equal(t, "memory", c.MicroBatching)
		d := decision(t, c, "distributed")
		assert.Contains(t, d.Reason, fmt.Sprintf("shared by speed (%d for %s", shares[0], c.Devices[0].Name))
		assert.Equal(t, "even shares", d.Alternative)
		assert.Contains(t, d.Gain, "faster")
		assert.Empty(t, waitWarning(c))
	}
	assert.Contains(t, strings.Join(planned(t, unlike(t, "T4", "V100", "V100")).Warnings, " "),
		"Even with clips shared by speed 2 × Tesla V100-SXM2-16GB alone would take", "a card may cost more than it adds")
}

// TestCardsThatShareEvenly: where all are alike, and where unequal shares would change what is
// learned.
func TestCardsThatShareEvenly(t *testing.T) {
	for name, change := range map[string]func(in *Inputs){
		"alike":           func(in *Inputs) { in.Hardware.GPUs[1] = in.Hardware.GPUs[0] },
		"a stream":        func(in *Inputs) { in.Options.Streamed = true },
		"divided state":   func(in *Inputs) { in.Options.Distributed = "zero2" },
		"assumed devices": func(in *Inputs) { n := 4; in.Options.DeviceCount = &n },
		"an unknown loss": func(in *Inputs) { in.Options.LossUnknown = true },
		"padding matters": func(in *Inputs) { *in = described(t, "facebook/wav2vec2-base", speech(4000, 20, 1), "T4", "V100") },
	} {
		in := unlike(t, "T4", "V100")
		change(&in)
		c := planned(t, in)
		assert.Len(t, slices.Compact(samples(c)), 1, name)
		assert.NotContains(t, decision(t, c, "distributed").Reason, "by speed", name)
	}
}
