package plan

import (
	"errors"
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

func pick[T any](r *rand.Rand, values ...T) T { return values[r.Intn(len(values))] }

// randomInputs draws valid inputs, from a laptop to a large server.
func randomInputs(r *rand.Rand) Inputs {
	var gpus []profile.GPU
	for range r.Intn(5) {
		g := gpu("card", pick(r, "3.7", "7.0", "7.5", "8.0", "9.0"), uint64(4e9+r.Float64()*188e9))
		if r.Intn(2) == 0 {
			g.MemoryFreeBytes = pointer(uint64(r.Float64() * float64(g.MemoryTotalBytes)))
		}
		gpus = append(gpus, g)
	}
	in := Inputs{
		Hardware: machine(r.Float64()*128, uint64(1+r.Intn(512)), gpus...),
		Dataset:  clips(0.1+r.Float64()*40, math.Pow(10, r.Float64()*5-1)),
		Model:    trainedModel(int64(math.Pow(10, 5+r.Float64()*5))),
		Options: Options{
			Policy: PublishedRule,
			Preset: pick(r, Presets...), Optimizer: pick(r, OptimizerNames()...), LRScaling: pick(r, ScaleSqrt, ScaleLinear, ScaleNone),
			TargetBatchSize: 1 + r.Intn(pick(r, 8, 64, MaxTargetBatchSize)), SafetyMargin: 0.70 + 0.25*r.Float64(),
			Preprocessing: pick(r, "", LightPreprocessing, HeavyPreprocessing),
		},
	}
	in.Hardware.Memory.AvailableBytes = uint64(r.Float64() * float64(in.Hardware.Memory.TotalBytes))
	return in
}

func TestEveryPlanKeepsItsPromises(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	plans := 0
	for range 1500 {
		in := randomInputs(r)
		c, err := Make(in)
		var f *fault.Error
		if errors.As(err, &f) {
			require.Equal(t, fault.Infeasible, f.Code, f.Message)
			continue
		}
		plans++
		checkBatch(t, in, c)
		checkLoader(t, in, c)
		checkDecisions(t, c)
	}
	assert.Greater(t, plans, 1000)
}

func checkBatch(t *testing.T, in Inputs, c profile.Config) {
	t.Helper()
	micro, target := c.PerDeviceTrainBatchSize, in.Options.TargetBatchSize
	require.True(t, micro >= 1 && micro <= maxMicroBatch && c.GradientAccumulationSteps >= 1)
	warnings := strings.Join(c.Warnings, "\n")
	require.Equal(t, c.Effective() != target, strings.Contains(warnings, "The effective batch is"))
	pool := newPool(in.Hardware, in.Options)
	allowed, _ := microBatch(pool.planned, c.SafetyMargin, newFootprint(in.Model, optimizers[in.Options.Optimizer].state, in.Dataset), c.Preset)
	require.LessOrEqual(t, micro, allowed)
	for size := (allowed + 1) / 2; size <= allowed; size++ {
		// an exact split with a good batch is never missed
		if target%(size*c.DeviceCount) == 0 {
			require.Equal(t, target, c.Effective())
		}
	}
	if float64(c.PredictedBytes) > pool.planned*c.SafetyMargin+1 {
		require.Equal(t, 1, micro)
		require.Contains(t, warnings, "does not fit")
	}
	require.False(t, c.FP16 && c.BF16)
}

func checkLoader(t *testing.T, in Inputs, c profile.Config) {
	t.Helper()
	workers := c.DataloaderNumWorkers
	require.True(t, workers >= 0 && workers <= maxHeavyWorkers)
	require.True(t, workers == 0 || float64(workers) <= in.Hardware.CPU.UsableCores-1)
	require.Equal(t, workers > 0, c.DataloaderPrefetchFactor != nil)
	require.Equal(t, workers > 0, c.DataloaderPersistentWorkers)
	require.False(t, c.Streaming && c.CacheDataset)
}

// checkDecisions: every field but the names and the texts, and a rule that was not given, has
// exactly one decision, and its value is the field's.
func checkDecisions(t *testing.T, c profile.Config) {
	t.Helper()
	fields := fieldsByJSONName(&c)
	for _, d := range c.Decisions {
		field, ok := fields[d.Setting]
		require.True(t, ok, d.Setting)
		require.Equal(t, show(d.Setting, field), d.Value)
		require.NotEmpty(t, d.Reason)
		require.NotContains(t, d.Reason+d.Value, "%!")
		delete(fields, d.Setting)
	}
	require.NotContains(t, strings.Join(c.Warnings, ""), "%!")
	if c.Rule == "" {
		delete(fields, "rule")
	}
	var missing []string
	for name := range fields {
		missing = append(missing, name)
	}
	require.ElementsMatch(t, []string{"schema_version", "row_kind", "policy", "preset", "gpu_name", "decisions", "warnings",
		"length_buckets", "micro_batches", "by_hand", "devices", "unguarded", "predicted_high_bytes", "memory_parts", "times", "arithmetic", "alternatives"}, missing)
}

func TestUnknownSettingIsADefect(t *testing.T) {
	d := &draft{}
	d.because("batch_sise", "typing error")
	_, err := d.finish()
	requireFault(t, err, fault.Internal, `"batch_sise"`)
}
