package allocator

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
