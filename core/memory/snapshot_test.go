package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

func snapshotted(t *testing.T, m *Model, r SnapshotRequest) Snapshot {
	t.Helper()
	s, err := m.Snapshot(r)
	require.NoError(t, err)
	return s
}

// walked are the peaks and the last figures of a snapshot's events.
func walked(s Snapshot) (peakRequested, peakReserved, requested, reserved uint64) {
	for i, action := range s.Events.Action {
		bytes := s.Events.Bytes[i]
		switch allocator.Action(action) {
		case allocator.Allocated:
			requested += bytes
		case allocator.Freed:
			requested -= bytes
		case allocator.SegmentAllocated, allocator.SegmentMapped:
			reserved += bytes
		case allocator.SegmentFreed, allocator.SegmentUnmapped:
			reserved -= bytes
		}
		peakRequested, peakReserved = max(peakRequested, requested), max(peakReserved, reserved)
	}
	return peakRequested, peakReserved, requested, reserved
}

func TestSnapshotIsTheRunOfTheEstimate(t *testing.T) {
	m := opened(t, tracetest.Usual(3))
	for _, settings := range []string{"", "expandable_segments:True", "max_split_size_mb:20,garbage_collection_threshold:0.6"} {
		for _, kind := range []string{"train", "evaluate"} {
			r := at(shape(6, 4000, 30))
			r.Settings, r.Kind, r.LimitBytes = settings, kind, ptr[uint64](1<<30)
			estimate := simulated(t, m, r)
			s := snapshotted(t, m, SnapshotRequest{Request: r})
			peakRequested, peakReserved, requested, reserved := walked(s)
			require.Equal(t, estimate.PeakRequested, peakRequested)
			require.Equal(t, estimate.PeakReserved, peakReserved)
			require.Zero(t, s.LeftOut)
			require.Nil(t, s.OutOfMemory)
			allocated, live := uint64(0), uint64(0)
			for _, segment := range s.Segments {
				allocated += segment.Bytes
				size := uint64(0)
				for i, bytes := range segment.Requested {
					size, live = size+segment.Sizes[i], live+bytes
					require.Equal(t, bytes > 0, segment.Stacks[i] >= 0)
				}
				require.Equal(t, segment.Bytes, size)
			}
			require.Equal(t, reserved, allocated)
			require.Equal(t, requested, live)
		}
	}
}

func TestSnapshotTellsWhatEachBlockIsFor(t *testing.T) {
	s := snapshotted(t, opened(t, tracetest.Usual(1)), SnapshotRequest{Request: at(shape(6, 4000, 30))})
	byComponent, steps := map[string]uint64{}, map[int]bool{}
	for _, segment := range s.Segments {
		for i, stack := range segment.Stacks {
			if stack >= 0 {
				byComponent[s.Names[s.Stacks.Component[stack]]] += segment.Requested[i]
			}
		}
	}
	require.Equal(t, uint64(3*tracetest.Width*tracetest.Width*4), byComponent["parameters"])
	freed := map[string]bool{}
	for i, action := range s.Events.Action {
		stack := s.Events.Stack[i]
		steps[int(s.Events.Step[i])] = true
		if allocator.Action(action) == allocator.Freed {
			freed[s.Names[s.Stacks.Segment[stack]]+" "+s.Names[s.Stacks.Phase[stack]]] = true
		}
	}
	require.Equal(t, map[int]bool{0: true, 1: true, 2: true, 3: true}, steps)
	require.True(t, freed["micro forward"], "%v", freed)
	require.False(t, freed["load load"])
}

func TestSnapshotKeepsTheNewestEvents(t *testing.T) {
	m, r := opened(t, tracetest.Usual(1)), at(shape(6, 4000, 30))
	full := snapshotted(t, m, SnapshotRequest{Request: r})
	all := len(full.Events.Action)
	for _, limit := range []int{1, 7, all / 2, all - 1, all} {
		s := snapshotted(t, m, SnapshotRequest{Request: r, Most: limit})
		require.Equal(t, full.Events.Address[all-limit:], s.Events.Address)
		require.Equal(t, full.Events.Bytes[all-limit:], s.Events.Bytes)
		require.Equal(t, all-limit, s.LeftOut)
		require.Equal(t, full.Segments, s.Segments)
	}
}

func TestStacksDoNotGrowWithTheRun(t *testing.T) {
	m, r := opened(t, tracetest.Usual(1)), at(shape(6, 4000, 30))
	r.Steps = ptr(3)
	few := snapshotted(t, m, SnapshotRequest{Request: r})
	r.Steps = ptr(50)
	many := snapshotted(t, m, SnapshotRequest{Request: r, Most: 10})
	require.Equal(t, few.Stacks, many.Stacks)
	require.Equal(t, few.Names, many.Names)
	require.Equal(t, int32(50), many.Events.Step[9])
}

func TestSnapshotEndsWhereMemoryDoes(t *testing.T) {
	m, r := opened(t, tracetest.Usual(1)), at(shape(64, 4000, 30))
	r.LimitBytes = ptr(simulated(t, m, r).PeakReserved - 1)
	s := snapshotted(t, m, SnapshotRequest{Request: r})
	require.Equal(t, simulated(t, m, r).OutOfMemory, s.OutOfMemory)
	_, highest, _, _ := walked(s)
	require.LessOrEqual(t, highest, *r.LimitBytes)
}
