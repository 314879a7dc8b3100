package compare

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// asked is ten hours of clips for XLS-R-300M.
func asked(gpus ...string) Request {
	return Request{Model: sizes(xlsr), Data: timing.Data{Clips: 4500, MeanS: 8, MaxS: 25}, GPUs: gpus}
}

// requireRow checks that the figures of a row agree with each other.
func requireRow(t *testing.T, row Row) {
	t.Helper()
	if !row.Fits {
		require.NotEmpty(t, row.Remedies, row.GPU)
		require.Nil(t, row.RunHours, row.GPU)
		return
	}
	require.LessOrEqual(t, row.PeakBytes, row.BudgetBytes, row.GPU)
	require.Equal(t, 32, row.Batch*row.Accumulation*row.Count, row.GPU)
	require.GreaterOrEqual(t, row.LargestBatch, row.Batch, row.GPU)
	require.InEpsilon(t, 3*row.EpochHours.Likely, row.RunParts.Training.Likely, 1e-9)
	p := row.RunParts
	require.InEpsilon(t, p.Training.Likely+p.Evaluation.Likely+p.Checkpoints.Likely+p.StartUp.Likely, row.RunHours.Likely, 1e-9)
	require.Less(t, row.EpochHours.Low, row.EpochHours.High)
	if row.Price == nil {
		require.Nil(t, row.Cost, "no price, no cost: %s", row.GPU)
	} else {
		require.InEpsilon(t, row.RunHours.Likely*row.Price.Hour*float64(row.Count), row.Cost.Likely, 1e-9)
	}
}

// TestEveryRowIsThePlan: for every card of the catalogue, and for several, the row is what
// core/plan makes of that machine alone, with the same traces.
func TestEveryRowIsThePlan(t *testing.T) {
	for _, c := range []struct {
		name               string
		every, lossUnknown bool
	}{{xlsr, true, false}, {xlsr, false, true}, {small, false, false}} {
		r := asked()
		r.AnyDepth, r.CanOffload, r.LossUnknown = true, true, c.lossUnknown
		r.Model = sizes(c.name)
		r.GPUs = []string{"T4", "2xT4", "K80", "8xA100-40GB"}
		if c.every {
			for _, card := range gpus.All() {
				r.GPUs = append(r.GPUs, card.Key)
			}
		}
		for _, row := range made(t, r).Rows {
			requireRow(t, row)
			card, _, err := gpus.Parse(row.GPU)
			require.NoError(t, err)
			dataset, durations, err := r.Data.Dataset()
			require.NoError(t, err)
			workers, hardware := 4, profile.Hardware{CPU: profile.CPU{UsableCores: 64}, Memory: profile.Memory{TotalBytes: 1 << 38, AvailableBytes: 1 << 37}}
			for i := range row.Count {
				g := card.GPU()
				g.Index = i
				hardware.GPUs = append(hardware.GPUs, g)
			}
			options := plan.Options{TargetBatchSize: 32, SafetyMargin: 0.85, Optimizer: row.Optimizer, Workers: &workers, DeviceCount: &row.Count, AnyDepth: r.AnyDepth, CanOffload: r.CanOffload, LossUnknown: r.LossUnknown}
			in := plan.Inputs{Hardware: hardware, Dataset: dataset, Durations: durations, Model: r.Model, Options: options}
			for w, err := plan.Next(in); w != nil; w, err = plan.Next(in) {
				require.NoError(t, err)
				in.Traced = append(in.Traced, standIns[c.name].trace(t, r, MachineTrace{GPU: machine{card: card, count: row.Count}.name(), Trace: w}, durations))
			}
			alone, err := plan.Make(in)
			if !row.Fits {
				require.Equal(t, fault.Infeasible, fault.From(err).Code, row.GPU)
				continue
			}
			require.NoError(t, err, row.GPU)
			require.Equal(t, []any{alone.PerDeviceTrainBatchSize, alone.GradientAccumulationSteps, alone.GradientCheckpointing, alone.EveryNLayers, alone.OffloadCheckpoints, alone.MicroBatching, alone.LengthHandling, alone.PredictedBytes},
				[]any{row.Batch, row.Accumulation, row.Checkpointing, row.EveryNLayers, row.Offload, row.MicroBatching, row.LengthHandling, int64(row.PeakBytes)}, row.GPU)
			require.Equal(t, map[string]bool{"fp16": alone.FP16, "bf16": alone.BF16, "fp32": !alone.FP16 && !alone.BF16}[row.Precision], true, row.GPU)
			require.False(t, c.lossUnknown && row.MicroBatching == "memory", row.GPU)
			require.Equal(t, alone.Times.EpochHours, *row.EpochHours, row.GPU)
			require.Equal(t, alone.Times.Parts, *row.Parts, row.GPU)
		}
	}
}

// TestMarks finds the cheapest and the fastest by the given prices.
func TestMarks(t *testing.T) {
	r := asked("T4", "H100", "K80")
	r.Prices = map[string]float64{"tesla t4": 100, "H100": 1}
	c := made(t, r)
	require.True(t, c.Rows[1].Fastest)
	require.True(t, c.Rows[1].Cheapest)
	require.Equal(t, "given", c.Rows[1].Price.Provider)
	r.Prices = map[string]float64{"T4": 0}
	c = made(t, r)
	require.True(t, c.Rows[0].Cheapest, "what is free")
	require.True(t, c.Rows[1].Fastest)
}

// TestNotes tell what differs from what was asked for.
func TestNotes(t *testing.T) {
	for note, row := range map[string]struct {
		gpu    string
		change func(*Request)
	}{
		"adamw_bnb_8bit instead of adamw_torch_fused":    {"V100-16", func(r *Request) { r.Model = sizes(xlsr1B) }},
		"fp16 instead of bf16":                           {"T4", func(r *Request) { r.Precision = "bf16" }},
		"the effective batch is 33, not 32":              {"3xT4", func(*Request) {}},
		"current PyTorch no longer runs on compute capa": {"K80", func(*Request) {}},
	} {
		r := asked(row.gpu)
		row.change(&r)
		require.Contains(t, strings.Join(made(t, r).Rows[0].Notes, "\n"), note)
	}
}

// TestRemedies: whisper-large-v3 does not fit a T4 with any optimizer; LoRA does, and a card of 24
// GB with 8 bits.
func TestRemedies(t *testing.T) {
	r := asked("T4")
	r.Model = sizes("openai/whisper-large-v3")
	row := made(t, r).Rows[0]
	require.False(t, row.Fits)
	words := []string{"as asked", "adamw_bnb_8bit", "LoRA", "A10"}
	require.Len(t, row.Remedies, len(words))
	for i, way := range row.Remedies {
		require.Contains(t, way.What, words[i])
		require.Equal(t, i >= 2, way.Fits)
		require.Equal(t, way.Fits && !strings.Contains(way.What, "A10"), way.PeakBytes <= row.BudgetBytes)
	}
	r.LoRARank = 32
	row = made(t, r).Rows[0]
	require.True(t, row.Fits)
	require.EqualValues(t, 32, row.LoRARank)
}

// TestPaddedClips: a feature extractor's length is that of every clip.
func TestPaddedClips(t *testing.T) {
	r := asked("T4")
	r.Data, r.Model = timing.Data{Clips: 5, MeanS: 36000, MaxS: 36000}, sizes(tiny)
	c := made(t, r)
	require.True(t, c.Rows[0].Fits)
	require.Equal(t, 30.0, c.LongestS)
	require.Contains(t, strings.Join(c.Assumptions, "\n"), "every clip takes as long as one of 30 s")
}

func TestSeveralGPUs(t *testing.T) {
	c := made(t, asked("T4", "2xT4"))
	one, two := c.Rows[0], c.Rows[1]
	require.Less(t, two.RunHours.Likely, one.RunHours.Likely)
	require.Greater(t, two.RunHours.Likely, one.RunHours.Likely/2, "gradients are exchanged")
}

func TestMakeRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*Request)
		code    fault.Code
		message string
	}{
		"an unknown GPU":    {func(r *Request) { r.GPUs = []string{"T5"} }, fault.NotFound, `no GPU "T5"`},
		"an unknown price":  {func(r *Request) { r.Prices = map[string]float64{"T5": 1} }, fault.NotFound, `no GPU "T5"`},
		"a negative price":  {func(r *Request) { r.Prices = map[string]float64{"T4": -1} }, fault.InvalidArgument, "the price of T4"},
		"no clips":          {func(r *Request) { r.Data = timing.Data{} }, fault.EmptyDataset, "0 clips"},
		"fewer than GPUs":   {func(r *Request) { r.GPUs, r.TargetBatchSize = []string{"4xT4"}, 3 }, fault.InvalidArgument, "device_count is 4"},
		"another optimizer": {func(r *Request) { r.Optimizer = "lion" }, fault.InvalidArgument, `optimizer is "lion"`},
		"a broken factor":   {func(r *Request) { r.Calibrations = map[string]timing.StepCalibration{"T4": {}} }, fault.InvalidArgument, "the calibration of T4"},
		"many GPUs":         {func(r *Request) { r.GPUs = make([]string, 300) }, fault.InvalidArgument, "300 GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			r := asked("T4")
			row.change(&r)
			_, err := Make(r)
			require.ErrorContains(t, err, row.message)
			require.Equal(t, row.code, fault.From(err).Code)
			require.NotEmpty(t, fault.From(err).Hint)
		})
	}
}

// workOf is a micro-batch of a stand-in in float16, each layer computed again.
func workOf(name string, batch int64, seconds float64) kernel.Work {
	m := standIns[name]
	return m.work("fp16", m.parameters, batch, seconds, 1)
}

func TestStepIsCalibrated(t *testing.T) {
	r := StepRequest{Training: Training{GPU: "T4"}, Work: workOf(small, 8, 20), Accumulation: 2}
	plain, err := Step(r)
	require.NoError(t, err)
	require.Nil(t, plain.Calibration)
	require.Equal(t, "fp16", plain.Precision)
	r.MeasuredS = []float64{3, 3.1, 2.9}
	measured, err := Step(r)
	require.NoError(t, err)
	require.InDelta(t, 3, measured.StepS.Likely, 1e-9)
	require.InDelta(t, 3/plain.StepS.Likely, measured.Calibration.Factor, 1e-9)
	r.MeasuredS = []float64{}
	_, err = Step(r)
	require.ErrorContains(t, err, "no measured step")
	r.MeasuredS, r.Work.Operations[0].M = nil, -1
	_, err = Step(r)
	require.ErrorContains(t, err, "product")
}

// TestMeasuredKernelsCountInEveryAnswer: steps, runs, calibrations and comparisons take a card's
// times from the same table, and say so.
func TestMeasuredKernelsCountInEveryAnswer(t *testing.T) {
	slower := timing.Calibration{Factor: 2, Low: 1.9, High: 2.1, Steps: 9}
	kernels := kernel.Profile{GPU: "T4", Date: "2026-03-01", LaunchS: 2e-6, DispatchS: 7e-6}
	for _, group := range []string{"linear", "elementwise"} {
		kernels.Factors = append(kernels.Factors, kernel.Factor{Group: group, DType: kernel.Float16, Calibration: slower})
	}
	training, work := Training{GPU: "T4"}, workOf(xlsr, 4, 10)
	measured, other := training, training
	measured.KernelProfiles = []kernel.Profile{kernels}
	other.KernelProfiles, other.GPU = measured.KernelProfiles, "L4"

	plain, err := Step(StepRequest{training, work, 1, nil})
	require.NoError(t, err)
	require.Empty(t, plain.Measured)
	step, err := Step(StepRequest{measured, work, 1, []float64{3, 3}})
	require.NoError(t, err)
	require.Equal(t, "2026-03-01", step.Measured)
	require.Greater(t, step.Parts.Compute.Likely, 1.5*plain.Parts.Compute.Likely)
	require.Equal(t, "2026-03-01", step.Calibration.Kernels)
	elsewhere, err := Step(StepRequest{other, work, 1, nil})
	require.NoError(t, err)
	require.Empty(t, elsewhere.Measured)

	run, err := Run(RunRequest{Training: measured, Model: sizes(xlsr), Work: work, Batch: 4, Seconds: 10, Steps: 100, Workers: 4})
	require.NoError(t, err)
	require.Equal(t, "2026-03-01", run.Measured)
	took := step.StepS.Likely // by its calibration: 3 s
	calibrated, err := Calibrate(CalibrateRequest{measured, []Shape{{4, 10, work}}, []MeasuredStep{{[]int{0}, took}}})
	require.NoError(t, err)
	require.InDelta(t, step.Calibration.Factor, calibrated.Calibration.Factor, 1e-9)
	require.Equal(t, "2026-03-01", calibrated.Calibration.Kernels)

	r := asked("T4")
	r.KernelProfiles = measured.KernelProfiles
	row := made(t, r).Rows[0]
	same := timing.StepCalibration{Calibration: timing.Calibration{Factor: 1, Low: 1, High: 1, Steps: 9}, Kernels: "2026-03-01"}
	r.Calibrations = map[string]timing.StepCalibration{"T4": same}
	require.Equal(t, row.EpochHours.Likely, made(t, r).Rows[0].EpochHours.Likely, "a factor of 1 of the times by the table")
	same.Kernels = ""
	r.Calibrations["T4"] = same
	require.Less(t, made(t, r).Rows[0].EpochHours.Likely, row.EpochHours.Likely, "and of those without it")
	same.Kernels = "2026-02-01"
	r.Calibrations["T4"] = same
	_, err = Make(r)
	require.ErrorContains(t, err, "rests on kernels that were measured on 2026-02-01, which are not there")
}

// TestCalibrateByUnequalSteps: each step is compared with the estimate of its own micro-batches.
func TestCalibrateByUnequalSteps(t *testing.T) {
	training := Training{GPU: "T4"}
	likely := func(batch int64, seconds float64, accumulation int) float64 {
		a, err := Step(StepRequest{training, workOf(xlsr, batch, seconds), accumulation, nil})
		require.NoError(t, err)
		return a.StepS.Likely
	}
	var shapes []Shape
	for _, shape := range []Shape{{Clips: 4, Seconds: 10}, {Clips: 1, Seconds: 25}, {Clips: 16, Seconds: 2}} {
		shape.Work = workOf(xlsr, int64(shape.Clips), shape.Seconds)
		shapes = append(shapes, shape)
	}
	r := CalibrateRequest{training, shapes, []MeasuredStep{{[]int{0, 0}, 2 * likely(4, 10, 2)}, {[]int{1}, 3 * likely(1, 25, 1)}, {[]int{2, 2, 2}, 4 * likely(16, 2, 3)}}}
	a, err := Calibrate(r)
	require.NoError(t, err)
	require.InDelta(t, 3, a.Calibration.Factor, 1e-9)
	require.Equal(t, 3, a.Calibration.Steps)
	require.Equal(t, "T4", a.GPU)
	require.Equal(t, "fp16", a.Precision)
	require.Equal(t, 2*4*10+25+3*16*2.0, a.PaddedS)
	b, err := Calibrate(CalibrateRequest{training, shapes, []MeasuredStep{{[]int{0, 2}, 1}}})
	require.NoError(t, err)
	between := 1 / b.Calibration.Factor
	require.InDelta(t, (likely(4, 10, 2)+likely(16, 2, 2))/2, between, 1e-9)

	for says, change := range map[string]func(*CalibrateRequest){
		"no measured step":              func(r *CalibrateRequest) { r.Steps = nil },
		"a step of 0 micro-batches":     func(r *CalibrateRequest) { r.Steps = []MeasuredStep{{nil, 1}} },
		"shape 3 of 3":                  func(r *CalibrateRequest) { r.Steps = []MeasuredStep{{[]int{3}, 1}} },
		"shape -1 of 3":                 func(r *CalibrateRequest) { r.Steps = []MeasuredStep{{[]int{-1}, 1}} },
		"a measured step of 0 s":        func(r *CalibrateRequest) { r.Steps[0].MeasuredS = 0 },
		`there is no GPU "T5"`:          func(r *CalibrateRequest) { r.GPU = "T5" },
		"10001 steps; 10000 are the mo": func(r *CalibrateRequest) { r.Steps = make([]MeasuredStep, 10001) },
	} {
		wrong := r
		wrong.Steps = slices.Clone(r.Steps)
		change(&wrong)
		_, err := Calibrate(wrong)
		require.ErrorContains(t, err, says)
	}
}
