package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// unlikeWarning says what the slowest of unlike GPUs costs: the Trainer shares a step's clips evenly, so that each step waits for it.
// The faster ones alone are planned the same way; "" for GPUs of one kind, and where no times are known.
func (s *search) unlikeWarning(d *draft) (string, error) {
	fast := fastCards(s.pool.gpus)
	if len(fast) == len(s.pool.gpus) || d.Times == nil || s.in.Options.DeviceCount != nil || s.in.Options.Distributed != "" {
		return "", nil
	}
	in := s.in
	in.Hardware.GPUs, in.WithoutAlternatives, in.Traced = fast, true, nil
	alone, err := Make(in)
	if err != nil {
		if fault.From(err).Code == fault.Infeasible {
			return fmt.Sprintf("Each step waits for %s; the training does not fit on %s alone.", slowest(s.pool.gpus).Name, fast[0].Name), nil
		}
		return "", err
	}
	saved := 100 * (1 - alone.Times.RunHours.Likely/d.Times.RunHours.Likely)
	if saved <= 0 {
		return fmt.Sprintf("Each step waits for %s; %s alone would take %.0f %% longer.", slowest(s.pool.gpus).Name, named(fast), -saved), nil
	}
	return fmt.Sprintf("Each step waits for %s: %s alone would take %.0f %% less time. Set CUDA_VISIBLE_DEVICES=%s before Python starts, and plan again.",
		slowest(s.pool.gpus).Name, named(fast), saved, indices(fast)), nil
}

// fastCards are those of the kind that computes the fastest.
func fastCards(gpus []profile.GPU) []profile.GPU {
	if len(gpus) == 0 {
		return nil
	}
	best := slices.MaxFunc(gpus, func(a, b profile.GPU) int {
		if rate(a) < rate(b) {
			return -1
		}
		return 1
	})
	return slices.DeleteFunc(slices.Clone(gpus), func(g profile.GPU) bool { return rate(g) < rate(best) })
}

// rate is operations per second, as far as they are published.
func rate(g profile.GPU) float64 { return profile.Or(g.TensorTFLOPS, profile.Or(g.FP32TFLOPS, 0)) }

func named(gpus []profile.GPU) string {
	if len(gpus) == 1 {
		return gpus[0].Name
	}
	return fmt.Sprintf("%d × %s", len(gpus), gpus[0].Name)
}

func indices(gpus []profile.GPU) string {
	list := make([]string, len(gpus))
	for i, g := range gpus {
		list[i] = fmt.Sprint(g.Index)
	}
	return strings.Join(list, ",")
}
