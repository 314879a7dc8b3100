package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// readTimers prepares the times of each kind of GPU. Kernels that the user names must be of one of them. Errors: InvalidArgument.
func (s *search) readTimers() error {
	measured, named := s.in.Options.measured(), false
	var foreign error
	for i, g := range s.pool.gpus {
		if slices.ContainsFunc(s.pool.gpus[:i], func(other profile.GPU) bool { return alike(g, other) }) {
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
			s.notes, s.timers = append(s.notes, err.Error()), nil
			return nil
		}
		s.timers = append(s.timers, timer)
	}
	if named {
		return nil
	}
	return foreign
}

// compareCards finds the GPUs on which a micro-batch takes the longest and the shortest, with its parts on the slowest.
func (s *search) compareCards(w kernel.Work) (throughput, error) {
	p := throughput{known: true, calibration: s.in.Options.Calibration}
	least := 0.0
	for _, timer := range s.timers {
		parts, err := timer.Micro(w)
		if err != nil {
			return throughput{}, err
		}
		seconds := parts.Sum().Likely
		if p.slowest == nil || seconds > p.parts.Sum().Likely {
			p.slowest, p.parts = timer, parts
		}
		if p.fastest == nil || seconds < least {
			p.fastest, least = timer, seconds
		}
	}
	return p, nil
}

func alike(a, b profile.GPU) bool {
	return a.Name == b.Name && a.MemoryTotalBytes == b.MemoryTotalBytes
}

// unlikeWarning says what the slowest of unlike GPUs costs: the Trainer shares a step's clips evenly, so that each step waits for it.
// The fastest kind alone is planned the same way; "" for GPUs of one kind, and where no times are known.
func (s *search) unlikeWarning(d *draft, f evaluated) (string, error) {
	slow, best := f.throughput.slowest, f.throughput.fastest
	if slow == best || d.Times == nil || s.in.Options.DeviceCount != nil || s.in.Options.Distributed != "" {
		return "", nil
	}
	fast := slices.DeleteFunc(slices.Clone(s.pool.gpus), func(g profile.GPU) bool { return !alike(g, best.GPU) })
	in := s.in
	in.Hardware.GPUs, in.WithoutAlternatives, in.Traced = fast, true, nil
	if named := in.Options.KernelProfile; named != nil { // which may be of the slow one
		in.Options.KernelProfile, in.Options.KernelProfiles = nil, append([]kernel.Profile{*named}, in.Options.KernelProfiles...)
	}
	alone, err := Make(in)
	if err != nil {
		if fault.From(err).Code == fault.Infeasible {
			return fmt.Sprintf("Each step waits for %s; the training does not fit on %s alone.", slow.GPU.Name, best.GPU.Name), nil
		}
		return "", err
	}
	saved := 100 * (1 - alone.Times.RunHours.Likely/d.Times.RunHours.Likely)
	if saved <= 0 {
		return fmt.Sprintf("Each step waits for %s; %s alone would take %.0f %% longer.", slow.GPU.Name, counted(fast), -saved), nil
	}
	return fmt.Sprintf("Each step waits for %s: %s alone would take %.0f %% less time. Set %s before Python starts, and plan again.",
		slow.GPU.Name, counted(fast), saved, visibleOnly(fast)), nil
}

func counted(gpus []profile.GPU) string {
	if len(gpus) == 1 {
		return gpus[0].Name
	}
	return fmt.Sprintf("%d × %s", len(gpus), gpus[0].Name)
}

// visibleOnly is the environment that hides the other GPUs. CUDA counts the fastest first by itself, not in the driver's order, and what is visible now is
// counted from 0, so that identifiers are meant where they are known.
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
