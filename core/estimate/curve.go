package estimate

import (
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
)

// Curve is a micro-batch's work as a function of its length. Every operation takes as much as there are frames, or pairs of
// them, so that three lengths tell all others, up to the frames that convolutions round off.
type Curve struct {
	seconds [3]float64
	amounts [3]analytic.Amount
	Trained int64 // parameters
}

// At is the work at a length in seconds, by the parabola through the three.
func (c Curve) At(seconds float64) (a analytic.Amount) {
	seconds = max(seconds, Shortest)
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

// Shortest is a length in seconds that every model takes; shorter clips count as this long.
const Shortest = 0.5

// Work finds the curve of a question up to a length in seconds. Neither the optimizer nor workspaces change it.
func (o *Estimator) Work(q Question, longest float64) (Curve, error) {
	q.Optimizer, q.Accumulating = "adamw_torch", false
	if q.Class > "8.0" {
		q.Class = "8.0"
	}
	longest = max(longest, 2*Shortest)
	q.Seconds = longest
	if c, known := o.works[q]; known {
		return c, nil
	}
	c := Curve{seconds: [3]float64{Shortest, (Shortest + longest) / 2, longest}}
	for i, seconds := range c.seconds {
		q.Seconds = seconds
		s, err := o.Predict(q)
		if err != nil {
			return c, err
		}
		c.amounts[i], c.Trained = s.Work.Sum(), s.Work.TrainedParameters
	}
	q.Seconds = longest
	o.works[q] = c
	return c, nil
}
