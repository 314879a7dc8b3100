package estimate

import (
	"sort"

	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Work is what a micro-batch of a question runs. Neither the optimizer nor workspaces change it. Errors: those of Model.Work.
func (o *Estimator) Work(q Question) (analytic.Work, error) {
	q.Optimizer, q.Accumulating, q.Seconds = "", false, max(q.Seconds, Shortest)
	if q.Class > "8.0" {
		q.Class = "8.0"
	}
	if w, known := o.works[q]; known {
		return w, nil
	}
	m, err := o.Model(q.Frozen)
	if err != nil {
		return analytic.Work{}, err
	}
	w, err := m.Work(q.request())
	if err == nil {
		o.works[q] = w
	}
	return w, err
}

// Shortest is a length in seconds that every model takes; shorter clips count as this long.
const Shortest = 0.5

// Curve is what a micro-batch takes on a card as a function of its length.
type Curve struct {
	seconds [samples]float64
	steps   [samples]kernel.Step
}

// samples is at how many lengths a micro-batch is timed. Between them lie straight lines, apart for GPU and CPU, of which the slower one counts: products come in
// whole rounds of tiles, so that no smooth function fits better.
const samples = 6

// At is a length in seconds.
func (c *Curve) At(seconds float64) timing.Parts {
	right := min(max(1, sort.SearchFloat64s(c.seconds[:], seconds)), samples-1)
	low, high := c.seconds[right-1], c.seconds[right]
	share := min(max(0, (seconds-low)/(high-low)), 1)
	between := kernel.Step{}
	for _, phase := range kernel.Phases {
		a, b := c.steps[right-1][phase], c.steps[right][phase]
		between[phase] = kernel.Span{Products: a.Products.Times(1 - share).Plus(b.Products.Times(share)),
			Others: a.Others.Times(1 - share).Plus(b.Others.Times(share)), Host: a.Host*(1-share) + b.Host*share}
	}
	return microOf(between)
}

// Times finds the curve of a question on a card, up to a length in seconds. Errors: those of Work, and of Timer.Micro.
func (o *Estimator) Times(t *Timer, q Question, longest float64) (*Curve, error) {
	c := &Curve{}
	longest = max(longest, 2*Shortest)
	for i := range samples {
		q.Seconds = Shortest + (longest-Shortest)*float64(i)/(samples-1)
		w, err := o.Work(q)
		if err != nil {
			return nil, err
		}
		if c.steps[i], err = t.kernels.Step(w.Operations, nil); err != nil {
			return nil, err
		}
		c.seconds[i] = q.Seconds
	}
	return c, nil
}
