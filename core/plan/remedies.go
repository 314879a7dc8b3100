package plan

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// fewLong is the share of clips that a plan may leave out unasked when they do not fit in any way.
const fewLong = 0.01

// shortened is the search without the few clips that fit in no way, if leaving them out helps.
func (s *search) shortened() (*search, error) {
	fitting := 0
	for _, w := range s.candidates() {
		if t := s.traced(w); t != nil {
			fitting = max(fitting, s.clips.fits(t.Memory))
		}
	}
	if fitting == 0 || float64(len(s.clips.sorted)-fitting) > fewLong*float64(len(s.clips.sorted)) {
		return nil, nil
	}
	shorter := *s
	cut, err := s.clips.upTo(s.clips.sorted[fitting-1])
	shorter.clips = cut
	return &shorter, err
}

// infeasible is the error of a training that fits in no way, with the remedies.
func (s *search) infeasible() error {
	where, budget := s.pool.where(), float64(s.budget.bytes)
	message := fmt.Sprintf("a micro-batch of one %s of %s does not fit into %s of %s (%s × %v)",
		s.rows().Noun(), s.rows().Length(s.clips.longest()), units.Size(budget), where,
		units.Size(s.pool.planned), s.in.Options.SafetyMargin)
	hint := fmt.Sprintf("leave out or split the longest %s (max_length_s), freeze parts of the "+
		"model, or take a larger GPU", s.rows().Nouns())
	if t := s.smallestTrace(); t != nil {
		message += fmt.Sprintf(": it takes %s", units.Size(t.Peaks[0].Bytes))
		if remedies := s.remedies(*t); len(remedies) > 0 {
			hint = "what would make it fit, in the order to try:\n  · " +
				strings.Join(remedies, "\n  · ")
		}
	}
	return fault.New(fault.Infeasible, hint, "%s", message)
}

// smallestTrace is the trace whose smallest micro-batch takes the least memory; nil without one.
func (s *search) smallestTrace() (smallest *Traced) {
	for i, t := range s.in.Traced {
		matches := t.BudgetBytes == int64(s.budget.bytes) &&
			t.Optimizer == optimizers[s.in.Options.Optimizer].name
		if matches && len(t.Peaks) > 0 && (smallest == nil ||
			t.Peaks[0].Bytes < smallest.Peaks[0].Bytes) {
			smallest = &s.in.Traced[i]
		}
	}
	return smallest
}

// remedies are changes that would make the training fit, in the order to try them, each with its
// peak.
func (s *search) remedies(t Traced) (out []string) {
	if others := s.usedByOthers(); others != "" {
		out = append(out, others)
	}
	for _, r := range append(s.changes(t), s.shardedRemedies(t)...) {
		verdict := "fits"
		if !r.Fits {
			verdict = "still too much"
		}
		out = append(out, fmt.Sprintf("%s: %s, %s", r.What, units.Size(r.PeakBytes),
			verdict))
	}
	return out
}

// Remedies are what would make a training fit that Make refuses as Infeasible, in the order in
// which one would try them. Errors: those of Make.
func Remedies(in Inputs) ([]estimate.Remedy, error) {
	s, err := prepared(in)
	if err != nil {
		return nil, err
	}
	if t := s.smallestTrace(); t != nil {
		return s.changes(*t), nil
	}
	return nil, nil
}

// usualRank of LoRA's adapters.
const usualRank = 32

// changes are those of settings, of clips and of cards, each with what a micro-batch of one clip
// takes: as traced, less the state that is not there.
func (s *search) changes(t Traced) []estimate.Remedy {
	with, need := "gradient checkpointing", t.Peaks[0].Bytes
	if !t.Checkpointing {
		with = "nothing computed again"
	} else if t.Offload {
		with = "offloaded gradient checkpointing"
	}
	remedies := []estimate.Remedy{s.remedy("as asked, with "+with, need)}
	remedies = append(remedies, s.fewerClips(t, with)...)
	saved, lightest := int64(0), with
	if !s.sharded() {
		// what is saved is known of the state that was asked for, not of a smaller one
		for _, name := range estimate.Lighter(t.Optimizer) {
			saved, lightest = s.savedBy(t.Optimizer, name),
				fmt.Sprintf("optimizer=%q and %s", name, with)
			remedies = append(remedies, s.remedy("with "+lightest, need-saved))
		}
	}
	if s.pool.count > 1 {
		remedies = append(remedies, s.remedy("one of them alone, with "+lightest,
			need-saved-s.beside()))
	}
	if !s.sharded() && s.in.Options.LoRARank == 0 {
		m := s.in.Model
		frozen := m.GradientBytes + m.OptimizerBytes[optimizers[s.in.Options.Optimizer].state]
		remedies = append(remedies,
			s.remedy(fmt.Sprintf("LoRA of rank %d on queries and values (lora_rank=%d), with %s",
				usualRank, usualRank, with), need-frozen))
	}
	if seconds := s.longestThatFits(t); seconds >= 1 && seconds < s.clips.longest() &&
		s.clips.fixed == 0 {
		remedies = append(remedies, estimate.Remedy{What: fmt.Sprintf("%s of at most %s, with %s",
			s.rows().Nouns(), s.rows().Length(float64(int(seconds))), with),
			PeakBytes: s.budget.bytes, Fits: true})
	}
	return s.larger(remedies, need-saved, lightest)
}

// fewerClips is a smaller step where the inputs of a whole one, which the device holds at once, are
// what does not fit; none where they are not.
func (s *search) fewerClips(t Traced, with string) []estimate.Remedy {
	peak, inputs := t.Peaks[0], 0.0
	for _, part := range t.Peaks[0].Parts {
		if part.Name == "inputs" {
			inputs = float64(part.Bytes)
		}
	}
	excess, step := float64(peak.Bytes)-float64(s.budget.bytes), float64(s.perDevice)
	if excess <= 0 || step*(inputs-excess) < inputs {
		return nil
	}
	clips := floorPowerOfTwo(step * (1 - excess/inputs))
	left := peak.Bytes - int64(inputs*(1-float64(clips)/step))
	return []estimate.Remedy{s.remedy(fmt.Sprintf("target_batch_size=%d, with %s",
		clips*s.pool.count, with), left)}
}

func (s *search) remedy(label string, bytes int64) estimate.Remedy {
	return estimate.Remedy{What: label, PeakBytes: uint64(max(0, bytes)),
		Fits: bytes <= int64(s.budget.bytes)}
}

// savedBy is what another optimizer takes less: the difference of their states, and the temporary
// lists of AdamW that is not fused.
func (s *search) savedBy(from, to string) (bytes int64) {
	m := s.in.Model
	state := func(name string) int64 { return m.OptimizerBytes[optimizers[name].state] }
	if bytes = state(from) - state(to); from == "adamw_torch" {
		bytes += m.GradientBytes
	}
	return bytes
}

// longestThatFits returns the seconds of the longest clips of which one fits: as traced, else in
// proportion to the peak.
func (s *search) longestThatFits(t Traced) (seconds float64) {
	for _, row := range t.Memory {
		if row.Batch > 0 {
			seconds = row.Seconds
		}
	}
	modelBytes := s.modelBytes()
	if room, rise := float64(t.BudgetBytes-modelBytes),
		float64(t.Peaks[0].Bytes-modelBytes); seconds == 0 && room > 0 && rise > room {
		return s.clips.longest() * room / rise
	}
	return seconds
}

// larger adds the card with the least memory on which it would fit.
func (s *search) larger(remedies []estimate.Remedy, need int64, with string) []estimate.Remedy {
	best := -1
	for i, card := range s.in.Cards {
		size := card.GPU.MemoryTotalBytes
		roomier := size > s.budget.gpu.MemoryTotalBytes &&
			float64(need) <= s.in.Options.SafetyMargin*float64(size)
		if roomier && (best < 0 || size < s.in.Cards[best].GPU.MemoryTotalBytes) {
			best = i
		}
	}
	if best < 0 {
		return remedies
	}
	return append(remedies, estimate.Remedy{What: s.in.Cards[best].Key + " instead, with " + with,
		PeakBytes: uint64(max(0, need)), Fits: true})
}

// shardedRemedies is what a device needs when several hold the model's state together, at one clip.
func (s *search) shardedRemedies(t Traced) (out []estimate.Remedy) {
	if s.pool.onCPU() {
		return nil
	}
	devices := max(2, s.pool.count)
	alone := t.Peaks[0].Bytes - s.beside()
	for _, strategy := range []string{"zero2", "zero3", "fsdp"} {
		more, err := sharding.Difference(s.shardingRequest(strategy, devices, t.candidate()))
		if err == nil {
			needed := s.remedy(fmt.Sprintf("%s over %d of them", shardingNames[strategy], devices),
				alone+more)
			out = append(out, needed)
		}
	}
	return out
}

var shardingNames = map[string]string{"zero2": "DeepSpeed ZeRO-2", "zero3": "DeepSpeed ZeRO-3",
	"fsdp": "FSDP"}

func (s *search) shardingRequest(strategy string, devices int, w candidate) sharding.Request {
	m := s.in.Model
	return sharding.Request{Strategy: strategy, Devices: devices, Precision: w.precision,
		Parameters: m.TotalParameters, Trainable: m.TrainableParameters,
		ParameterBytes: m.ParameterBytes, GradientBytes: m.GradientBytes,
		OptimizerBytes: m.OptimizerBytes[optimizers[s.in.Options.Optimizer].state],
		Optimizer:      w.optimizer, DeferredSends: true}
}

// usedByOthers suggests to stop other processes where a card would have enough memory without them.
func (s *search) usedByOthers() string {
	if s.pool.onCPU() {
		return ""
	}
	g := s.pool.gpus[s.pool.tightest]
	total := float64(g.MemoryTotalBytes)
	if s.pool.planned >= total {
		return ""
	}
	return fmt.Sprintf("stop what else uses %s: %s of its %s are taken", s.pool.where(),
		units.Size(total-s.pool.planned), units.Size(total))
}
