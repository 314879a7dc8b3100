package plan

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// HandPlan is a training with settings that someone chooses without a planner, judged by the
// memory and the times of this one.
type HandPlan struct {
	Name   string
	Config profile.Config // PredictedBytes by a trace; Times where it fits and the speed is known
	Fits   bool           // into all memory of the tightest GPU, without a margin
}

// Names of settings by hand.
const (
	Aggressive = "aggressive" // the published formula at its boldest
	Safe       = "safe"       // one clip at a time
)

// BoldMargin is the safety margin of aggressive settings, the largest that can be asked for.
const BoldMargin = MaxSafetyMargin

// ByHand judges settings by hand: batches of the published formula, for the counts of sized where
// they are not the model's, and of one clip; precision and checkpointing by the published rules. It
// returns what to trace first, where that is missing. No settings: the formula finds none, or they
// cannot be traced. Errors: those of Make except Infeasible.
func ByHand(in Inputs, sized *profile.Model) ([]HandPlan, *TraceRequest, error) {
	s, err := prepared(in)
	if err != nil {
		return nil, nil, err
	}
	plans, err := s.handPlans(sized)
	if err != nil {
		return nil, nil, err
	}
	judged := make([]HandPlan, 0, len(plans))
	for _, p := range plans {
		w := candidate{p.Config.Precision(), p.Config.Checkpointing(),
			optimizers[s.in.Options.Optimizer].name}
		t := s.tracedSizes(w, p.Config.PerDeviceTrainBatchSize)
		if t == nil {
			request := s.traceRequest(w)
			request.Sizes = sizesOf(plans)
			return nil, request, nil
		}
		if len(t.Peaks) == 0 { // the model cannot train with these settings
			continue
		}
		if err := s.judge(&p, w, *t); err != nil {
			return nil, nil, err
		}
		judged = append(judged, p)
	}
	return judged, nil, nil
}

// handPlans are the settings, from the boldest to the most careful. Of a model whose parameters
// alone exceed the memory there are none.
func (s *search) handPlans(sized *profile.Model) (plans []HandPlan, err error) {
	bold := s.in
	bold.Options.Preset, bold.Options.SafetyMargin = Speed, BoldMargin
	for _, p := range []struct {
		name string
		in   Inputs
	}{{Aggressive, bold}, {PublishedRule, s.in}, {Safe, s.in}} {
		p.in.Model, p.in.Options.Policy = profile.Or(sized, s.in.Model), PublishedRule
		c, err := planPublished(p.in)
		if err != nil && fault.From(err).Code == fault.Infeasible {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if p.name == Safe {
			c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps = 1, s.perDevice
		}
		if asked := s.in.Options.Precision; asked != "" {
			c.FP16, c.BF16 = asked == "fp16", asked == "bf16"
		}
		c.DataloaderNumWorkers = profile.Or(s.in.Options.Workers, c.DataloaderNumWorkers)
		plans = append(plans, HandPlan{Name: p.name, Config: c})
	}
	return plans, nil
}

func sizesOf(plans []HandPlan) (sizes []int) {
	for _, p := range plans {
		sizes = append(sizes, p.Config.PerDeviceTrainBatchSize)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// tracedSizes is the trace of a candidate that has the peak of a micro-batch of this size, or tells
// that the model cannot train so.
func (s *search) tracedSizes(w candidate, size int) *Traced {
	for i, t := range s.in.Traced {
		if w == t.candidate() && t.BudgetBytes == int64(s.budget.bytes) &&
			(t.sizePeak(size) != nil || len(t.Peaks) == 0) {
			return &s.in.Traced[i]
		}
	}
	return nil
}

// judge predicts the peak, and the times of what fits.
func (s *search) judge(p *HandPlan, w candidate, t Traced) error {
	d := &draft{Config: p.Config}
	d.PredictedBytes = t.sizePeak(d.PerDeviceTrainBatchSize).Bytes
	p.Fits = d.PredictedBytes <= int64(deviceTotal(s.in.Hardware, s.pool))
	if p.Fits {
		f, err := s.inOneSize(w, &t, d.PerDeviceTrainBatchSize)
		if err != nil {
			return err
		}
		run, err := s.writeRun(d, f)
		if err != nil {
			return err
		}
		s.writeTimes(d, f, run)
	}
	p.Config = d.Config
	return nil
}

// inOneSize is a candidate that trains in random order in micro-batches of one size.
func (s *search) inOneSize(w candidate, t *Traced, size int) (f evaluated, err error) {
	f = evaluated{candidate: w, traced: t,
		memory: batching.Limits{{Seconds: s.clips.longest(), Batch: s.perDevice}}}
	if f.throughput, err = s.throughput(f); err != nil {
		return f, err
	}
	sample, options := s.epoch(f)
	options.Sizes = []int{size}
	c, err := batching.Compare(sample, options)
	if err != nil {
		return f, err
	}
	f.simulated = len(sample)
	f.chosen = s.batchesOf(f, c.Strategies[0], fixedMicro)
	return f, nil
}
