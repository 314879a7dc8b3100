package compare

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/memory/device"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// setup is what a plan may change to make a training fit.
type setup struct {
	checkpointing, frozen bool
	optimizer             string
	rank                  int64
}

// question asks the estimator for one micro-batch. Cards of a class share the answers.
type question struct {
	setup
	class, precision string
	batch            int
	accumulating     bool
	seconds          float64
}

// oracle answers questions about a model and remembers the answers.
type oracle struct {
	works    map[question]curve
	models   map[bool]*analytic.Model // by whether the feature encoder is frozen
	source   func(frozen bool) (*analytic.Model, error)
	sketches map[question]analytic.Sketch
	reserved map[question]uint64
}

func (o *oracle) model(frozen bool) (*analytic.Model, error) {
	if m, known := o.models[frozen]; known {
		return m, nil
	}
	m, err := o.source(frozen)
	if err == nil {
		o.models[frozen] = m
	}
	return m, err
}

func (q question) request() analytic.Request {
	r := analytic.Request{Batch: int64(q.batch), Seconds: q.seconds, Precision: q.precision, Checkpointing: q.checkpointing,
		Accumulation: 1, Optimizer: q.optimizer, LoRARank: q.rank, ComputeCapability: q.class}
	if q.accumulating {
		r.Accumulation = 2 // each further one is like the second
	}
	return r
}

func (o *oracle) sketch(q question) (analytic.Sketch, error) {
	if s, known := o.sketches[q]; known {
		return s, nil
	}
	m, err := o.model(q.frozen)
	if err != nil {
		return analytic.Sketch{}, err
	}
	s, err := m.Sketch(q.request())
	if err == nil {
		o.sketches[q] = s
	}
	return s, err
}

// peak is the reserved memory of a micro-batch by simulation.
func (o *oracle) peak(q question) (uint64, error) {
	if bytes, known := o.reserved[q]; known {
		return bytes, nil
	}
	m, err := o.model(q.frozen)
	if err != nil {
		return 0, err
	}
	r := q.request()
	r.Simulate = true
	e, err := m.Estimate(r)
	if err == nil {
		o.reserved[q] = e.PeakReserved
	}
	return e.PeakReserved, err
}

// class is the compute capability that stands for all cards with the same kernels and workspaces.
func class(g profile.GPU) string {
	switch g.ComputeCapability[0] {
	case '3', '6', '7':
		return "7.5"
	case '8':
		return "8.0"
	}
	return "9.0" // and newer: the largest workspaces
}

// precision is what suits a card: bfloat16 where it has it, float16 where that is fast.
func precision(g profile.GPU) string {
	switch {
	case g.BF16:
		return "bf16"
	case g.TensorTFLOPS != nil:
		return "fp16"
	}
	return "fp32"
}

// outside is what a process holds beside PyTorch's allocator: context and NCCL's buffers.
func outside(g profile.GPU, devices int) (uint64, error) {
	r := device.Request{NCCL: devices > 1}
	r.GPU.GPU = g
	if devices > 1 {
		r.GPUs = &devices
	}
	terms, err := device.Describe(r)
	return terms.ContextBytes + terms.NCCLBytes, err
}

const gradientBytes = 4

// need is the memory of one GPU at the longest clip: reserved, context, and DDP's buckets, a second copy of the gradients.
// Reserved memory is that of a simulation; where the tensors alone exceed the budget, and where a rough answer is wanted and
// leaves no doubt, it is that of the rule.
func (p *planner) need(q question, m machine, budget uint64, rough bool) (bytes uint64, fits bool, err error) {
	q.seconds = max(p.lengths.Longest(), shortest)
	s, err := p.sketch(q)
	if err != nil {
		return 0, false, err
	}
	beside, err := outside(m.card.GPU(), m.count)
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
	reserved, err := p.peak(q)
	return reserved + beside, err == nil && reserved+beside <= budget, err
}

// largestBatch bisects for the largest micro-batch of a candidate's kind whose reserved memory by the rule fits, at least the
// candidate's own.
func (p *planner) largestBatch(m machine, c candidate, budget uint64) int {
	q := p.question(m, c)
	q.seconds, q.accumulating = max(p.lengths.Longest(), shortest), true
	beside, err := outside(m.card.GPU(), m.count)
	fits := func(batch int) bool {
		q.batch = batch
		s, err := p.sketch(q)
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
