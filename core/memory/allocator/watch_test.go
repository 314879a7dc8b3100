package allocator

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// ledger adds up what a watcher is told.
type ledger struct {
	blocks, segments map[uint64]uint64 // bytes by address
	allocated        uint64
	reserved         uint64
	seen             [SegmentUnmapped + 1]int
}

func (l *ledger) changed(t *testing.T) func(Change) {
	return func(c Change) {
		l.seen[c.Action]++
		switch c.Action {
		case Allocated:
			require.NotContains(t, l.blocks, c.Address)
			l.blocks[c.Address] = c.Bytes
			l.allocated += c.Bytes
		case Freed:
			require.Equal(t, l.blocks[c.Address], c.Bytes)
			delete(l.blocks, c.Address)
			l.allocated -= c.Bytes
		case SegmentAllocated:
			l.segments[c.Address] = c.Bytes
			l.reserved += c.Bytes
		case SegmentFreed:
			require.Equal(t, l.segments[c.Address], c.Bytes)
			delete(l.segments, c.Address)
			l.reserved -= c.Bytes
		case SegmentMapped:
			l.reserved += c.Bytes
		case SegmentUnmapped:
			l.reserved -= c.Bytes
		}
	}
}

func TestWatchedChangesAddUpToTheFigures(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var counts [SegmentUnmapped + 1]int
	for range 60 {
		a, l := New(randomSettings(r)), &ledger{blocks: map[uint64]uint64{}, segments: map[uint64]uint64{}}
		a.Watch = l.changed(t)
		var live []Block
		for range 300 {
			switch n := r.IntN(20); {
			case n == 0:
				a.EmptyCache()
			case n < 12 || len(live) == 0:
				if b, err := a.Malloc(randomSize(r)); err == nil {
					live = append(live, b)
				}
			default:
				i := r.IntN(len(live))
				require.NoError(t, a.Free(live[i]))
				live = append(live[:i], live[i+1:]...)
			}
			require.Equal(t, a.Stats().Requested, l.allocated)
			require.Equal(t, a.Stats().Reserved, l.reserved)
		}
		for i, n := range l.seen {
			counts[i] += n
		}
		checkAddresses(t, a, l)
	}
	for action, n := range counts {
		require.NotZero(t, n, "action %d", action)
	}
}

// checkAddresses holds the blocks that are there against those that were told of.
func checkAddresses(t *testing.T, a *Allocator, l *ledger) {
	t.Helper()
	sizes := map[uint64]uint64{}
	for _, s := range a.Segments() {
		address := s.Address
		for _, b := range s.Blocks {
			if b.Allocated {
				sizes[address] = b.Requested
			}
			address += b.Size
		}
	}
	require.Equal(t, l.blocks, sizes)
}
