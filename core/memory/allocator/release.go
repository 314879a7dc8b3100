package allocator

import "slices"

// releaseCached returns back every segment that is one free block, and every whole page of a free
// block in an expandable segment; the large pool first.
func (a *Allocator) releaseCached() {
	for _, p := range []*pool{&a.large, &a.small} {
		for _, e := range slices.Clone(p.free) {
			switch b := &a.blocks[e.block]; {
			case b.expandable:
				a.unmap(p, e.block)
			case !b.split():
				a.release(p, e.block)
			}
		}
	}
}

// release is cudaFree of a segment that is one free block.
func (a *Allocator) release(p *pool, index int32) {
	a.removeFree(p, index)
	a.stats.Reserved -= a.blocks[index].size
	a.stats.Segments--
	a.changed(SegmentFreed, a.blocks[index].address, a.blocks[index].size)
	a.dropBlock(index)
}

// releaseAvailable, with max_split_size alone, frees oversize blocks of the pool: the smallest one
// that covers the request or max_split_size, whichever is more; without one, from the largest down
// until their sum does. False when it does not.
func (a *Allocator) releaseAvailable(p *pool, size uint64) bool {
	if a.maxSplit == unlimited || a.settings.ExpandableSegments {
		// whose blocks cannot be given back whole
		return false
	}
	wanted := max(size, a.maxSplit)
	if i := p.atLeast(wanted, 0); i < len(p.free) {
		a.release(p, p.free[i].block)
		return true
	}
	released := uint64(0)
	for released < wanted && p.largest() >= a.maxSplit {
		released += p.largest()
		a.release(p, p.free[len(p.free)-1].block)
	}
	return released >= wanted
}

// collectGarbage runs before the device is asked, once reserved memory exceeds the threshold's
// share of the limit: it releases unsplit free blocks of the large pool whose age, counted in
// searches, is at least the mean, all of them in one pass, and again with the new mean until the
// excess is gone or nothing more can go.
func (a *Allocator) collectGarbage() {
	threshold := uint64(a.settings.GarbageCollectionThreshold * float64(a.allowed))
	if a.stats.Reserved <= threshold {
		return
	}
	excess, collected := a.stats.Reserved-threshold, uint64(0)
	candidates, ages := a.unsplit()
	for freed := true; freed && collected < excess && len(candidates) > 0; {
		freed = false
		mean := float64(ages) / float64(len(candidates))
		young := candidates[:0]
		for _, index := range candidates {
			b := &a.blocks[index]
			age := a.large.searches - b.sinceCall
			if b.expandable || float64(age) < mean {
				young = append(young, index)
				continue
			}
			freed = true
			collected += b.size
			ages -= age
			a.release(&a.large, index)
		}
		candidates = young
	}
}

// unsplit lists the free blocks of the large pool that are whole segments, with the sum of their
// ages.
func (a *Allocator) unsplit() (candidates []int32, ages uint64) {
	for _, e := range a.large.free {
		if b := &a.blocks[e.block]; !b.split() {
			candidates = append(candidates, e.block)
			ages += a.large.searches - b.sinceCall
		}
	}
	return candidates, ages
}
