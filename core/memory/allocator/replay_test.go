package allocator

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func TestReplay(t *testing.T) {
	limit := uint64(40 * mib)
	got, err := Replay(Sequence{
		Events:     []int64{30 * mib, 1, -1, 25 * mib, -3, -2},
		EmptyCache: []int{4, 5, 6}, LimitBytes: &limit,
	})
	require.NoError(t, err)
	require.Equal(t, Replayed{
		Reserved:  []uint64{30 * mib, 32 * mib, 32 * mib, 32 * mib, 32 * mib, 2 * mib},
		Allocated: []uint64{30 * mib, 30*mib + 512, 512, 25*mib + 512, 512, 0},
		Failed:    []int{},
		Stats:     Stats{PeakAllocated: 30*mib + 512, PeakRequested: 30*mib + 1, PeakReserved: 32 * mib},
		Segments:  []Segment{},
	}, got)
}

func TestReplayOutOfMemory(t *testing.T) {
	limit, total := uint64(1<<40), uint64(80*mib)
	got, err := Replay(Sequence{
		Events: []int64{50 * mib, -1, 30 * mib, 20 * mib, -3}, LimitBytes: &limit, DeviceTotalBytes: &total,
		Settings: "per_process_memory_fraction:0.5",
	})
	require.NoError(t, err)
	require.Equal(t, []int{0, 3}, got.Failed)
	require.Equal(t, uint64(30*mib), got.Stats.Reserved)
	require.Len(t, got.Segments, 1)
}

func TestReplayRefuses(t *testing.T) {
	zero := uint64(0)
	for message, sequence := range map[string]Sequence{
		"event 0 frees storage 0":                   {Events: []int64{-1}},
		"event 2 frees storage 0":                   {Events: []int64{1, -1, -1}},
		"event 1 frees storage 9223372036854775807": {Events: []int64{1, math.MinInt64}},
		"increasing indices from 0 to 1":            {Events: []int64{1}, EmptyCache: []int{1, 0}},
		"indices from 0 to 1":                       {Events: []int64{1}, EmptyCache: []int{2}},
		"from 0 to 1":                               {Events: []int64{1}, EmptyCache: []int{-1}},
		"device of 0 bytes":                         {LimitBytes: &zero},
		"unknown allocator setting":                 {Settings: "a:b"},
	} {
		_, err := Replay(sequence)
		require.ErrorContains(t, err, message)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
	}
}
