package estimate

import (
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// What a run takes beside its optimizer steps: assumptions, in seconds but for the rate (docs/timing.md says where from).
var (
	startTime    = timing.Range{Low: 8, Likely: 20, High: 60}          // imports, the model's weights on the GPU, the CUDA context
	firstSteps   = timing.Range{Low: 2, Likely: 6, High: 30}           // kernels loaded and chosen, the allocator's first segments
	workerStart  = timing.Range{Low: 2, Likely: 5, High: 20}           // processes of the loader, which import torch, and their first batch
	summaryTime  = timing.Range{Low: 0.5, Likely: 2, High: 8}          // of an evaluation: texts decoded, error rates, logs
	diskRate     = timing.Range{Low: 1.5e9, Likely: 4e8, High: 1e8}    // bytes of a checkpoint a second: a local NVMe disk, a cloud's disk, a network share
	dispatchTime = timing.Range{Low: 9e-6, Likely: 18e-6, High: 30e-6} // of the CPU for a kernel of a generated token
	tokenTime    = timing.Range{Low: 1e-3, Likely: 2e-3, High: 5e-3}   // of the loop around it: scores, stopping, the cache
)

// RunSeconds is what the parts of a run take.
type RunSeconds struct{ Training, Evaluation, Checkpoints, StartUp timing.Range }

// Hours of the parts, and of the whole.
func (r RunSeconds) Hours() (profile.RunParts, timing.Range) {
	hours := func(seconds timing.Range) profile.Range { return profile.Range(seconds.Times(1.0 / 3600)) }
	parts := profile.RunParts{Training: hours(r.Training), Evaluation: hours(r.Evaluation), Checkpoints: hours(r.Checkpoints), StartUp: hours(r.StartUp)}
	return parts, r.Training.Plus(r.Evaluation).Plus(r.Checkpoints).Plus(r.StartUp).Times(1.0 / 3600)
}

// Occasions is how often something comes that comes at an interval of optimizer steps, and at the end (DefaultFlowCallback.on_step_end of
// transformers 5.23); an interval of 0 is never.
func Occasions(steps, interval int) int {
	if interval == 0 {
		return 0
	}
	return (steps + interval - 1) / interval
}

// StartUp is what a run takes before its first step, and what its first steps take longer.
func StartUp(workers int) timing.Range {
	if workers == 0 {
		return startTime.Plus(firstSteps)
	}
	return startTime.Plus(firstSteps).Plus(workerStart)
}

// Saving is what a checkpoint of so many bytes takes.
func Saving(bytes int64) timing.Range {
	return timing.Range{Low: float64(bytes) / diskRate.Low, Likely: float64(bytes) / diskRate.Likely, High: float64(bytes) / diskRate.High}
}

// Generation is how an evaluation makes its texts. A token is one of the decoder's.
type Generation struct {
	Tokens    int64 // of the longest text of a usual batch
	MaxTokens int64 // to which a batch goes when one of its texts does not end
	Beams     int
}

// Evaluation is a set of clips that a model is evaluated with.
type Evaluation struct {
	Request    analytic.Request // of a batch, its padding included
	Batches    float64          // of a device
	Generation *Generation      // nil where only the loss or the best token of each frame is asked for
}

// Evaluate is what one evaluation takes, the loader's time not counted. Errors: those of Model.ForwardPass.
func (t *Timer) Evaluate(m *analytic.Model, e Evaluation) (timing.Range, error) {
	batch, err := t.forwardPass(m, e.Request)
	if err == nil && e.Generation != nil {
		var texts timing.Range
		texts, err = t.generate(m, e.Request, *e.Generation)
		batch = batch.Plus(texts) // the loss takes a forward pass of its own (Seq2SeqTrainer.prediction_step)
	}
	return batch.Plus(microTime).Times(e.Batches).Plus(summaryTime), err
}

// generate is the time of a batch's texts: encoder for each clip, then token after token for each beam.
func (t *Timer) generate(m *analytic.Model, r analytic.Request, g Generation) (timing.Range, error) {
	operations, err := m.GenerationStart(r, int64(g.Beams))
	if err != nil {
		return timing.Range{}, err
	}
	first, err := t.forward(operations, kernel.Dispatch)
	if err != nil {
		return timing.Range{}, err
	}
	each := func(tokens int64, dispatch float64) timing.Range {
		if err != nil {
			return timing.Range{}
		}
		if operations, err = m.GenerationStep(r, int64(g.Beams), max(1, tokens/2)); err != nil {
			return timing.Range{}
		}
		var step timing.Range
		step, err = t.forward(operations, dispatch)
		return step.Times(float64(tokens))
	}
	texts := timing.Range{Low: each(g.Tokens, dispatchTime.Low).Low, Likely: each(g.Tokens, dispatchTime.Likely).Likely, High: each(g.MaxTokens, dispatchTime.High).High}
	loop := timing.Range{Low: float64(g.Tokens), Likely: float64(g.Tokens), High: float64(g.MaxTokens)}.Product(tokenTime)
	return first.Plus(texts).Plus(loop), err
}

func (t *Timer) forwardPass(m *analytic.Model, r analytic.Request) (timing.Range, error) {
	operations, err := m.ForwardPass(r)
	if err != nil {
		return timing.Range{}, err
	}
	return t.forward(operations, kernel.Dispatch)
}

// forward is a forward pass for whose kernels the CPU takes so long each.
func (t *Timer) forward(operations []kernel.Operation, dispatch float64) (timing.Range, error) {
	step, err := t.kernels.Step(operations, nil)
	span := step[kernel.Forward]
	span.Host *= dispatch / kernel.Dispatch
	return span.Seconds(), err
}
