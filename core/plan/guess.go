package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// guess is what is to be expected of a candidate that was not traced, by others of its precision
// that were: of some layers that are computed again what lies between none and all of them, and
// else that a whole share fits, which leaves its trace the last word. Nil where neither is known,
// and for offloaded checkpoints.
func (s *search) guess(w candidate) *Traced {
	if w.checkpointing.Offload {
		return nil
	}
	none, all := s.tracedWith(w, profile.Checkpointing{}),
		s.tracedWith(w, profile.CheckpointingOf(true, 1, false))
	switch {
	case w.checkpointing.Partly() && none != nil && all != nil && len(none.Peaks) > 0 &&
		len(all.Peaks) > 0:
		return s.between(w, *none, *all)
	case w.checkpointing.Partly():
		return nil
	}
	if none != nil && w.checkpointing.On() &&
		none.Memory.Largest(s.clips.longest()) >= s.perDevice {
		return nil // a whole share fits with nothing computed again
	}
	like := cmp.Or(none, all, s.anyOf(w))
	if like == nil || len(like.Work) == 0 {
		return nil
	}
	t := *like
	t.Memory = batching.Limits{{Seconds: s.clips.longest(), Batch: s.perDevice}}
	return &t
}

// tracedWith is the trace of a candidate with other checkpointing.
func (s *search) tracedWith(w candidate, c profile.Checkpointing) *Traced {
	w.checkpointing = c
	return s.traced(w)
}

// anyOf is a trace of another precision.
func (s *search) anyOf(w candidate) *Traced {
	for _, other := range s.candidates() {
		if other.checkpointing == w.checkpointing && s.traced(other) != nil {
			return s.traced(other)
		}
	}
	return nil
}

// between lays the memory of a clip, which is what layers keep of it, between that of two traces,
// in proportion to the layers that are computed again.
func (s *search) between(w candidate, none, all Traced) *Traced {
	t, share := all, w.checkpointing.Share()
	t.Checkpointing, t.EveryNLayers = true, w.checkpointing.EveryN
	if len(none.Work) > 0 {
		t.Work = none.Work
	}
	t.Memory = slices.Clone(all.Memory)
	for i, row := range t.Memory {
		perClip := (1-share)/none.clips(row.Seconds) + share/all.clips(row.Seconds)
		t.Memory[i].Batch = int(math.Min(float64(s.perDevice), 1/perClip))
	}
	for i := len(t.Memory) - 2; i >= 0; i-- {
		t.Memory[i].Batch = max(t.Memory[i].Batch, t.Memory[i+1].Batch)
	}
	return &t
}

// clips returns how many of a length fit, as a fraction below one where not even one does: the
// budget divided by the smallest peak.
func (t Traced) clips(seconds float64) float64 {
	if fits := t.Memory.Largest(seconds); fits > 0 {
		return float64(fits)
	}
	first := t.Peaks[0]
	return max(0.01, float64(first.Batch)*min(0.99, float64(t.BudgetBytes)/float64(first.Bytes)))
}
