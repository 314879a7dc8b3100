package plan

import (
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// speech is durations of read speech: log-normal about 7 s, from 1 s to the longest.
func speech(n int, longest float64, seed int64) []float64 {
	r := rand.New(rand.NewSource(seed))
	out := make([]float64, n)
	for i := range out {
		out[i] = min(longest, max(1, 7*math.Exp(0.6*r.NormFloat64())))
	}
	out[0] = longest
	return out
}

func dataset(durations []float64) profile.Dataset {
	sum := 0.0
	for _, s := range durations {
		sum += s
	}
	return profile.Dataset{SampleCount: len(durations), MeanS: sum / float64(len(durations)), MinS: slices.Min(durations), MaxS: slices.Max(durations),
		TotalHours: sum / 3600, SizeBytes: int64(32000 * sum), DecodedBytes: int64(64000 * sum), Source: "folder clips",
		Histogram: profile.Histogram{EdgesS: []float64{slices.Min(durations), slices.Max(durations)}, Counts: []int{len(durations)}}}
}

func decision(t *testing.T, c profile.Config, setting string) profile.Decision {
	t.Helper()
	i := slices.IndexFunc(c.Decisions, func(d profile.Decision) bool { return d.Setting == setting })
	require.GreaterOrEqual(t, i, 0, setting)
	return c.Decisions[i]
}

const xlsr = "facebook/wav2vec2-xls-r-300m"

func TestTheFastestPlanIsNoSlowerThanItsAlternatives(t *testing.T) {
	c := planned(t, described(t, xlsr, speech(4000, 30, 1), "T4"))
	assert.Equal(t, "fastest", c.Policy)
	assert.Equal(t, 32, c.Effective())
	assert.Equal(t, "memory", c.MicroBatching)
	assert.Equal(t, "stratified", c.LengthHandling, "a model learns as from steps of any clips")
	assert.Empty(t, c.LengthBuckets)
	assert.Positive(t, c.MicroBatchOverheadS)
	assert.LessOrEqual(t, c.PredictedBytes, c.BudgetBytes)
	assert.True(t, c.FP16)
	assert.Equal(t, "expandable_segments:True", c.AllocConf)
	require.NotNil(t, c.Times)
	assert.Less(t, c.Times.RunHours.Low, c.Times.RunHours.Likely)
	sum := int64(0)
	for _, p := range c.MemoryParts {
		sum += p.Bytes
	}
	assert.Equal(t, c.PredictedBytes, sum, "the bar is the peak")
	published := c.Alternatives[0]
	assert.Equal(t, "published", published.Name)
	assert.False(t, *published.Fits, "8 × 4 with checkpointing takes more than a T4 has at 30 s")
	assert.Equal(t, "the published rule's 8 × 4 does not fit", c.ByHand.Why)
	similar := 0
	for _, a := range c.Alternatives[1:] {
		switch a.Name {
		case estimate.EightBit: // advice: it is not what was asked for
		case "group_by_length, one size", "steps of one length, sized by memory":
			// learned from more slowly
			similar++
			assert.GreaterOrEqual(t, *a.Speed, 0.8, "%s: the cut saves most of what they save", a.Name)
		default:
			assert.GreaterOrEqual(t, *a.Speed, 1-aboutAsFast, a.Name)
		}
	}
	assert.Equal(t, 2, similar)
	assert.Contains(t, decision(t, c, "micro_batching").Gain, "faster")
	assert.Contains(t, decision(t, c, "gradient_checkpointing").Alternative, "off")
	checkSearched(t, c)
}

// checkSearched: every field has one decision but those that are told otherwise.
func checkSearched(t *testing.T, c profile.Config) {
	t.Helper()
	checkDecisions(t, c)
	require.LessOrEqual(t, c.PredictedBytes, c.BudgetBytes)
	require.Positive(t, c.PredictedBytes)
	require.True(t, c.MicroBatchSize >= 1 && c.PerDeviceEvalBatchSize >= 1)
	require.LessOrEqual(t, c.PerDeviceTrainBatchSize, c.MicroBatchSize, "the fixed batch fits, too")
	for _, d := range c.Devices {
		require.LessOrEqual(t, d.PeakBytes, d.BudgetBytes)
	}
	if c.Times != nil {
		require.Positive(t, c.Times.EpochHours.Low)
		require.LessOrEqual(t, c.Times.EpochHours.Low, c.Times.EpochHours.Likely)
		require.LessOrEqual(t, c.Times.EpochHours.Likely, c.Times.EpochHours.High)
	}
}

func TestEveryFastestPlanFitsOrSaysWhatWould(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	r := rand.New(rand.NewSource(3))
	names := []string{xlsr, "facebook/wav2vec2-base", "facebook/wav2vec2-xls-r-1b", "openai/whisper-tiny", "openai/whisper-medium", "microsoft/wavlm-base-plus",
		"facebook/hubert-large-ll60k", "facebook/w2v-bert-2.0"}
	cards := []string{"T4", "L4", "K80", "V100-16", "A100-40GB", "H100", "RTX 3090", "P100"}
	plans, refused := 0, 0
	for i := range 16 {
		durations := speech(1+r.Intn(3000), 1+30*r.Float64()*r.Float64()*2, int64(i))
		in := described(t, pick(r, names...), durations)
		for range r.Intn(3) {
			entry, _, err := gpus.Parse(pick(r, cards...))
			require.NoError(t, err)
			g := entry.GPU()
			g.Index = len(in.Hardware.GPUs)
			if r.Intn(3) == 0 {
				g.MemoryFreeBytes = pointer(uint64(r.Float64() * float64(g.MemoryTotalBytes)))
			}
			in.Hardware.GPUs = append(in.Hardware.GPUs, g)
		}
		in.Options.TargetBatchSize, in.Options.SafetyMargin = 2+r.Intn(pick(r, 6, 60, 300)), 0.70+0.25*r.Float64()
		in.Options.Preset = pick(r, Presets...)
		c, err := makePlan(in)
		if err != nil {
			f := fault.From(err)
			require.Equal(t, fault.Infeasible, f.Code, f.Message)
			require.Contains(t, f.Message, "does not fit")
			require.Contains(t, f.Hint, "\n  · ")
			refused++
			continue
		}
		plans++
		checkSearched(t, c)
		again := planned(t, in)
		require.Equal(t, c, again, "equal inputs give equal plans")
	}
	assert.Greater(t, plans, 5)
	assert.Positive(t, refused)
}

func TestMoreMemoryIsNeverSlower(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	last := math.Inf(1)
	for _, gigabytes := range []uint64{14, 16, 20, 24, 32, 48, 80} {
		in := described(t, xlsr, speech(2000, 30, 1), "A100-80GB PCIe")
		in.Hardware.GPUs[0].MemoryTotalBytes = gigabytes << 30
		c := planned(t, in)
		assert.LessOrEqual(t, c.Times.EpochHours.Likely, last*(1+aboutAsFast), "%d GiB", gigabytes)
		last = c.Times.EpochHours.Likely
	}
}

// budgetOf is the budget of a plan's traces.
func budgetOf(t *testing.T, in Inputs) int64 {
	t.Helper()
	w := next(t, in)
	require.NotNil(t, w)
	return w.BudgetBytes
}

// TestATraceIsForItsBudget: what it tells is planned, and it counts for no other margin or card.
func TestATraceIsForItsBudget(t *testing.T) {
	in := described(t, xlsr, speech(2000, 30, 1), "T4")
	in.Traced = []Traced{{Precision: "fp16", Optimizer: "adamw_torch_fused", BudgetBytes: budgetOf(t, in), EvalBatch: pointer(9),
		Memory: batching.Limits{{Seconds: 10, Batch: 8}, {Seconds: 30, Batch: 1}},
		Peaks:  []TracedPeak{{Batch: 1, Bytes: 13e9, Parts: []profile.Part{{Name: "parameters", Bytes: 13e9}}}}}}
	on := false
	in.Options.GradientCheckpointing = &on
	c := must(Make(in))
	assert.Equal(t, 1, c.MicroBatchSize)
	assert.EqualValues(t, 13e9, c.PredictedBytes)
	assert.Equal(t, 9, c.PerDeviceEvalBatchSize)
	assert.Contains(t, decision(t, c, "predicted_bytes").Reason, "traced")

	in.Traced[0].BudgetBytes++ // for another margin or card
	c = must(Make(in))
	assert.Contains(t, c.Warnings[0], "Planned by the published formula")

	in.Traced[0].Peaks = nil
	_, err := Make(in)
	requireFault(t, err, fault.InvalidArgument, "traced peaks")
}

func TestATraceWithoutWorkTellsNoTimes(t *testing.T) {
	in := described(t, xlsr, speech(2000, 30, 1), "T4")
	in.Traced = []Traced{{Precision: "fp16", Optimizer: "adamw_torch_fused", BudgetBytes: budgetOf(t, in),
		Memory: batching.Limits{{Seconds: 8, Batch: 10}, {Seconds: 30, Batch: 3}}, Peaks: []TracedPeak{{Batch: 3, Bytes: 9e9}}}}
	c := must(Make(in))
	assert.Equal(t, 3, c.MicroBatchSize)
	assert.Nil(t, c.Times, "nothing tells how much work the model is")
	assert.Equal(t, "stratified", c.LengthHandling)
	assert.Equal(t, "memory", c.MicroBatching)
	assert.Empty(t, c.LengthBuckets, "those are ranges of bucketed steps")
	in.Options.LengthHandling = "bucketed"
	c = must(Make(in))
	assert.NotEmpty(t, c.LengthBuckets)
}

// TestOtherLengthsThatAreNotKnownAreNotSplit: whatever is known of the loss, that is the reason.
func TestOtherLengthsThatAreNotKnownAreNotSplit(t *testing.T) {
	in := described(t, xlsr, speech(2000, 30, 1), "T4")
	in.Options.LengthHandling = "stratified"
	in.Traced = []Traced{{Precision: "fp16", Optimizer: "adamw_torch_fused", BudgetBytes: budgetOf(t, in), OneLength: true,
		Memory: batching.Limits{{Seconds: 30, Batch: 2}}, Peaks: []TracedPeak{{Batch: 2, Bytes: 9e9}}}}
	for _, in.Options.LossUnknown = range []bool{false, true} {
		c := must(Make(in))
		assert.Equal(t, []string{"fixed", "random"}, []string{c.MicroBatching, c.LengthHandling})
		const reason = "the memory of batches of other lengths is not known"
		assert.Equal(t, reason, decision(t, c, "micro_batching").Reason)
		assert.Equal(t, "stratified steps were asked for, and the guard does not make them: "+reason, decision(t, c, "length_handling").Reason)
	}
}

func TestFewClipsThatFitInNoWayAreLeftOut(t *testing.T) {
	durations := append(speech(999, 20, 1), 36000)
	c := planned(t, described(t, xlsr, durations, "T4"))
	require.NotNil(t, c.MaxLengthS)
	assert.InDelta(t, 20, *c.MaxLengthS, 1e-9)
	assert.Contains(t, strings.Join(c.Warnings, " "), ": 1 clip of 10.00 h (longer clips do not fit even alone).")

	many := speech(900, 20, 1)
	for range 100 {
		many = append(many, 36000)
	}
	_, err := makePlan(described(t, xlsr, many, "T4"))
	requireFault(t, err, fault.Infeasible, "36000 s does not fit")
	assert.Contains(t, fault.From(err).Hint, "clips of at most")
}

func TestWaysOutComeInOrderWithNumbers(t *testing.T) {
	_, err := makePlan(described(t, "openai/whisper-large-v3", speech(100, 30, 1), "T4", "T4"))
	requireFault(t, err, fault.Infeasible, "does not fit into 12.75 GiB of GPU 0 (Tesla T4)")
	hint := fault.From(err).Hint
	last := -1
	for _, way := range []string{`optimizer="adamw_bnb_8bit"`, "LoRA of rank 32", "instead", "ZeRO-2", "ZeRO-3", "FSDP"} {
		next := strings.Index(hint, way)
		require.Greater(t, next, last, way)
		last = next
	}
	assert.Contains(t, hint, "GiB, fits")
	assert.Contains(t, hint, "GiB, still too much")
}

// TestAdapters: planned where asked for, at a rate of their own; a model that has them is counted
// as it is.
func TestAdapters(t *testing.T) {
	in := described(t, "openai/whisper-large-v3", speech(100, 30, 1), "T4")
	in.Options.LoRARank = 32
	c := planned(t, in)
	assert.Equal(t, 32, c.LoRARank)
	assert.Less(t, c.Times.RunParts.Checkpoints.Likely, 5.0/3600, "adapters alone are saved")
	assert.InDelta(t, 10*defaultBaseRate*math.Sqrt(32.0/defaultBaseBatchSize), c.LearningRate, 1e-12)
	assert.Less(t, c.ModelMemoryBytes, int64(7<<30))
	in.Options.Adapted = true
	counted := planned(t, in)
	assert.Equal(t, c.PredictedBytes, counted.PredictedBytes)
	assert.Greater(t, counted.ModelMemoryBytes, int64(20<<30), "the counts are those that were given: of the whole model")
	rate := 1e-5
	in.Options.BaseLearningRate, in.Options.LRScaling = &rate, ScaleNone
	c = planned(t, in)
	assert.Equal(t, rate, c.LearningRate)
}

// TestWaysOutOfASharedTraining: what sharing saves counts once, and is known of the state that was
// asked for alone.
func TestWaysOutOfASharedTraining(t *testing.T) {
	hint := func(strategy string) string {
		in := described(t, "openai/whisper-large-v3", speech(100, 30, 1), "T4", "T4")
		in.Options.Distributed = strategy
		_, err := makePlan(in)
		requireFault(t, err, fault.Infeasible, "does not fit")
		return fault.From(err).Hint
	}
	line := func(hint, label string) string {
		_, tail, ok := strings.Cut(hint, label)
		require.True(t, ok, label)
		text, _, _ := strings.Cut(tail, "\n")
		return text
	}
	unshared, shared := hint("ddp"), hint("zero2")
	for _, label := range []string{"DeepSpeed ZeRO-2 over 2 of them", "DeepSpeed ZeRO-3 over 2 of them", "FSDP over 2 of them"} {
		assert.Equal(t, line(unshared, label), line(shared, label))
	}
	assert.Contains(t, line(shared, "as asked, with gradient checkpointing"), "still too much")
	assert.Contains(t, line(shared, "one of them alone"), "still too much")
	for _, unknown := range []string{"adamw_bnb_8bit", "LoRA", ": 0 B", "-"} {
		assert.NotContains(t, strings.ReplaceAll(strings.ReplaceAll(shared, "ZeRO-", ""), "A100-", ""), unknown)
	}
}

func TestAUsedCardIsPlannedFromWhatIsFree(t *testing.T) {
	in := described(t, xlsr, speech(500, 20, 1), "T4")
	in.Hardware.GPUs[0].MemoryFreeBytes = pointer(uint64(1e9))
	_, err := makePlan(in)
	requireFault(t, err, fault.Infeasible, "does not fit")
	assert.Contains(t, fault.From(err).Hint, "stop what else uses GPU 0 (Tesla T4)")
}

func TestWishesAreFulfilled(t *testing.T) {
	in := described(t, xlsr, speech(2000, 20, 1), "A100-40GB")
	on := true
	in.Options.GradientCheckpointing, in.Options.Precision, in.Options.LengthHandling, in.Options.MaxLengthS = &on, "fp32", "bucketed", pointer(15.0)
	in.Options.PriceUSDHour, in.Options.DiskFreeBytes = pointer(2.0), pointer(int64(5e9))
	c := planned(t, in)
	assert.True(t, c.GradientCheckpointing)
	assert.False(t, c.FP16 || c.BF16)
	assert.Equal(t, "bucketed", c.LengthHandling)
	assert.Equal(t, 15.0, *c.MaxLengthS)
	assert.InEpsilon(t, 2*c.Times.RunHours.Likely, c.Times.CostUSD.Likely, 1e-9)
	assert.Contains(t, strings.Join(c.Warnings, " "), "4 checkpoints of about 3.53 GiB each take more than the 4.66 GiB")
	assert.Contains(t, decision(t, c, "max_length_s").Reason, "asked for")
	checkSearched(t, c)
}

func TestModelsThatSeeTheirPaddingKeepIt(t *testing.T) {
	c := planned(t, described(t, "facebook/wav2vec2-base", speech(4000, 20, 1), "T4"))
	assert.NotEqual(t, "stratified", c.LengthHandling)
	assert.Contains(t, strings.Join(c.Warnings, " "), "normalizes over time")
}

func TestAModelThatPadsEverythingNeedsNoOrder(t *testing.T) {
	c := planned(t, described(t, "openai/whisper-small", speech(2000, 50, 1), "A100-40GB"))
	assert.Equal(t, "random", c.LengthHandling)
	assert.Equal(t, "fixed", c.MicroBatching)
	assert.True(t, c.CudnnBenchmark, "every batch has the same length")
	require.NotNil(t, c.ChunkLengthS)
	assert.Equal(t, 30.0, *c.ChunkLengthS)
}

// TestTalksTakeAsLongAsTheirPieces: clips that a model takes 30 s of are split before the training,
// but for a classifier, which hears the beginning of each.
func TestTalksTakeAsLongAsTheirPieces(t *testing.T) {
	repeated := func(seconds float64, clips int) Inputs {
		return described(t, whisperSmall, slices.Repeat([]float64{seconds}, clips), "T4")
	}
	talks := repeated(600, 64)
	pieces, split := planned(t, repeated(30, 64*20)), planned(t, talks)
	assert.Equal(t, pieces.Times, split.Times)
	assert.Equal(t, pieces.EvalSteps, split.EvalSteps)
	assert.Contains(t, decision(t, split, "chunk_length_s").Reason, "those of 1280 pieces")

	talks.Model.ClassName = "ASTForAudioClassification"
	c := planned(t, talks)
	assert.Nil(t, c.ChunkLengthS)
	assert.Less(t, c.Times.EpochHours.Likely, split.Times.EpochHours.Likely/10)
}

func TestCudnnAttentionIsAvoidedWhereShapesChange(t *testing.T) {
	for _, row := range []struct {
		model, gpu, reason string
		on                 bool
	}{
		{"facebook/wav2vec2-xls-r-300m", "H100", "as each has a shape of its own", false},
		{"facebook/wav2vec2-xls-r-300m", "A100-40GB", "does not prefer it on this GPU", true},
		{"openai/whisper-small", "H100", "all batches have one length", true},
	} {
		c := planned(t, described(t, row.model, speech(2000, 50, 1), row.gpu))
		assert.Equal(t, row.on, c.CudnnAttention, "%s on %s", row.model, row.gpu)
		assert.Contains(t, decision(t, c, "cudnn_attention").Reason, row.reason)
	}
}

func TestLittleDataKeepsItsRandomness(t *testing.T) {
	for _, clips := range []int{1, 2, 40, 19 * 32} {
		c := planned(t, described(t, xlsr, speech(clips, 20, 1), "T4"))
		assert.Equal(t, "random", c.LengthHandling, clips)
		checkSearched(t, c)
	}
	c := planned(t, described(t, xlsr, speech(1, 20, 1), "T4", "T4"))
	assert.Contains(t, strings.Join(c.Warnings, " "), "does not train a useful model")
}

// TestOnlyKnownLossesAreSplit: elsewhere the Trainer's batches stay, and the plan says why, and
// what the rule would gain.
func TestOnlyKnownLossesAreSplit(t *testing.T) {
	const unknown = "the loss of Wav2Vec2ForCTC is not in the table of known losses, and rule= was not given"
	for _, c := range []struct {
		name         string
		change       func(*Options)
		order, micro string
		why          string // of micro_batching
		orderWhy     string // "" for any
	}{
		{"of the table", func(o *Options) { o.LossUnknown = false }, "stratified", "memory", "the guard splits each step of 32", ""},
		{"unknown", func(*Options) {}, "random", "fixed", unknown + ", so that batches stay the Trainer's; with it the guard would split them by length and memory: ", ""},
		{"given", func(o *Options) { o.Rule = "token_mean" }, "stratified", "memory", "the guard splits each step of 32", ""},
		{"given as a function", func(o *Options) { o.Rule = "given" }, "stratified", "memory", "the guard splits each step of 32", ""},
		{"an order of the guard's", func(o *Options) { o.LengthHandling = "stratified" }, "random", "fixed", unknown, "stratified steps were asked for, and the guard does not make them: " + unknown},
		{"another", func(o *Options) { o.LengthHandling = "bucketed" }, "random", "fixed", unknown, "bucketed steps were asked for, and the guard does not make them: " + unknown},
		{"the Trainer's order", func(o *Options) { o.LengthHandling = "grouped" }, "grouped", "fixed", "one size is as fast here", "asked for"},
		{"speed", func(o *Options) { o.Preset = Speed }, "grouped", "fixed", unknown, ""},
		{"sharded", func(o *Options) { o.Distributed, o.DeviceCount = "zero2", pointer(2) }, "random", "fixed", "the guard cannot split the steps of a sharded model", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := described(t, xlsr, speech(4000, 30, 1), "T4", "T4")
			in.Options.DeviceCount, in.Options.LossUnknown = pointer(1), true
			c.change(&in.Options)
			made := planned(t, in)
			assert.Equal(t, []string{c.order, c.micro, in.Options.Rule}, []string{made.LengthHandling, made.MicroBatching, made.Rule})
			reason := decision(t, made, "micro_batching").Reason
			assert.Contains(t, reason, c.why)
			assert.NotContains(t, reason, "\n")
			assert.Contains(t, decision(t, made, "length_handling").Reason, c.orderWhy)
			checkSearched(t, made)
		})
	}
}

func TestAStreamIsPlannedInWindows(t *testing.T) {
	in := described(t, xlsr, speech(2000, 20, 1), "T4")
	in.Dataset.TotalHours, in.Dataset.SizeBytes = 1000, 100e9
	local := planned(t, in)
	assert.False(t, local.Streaming, "what is here needs no stream, however large")
	in.Options.Streamed = true
	c := planned(t, in)
	assert.True(t, c.Streaming)
	assert.Equal(t, "random", c.LengthHandling)
	assert.Equal(t, "memory", c.MicroBatching)
	assert.Equal(t, 20.0, *c.MaxLengthS)
	assert.Contains(t, strings.Join(c.Warnings, " "), "the Trainer needs max_steps: about 188 for 3 epochs")
	checkSearched(t, c)
	in.Options.Preset = Speed
	assert.Equal(t, "bucketed", planned(t, in).LengthHandling, "the one order that a window has besides random")
	for _, order := range []string{"stratified", "grouped"} {
		in.Options.LengthHandling = order
		_, err := makePlan(in)
		requireFault(t, err, fault.InvalidArgument, "of a stream one window of clips is known at a time")
	}
}

func TestAStreamIsPlannedForItsLongestClip(t *testing.T) {
	in := described(t, xlsr, speech(2000, 20, 1), "T4")
	in.Options.Streamed, in.Options.GradientCheckpointing = true, pointer(true)
	in.Dataset.Sampled, in.Dataset.Sampling = true, &profile.Sampling{Shards: 10, LongerShare: 0.0015}
	measured := planned(t, in)
	assert.Contains(t, strings.Join(measured.Warnings, " "), "at most 0.15 % of the stream are longer, with 95 % certainty")
	assert.Contains(t, strings.Join(measured.Warnings, " "), "config.max_steps(clips), for as many clips as the stream has")
	longer, shorter := 40.0, 10.0
	in.Options.MaxLengthS = &longer
	limited := planned(t, in)
	assert.Equal(t, longer, *limited.MaxLengthS)
	assert.Less(t, limited.MicroBatchSize, measured.MicroBatchSize, "clips that were not measured need their memory, too")
	in.Options.MaxLengthS = &shorter
	assert.Greater(t, planned(t, in).MicroBatchSize, measured.MicroBatchSize)
	whisper := described(t, "openai/whisper-small", speech(2000, 40, 1), "T4")
	whisper.Options.Streamed = true
	c := planned(t, whisper)
	assert.Equal(t, 30.0, *c.MaxLengthS, "longer clips cannot be split in a stream")
	assert.Nil(t, c.ChunkLengthS)
}

func TestUnequalCardsTakeWhatTheyHaveRoomFor(t *testing.T) {
	in := described(t, xlsr, speech(4000, 30, 1), "T4", "A100-40GB")
	in.Options.Streamed = true // so that steps are shared evenly
	c := planned(t, in)
	require.Len(t, c.Devices, 2)
	assert.Equal(t, "ddp", c.Distributed)
	assert.Equal(t, 16, c.Devices[0].Samples)
	assert.Greater(t, c.Devices[1].MicroBatchSize, c.Devices[0].MicroBatchSize)
	assert.True(t, c.FP16, "what both can")
	checkSearched(t, c)
}

func TestSharedStateLetsALargeModelFit(t *testing.T) {
	in := described(t, "facebook/wav2vec2-xls-r-1b", speech(2000, 20, 1), "T4", "T4", "T4", "T4")
	in.Options.PriceUSDHour = nil
	_, err := makePlan(in)
	requireFault(t, err, fault.Infeasible, "does not fit")
	for _, strategy := range []string{"zero2", "zero3", "fsdp"} {
		in.Options.Distributed = strategy
		c := planned(t, in)
		assert.Equal(t, strategy, c.Distributed)
		assert.Equal(t, "fixed", c.MicroBatching, "an engine's batches cannot be cut")
		assert.Contains(t, strings.Join(c.Warnings, " "), "torchrun --max-restarts")
		sum := int64(0)
		for _, p := range c.MemoryParts {
			sum += p.Bytes
		}
		assert.Equal(t, c.PredictedBytes, sum)
		checkSearched(t, c)
	}
	in.Options.DeviceCount = pointer(1)
	_, err = makePlan(in)
	requireFault(t, err, fault.InvalidArgument, "there is one device")
}

func TestMeasuredRatesReplaceAssumptions(t *testing.T) {
	in := described(t, xlsr, speech(4000, 30, 1), "H100")
	assumed := planned(t, in)
	in.Options.LoaderRate = pointer(20.0)
	slow := planned(t, in)
	assert.Greater(t, slow.DataloaderNumWorkers, assumed.DataloaderNumWorkers)
	assert.Equal(t, "loader", slow.Times.Bound)
	assert.Contains(t, strings.Join(slow.Warnings, " "), "The loader needs")
	in.Options.LoaderRate = nil
	in.Options.Calibration = &timing.StepCalibration{Calibration: timing.Calibration{Factor: 2, Low: 1.9, High: 2.1, Steps: 20}}
	measured := planned(t, in)
	assert.True(t, measured.Times.Calibrated)
	assert.InDelta(t, 2, measured.Times.EpochHours.Likely/assumed.Times.EpochHours.Likely, 0.3)
	assert.Less(t, measured.Times.EpochHours.High/measured.Times.EpochHours.Low, assumed.Times.EpochHours.High/assumed.Times.EpochHours.Low)
}

// TestFasterAlternativesSayWhyTheyAreNotThePlan: every one of them, and no other.
func TestFasterAlternativesSayWhyTheyAreNotThePlan(t *testing.T) {
	faster := 0
	for _, card := range []string{"T4", "A100-40GB", "RTX 4090"} {
		for _, a := range planned(t, described(t, xlsr, speech(4000, 30, 1), card)).Alternatives {
			if a.Speed != nil && *a.Speed < 1 {
				faster++
				assert.NotEmpty(t, a.Why, a.Name)
			} else {
				assert.Empty(t, a.Why, a.Name)
			}
		}
	}
	assert.Positive(t, faster)
}

// TestWhatSettingsByHandTake: the published ones where they were traced and fit, else one size; a
// loader that both wait for makes them as fast.
func TestWhatSettingsByHandTake(t *testing.T) {
	byHand := func(in Inputs) (profile.Config, profile.Alternative) {
		c := planned(t, in)
		require.NotNil(t, c.ByHand)
		require.True(t, *c.ByHand.Fits)
		return c, *c.ByHand
	}
	_, hand := byHand(described(t, xlsr, speech(4000, 20, 1), "T4"))
	assert.Equal(t, PublishedRule, hand.Name)
	assert.Equal(t, "8 × 4, fp16, with checkpointing, random order", hand.What)
	c, hand := byHand(described(t, xlsr, speech(4000, 20, 1), "L4"))
	assert.Equal(t, "one size", hand.Name)
	assert.Equal(t, "1 × 32, bf16, without checkpointing, random order", hand.What)
	assert.Greater(t, *hand.Speed, 1.05)
	assert.InEpsilon(t, *hand.Speed, hand.EpochHours.Likely/c.Times.EpochHours.Likely, 1e-9)
	require.Len(t, c.MicroBatches, 2)
	assert.GreaterOrEqual(t, c.MicroBatches[0].Seconds, 18.0, "of about the longest clips")
	assert.LessOrEqual(t, c.MicroBatches[0].Clips, c.MicroBatchSize)
	assert.Greater(t, c.MicroBatches[1].Clips, c.MicroBatchSize)

	in := described(t, xlsr, speech(4000, 20, 1), "L4")
	in.Options.LoaderRate, in.Options.Workers = pointer(20.0), pointer(1)
	_, hand = byHand(in)
	assert.Equal(t, 1.0, *hand.Speed, "both wait for the loader")

	c, hand = byHand(described(t, whisperSmall, speech(400, 20, 1), "T4"))
	assert.Equal(t, "one size", hand.Name)
	assert.Equal(t, 1.0, *hand.Speed, "all micro-batches have one size anyway")
	assert.Equal(t, []profile.MicroBatch{{Clips: c.PerDeviceTrainBatchSize, Seconds: 30}}, c.MicroBatches)
}

// TestTimesOfPaddedClips: a model that pads every clip to 30 s takes as long for short ones, but
// for the shorter texts.
func TestTimesOfPaddedClips(t *testing.T) {
	step := func(longest float64) float64 {
		return planned(t, described(t, whisperSmall, speech(400, longest, 1), "T4")).Times.StepS.Likely
	}
	assert.InEpsilon(t, step(30), step(2), 0.05)
}
