package compare

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// RunRequest asks how long a run takes whose settings are all decided.
type RunRequest struct {
	Training
	plan.EvaluationOptions

	Model        profile.Model       `json:"model"`
	Work         kernel.Work         `json:"work"`    // of a micro-batch, from memory.work
	One          kernel.Work         `json:"one"`     // of one clip, where texts are generated
	Decoder      *plan.TracedDecoder `json:"decoder"` // of a model that generates texts; none
	Batch        int64               `json:"batch"`
	Seconds      float64             `json:"seconds"`
	Accumulation int                 `json:"accumulation"` // 1

	Steps int `json:"steps"` // optimizer steps, 1..10^9
	// of the loader for each GPU, 0..1024; 0, the GPU waits for each batch
	Workers int `json:"workers"`
	// seconds of audio that a worker prepares per second; an assumption
	LoaderRate *float64 `json:"loader_rate"`
	EvalSteps  int      `json:"eval_steps"` // optimizer steps between evaluations; 0, none
	EvalBatch  int64    `json:"eval_batch"` // clips of a device's evaluation batch; as in training
	SaveSteps  int      `json:"save_steps"` // optimizer steps between checkpoints; 0, none
}

// RunAnswer is the time of a run.
type RunAnswer struct {
	GPU       string           `json:"gpu"`
	Precision string           `json:"precision"`
	StepS     profile.Range    `json:"step_s"` // of an optimizer step, the loader's part in it
	RunHours  profile.Range    `json:"run_hours"`
	RunParts  profile.RunParts `json:"run_parts"` // hours that add up to it
	Measured  string           `json:"measured"`  // the day, as of StepAnswer
}

const mostSteps = 1_000_000_000

func (r RunRequest) check() error {
	switch {
	case r.Steps < 1 || r.Steps > mostSteps:
		return fault.New(fault.InvalidArgument, "pass the optimizer steps of the run",
			"steps is %d; the range is 1 to 10^9", r.Steps)
	case r.EvalSteps < 0 || r.EvalSteps > mostSteps || r.SaveSteps < 0 || r.SaveSteps > mostSteps:
		return fault.New(fault.InvalidArgument, "pass optimizer steps, or 0 for none",
			"eval_steps is %d and save_steps %d; the range is 0 to 10^9", r.EvalSteps, r.SaveSteps)
	case r.Workers < 0 || r.Workers > 1024:
		return fault.New(fault.InvalidArgument, "pass the workers of a GPU's loader",
			"workers is %d; the range is 0 to 1024", r.Workers)
	case r.LoaderRate != nil && !positive(*r.LoaderRate):
		return fault.New(fault.InvalidArgument, "pass seconds of audio per second",
			"loader_rate is %v", *r.LoaderRate)
	case r.EvalBatch < 0:
		return fault.New(fault.InvalidArgument,
			"pass the clips of a batch, or 0 for those of training", "eval_batch is %d",
			r.EvalBatch)
	case r.EvalSteps > 0 && profile.Or(r.EvalSamples, 0) == 0:
		return fault.New(fault.InvalidArgument, "pass eval_samples",
			"eval_steps is %d, and there are no clips to evaluate with", r.EvalSteps)
	}
	return r.EvaluationOptions.Check()
}

// Run estimates a run of optimizer steps of one shape, with its evaluations and checkpoints.
// Errors: those of Step, and InvalidArgument.
func Run(r RunRequest) (RunAnswer, error) {
	if err := r.check(); err != nil {
		return RunAnswer{}, err
	}
	p, err := r.predictor()
	if err != nil {
		return RunAnswer{}, err
	}
	if r.Batch < 1 || !positive(r.Seconds) {
		return RunAnswer{}, fault.New(fault.InvalidArgument,
			"pass the clips of a micro-batch, and seconds of the longest",
			"batch is %d and seconds %v", r.Batch, r.Seconds)
	}
	micro, err := p.microBatch(r.Work)
	if err != nil {
		return RunAnswer{}, err
	}
	accumulation := cmp.Or(r.Accumulation, 1)
	a := RunAnswer{GPU: p.card.Key, Precision: p.Precision, Measured: p.timer.MeasuredOn}
	a.StepS = r.withLoader(micro.step(accumulation).Sum(),
		float64(r.Batch)*float64(accumulation)*r.Seconds)
	evaluation, err := r.evaluation(p, micro)
	if err != nil {
		return RunAnswer{}, err
	}
	model, trained := r.Model, r.Work.TrainedParameters
	adapters := trained < model.TrainableParameters
	if adapters {
		model = plan.WithAdapters(model, trained)
	}
	saving := estimate.Saving(plan.CheckpointBytes(model, p.Optimizer, adapters))
	run := estimate.RunSeconds{Training: a.StepS.Times(float64(r.Steps)),
		Evaluation:  evaluation.Times(float64(estimate.Occasions(r.Steps, r.EvalSteps))),
		Checkpoints: saving.Times(float64(estimate.Occasions(r.Steps, r.SaveSteps))),
		StartUp:     estimate.StartUp(r.Workers)}
	a.RunParts, a.RunHours = run.Hours()
	return a, nil
}

// withLoader is seconds of a GPU with the loader beside it, or before it where it has no workers.
func (r RunRequest) withLoader(gpu profile.Range, audio float64) profile.Range {
	rate := timing.WorkerRate(units.Clips, r.Model.Architecture, nil)
	if r.LoaderRate != nil {
		rate = profile.Range{Low: *r.LoaderRate, Likely: *r.LoaderRate, High: *r.LoaderRate}
	}
	loader := timing.Takes(audio, rate.Times(float64(max(1, r.Workers))))
	return estimate.WithLoader(gpu, loader, r.Workers)
}

// evaluation is the time of one evaluation; its clips are as long as those of a training batch, and
// so is the forward pass of as many.
func (r RunRequest) evaluation(p *predictor, micro microBatch) (profile.Range, error) {
	if r.EvalSteps == 0 {
		return profile.Range{}, nil
	}
	if err := r.CheckGeneration(r.Decoder, r.Model.ClassOrName()); err != nil {
		return profile.Range{}, err
	}
	share, err := p.timer.Forward(r.Work)
	if err != nil {
		return profile.Range{}, err
	}
	batch, clips := cmp.Or(r.EvalBatch, r.Batch), float64(*r.EvalSamples)/float64(p.count)
	var texts *estimate.Generation
	if r.Decoder != nil && profile.Or(r.PredictWithGenerate, true) {
		texts = r.Generation(*r.Decoder, r.One)
	}
	forward := micro.parts.Sum().Times(share * float64(batch) / float64(r.Batch))
	return r.withLoader(estimate.Evaluation(forward, clips/float64(batch), texts), clips*r.Seconds),
		nil
}
