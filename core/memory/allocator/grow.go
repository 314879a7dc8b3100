package allocator

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
	a.releaseCached()
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
	a.stats.reserve(bytes)
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
