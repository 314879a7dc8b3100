package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// readTimers prepares the times of each kind of GPU. Kernels that the user names must be of one of
// them. Errors: InvalidArgument.
func (s *search) readTimers() error {
	measured, err := s.in.Options.measured()
	if err != nil {
		return err
	}
	var foreign error
	named := false
	for i, g := range s.pool.gpus {
		if slices.ContainsFunc(s.pool.gpus[:i], func(other profile.GPU) bool {
			return alike(g, other)
		}) {
			continue
		}
		timer, err := estimate.TimerOf(g, measured)
		if err != nil && fault.From(err).Code == fault.InvalidArgument { // kernels of another card
			foreign = err
			timer, err = estimate.TimerOf(g, estimate.Measured{Known: measured.Known})
		} else if err == nil {
			named = true
		}
		if err != nil {
			s.untimed, s.timers = err.Error(), nil
			return nil
		}
		s.timers = append(s.timers, timer)
	}
	if named {
		return nil
	}
	return foreign
}

// compareCards finds the GPUs on which a micro-batch takes the longest and the shortest, with its
// parts on the slowest.
func (s *search) compareCards(w kernel.Work) (throughput, error) {
	p := throughput{timed: true}
	if c := s.in.Options.Calibration; c != nil {
		p.calibration = &c.Calibration
	}
	parts, seconds := make([]profile.StepParts, len(s.timers)), make([]float64, len(s.timers))
	for i, timer := range s.timers {
		var err error
		if parts[i], err = timer.Micro(w); err != nil {
			return throughput{}, err
		}
		seconds[i] = parts[i].Sum().Likely
	}
	slowest := slices.Index(seconds, slices.Max(seconds))
	p.slowest, p.parts = s.timers[slowest], parts[slowest]
	p.fastest = s.timers[slices.Index(seconds, slices.Min(seconds))]
	p.paces = s.paces(seconds)
	return p, nil
}

// paces is how long each GPU takes for a micro-batch, relative to the slowest, by the seconds of
// each kind; nil where all are equal, or some are assumed.
func (s *search) paces(seconds []float64) []float64 {
	if len(seconds) < 2 || s.pool.count != len(s.pool.gpus) {
		return nil
	}
	paces := make([]float64, s.pool.count)
	for i, g := range s.pool.gpus {
		kind := slices.IndexFunc(s.timers, func(t *estimate.Timer) bool { return alike(t.GPU, g) })
		paces[i] = seconds[kind] / slices.Max(seconds)
	}
	return paces
}

// shares divides the clips of a step by speed. It returns nil where even shares result, or where
// uneven ones would not be exact: the guard weights what each process computes, unless an engine or
// the Trainer makes the batches, or results depend on the padding of a process's share.
func (s *search) shares(f evaluated) []int {
	step := s.perDevice * s.pool.count
	if f.throughput.paces == nil || s.sharded() || s.in.Options.Streamed || !s.mixing ||
		f.traced.OneLength {
		return nil
	}
	shares := batching.FastestShares(step, f.throughput.paces)
	if slices.Max(shares) == slices.Min(shares) {
		return nil
	}
	return shares
}

func (s *search) sharesReason(b batches) (reason, gain string) {
	parts := make([]string, len(b.shares))
	for i, share := range b.shares {
		parts[i] = fmt.Sprintf("%d for %s", share, s.pool.gpus[i].Name)
	}
	return fmt.Sprintf("%s of a step are shared by speed (%s), and the guard weights each share, "+
			"so that gradients are those of even shares; "+
			"an epoch takes %.3g h on the GPUs, with even shares %.3g h", s.rows().Nouns(),
			units.Listed(parts, ", ", 16), b.epoch.Likely/3600, b.evenly.Likely/3600),
		fmt.Sprintf("%.2f× faster", b.evenly.Likely/b.epoch.Likely)
}

func alike(a, b profile.GPU) bool {
	return a.Name == b.Name && a.MemoryTotalBytes == b.MemoryTotalBytes
}

// unlikeWarning describes what the slowest of several kinds of GPUs costs: with even shares each
// step waits for it, and with uneven ones the memory it has and the gradient exchange may cost more
// than it saves. The fastest kind alone is planned the same way. Returns "" for GPUs of one kind,
// and where times are unknown.
func (s *search) unlikeWarning(d *draft, f evaluated) (string, error) {
	slow, best := f.throughput.slowest, f.throughput.fastest
	if slow == best || d.Times == nil || s.in.Options.DeviceCount != nil ||
		s.in.Options.Distributed != "" {
		return "", nil
	}
	fast := slices.DeleteFunc(slices.Clone(s.pool.gpus), func(g profile.GPU) bool {
		return !alike(g, best.GPU)
	})
	in := s.in
	in.Hardware.GPUs, in.WithoutAlternatives, in.Options.Precision = fast, true, f.precision
	in.Traced = s.retargeted(newPool(in.Hardware, in.Options))
	if named := in.Options.KernelProfile; named != nil { // which may be of the slow one
		in.Options.KernelProfile, in.Options.KernelProfiles =
			nil, append([]kernel.Profile{*named}, in.Options.KernelProfiles...)
	}
	alone, err := Make(in)
	if err != nil {
		switch {
		case fault.From(err).Code == fault.Infeasible && f.chosen.shares != nil:
			return "", nil
		case fault.From(err).Code == fault.Infeasible:
			return fmt.Sprintf("Each step waits for %s; the training does not fit on %s alone.",
				slow.GPU.Name, best.GPU.Name), nil
		}
		return "", err
	}
	saved := 100 * (1 - alone.Times.RunHours.Likely/d.Times.RunHours.Likely)
	head := fmt.Sprintf("Each step waits for %s: %s alone would take", slow.GPU.Name, counted(fast))
	switch {
	case f.chosen.shares != nil && saved <= 100*aboutAsFast:
		return "", nil
	case f.chosen.shares != nil:
		head = fmt.Sprintf("Even with %s shared by speed %s alone would take", s.rows().Nouns(),
			counted(fast))
	case saved <= 0:
		return fmt.Sprintf("%s %.0f %% longer.", head, -saved), nil
	}
	return fmt.Sprintf("%s %.0f %% less time. Set %s before Python starts, and plan again.", head,
		saved, visibleOnly(fast)), nil
}

// retargeted are the traces for other cards, which have no less memory: what fits here fits there.
func (s *search) retargeted(p pool) (out []Traced) {
	for _, t := range s.in.Traced {
		if t.BudgetBytes == int64(s.budget.bytes) {
			t.BudgetBytes = int64(uint64(p.planned * s.in.Options.SafetyMargin))
			out = append(out, t)
		}
	}
	return out
}

func counted(gpus []profile.GPU) string {
	if len(gpus) == 1 {
		return gpus[0].Name
	}
	return fmt.Sprintf("%d × %s", len(gpus), gpus[0].Name)
}

// visibleOnly is the environment that hides the other GPUs. CUDA counts the fastest first by
// itself, not in the driver's order, and what is visible now is counted from 0, so that identifiers
// are meant where they are known.
func visibleOnly(gpus []profile.GPU) string {
	identifiers, indices := make([]string, len(gpus)), make([]string, len(gpus))
	for i, g := range gpus {
		identifiers[i], indices[i] = g.UUID, fmt.Sprint(g.Index)
	}
	if slices.Contains(identifiers, "") {
		return "CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES=" + strings.Join(indices, ",")
	}
	return "CUDA_VISIBLE_DEVICES=" + strings.Join(identifiers, ",")
}
