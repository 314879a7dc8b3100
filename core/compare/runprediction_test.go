package compare

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// whisperRun is 4000 steps of 16 clips, four evaluations of 500 and four checkpoints.
func whisperRun() RunRequest {
	clips, rate := 500, 1000.0
	r := RunRequest{Steps: 4000, Workers: 2, LoaderRate: &rate, EvalSteps: 1000, SaveSteps: 1000}
	r.Model, r.GPU, r.Batch, r.Seconds, r.EvalSamples = sizes(small), "T4", 16, 10, &clips
	r.Work, r.One, r.Decoder = workOf(small, 16, 10), workOf(small, 1, 10), &plan.TracedDecoder{Share: 0.5, Tokens: 40, MostTokens: 448}
	return r
}

func ran(t *testing.T, r RunRequest) RunAnswer {
	t.Helper()
	a, err := Run(r)
	require.NoError(t, err)
	return a
}

// TestARunIsItsSteps, evaluations, checkpoints and start.
func TestARunIsItsSteps(t *testing.T) {
	r := whisperRun()
	a := ran(t, r)
	p := a.RunParts
	step, err := Step(StepRequest{Training: r.Training, Work: r.Work, Accumulation: r.Accumulation})
	require.NoError(t, err)
	require.Equal(t, step.StepS, a.StepS)
	require.InEpsilon(t, 4000*step.StepS.Likely/3600, p.Training.Likely, 1e-9)
	require.InEpsilon(t, p.Training.Likely+p.Evaluation.Likely+p.Checkpoints.Likely+p.StartUp.Likely, a.RunHours.Likely, 1e-9)
	require.InEpsilon(t, p.Training.High+p.Evaluation.High+p.Checkpoints.High+p.StartUp.High, a.RunHours.High, 1e-9)
	r.EvalSteps, r.SaveSteps = 500, 250
	often := ran(t, r).RunParts
	require.InEpsilon(t, 2*p.Evaluation.Likely, often.Evaluation.Likely, 1e-9)
	require.InEpsilon(t, 4*p.Checkpoints.Likely, often.Checkpoints.Likely, 1e-9)
	r.EvalSteps, r.SaveSteps = 0, 0
	none := ran(t, r).RunParts
	require.Equal(t, profile.Range{}, none.Evaluation)
	require.Equal(t, profile.Range{}, none.Checkpoints)
}

// TestALoaderBesideAndBefore: workers prepare a step's 160 s of audio while the GPU computes;
// without one it waits.
func TestALoaderBesideAndBefore(t *testing.T) {
	r, slow := whisperRun(), 10.0
	step := ran(t, r).StepS
	r.LoaderRate = &slow
	require.Equal(t, profile.Range{Low: 8, Likely: 8, High: 8}, ran(t, r).StepS)
	r.Workers = 0
	require.InEpsilon(t, 16+step.Likely, ran(t, r).StepS.Likely, 1e-9)
	require.Greater(t, ran(t, r).RunParts.Evaluation.Likely, 4*500*10/slow/3600)
}

func TestRunsThatCannotBe(t *testing.T) {
	nan, negative, none, two := math.NaN(), -1, 0, 2
	for message, change := range map[string]func(*RunRequest){
		"steps is 0":                func(r *RunRequest) { r.Steps = 0 },
		"save_steps -1":             func(r *RunRequest) { r.SaveSteps = -1 },
		"eval_steps is -5":          func(r *RunRequest) { r.EvalSteps = -5 },
		"workers is -1":             func(r *RunRequest) { r.Workers = -1 },
		"loader_rate is NaN":        func(r *RunRequest) { r.LoaderRate = &nan },
		"eval_samples is -1":        func(r *RunRequest) { r.EvalSamples = &negative },
		"no clips to evaluate with": func(r *RunRequest) { r.EvalSamples = nil },
		"num_beams is 0":            func(r *RunRequest) { r.NumBeams = &none },
		"max_eval_share is NaN":     func(r *RunRequest) { r.MaxEvalShare = &nan },
		"no decoder that generates": func(r *RunRequest) { r.Decoder, r.NumBeams = nil, &two },
		"eval_batch is -3":          func(r *RunRequest) { r.EvalBatch = -3 },
		"batch is 0 and seconds 10": func(r *RunRequest) { r.Batch = 0 },
	} {
		r := whisperRun()
		change(&r)
		_, err := Run(r)
		require.ErrorContains(t, err, message)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code, message)
	}
}

// TestCheckpointsOfAdapters hold these and their optimizer's state alone: 12 bytes a parameter.
func TestCheckpointsOfAdapters(t *testing.T) {
	r := whisperRun()
	r.SaveSteps, r.Work.TrainedParameters = r.Steps, r.Model.TrainableParameters/100
	a, err := Run(r)
	require.NoError(t, err)
	require.InEpsilon(t, estimate.Saving(12*r.Work.TrainedParameters).Likely, 3600*a.RunParts.Checkpoints.Likely, 1e-6)
}

// TestTokensByHand: ten further tokens for each of two batches in an evaluation wait for the CPU:
// 18 µs for each of half the forward pass's kernels, and 2 ms for the loop around a token.
func TestTokensByHand(t *testing.T) {
	kernels := 0.0
	for _, o := range workOf(tiny, 1, 10).ForwardPass() {
		kernels += o.Times
	}
	evaluating := func(tokens int) float64 {
		r, clips := whisperRun(), 8
		r.Model, r.GPU, r.EvalSamples, r.EvalBatch, r.GenerationMaxLength = sizes(tiny), "H100", &clips, 4, &tokens
		r.Work, r.One = workOf(tiny, 16, 10), workOf(tiny, 1, 10)
		return ran(t, r).RunParts.Evaluation.Likely * 3600
	}
	require.InEpsilon(t, 4*2*10*(0.5*kernels*18e-6+2e-3), evaluating(20)-evaluating(10), 1e-6)
}
