package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// byTrainer are the batches of the Trainer alone: of the chosen order where it makes that one, else
// in random order; of one size.
func (f evaluated) byTrainer() batches {
	if f.chosen.microBatching == fixedMicro {
		return f.chosen
	}
	return f.oneSize(batching.Random)
}

// oneSize are the batches of an order in one size.
func (f evaluated) oneSize(order string) batches {
	return f.all[slices.IndexFunc(f.all, func(b batches) bool {
		return b.order == order && b.microBatching == fixedMicro
	})]
}

// unguarded is the candidate that trains fastest by the Trainer alone, of those that it can switch
// the model to: it turns checkpointing on and never off.
func unguarded(ranked []evaluated) evaluated {
	switchable := slices.DeleteFunc(slices.Clone(ranked), func(f evaluated) bool {
		return ranked[0].checkpointing.On() && !f.checkpointing.On()
	})
	return fastestInOneSize(switchable, ranked[0].byTrainer().order)
}

// fastestInOneSize is the fastest candidate in an order and one size, of those in the first one's
// precision that recompute all layers, none, or as the first one does.
func fastestInOneSize(ranked []evaluated, order string) evaluated {
	best := ranked[0]
	for _, f := range ranked[1:] {
		if f.precision == best.precision && !f.checkpointing.Partly() &&
			f.rank(f.oneSize(order)) < best.rank(best.oneSize(order)) {
			best = f
		}
	}
	return best
}

// sizes are those that one micro-batch for all may have: divisors of a device's share of which the
// longest clips are proved to fit, the largest first.
func (s *search) sizes(f evaluated) (all []int) {
	for size := min(f.memory.Largest(s.clips.longest()), s.perDevice); size > 1; size-- {
		if s.perDevice%size == 0 && (f.guessed ||
			s.peak(f, size).Bytes <= int64(s.budget.bytes)) {
			all = append(all, size)
		}
	}
	return append(all, 1)
}

// largestAsFast are the batches of the largest size that is about as fast as the fastest, and no
// slower than the published rule's; the largest come first.
func (s *search) largestAsFast(w candidate, all []batches) batches {
	limit := (1 + aboutAsFast) * slices.MinFunc(all, func(a, b batches) int {
		return cmp.Compare(a.epoch.Likely, b.epoch.Likely)
	}).epoch.Likely
	if c := s.formula; c != nil && w.precision == c.Precision() &&
		w.checkpointing == c.Checkpointing() {
		for _, b := range ofSize(all, c.PerDeviceTrainBatchSize) {
			limit = min(limit, b.epoch.Likely)
		}
	}
	return all[slices.IndexFunc(all, func(b batches) bool { return b.epoch.Likely <= limit })]
}

// unguarded holds the settings that replace a plan's in a Trainer without the guard.
func (s *search) unguarded(planned, f evaluated) *profile.Unguarded {
	b := f.oneSize(batching.Random)
	micro := *b.figures.MicroBatch
	return &profile.Unguarded{PerDeviceTrainBatchSize: micro,
		GradientAccumulationSteps: s.perDevice / micro,
		GradientCheckpointing:     f.checkpointing.On(),
		EveryNLayers:              max(1, f.checkpointing.EveryN),
		OffloadCheckpoints:        f.checkpointing.Offload,
		MicroBatchSize:            f.memory.Largest(s.clips.longest()),
		PredictedBytes:            s.peak(f, micro).Bytes,
		TimesLonger:               b.epoch.Likely / planned.chosen.epoch.Likely}
}

// batchReason explains a batch of one size, and the settings that the Trainer alone gets instead.
func (s *search) batchReason(d *draft, f evaluated, ranked []evaluated) string {
	rows, most := s.rows(), s.sizes(f)[0]
	reason := fmt.Sprintf("the largest divisor of %d, a device's share of a step, of which %s of "+
		"%s fit", s.perDevice, rows.Nouns(), rows.Length(s.clips.longest()))
	if d.PerDeviceTrainBatchSize < most {
		reason = fmt.Sprintf("of the divisors of %d, a device's share of a step, the fastest in "+
			"one size; %s of %s fit, and pad more", s.perDevice, rows.Count(most),
			rows.Length(s.clips.longest()))
	}
	if d.Unguarded == nil {
		return reason
	}
	alone := unguarded(ranked)
	return reason + s.fasterAlone(f, alone, "to_training_arguments takes it") +
		s.fasterAlone(alone, fastestInOneSize(ranked, batching.Random),
			"gradient_checkpointing=False takes it")
}

// fasterAlone names by how much another candidate is faster without the guard; "" where it is the
// same, or gains less than a hundredth.
func (s *search) fasterAlone(f, other evaluated, how string) string {
	b := other.oneSize(batching.Random)
	gain, size := f.oneSize(batching.Random).epoch.Likely/b.epoch.Likely, *b.figures.MicroBatch
	if f.candidate == other.candidate || gain < worthNaming {
		return ""
	}
	return fmt.Sprintf("; without the guard %d × %d %s is %.2f× faster, and %s", size,
		s.perDevice/size, other.checkpointing.With(), gain, how)
}

// groupingGain names what group_by_length would gain over random order in one size; "" where that
// is less than a hundredth, or an order was asked for.
func (s *search) groupingGain(ranked []evaluated) string {
	grouped, without := fastestInOneSize(ranked, "grouped"), ""
	b := grouped.oneSize("grouped")
	gain, size := ranked[0].byTrainer().epoch.Likely/b.epoch.Likely, *b.figures.MicroBatch
	if ranked[0].chosen.microBatching == memoryMicro {
		without = "without the guard "
		gain = unguarded(ranked).oneSize(batching.Random).epoch.Likely / b.epoch.Likely
	}
	if gain < worthNaming || !s.namesGrouping() {
		return ""
	}
	return fmt.Sprintf("; %slength_handling=\"grouped\", the Trainer's group_by_length, in %d × %d "+
		"%s is %.2f× faster than random order, for steps of similar %s", without, size,
		s.perDevice/size, grouped.checkpointing.With(), gain, s.rows().Nouns())
}

// mayMissGrouping reports whether candidates that were traced gain nothing by sorting, so that only
// the trace of another one can tell.
func (s *search) mayMissGrouping(ranked []evaluated) bool {
	traced := slices.DeleteFunc(slices.Clone(ranked), func(f evaluated) bool { return f.guessed })
	return s.namesGrouping() && len(traced) > 0 && s.groupingGain(traced) == ""
}

// namesGrouping reports whether a plan says what sorting by length would gain.
func (s *search) namesGrouping() bool {
	return s.in.Options.LengthHandling == "" && !s.in.Options.Streamed
}

const worthNaming = 1.01 // times faster

// fixedOf are the batches of a candidate in random order and this size, if they were simulated.
func fixedOf(ranked []evaluated, w candidate, size int) []batches {
	for _, f := range ranked {
		if f.candidate == w {
			return ofSize(f.fixed, size)
		}
	}
	return nil
}

// ofSize are the batches of this size, if there are some.
func ofSize(all []batches, size int) []batches {
	for i, b := range all {
		if *b.figures.MicroBatch == size {
			return all[i : i+1]
		}
	}
	return nil
}
