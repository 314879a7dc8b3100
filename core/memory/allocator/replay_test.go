package allocator

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
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

// FuzzEvents turns bytes into settings and events: the seed draws the settings, every three bytes
// are an event. Whatever comes, the invariants hold and the slow version agrees.
func FuzzEvents(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 2, 200, 0, 0, 100, 255, 255, 255, 1, 1})
	f.Add(uint64(7), make([]byte, 90))
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		data = data[:min(len(data), 3*300)] // the slow version is
		settings := randomSettings(rand.New(rand.NewPCG(seed, 3)))
		a, slow := New(settings), newReference(settings)
		var live []Block
		var mirror []*refPiece
		for ; len(data) >= 3; data = data[3:] {
			number := uint64(binary.LittleEndian.Uint16(data[1:]))
			switch kind := data[0]; {
			case kind == 255:
				a.EmptyCache()
				slow.empty()
			case kind > 127 && len(live) > 0:
				i := int(number) % len(live)
				require.NoError(t, a.Free(live[i]))
				require.Error(t, a.Free(live[i]))
				slow.free(mirror[i])
				live, mirror = append(live[:i], live[i+1:]...), append(mirror[:i], mirror[i+1:]...)
			default:
				size := (number + 1) << (kind % 16)
				block, err := a.Malloc(size)
				piece, ok := slow.malloc(size)
				require.Equal(t, ok, err == nil)
				if ok {
					live, mirror = append(live, block), append(mirror, piece)
				}
			}
			require.Equal(t, slow.reserved(), a.Stats().Reserved)
			require.Equal(t, slow.allocated, a.Stats().Allocated)
		}
		checkInvariants(t, a)
	})
}
