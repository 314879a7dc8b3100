package allocator

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
