package compare

import (
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
)

// curve is a micro-batch's work as a function of its length. Every operation takes as much as there are frames, or pairs of
// them, so that three lengths tell all others, up to the frames that convolutions round off.
type curve struct {
	seconds [3]float64
	amounts [3]analytic.Amount
	trained int64
}

// at is the work at a length, by the parabola through the three.
func (c curve) at(seconds float64) (a analytic.Amount) {
	for i, x := range c.seconds {
		share := 1.0
		for j, other := range c.seconds {
			if j != i {
				share *= (seconds - other) / (x - other)
			}
		}
		a = a.Plus(c.amounts[i], share)
	}
	return a
}

// shortest is a length that every model takes; shorter clips count as this long.
const shortest = 0.5

// work finds the curve of a question. Neither the optimizer nor workspaces change it.
func (p *planner) work(q question) (curve, error) {
	q.optimizer, q.accumulating = adamw, false
	if q.class > "8.0" {
		q.class = "8.0"
	}
	q.seconds = 0
	if c, known := p.works[q]; known {
		return c, nil
	}
	longest := max(p.lengths.Longest(), 2*shortest)
	c := curve{seconds: [3]float64{shortest, (shortest + longest) / 2, longest}}
	for i, seconds := range c.seconds {
		q.seconds = seconds
		s, err := p.sketch(q)
		if err != nil {
			return c, err
		}
		c.amounts[i], c.trained = s.Work.Sum(), s.Work.TrainedParameters
	}
	q.seconds = 0
	p.works[q] = c
	return c, nil
}
