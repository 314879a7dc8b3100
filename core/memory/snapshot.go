package memory

import (
	"cmp"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

// SnapshotRequest asks for the events of the run that Simulate plays for the same request, instead
// of its figures.
type SnapshotRequest struct {
	Request
	Most int `json:"most"` // events to keep, the newest, up to 1 000 000; 0 or absent: 200 000
}

const (
	maxSnapshotEvents     = 1_000_000
	defaultSnapshotEvents = 200_000
)

// Snapshot is a run as PyTorch's snapshots of its allocator have one: what happened, and what is
// there at the end. Sizes are bytes, addresses those of the simulation. Columns of one record are
// as long as each other.
type Snapshot struct {
	Names []string `json:"names"` // that stacks point into
	// different ones, that events and blocks point into
	Stacks   SnapshotStacks    `json:"stacks"`
	Events   SnapshotEvents    `json:"events"`
	LeftOut  int               `json:"left_out"` // events before these that were not kept
	Segments []SnapshotSegment `json:"segments"` // at the end, by address
	Settings SnapshotSettings  `json:"settings"`
	// where the run ends; null when it does not
	OutOfMemory *peak.OutOfMemory `json:"out_of_memory"`
}

// SnapshotStacks are columns of indices into the names: where storages were allocated, and what
// for.
type SnapshotStacks struct {
	Op        []int32 `json:"op"`
	Module    []int32 `json:"module"`
	Segment   []int32 `json:"segment"` // kind of segment
	Phase     []int32 `json:"phase"`
	Component []int32 `json:"component"`
}

// SnapshotEvents are columns.
type SnapshotEvents struct {
	// 0 alloc, 1 free, 2 segment_alloc, 3 segment_free, 4 segment_map, 5 segment_unmap
	Action  []int    `json:"action"`
	Address []uint64 `json:"address"`
	Bytes   []uint64 `json:"bytes"` // of blocks: as asked for, without rounding
	Stack   []int32  `json:"stack"` // of a free: of what is freed
	// likewise: optimizer step or evaluation batch, from 1; 0 before the first
	Step []int32 `json:"step"`
}

// SnapshotSegment is a segment and, in columns, its blocks in the order of their addresses, without
// gaps.
type SnapshotSegment struct {
	Address    uint64   `json:"address"`
	Bytes      uint64   `json:"bytes"`
	Small      bool     `json:"small"` // of the pool for requests up to 1 MiB
	Expandable bool     `json:"expandable"`
	Stack      int32    `json:"stack"` // that first needed it
	Step       int32    `json:"step"`
	Sizes      []uint64 `json:"sizes"`
	Requested  []uint64 `json:"requested"` // 0 when free
	Stacks     []int32  `json:"stacks"`    // -1 when free
	Steps      []int32  `json:"steps"`     // 0 when free
}

// SnapshotSettings are those that PyTorch's snapshots name.
type SnapshotSettings struct {
	ExpandableSegments         bool    `json:"expandable_segments"`
	MaxSplitSize               int64   `json:"max_split_size"`               // bytes; -1: no limit
	GarbageCollectionThreshold float64 `json:"garbage_collection_threshold"` // 0: none
}

// Snapshot replays a few steps and writes down what the allocator does.
func (m *Model) Snapshot(r SnapshotRequest) (Snapshot, error) {
	if err := fault.InRange("most", r.Most, 0, maxSnapshotEvents); err != nil {
		return Snapshot{}, err
	}
	p, plan, err := m.player(r.Request)
	if err != nil {
		return Snapshot{}, err
	}
	l := &eventLog{model: m, limit: cmp.Or(r.Most, defaultSnapshotEvents),
		live: map[uint64]origin{}, takenBy: map[uint64]origin{}}
	p.Allocating, p.Allocator.Watch = l.allocating, l.changed
	full, err := p.PlayAll(plan)
	if err != nil {
		return Snapshot{}, err
	}
	s := l.snapshot(p.Allocator.Segments())
	settings := p.Allocator.Settings() // whose largest number, for no limit, becomes -1
	s.Settings = SnapshotSettings{settings.ExpandableSegments, int64(settings.MaxSplitSize),
		settings.GarbageCollectionThreshold}
	if full != nil {
		s.OutOfMemory = m.outOfMemory(full)
	}
	return s, nil
}

// eventLog writes a snapshot while a run is replayed.
type eventLog struct {
	model   *Model
	limit   int
	events  []event
	total   int // of all events, those that were not kept included
	current origin
	stacks  numbered[stack]
	names   numbered[string]
	live    map[uint64]origin // of allocated blocks, by address
	takenBy map[uint64]origin // of what first needed segments or pages, by address
}

// stack is a row of SnapshotStacks.
type stack struct{ op, module, segment, phase, component int32 }

// origin is where something was allocated. Steps are not in the stacks, which would grow with a
// run.
type origin struct{ stack, step int32 }

type event struct {
	allocator.Change
	origin
}

// allocating notes what is allocated next.
func (l *eventLog) allocating(s replay.Segment, storage int32, component uint8) {
	place := l.model.place(s.Template, storage)
	number := l.stacks.of(stack{op: l.names.of(place.Op), module: l.names.of(place.Module),
		segment: l.names.of(place.Segment), phase: l.names.of(place.Phase),
		component: l.names.of(l.model.templates.Components[component])})
	l.current = origin{number, int32(stepOf(s.Position))}
}

// stepOf counts evaluations, whose windows follow a training's, from 1, too.
func stepOf(p template.Position) int {
	switch p.Role {
	case template.Load:
		return 0
	case template.Evaluate, template.Generate:
		return p.Window
	default:
		return p.Window + 1
	}
}

// changed records an event. When there are twice as many as are kept, the older half is dropped.
func (l *eventLog) changed(c allocator.Change) {
	from := l.current
	switch c.Action {
	case allocator.Allocated:
		l.live[c.Address] = from
	case allocator.Freed:
		from = l.live[c.Address]
		delete(l.live, c.Address)
	case allocator.SegmentAllocated, allocator.SegmentMapped:
		l.takenBy[c.Address] = from
	case allocator.SegmentFreed, allocator.SegmentUnmapped:
	}
	if len(l.events) == 2*l.limit {
		l.events = append(l.events[:0], l.events[l.limit:]...)
	}
	l.events = append(l.events, event{c, from})
	l.total++
}

// snapshot returns the newest events in columns, and what is there after them.
func (l *eventLog) snapshot(segments []allocator.Segment) Snapshot {
	events := l.events[max(len(l.events)-l.limit, 0):]
	n, m := len(events), len(l.stacks.values)
	s := Snapshot{Names: append([]string{}, l.names.values...), LeftOut: l.total - n,
		Stacks: SnapshotStacks{make([]int32, m), make([]int32, m), make([]int32, m),
			make([]int32, m), make([]int32, m)},
		Events: SnapshotEvents{make([]int, n), make([]uint64, n), make([]uint64, n),
			make([]int32, n), make([]int32, n)},
		Segments: make([]SnapshotSegment, len(segments))}
	for i, k := range l.stacks.values {
		c := &s.Stacks
		c.Op[i], c.Module[i], c.Segment[i] = k.op, k.module, k.segment
		c.Phase[i], c.Component[i] = k.phase, k.component
	}
	for i, e := range events {
		s.Events.Action[i], s.Events.Address[i], s.Events.Bytes[i] =
			int(e.Action), e.Address, e.Bytes
		s.Events.Stack[i], s.Events.Step[i] = e.stack, e.step
	}
	for i, segment := range segments {
		s.Segments[i] = l.segment(segment)
	}
	return s
}

func (l *eventLog) segment(from allocator.Segment) SnapshotSegment {
	n, first := len(from.Blocks), l.takenBy[from.Address]
	s := SnapshotSegment{Address: from.Address, Bytes: from.Size, Small: from.Small,
		Expandable: from.Expandable, Stack: first.stack, Step: first.step,
		Sizes: make([]uint64, n), Requested: make([]uint64, n), Stacks: make([]int32, n),
		Steps: make([]int32, n)}
	address := from.Address
	for i, b := range from.Blocks {
		s.Sizes[i], s.Requested[i], s.Stacks[i] = b.Size, b.Requested, -1
		if b.Allocated {
			s.Stacks[i], s.Steps[i] = l.live[address].stack, l.live[address].step
		}
		address += b.Size
	}
	return s
}
