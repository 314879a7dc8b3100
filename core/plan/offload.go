package plan

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// offloaded adds the fastest depth at which what a candidate's checkpoints save lies in host memory to what is known to fit, on the terms of partly.
// full is the candidate on the GPU; nil where it does not fit there.
func (s *search) offloaded(w candidate, full *evaluated, known []evaluated) ([]evaluated, error) {
	o := s.in.Options
	if !w.checkpointing.On() || o.OffloadCheckpoints != nil || s.noOffload() != "" {
		return known, nil
	}
	w.checkpointing.Offload = true
	known, err := s.faster(w, []int{w.checkpointing.EveryN}, known, s.leastEpoch)
	if err != nil || full == nil || !o.AnyDepth || o.EveryNLayers != nil {
		return known, err
	}
	return s.faster(w, depths, known, s.inBatchesOf(*full)) // what the other layers keep is more than what all layers together are given
}

// noOffload is why nobody looks at offloaded checkpoints; "" where somebody does.
func (s *search) noOffload() string {
	switch {
	case s.pool.onCPU():
		return "there is no GPU whose memory it would save"
	case !s.in.Options.CanOffload:
		return "the installed transformers keeps on the GPU what checkpoints save; from 5.23 on it can offload that to host memory"
	case s.sharded():
		return "of a model whose state is sharded it is not tried"
	case s.estimator == nil:
		return "of a model without a known config it is not tried"
	}
	return ""
}

// leastEpoch is the seconds of an epoch without padding, each device's share of a step at once.
func (s *search) leastEpoch(w candidate) (float64, error) {
	best, err := s.throughput(w, nil, s.perDevice)
	if err != nil {
		return 0, err
	}
	step := s.perDevice * s.pool.count
	steps := max(1, (s.clips.count+step-1)/step)
	costS := s.clips.mean()*float64(s.clips.count)/float64(s.pool.count) + best.overheadS*float64(steps)
	return best.epoch(batches{costS: costS, steps: steps, microBatches: 1}).Likely, nil
}

// pinnedBytes is the host memory that offloaded checkpoints come to take, by all devices. Blocks of pinned memory have sizes of powers of two and are
// kept for later tensors of that size alone, so that all smaller micro-batches together take at most as much again as the one that takes most.
func (s *search) pinnedBytes(f evaluated) (float64, error) {
	most, err := s.mostPinned(f)
	bytes := float64(most) * float64(s.pool.count)
	if !s.clips.oneLength() {
		bytes *= 2
	}
	return bytes, err
}

// mostPinned is the most that one of the micro-batches that fit pins.
func (s *search) mostPinned(f evaluated) (most uint64, err error) {
	if s.estimator == nil {
		peak, err := s.peak(f, max(1, f.memory.Largest(s.clips.longest())))
		return uint64(peak.PinnedBytes), err
	}
	for _, row := range f.memory {
		q := s.question(f.candidate, max(1, row.Batch))
		q.Seconds = max(min(row.Seconds, s.clips.longest()), estimate.Shortest)
		p, err := s.estimator.Predict(q)
		if err != nil {
			return 0, err
		}
		most = max(most, p.PinnedBytes)
	}
	return most, nil
}

// hostRoom is the host RAM in bytes that training may take.
func (s *search) hostRoom() float64 {
	return float64(s.in.Hardware.Memory.AvailableBytes) * s.in.Options.SafetyMargin
}

// fitsHost tells whether a candidate's pinned memory leaves room for a loader's worker of each device; what was asked for is planned all the same.
func (s *search) fitsHost(f evaluated) bool {
	return s.in.Options.OffloadCheckpoints != nil || f.pinned == 0 || f.pinned+workerBytes*float64(s.pool.count) <= s.hostRoom()
}

func (s *search) offloadReason(f evaluated, ranked []evaluated) string {
	unlike := func(w evaluated) bool { return !w.checkpointing.Offload }
	switch {
	case s.in.Options.OffloadCheckpoints != nil:
		return "asked for" + pins(f)
	case f.checkpointing.Offload && !slices.ContainsFunc(ranked, unlike):
		return fmt.Sprintf("without it the longest %s does not fit", s.rows().Noun()) + pins(f)
	case f.checkpointing.Offload:
		return fmt.Sprintf("what checkpoints save lies in host memory: at least %.0f %% faster than on the GPU", 100*aboutAsFast) + pins(f)
	case !f.checkpointing.On():
		return "no layer is computed again"
	case s.noOffload() != "":
		return s.noOffload()
	}
	return fmt.Sprintf("to keep in host memory what checkpoints save gains less than %.0f %%, or takes too much of it: copies take time, too", 100*aboutAsFast)
}

// pins says how much host memory is pinned.
func pins(f evaluated) string {
	if f.pinned == 0 {
		return ""
	}
	return fmt.Sprintf("; up to %s of host RAM are pinned", units.Size(f.pinned))
}

// pinnedWarning speaks when what was asked for takes more host memory than there is.
func (s *search) pinnedWarning(f evaluated) string {
	if f.pinned <= s.hostRoom() {
		return ""
	}
	return fmt.Sprintf("Offloaded checkpoints pin up to %s of host RAM, and a plan may take %s: leave offload_checkpoints out, or lower target_batch_size.",
		units.Size(f.pinned), units.Size(s.hostRoom()))
}
