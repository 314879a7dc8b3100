package allocator

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomSettings draws options that let all rules meet: tight devices, odd limits, every option on
// and off.
func randomSettings(r *rand.Rand) Settings {
	s := Settings{ExpandableSegments: r.IntN(3) == 0}
	if r.IntN(2) == 0 {
		s.Limit = uint64(40+r.IntN(400)) * mib
	}
	if r.IntN(4) == 0 {
		s.LargeSegmentSize = uint64(12+2*r.IntN(20)) * mib
	}
	if r.IntN(3) == 0 {
		s.MaxSplitSize = s.filled().LargeSegmentSize + uint64(r.IntN(60))*mib
		s.MaxNonSplitRounding = uint64(20+r.IntN(30)) * mib
	}
	if r.IntN(3) == 0 {
		for i := range s.RoundupPower2Divisions {
			s.RoundupPower2Divisions[i] = []uint64{0, 1, 2, 4, 8, 32}[r.IntN(6)]
		}
	}
	if r.IntN(2) == 0 {
		fraction := 0.3 + 0.8*r.Float64()
		if fraction <= 1 {
			s.MemoryFraction = &fraction
		}
		s.DeviceTotal = uint64(100+r.IntN(500)) * mib
		s.GarbageCollectionThreshold = float64(r.IntN(2)) * (0.3 + 0.6*r.Float64())
		s.ThrowOnCudaMallocOOM = r.IntN(4) == 0
	}
	return s
}

// randomSize draws small, middle, large and repeated sizes, with the limits of the rules among
// them.
func randomSize(r *rand.Rand) uint64 {
	switch r.IntN(8) {
	case 0, 1:
		return 1 + r.Uint64N(4096)
	case 2:
		return 1 + r.Uint64N(2*mib)
	case 3, 4:
		return mib + r.Uint64N(12*mib)
	case 5:
		return 10*mib + r.Uint64N(60*mib)
	case 6:
		edges := []uint64{511, 512, 513, mib - 1, mib, mib + 1, 10*mib - 512, 10 * mib, 10*mib + 1, 20 * mib, 19 * mib, 19*mib + 512}
		return edges[r.IntN(len(edges))]
	default:
		return uint64(1+r.IntN(30)) * mib
	}
}

// checkInvariants looks at everything that must hold between events.
func checkInvariants(t *testing.T, a *Allocator) {
	t.Helper()
	stats, sum := a.Stats(), Stats{}
	freeBlocks := 0
	for i := range a.blocks {
		b := &a.blocks[i]
		if !b.live {
			continue
		}
		require.Positive(t, b.size)
		require.Zero(t, b.address%minBlock)
		if b.mapped {
			sum.Reserved += b.size
		}
		if b.allocated {
			sum.Allocated += b.size
			sum.Requested += b.requested
			require.LessOrEqual(t, b.requested, b.size)
		} else if b.mapped {
			freeBlocks++
		}
		if b.next != 0 {
			next := &a.blocks[b.next]
			require.True(t, next.live)
			require.Equal(t, int32(i), next.prev)
			require.Equal(t, b.address+b.size, next.address, "blocks tile their segment")
			require.Equal(t, b.small, next.small)
			require.False(t, !b.allocated && !next.allocated && b.mapped == next.mapped, "no two neighbouring free blocks")
		}
	}
	require.Equal(t, sum.Reserved, stats.Reserved)
	require.Equal(t, sum.Allocated, stats.Allocated)
	require.Equal(t, sum.Requested, stats.Requested)
	require.Len(t, append(a.freeBlocks(&a.small), a.freeBlocks(&a.large)...), freeBlocks, "every free block is in its pool")
	require.LessOrEqual(t, stats.Reserved, cmp.Or(a.settings.Limit, uint64(unlimited)))
	if !a.settings.ExpandableSegments {
		// there PyTorch checks the segment's size, and maps whole pages
		require.LessOrEqual(t, stats.Reserved, a.allowed)
	}
}

// agreed are the answers to the sequences of TestSequencesAnswerAsAgreed. They agree with PyTorch's
// allocator (TestAgreesWithPyTorch); after a change that is meant, run that test and write the new
// digest here.
const agreed uint64 = 0x21a396e50c4b8140

// TestSequencesAnswerAsAgreed runs random sequences with random settings.
func TestSequencesAnswerAsAgreed(t *testing.T) {
	digest, seen := fnv.New64a(), [SegmentUnmapped + 1]int{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		a := New(randomSettings(r))
		runRandomly(t, r, a, 400, digest, &seen)
	}
	require.NotContains(t, seen, 0, "each action is met")
	require.Equal(t, agreed, digest.Sum64())
}

// runRandomly writes the figures after each event, and the address of each block. What a watcher is
// told adds up to the figures; seen counts its actions.
func runRandomly(t *testing.T, r *rand.Rand, a *Allocator, events int, answers io.Writer,
	seen *[SegmentUnmapped + 1]int) {
	t.Helper()
	var live []Block
	blocks, reserved := map[uint64]uint64{}, uint64(0) // bytes of blocks by address
	a.Watch = func(c Change) {
		seen[c.Action]++
		switch c.Action {
		case Allocated:
			require.NotContains(t, blocks, c.Address)
			blocks[c.Address] = c.Bytes
		case Freed:
			require.Equal(t, blocks[c.Address], c.Bytes)
			delete(blocks, c.Address)
		case SegmentAllocated, SegmentMapped:
			reserved += c.Bytes
		case SegmentFreed, SegmentUnmapped:
			reserved -= c.Bytes
		}
	}
	for event := range events {
		address := uint64(0)
		switch choice := r.IntN(100); {
		case choice < 2:
			a.EmptyCache()
		case choice < 8:
			if block, err := a.Malloc(randomSize(r)); err == nil {
				require.NoError(t, a.Free(block))
			}
		case choice < 50 || len(live) == 0:
			if block, err := a.Malloc(randomSize(r)); err == nil {
				live, address = append(live, block), a.blocks[block.index].address
			}
		default:
			i := r.IntN(len(live))
			require.NoError(t, a.Free(live[i]))
			require.Error(t, a.Free(live[i]))
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		fmt.Fprintln(answers, address, a.Stats())
		require.Equal(t, a.Stats().Reserved, reserved)
		if event%16 == 0 {
			checkInvariants(t, a)
			require.Equal(t, blocks, blocksOf(a))
		}
	}
}

// blocksOf are the requested bytes of what is allocated, by address.
func blocksOf(a *Allocator) map[uint64]uint64 {
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
	return sizes
}
