package allocator

import "sort"

// pool is the small or the large half of the cache.
type pool struct {
	free     freeSet
	unmapped []int32 // blocks without memory behind them, in the order of their addresses
	searches uint64  // for the age of blocks; counted only where garbage is collected
	page     uint64  // what an expandable segment grows by
	small    bool
}

func (p *pool) reset(small bool, page uint64) {
	p.free.clear()
	p.unmapped, p.searches, p.page, p.small = p.unmapped[:0], 0, page, small
}

func (a *Allocator) addFree(p *pool, index int32) { p.free.insert(a.freed(p, index)) }

// freed counts a block that comes into the pool, and gives its entry.
func (a *Allocator) freed(p *pool, index int32) entry {
	b := &a.blocks[index]
	b.sinceCall = p.searches
	if b.split() && !b.expandable {
		a.stats.InactiveSplit += b.size
	}
	return entry{size: b.size, address: b.address, block: index}
}

// putBack gives a block that is no longer allocated back to the pool, merged with its free neighbours, in the place of one of them if there is one.
func (a *Allocator) putBack(p *pool, index int32) {
	b := &a.blocks[index]
	neighbour := b.next
	if !a.joins(index, neighbour) {
		neighbour = b.prev
	} else {
		a.merge(p, index, b.prev)
	}
	if !a.joins(index, neighbour) {
		a.addFree(p, index)
		return
	}
	n := &a.blocks[neighbour]
	at := p.free.find(classOf(n.size), n.size, n.address)
	a.left(n)
	a.absorb(index, neighbour)
	p.free.replace(at, a.freed(p, index))
}

func (a *Allocator) removeFree(p *pool, index int32) {
	b := &a.blocks[index]
	p.free.remove(b.size, b.address)
	a.left(b)
}

// left keeps the count of inactive split bytes when a block leaves the pool.
func (a *Allocator) left(b *block) {
	if b.split() && !b.expandable {
		a.stats.InactiveSplit -= b.size
	}
}

// takeFree takes the best fit out of the pool, 0 when there is none, and leaves there what is split off.
func (a *Allocator) takeFree(p *pool, size uint64) int32 {
	if a.collects {
		p.searches++
	}
	at, ok := a.bestFit(p, size)
	if !ok {
		return 0
	}
	found := p.free.at(at)
	a.left(&a.blocks[found.block])
	if !a.shouldSplit(p, found.size-size, size) {
		p.free.removeAt(at)
		return found.block
	}
	front := a.splitFront(p, found.block, size)
	p.free.replace(at, a.freed(p, found.block))
	return front
}

// bestFit finds the smallest block that is large enough, the one at the lowest address among equals. When the rules of
// max_split_size reject it, no other is tried.
func (a *Allocator) bestFit(p *pool, size uint64) (at cursor, ok bool) {
	if at = p.free.atLeast(size); !p.free.valid(at) {
		return at, false
	}
	if a.settings.ExpandableSegments {
		at = a.skipGrowing(p, at)
	}
	switch found := p.free.at(at).size; {
	case size < a.maxSplit && found >= a.maxSplit: // an oversize block is kept for oversize requests
		return at, false
	case size >= a.maxSplit && found >= size+a.settings.MaxNonSplitRounding: // and wastes no more than the rounding
		return at, false
	}
	return at, true
}

// skipGrowing prefers holes of fixed size to the growing end of an expandable segment, which counts with all the address
// space after it: it moves on while the next block is smaller in that measure.
func (a *Allocator) skipGrowing(p *pool, at cursor) cursor {
	for {
		next := p.free.next(at)
		if !p.free.valid(next) || a.growable(p.free.at(next).block) >= a.growable(p.free.at(at).block) {
			return at
		}
		at = next
	}
}

func (a *Allocator) growable(index int32) uint64 {
	b := &a.blocks[index]
	if b.next != 0 && !a.blocks[b.next].mapped {
		return b.size + a.blocks[b.next].size
	}
	return b.size
}

func (p *pool) unmappedAt(blocks []block, address uint64) int {
	return sort.Search(len(p.unmapped), func(i int) bool { return blocks[p.unmapped[i]].address >= address })
}

func (p *pool) addUnmapped(blocks []block, index int32) {
	at := p.unmappedAt(blocks, blocks[index].address)
	p.unmapped = append(p.unmapped, 0)
	copy(p.unmapped[at+1:], p.unmapped[at:])
	p.unmapped[at] = index
}

func (p *pool) removeUnmapped(blocks []block, index int32) {
	at := p.unmappedAt(blocks, blocks[index].address)
	p.unmapped = append(p.unmapped[:at], p.unmapped[at+1:]...)
}
