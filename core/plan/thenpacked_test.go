package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// byName are the alternatives to a plan.
func byName(c profile.Config) map[string]profile.Alternative {
	all := map[string]profile.Alternative{}
	for _, a := range c.Alternatives {
		all[a.Name] = a
	}
	return all
}

const thenPackedName = "random, then packed steps, sized by memory"

// TestARunIsOneRandomEpochAndPackedOnes: of any number of epochs, as an alternative and as asked for.
func TestARunIsOneRandomEpochAndPackedOnes(t *testing.T) {
	for _, epochs := range []float64{0.5, 1, 1.5, 3, 20} {
		in := described(t, xlsr, speech(4000, 30, 1), "T4")
		in.Options.NumTrainEpochs = &epochs
		random := planned(t, in)
		offered, shown := byName(random)[thenPackedName]
		assert.Equal(t, epochs > 1, shown, "%v epochs: without a later one nothing is packed", epochs)
		in.Options.LengthHandling = batching.Packed
		packed := planned(t, in)
		in.Options.LengthHandling = batching.RandomThenPacked
		c := planned(t, in)
		checkSearched(t, c)
		assert.Equal(t, []string{"random_then_packed", "memory"}, []string{c.LengthHandling, c.MicroBatching})
		assert.Equal(t, "asked for", decision(t, c, "length_handling").Reason)
		first := min(1, epochs)
		run := first*random.Times.EpochHours.Likely + (epochs-first)*packed.Times.EpochHours.Likely
		assert.InEpsilon(t, run, epochs*c.Times.EpochHours.Likely, 0.005, "%v epochs", epochs)
		if shown {
			assert.InEpsilon(t, c.Times.EpochHours.Likely, offered.EpochHours.Likely, 1e-9)
			assert.Less(t, *offered.Speed, 1.0)
		}
	}
}

// TestPackedStepsBehindARandomEpochAreOfferedWhereTheyAreSafe, by their name, and never taken.
func TestPackedStepsBehindARandomEpochAreOfferedWhereTheyAreSafe(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Inputs)
		why    string
		named  bool
	}{
		"one source":     {func(*Inputs) {}, "it is safe only where length says nothing of a clip's content", true},
		"preset speed":   {func(in *Inputs) { in.Options.Preset = Speed }, "", false},
		"several codecs": {func(in *Inputs) { in.Dataset.Codecs = map[string]int{"flac": 1000, "mp3": 3000} }, "3.5 % higher than in random order", false},
		"several rates":  {func(in *Inputs) { in.Dataset.SampleRates = map[string]int{"8000": 1, "16000": 3999} }, "3.5 % higher than in random order", false},
		"another order":  {func(in *Inputs) { in.Options.LengthHandling = "random" }, "another order was asked for", false},
		"few steps":      {func(in *Inputs) { *in = described(t, xlsr, speech(19*32, 30, 1), "T4") }, "19 steps an epoch are too few", false},
	} {
		in := described(t, xlsr, speech(4000, 30, 1), "T4")
		test.change(&in)
		c := planned(t, in)
		assert.NotEqual(t, "random_then_packed", c.LengthHandling, name)
		offered, shown := byName(c)[thenPackedName]
		require.True(t, shown, name)
		assert.Contains(t, offered.Why, test.why, name)
		if test.named {
			assert.Contains(t, offered.Why, `it is taken with length_handling="random_then_packed"`)
		} else {
			assert.NotContains(t, offered.Why, "random_then_packed", name)
		}
	}
	for _, a := range planned(t, described(t, "facebook/wav2vec2-base", speech(4000, 20, 1), "T4")).Alternatives {
		assert.NotEqual(t, thenPackedName, a.Name, "where padding stays, packed steps save nothing")
	}
}
