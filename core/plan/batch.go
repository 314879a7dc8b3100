package plan

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Constants of the published formula.
const (
	// activations of one clip, as a share of the model's memory; clip length plays no part
	activationShare = 0.1
	maxMicroBatch   = 64
	stepDown        = 0.8 // share of the largest batch that is used, except by the speed preset
)

// footprint is the memory that the published formula counts, bytes.
type footprint struct {
	parameters, gradients, optimizer int64
	activations, input               float64 // of one row
	rows                             units.RowKind
}

func newFootprint(m profile.Model, state string, d profile.Dataset) footprint {
	f := footprint{parameters: m.ParameterBytes, gradients: m.GradientBytes,
		optimizer: m.OptimizerBytes[state], rows: d.RowKind}
	f.activations = activationShare * float64(f.model())
	f.input = d.RowKind.Bytes(d.MeanS) // of audio at 16 kHz in float32
	return f
}

func (f footprint) model() int64 { return f.parameters + f.gradients + f.optimizer }

func (f footprint) clip() float64 { return f.activations + f.input }

func (f footprint) predicted(batch int) int64 {
	return f.model() + int64(math.Round(float64(batch)*f.clip()))
}

// microBatch applies (memory x margin - model memory) / (activations + audio), clamped to 1..64,
// and steps down to a power of two. The speed preset keeps the largest power of two that fits,
// without the conservative factor 0.8.
func microBatch(planned, margin float64, f footprint, preset string) (batch int, reason string) {
	fits := (planned*margin - float64(f.model())) / f.clip()
	reason = fmt.Sprintf("(%s × %v − %s) / (%s activations + %s %s) = %.1f",
		units.Size(planned), margin, units.Size(f.model()), units.Size(f.activations),
		units.Size(f.input), f.rows.Content(), fits)
	if fits < 1 {
		return 1, reason + ", raised to the least batch, 1"
	}
	if fits > maxMicroBatch {
		fits = maxMicroBatch
		reason += fmt.Sprintf(", limited to %d", maxMicroBatch)
	}
	if preset == Speed {
		batch = floorPowerOfTwo(fits)
		return batch, fmt.Sprintf(
			"%s → largest power of two ≤ %.1f is %d (preset speed skips the step down to 0.8)",
			reason, fits, batch)
	}
	batch = floorPowerOfTwo(stepDown * fits)
	return batch, fmt.Sprintf("%s → largest power of two ≤ %v × %.1f = %.1f is %d", reason,
		stepDown, fits, stepDown*fits, batch)
}

// floorPowerOfTwo returns the largest power of two that is not above limit, at least 1.
func floorPowerOfTwo(limit float64) int {
	power := 1
	for float64(2*power) <= limit {
		power *= 2
	}
	return power
}

// feasibility reports whether the model fits by the formula: an error when its parameters alone
// exceed the device, a warning when one clip does not fit into the planned memory.
func feasibility(p pool, total uint64, margin float64, f footprint) (warning string, err error) {
	if uint64(f.parameters) > total {
		return "", fault.New(fault.Infeasible,
			"take a smaller model or a GPU with more memory; for one model spread over several "+
				"GPUs pass the model or its config, with distributed=\"zero3\" and without policy",
			"the parameters alone take %s, and %s has %s", units.Size(f.parameters),
			p.where(), units.Size(total))
	}
	if p.planned == 0 {
		return "", fault.New(fault.Infeasible, "end what uses it, and profile the hardware again",
			"no memory of %s is free", p.where())
	}
	needed := float64(f.model()) + f.clip()
	if budget := p.planned * margin; needed > budget {
		return fmt.Sprintf("By the published formula this run does not fit: %s for the model and "+
			"one %s, %s usable on %s (%s × %v). "+
			"Remedies: optimizer=\"adamw_bnb_8bit\", freezing the feature encoder or more "+
			"layers, a smaller model, a larger GPU.",
			units.Size(needed), f.rows.Noun(), units.Size(budget), p.where(), units.Size(p.planned),
			margin), nil
	}
	return "", nil
}

// shareOf divides the target by parts: the nearest whole number, at least 1.
func shareOf(target, parts int) int {
	return max(1, int(math.Round(float64(target)/float64(parts))))
}

// split divides the target into micro-batches, accumulation steps and devices. Of the micro-batches
// from batch/2 to batch (no larger than a device's share) it takes the one that comes closest to
// the target, the largest of equals: an exact divisor wherever there is one.
func split(batch, target, devices int) (micro, accumulation int) {
	batch = min(batch, shareOf(target, devices))
	closest := math.MaxInt
	for size := batch; 2*size >= batch && size >= 1; size-- {
		steps := shareOf(target, size*devices)
		if miss := abs(size*steps*devices - target); miss < closest {
			closest, micro, accumulation = miss, size, steps
		}
	}
	return micro, accumulation
}

func abs(n int) int { return max(n, -n) }

// fitReason explains why the micro-batch is not the one that memory allows.
func fitReason(allowed, micro, target, devices int) string {
	switch {
	case micro == allowed:
		return ""
	case micro == shareOf(target, devices):
		return fmt.Sprintf("; reduced to %d, the share of one device in a step of %d", micro,
			target)
	default:
		return fmt.Sprintf("; reduced to %d, whose multiples on %s come closest to %d", micro,
			fault.Plural(devices, "device"), target)
	}
}

// effectiveWarning warns when the effective batch cannot be the target.
func effectiveWarning(target, micro, accumulation, devices int) string {
	effective := micro * accumulation * devices
	if effective == target {
		return ""
	}
	return fmt.Sprintf("The effective batch is %d (%d × %d accumulation × %s), not the target of "+
		"%d. target_batch_size=%d would be met exactly.",
		effective, micro, accumulation, fault.Plural(devices, "device"), target, effective)
}
