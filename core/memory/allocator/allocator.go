// Package allocator simulates the native CUDA caching allocator of PyTorch for one stream: what it
// would reserve from the device, to the byte, for a sequence of allocations and frees. It holds no
// memory of its own, only the bookkeeping.
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp; docs/memory-model.md describes them,
// and how they were checked against PyTorch's own. Out of scope: several streams and their events,
// private pools (CUDA graphs, MemPool), IPC, the backend cudaMallocAsync, and
// PYTORCH_NO_CUDA_MEMORY_CACHING, with which every tensor is a cudaMalloc of its own.
//
// Addresses rise with every segment and are never used twice. Best fit prefers the lower address
// among free blocks of one size, so the choice between segments follows their age. From PyTorch
// 2.13 on that is the rule itself (a counter of the segment comes before the address); up to 2.11
// the driver's addresses decided, which rise mostly but not always, and 2.12 alone goes by the age
// of each block.
//
// An Allocator is not safe for use by several goroutines at once.
package allocator

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Sizes of c10/core/AllocatorConfig.h, in bytes.
const (
	mib           = 1 << 20
	minBlock      = 512      // every size is a multiple of it, and no smaller piece is split off
	maxSmall      = 1 * mib  // up to here a request belongs to the small pool
	smallSegment  = 2 * mib  // segment, and page of an expandable segment, of the small pool
	minLargeAlloc = 10 * mib // from here on a request gets a segment of its own
	roundLarge    = 2 * mib  // such a segment is a multiple of it
	tooLarge      = 1 << 60  // requests from 1 EiB on are refused without a search
	lastAddress   = 1 << 63  // beyond it no segment starts
)

// Block is an allocation as Malloc hands it out. The zero Block is an allocation of 0 bytes;
// freeing it does nothing, as with a null pointer.
type Block struct {
	index      int32
	generation uint32
}

// Allocator is the state of one device's caching allocator.
type Allocator struct {
	Watch func(Change) // called after each change, nil for none

	settings    Settings
	maxSplit    uint64 // blocks from this size on are not split; the largest number when unlimited
	allowed     uint64 // what the memory fraction allows, the largest number when it allows all
	collects    bool   // garbage collection is on
	blocks      []block
	unused      []int32 // indices of blocks that may be used again
	small       pool
	large       pool
	nextAddress uint64
	stats       Stats
}

// New makes an allocator that has reserved nothing yet.
func New(settings Settings) *Allocator {
	settings = settings.filled()
	a := &Allocator{settings: settings, maxSplit: settings.MaxSplitSize,
		allowed: settings.allowed(), blocks: make([]block, 1, 4096), nextAddress: smallSegment,
		small: pool{small: true, page: smallSegment}, large: pool{page: settings.LargeSegmentSize}}
	a.collects = a.allowed != unlimited && settings.GarbageCollectionThreshold > 0
	return a
}

// Settings of the allocator, with their defaults.
func (a *Allocator) Settings() Settings { return a.settings }

// Wanted is the number of bytes that PyTorch's out-of-memory error names when a request fails: of
// the segment that it needs.
func (a *Allocator) Wanted(bytes uint64) uint64 {
	return a.settings.segmentSize(a.settings.roundSize(bytes))
}

// Malloc finds room for a number of bytes, as cudaMalloc would be called for through the cache. It
// fails with *OutOfMemory; the state is then as PyTorch leaves it, with the cache given back to the
// device.
func (a *Allocator) Malloc(bytes uint64) (Block, error) {
	if bytes == 0 {
		return Block{}, nil
	}
	if bytes >= tooLarge {
		return Block{}, a.outOfMemory(bytes, bytes)
	}
	size := a.settings.roundSize(bytes)
	p := a.pool(size <= maxSmall)
	index := a.takeFree(p, size)
	if index == 0 {
		if index = a.grow(p, size); index == 0 {
			return Block{}, a.outOfMemory(bytes, a.settings.segmentSize(size))
		}
		if a.shouldSplit(p, a.blocks[index].size-size, size) {
			remainder := index
			index = a.splitFront(p, remainder, size)
			a.addFree(p, remainder)
		}
	}
	b := &a.blocks[index]
	b.allocated, b.requested = true, bytes
	a.stats.allocate(b.size, bytes)
	a.changed(Allocated, b.address, bytes)
	return Block{index: index, generation: b.generation}, nil
}

// Free returns a block to the cache, merged with its free neighbours. A block that was freed
// before changes nothing and returns an error; callers whose events are known to be paired may
// ignore it. A block of another allocator is not always detected.
func (a *Allocator) Free(handle Block) error {
	if handle == (Block{}) {
		return nil
	}
	if handle.index <= 0 || int(handle.index) >= len(a.blocks) ||
		!a.blocks[handle.index].owns(handle) {
		return fault.New(fault.InvalidArgument,
			"free every block once, on the allocator that made it",
			"freeing a block that is not allocated")
	}
	b := &a.blocks[handle.index]
	a.stats.free(b.size, b.requested)
	a.changed(Freed, b.address, b.requested)
	b.allocated, b.requested = false, 0
	b.generation++
	a.putBack(a.pool(b.small), handle.index)
	return nil
}

func (a *Allocator) pool(small bool) *pool {
	if small {
		return &a.small
	}
	return &a.large
}

// shouldSplit reports whether what remains of a block beyond size goes back to the pool. In the
// large pool a rest of up to 1 MiB stays with the allocation and counts as allocated.
func (a *Allocator) shouldSplit(p *pool, remaining, size uint64) bool {
	if p.small || a.settings.ExpandableSegments {
		return remaining >= minBlock
	}
	return size < a.maxSplit && remaining > maxSmall
}

// OutOfMemory is the failure of an allocation. Sizes are bytes.
type OutOfMemory struct {
	Wanted    uint64 // what the caller asked for
	Segment   uint64 // what was asked of the device for it
	Reserved  uint64 // held by the allocator, after it gave its cache back
	Allocated uint64 // of that, in live blocks
}

func (e *OutOfMemory) Error() string {
	return fmt.Sprintf("out of memory: %d bytes wanted, a segment of %d bytes needed; %d bytes "+
		"are reserved, %d of them allocated",
		e.Wanted, e.Segment, e.Reserved, e.Allocated)
}

func (a *Allocator) outOfMemory(wanted, segment uint64) error {
	a.stats.OOMs++
	return &OutOfMemory{Wanted: wanted, Segment: segment, Reserved: a.stats.Reserved,
		Allocated: a.stats.Allocated}
}
