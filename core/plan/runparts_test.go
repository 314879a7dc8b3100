package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const whisperSmall = "openai/whisper-small"

// TestEvaluationsStayUnderTheirShare of the training's time, and the reasons say what they take;
// less often and with fewer clips only where they must.
func TestEvaluationsStayUnderTheirShare(t *testing.T) {
	for _, name := range []string{xlsr, whisperSmall} {
		for _, card := range []string{"T4", "H100"} {
			often := math.MaxInt
			for _, share := range []float64{0.02, 0.1, 0.5, 1} {
				in := described(t, name, speech(20000, 30, 1), card)
				in.Options.MaxEvalShare = &share
				c := planned(t, in)
				p := c.Times.RunParts
				assert.LessOrEqual(t, p.Evaluation.Likely, share*aboutRight*p.Training.Likely, "%s on %s", name, card)
				assert.LessOrEqual(t, *c.EvalSteps, often, "%s on %s with %v", name, card, share)
				often = *c.EvalSteps
				assert.Equal(t, *c.EvalSteps, *c.SaveSteps)
				assert.Contains(t, decision(t, c, "eval_steps").Reason, "% of the training's time")
				if c.EvalSamples != nil {
					assert.True(t, *c.EvalSamples >= fewestClips && *c.EvalSamples < 2000)
					assert.Contains(t, decision(t, c, "eval_samples").Reason, "of 2000, drawn at random")
				}
			}
			assert.LessOrEqual(t, often, usualInterval)
		}
	}
}

// TestARunIsItsParts, and its cost and energy are of all of them.
func TestARunIsItsParts(t *testing.T) {
	in, price := described(t, xlsr, speech(4000, 30, 1), "T4"), 2.0
	in.Options.PriceUSDHour = &price
	c := planned(t, in)
	p, run := c.Times.RunParts, c.Times.RunHours
	assert.InEpsilon(t, p.Training.Likely+p.Evaluation.Likely+p.Checkpoints.Likely+p.StartUp.Likely, run.Likely, 1e-9)
	assert.InEpsilon(t, p.Training.High+p.Evaluation.High+p.Checkpoints.High+p.StartUp.High, run.High, 1e-9)
	assert.InEpsilon(t, 3*c.Times.EpochHours.Likely, p.Training.Likely, 1e-9)
	assert.InEpsilon(t, 2*run.Likely, c.Times.CostUSD.Likely, 1e-9)
	written := float64(in.Model.ParameterBytes + in.Model.OptimizerBytes["adamw"])
	steps := math.Ceil(3 * 4000 / 32.0)
	assert.InEpsilon(t, math.Ceil(steps/float64(*c.SaveSteps))*written/4e8/3600, p.Checkpoints.Likely, 1e-9)
}

func TestNoClipsToEvaluateWith(t *testing.T) {
	in, none := described(t, xlsr, speech(4000, 30, 1), "T4"), 0
	in.Options.EvalSamples = &none
	c := planned(t, in)
	assert.Nil(t, c.EvalSteps)
	assert.Nil(t, c.EvalSamples)
	assert.Equal(t, 94, *c.SaveSteps, "a quarter of 375 steps")
	assert.Zero(t, c.Times.RunParts.Evaluation)
	assert.Positive(t, c.Times.RunParts.Checkpoints.Likely)
}

// TestTheSizeOfTheEvaluationSetCounts: given, it is not assumed, and twice as much takes about
// twice as long.
func TestTheSizeOfTheEvaluationSetCounts(t *testing.T) {
	one, all := 400, 1.0
	in := described(t, xlsr, speech(4000, 30, 1), "T4")
	in.Options.MaxEvalShare = &all
	assumed := planned(t, in)
	in.Options.EvalSamples = &one
	explicit := planned(t, in)
	assert.Equal(t, assumed.Times.RunParts, explicit.Times.RunParts, "a tenth is what is assumed")
	assert.Contains(t, decision(t, assumed, "eval_steps").Reason, "assumed")
	assert.NotContains(t, decision(t, explicit, "eval_steps").Reason, "assumed")
	two := 800
	in.Options.EvalSamples = &two
	assert.InEpsilon(t, 2*explicit.Times.RunParts.Evaluation.Likely, planned(t, in).Times.RunParts.Evaluation.Likely, 0.15)
}

// TestGenerationTakesLonger than the loss alone, and longer with more tokens and beams.
func TestGenerationTakesLonger(t *testing.T) {
	all := 1.0
	evaluating := func(change func(*Options)) profile.Config {
		in := described(t, whisperSmall, speech(4000, 30, 1), "A100-40GB")
		in.Options.MaxEvalShare = &all
		change(&in.Options)
		return planned(t, in)
	}
	no, few, many, beams := false, 20, 448, 4
	loss := evaluating(func(o *Options) { o.PredictWithGenerate = &no })
	plain := evaluating(func(*Options) {})
	perEvaluation := func(c profile.Config) float64 {
		return c.Times.RunParts.Evaluation.Likely / float64(*c.EvalSteps)
	}
	assert.Less(t, perEvaluation(loss), perEvaluation(plain))
	assert.Less(t, perEvaluation(evaluating(func(o *Options) { o.GenerationMaxLength = &few })), perEvaluation(plain))
	longer := evaluating(func(o *Options) { o.GenerationMaxLength = &many })
	assert.Equal(t, perEvaluation(plain), perEvaluation(longer), "the usual text ends before")
	assert.Greater(t, longer.Times.RunParts.Evaluation.High, plain.Times.RunParts.Evaluation.High, "one that does not end")
	searching := evaluating(func(o *Options) { o.NumBeams = &beams })
	assert.Greater(t, perEvaluation(searching), perEvaluation(plain))
}

// TestTextsOfAnEvaluationFit: the reason has the bytes of their keys and values, and more beams and
// tokens leave fewer.
func TestTextsOfAnEvaluationFit(t *testing.T) {
	for _, card := range []string{"T4", "A100-40GB"} {
		last := math.MaxInt
		for _, row := range []struct{ beams, tokens int }{{1, 20}, {1, 448}, {5, 448}, {20, 448}} {
			in := described(t, whisperSmall, speech(400, 30, 1), card)
			in.Options.NumBeams, in.Options.GenerationMaxLength = &row.beams, &row.tokens
			c := planned(t, in)
			batch, reason := c.PerDeviceEvalBatchSize, decision(t, c, "per_device_eval_batch_size").Reason
			assert.Contains(t, reason, "GiB of keys and values", "%s %+v", card, row)
			assert.Contains(t, reason, fmt.Sprintf("of up to %d tokens", row.tokens))
			assert.LessOrEqual(t, batch, last, "%s %+v", card, row)
			last = batch
		}
	}
}

// TestALoaderThatIsSlowerDecides: hours of training and evaluations are the loader's, waited for
// where there are no workers.
func TestALoaderThatIsSlowerDecides(t *testing.T) {
	in := described(t, xlsr, speech(4000, 30, 1), "T4")
	slow, workers, all := 10.0, 2, 1.0
	in.Options.LoaderRate, in.Options.Workers, in.Options.MaxEvalShare = &slow, &workers, &all
	c := planned(t, in)
	hours := in.Dataset.TotalHours / slow
	assert.Equal(t, "loader", c.Times.Bound)
	assert.InEpsilon(t, 3*hours/2, c.Times.RunParts.Training.Likely, 1e-6)
	evaluations := math.Ceil(375.0 / float64(*c.EvalSteps))
	assert.InEpsilon(t, evaluations*hours/10/2, c.Times.RunParts.Evaluation.Likely, 1e-6)
	workers = 0
	alone := planned(t, in)
	assert.Greater(t, alone.Times.RunParts.Training.Likely, 3*hours)
	assert.Greater(t, alone.Times.RunParts.Evaluation.Likely, evaluations*hours/10)
}

// TestAnEvaluationIsForwardPasses over padded clips, as much of a micro-batch's time as its forward
// pass takes, and the Trainer's time for each batch.
func TestAnEvaluationIsForwardPasses(t *testing.T) {
	in := described(t, xlsr, slices.Repeat([]float64{10}, 100), "T4")
	in.Options.LoaderRate = pointer(1e9)
	s := &search{in: in, clips: durations{sorted: in.Durations, count: 100}, pool: pool{count: 1}}
	f := evaluated{traced: &Traced{}, throughput: throughput{timed: true, paddedSecond: profile.Range{Low: 1, Likely: 3, High: 6}, micro: batching.Cost{OverheadS: 2}, forward: 1.0 / 3}}
	d := &draft{Config: profile.Config{PerDeviceEvalBatchSize: 5, DataloaderNumWorkers: 1}}
	assert.Equal(t, estimate.Evaluation(profile.Range{Low: 52.0 / 3, Likely: 52, High: 104}, 4, nil), s.evaluating(d, f, 20))
}
