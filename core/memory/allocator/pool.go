package allocator

import (
	"slices"
	"sort"
)

// entry is a free block.
type entry struct {
	size, address uint64
	block         int32
}

// pool is the small or the large half of the cache.
type pool struct {
	free     []entry // by size, then address
	unmapped []int32 // blocks without memory behind them, in the order of their addresses
	searches uint64  // for the age of blocks; counted only where garbage is collected
	page     uint64  // what an expandable segment grows by
	small    bool
}

// atLeast is the place of the first entry that is not before (size, address).
func (p *pool) atLeast(size, address uint64) int {
	low, high := 0, len(p.free)
	for low < high {
		middle := (low + high) / 2
		if e := &p.free[middle]; e.size < size || e.size == size && e.address < address {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// largest is the size of the last entry, 0 without any.
func (p *pool) largest() uint64 {
	if len(p.free) == 0 {
		return 0
	}
	return p.free[len(p.free)-1].size
}

func (a *Allocator) addFree(p *pool, index int32) {
	b := &a.blocks[index]
	b.sinceCall = p.searches
	if b.split() && !b.expandable {
		a.stats.InactiveSplit += b.size
	}
	p.free = slices.Insert(p.free, p.atLeast(b.size, b.address), entry{b.size, b.address, index})
}

// putBack returns a block that is no longer allocated back to the pool, merged with its free
// neighbours.
func (a *Allocator) putBack(p *pool, index int32) {
	a.merge(p, index, a.blocks[index].prev)
	a.merge(p, index, a.blocks[index].next)
	a.addFree(p, index)
}

func (a *Allocator) removeFree(p *pool, index int32) {
	b := &a.blocks[index]
	i := p.atLeast(b.size, b.address)
	p.free = slices.Delete(p.free, i, i+1)
	a.leavePool(b)
}

// leavePool keeps the count of inactive split bytes when a block leaves the pool.
func (a *Allocator) leavePool(b *block) {
	if b.split() && !b.expandable {
		a.stats.InactiveSplit -= b.size
	}
}

// takeFree takes the best fit out of the pool, 0 when there is none, and leaves there what is split
// off.
func (a *Allocator) takeFree(p *pool, size uint64) int32 {
	if a.collects {
		p.searches++
	}
	index := a.bestFit(p, size)
	if index == 0 {
		return 0
	}
	a.removeFree(p, index)
	return a.cutTo(p, index, size)
}

// cutTo gives what of a block is beyond size to the pool, if that may be split off.
func (a *Allocator) cutTo(p *pool, index int32, size uint64) int32 {
	if !a.shouldSplit(p, a.blocks[index].size-size, size) {
		return index
	}
	front := a.splitFront(p, index, size)
	a.addFree(p, index)
	return front
}

// bestFit finds the smallest block that is large enough, the one at the lowest address among
// equals; 0 when there is none. When the rules of max_split_size reject it, no other is tried.
func (a *Allocator) bestFit(p *pool, size uint64) int32 {
	i := p.atLeast(size, 0)
	if i == len(p.free) {
		return 0
	}
	if a.settings.ExpandableSegments {
		i = a.skipGrowing(p, i)
	}
	switch fit := p.free[i].size; {
	case size < a.maxSplit && fit >= a.maxSplit: // an oversize block is kept for oversize requests
		return 0
	case size >= a.maxSplit && fit >= size+a.settings.MaxNonSplitRounding:
		// and wastes no more than the rounding
		return 0
	}
	return p.free[i].block
}

// skipGrowing prefers holes of fixed size to the growing end of an expandable segment, which counts
// with all the address space after it: it moves on while the next block is smaller in that measure.
func (a *Allocator) skipGrowing(p *pool, i int) int {
	for i+1 < len(p.free) && a.growable(p.free[i+1].block) < a.growable(p.free[i].block) {
		i++
	}
	return i
}

func (a *Allocator) growable(index int32) uint64 {
	b := &a.blocks[index]
	if b.next != 0 && !a.blocks[b.next].mapped {
		return b.size + a.blocks[b.next].size
	}
	return b.size
}

func (p *pool) unmappedAt(blocks []block, address uint64) int {
	return sort.Search(len(p.unmapped), func(i int) bool {
		return blocks[p.unmapped[i]].address >= address
	})
}

func (p *pool) addUnmapped(blocks []block, index int32) {
	p.unmapped = slices.Insert(p.unmapped, p.unmappedAt(blocks, blocks[index].address), index)
}

func (p *pool) removeUnmapped(blocks []block, index int32) {
	i := p.unmappedAt(blocks, blocks[index].address)
	p.unmapped = slices.Delete(p.unmapped, i, i+1)
}

// block is a piece of a segment: allocated, free in its pool, or address space without memory
// behind it (unmapped, in expandable segments alone). The blocks of a segment tile it and are
// linked in the order of their addresses.
type block struct {
	address   uint64
	size      uint64
	requested uint64 // what the caller asked for; 0 unless allocated
	// the pool's count of searches when the block became free; its age is the searches since
	sinceCall  uint64
	prev, next int32  // neighbours in the segment, 0 when there is none
	generation uint32 // changes when an allocation ends, so that its handle no longer fits
	live       bool   // false for an index that waits to be used again
	small      bool   // of the small pool
	allocated  bool
	mapped     bool
	expandable bool
}

func (b *block) owns(handle Block) bool { return b.allocated && b.generation == handle.generation }

func (b *block) split() bool { return b.prev != 0 || b.next != 0 }

// newBlock makes a mapped, unlinked block. Pointers into a.blocks do not survive it.
func (a *Allocator) newBlock(p *pool, address, size uint64) int32 {
	var index int32
	if last := len(a.unused) - 1; last >= 0 {
		index, a.unused = a.unused[last], a.unused[:last]
	} else {
		index = int32(len(a.blocks))
		a.blocks = append(a.blocks, block{})
	}
	b := &a.blocks[index] // set field by field, as this is much of the work of a split
	b.address, b.size, b.requested, b.prev, b.next = address, size, 0, 0, 0
	b.live, b.small, b.allocated, b.mapped, b.expandable =
		true, p.small, false, true, a.settings.ExpandableSegments
	return index
}

func (a *Allocator) dropBlock(index int32) {
	a.blocks[index].live = false
	a.unused = append(a.unused, index)
}

// link puts a new block between two neighbours, either of which may be 0.
func (a *Allocator) link(index, before, after int32) {
	a.blocks[index].prev, a.blocks[index].next = before, after
	if before != 0 {
		a.blocks[before].next = index
	}
	if after != 0 {
		a.blocks[after].prev = index
	}
}

// splitFront cuts size bytes off the front of a block. The caller puts the remainder back into the
// pool.
func (a *Allocator) splitFront(p *pool, remainder int32, size uint64) int32 {
	front := a.newBlock(p, a.blocks[remainder].address, size)
	a.link(front, a.blocks[remainder].prev, remainder)
	a.blocks[remainder].address += size
	a.blocks[remainder].size -= size
	return front
}

// merge takes a neighbour into a block that is itself in no list, where the neighbour is not
// allocated and both or neither have memory behind them.
func (a *Allocator) merge(p *pool, into, neighbour int32) {
	if !a.joins(into, neighbour) {
		return
	}
	if a.blocks[neighbour].mapped {
		a.removeFree(p, neighbour)
	} else {
		p.removeUnmapped(a.blocks, neighbour)
	}
	a.absorb(into, neighbour)
}

// joins reports whether a block merges with a neighbour, which may be 0.
func (a *Allocator) joins(into, neighbour int32) bool {
	n := &a.blocks[neighbour]
	return neighbour != 0 && !n.allocated && n.mapped == a.blocks[into].mapped
}

// absorb makes a neighbour that is in no list part of a block.
func (a *Allocator) absorb(into, neighbour int32) {
	b, n := &a.blocks[into], &a.blocks[neighbour]
	b.size += n.size
	if b.prev == neighbour {
		b.address = n.address
		if b.prev = n.prev; b.prev != 0 {
			a.blocks[b.prev].next = into
		}
	} else if b.next = n.next; b.next != 0 {
		a.blocks[b.next].prev = into
	}
	a.dropBlock(neighbour)
}
