package estimate

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Way is a change and what the training would then take of one GPU.
type Way struct {
	What      string `json:"what"`
	PeakBytes uint64 `json:"peak_bytes"`
	Fits      bool   `json:"fits"`
}

// Card is a GPU that one might take instead.
type Card struct {
	Key string
	GPU profile.GPU
}

// Misfit is a training that does not fit.
type Misfit struct {
	Place
	Asked     Setup
	Precision func(g profile.GPU) string // on a card
	Share     int                        // clips of one GPU in an optimizer step
	Longest   float64                    // seconds
	Margin    float64                    // share of a card's memory that may be used
	Cards     []Card                     // that there are
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

// Ways are changes in the order in which one would try them, each with what it takes at a micro-batch of one clip.
func (o *Oracle) Ways(m Misfit) ([]Way, error) {
	base := m.Asked
	base.Checkpointing = true
	small, with := base, "gradient checkpointing"
	lighter := Lighter(base.Optimizer)
	for _, name := range lighter {
		small.Optimizer, with = name, withOptimizer(name)
	}
	frozen, lora, alone := small, base, m
	frozen.Frozen, lora.Rank, alone.Devices = true, UsualRank, 1
	_, unfreezable := o.Model(true)
	type change struct {
		offered bool
		what    string
		Setup
		Misfit
	}
	changes := []change{{true, "as asked, with gradient checkpointing", base, m}}
	for _, name := range lighter {
		other := base
		other.Optimizer = name
		changes = append(changes, change{true, "with " + withOptimizer(name), other, m})
	}
	ways := []Way{}
	for _, n := range append(changes, []change{
		{m.Devices > 1, "one of them alone, with " + with, small, alone},
		{!base.Frozen && unfreezable == nil, "with " + with + ", and the feature encoder frozen", frozen, m},
		{base.Rank == 0, fmt.Sprintf("LoRA of rank %d on queries and values, with gradient checkpointing", UsualRank), lora, m},
	}...) {
		if !n.offered {
			continue
		}
		bytes, fits, err := o.needOfOne(n.Setup, n.Misfit)
		if err != nil && !TooLarge(err) {
			return nil, err
		}
		if err == nil {
			ways = append(ways, Way{n.what, bytes, fits})
		}
	}
	return o.larger(o.shorter(ways, m, small, with), m, small, with), nil
}

func withOptimizer(name string) string {
	return fmt.Sprintf("optimizer=%q and gradient checkpointing", name)
}

// needOfOne is the need of the smallest micro-batch.
func (o *Oracle) needOfOne(s Setup, m Misfit) (bytes uint64, fits bool, err error) {
	q := Question{Setup: s, Class: Class(m.GPU), Precision: m.Precision(m.GPU), Batch: 1, Accumulating: m.Share > 1, Seconds: m.Longest}
	return o.Need(q, m.Place, true)
}

// shorter finds the longest clips, in whole seconds, with which it would fit.
func (o *Oracle) shorter(ways []Way, m Misfit, s Setup, with string) []Way {
	if read, err := o.Model(m.Asked.Frozen); err != nil || read.LongestSeconds() > 0 {
		return ways // every clip is as long as the longest
	}
	low, high, taken := 0, int(m.Longest), uint64(0)
	for low < high {
		middle := (low + high + 1) / 2
		m.Longest = float64(middle)
		if bytes, fits, err := o.needOfOne(s, m); err == nil && fits {
			low, taken = middle, bytes
		} else {
			high = middle - 1
		}
	}
	if low == 0 {
		return ways
	}
	return append(ways, Way{fmt.Sprintf("clips cut to %d s, with %s", low, with), taken, true})
}

// larger finds the card with the least memory on which it would fit.
func (o *Oracle) larger(ways []Way, m Misfit, s Setup, with string) []Way {
	best, taken := -1, uint64(0)
	for i, card := range m.Cards {
		size := card.GPU.MemoryTotalBytes
		if size <= m.GPU.MemoryTotalBytes || best >= 0 && size >= m.Cards[best].GPU.MemoryTotalBytes {
			continue
		}
		other := m
		other.Place = Place{GPU: card.GPU, Devices: m.Devices, Budget: uint64(m.Margin * float64(size)), Shared: m.Shared}
		if bytes, fits, err := o.needOfOne(s, other); err == nil && fits {
			best, taken = i, bytes
		}
	}
	if best < 0 {
		return ways
	}
	return append(ways, Way{m.Cards[best].Key + " instead, with " + with, taken, true})
}
