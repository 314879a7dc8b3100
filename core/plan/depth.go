package plan

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// depths of checkpointing that are worth a look between none and each layer: beyond, two of them differ by little.
var depths = []int{8, 6, 4, 3, 2}

// partly finds the fastest way to compute some layers again, where a candidate computes each of them again: nil where none gains more than
// a little over what is known to fit, where none can be had, and where the config does not tell what it takes.
func (s *search) partly(full evaluated, known []evaluated) (chosen *evaluated, err error) {
	if !s.in.Options.AnyDepth || s.in.Options.EveryNLayers != nil || full.checkpointing.EveryN != 1 || s.estimator == nil || s.in.Options.Distributed == "fsdp" {
		return nil, nil
	}
	limit := full.chosen.epoch.Likely
	for _, other := range known {
		limit = min(limit, other.chosen.epoch.Likely)
	}
	limit /= 1 + aboutAsFast
	for _, n := range depths {
		w := full.candidate
		w.checkpointing.EveryN = n
		hopeless, err := s.slower(w, full, limit)
		if err != nil {
			return nil, err
		}
		if hopeless {
			continue
		}
		f, fits, err := s.evaluate(w)
		if err != nil {
			return nil, err
		}
		if fits && f.chosen.epoch.Likely < limit {
			chosen, limit = &f, f.chosen.epoch.Likely
		}
	}
	return chosen, nil
}

// slower tells whether a candidate would be slower than a limit in seconds even in the batches that fit when each layer is computed again.
func (s *search) slower(w candidate, full evaluated, limit float64) (bool, error) {
	best, err := s.throughput(w, nil, s.usual(full.memory))
	return err == nil && best.epoch(full.chosen).Likely >= limit, err
}

// explainCheckpointing holds the choice against the fastest other one.
func (s *search) explainCheckpointing(d *draft, f evaluated, ranked []evaluated) {
	d.GradientCheckpointing, d.EveryNLayers = f.checkpointing.On(), max(1, f.checkpointing.EveryN)
	other := slices.IndexFunc(ranked, func(w evaluated) bool { return w.precision == f.precision && w.checkpointing != f.checkpointing })
	switch {
	case s.in.Options.GradientCheckpointing != nil:
		d.because("gradient_checkpointing", "asked for")
	case other < 0 && f.checkpointing.On():
		d.because("gradient_checkpointing", "without it the longest clip does not fit")
		d.comparedWith(profile.Checkpointing{}.String(), "makes it fit")
	case other < 0:
		d.because("gradient_checkpointing", "with it a step would not fit")
	default:
		o := ranked[other]
		d.because("gradient_checkpointing", fmt.Sprintf("%d clips of %.4g s fit with it %s, %d with it %s", f.memory.Largest(s.clips.longest()),
			s.clips.longest(), f.checkpointing, o.memory.Largest(s.clips.longest()), o.checkpointing))
		d.comparedWith(o.checkpointing.String(), fmt.Sprintf("%.2f× faster", o.chosen.epoch.Likely/f.chosen.epoch.Likely))
	}
	d.because("every_n_layers", s.depthReason(f))
}

func (s *search) depthReason(f evaluated) string {
	o := s.in.Options
	switch {
	case o.EveryNLayers != nil:
		return "asked for"
	case !f.checkpointing.On():
		return "no layer is computed again"
	case f.checkpointing.Partly():
		return fmt.Sprintf("the other layers keep what they compute: at least %.0f %% faster than each layer again, or none", 100*aboutAsFast)
	case !o.AnyDepth:
		return "the installed transformers computes all layers again or none; from 5.23 on it can leave some out"
	case o.Distributed == "fsdp":
		return "FSDP computes each layer again or none"
	case s.estimator == nil:
		return "of a model without a known config all layers or none are tried"
	}
	return fmt.Sprintf("to leave some layers out gains less than %.0f %%: the memory that they keep makes smaller micro-batches", 100*aboutAsFast)
}
