package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// depths of checkpointing that are worth a look between none and each layer: beyond, two of them differ by little.
var depths = []int{8, 6, 4, 3, 2}

// partly adds the fastest way to compute some layers again to what is known to fit, where a candidate computes each of them again: if one gains
// more than a little, can be had, and the config tells what it takes.
func (s *search) partly(full evaluated, known []evaluated) ([]evaluated, error) {
	if !s.in.Options.AnyDepth || s.in.Options.EveryNLayers != nil || full.checkpointing.EveryN != 1 || s.estimator == nil || s.in.Options.Distributed == "fsdp" {
		return known, nil
	}
	return s.faster(full.candidate, depths, known, s.inBatchesOf(full))
}

// inBatchesOf gives the seconds of an epoch in the batches that fit when each layer is computed again.
func (s *search) inBatchesOf(full evaluated) func(candidate) (float64, error) {
	return func(w candidate) (float64, error) {
		best, err := s.throughput(w, nil, s.usual(full.memory))
		if err != nil {
			return 0, err
		}
		return best.epoch(full.chosen).Likely, nil
	}
}

// faster adds the fastest of some depths of a candidate to what is known to fit, if that is more than a little faster. Those whose bound, in seconds
// of an epoch, is not are not looked at.
func (s *search) faster(w candidate, depths []int, known []evaluated, bound func(candidate) (float64, error)) ([]evaluated, error) {
	var chosen []evaluated
	limit := math.Inf(1)
	for _, other := range known {
		limit = min(limit, other.chosen.epoch.Likely/(1+aboutAsFast))
	}
	for _, n := range depths {
		w.checkpointing.EveryN = n
		if hopeless, err := s.hopeless(w, limit, bound); err != nil || hopeless {
			if err != nil {
				return nil, err
			}
			continue
		}
		f, fits, err := s.evaluate(w)
		if err != nil {
			return nil, err
		}
		if fits && f.chosen.epoch.Likely < limit {
			chosen, limit = []evaluated{f}, f.chosen.epoch.Likely
		}
	}
	return append(known, chosen...), nil
}

// hopeless tells whether a candidate has no room for one of the longest clips, or a bound that is not below a limit.
func (s *search) hopeless(w candidate, limit float64, bound func(candidate) (float64, error)) (bool, error) {
	if least, err := bound(w); err != nil || least >= limit {
		return true, err
	}
	_, fits, err := s.estimator.Need(s.question(w, 1), s.budget, true)
	return !fits, err
}

// explainCheckpointing holds the choice against the fastest other one.
func (s *search) explainCheckpointing(d *draft, f evaluated, ranked []evaluated) {
	d.GradientCheckpointing, d.EveryNLayers, d.OffloadCheckpoints = f.checkpointing.On(), max(1, f.checkpointing.EveryN), f.checkpointing.Offload
	other := slices.IndexFunc(ranked, func(w evaluated) bool { return w.precision == f.precision && w.checkpointing != f.checkpointing })
	switch {
	case s.in.Options.GradientCheckpointing != nil:
		d.because("gradient_checkpointing", "asked for")
	case other < 0 && f.checkpointing.On():
		d.because("gradient_checkpointing", fmt.Sprintf("without it the longest %s does not fit", s.rows().Noun()))
		d.comparedWith(profile.Checkpointing{}.String(), "makes it fit")
	case other < 0:
		d.because("gradient_checkpointing", "with it a step would not fit")
	default:
		o := ranked[other]
		d.because("gradient_checkpointing", fmt.Sprintf("%s of %s fit with it %s, %d with it %s", s.rows().Count(f.memory.Largest(s.clips.longest())),
			s.rows().Length(s.clips.longest()), f.checkpointing, o.memory.Largest(s.clips.longest()), o.checkpointing))
		d.comparedWith(o.checkpointing.String(), fmt.Sprintf("%.2f× faster", o.chosen.epoch.Likely/f.chosen.epoch.Likely))
	}
	d.because("every_n_layers", s.depthReason(f))
	d.because("offload_checkpoints", s.offloadReason(f, ranked))
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
