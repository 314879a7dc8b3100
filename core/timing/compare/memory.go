package compare

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

const gradientBytes = 4

// need is the memory of one GPU at the longest clip: reserved, context, and DDP's buckets, a second copy of the gradients.
// Reserved memory is that of a simulation; where the tensors alone exceed the budget, and where a rough answer is wanted and
// leaves no doubt, it is that of the rule.
func (p *planner) need(q estimate.Question, m machine, budget uint64, rough bool) (bytes uint64, fits bool, err error) {
	q.Seconds = max(p.lengths.Longest(), estimate.Shortest)
	s, err := p.ask.Sketch(q)
	if err != nil {
		return 0, false, err
	}
	beside, err := estimate.Outside(m.card.GPU(), m.count)
	if err != nil {
		return 0, false, err
	}
	if m.count > 1 {
		beside += gradientBytes * uint64(s.Work.TrainedParameters)
	}
	byRule := s.PeakReserved + beside
	if s.PeakAllocated+beside > budget {
		return byRule, false, nil
	}
	if rough && (byRule <= budget/8*7 || byRule > budget/7*8) { // the rule errs by less
		return byRule, byRule <= budget, nil
	}
	reserved, err := p.ask.Peak(q)
	return reserved + beside, err == nil && reserved+beside <= budget, err
}

// largestBatch bisects for the largest micro-batch of a candidate's kind whose reserved memory by the rule fits, at least the
// candidate's own.
func (p *planner) largestBatch(m machine, c candidate, budget uint64) int {
	q := p.question(m, c)
	q.Seconds, q.Accumulating = max(p.lengths.Longest(), estimate.Shortest), true
	beside, err := estimate.Outside(m.card.GPU(), m.count)
	fits := func(batch int) bool {
		q.Batch = batch
		s, err := p.ask.Sketch(q)
		return err == nil && s.PeakReserved+beside <= budget
	}
	low, high := c.batch, maxMicro
	for err == nil && low < high {
		if middle := (low + high + 1) / 2; fits(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// tooLarge tells errors over the size of a batch from others: such a batch does not fit, whatever it would take.
func tooLarge(err error) bool { return fault.From(err).Code == fault.InvalidArgument }
