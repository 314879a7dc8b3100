package analytic

import (
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
)

// simulator follows the allocations and frees of a tracker in PyTorch's caching allocator.
type simulator struct {
	alloc  *allocator.Allocator
	blocks []allocator.Block // of each storage
	full   *peak.OutOfMemory
	where  [2]string // segment and phase
}

func (d *simulator) allocateRow(r *row, module, op string) {
	var b allocator.Block
	if d.full == nil {
		var err error
		if b, err = d.alloc.Malloc(uint64(r.bytes())); err != nil {
			s := d.alloc.Stats()
			d.full = &peak.OutOfMemory{Segment: d.where[0], Phase: d.where[1], Op: op, Module: module,
				Wanted: uint64(r.bytes()), Reserved: s.Reserved, Allocated: s.Allocated}
		}
	}
	d.blocks = append(d.blocks, b)
}

func (d *simulator) free(at int32) {
	if d.full == nil {
		_ = d.alloc.Free(d.blocks[at]) // a tracker frees what it allocated, once
	}
}
