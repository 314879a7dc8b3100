package recovery

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// DefaultMaxRetries is how often a run may continue with a smaller micro-batch.
const DefaultMaxRetries = 3

// Limits of State.
const (
	maxBatch   = 1 << 20
	maxRetries = 100
)

// State is where a run stands when a step fails. Batch sizes are per device.
type State struct {
	Class        Class `json:"class"`         // of the failure, from Classify
	MicroBatch   int   `json:"micro_batch"`   // samples per forward pass, 1..2^20
	Retries      int   `json:"retries"`       // made so far, 0..100
	MaybeRetries int   `json:"maybe_retries"` // of those, the ones after a failure of class "maybe"
	MaxRetries   *int  `json:"max_retries"`   // 0..100; absent: DefaultMaxRetries
}

// Decision is how to go on. Without Retry the numbers are those of the State.
type Decision struct {
	Retry        bool   `json:"retry"`
	MicroBatch   int    `json:"micro_batch"`
	Retries      int    `json:"retries"` // for the next State
	MaybeRetries int    `json:"maybe_retries"`
	Reason       string `json:"reason"` // in words, with the numbers
}

// Next decides after a failure. The micro-batch is halved (8 -> 4, 5 -> 2): it need not divide the
// batch, which is split into micro-batches of any size. It gives up at a micro-batch of 1, when the
// retries are used up, on the second "maybe", and on every class that a smaller micro-batch does
// not mend.
//
// Errors: InvalidArgument for a number outside its range or an unknown class.
func Next(s State) (Decision, error) {
	limit := DefaultMaxRetries
	if s.MaxRetries != nil {
		limit = *s.MaxRetries
	}
	if err := s.check(limit); err != nil {
		return Decision{}, err
	}
	if reason := s.giveUp(limit); reason != "" {
		return Decision{MicroBatch: s.MicroBatch, Retries: s.Retries, MaybeRetries: s.MaybeRetries,
			Reason: reason}, nil
	}
	return s.halved(limit), nil
}

func (s State) check(limit int) error {
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"micro_batch", s.MicroBatch, 1, maxBatch},
		{"retries", s.Retries, 0, maxRetries},
		{"maybe_retries", s.MaybeRetries, 0, s.Retries},
		{"max_retries", limit, 0, maxRetries},
	} {
		if f.value < f.low || f.value > f.high {
			return fault.New(fault.InvalidArgument,
				fmt.Sprintf("give %s a whole number from %d to %d", f.name, f.low, f.high),
				"%s is %d, outside %d..%d", f.name, f.value, f.low, f.high)
		}
	}
	if _, ok := advice[s.Class]; !ok {
		return fault.New(fault.InvalidArgument, "pass the class that classify returned",
			"class is %q, not one of gpu_oom, maybe, host_oom, poisoned, other", s.Class)
	}
	return nil
}

// giveUp explains why there is no further attempt; "" when there is one.
func (s State) giveUp(limit int) (hint string) {
	switch {
	case s.Class != GPUOOM && s.Class != Maybe:
		return "stop: " + advice[s.Class]
	case s.Retries >= limit:
		return fmt.Sprintf("stop: %d of %d retries are used up at a micro-batch of %d; plan with "+
			"a lower safety_margin, "+
			"an 8-bit optimizer, shorter inputs or a smaller model", s.Retries, limit, s.MicroBatch)
	case s.MicroBatch == 1:
		return "stop: the micro-batch is 1 already; enable gradient checkpointing, use an 8-bit " +
			"optimizer, split long inputs, " +
			"freeze layers, or take a smaller model or a larger GPU"
	case s.Class == Maybe && s.MaybeRetries > 0:
		return fmt.Sprintf("stop: a smaller micro-batch (%d) did not help, so GPU memory is not "+
			"the cause; look at the error itself", s.MicroBatch)
	}
	return ""
}

func (s State) halved(limit int) Decision {
	d := Decision{Retry: true, MicroBatch: s.MicroBatch / 2, Retries: s.Retries + 1,
		MaybeRetries: s.MaybeRetries}
	if s.Class == Maybe {
		d.MaybeRetries++
	}
	d.Reason = fmt.Sprintf("retry %d of %d: micro-batch %d → %d", d.Retries, limit, s.MicroBatch,
		d.MicroBatch)
	return d
}
