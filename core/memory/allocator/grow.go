package allocator

import "slices"

// grow takes memory from the device, after returning cached memory to it if necessary. It returns a
// block of at least size bytes that is in no list, 0 when all fails.
func (a *Allocator) grow(p *pool, size uint64) int32 {
	if a.collects {
		a.collectGarbage()
	}
	segment := a.settings.segmentSize(size)
	if a.rejected(segment) {
		return 0
	}
	if index := a.allocate(p, size, segment); index != 0 {
		return index
	}
	if a.releaseAvailable(p, size) {
		if index := a.allocate(p, size, segment); index != 0 {
			return index
		}
	}
	if a.settings.KeepCache {
		return 0
	}
	a.EmptyCache()
	a.stats.Retries++
	return a.allocate(p, size, segment)
}

// rejected reports whether throw_on_cudamalloc_oom fails the request before anything is tried:
// where reserved memory would outgrow the device. With a fraction below 1 its own limit comes
// first.
func (a *Allocator) rejected(segment uint64) bool {
	return a.settings.ThrowOnCudaMallocOOM && a.settings.DeviceTotal > 0 &&
		a.allowed == unlimited &&
		a.stats.Reserved+segment > a.settings.DeviceTotal
}

// allocate makes one attempt: a segment by cudaMalloc, or pages of an expandable segment.
func (a *Allocator) allocate(p *pool, size, segment uint64) int32 {
	if a.stats.Reserved+segment > a.allowed {
		return 0
	}
	if a.settings.ExpandableSegments {
		return a.allocateExpandable(p, size)
	}
	if a.addressesLeft() < segment || !a.reserve(segment) {
		return 0
	}
	a.stats.Segments++
	address := a.addresses(segment, smallSegment)
	a.changed(SegmentAllocated, address, segment)
	return a.newBlock(p, address, segment)
}

// reserve takes memory of the device, which has no more than Limit bytes to give.
func (a *Allocator) reserve(bytes uint64) bool {
	if a.settings.Limit > 0 && a.stats.Reserved+bytes > a.settings.Limit {
		return false
	}
	a.stats.Reserved += bytes
	a.stats.PeakReserved = max(a.stats.PeakReserved, a.stats.Reserved)
	return true
}

// addressesLeft is how much more address space may be reserved, with room for its alignment.
func (a *Allocator) addressesLeft() uint64 { return lastAddress - min(a.nextAddress, lastAddress) }

// addresses hands out address space that was never used before.
func (a *Allocator) addresses(size, alignment uint64) uint64 {
	start := (a.nextAddress + alignment - 1) / alignment * alignment
	a.nextAddress = start + size
	return start
}

// EmptyCache returns to CUDA every segment that is one free block, and every whole page of a free
// block in an expandable segment; the large pool first (torch.cuda.empty_cache).
func (a *Allocator) EmptyCache() {
	for _, p := range []*pool{&a.large, &a.small} {
		for _, index := range a.freeBlocks(p) {
			switch b := &a.blocks[index]; {
			case b.expandable:
				a.unmap(p, index)
			case !b.split():
				a.release(p, index)
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
	if index := a.atLeast(p, wanted); index != 0 {
		a.release(p, index)
		return true
	}
	released := uint64(0)
	for _, index := range slices.Backward(a.freeBlocks(p)) {
		size := a.blocks[index].size
		if released >= wanted || size < a.maxSplit {
			break
		}
		released += size
		a.release(p, index)
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
	age := func(index int32) uint64 { return a.large.searches - a.blocks[index].sinceCall }
	candidates := slices.DeleteFunc(a.freeBlocks(&a.large), func(index int32) bool {
		return a.blocks[index].split()
	})
	for freed := true; freed && a.stats.Reserved > threshold; {
		ages, before := uint64(0), len(candidates)
		for _, index := range candidates {
			ages += age(index)
		}
		candidates = slices.DeleteFunc(candidates, func(index int32) bool {
			young := float64(age(index)) < float64(ages)/float64(before)
			if young || a.blocks[index].expandable {
				return false
			}
			a.release(&a.large, index)
			return true
		})
		freed = len(candidates) < before
	}
}

// unboundedRange is the address space of an expandable segment on a device of unknown size.
const unboundedRange = 1 << 42

// allocateExpandable maps pages after the first run of free and unmapped blocks that is long
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
