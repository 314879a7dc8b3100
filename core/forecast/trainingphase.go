package forecast

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	// an evaluation that was never seen to its end is foreseen for this share of what was seen of
	// it
	evaluationReach = 0.5
	spikeShare      = 0.02 // of the card; what takes less is no spike
)

// phase is an evaluation or a checkpoint between training steps.
type phase struct {
	kind    string // "" during training
	from    float64
	top     float64 // highest peak
	batches int
	before  int     // batches of the last evaluation; 0: none was seen to its end
	memory  newest  // allocated after each batch
	needs   float64 // the most that a batch took for itself
}

// inPhase takes a batch of an evaluation, or a checkpoint.
func (g *gpu) inPhase(atS float64, s runlog.Step, b *alertTable) {
	p := &g.phase
	if p.kind != s.Kind {
		g.endPhase()
		*p = phase{kind: s.Kind, from: g.base, before: p.before}
	}
	p.batches++
	p.top = max(p.top, s.PeakAllocated)
	if s.Kind != runlog.KindEvaluation || !(g.total > 0) {
		return
	}
	p.needs = max(p.needs, s.PeakAllocated-s.Allocated)
	p.memory.push(point{float64(p.batches), atS, s.Allocated, math.NaN()})
	if p.batches%2 == 0 {
		g.watchEvaluation(atS, s, b)
	}
}

// endPhase keeps what the phase took.
func (g *gpu) endPhase() {
	p := &g.phase
	if p.kind == "" {
		return
	}
	if took := p.top - p.from; took > 0 {
		g.spikes[p.kind] = took
	} else {
		delete(g.spikes, p.kind)
	}
	if p.kind == runlog.KindEvaluation {
		p.before = p.batches
	}
	p.kind, p.memory.n, p.batches, p.top, p.needs = "", 0, 0, 0, 0
}

// watchEvaluation looks for memory that grows from batch to batch of an evaluation: predictions
// that are gathered on the GPU. They are freed at its end, so what counts is whether it comes
// before.
func (g *gpu) watchEvaluation(atS float64, s runlog.Step, b *alertTable) {
	p := &g.phase
	for _, size := range [...]int{resolutionSize, 48, 24, 12, 8} {
		if p.memory.n < size {
			continue
		}
		t, ok := climbs(p.memory.last(size), demand{rise: g.minRise(leakRise), sign: 3.4})
		if !ok {
			continue
		}
		steps := max(0, g.capacity.median()-s.Allocated-p.needs) / t.slope
		pace := (atS - t.first.atS) / max(1, float64(p.batches)-t.first.u)
		near := steps <= max(soonSteps, evaluationReach*float64(p.batches))
		if p.before > 0 {
			near = float64(p.batches)+steps <= float64(p.before)
		}
		if near || b.isOpen(runlog.AlertEvaluation, g.index) {
			b.raise(atS, g.bulging(t, steps, steps*pace, pace))
		}
		return
	}
}

func (g *gpu) bulging(t trend, steps, seconds, pace float64) runlog.Alert {
	f := g.growing(runlog.AlertEvaluation, t, g.u, t.first.atS, steps, seconds)
	f.PerS, f.Advice = pointer(t.slope/pace), runlog.AdviceEvaluation
	f.Text = fmt.Sprintf("The evaluation gathers %s of GPU memory a batch: out of memory in about "+
		"%s (%s)", units.Size(t.slope), counted(steps, "more batch"), units.About(seconds))
	return f
}

// spikes are the kinds of steps that take memory for a moment.
var spikes = [...]struct{ step, alert, name, advice string }{
	{runlog.KindEvaluation, runlog.AlertEvaluation, "evaluation",
		"halve per_device_eval_batch_size, and set eval_accumulation_steps=16"},
	{runlog.KindCheckpoint, runlog.AlertCheckpoint, "checkpoint",
		"save the state on the CPU (move tensors by .cpu() before they are gathered), or free " +
			"the cache of others first"},
}

// watchSpikes compares what the last evaluation and the last checkpoint took with what is free now.
func (g *gpu) watchSpikes(atS float64, b *alertTable) {
	available := g.capacity.median() - g.base
	for _, k := range spikes {
		took, ok := g.spikes[k.step]
		if !ok || !(took > spikeShare*g.total) || available > 1.05*took {
			b.clear(atS, k.alert, g.index)
		} else if available < took {
			f := runlog.Alert{Kind: k.alert, GPU: g.index}
			f.Text = fmt.Sprintf("The last %s took %s of GPU memory, and %s are left now: the next "+
				"one runs out of memory", k.name, units.Size(took), units.Size(max(0, available)))
			f.Advice = k.advice
			b.raise(atS, f)
		}
	}
}
