package plan

import (
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

const parakeet = "nvidia/parakeet-ctc-0.6b"

// lengths are log-normal durations about a median.
func lengths(median, sigma, shortest, longest float64) []float64 {
	r, out := rand.New(rand.NewSource(7)), make([]float64, 2000)
	for i := range out {
		out[i] = min(longest, max(shortest, median*math.Exp(sigma*r.NormFloat64())))
	}
	out[0] = longest
	return out
}

var datasets = []struct {
	name      string
	durations []float64
}{
	{"read books", lengths(13, 0.35, 1.5, 17)}, {"sentences", lengths(5, 0.35, 1, 12)},
	{"commands", lengths(1, 0.15, 0.5, 2)}, {"mixed", lengths(7, 0.7, 1, 30)},
}

// plainTimes are seconds of an epoch by the Trainer alone, by the same model of times as the plan's.
type plainTimes struct {
	all []evaluated // with nothing computed again, and with every layer
	// the published settings, +Inf where they do not fit; the fastest of the largest fixed batches
	// in random order, and by length
	published, largest, grouped float64
}

func timesOf(t *testing.T, in Inputs, c profile.Config, answer func(TraceRequest) Traced) plainTimes {
	t.Helper()
	in.Options = must(in.Options.Normalized())
	traced := []Traced{}
	for _, on := range []bool{false, true} {
		w := candidate{c.Precision(), profile.CheckpointingOf(on, 1, false), c.Optimizer}
		traced = append(traced, answer(*must(newSearch(in)).traceRequest(w)))
	}
	in.Traced = traced
	p := plainTimes{published: math.Inf(1), largest: math.Inf(1), grouped: math.Inf(1), all: must(must(newSearch(in)).run())}
	for _, f := range p.all {
		p.largest = min(p.largest, f.fixed[0].epoch.Likely)
		p.grouped = min(p.grouped, f.oneSize("grouped").epoch.Likely)
	}
	in.Options.Policy = PublishedRule
	formula := must(planPublished(in))
	w := candidate{formula.Precision(), formula.Checkpointing(), c.Optimizer}
	for _, b := range fixedOf(p.all, w, formula.PerDeviceTrainBatchSize) {
		p.published = b.epoch.Likely
	}
	return p
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// alone is the epoch with what a Trainer without the guard is told.
func (p plainTimes) alone(t *testing.T, c profile.Config) (seconds float64, settings string) {
	t.Helper()
	c = c.WithoutGuard()
	w, micro, steps := c.Checkpointing(), c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps
	require.Equal(t, c.TargetBatchSize, micro*steps*c.DeviceCount)
	b := fixedOf(p.all, candidate{c.Precision(), w, c.Optimizer}, micro)
	require.Len(t, b, 1, "%d %s fit", micro, w.With())
	return b[0].epoch.Likely, fmt.Sprintf("%d × %d %s", micro, steps, w.With())
}

// TestTheTrainerAloneIsNoSlowerThanOtherFixedBatches: what a plan tells a Trainer without the guard
// is as fast as the published settings, and as any largest batch in random order unless the guard
// recomputes and the Trainer would not. Sorted by length it is faster nearly always. Then the plan
// names by how much.
func TestTheTrainerAloneIsNoSlowerThanOtherFixedBatches(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	cases := map[string]int{}
	for _, model := range []string{"facebook/wav2vec2-base", xlsr, xlsr1B, "facebook/w2v-bert-2.0", parakeet, whisperSmall, "openai/whisper-large-v3"} {
		for _, card := range []string{"T4", "L4", "RTX 4090", "H200"} {
			for _, data := range datasets {
				m := standIns[model]
				if m.fixed > 0 && data.name != "mixed" {
					continue
				}
				in := described(t, model, data.durations, card)
				c, err := makePlan(in)
				if err != nil {
					continue
				}
				p := timesOf(t, in, c, func(w TraceRequest) Traced { return m.answer(in, w) })
				alone, settings := p.alone(t, c)
				name := fmt.Sprintf("%s, %s, %s: %s", model, card, data.name, settings)
				t.Logf("%s: %.3g h; published %.3g, largest %.3g, grouped %.3g h", name, alone/3600, p.published/3600, p.largest/3600, p.grouped/3600)
				assert.LessOrEqual(t, alone, p.published, name)
				reason := decision(t, c, "per_device_train_batch_size").Reason
				assert.True(t, alone <= p.largest || strings.Contains(reason, "faster, and gradient_checkpointing=False takes it"), "%s: %s", name, reason)
				reason = decision(t, c, "length_handling").Reason
				named := strings.Contains(reason, "× faster than random order, for steps of similar clips")
				assert.Equal(t, alone >= worthNaming*p.grouped, named, "%s: %s", name, reason)
				cases["all"]++
				if named {
					cases["grouped is faster"]++
				}
				if c.WithoutGuard().Checkpointing() != c.Checkpointing() {
					cases["other checkpointing than with the guard"]++
				}
			}
		}
	}
	t.Log(cases)
	assert.GreaterOrEqual(t, cases["all"], 40)
}
