package allocator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

const page = 20 * mib

// script runs events on an allocator: sizes are born, negative numbers free the birth of that index
// (-1 the first).
func script(t *testing.T, s Settings, events ...int64) *Allocator {
	t.Helper()
	a := New(s)
	var blocks []Block
	for _, event := range events {
		if event < 0 {
			require.NoError(t, a.Free(blocks[-event-1]))
			continue
		}
		block := malloc(t, a, uint64(event))
		blocks = append(blocks, block)
	}
	checkInvariants(t, a)
	return a
}

func malloc(t *testing.T, a *Allocator, bytes uint64) Block {
	t.Helper()
	block, err := a.Malloc(bytes)
	require.NoError(t, err)
	return block
}

func TestRules(t *testing.T) {
	for name, row := range map[string]struct {
		settings            Settings
		events              []int64
		reserved, allocated uint64
	}{
		// Sizes are rounded up to 512 B, and up to 1 MiB is small: segments of 2 MiB.
		"nothing":                      {Settings{}, []int64{0}, 0, 0},
		"one byte":                     {Settings{}, []int64{1}, 2 * mib, 512},
		"513 bytes":                    {Settings{}, []int64{513}, 2 * mib, 1024},
		"1 MiB is small":               {Settings{}, []int64{mib, mib}, 2 * mib, 2 * mib},
		"a third one needs a segment":  {Settings{}, []int64{mib, mib, 1}, 4 * mib, 2*mib + 512},
		"a byte more is large":         {Settings{}, []int64{mib + 1}, page, mib + 512},
		"pools do not share":           {Settings{}, []int64{mib + 1, 1}, page + 2*mib, mib + 1024},
		"from 10 MiB on its own":       {Settings{}, []int64{10 * mib}, 10 * mib, 10 * mib},
		"a little less shares 20 MiB":  {Settings{}, []int64{10*mib - 512}, page, 10*mib - 512},
		"own segments are even":        {Settings{}, []int64{11*mib + 1}, 12 * mib, 12 * mib},
		"a smaller large segment":      {Settings{LargeSegmentSize: 12 * mib}, []int64{2 * mib}, 12 * mib, 2 * mib},
		"10 MiB with a larger segment": {Settings{LargeSegmentSize: 40 * mib}, []int64{10 * mib}, 10 * mib, 10 * mib},

		// Large: a rest is split off when it is more than 1 MiB, else it stays with the allocation.
		// 10 MiB of the 11 that 9 leave in 20 leave exactly 1 MiB, which is not more.
		"a rest of 1 MiB stays":      {Settings{}, []int64{9 * mib, 10 * mib}, page, 20 * mib},
		"19 MiB of a cached 20":      {Settings{}, []int64{20 * mib, -1, 19 * mib}, page, 20 * mib},
		"a smaller request splits":   {Settings{}, []int64{20 * mib, -1, 19*mib - 512}, page, 19*mib - 512},
		"the rest serves the next":   {Settings{}, []int64{20 * mib, -1, 10 * mib, 10 * mib}, page, 20 * mib},
		"small splits from 512 B on": {Settings{}, []int64{2*mib - 512, -1, mib, mib - 512, 512}, 2*mib + page, 2 * mib},

		// Best fit is the smallest block that is large enough: 12 MiB goes into 14 although 30 came
		// first.
		"best fit": {Settings{}, []int64{30 * mib, 14 * mib, -1, -2, 12 * mib, 30 * mib}, 44 * mib, 42 * mib},
		// A block between two free ones makes one of the three: 12 MiB in three pieces serves 12
		// again.
		"merging": {Settings{}, []int64{12 * mib, -1, 4 * mib, 4 * mib, 4 * mib, -2, -4, -3, 12 * mib}, 12 * mib, 12 * mib},

		// 4 divisions of the powers of two: 1200 lies between 1024 and 2048, in steps of 256; but
		// only above 512 B x 4.
		"divisions":          {divided(4), []int64{5 * 512}, 2 * mib, 5 * 512}, // 2560 = 2048 + 512
		"divisions round up": {divided(4), []int64{5*512 + 1}, 2 * mib, 6 * 512},
		"too small for them": {divided(4), []int64{1200}, 2 * mib, 1536},
		"large ones":         {divided(4), []int64{33 * mib}, 40 * mib, 40 * mib}, // 32 + 8
		"one division":       {divided(1), []int64{33 * mib}, 34 * mib, 34 * mib},

		// Blocks from max_split_size on are not split, and serve requests from it on alone, up to
		// the rounding above them.
		"oversize unsplit":   {Settings{MaxSplitSize: 30 * mib}, []int64{40 * mib, -1, 30 * mib}, 40 * mib, 40 * mib},
		"kept from small":    {Settings{MaxSplitSize: 30 * mib}, []int64{40 * mib, -1, 28 * mib}, 68 * mib, 28 * mib},
		"rounding excluded":  {Settings{MaxSplitSize: 30 * mib}, []int64{50 * mib, -1, 30 * mib}, 80 * mib, 30 * mib},
		"rounding included":  {Settings{MaxSplitSize: 30 * mib}, []int64{50*mib - 2*mib, -1, 30 * mib}, 48 * mib, 48 * mib},
		"no further search":  {Settings{MaxSplitSize: 30 * mib}, []int64{52 * mib, 50 * mib, -1, -2, 30 * mib}, 132 * mib, 30 * mib},
		"rounding as set":    {Settings{MaxSplitSize: 30 * mib, MaxNonSplitRounding: 21 * mib}, []int64{50 * mib, -1, 30 * mib}, 50 * mib, 50 * mib},
		"below, they split":  {Settings{MaxSplitSize: 30 * mib}, []int64{28 * mib, -1, 20 * mib}, 28 * mib, 20 * mib},
		"small pool as ever": {Settings{MaxSplitSize: 30 * mib}, []int64{1, 1}, 2 * mib, 1024},

		// Expandable: pages of 20 MiB (2 MiB small), the tail grows, every rest of 512 B is split
		// off.
		"first page":         {expandable, []int64{2 * mib}, page, 2 * mib},
		"not rounded to 2":   {expandable, []int64{11*mib + 1, 9*mib - 512}, page, 20 * mib},
		"grows by the rest":  {expandable, []int64{15 * mib, 10 * mib}, 2 * page, 25 * mib},
		"whole pages":        {expandable, []int64{41 * mib}, 3 * page, 41 * mib},
		"a small page":       {expandable, []int64{1}, 2 * mib, 512},
		"freed and used":     {expandable, []int64{30 * mib, -1, 40 * mib}, 2 * page, 40 * mib},
		"holes before tails": {expandable, []int64{8 * mib, 2 * mib, -1, 2 * mib, 10*mib - 512, 6 * mib}, page, 20*mib - 512},
	} {
		t.Run(name, func(t *testing.T) {
			stats := script(t, row.settings, row.events...).Stats()
			require.Equal(t, []uint64{row.reserved, row.allocated}, []uint64{stats.Reserved, stats.Allocated})
		})
	}
}

var expandable = Settings{ExpandableSegments: true}

func divided(divisions uint64) (s Settings) {
	fill(s.RoundupPower2Divisions[:], divisions)
	return s
}

func TestStats(t *testing.T) {
	a := script(t, Settings{}, 1000, 5*mib, 3*mib, 14*mib, -2)
	require.Equal(t, Stats{
		Allocated: 1024 + 17*mib, Requested: 1000 + 17*mib, Reserved: 36 * mib,
		PeakAllocated: 1024 + 22*mib, PeakRequested: 1000 + 22*mib, PeakReserved: 36 * mib,
		Segments: 3,
	}, a.Stats())
	a.ResetPeaks()
	require.Equal(t, uint64(1024+17*mib), a.Stats().PeakAllocated)
	require.Equal(t, uint64(1000+17*mib), a.Stats().PeakRequested)
}

func TestEmptyCache(t *testing.T) {
	a := script(t, Settings{}, 1, 30*mib, 15*mib, 2*mib, 2*mib, -1, -2, -4)
	a.EmptyCache() // the 20 MiB segment has a live block, the 16 MiB one is live
	checkInvariants(t, a)
	require.Equal(t, uint64(36*mib), a.Stats().Reserved)
	require.Equal(t, uint64(2), a.Stats().Segments)

	// 45 MiB are 60 MiB of pages; freed, the pages from 20 to 60 MiB lie wholly in the free block
	// behind the 5 MiB.
	a = script(t, expandable, 5*mib, 40*mib, -2)
	a.EmptyCache()
	checkInvariants(t, a)
	require.Equal(t, uint64(page), a.Stats().Reserved)
	free := a.freeBlocks(&a.large)
	require.Equal(t, uint64(15*mib), a.blocks[free[len(free)-1]].size)
	block, err := a.Malloc(16 * mib) // 15 MiB are there: one more page, at the gap
	require.NoError(t, err)
	require.Equal(t, uint64(2*page), a.Stats().Reserved)
	require.NoError(t, a.Free(block))
}

func TestOutOfMemory(t *testing.T) {
	a := New(Settings{Limit: 100 * mib})
	big := malloc(t, a, 40*mib)
	cached := malloc(t, a, 30*mib)
	require.NoError(t, a.Free(cached))

	// 50 MiB do not fit beside 40 + 30, but do once the cached 30 are given back: one retry.
	block := malloc(t, a, 50*mib)
	require.Equal(t, uint64(90*mib), a.Stats().Reserved)
	require.Equal(t, uint64(1), a.Stats().Retries)
	require.NoError(t, a.Free(block))

	_, err := a.Malloc(61 * mib)
	var out *OutOfMemory
	require.ErrorAs(t, err, &out)
	require.Equal(t, OutOfMemory{Wanted: 61 * mib, Segment: 62 * mib, Reserved: 40 * mib, Allocated: 40 * mib}, *out)
	require.ErrorContains(t, err, "63963136 bytes wanted")
	require.Equal(t, uint64(1), a.Stats().OOMs)
	require.Equal(t, uint64(40*mib), a.Stats().Reserved, "the cache was given back, and stays so")
	require.NoError(t, a.Free(big))
	_, err = a.Malloc(1 << 60)
	require.ErrorAs(t, err, &out)
}

func TestMemoryFraction(t *testing.T) {
	half := 0.5
	a := New(Settings{MemoryFraction: &half, DeviceTotal: 100 * mib, Limit: 1000 * mib})
	_ = malloc(t, a, 50*mib)
	_, err := a.Malloc(1)
	require.Error(t, err)
	full := 1.0
	a = New(Settings{MemoryFraction: &full, DeviceTotal: 100 * mib})
	_, err = a.Malloc(200 * mib)
	require.NoError(t, err, "1 sets no limit of PyTorch's own")
}

// A failed growth of an expandable segment keeps what was mapped before it, and takes none of its
// own pages.
func TestExpandableOutOfMemory(t *testing.T) {
	a := New(Settings{ExpandableSegments: true, Limit: 50 * mib})
	_ = malloc(t, a, 30*mib)
	_, err := a.Malloc(15 * mib)
	require.Error(t, err, "10 MiB of the second page are there, the third page does not fit")
	checkInvariants(t, a)
	require.Equal(t, uint64(2*page), a.Stats().Reserved)
	_ = malloc(t, a, 10*mib)
}

// throw_on_cudamalloc_oom gives up before the cache is given back.
func TestThrowOnCudaMallocOOM(t *testing.T) {
	for throws, retries := range map[bool]uint64{true: 0, false: 1} {
		a := New(Settings{Limit: 100 * mib, ThrowOnCudaMallocOOM: throws})
		block := malloc(t, a, 60*mib)
		require.NoError(t, a.Free(block))
		_, err := a.Malloc(80 * mib)
		require.Equal(t, throws, err != nil)
		require.Equal(t, retries, a.Stats().Retries)
	}
}

// With max_split_size, the smallest oversize block that does is given back first, and the rest of
// the cache stays.
func TestReleaseAvailable(t *testing.T) {
	a := New(Settings{MaxSplitSize: 30 * mib, Limit: 200 * mib})
	for _, size := range []uint64{40, 60, 24} {
		block := malloc(t, a, size*mib)
		defer func() { require.NoError(t, a.Free(block)) }()
	}
	oversize := func(sizes ...uint64) {
		var blocks []Block
		for _, size := range sizes {
			block := malloc(t, a, size*mib)
			blocks = append(blocks, block)
		}
		for _, block := range blocks {
			require.NoError(t, a.Free(block))
		}
	}
	oversize(34, 36) // reserved 124 + 70 = 194
	_, err := a.Malloc(10 * mib)
	require.NoError(t, err, "34 is the smallest oversize block that covers max_split_size")
	require.Equal(t, uint64(194-34+10)*mib, a.Stats().Reserved)
	require.Zero(t, a.Stats().Retries)
	// the cached 36 and a new 30, reserved 200: from here on both are needed for 60
	oversize(36, 30)
	_, err = a.Malloc(60 * mib)
	require.NoError(t, err, "36 and 30 together")
	require.Equal(t, uint64(200-66+60)*mib, a.Stats().Reserved)
	require.Zero(t, a.Stats().Retries)
}

// Ages count searches of the pool; blocks of at least the mean age go, all of them in a pass.
func TestGarbageCollection(t *testing.T) {
	threshold := 0.999
	a := New(Settings{MemoryFraction: &threshold, DeviceTotal: 1000 * mib, GarbageCollectionThreshold: 0.1})
	free := func(size uint64) {
		block := malloc(t, a, size*mib)
		require.NoError(t, a.Free(block))
	}
	free(20)
	free(40) // search 2: nothing fits; reserved 20 is below 99.9
	free(60) // search 3: reserved 60 is below
	require.Equal(t, uint64(120*mib), a.Stats().Reserved)
	// Search 4: reserved 120 is above 99.9 by 20.1. Ages are 3, 2, 1, the mean 2: the first two go,
	// which is enough.
	free(80)
	require.Equal(t, uint64(140*mib), a.Stats().Reserved)
	require.Zero(t, a.Stats().Retries)
}

func TestFreeTwice(t *testing.T) {
	a := New(Settings{})
	first := malloc(t, a, 1000)
	require.NoError(t, a.Free(first))
	second := malloc(t, a, 1000)
	for _, stale := range []Block{first, {index: 500}, {index: -1, generation: 1}} {
		err := a.Free(stale)
		require.ErrorContains(t, err, "not allocated")
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
	}
	require.Equal(t, uint64(1024), a.Stats().Allocated)
	require.NoError(t, a.Free(second))
	require.NoError(t, a.Free(Block{}), "an allocation of 0 bytes")
}

func TestSegments(t *testing.T) {
	a := script(t, Settings{}, 12*mib, 1000, 3*mib, 4*mib, -3)
	require.Equal(t, []Segment{
		{Address: 2 * mib, Size: 12 * mib, Blocks: []Piece{{12 * mib, 12 * mib, true}}},
		{Address: 14 * mib, Size: 2 * mib, Small: true, Blocks: []Piece{{1024, 1000, true}, {2*mib - 1024, 0, false}}},
		{Address: 16 * mib, Size: 20 * mib, Blocks: []Piece{{3 * mib, 0, false}, {4 * mib, 4 * mib, true}, {13 * mib, 0, false}}},
	}, a.Segments())
	require.Empty(t, New(Settings{}).Segments())

	a = script(t, expandable, 25*mib, 40*mib, 10*mib, -2)
	// of four pages the third, from 40 to 60 MiB, is wholly free and goes: two stretches are left
	a.EmptyCache()
	segments := a.Segments()
	require.Len(t, segments, 2)
	require.Equal(t, []uint64{2 * page, 2 * page}, []uint64{segments[0].Size, segments[1].Size + page})
	require.True(t, segments[0].Expandable)
}

// Steady use allocates nothing.
func TestHotPathAllocatesNothing(t *testing.T) {
	a := New(Settings{})
	blocks := make([]Block, 200)
	step := func() {
		for i := range blocks {
			blocks[i], _ = a.Malloc(uint64(i*i*100 + 1))
		}
		for i := range blocks {
			_ = a.Free(blocks[(i*7)%len(blocks)])
		}
	}
	step()
	require.Zero(t, testing.AllocsPerRun(10, step))
}
