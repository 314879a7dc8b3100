package batching

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryClipComesOnce over recipes of all kinds, also those with very few clips.
func TestEveryClipComesOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	for range 400 {
		r := options(Modes[random.IntN(len(Modes))], 0, fits(60, 30))
		r.Ranks = 1 + random.IntN(4)
		r.StepSamples = r.Ranks * (1 + random.IntN(20))
		if random.IntN(2) == 0 {
			r.Shares = FastestShares(r.StepSamples, []float64{1, 0.3, 0.7, 0.1}[:r.Ranks])
		}
		r.Buckets, r.DropLast, r.Epoch = 1+random.IntN(12), random.IntN(2) == 0, random.Uint64N(5)
		seconds := lognormal(1+random.IntN(600), random.Uint64())
		n := len(seconds)
		remainder := n % r.StepSamples
		e, err := MakeEpoch(seconds, r)
		if err != nil {
			require.True(t, remainder > 0 && (r.DropLast && n < r.StepSamples || !r.DropLast && remainder < r.Ranks), "%d clips, %+v: %v", n, r, err)
			continue
		}
		clips := e.Steps * r.StepSamples
		for _, size := range e.Tail {
			require.GreaterOrEqual(t, size, r.Ranks, "every process gets a clip")
			require.Less(t, size, max(r.StepSamples, 2))
			clips += size
		}
		require.Equal(t, r.share(0), e.Shares[0][0])
		require.Len(t, e.Shares, 1+len(e.Tail))
		e.eachRank(func(_ int, share []uint32, _ bool) { require.NotEmpty(t, share) })
		want := n
		if r.DropLast {
			want -= remainder
			require.Empty(t, e.Tail)
		}
		require.Equal(t, want, clips)
		require.Equal(t, (want+r.StepSamples-1)/r.StepSamples, e.Steps+len(e.Tail))
		require.Len(t, e.Order, want)
		once := slices.Clone(e.Order)
		slices.Sort(once)
		require.Len(t, slices.Compact(once), want, "no clip comes twice")
		again := epochOf(t, seconds, r)
		require.Equal(t, e.Order, again.Order)
	}
}

func TestEpochsAndSeedsDiffer(t *testing.T) {
	seconds := lognormal(10_000, 1)
	for _, mode := range Modes {
		r := options(mode, 32, fits(60, 30))
		first := epochOf(t, seconds, r)
		r.Epoch = 1
		second := epochOf(t, seconds, r)
		assert.NotEqual(t, first.Order, second.Order)
		assert.Less(t, alike(first, second), 0.2, "%s: steps meet other clips in another epoch", mode)
		r.Epoch, r.Seed = 0, 8
		third := epochOf(t, seconds, r)
		assert.NotEqual(t, first.Order, third.Order)
	}
}

// alike is the mean share of a step's clips that were together in one step of the other epoch.
func alike(a, b *Epoch) (share float64) {
	step := map[uint32]int{}
	for i, number := range b.Order {
		step[number] = i / 32
	}
	for k := range a.Steps {
		top, counts := 0, map[int]int{}
		for _, number := range a.Order[32*k : 32*k+32] {
			counts[step[number]]++
			top = max(top, counts[step[number]])
		}
		share += float64(top) / 32
	}
	return share / float64(a.Steps)
}

func TestProcessesGetAboutTheSame(t *testing.T) {
	seconds := lognormal(4000, 1)
	for _, mode := range Modes {
		r := options(mode, 128, fits(60, 30))
		r.Ranks = 4
		e := epochOf(t, seconds, r)
		top, all, clips := 0.0, 0.0, 0.0
		e.eachRank(func(_ int, share []uint32, last bool) {
			audio := 0.0
			for _, number := range share {
				audio += seconds[number]
			}
			all += audio
			clips = max(clips, audio)
			require.True(t, slices.IsSortedFunc(share, func(a, b uint32) int { return int(1e9 * (seconds[b] - seconds[a])) }))
			if last {
				top, clips = top+4*clips, 0
			}
		})
		assert.Less(t, top/all, 1.06, mode)
	}
}

// TestStepsOfAllLengthsDoNotDependOnProcesses: a training that is resumed on another number of
// processes continues exactly.
func TestStepsOfAllLengthsDoNotDependOnProcesses(t *testing.T) {
	seconds := lognormal(1000, 1)
	for _, mode := range []string{Random, Stratified} {
		steps := func(ranks int, shares []int) (all [][]uint32) {
			r := options(mode, 32, fits(60, 30))
			r.Ranks, r.Shares = ranks, shares
			e := epochOf(t, seconds, r)
			for step := range slices.Chunk(e.Order, 32) {
				slices.Sort(step)
				all = append(all, step)
			}
			return all
		}
		assert.Equal(t, steps(1, nil), steps(4, nil), mode)
		assert.Equal(t, steps(4, nil), steps(4, []int{20, 1, 8, 3}), "%s: nor on their shares", mode)
	}
}

func TestBucketedStepsAreOfSimilarLength(t *testing.T) {
	seconds := lognormal(20_000, 1)
	spread := func(mode string) (sum float64) {
		e := epochOf(t, seconds, options(mode, 32, fits(60, 30)))
		for k := range e.Steps {
			step := e.Order[32*k : 32*k+32]
			sum += seconds[step[0]] - seconds[step[31]] // from the longest to the shortest
		}
		return sum / float64(e.Steps)
	}
	assert.Less(t, spread(Bucketed), spread(Random)/15)
}

func TestLittleDataIsSaid(t *testing.T) {
	r := options(Bucketed, 32, nil)
	e := epochOf(t, lognormal(100, 1), r)
	require.Len(t, e.Notes, 2)
	assert.Contains(t, e.Notes[0], "only 3 steps of 32 clips")
	assert.Contains(t, e.Notes[1], "100 clips do not fill two buckets")
	require.Len(t, e.Buckets, 1)
	e = epochOf(t, lognormal(2000, 1), r)
	assert.Empty(t, e.Notes)
	assert.Greater(t, len(e.Buckets), 5)
	e = epochOf(t, lognormal(100, 1), options(Random, 32, nil))
	assert.Empty(t, e.Notes)
}

func TestRecipesThatCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"mode":       func(r *Options) { r.Mode = "sorted" },
		"no clips":   func(r *Options) { r.StepSamples = 0 },
		"many":       func(r *Options) { r.StepSamples = MaxStep + 1 },
		"no process": func(r *Options) { r.Ranks = 0 },
		"uneven":     func(r *Options) { r.Ranks = 5 },
		"no buckets": func(r *Options) { r.Buckets = 0 },
		"overhead":   func(r *Options) { r.OverheadS = -1 },
		"no step":    func(r *Options) { r.StepSamples, r.DropLast = 128, true },
		"too long":   func(r *Options) { r.Memory = Limits{{0.1, 1}} },
	} {
		r := options(Stratified, 32, fits(60, 30))
		spoil(&r)
		_, err := MakeEpoch(lognormal(100, 1), r)
		require.Error(t, err, name)
		if name != "mode" {
			_, err = Compare(lognormal(100, 1), r)
			require.Error(t, err, name)
		}
	}
}

func TestStepsAreNotSplitWithoutAMemoryTable(t *testing.T) {
	r := options(Stratified, 32, nil)
	_, err := Compare(lognormal(100, 1), r)
	require.ErrorContains(t, err, "memory has 0 rows")
	_, err = CostOfLongest(lognormal(100, 1), r, nil)
	require.ErrorContains(t, err, "memory has 0 rows")
	_ = epochOf(t, lognormal(100, 1), r)
}
