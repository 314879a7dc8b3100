package estimate

import (
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// Work is what a micro-batch of a question runs. Neither the optimizer nor workspaces change it. Errors: those of Model.Work.
func (o *Estimator) Work(q Question) (kernel.Work, error) {
	q.Optimizer, q.Accumulating, q.Seconds = "", false, max(q.Seconds, Shortest)
	if q.Class > "8.0" {
		q.Class = "8.0"
	}
	return remembered(o, o.works, q, q.Request(), (*analytic.Model).Work)
}

// Shortest is a length in seconds that every model takes; shorter clips count as this long.
const Shortest = 0.5
