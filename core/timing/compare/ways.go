package compare

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/hardware"
)

// ways are changes in the order in which one would try them, each with what it takes at a micro-batch of one clip.
func (p *planner) ways(m machine, budget uint64) ([]Way, error) {
	base := estimate.Setup{Checkpointing: true, Frozen: p.FreezeFeatureEncoder, Optimizer: p.Optimizer, Rank: p.LoRARank}
	small, with := base, "gradient checkpointing"
	if p.hasEightBit() {
		small.Optimizer, with = adamw8, "an 8-bit optimizer and gradient checkpointing"
	}
	frozen, lora, alone := small, base, m
	frozen.Frozen, lora.Rank, alone.count = true, usualRank, 1
	ways := []Way{}
	for _, n := range []struct {
		offered bool
		what    string
		estimate.Setup
		machine
	}{
		{true, "as asked, with gradient checkpointing", base, m},
		{small != base, "with " + with, small, m},
		{m.count > 1, "one of them alone, with " + with, small, alone},
		{!p.FreezeFeatureEncoder && p.freezable(), "with " + with + ", and the feature encoder frozen", frozen, m},
		{p.LoRARank == 0, fmt.Sprintf("LoRA of rank %d on queries and values, with gradient checkpointing", usualRank), lora, m},
	} {
		if !n.offered {
			continue
		}
		bytes, fits, err := p.needOfOne(n.Setup, n.machine, budget)
		if err != nil && !tooLarge(err) {
			return nil, err
		}
		if err == nil {
			ways = append(ways, Way{n.what, bytes, fits})
		}
	}
	return p.larger(p.shorter(ways, m, small, with, budget), m, small, with), nil
}

// needOfOne is the need of the smallest micro-batch.
func (p *planner) needOfOne(s estimate.Setup, m machine, budget uint64) (bytes uint64, fits bool, err error) {
	return p.need(p.question(m, candidate{Setup: s, batch: 1, accumulation: p.share(m.count)}), m, budget, true)
}

const usualRank = 32

func (p *planner) freezable() bool {
	_, err := p.ask.Model(true)
	return err == nil
}

// shorter finds the longest clips, in whole seconds, with which it would fit.
func (p *planner) shorter(ways []Way, m machine, s estimate.Setup, with string, budget uint64) []Way {
	if p.longestAllowed() > 0 {
		return ways // every clip is as long as the longest
	}
	whole := p.lengths
	defer func() { p.lengths = whole }()
	low, high, taken := 0, int(whole.Longest()), uint64(0)
	for low < high {
		middle := (low + high + 1) / 2
		p.lengths = whole.Cut(float64(middle))
		bytes, fits, err := p.needOfOne(s, m, budget)
		if err == nil && fits {
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
func (p *planner) larger(ways []Way, m machine, s estimate.Setup, with string) []Way {
	var best *hardware.Entry
	taken := uint64(0)
	for _, card := range hardware.Catalogue() {
		if card.MIG || card.MemoryTotalBytes <= m.card.MemoryTotalBytes || best != nil && card.MemoryTotalBytes >= best.MemoryTotalBytes {
			continue
		}
		other := machine{card, m.count}
		budget := uint64(p.SafetyMargin * float64(card.MemoryTotalBytes))
		if bytes, fits, err := p.needOfOne(s, other, budget); err == nil && fits {
			best, taken = &card, bytes
		}
	}
	if best == nil {
		return ways
	}
	return append(ways, Way{best.Key + " instead, with " + with, taken, true})
}

// longestAllowed is the seconds to which every clip is stretched or cut; 0 where clips keep their length.
func (p *planner) longestAllowed() float64 {
	m, err := p.ask.Model(p.FreezeFeatureEncoder)
	if err != nil {
		return 0
	}
	return m.LongestSeconds()
}
