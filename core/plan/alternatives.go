package plan

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// writeAlternatives lists other candidates: other batches, other settings.
func (s *search) writeAlternatives(d *draft, f evaluated, ranked []evaluated) {
	for _, b := range f.all {
		if s.clips.fixed > 0 || b.order == f.chosen.order &&
			b.microBatching == f.chosen.microBatching {
			// the plan itself, or clips of one length, whose order changes nothing
			continue
		}
		text := fmt.Sprintf("%.1f %% padding", 100*b.figures.Padding)
		if b.figures.MicroBatch != nil {
			text = fmt.Sprintf("%d × %d, %s", *b.figures.MicroBatch,
				s.perDevice / *b.figures.MicroBatch, text)
		}
		s.alternative(d, f, batchName(b), text, nil, b, s.whyNot(f, b))
	}
	for _, other := range ranked[1:] {
		most := other.memory.Largest(s.clips.longest())
		text := fmt.Sprintf("%s of %s at once", s.rows().Count(most),
			s.rows().Length(s.clips.longest()))
		peak := s.peak(other, most)
		s.alternative(d, f, other.checkpointing.With()+", "+other.precision, text, &peak.Bytes,
			other.chosen, "")
	}
	s.eightBit(d, f)
}

func batchName(b batches) string {
	order := map[string]string{"random": "random order", "grouped": "group_by_length",
		"bucketed": "steps of one length", "stratified": "stratified steps"}[b.order]
	if b.microBatching == fixedMicro {
		return order + ", one size"
	}
	return order + ", sized by memory"
}

// whyNot explains why faster batches of the same settings were not chosen.
func (s *search) whyNot(f evaluated, b batches) string {
	o := s.in.Options
	switch {
	case b.microBatching == memoryMicro && s.unsplit(f) != "":
		return s.unsplit(f)
	case o.Streamed && !ofStreams(b.order):
		return fmt.Sprintf("of a stream one window of %s is known at a time", s.rows().Nouns())
	case b.order == f.chosen.order:
		return "too little is gained for steps that the guard splits"
	case o.LengthHandling != "":
		return "another order was asked for"
	case b.steps < fewSteps:
		return fmt.Sprintf("%s an epoch are too few to sort by length",
			fault.Plural(b.steps, "step"))
	}
	return fmt.Sprintf("from steps of similar %s a model may learn a little more slowly; it is "+
		"taken with length_handling=%q", s.rows().Nouns(), b.order)
}

// alternative adds one; the reason appears only where it is faster than the plan.
func (s *search) alternative(d *draft, f evaluated, name, text string, peak *int64, b batches,
	reason string) {
	fits := peak == nil || *peak <= int64(s.budget.bytes)
	a := profile.Alternative{Name: name, What: text, Fits: &fits, PeakBytes: peak}
	if s.writeSpeed(&a, d, f, b) < 1 {
		a.Why = reason
	}
	d.Alternatives = append(d.Alternatives, a)
}

// eightBit is the plan with the optimizer's 8-bit form, whose state is smaller: advice, as it
// changes the mathematics a little.
func (s *search) eightBit(d *draft, f evaluated) {
	if s.pool.onCPU() || s.sharded() || !estimate.HasEightBit(f.optimizer) {
		return
	}
	peak := d.PredictedBytes - s.savedBy(f.optimizer, estimate.EightBit)
	fits := peak <= d.BudgetBytes
	d.Alternatives = append(d.Alternatives, profile.Alternative{Name: estimate.EightBit,
		What: fmt.Sprintf("%s less for its state, which is rounded to 8 bits",
			units.Size(d.PredictedBytes-peak)),
		Fits: &fits, PeakBytes: &peak})
}

// writeSpeed is how many times the epoch of the plan one of other batches takes, with the loader's
// time, and the hours of it, where the device's speed is known.
func (s *search) writeSpeed(a *profile.Alternative, d *draft, f evaluated, b batches) float64 {
	speed := b.epoch.Likely / f.chosen.epoch.Likely
	if f.throughput.timed {
		seconds := s.epochSeconds(d, b)
		hours := seconds.Times(1.0 / 3600)
		speed = seconds.Likely / s.epochSeconds(d, f.chosen).Likely
		a.EpochHours = &hours
	}
	a.Speed = &speed
	return speed
}

// byHand is what settings without a planner take: those of the published rule where they were
// traced and fit, else the plan's own with one size of micro-batch in random order.
func (s *search) byHand(d *draft, f evaluated, published *profile.Alternative,
) *profile.Alternative {
	if published != nil && published.Speed != nil {
		return published
	}
	b, fits := f.oneSize(batching.Random), true
	size := *b.figures.MicroBatch
	a := &profile.Alternative{Name: "one size", What: handSettings(size, s.perDevice/size,
		f.candidate), Fits: &fits}
	s.writeSpeed(a, d, f, b)
	if published != nil && !profile.Or(published.Fits, true) {
		batch, _, _ := strings.Cut(published.What, ",")
		a.Why = fmt.Sprintf("the published rule's %s does not fit", batch)
	}
	return a
}

func handSettings(micro, accumulation int, w candidate) string {
	return fmt.Sprintf("%d × %d, %s, %s, random order", micro, accumulation, w.precision,
		w.checkpointing.With())
}

// byPublishedRule is what the published rule would take, by its own formula; nil where it finds no
// plan.
func (s *search) byPublishedRule() *profile.Config {
	in := s.in
	in.Options.Policy, in.Options.Precision, in.Options.GradientCheckpointing =
		PublishedRule, "", nil
	c, err := planPublished(in)
	if err != nil {
		return nil
	}
	return &c
}

// published is what the published rule would take, and what that really needs, where its settings
// were traced; nil where the formula finds no plan.
func (s *search) published(d *draft, f evaluated, ranked []evaluated) *profile.Alternative {
	c := s.formula
	if c == nil {
		return nil
	}
	w := candidate{c.Precision(), c.Checkpointing(), f.optimizer}
	a := &profile.Alternative{Name: PublishedRule, What: handSettings(c.PerDeviceTrainBatchSize,
		c.GradientAccumulationSteps, w)}
	other := evaluated{candidate: w, traced: s.traced(w)}
	if other.traced == nil || len(other.traced.Peaks) == 0 {
		return a
	}
	peak := other.traced.bytes(c.PerDeviceTrainBatchSize)
	if entry, ok := other.traced.peak(c.PerDeviceTrainBatchSize); ok {
		peak = entry.Bytes
	}
	fits := peak <= int64(s.budget.bytes)
	a.Fits, a.PeakBytes = &fits, &peak
	b := fixedOf(ranked, w, c.PerDeviceTrainBatchSize)
	if !fits || b == nil {
		return a
	}
	if speed := s.writeSpeed(a, d, f, b[0]); speed < 1 && speed > 1-aboutAsFast {
		a.Why = "too little to take it"
	}
	return a
}
