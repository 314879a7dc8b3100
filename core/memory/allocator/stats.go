package allocator

import (
	"cmp"
	"slices"
)

// Stats is the state of an allocator in numbers, sizes in bytes. The names are those of
// torch.cuda.memory_stats.
type Stats struct {
	// in live blocks, rounding and unsplit rests included
	Allocated     uint64 `json:"allocated"`
	Requested     uint64 `json:"requested"`      // in live blocks, as callers asked for
	Reserved      uint64 `json:"reserved"`       // taken from the device
	PeakAllocated uint64 `json:"peak_allocated"` // peaks are since the start or the last ResetPeaks
	PeakRequested uint64 `json:"peak_requested"`
	PeakReserved  uint64 `json:"peak_reserved"`
	// attempts after the whole cache was given back (num_alloc_retries)
	Retries uint64 `json:"retries"`
	OOMs    uint64 `json:"ooms"` // allocations that failed
	// from cudaMalloc; expandable segments are not counted, as in PyTorch
	Segments uint64 `json:"segments"`
}

// Stats returns the figures of this moment.
func (a *Allocator) Stats() Stats { return a.stats }

// ResetPeaks lets the peaks start again from what is in use now.
func (a *Allocator) ResetPeaks() {
	s := &a.stats
	s.PeakAllocated, s.PeakRequested, s.PeakReserved = s.Allocated, s.Requested, s.Reserved
}

func (s *Stats) allocate(size, requested uint64) {
	s.Allocated += size
	s.Requested += requested
	s.PeakAllocated = max(s.PeakAllocated, s.Allocated)
	s.PeakRequested = max(s.PeakRequested, s.Requested)
}

func (s *Stats) free(size, requested uint64) {
	s.Allocated -= size
	s.Requested -= requested
}

// Action is a kind of change.
type Action uint8

// What an allocator does. torch.cuda.memory._snapshot calls them alloc, free_requested with
// free_completed, segment_alloc, segment_free, segment_map and segment_unmap.
const (
	Allocated Action = iota
	Freed
	SegmentAllocated
	SegmentFreed
	SegmentMapped
	SegmentUnmapped
)

// Change is an event that a watcher sees. Bytes of a block are those that its caller requested, as
// in PyTorch's own events.
type Change struct {
	Action  Action
	Address uint64 // of the simulation, see Segment
	Bytes   uint64
}

func (a *Allocator) changed(action Action, address, bytes uint64) {
	if a.Watch != nil {
		a.Watch(Change{action, address, bytes})
	}
}

// Segment is memory of the device: what one cudaMalloc gave, or a mapped stretch of an expandable
// segment, as torch.cuda.memory_snapshot lists it. Sizes are bytes.
type Segment struct {
	Address    uint64  `json:"address"` // of the simulation, good for order alone
	Size       uint64  `json:"size"`
	Small      bool    `json:"small"` // of the pool for requests up to 1 MiB
	Expandable bool    `json:"expandable"`
	Blocks     []Piece `json:"blocks"` // in the order of their addresses, without gaps
}

// Piece is a block of a segment.
type Piece struct {
	Size      uint64 `json:"size"`
	Requested uint64 `json:"requested"` // what the caller asked for; 0 when free
	Allocated bool   `json:"allocated"`
}

// Segments lists what is reserved at this moment, by address: how the memory is fragmented.
func (a *Allocator) Segments() []Segment {
	segments := []Segment{}
	for index := range a.blocks {
		b := &a.blocks[index]
		if b.live && b.mapped && (b.prev == 0 || !a.blocks[b.prev].mapped) {
			segments = append(segments, a.segmentFrom(int32(index)))
		}
	}
	slices.SortFunc(segments, func(x, y Segment) int { return cmp.Compare(x.Address, y.Address) })
	return segments
}

// segmentFrom follows the mapped blocks from the first one of a stretch.
func (a *Allocator) segmentFrom(index int32) Segment {
	first := &a.blocks[index]
	s := Segment{Address: first.address, Small: first.small, Expandable: first.expandable}
	for ; index != 0 && a.blocks[index].mapped; index = a.blocks[index].next {
		b := &a.blocks[index]
		s.Size += b.size
		s.Blocks = append(s.Blocks, Piece{Size: b.size, Requested: b.requested,
			Allocated: b.allocated})
	}
	return s
}
