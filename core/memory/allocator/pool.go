package allocator

import (
	"cmp"
	"slices"
)

// pool is the small or the large half of the cache.
type pool struct {
	free     freeLists
	unmapped []int32 // blocks without memory behind them, in the order of their addresses
	searches uint64  // for the age of blocks; counted only where garbage is collected
	page     uint64  // what an expandable segment grows by
	small    bool
}

// putBack returns a block that is no longer allocated back to the pool, merged with its free
// neighbours, replacing one of them if there is one.
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
	a.absorb(neighbour, index)
	a.moveFree(p, neighbour)
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
	if !a.shouldSplit(p, a.blocks[index].size-size, size) {
		a.removeFree(p, index)
		return index
	}
	front := a.splitFront(p, index, size)
	a.moveFree(p, index)
	return front
}

// bestFit finds the smallest block that is large enough, the one at the lowest address among
// equals; 0 for none. When the rules of max_split_size reject it, no other is tried.
func (a *Allocator) bestFit(p *pool, size uint64) int32 {
	index := a.atLeast(p, size)
	if index == 0 {
		return 0
	}
	if a.settings.ExpandableSegments {
		index = a.skipGrowing(p, index)
	}
	switch fit := a.blocks[index].size; {
	case size < a.maxSplit && fit >= a.maxSplit: // an oversize block is kept for oversize requests
		return 0
	case size >= a.maxSplit && fit >= size+a.settings.MaxNonSplitRounding:
		return 0 // it would waste more than the rounding
	}
	return index
}

// skipGrowing prefers holes of fixed size to the growing end of an expandable segment, which counts
// with all the address space after it: it moves on while the next block is smaller in that measure.
func (a *Allocator) skipGrowing(p *pool, index int32) int32 {
	for {
		next := a.nextFree(p, index)
		if next == 0 || a.growable(next) >= a.growable(index) {
			return index
		}
		index = next
	}
}

func (a *Allocator) growable(index int32) uint64 {
	b := &a.blocks[index]
	if b.next != 0 && !a.blocks[b.next].mapped {
		return b.size + a.blocks[b.next].size
	}
	return b.size
}

// unmappedAt is the place of a block among the unmapped ones.
func (p *pool) unmappedAt(blocks []block, index int32) int {
	i, _ := slices.BinarySearchFunc(p.unmapped, blocks[index].address,
		func(other int32, address uint64) int { return cmp.Compare(blocks[other].address, address) })
	return i
}

func (p *pool) addUnmapped(blocks []block, index int32) {
	p.unmapped = slices.Insert(p.unmapped, p.unmappedAt(blocks, index), index)
}

func (p *pool) removeUnmapped(blocks []block, index int32) {
	i := p.unmappedAt(blocks, index)
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
	prev, next int32 // neighbours in the segment, 0 when there is none
	// of a free block: its class, and its neighbours in the list of that, 0 when there is none
	class, prevFree, nextFree int32

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
