package memory

import (
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
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
	Events   SnapshotEvents    `json:"events"`   //
	LeftOut  int               `json:"left_out"` // events before these that were not kept
	Segments []SnapshotSegment `json:"segments"` // at the end, by address
	Settings SnapshotSettings  `json:"settings"` //
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
	Address []uint64 `json:"address"` //
	Bytes   []uint64 `json:"bytes"`   // of blocks: as asked for, without rounding
	Stack   []int32  `json:"stack"`   // of a free: of what is freed
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

func (r SnapshotRequest) check() error {
	if r.Most < 0 || r.Most > maxSnapshotEvents {
		return outOfRange("most is %d; the range is 0 to %d", r.Most, maxSnapshotEvents)
	}
	return nil
}

// Snapshot replays a few steps and writes down what the allocator does.
func (m *Model) Snapshot(r SnapshotRequest) (Snapshot, error) {
	settings, err := settingsOf(r.Settings, r.LimitBytes, r.DeviceBytes)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return Snapshot{}, err
	}
	plan, err := m.plan(r.Request)
	if err != nil {
		return Snapshot{}, err
	}
	limit := r.Most
	if limit == 0 {
		limit = defaultSnapshotEvents
	}
	p, l := replay.New(m.templates.Variables, settings, r.GPU), newEventLog(m, limit)
	p.Allocating, p.Allocator.Watch = l.allocating, l.changed
	full, err := p.PlayAll(plan)
	if err != nil {
		return Snapshot{}, err
	}
	s := l.snapshot(p.Allocator.Segments())
	s.Settings = snapshotSettings(settings)
	if full != nil {
		s.OutOfMemory = m.outOfMemory(full)
	}
	return s, nil
}

func snapshotSettings(s allocator.Settings) SnapshotSettings {
	out := SnapshotSettings{s.ExpandableSegments, -1, s.GarbageCollectionThreshold}
	if s.MaxSplitSize > 0 {
		out.MaxSplitSize = int64(s.MaxSplitSize)
	}
	return out
}
