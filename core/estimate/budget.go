package estimate

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Budget is where a micro-batch is to fit.
type Budget struct {
	GPU     profile.GPU
	Devices int    // that share a step
	Bytes   uint64 // bytes of this one, context included
	Shared  *int64 // what sharing the model's state adds to it, or saves; absent: DDP's buckets with several GPUs
}

const hostBytes = 1e9 // of a process with PyTorch loaded, where there is no GPU; a round, cautious figure

// OutsideAllocator is what a place holds beside the allocator's memory, in bytes: context, NCCL's buffers, and with several GPUs DDP's
// buckets, a second copy of the gradients; or what another way of sharing adds or saves.
func (p Budget) OutsideAllocator(trained int64) (int64, error) {
	if p.GPU.MemoryTotalBytes == 0 {
		return hostBytes, nil
	}
	outside, err := Outside(p.GPU, p.Devices)
	bytes := int64(outside)
	switch {
	case p.Shared != nil:
		bytes += *p.Shared
	case p.Devices > 1:
		bytes += gradientBytes * trained
	}
	return bytes, err
}

// Need is the memory that a micro-batch takes of a GPU in bytes: reserved, and beside it. Reserved memory is that of a
// simulation; where the tensors alone exceed the budget, and where a rough answer is wanted and leaves no doubt, it is that
// of the rule. Errors: those of Predict and Peak.
func (o *Estimator) Need(q Question, p Budget, rough bool) (bytes uint64, fits bool, err error) {
	q.Seconds = max(q.Seconds, Shortest)
	s, err := o.Predict(q)
	if err != nil {
		return 0, false, err
	}
	beside, err := p.OutsideAllocator(s.TrainedParameters)
	if err != nil {
		return 0, false, err
	}
	with := func(bytes uint64) uint64 { return uint64(max(0, int64(bytes)+beside)) }
	byRule := with(s.PeakReserved)
	if with(s.PeakAllocated) > p.Bytes {
		return byRule, false, nil
	}
	if rough && (byRule <= p.Bytes/8*7 || byRule > p.Bytes/7*8) { // the rule errs by less
		return byRule, byRule <= p.Bytes, nil
	}
	reserved, err := o.Peak(q)
	return with(reserved), err == nil && with(reserved) <= p.Bytes, err
}

// Largest is the largest micro-batch, from least to most, whose reserved memory by the rule times a factor fits; least - 1
// when that does not.
func (o *Estimator) Largest(q Question, p Budget, factor float64, least, most int) int {
	q.Seconds = max(q.Seconds, Shortest)
	fits := func(batch int) bool {
		q.Batch = batch
		s, err := o.Predict(q)
		if err != nil {
			return false
		}
		beside, err := p.OutsideAllocator(s.TrainedParameters)
		return err == nil && factor*float64(s.PeakReserved)+float64(beside) <= float64(p.Bytes)
	}
	low, high := least-1, most
	for step := 1; low < high; step *= 2 { // most answers are small
		if next := min(low+step, most); fits(next) {
			low = next
		} else {
			high = next - 1
			break
		}
	}
	for low < high {
		if middle := (low + high + 1) / 2; fits(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// Factor is by how much a simulated allocator reserves less or more than the rule says, for micro-batches of up to most clips:
// the worst of those at a single clip and at the largest micro-batch that the factor itself leaves, so that this one fits.
// Errors: those of Predict and Peak.
func (o *Estimator) Factor(q Question, p Budget, most int) (factor float64, err error) {
	q.Seconds = max(q.Seconds, Shortest)
	for batch := 1; ; {
		q.Batch = batch
		s, err := o.Predict(q)
		if err != nil {
			return 1, err
		}
		reserved, err := o.Peak(q)
		if err != nil {
			return 1, err
		}
		factor = max(factor, float64(reserved)/float64(s.PeakReserved))
		next := max(1, o.Largest(q, p, factor, 1, most))
		if next == batch {
			return factor, nil
		}
		batch = next
	}
}

// TooLarge tells errors over the size of a batch from others: such a batch does not fit, whatever it would take.
func TooLarge(err error) bool { return fault.From(err).Code == fault.InvalidArgument }
