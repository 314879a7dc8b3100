package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// planner plans one training for one machine after another.
type planner struct {
	Request
	estimator *estimate.Estimator
	lengths   timing.Lengths
	prices    map[string]timing.Price
	factors   map[string]timing.Calibration
	worker    timing.Range // seconds of audio per second
	survey    bool         // of so many machines that what leaves no doubt is not simulated
}

// closeLook is the most machines that are each simulated.
const closeLook = 12

// candidate is one choice of settings on a machine with its time.
type candidate struct {
	estimate.Setup
	batch, accumulation int
	parts               timing.Parts // of an optimizer step, on average
	epoch               timing.Range // seconds
	loader              timing.Range // seconds that it takes for an epoch
}

// share is the clips of one GPU in an optimizer step: the nearest whole number.
func (p *planner) share(devices int) int {
	return max(1, int(math.Round(float64(p.TargetBatchSize)/float64(devices))))
}

// candidates are all micro-batches that divide a GPU's share of the effective batch, for each setup, fastest first. A setup
// is a later choice than those before it in the list, however fast.
func (p *planner) candidates(m machine, timer *estimate.Timer, setups []estimate.Setup) ([]candidate, error) {
	var out []candidate
	share := p.share(m.count)
	for _, s := range setups {
		for batch := 1; batch <= share && batch <= maxMicro; batch++ {
			if share%batch != 0 {
				continue
			}
			c, err := p.timed(m, timer, candidate{Setup: s, batch: batch, accumulation: share / batch})
			if err != nil && estimate.TooLarge(err) && batch > 1 {
				break
			}
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Compare(a.epoch.Likely, b.epoch.Likely) })
	return out, nil
}

// maxMicro is the largest micro-batch that is considered: far above what any GPU of the catalogue needs to be busy.
const maxMicro = 1024

func (p *planner) question(m machine, c candidate) estimate.Question {
	g := m.card.GPU()
	return estimate.Question{Setup: c.Setup, Class: estimate.Class(g), Precision: p.precision(g), Batch: c.batch,
		Accumulating: c.accumulation > 1, Seconds: p.lengths.Longest()}
}

// budget is where one GPU's part of a step is to fit.
func (m machine) budget(budget uint64) estimate.Budget {
	return estimate.Budget{GPU: m.card.GPU(), Devices: m.count, Bytes: budget}
}

// precision is what was asked for; float16 stands in for a bfloat16 that the card lacks.
func (p *planner) precision(g profile.GPU) string {
	if p.Precision == "bf16" && !g.BF16 {
		return estimate.Precision(g)
	}
	return or(p.Precision, estimate.Precision(g))
}

// timed fills in how long a candidate takes.
func (p *planner) timed(m machine, timer *estimate.Timer, c candidate) (candidate, error) {
	lengths := p.lengths.Batches(p.Order, c.batch)
	if p.PaddedS != nil {
		lengths = p.lengths.Padded(*p.PaddedS)
	}
	q := p.question(m, c)
	curve, err := p.estimator.Times(timer, q, p.lengths.Longest())
	if err != nil {
		return c, err
	}
	work, err := p.estimator.Work(q)
	if err != nil {
		return c, err
	}
	update, err := timer.Update(work, c.Optimizer, q.Precision, m.count)
	if err != nil {
		return c, err
	}
	var micro timing.Parts
	for _, seconds := range lengths {
		micro = micro.Plus(curve.At(seconds).Times(1 / float64(len(lengths))))
	}
	c.parts = micro.Times(float64(c.accumulation)).Plus(update.After(c.accumulation))
	step := c.parts.Sum()
	if factor, known := p.factors[m.card.Key]; known {
		step = factor.Apply(step)
	}
	steps := float64(p.lengths.Clips) / float64(c.batch*c.accumulation*m.count)
	c.loader = p.loading(m.count)
	c.epoch = step.Times(math.Ceil(steps - 1e-9)).AtLeast(c.loader)
	return c, nil
}

// loading is how long the workers need for an epoch's audio.
func (p *planner) loading(devices int) timing.Range {
	rate := p.worker
	if p.LoaderRate != nil {
		rate = timing.Range{Low: *p.LoaderRate, Likely: *p.LoaderRate, High: *p.LoaderRate}
	}
	return timing.Takes(p.lengths.Hours()*3600, rate.Times(float64(p.Workers*devices)))
}

// setups are the settings in the order of preference: as asked, and with a lighter form of the optimizer where it has
// one. The plain and the checkpointed one of each stand together: the faster that fits is taken.
func (p *planner) setups() [][]estimate.Setup {
	of := func(optimizer string) []estimate.Setup {
		s := estimate.Setup{Frozen: p.FreezeFeatureEncoder, Optimizer: optimizer, Rank: p.LoRARank}
		c := s
		c.Checkpointing = true
		return []estimate.Setup{s, c}
	}
	out := [][]estimate.Setup{of(p.Optimizer)}
	for _, name := range estimate.Lighter(p.Optimizer) {
		out = append(out, of(name))
	}
	return out
}
