package recovery

import (
	"cmp"
	"fmt"
	"math/bits"

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
	Evaluation   bool  `json:"evaluation"`    // whether an evaluation failed, not a training step
	MicroBatch   int   `json:"micro_batch"`   // samples per forward pass, 1..2^20
	CannotSplit  bool  `json:"cannot_split"`  // whether the batch cannot be split into smaller ones
	Repeated     bool  `json:"repeated"`      // whether it was already retried unchanged
	Retries      int   `json:"retries"`       // made so far, 0..100
	MaybeRetries int   `json:"maybe_retries"` // those of them after a failure of class "maybe"
	MaxRetries   *int  `json:"max_retries"`   // 0..100; absent: DefaultMaxRetries
}

// Action is what follows a failure.
type Action string

const (
	Shrink   Action = "shrink"    // continue with a smaller micro-batch
	Repeat   Action = "repeat"    // retry unchanged, as other memory may have been freed
	LeaveOut Action = "leave_out" // leave the clip out where that is allowed, else give up
	Raise    Action = "raise"     // raise the error as it is
	GiveUp   Action = "give_up"   // no smaller micro-batch is left to try
)

// Decision is how to go on. Its numbers are those of the State, except with Shrink.
type Decision struct {
	Action       Action `json:"action"`
	MicroBatch   int    `json:"micro_batch"`
	Retries      int    `json:"retries"` // for the State of the next failure
	MaybeRetries int    `json:"maybe_retries"`
	Reason       string `json:"reason"` // in words, with the numbers
}

// Next decides after a failure. The micro-batch is halved (8 -> 4, 5 -> 2): it need not divide the
// batch, which is split into micro-batches of any size. A batch that cannot be split and a clip
// that is alone are computed once more unchanged. Next gives up when the retries are used up, and
// raises on the second "maybe" and on every class that a smaller micro-batch does not mend.
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
	stop := s.stop(limit)
	d := Decision{MicroBatch: s.MicroBatch, Retries: s.Retries, MaybeRetries: s.MaybeRetries,
		Reason: stop}
	single := s.MicroBatch == 1
	switch {
	case stop == "" && !s.CannotSplit:
		d.halve(s.Class, limit)
	case s.Class != GPUOOM && s.Class != Maybe:
		d.Action = Raise
	case s.CannotSplit && s.Repeated && s.Evaluation:
		d.Action, d.Reason = GiveUp, "stop: lower per_device_eval_batch_size"
	case s.CannotSplit && s.Repeated:
		d.Action, d.Reason = GiveUp, "stop: train with smaller batches and more accumulation"
	case s.CannotSplit, s.Class == GPUOOM && single && !s.Repeated:
		d.Action, d.Reason = Repeat, "retry unchanged: other memory may have been freed"
	case s.Class == Maybe:
		d.Action = Raise
	case single:
		d.Action = LeaveOut
	default:
		d.Action = GiveUp
	}
	return d, nil
}

// check returns an error for numbers outside their ranges and for an unknown class.
func (s State) check(limit int) error {
	if err := cmp.Or(fault.InRange("micro_batch", s.MicroBatch, 1, maxBatch),
		fault.InRange("retries", s.Retries, 0, maxRetries),
		fault.InRange("maybe_retries", s.MaybeRetries, 0, s.Retries),
		fault.InRange("max_retries", limit, 0, maxRetries)); err != nil {
		return err
	}
	if _, ok := advice[s.Class]; !ok {
		return fault.New(fault.InvalidArgument, "pass the class that classify returned",
			"class is %q, not one of gpu_oom, maybe, host_oom, poisoned, other", s.Class)
	}
	return nil
}

// stop explains why no smaller micro-batch is to be tried; "" when one is.
func (s State) stop(limit int) (reason string) {
	switch {
	case s.Class != GPUOOM && s.Class != Maybe:
		return "stop: " + advice[s.Class]
	case s.Retries >= limit:
		return fmt.Sprintf("stop: %d of %d retries are used up at a micro-batch of %d; %splan with "+
			"a lower safety_margin, an 8-bit optimizer, shorter inputs or a smaller model",
			s.Retries, limit, s.MicroBatch, s.moreHalvings(limit))
	case s.MicroBatch == 1 && s.Evaluation:
		return "stop: the micro-batch is 1 already; pass per_device_eval_batch_size=1 if your own " +
			"code evaluates, leave out or split long inputs of the evaluation, generate shorter " +
			"texts with fewer beams, use an 8-bit optimizer, or take a smaller model or a larger GPU"
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

// moreHalvings suggests a limit that lets halving go on down to one clip; "" where the present
// limit does, or the limit would be out of range.
func (s State) moreHalvings(limit int) string {
	if enough := limit + bits.Len(uint(s.MicroBatch)) - 1; limit < enough && enough <= maxRetries {
		return fmt.Sprintf("attach(trainer, max_halvings=%d) tries down to one clip, or ", enough)
	}
	return ""
}

// halve makes the decision a retry with half the micro-batch.
func (d *Decision) halve(class Class, limit int) {
	d.Action, d.Retries = Shrink, d.Retries+1
	if class == Maybe {
		d.MaybeRetries++
	}
	d.Reason = fmt.Sprintf("retry %d of %d: micro-batch %d → %d", d.Retries, limit, d.MicroBatch,
		d.MicroBatch/2)
	d.MicroBatch /= 2
}
