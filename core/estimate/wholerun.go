package estimate

import (
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// The time that a run takes besides its optimizer steps: assumptions, in seconds except for the
// rate; docs/timing.md has the sources.
var (
	// imports, the model's weights on the GPU, the CUDA context
	startTime = profile.Range{Low: 8, Likely: 20, High: 60}
	// kernels loaded and chosen, the allocator's first segments
	firstSteps = profile.Range{Low: 2, Likely: 6, High: 30}
	// processes of the loader, which import torch, and their first batch
	workerStart = profile.Range{Low: 2, Likely: 5, High: 20}
	// of an evaluation: texts decoded, error rates, logs
	summaryTime = profile.Range{Low: 0.5, Likely: 2, High: 8}
	// bytes of a checkpoint a second: a network share, a cloud's disk, a local NVMe disk
	diskRate = profile.Range{Low: 1e8, Likely: 4e8, High: 1.5e9}
	// of the loop around it: scores, stopping, the cache
	tokenTime = profile.Range{Low: 1e-3, Likely: 2e-3, High: 5e-3}
)

// RunSeconds are the times of the parts of a run.
type RunSeconds struct{ Training, Evaluation, Checkpoints, StartUp profile.Range }

// Hours converts the times of the parts, and of the whole run.
func (r RunSeconds) Hours() (profile.RunParts, profile.Range) {
	hours := func(seconds profile.Range) profile.Range { return seconds.Times(1.0 / 3600) }
	parts := profile.RunParts{Training: hours(r.Training), Evaluation: hours(r.Evaluation),
		Checkpoints: hours(r.Checkpoints), StartUp: hours(r.StartUp)}
	return parts, r.Training.Plus(
		r.Evaluation).Plus(r.Checkpoints).Plus(r.StartUp).Times(1.0 / 3600)
}

// WithLoader is what the GPU takes with the loader beside it: workers prepare batches meanwhile,
// and without one the GPU waits.
func WithLoader(gpu, loader profile.Range, workers int) profile.Range {
	if workers == 0 {
		return gpu.Plus(loader)
	}
	return gpu.AtLeast(loader)
}

// Occasions is how often something happens at an interval of optimizer steps, and at the end
// (DefaultFlowCallback.on_step_end of transformers 5.23); an interval of 0 is never.
func Occasions(steps, interval int) int {
	if interval == 0 {
		return 0
	}
	return (steps + interval - 1) / interval
}

// StartUp is the time before the first step, and the extra time of the first steps.
func StartUp(workers int) profile.Range {
	if workers == 0 {
		return startTime.Plus(firstSteps)
	}
	return startTime.Plus(firstSteps).Plus(workerStart)
}

// Saving is the time that a checkpoint of some bytes takes.
func Saving(bytes int64) profile.Range { return timing.Takes(float64(bytes), diskRate) }

// Generation is how an evaluation makes its texts, token after token.
type Generation struct {
	Tokens    int64   // of the longest text of a usual batch
	MaxTokens int64   // to which a batch goes when one of its texts does not end
	Kernels   float64 // that the decoder runs for a token
}

// Evaluation is the time of an evaluation, given that of the forward pass of each batch.
func Evaluation(forward profile.Range, batches float64, g *Generation) profile.Range {
	batch := forward.Plus(microTime)
	if g != nil {
		// the loss takes a forward pass of its own (Seq2SeqTrainer.prediction_step)
		batch = batch.Plus(forward).Plus(g.seconds())
	}
	return batch.Times(batches).Plus(summaryTime)
}

// seconds of a batch's texts: a token of a decoder waits for the CPU, which launches its kernels
// one after the other.
func (g Generation) seconds() profile.Range {
	perToken := kernel.AutocastDispatch.Times(g.Kernels).Plus(tokenTime)
	return profile.Range{Low: float64(g.Tokens), Likely: float64(g.Tokens),
		High: float64(g.MaxTokens)}.Product(perToken)
}
