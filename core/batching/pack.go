package batching

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// lengthsAStep is how many lengths a process's share of a packed step has at least, four clips and
// more provided. Steps of one or two lengths learn more slowly than steps of any clips; with four
// no difference was seen (docs/batching.md).
const lengthsAStep = 4

// packer makes shares, what one process gets of a step, of groups of clips of similar length: full
// micro-batches, where those are not too large a part of the share.
type packer struct {
	buckets   [][]uint32 // shuffled clips that are left
	sizes     []int      // of a group of each; all of a bucket's clips when they are fewer
	remaining int
	// least share of groups left empty, in all, when so many clips are to be added
	waste  []float64
	random *rand.Rand
}

// packed puts shuffled clips into steps of such groups. Each step has clips of several lengths.
func (c *sortedClips) packed(order []uint32, r Options, boundaries []int, random *rand.Rand) {
	p := packer{buckets: byBucket(order, boundaries), remaining: len(order), random: random}
	p.sizes = make([]int, len(boundaries))
	for b, to := range boundaries {
		p.sizes[b] = min(r.group(), int(c.largest[to-1]))
	}
	shares := make([][]uint32, 0, len(order)/r.perRank())
	for p.remaining > 0 {
		share := p.fill(r.perRank())
		longestFirst(share)
		shares = append(shares, share)
	}
	c.balance(shares, r, random)
	n := 0
	for _, share := range shares {
		n += copy(order[n:], share)
	}
}

// balance puts shares that take about as long side by side, one for each process, and shuffles the
// steps that they make.
func (c *sortedClips) balance(shares [][]uint32, r Options, random *rand.Rand) {
	shuffle(shares, random)
	if r.Ranks == 1 {
		return
	}
	s := splitter{sorted: c.sorted, largest: c.largest, price: r.Cost}
	type priced struct {
		cost  float64
		share []uint32
	}
	all := make([]priced, len(shares))
	for i, share := range shares {
		all[i] = priced{s.cost(share, s.optimal(share)), share}
	}
	slices.SortStableFunc(all, func(a, b priced) int { return cmp.Compare(a.cost, b.cost) })
	steps := slices.Collect(slices.Chunk(all, r.Ranks))
	shuffle(steps, random)
	for i, step := range steps {
		shuffle(step, random)
		for j, one := range step {
			shares[i*r.Ranks+j] = one.share
		}
	}
}

// fill takes clips for one share. Among the buckets whose group leaves the room that others fill
// best, it draws one in proportion to its remaining clips, so that all buckets last equally long.
func (p *packer) fill(size int) []uint32 {
	share := make([]uint32, 0, size)
	for len(share) < size {
		p.measure(size)
		room := size - len(share)
		limit, weight, chosen := p.waste[room]+1e-9, 0, -1
		for b, clips := range p.buckets {
			if len(clips) == 0 || p.after(b, room) > limit {
				continue
			}
			weight += len(clips)
			if p.random.IntN(weight) < len(clips) {
				chosen = b
			}
		}
		share = append(share, p.takeFrom(chosen, min(room, p.sizes[chosen]))...)
	}
	return share
}

// takeFrom takes the next clips of a bucket.
func (p *packer) takeFrom(bucket, count int) []uint32 {
	clips := p.buckets[bucket]
	count = min(count, len(clips))
	p.buckets[bucket] = clips[count:]
	p.remaining -= count
	if len(clips)-count < p.sizes[bucket] {
		p.waste = nil // a full one is no longer to be had of it
	}
	return clips[:count]
}

// after is the waste of filling the room when the next group is of a bucket.
func (p *packer) after(bucket, room int) float64 {
	size := p.sizes[bucket]
	filled := min(size, room, len(p.buckets[bucket]))
	return 1 - float64(filled)/float64(size) + p.waste[room-filled]
}

// measure works out what filling any room wastes, from the buckets that have clips.
func (p *packer) measure(size int) {
	if p.waste != nil {
		return
	}
	p.waste = make([]float64, size+1)
	for room := 1; room <= size; room++ {
		lowest := -1.0
		for b, clips := range p.buckets {
			if len(clips) == 0 {
				continue
			}
			if waste := p.after(b, room); lowest < 0 || waste < lowest {
				lowest = waste
			}
		}
		p.waste[room] = lowest
	}
}
