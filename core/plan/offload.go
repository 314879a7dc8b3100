package plan

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// offloaded are the candidates that keep in host memory what their checkpoints save, if that is
// possible and nobody decided it: they are traced where nothing else fits.
func (s *search) offloaded() (all []candidate) {
	if s.in.Options.OffloadCheckpoints != nil || s.noOffload() != "" {
		return nil
	}
	for _, w := range s.candidates() {
		if w.checkpointing.On() {
			w.checkpointing.Offload = true
			all = append(all, w)
		}
	}
	return all
}

// noOffload is why nobody looks at offloaded checkpoints; "" where somebody does.
func (s *search) noOffload() string {
	switch {
	case s.pool.onCPU():
		return "there is no GPU whose memory it would save"
	case !s.in.Options.CanOffload:
		return "the installed transformers keeps on the GPU what checkpoints save; from 5.23 on " +
			"it can offload that to host memory"
	case s.sharded():
		return "of a model whose state is sharded it is not tried"
	}
	return ""
}

// pinnedBytes is the host memory that offloaded checkpoints come to take, by all devices. Blocks of
// pinned memory have sizes of powers of two and are kept for later tensors of that size alone, so
// that all smaller micro-batches together take at most as much again as the one that takes most.
func (s *search) pinnedBytes(f evaluated) float64 {
	if !f.checkpointing.Offload || len(f.traced.Peaks) == 0 {
		return 0
	}
	most := f.memory.Largest(s.clips.longest())
	bytes := float64(s.peak(f, most).PinnedBytes) * float64(s.pool.count)
	if !s.clips.oneLength() {
		bytes *= 2
	}
	return bytes
}

// hostRoom is the host RAM in bytes that training may take.
func (s *search) hostRoom() float64 {
	return float64(s.in.Hardware.Memory.AvailableBytes) * s.in.Options.SafetyMargin
}

// fitsHost reports whether a candidate's pinned memory leaves room for one loader worker per
// device. Options set by the user are planned regardless.
func (s *search) fitsHost(f evaluated) bool {
	return s.in.Options.OffloadCheckpoints != nil || f.pinned == 0 || f.pinned+
		workerBytes*float64(s.pool.count) <= s.hostRoom()
}

func (s *search) offloadReason(f evaluated, ranked []evaluated) string {
	unlike := func(w evaluated) bool { return !w.checkpointing.Offload }
	switch {
	case s.in.Options.OffloadCheckpoints != nil:
		return "asked for" + pins(f)
	case f.checkpointing.Offload && !slices.ContainsFunc(ranked, unlike):
		return fmt.Sprintf("without it the longest %s does not fit", s.rows().Noun()) + pins(f)
	case f.checkpointing.Offload:
		return fmt.Sprintf("what checkpoints save is kept in host memory: at least %.0f %% faster "+
			"than on the GPU", 100*aboutAsFast) + pins(f)
	case !f.checkpointing.On():
		return "no layer is computed again"
	case s.noOffload() != "":
		return s.noOffload()
	}
	return "what checkpoints save fits on the GPU, and copies to host memory take time"
}

func pins(f evaluated) string {
	if f.pinned == 0 {
		return ""
	}
	return fmt.Sprintf("; up to %s of host RAM are pinned", units.Size(f.pinned))
}

// pinnedWarning warns when the user's options pin more host memory than there is.
func (s *search) pinnedWarning(f evaluated) string {
	if f.pinned <= s.hostRoom() {
		return ""
	}
	return fmt.Sprintf("Offloaded checkpoints pin up to %s of host RAM, and a plan may take %s: "+
		"leave offload_checkpoints out, or lower target_batch_size.",
		units.Size(f.pinned), units.Size(s.hostRoom()))
}
