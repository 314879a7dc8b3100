package estimate

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Remedy is a change and what the training would then take of one GPU.
type Remedy struct {
	What      string `json:"what"`
	PeakBytes uint64 `json:"peak_bytes"`
	Fits      bool   `json:"fits"`
}

// Card is a GPU that one might take instead.
type Card struct {
	Key string
	GPU profile.GPU
}

// Shortfall is a training that does not fit.
type Shortfall struct {
	Budget
	Asked     Setup
	Precision func(g profile.GPU) string // on a card
	Share     int                        // clips of one GPU in an optimizer step
	Longest   float64                    // seconds
	Margin    float64                    // share of a card's memory that may be used
	Cards     []Card                     // that there are
	Rows      units.RowKind              // what is trained on
}

// UsualRank of LoRA's adapters.
const UsualRank = 32

// EightBit is AdamW with 8-bit state, by the Trainer's name.
const EightBit = "adamw_bnb_8bit"

// HasEightBit tells whether an optimizer has a form with 8-bit state.
func HasEightBit(optimizer string) bool {
	return optimizer == "adamw_torch" || optimizer == "adamw_torch_fused"
}

// Lighter are the forms of an optimizer whose step takes less memory, in the order in which one would try them: the fused
// one computes the same without temporary lists, 8-bit state rounds.
func Lighter(optimizer string) (names []string) {
	if optimizer == "adamw_torch" {
		names = append(names, "adamw_torch_fused")
	}
	if HasEightBit(optimizer) {
		names = append(names, EightBit)
	}
	return names
}

// Remedies are changes in the order in which one would try them, each with what it takes at a micro-batch of one clip.
func (o *Estimator) Remedies(m Shortfall) ([]Remedy, error) {
	base := m.Asked
	base.Checkpointing = profile.CheckpointingOf(true, 1, false)
	small, with := base, "gradient checkpointing"
	lighter := Lighter(base.Optimizer)
	if m.Shared != nil { // what is saved is known of the state that was asked for, not of a smaller one
		lighter = nil
	}
	for _, name := range lighter {
		small.Optimizer, with = name, withOptimizer(name)
	}
	frozen, lora, alone := small, base, m
	frozen.Frozen, lora.Rank, alone.Devices, alone.Shared = true, UsualRank, 1, nil
	_, unfreezable := o.Model(true)
	read, err := o.Model(base.Frozen)
	if err != nil {
		return nil, err
	}
	type change struct {
		offered bool
		what    string
		Setup
		Shortfall
	}
	changes := []change{{true, "as asked, with gradient checkpointing", base, m}}
	for _, name := range lighter {
		other := base
		other.Optimizer = name
		changes = append(changes, change{true, "with " + withOptimizer(name), other, m})
	}
	remedies := []Remedy{}
	for _, n := range append(changes, []change{
		{m.Devices > 1, "one of them alone, with " + with, small, alone},
		{m.Shared == nil && !base.Frozen && unfreezable == nil, "with " + with + ", and the feature encoder frozen", frozen, m},
		{m.Shared == nil && base.Rank == 0 && read.TakesAdapters(), fmt.Sprintf("LoRA of rank %d on queries and values (lora_rank=%d), with gradient checkpointing", UsualRank, UsualRank), lora, m},
	}...) {
		if !n.offered {
			continue
		}
		bytes, fits, err := o.needOfOneClip(n.Setup, n.Shortfall)
		if err != nil && !TooLarge(err) {
			return nil, err
		}
		if err == nil {
			remedies = append(remedies, Remedy{n.what, bytes, fits})
		}
	}
	return o.larger(o.shorter(remedies, m, small, with), m, small, with), nil
}

func withOptimizer(name string) string {
	return fmt.Sprintf("optimizer=%q and gradient checkpointing", name)
}

// needOfOneClip is the need of the smallest micro-batch.
func (o *Estimator) needOfOneClip(s Setup, m Shortfall) (bytes uint64, fits bool, err error) {
	q := Question{Setup: s, Class: Class(m.GPU), Precision: m.Precision(m.GPU), Batch: 1, Accumulating: m.Share > 1, Seconds: m.Longest}
	return o.Need(q, m.Budget, true)
}

// shorter finds the longest clips, in whole seconds, with which it would fit.
func (o *Estimator) shorter(remedies []Remedy, m Shortfall, s Setup, with string) []Remedy {
	if read, err := o.Model(m.Asked.Frozen); err != nil || read.LongestSeconds() > 0 {
		return remedies // every clip is as long as the longest
	}
	low, high, taken := 0, int(m.Longest), uint64(0)
	for low < high {
		middle := (low + high + 1) / 2
		m.Longest = float64(middle)
		if bytes, fits, err := o.needOfOneClip(s, m); err == nil && fits {
			low, taken = middle, bytes
		} else {
			high = middle - 1
		}
	}
	if low == 0 {
		return remedies
	}
	return append(remedies, Remedy{fmt.Sprintf("%s of at most %s, with %s", m.Rows.Nouns(), m.Rows.Length(float64(low)), with), taken, true})
}

// larger finds the card with the least memory on which it would fit.
func (o *Estimator) larger(remedies []Remedy, m Shortfall, s Setup, with string) []Remedy {
	best, taken := -1, uint64(0)
	for i, card := range m.Cards {
		size := card.GPU.MemoryTotalBytes
		if size <= m.GPU.MemoryTotalBytes || best >= 0 && size >= m.Cards[best].GPU.MemoryTotalBytes {
			continue
		}
		other := m
		other.Budget = Budget{GPU: card.GPU, Devices: m.Devices, Bytes: uint64(m.Margin * float64(size)), Shared: m.Shared}
		if bytes, fits, err := o.needOfOneClip(s, other); err == nil && fits {
			best, taken = i, bytes
		}
	}
	if best < 0 {
		return remedies
	}
	return append(remedies, Remedy{m.Cards[best].Key + " instead, with " + with, taken, true})
}
