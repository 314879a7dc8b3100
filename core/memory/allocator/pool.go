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
