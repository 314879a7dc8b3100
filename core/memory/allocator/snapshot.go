package allocator

import (
	"cmp"
	"slices"
)

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
