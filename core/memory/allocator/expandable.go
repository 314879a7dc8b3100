package allocator

// unboundedRange is the address space of an expandable segment on a device of unknown size.
const unboundedRange = 1 << 42

// allocateExpandable maps pages behind the first run of free and unmapped blocks that is long
// enough, and takes the block that this gives. What was mapped before a failure stays, as free
// memory.
func (a *Allocator) allocateExpandable(p *pool, size uint64) int32 {
	candidate := a.expandableRun(p, size)
	if candidate == 0 {
		return 0
	}
	if !a.blocks[candidate].mapped && !a.mapPages(p, candidate,
		min(size, a.blocks[candidate].size)) {
		return 0
	}
	for a.blocks[candidate].size < size {
		next := a.blocks[candidate].next
		if !a.mapPages(p, next, min(size-a.blocks[candidate].size, a.blocks[next].size)) {
			return 0
		}
		candidate = next // it has taken the free block before it in
	}
	a.removeFree(p, candidate)
	return candidate
}

// expandableRun returns the first block of the run at the lowest address: an unmapped block or the
// free block before one. It makes a new segment where no run is long enough.
func (a *Allocator) expandableRun(p *pool, size uint64) int32 {
	for _, index := range p.unmapped {
		if before := a.blocks[index].prev; before != 0 && !a.blocks[before].allocated {
			index = before
		}
		if a.hasRoom(index, size) {
			return index
		}
	}
	reach := a.expandableRange(p)
	if size > reach || reach > a.addressesLeft() {
		return 0
	}
	candidate := a.newBlock(p, a.addresses(reach, p.page), reach)
	a.blocks[candidate].mapped = false
	p.addUnmapped(a.blocks, candidate)
	return candidate
}

func (a *Allocator) hasRoom(index int32, size uint64) bool {
	room := uint64(0)
	for ; room < size && index != 0 && !a.blocks[index].allocated; index = a.blocks[index].next {
		room += a.blocks[index].size
	}
	return room >= size
}

// expandableRange is the address space of one expandable segment: 1 1/8 of the device's memory, in
// whole pages.
func (a *Allocator) expandableRange(p *pool) uint64 {
	size := uint64(unboundedRange)
	if total := a.settings.DeviceTotal; total > 0 {
		size = total + total/8
	}
	return (size + p.page - 1) / p.page * p.page
}

// mapPages puts memory behind the first size bytes of an unmapped block, rounded up to pages, all
// or nothing.
func (a *Allocator) mapPages(p *pool, index int32, size uint64) bool {
	size = (size + p.page - 1) / p.page * p.page
	if !a.reserve(size) {
		return false
	}
	p.removeUnmapped(a.blocks, index)
	if remainder := a.blocks[index].size - size; remainder > 0 {
		after := a.newBlock(p, a.blocks[index].address+size, remainder)
		a.blocks[after].mapped = false
		a.link(after, index, a.blocks[index].next)
		p.addUnmapped(a.blocks, after)
		a.blocks[index].size = size
	}
	a.blocks[index].mapped = true
	a.changed(SegmentMapped, a.blocks[index].address, size)
	a.merge(p, index, a.blocks[index].prev)
	a.merge(p, index, a.blocks[index].next)
	a.addFree(p, index)
	return true
}

// unmap takes the memory from the pages that lie wholly inside a free block; what is left on either
// side stays free.
func (a *Allocator) unmap(p *pool, index int32) {
	b := a.blocks[index]
	begin := (b.address + p.page - 1) / p.page * p.page
	end := (b.address + b.size) / p.page * p.page
	if begin >= end {
		return
	}
	a.removeFree(p, index)
	if begin > b.address {
		before := a.newBlock(p, b.address, begin-b.address)
		a.link(before, b.prev, index)
		a.addFree(p, before)
	}
	if end < b.address+b.size {
		after := a.newBlock(p, end, b.address+b.size-end)
		a.link(after, index, b.next)
		a.addFree(p, after)
	}
	a.blocks[index].address, a.blocks[index].size, a.blocks[index].mapped = begin, end-begin, false
	a.stats.Reserved -= end - begin
	a.changed(SegmentUnmapped, begin, end-begin)
	a.merge(p, index, a.blocks[index].prev)
	a.merge(p, index, a.blocks[index].next)
	if a.blocks[index].split() {
		p.addUnmapped(a.blocks, index)
	} else {
		// nothing of the segment is mapped any more, and its address space goes too
		a.dropBlock(index)
	}
}
