package plan

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// depths are the checkpointing intervals to try between no layer and every layer; further ones
// differ by little.
var depths = []int{8, 6, 4, 3, 2}

// partly are the candidates that compute some layers again, if that is possible and nobody decided
// it.
func (s *search) partly() (all []candidate) {
	o := s.in.Options
	if !o.AnyDepth || o.EveryNLayers != nil || o.Distributed == "fsdp" {
		return nil
	}
	for _, w := range s.candidates() {
		if !w.checkpointing.On() {
			continue
		}
		for _, n := range depths {
			w.checkpointing.EveryN = n
			all = append(all, w)
		}
	}
	return all
}

// explainCheckpointing holds the choice against the fastest other one.
func (s *search) explainCheckpointing(d *draft, f evaluated, ranked []evaluated) {
	d.GradientCheckpointing, d.EveryNLayers, d.OffloadCheckpoints =
		f.checkpointing.On(), max(1, f.checkpointing.EveryN), f.checkpointing.Offload
	other := slices.IndexFunc(ranked, func(w evaluated) bool {
		return w.precision == f.precision && w.checkpointing != f.checkpointing
	})
	reason, alternative, gain := "", "", ""
	fits := f.memory.Largest(s.clips.longest())
	switch {
	case s.in.Options.GradientCheckpointing != nil:
		reason = "asked for"
	case other < 0 && f.checkpointing.On():
		reason = fmt.Sprintf("without it the longest %s does not fit", s.rows().Noun())
		alternative, gain = profile.Checkpointing{}.String(), "makes it fit"
	case other < 0 && fits >= s.perDevice:
		reason = "without it a device's whole share of a step fits at once"
	case other < 0 && s.tracedWith(f.candidate, profile.CheckpointingOf(true, 1, false)) == nil:
		reason = "with it an epoch would take longer, even if a device's whole share of a step " +
			"fits at once"
	case other < 0:
		reason = "with it a step would not fit"
	default:
		o := ranked[other]
		reason = fmt.Sprintf("%s of %s fit with it %s, %d with it %s", s.rows().Count(fits),
			s.rows().Length(s.clips.longest()), f.checkpointing,
			o.memory.Largest(s.clips.longest()), o.checkpointing)
		alternative = o.checkpointing.String()
		gain = fmt.Sprintf("%.2f× faster", o.chosen.epoch.Likely/f.chosen.epoch.Likely)
	}
	d.because("gradient_checkpointing", reason)
	d.comparedWith(alternative, gain)
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
		return fmt.Sprintf("the other layers keep what they compute: at least %.0f %% faster "+
			"than each layer again, or none", 100*aboutAsFast)
	case !o.AnyDepth:
		return "the installed transformers computes all layers again or none; from 5.23 on it " +
			"can leave some out"
	case o.Distributed == "fsdp":
		return "FSDP computes each layer again or none"
	}
	return fmt.Sprintf("to leave some layers out gains less than %.0f %%: the memory that they "+
		"keep makes smaller micro-batches", 100*aboutAsFast)
}
