package estimate

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Seconds that pass on the host whatever the GPU. They are assumptions.
var (
	// of a micro-batch: collating, copying to the GPU, the Trainer's loop
	microTime = profile.Range{Low: 2e-3, Likely: 6e-3, High: 20e-3}
	// of an optimizer step: schedule, callbacks, logs
	stepTime = profile.Range{Low: 3e-3, Likely: 10e-3, High: 40e-3}
)

// Timer predicts how long the parts of a step take on one kind of card.
type Timer struct {
	GPU     profile.GPU
	kernels *kernel.Model
	// MeasuredOn is the day on which kernels of this card were measured; "" for the model's own
	// times.
	MeasuredOn string
}

// Measured are profiles of cards whose kernels were measured.
type Measured struct {
	Named *kernel.Profile  // the one that the user names for the card; nil: none
	Known []kernel.Profile // of any cards
}

// On returns the profiles that were measured on a day; none for "". Errors: InvalidArgument where
// there are none of that day.
func (m Measured) On(day string) (out Measured, err error) {
	if day == "" {
		return Measured{}, nil
	}
	if m.Named != nil && m.Named.Date == day {
		out.Named = m.Named
	}
	for _, p := range m.Known {
		if p.Date == day {
			out.Known = append(out.Known, p)
		}
	}
	if out.Named == nil && out.Known == nil {
		err = fault.New(fault.InvalidArgument, "measure steps again, or leave the calibration out",
			"the calibration rests on kernels that were measured on %s, which are not there",
			fault.Shorten(day))
	}
	return out, err
}

// profile returns the profile for the card with a key of the catalogue; nil without one.
func (m Measured) profile(key string) *kernel.Profile {
	if m.Named != nil {
		return m.Named
	}
	if i := slices.IndexFunc(m.Known, func(p kernel.Profile) bool { return p.GPU == key }); i >= 0 {
		return &m.Known[i]
	}
	return nil
}

// TimerOf returns the timer of a card of the catalogue, with the figures that g has in place of the
// published ones, corrected by kernels that were measured on such a card, if any. Errors:
// Unsupported where its figures are not known, InvalidArgument where the named profile is another
// card's.
func TimerOf(g profile.GPU, measured Measured) (*Timer, error) {
	entry, err := gpus.Find(g.Name, g.MemoryTotalBytes)
	if err != nil || g.FP32TFLOPS == nil || g.BandwidthGBs == nil {
		return nil, fault.New(fault.Unsupported, `name a card of the catalogue, such as gpu="T4"`,
			"no published figures for %s, so times cannot be estimated", g.Name)
	}
	entry.FP32TFLOPS, entry.BandwidthGBs, entry.TensorTFLOPS, entry.PowerWatts =
		g.FP32TFLOPS, g.BandwidthGBs, g.TensorTFLOPS, g.PowerWatts
	card, err := kernel.CardOf(entry)
	if err != nil {
		return nil, err
	}
	timer := &Timer{GPU: g, kernels: kernel.New(card)}
	if p := measured.profile(card.Key); p != nil {
		timer.MeasuredOn = p.Date
		timer.kernels, err = timer.kernels.Corrected(*p)
	}
	return timer, err
}

// Micro returns the time of a micro-batch, forward and backward pass, by its parts. Errors:
// InvalidArgument for sizes that no operation has.
func (t *Timer) Micro(w kernel.Work) (profile.StepParts, error) {
	step, err := t.kernels.Step(w.Operations)
	parts := profile.StepParts{Overhead: microTime}
	for _, phase := range kernel.Phases {
		span := step[phase]
		parts.Compute = parts.Compute.Plus(span.Products)
		parts.Memory = parts.Memory.Plus(span.Others)
		parts.Launches = parts.Launches.Plus(waits(span))
	}
	return parts, err
}

// Host returns how long the CPU works for a micro-batch: the launches of its kernels, and the
// Trainer's own work. Errors: those of Micro.
func (t *Timer) Host(w kernel.Work) (seconds float64, err error) {
	step, err := t.kernels.Step(w.Operations)
	seconds = microTime.Likely
	for _, phase := range kernel.Phases {
		seconds += step[phase].Host.Likely
	}
	return seconds, err
}

// Forward returns the share of a micro-batch's time that its forward pass takes as an evaluation
// runs it: without dropout.
func (t *Timer) Forward(w kernel.Work) (share float64, err error) {
	all, err := t.Micro(w)
	if err != nil {
		return 0, err
	}
	step, err := t.kernels.Step(w.ForwardPass())
	return step[kernel.Forward].Seconds().Likely / max(1e-12, all.Sum().Likely), err
}

// Rate returns the published FLOP/s of matrix products in a plan's precision.
func (t *Timer) Rate(precision string, tf32 bool) float64 {
	switch {
	case precision == "fp16":
		return t.kernels.Rate(kernel.Float16)
	case precision == "bf16":
		return t.kernels.Rate(kernel.BFloat16)
	case tf32:
		return t.kernels.Rate(kernel.TF32)
	}
	return t.kernels.Rate(kernel.Float32)
}

// waits returns how long the GPU idles in a span because the CPU launches kernels too slowly.
func waits(s kernel.Span) profile.Range {
	span, busy := s.Seconds(), s.GPU()
	return profile.Range{Low: span.Low - busy.Low, Likely: span.Likely - busy.Likely,
		High: span.High - busy.High}
}

// Update is the time that an optimizer step takes besides its micro-batches.
type Update struct {
	Once    profile.StepParts
	adding  profile.Range // seconds of adding gradients up, for each micro-batch after the first
	sending profile.Range // seconds of exchange between GPUs, with each micro-batch
}

// After returns the parts of the update after that many micro-batches.
func (u Update) After(microBatches int) profile.StepParts {
	parts := u.Once
	parts.Optimizer = parts.Optimizer.Plus(u.adding.Times(float64(max(0, microBatches-1))))
	parts.Exchange = parts.Exchange.Plus(u.sending.Times(float64(max(1, microBatches))))
	return parts
}

// Sharded returns an update where an engine divides the model's state between GPUs, so that each
// updates its share. Gradients and weights are sent in the type of the computation. Gradients are
// scattered once a step, by ZeRO-2 and ZeRO-3 with each micro-batch instead. Updated weights are
// gathered once a step by ZeRO-1 and ZeRO-2; ZeRO-3 and FSDP gather all weights twice with each
// micro-batch instead, for its forward and its backward pass.
func (t *Timer) Sharded(u Update, engine, precision string, parameters, trained int64,
	devices int) Update {
	elementBytes := 2.0
	if precision == "fp32" {
		elementBytes = float32Bytes
	}
	// Scattering or gathering alone sends half of what an exchange does, which is both.
	oneWay := func(elements int64) profile.Range {
		return timing.Exchange(t.GPU, elementBytes*float64(elements)/2, devices)
	}
	// As many weights are updated as have gradients, so their times are the same.
	gradients, weights := oneWay(trained), oneWay(parameters).Times(2)
	u.Once.Optimizer = u.Once.Optimizer.Times(1 / float64(devices))
	switch engine {
	case "zero1":
		u.Once.Exchange = gradients.Times(2)
	case "zero2":
		u.Once.Exchange, u.sending = gradients, gradients
	case "zero3":
		u.Once.Exchange, u.sending = profile.Range{}, gradients.Plus(weights)
	case "fsdp":
		u.Once.Exchange, u.sending = gradients, weights
	}
	return u
}

// Update returns the time of an optimizer step besides its micro-batches, with DDP's exchange
// between several devices. Errors: Unsupported for an optimizer that is not known.
func (t *Timer) Update(w kernel.Work, optimizer, precision string, devices int) (Update, error) {
	operations, err := update(optimizer, precision, w.TrainedParameters, w.TrainedTensors)
	if err != nil {
		return Update{}, err
	}
	seconds := func(operations []kernel.Operation) profile.Range {
		var step kernel.Step
		if err == nil {
			step, err = t.kernels.Step(operations)
		}
		return step.Seconds()
	}
	u := Update{Once: profile.StepParts{Optimizer: seconds(operations), Overhead: stepTime},
		adding: seconds(accumulation(w.TrainedParameters, w.TrainedTensors))}
	u.Once.Exchange = timing.Exchange(t.GPU, float32Bytes*float64(w.TrainedParameters), devices)
	return u, err
}
